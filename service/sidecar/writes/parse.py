"""Parses updates sent over HTTP, checks them by the rules of ingestion, and encodes them as Kafka messages.

A body is lines of JSON, an array of JSON values, or an Arrow IPC stream. A line is anything that the format `json`
accepts: an update (`{"data":[1,2],"time":17,"diff":-1}`), a bare row, or `{"resolved":T}`, the promise that nothing
before T follows. A stream has the source's columns and, optionally, `_time` and `_diff`. A body is accepted as a whole
or not at all.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.errors import BadValue
from vernier.operators.language.types.schema import RowType
from vernier.service.codec.native import progress_message, update, updates_message
from vernier.service.files.updatefiles.columns import first_bad
from vernier.service.files.updatefiles.lines import split_lines
from vernier.service.files.updatefiles.marks import without_mark
from vernier.service.ingest.bounds import DIFF_RANGE, MOST_BYTES
from vernier.service.ingest.formats.ipc import TooLarge, read_stream
from vernier.service.ingest.formats.json_lines import JsonLines
from vernier.service.ingest.formats.judge import TOO_DEEP, check_depth, judge_diff, judge_time
from vernier.service.ingest.formats.messages import NO_TIME
from vernier.service.ingest.rejects import Refusal, clipped
from vernier.service.ingest.watermarks import Rounding
from vernier.service.views.json_rows import RowJson
from vernier.storage.errors import CallerError, VernierError
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED, Ints

_BLOCK = 1 << 18
"""Bytes that are decoded without yielding to other threads, which takes some milliseconds."""
_MOST_UPDATES = 500
_MOST_BYTES = 1 << 18
_HEAD_BYTES = 1_024
"""Upper bound for the bytes of a native message besides its updates."""
_TIME, _DIFF = "_time", "_diff"
_log = logging.getLogger("vernier.submission")


class BadSubmission(CallerError):
    """An item of a body is not an update of the source."""

    code = "bad_update"
    message = "{unit} {number}: {problem}; nothing was sent"
    unit: str
    number: int
    problem: str


class BadPromise(CallerError):
    """A promise is too far ahead of the clock."""

    code = "bad_update"
    message = (
        "resolved {upper} is further ahead of the clock than max_ahead of source {source} allows; nothing was sent"
    )
    upper: int
    source: str


class BadBody(CallerError):
    """A body does not match its content type."""

    code = "bad_body"
    message = "the body is not a valid {what}: {problem}; nothing was sent"
    what: str
    problem: str


class BodyTooLarge(CallerError):
    """A body holds more than the limit allows once it is decoded."""

    code = "body_too_large"
    message = "the body is too large: {problem}; nothing was sent"
    problem: str


@dataclass(frozen=True, slots=True)
class Target:
    """The source that updates are for.

    frontier: an update before it would be refused as late; None if no update would. latest: an update or a promise
    after it would be too far ahead of the broker's clock.
    """

    name: str
    schema: RowType
    topic: str
    format: Literal["vernier", "json"]
    clock: Literal["arrival", "event"]
    rounding: Rounding = "exact"
    frontier: int | None = None
    max_message_bytes: int = 8 << 20
    max_decoded_bytes: int = MOST_BYTES
    diff_range: int = DIFF_RANGE
    latest: int | None = None


@dataclass
class Submission:
    """n updates and the promises of a body.

    words: int64[n, width]; time: int64[n], NO_TIME where none was sent; diff: int64[n]; heap: their long texts;
    numbers: int64[n], their places in the body, from 1. resolved: the promises.
    """

    target: Target
    unit: str
    words: Ints
    time: Ints
    diff: Ints
    numbers: Ints
    heap: Heap
    resolved: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.diff)

    @property
    def latest(self) -> int | None:
        """The greatest data time, if the updates carry their own times."""
        if self.target.clock == "arrival" or not len(self):
            return None
        return int(self.time.max())

    def check(self) -> Submission:
        """Raises BadSubmission for an update that ingestion would refuse for its diff or its time, BadPromise for a
        promise.
        """
        most = self.target.diff_range
        wide = np.flatnonzero((self.diff > most) | (self.diff < -most))
        if len(wide):
            problem = f"the diff is {self.diff[wide[0]]}, outside the diff_range of {-most} to {most}"
            raise BadSubmission(unit=self.unit, number=int(self.numbers[wide[0]]), problem=problem)
        if self.target.clock == "arrival":
            return self
        for bad, problem in (
            (self.time == NO_TIME, f"there is no time, and source {self.target.name} has an event clock"),
            (
                self.time < (NO_TIME if self.target.frontier is None else self.target.frontier),
                f"the time is before {self.target.frontier}, the frontier of source {self.target.name}: too late",
            ),
        ):
            found = np.flatnonzero(bad)
            if len(found):
                raise BadSubmission(unit=self.unit, number=int(self.numbers[found[0]]), problem=problem)
        latest = self.target.latest
        if latest is not None:
            far = np.flatnonzero(self.time > latest)
            if len(far):
                problem = (
                    f"the time {self.time[far[0]]} is further ahead of the clock than max_ahead of the source allows"
                )
                raise BadSubmission(unit=self.unit, number=int(self.numbers[far[0]]), problem=problem)
            for upper in self.resolved:
                if latest < upper < CLOSED:
                    raise BadPromise(upper=upper, source=self.target.name)
        return self

    def messages(self, partitions: int, now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Yield (partition, value). Updates of one row go to one partition, so they keep their order; promises go to
        all.

        now_ns: the time of updates that have none. Raises BadSubmission for an update that is too long for a message.
        """
        places = [zlib.crc32(row.tobytes()) % partitions for row in self.words]
        waiting: dict[int, list[tuple[int, bytes]]] = {}
        sizes: dict[int, int] = {}
        for i, text in self._texts(now_ns):
            place = places[i]
            if len(text) + _HEAD_BYTES > self.target.max_message_bytes:
                problem = f"the update has {len(text)} bytes, more than max_message_bytes allows"
                raise BadSubmission(unit=self.unit, number=int(self.numbers[i]), problem=problem)
            own = waiting.setdefault(place, [])
            if own and (len(own) == self._most or sizes[place] + len(text) > _MOST_BYTES):
                yield place, self._message(waiting.pop(place), now_ns)
                own = waiting[place] = []
            own.append((i, text))
            sizes[place] = len(text) + (sizes[place] if len(own) > 1 else 0)
        for place, own in waiting.items():
            yield place, self._message(own, now_ns)
        for upper in self.resolved:
            json = self.target.format == "json"
            message = msgspec.json.encode({"resolved": str(upper)}) if json else progress_message(upper)
            for place in range(partitions):
                yield place, message

    @property
    def _most(self) -> int:
        return 1 if self.target.format == "json" else _MOST_UPDATES

    def _texts(self, now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Yield each update as JSON, in the topic's format."""
        codec = RowJson(self.target.schema, self.target.schema.names, self.heap)
        for start in range(0, len(self), _MOST_UPDATES):
            rows = codec.dicts(self.words[start : start + _MOST_UPDATES])
            for i, row in enumerate(rows, start):
                time, diff, values = int(self.time[i]), int(self.diff[i]), list(row.values())
                if self.target.format == "vernier":
                    at = now_ns if time == NO_TIME else time
                    yield i, update(msgspec.json.encode(values), at, diff)
                else:
                    own = {} if time == NO_TIME else {"time": str(time)}
                    yield i, msgspec.json.encode({"input": self.target.name, "data": values, **own, "diff": diff})

    def _message(self, updates: list[tuple[int, bytes]], now_ns: int) -> bytes:
        if self.target.format == "json":
            return updates[0][1]
        times = self.time[[i for i, _ in updates]]
        least = int(np.where(times == NO_TIME, now_ns, times).min())
        return updates_message(least, (text for _, text in updates), self.target.name)


def read_body(kind: str, body: bytes, target: Target) -> Submission:
    """Parse a body whose content type is in `READERS`. O(bytes).

    Raises BadSubmission, BadBody, BodyTooLarge. Any unexpected failure while it is read becomes a BadBody, too.
    """
    try:
        return READERS[kind](body, target)
    except (VernierError, MemoryError):
        raise
    except Exception as error:
        _log.exception("a body of %s for source %s could not be read", kind, target.name)
        problem = f"{type(error).__name__} {(str(error).splitlines() or [''])[0]}".rstrip()
        raise BadBody(what=kind, problem=clipped(problem)) from error


def of_lines(body: bytes, target: Target) -> Submission:
    """The updates of lines of JSON. O(bytes). Raises BadSubmission, BadBody."""
    return _of_values(split_lines(without_mark(body)), target, "line")


def of_array(body: bytes, target: Target) -> Submission:
    """The updates of a JSON array, or of one JSON object. O(bytes). Raises BadSubmission, BadBody."""
    body = without_mark(body)
    try:
        check_depth(body)
        values = [body] if body.lstrip()[:1] == b"{" else msgspec.json.decode(body, type=list[msgspec.Raw])
    except Refusal as refusal:
        raise BadBody(what="JSON array of updates", problem=refusal.detail) from refusal
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadBody(what="JSON array of updates", problem=str(error)) from error
    return _of_values(pa.array([bytes(value) for value in values], pa.large_binary()), target, "update")


def _of_values(values: pa.LargeBinaryArray, target: Target, unit: str) -> Submission:
    reader = JsonLines({target.name: target.schema})
    heap, parsed, starts = Heap(), [], []
    for start, stop in _blocks(values):
        found = reader.decode(values[start:stop], heap)
        for refused in found.refused:
            if refused.detail.startswith(TOO_DEEP):
                raise BadBody(what="JSON updates", problem=f"{unit} {start + refused.message + 1} is {refused.detail}")
            if values[start + refused.message].as_py().strip():
                raise BadSubmission(unit=unit, number=start + refused.message + 1, problem=refused.detail)
        parsed.append(found)
        starts.append(start)
    nothing = np.empty(0, np.int64)
    return Submission(
        target,
        unit,
        np.concatenate([np.empty((0, target.schema.width), np.int64), *(one.words[target.name] for one in parsed)]),
        np.concatenate([nothing, *(one.time for one in parsed)]),
        np.concatenate([nothing, *(one.diff for one in parsed)]),
        np.concatenate([nothing, *(one.message + start + 1 for one, start in zip(parsed, starts, strict=True))]),
        heap,
        [entry.upper for one in parsed for entry in one.progress],
    ).check()


def _blocks(values: pa.LargeBinaryArray) -> Iterator[tuple[int, int]]:
    """Yield ranges of values of about _BLOCK bytes each."""
    ends = np.cumsum(pc.binary_length(values).to_numpy())
    start = 0
    while start < len(values):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
        yield start, stop
        start = stop


def of_arrow(body: bytes, target: Target) -> Submission:
    """The updates of an Arrow IPC stream. O(bytes). Raises BadSubmission, BadBody."""
    try:
        table = read_stream(pa.py_buffer(body), target.schema.width, target.max_decoded_bytes)
    except TooLarge as refusal:
        raise BodyTooLarge(problem=refusal.detail) from refusal
    except Refusal as refusal:
        raise BadBody(what="Arrow IPC stream", problem=refusal.detail) from refusal
    known = (*target.schema.names, _TIME, _DIFF)
    for name in table.arrays:
        if name not in known:
            raise BadBody(what="stream of its updates", problem=f"column {name!r} is not one of {', '.join(known)}")
    heap, n = Heap(), table.count
    words = np.empty((n, target.schema.width), np.int64)
    for one in target.schema.fields:
        column = table.arrays[one.name] if one.name in table.arrays else pa.nulls(n, one.type.arrow)
        try:
            words[:, one.offset : one.offset + one.words] = one.encode(column, heap)
        except (BadValue, pa.ArrowException) as error:
            row = first_bad(n, lambda stop: one.encode(column.slice(0, stop), heap))  # noqa: B023
            raise BadSubmission(unit="row", number=row + 1, problem=clipped(f"{one.name}: {error}")) from error
    time, diff = (_numbers(table.arrays.get(name), n, name) for name in (_TIME, _DIFF))
    numbers = np.arange(1, n + 1, dtype=np.int64)
    return Submission(target, "row", words, time, diff, numbers, heap).check()


def _numbers(column: pa.Array | None, n: int, name: str) -> Ints:
    """The column of times or diffs, checked value by value."""
    judge, absent = (judge_time, NO_TIME) if name == _TIME else (judge_diff, 1)
    found = np.full(n, absent, np.int64)
    if column is None:
        return found
    if pa.types.is_timestamp(column.type):
        try:
            column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
        except pa.ArrowException as error:
            row = first_bad(n, lambda stop: column.slice(0, stop).cast(pa.timestamp("ns", column.type.tz)))
            problem = f"{name} does not fit 64 bits of nanoseconds"
            raise BadSubmission(unit="row", number=row + 1, problem=problem) from error
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise BadBody(what="stream of its updates", problem=f"column {name} is {column.type}, but it should be int64")
    for i, value in enumerate(column.to_pylist()):
        try:
            found[i] = absent if value is None else judge(value, name)
        except Refusal as refusal:
            raise BadSubmission(unit="row", number=i + 1, problem=refusal.detail) from refusal
    return found


READERS: Mapping[str, Callable[[bytes, Target], Submission]] = {
    "application/x-ndjson": of_lines,
    "application/ndjson": of_lines,
    "application/jsonl": of_lines,
    "application/json": of_array,
    "application/vnd.apache.arrow.stream": of_arrow,
}
"""The function that reads a body, by content type."""
