"""The manifest of an epoch: the one file that says what exists.

It names the batches of every arrangement, the stashes (updates held back until their time), the source offsets
consumed, the state of ingestion (`door` in the file), the views and this epoch's changes. A file is two lines of JSON:
a head with the format version and the length and xxh3_64 of the body, and the body. One is written per epoch, so a
reference to a batch is a short array instead of an object, and the body says only how the epoch's batches and totals
differ from those of a rollup (rollup.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from vernier.storage.blob.segment import FOLDER, Entry, checksum
from vernier.storage.errors import Damaged, UnknownFormat

FORMAT = 3
"""2: references to a part of a batch. 3: sources as entries instead of facts among the metrics; a rollup, and
the difference from it."""
_READABLE = (1, 2, FORMAT)
SUFFIX = ".json"
EPOCH_DIGITS = 12
"""Digits of an epoch in file names, zero-padded so that names sort as epochs do."""
NO_EPOCH = 0
"""The epoch of an empty state directory; the first commit is epoch 1."""


LOWEST, HIGHEST = -(2**63), 2**63 - 1
"""The range of all hashes."""


class BatchRef(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """Where a batch (or a stash, or dead letters) is stored, and what it covers.

    updates: number of updates. nbytes: bytes of its arrays. lower, upper, since: the batch's data times. low, high: the
    part of the batch that is meant, as a range of hashes, both inclusive; a reshard to another number of workers has
    cut it (storage/state/reshard.py).
    """

    segment: str
    label: str
    updates: int
    nbytes: int
    lower: int
    upper: int
    since: int
    low: int = LOWEST
    high: int = HIGHEST

    @staticmethod
    def of(name: str, entry: Entry) -> "BatchRef":
        """The reference to an entry of the segment of this name."""
        meta = entry.meta
        return BatchRef(name, entry.label, meta["updates"], entry.nbytes, meta["lower"], meta["upper"], meta["since"])


class WholeEntry(msgspec.Struct, frozen=True, array_like=True):
    """What an arrangement holds completely: the rows of the operator with the fingerprint `of`; words: the position of
    each of their words in the arrangement's rows."""

    of: str
    words: list[int]


class TraceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An arrangement; `shards[i]` are the batches of shard i, oldest first. whole: which operator's rows it holds
    completely, if any; states of older releases do not say. since: for a source that keeps history, from which time on
    all shards tell times apart; for a view its entry says it; others know sums up to the frontier."""

    key_width: int
    val_width: int
    depth: int
    shards: list[list[BatchRef]]
    whole: WholeEntry | None = None
    since: int | None = None


class ViewEntry(msgspec.Struct, frozen=True):
    """A view: its columns (the operators' row type as JSON), its key columns, the trace that holds it, its since.

    began: the epoch that last created the view from scratch although a view of this name had existed before; its rows
    do not continue the earlier ones.
    """

    schema: list[Any]
    key: list[str]
    trace: str
    since: int
    began: int = 0


class PartitionEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A partition of a source's topic. frontier: its data times before this one are final; None: none yet. idle: it
    does not hold the others back, and `frontier` is how far it had come. lag: its messages that no epoch had read; None
    if unknown."""

    frontier: int | None = None
    idle: bool = False
    lag: int | None = None


class SnapshotEntry(msgspec.Struct, frozen=True):
    """The snapshot with which a source begins. time: the data time of its rows; done: how many of its pieces have
    entered, with this many rows."""

    time: int
    pieces: int
    done: int
    rows: int


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A source as this epoch has read it.

    topic, format, clock, on_late, rounding: its settings then. frontier: the least one of its partitions that are not
    idle; None if all are. idle: all partitions are. held: its updates that wait for their data time. snapshot: that of
    the source, if it has one. columns: its columns, as ViewEntry.schema has them; states of older releases do not say.
    earlier: those that it had before, the newest last.
    """

    topic: str = ""
    format: str = "vernier"
    clock: Literal["arrival", "event"] = "event"
    on_late: Literal["reject", "advance"] = "reject"
    rounding: Literal["exact", "millisecond"] = "exact"
    frontier: int | None = None
    idle: bool = False
    partitions: dict[int, PartitionEntry] = {}
    held: int = 0
    snapshot: SnapshotEntry | None = None
    columns: list[list[str]] = []
    earlier: list[list[list[str]]] = []


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an epoch commits.

    epoch: the previous manifest's epoch plus one. attempt: which attempt of the epoch made it. lower, upper: the
    epoch's interval of data times. committed_ns: wall clock of the commit, ns since 1970. workers: the number of shards
    in each list of shards. app, program: the program's name and the fingerprint of its plan. held: updates stashed for
    a later epoch, by source (or operator) and shard. ingestion: its state, `door` in the file, a JSON object that
    storage does not interpret. sources: what the epoch found about its sources; processes decide by it. offsets: the
    next offset to read, by topic and partition. changes: this epoch's own change batches of all shards, by view. dead:
    dead letters of this epoch. stats: running totals for monitoring, a JSON object; nothing decides by it. topics: the
    ids of the topics that the offsets belong to, by name, if the brokers report them. cut_at: the frontier of the
    latest reshard; batches from before it may overlap in time. rollup: the rollup that this manifest was written with.
    """

    epoch: int
    attempt: str
    lower: int
    upper: int
    committed_ns: int
    workers: int
    app: str
    program: str
    traces: dict[str, TraceEntry] = {}
    held: dict[str, list[list[BatchRef]]] = {}
    ingestion: dict[str, Any] = msgspec.field(name="door", default_factory=dict)
    sources: dict[str, SourceEntry] = {}
    offsets: dict[str, dict[int, int]] = {}
    views: dict[str, ViewEntry] = {}
    changes: dict[str, list[BatchRef]] = {}
    dead: list[BatchRef] = []
    stats: dict[str, Any] = {}
    topics: dict[str, str] = {}
    cut_at: int | None = None
    rollup: BatchRef | None = None
    format: int = FORMAT

    def refs(self) -> Iterator[BatchRef]:
        """Every reference to a stored entry."""
        for trace in self.traces.values():
            for shard in trace.shards:
                yield from shard
        for shards in self.held.values():
            for shard in shards:
                yield from shard
        for batches in self.changes.values():
            yield from batches
        yield from self.dead
        if self.rollup is not None:
            yield self.rollup

    def sinces(self) -> dict[str, int]:
        """For each trace with history, from which time on it tells times apart."""
        kept = {name: trace.since for name, trace in self.traces.items() if trace.since is not None}
        return kept | {view.trace: view.since for view in self.views.values()}

    def segments(self) -> frozenset[str]:
        """The names of all segments that this manifest needs."""
        return frozenset(ref.segment for ref in self.refs())


class ShardDelta(msgspec.Struct, frozen=True, array_like=True):
    """One shard of a trace. kept: for each run of batches that are the rollup's, three numbers: its place in this list,
    its place in the rollup's list, its length. fresh: the other batches, in order."""

    kept: list[int]
    fresh: list[BatchRef]


class Delta(msgspec.Struct, frozen=True):
    """How a manifest differs from its rollup. shards: by trace; stats: see `changes` (rollup.py)."""

    shards: dict[str, list[ShardDelta]]
    stats: Any


class Written(Manifest, frozen=True, kw_only=True):
    """A manifest as it is in its file. With a delta, its traces have no shards, and `stats` is empty."""

    delta: Delta | None = None


class _Head(msgspec.Struct, frozen=True):
    format: int
    bytes: int
    xxh3_64: str


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_body = msgspec.json.Decoder(Written).decode


def manifest_file(epoch: int) -> str:
    """The file name of an epoch's manifest in the blob; names sort as epochs do."""
    return f"{FOLDER}/{epoch:0{EPOCH_DIGITS}d}{SUFFIX}"


def manifest_epoch(name: str) -> int | None:
    """The epoch from a manifest's file name; None if the file is not a manifest."""
    stem = name.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    return int(stem) if stem.isdecimal() and name == manifest_file(int(stem)) else None


def encode_manifest(manifest: Written) -> bytes:
    """The bytes of a manifest's file."""
    body = _encode(manifest)
    head = _Head(format=FORMAT, bytes=len(body), xxh3_64=f"{checksum(body):016x}")
    return b"\n".join((_encode(head), body, b""))


def decode_manifest(name: str, data: bytes) -> Written:
    """The manifest in a file's bytes, without what its rollup has. Raises UnknownFormat, and Damaged, which says
    what is wrong."""
    line, _, rest = data.partition(b"\n")
    try:
        head = _decode_head(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Damaged(kind="manifest", name=name, problem=f"head: {problem}") from problem
    if head.format not in _READABLE:
        raise UnknownFormat(kind="manifest", name=name, found=head.format, supported=FORMAT)
    body = rest[: head.bytes]
    if len(rest) != head.bytes + 1 or rest[-1:] != b"\n":
        expected = len(line) + head.bytes + 2
        raise Damaged(kind="manifest", name=name, problem=f"is {len(data)} bytes long, expected {expected}")
    found = f"{checksum(body):016x}"
    if found != head.xxh3_64:
        raise Damaged(kind="manifest", name=name, problem=f"checksum {found}, expected {head.xxh3_64}")
    try:
        manifest = _decode_body(body)
        if manifest.format != head.format:
            found = f"head: format {head.format}, the body has format {manifest.format}"
            raise Damaged(kind="manifest", name=name, problem=found)
        return _upgraded(manifest) if head.format < FORMAT else manifest
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Damaged(kind="manifest", name=name, problem=str(problem)) from problem


def _upgraded(found: Written) -> Written:
    """A manifest of an older release as this one has it. Raises ValidationError."""
    stats = dict(found.stats)
    facts = stats.pop("facts", {})
    return msgspec.structs.replace(found, stats=stats, sources=sources_of(facts.get("sources", {})), format=FORMAT)


def sources_of(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, SourceEntry]:
    """Sources from the facts that manifests up to format 2 have about them: frontiers are decimal strings, and a state
    is `active` or `idle`. Raises ValidationError."""

    def entry(about: Mapping[str, Any]) -> dict[str, Any]:
        return {"rounding": about.get("resolution", "exact"), **about, "idle": about.get("state") == "idle"}

    read = {
        name: entry(about) | {"partitions": {key: entry(part) for key, part in about.get("partitions", {}).items()}}
        for name, about in facts.items()
    }
    return msgspec.convert(read, dict[str, SourceEntry], strict=False)
