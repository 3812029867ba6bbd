"""The messages between the driver and its workers: msgpack frames on a stream. Nothing is ever unpickled.

A frame is a length of four bytes, big-endian, and one msgpack object with a tag. The first frame of a connection is a
Hello whose token must be the service's own, so a foreign client on the port learns nothing and starts nothing. Between
hosts, all of this is inside TLS (service/cluster/tls.py).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

import msgspec

from vernier.service.cluster.shelf import Rows
from vernier.service.cluster.tls import Channel
from vernier.service.errors import ProtocolBroken
from vernier.service.ingest.counts import SourceCounts
from vernier.service.ingest.loading import SnapshotPart
from vernier.storage.state.manifest import BatchRef

LARGEST_FRAME = 1 << 30
LARGEST_HELLO = 4096
"""The maximum number of bytes that a connection may send before its token has been checked."""

_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """A worker process introduces itself. host, pid: identify it; address: where its exchange listens; parent: the
    process that forked it, one for each executor; sees: whether it can read what lies on the driver's shelf."""

    token: str
    host: str
    pid: int
    address: str
    parent: int = 0
    sees: bool = False

    @property
    def executor(self) -> tuple[str, int]:
        """What its executor has that no other one has."""
        return self.host, self.parent


class Hot(msgspec.Struct, frozen=True, array_like=True):
    """A shard, one of `workers`, whose state a worker process has in memory, as some attempt of an epoch left it."""

    shard: int
    epoch: int
    attempt: str
    workers: int


class Open(msgspec.Struct, tag="open", frozen=True):
    """A task begins its part of an attempt."""

    attempt: str
    task: int
    hot: list[Hot]


class Poisoned(msgspec.Struct, frozen=True, array_like=True):
    """A message that kills or hangs the process that decodes it, and how (see service/ingest/quarantine.py)."""

    topic: str
    partition: int
    offset: int
    how: str


DECODING, DECODED = "decoding", "decoded"


class Phase(msgspec.Struct, tag="phase", frozen=True):
    """The phase that a worker of an attempt has entered: DECODING, then DECODED. If the worker dies, its last phase
    tells where."""

    attempt: str
    phase: str


class Convicted(msgspec.Struct, tag="convicted", frozen=True):
    """The messages that a worker's quarantine has found, sent as soon as they are known."""

    attempt: str
    messages: list[Poisoned]


class Target(msgspec.Struct, frozen=True):
    """Other programs, to which the service changes. fingerprint: of their plan; programs: name and text of each.
    switch: the epoch of this attempt is the first one of these programs; until then workers fill what is new."""

    fingerprint: str
    programs: list[tuple[str, str]]
    switch: bool = False


class Filled(msgspec.Struct, frozen=True, array_like=True):
    """How far a worker's part of a change is: of `rows` rows it has read `taken`. ready: it has caught up with the
    commit that the attempt started from."""

    rows: int
    taken: int
    ready: bool


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The state from which all workers of an attempt start: the newest commit.

    epoch: the epoch to make, one more than the committed one. base: the attempt that made the committed epoch ("" if
    there is none). lower: the committed epoch's upper frontier. ingestion, offsets: as in its manifest. quarantine: an
    earlier attempt ended while it was decoding, so messages are first tried in separate processes. poisoned: the
    messages of this epoch that are known to kill or hang a decoder. target: the programs to change to, if any. part:
    what of a snapshot the epoch loads, if it loads one; it then has no messages.
    """

    epoch: int
    base: str
    ingestion: dict[str, Any]
    offsets: dict[str, dict[int, int]]
    quarantine: bool = False
    poisoned: list[Poisoned] = []
    target: Target | None = None
    part: SnapshotPart | None = None


class Assign(msgspec.Struct, tag="assign", frozen=True):
    """All tasks of the attempt have arrived: this is your shard, these are your peers (by shard); begin. surplus: the
    processes of your executor that have no task, which you end (see service/cluster/surplus.py). rows: your messages,
    or where they lie, if the attempt has no tasks of Spark's."""

    attempt: str
    shard: int
    peers: list[str]
    start: Start
    surplus: list[int] = []
    rows: Rows | None = None


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """The attempt is over; workers that are still working on it stop."""

    attempt: str
    reason: str


class TraceReport(msgspec.Struct, frozen=True):
    """One shard of a trace after the epoch: its batches, oldest first, its since, and the bytes of the batches that the
    worker has in its own memory and not in a mapped file."""

    batches: list[BatchRef]
    since: int
    memory: int = 0


class Report(msgspec.Struct, tag="report", frozen=True, kw_only=True):
    """A worker has done its part of the epoch and written it.

    worker: its process. began_ns: wall clock of its host. lower, upper, ingestion, offsets, frontiers: the result of
    `Ingestion.advance`, the same on all workers. held: by source. changes, signs: by view, where its changes are, and
    its numbers of inserts and deletes. received_ms, received_count: broker times of the updates admitted, and the
    number of updates with each. counts: what ingestion counted, by source. waiting: updates held, by source. times:
    distinct data times. phases: seconds by phase. operators: seconds, updates in and updates out, by operator. due:
    the next time at which something must happen. rounds: by loop. merged, kept: updates that went into merges, and
    those left after them. exchanged: bytes sent to peers. memory: resident bytes. filled: its part of a change of
    programs, if one is under way. hot_keys: the most frequent key of the rows sent to an operator, its share, and the
    number of rows looked at.
    """

    attempt: str
    shard: int
    worker: str
    lower: int
    upper: int
    ingestion: dict[str, Any]
    offsets: dict[str, dict[int, int]]
    frontiers: dict[str, dict[str, int | None]]
    traces: dict[str, TraceReport]
    held: dict[str, list[BatchRef]]
    changes: dict[str, BatchRef]
    signs: dict[str, tuple[int, int]]
    dead: BatchRef | None
    received_ms: list[int]
    received_count: list[int]
    counts: dict[str, SourceCounts]
    waiting: dict[str, int]
    due: int | None = None
    times: int
    phases: dict[str, float]
    operators: dict[str, tuple[float, int, int]]
    rounds: dict[str, int]
    merged: int
    kept: int = 0
    exchanged: int
    memory: int
    began_ns: int = 0
    filled: Filled | None = None
    hot_keys: dict[str, tuple[str, float, int]] = {}


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """A worker cannot do its part. caller: the program or its data are at fault, so repeating the attempt does not
    help; final: trying again later does not help either; filling: it was at work for the programs to change to."""

    attempt: str
    error: str
    caller: bool
    final: bool = False
    filling: bool = False


class Stuck(msgspec.Struct, tag="stuck", frozen=True):
    """A function of the program has not returned for this many seconds; the attempt goes on. said: which function, and
    its input."""

    attempt: str
    said: str
    seconds: float


Message = Hello | Open | Assign | Cancel | Phase | Convicted | Report | Failed | Stuck

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Wire:
    """Frames on a connected socket or on a TLS channel over one. Any thread may send; only one thread may receive."""

    def __init__(self, connected: socket.socket | Channel, limit: int = LARGEST_FRAME) -> None:
        self.socket = connected
        self.limit = limit
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send one message. Raises OSError when the other side is gone."""
        body = _encode(message)
        with self._sending:
            self.socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> Message | None:
        """The next message; None at the end of the stream. Raises ProtocolBroken, TimeoutError and other OSErrors."""
        head = self._take(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > self.limit:
            raise ProtocolBroken(problem=f"a frame of {length} bytes, more than {self.limit}")
        body = self._take(length)
        if body is None:
            raise ProtocolBroken(problem=f"the stream ended inside a frame of {length} bytes")
        try:
            return _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise ProtocolBroken(problem=str(error)) from error

    def close(self) -> None:
        """Close the connection; a thread that waits on it wakes up."""
        with contextlib.suppress(OSError):  # no longer connected
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _take(self, count: int) -> bytearray | None:
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            read = self.socket.recv_into(view[got:])
            if read == 0:
                return None
            got += read
        return data
