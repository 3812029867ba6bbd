"""Sends lines of updates to a Kafka topic, for `vernier send`.

A line is an update as in update files. In the format `vernier`, lines that are available together share native
messages; each update has its own data time (the wall clock's for a line without one). In the format `json`, each line
becomes a message unchanged, even if it is not an update. Updates of one row go to one partition, so they keep their
order. The outbox of `vernier.Producer` sends them; rows are not checked, since the schema is the service's.
"""

from __future__ import annotations

import gzip
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from kafka.errors import KafkaError

from vernier.service.codec.instants import parse_instant
from vernier.service.config.settings import Settings
from vernier.service.files.updatefiles.marks import UTF16, is_utf16, without_mark
from vernier.service.kafka.clients import Producer
from vernier.service.kafka.producer.delivery import Idempotent
from vernier.service.kafka.producer.errors import DeliveryFailed
from vernier.service.kafka.producer.outbox import About, Entry, Outbox, said
from vernier.service.kafka.producer.policy import Every
from vernier.service.kafka.producer.topic_end import new_topic
from vernier.service.kafka.reach import check
from vernier.service.observability.progress import Quiet, Show
from vernier.storage.errors import CallerError

_CHUNK = 1 << 16
_TICK_SECONDS = 0.02
_LINGER_NS = 20_000_000
_BUFFER_BYTES = 32 << 20


class CannotSend(CallerError):
    """Kafka does not accept the updates."""

    message = "cannot send to topic {topic} at {bootstrap}: {reason}; {sent} updates were sent"
    topic: str
    bootstrap: str
    reason: str
    sent: int


class BadLine(CallerError):
    """A line is not an update."""

    message = "{file}, line {line}: {problem}; the {sent} lines before it were sent"
    file: str
    line: int
    problem: str
    sent: int


class CannotRead(CallerError):
    """The file of updates cannot be read."""

    message = "{file}: {reason}"
    file: str
    reason: str


class _Update(msgspec.Struct, forbid_unknown_fields=True):
    """The members of an update's line; `data` is kept as text."""

    data: msgspec.Raw
    time: int | str | None = None
    diff: int = 1
    input: str | None = None


class _Kind(msgspec.Struct):
    """Distinguishes native messages, which are sent unchanged, from updates."""

    v: Any = None
    p: Any = None


@dataclass(frozen=True)
class Sending:
    """What is sent and how.

    rate: maximum updates per second. promise: after each tick, promise in every partition that nothing earlier than the
    latest update follows; the lines must then be in the order of their times.
    """

    file: str
    topic: str
    format: str
    rate: float | None = None
    promise: bool = False


class Sender:
    """Sends the lines of one file (`-`: standard input) and waits until Kafka has acknowledged them."""

    def __init__(self, settings: Settings, sending: Sending, show: Show | None = None) -> None:
        self._settings, self._sending, self._show = settings, sending, show or Quiet()
        self._lines = self._sent = 0
        self._latest: int | None = None
        self._promised: int | None = None

    def run(self) -> int:
        """Send everything; returns the number of lines. Raises CannotRead, NoBroker, CannotSend and BadLine."""
        examine(self._sending.file)
        check(self._settings)
        try:
            self._outbox = self._open()
            try:
                self._send_all()
            finally:
                self._show.clear()
                self._outbox.close()
        except KafkaError as error:
            raise self._cannot(said(error)) from error
        except DeliveryFailed as error:
            raise self._cannot(error.reason) from error
        return self._lines

    @property
    def sent(self) -> int:
        """The number of updates, or messages, that were sent."""
        return self._sent

    def _open(self) -> Outbox:
        settings, sending = self._settings, self._sending
        client = Producer(
            **settings.kafka_client(),
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            max_block_ms=10_000,
            max_request_size=64 << 20,
        )
        try:
            end = new_topic(len(client.partitions_for(sending.topic) or ()) or 1)
        except BaseException:
            client.close(timeout=0)
            raise
        about = About(
            topic=sending.topic,
            bootstrap=settings.kafka.bootstrap,
            partitions=len(end.partitions),
            policy=Every(1),
            clock="manual",
            lateness=0,
            linger=_LINGER_NS,
            progress=sending.promise and sending.format == "vernier",
            most_bytes=_BUFFER_BYTES,
            block=True,
        )
        outbox = Outbox(about, end, 0, drop=False)
        outbox.start(Idempotent(client, sending.topic, end, outbox))
        return outbox

    def _cannot(self, reason: str) -> CannotSend:
        bootstrap = self._settings.kafka.bootstrap
        return CannotSend(topic=self._sending.topic, bootstrap=bootstrap, reason=reason, sent=self._sent)

    def _send_all(self) -> None:
        began, rate = time.monotonic(), self._sending.rate
        size = None if rate is None else max(1, int(rate * _TICK_SECONDS))
        for lines in _chunks(self._sending.file, size):
            if rate is not None:
                ahead = self._lines / rate - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
            for line in lines:
                self._lines += 1
                if line.strip():
                    self._take(line)
            self._flush(last=False)
            self._show.done("sending", self._sent, None, "updates")
        self._flush(last=True)
        self._outbox.flush(None)

    def _take(self, line: bytes) -> None:
        if self._sending.format == "json":
            if self._sending.promise:
                self._note(self._parsed(line))
            self._put(_place_of(line), line)
            self._sent += 1
            return
        try:
            kind = msgspec.json.decode(line, type=_Kind)
        except msgspec.DecodeError as error:
            if line.lstrip().startswith(b"["):
                raise self._bad('a bare row; with --topic write {"data":[…]}, or send it with --source') from error
            raise self._bad(f"not an update: {error}") from error
        if kind.v is not None:
            # The line is a native message already. Progress goes to every partition.
            for partition in range(self._outbox.about.partitions) if kind.p is not None else (zlib.crc32(line),):
                self._put(partition, line)
            self._sent += 1
            return
        update = self._parsed(line)
        moment = self._note(update)
        self._outbox.take([Entry(bytes(update.data), moment, update.diff, update.input)])
        self._sent += 1

    def _parsed(self, line: bytes) -> _Update:
        try:
            return msgspec.json.decode(line, type=_Update)
        except msgspec.DecodeError as error:
            raise self._bad(f"not an update: {error}") from error

    def _note(self, update: _Update) -> int:
        """The update's time. Checks that times ascend if promises are sent."""
        try:
            moment = time.time_ns() if update.time is None else parse_instant(update.time)
        except CallerError as error:
            raise self._bad(str(error)) from error
        if self._sending.promise and self._latest is not None and moment < self._latest:
            raise self._bad(f"time {moment} is before {self._latest}: promises need updates in time order")
        self._latest = moment
        return moment

    def _bad(self, problem: str) -> BadLine:
        self._flush(last=False)
        self._outbox.flush(None)
        return BadLine(file=self._sending.file, line=self._lines, problem=problem, sent=self._lines - 1)

    def _flush(self, *, last: bool) -> None:
        self._outbox.push()
        if not self._sending.promise or self._latest is None:
            return
        upper = self._latest + 1 if last else self._latest
        if upper == self._promised:
            return
        self._promised = upper
        if self._sending.format == "json":
            promise = msgspec.json.encode({"resolved": str(upper)})
            for partition in range(self._outbox.about.partitions):
                self._put(partition, promise)
        else:
            self._outbox.advance(upper)

    def _put(self, place: int, value: bytes) -> None:
        self._outbox.put(place % self._outbox.about.partitions, value)


def _place_of(line: bytes) -> int:
    """Choose the partition of a line: by its row, or by the whole line if it is not an update."""
    try:
        return zlib.crc32(msgspec.json.decode(line, type=_Update).data)
    except msgspec.DecodeError:
        return zlib.crc32(line)


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    try:
        if file == "-":
            yield sys.stdin.buffer
        else:
            with Path(file).open("rb") as raw:
                yield cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if file.endswith(".gz") else raw
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotRead(file=file, reason=str(reason).lower()) from error


def examine(file: str) -> None:
    """Check that a file can be read, before connecting to Kafka. Raises CannotRead."""
    if file != "-":
        with _opened(file) as stream:
            start = stream.read(_CHUNK)
        if is_utf16(start):
            raise CannotRead(file=file, reason=UTF16)


def read_lines(file: str) -> list[bytes]:
    """All lines of a file (`-`: standard input), plain or .gz. Raises CannotRead."""
    examine(file)
    with _opened(file) as stream:
        return without_mark(stream.read()).splitlines()


def _chunks(file: str, size: int | None) -> Iterator[list[bytes]]:
    """Yield the lines that are available, at most `size` at once, so that lines from a slow pipe are sent without
    delay.
    """
    with _opened(file) as stream:
        rest, first = b"", True
        while chunk := cast(Any, stream).read1(_CHUNK):
            *lines, rest = (rest + (without_mark(chunk) if first else chunk)).split(b"\n")
            first = False
            step = size or max(1, len(lines))
            for start in range(0, len(lines), step):
                yield lines[start : start + step]
        if rest:
            yield [rest]
