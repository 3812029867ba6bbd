"""Checks whether an output topic agrees with its view's history. For `vernier sinks verify` and for tests.

The audit compares what a reader of committed messages sees, up to the publisher's position, with the newest epoch of
the state directory. It compares each change at a time that the view still distinguishes, and the rows as of the time at
which that range begins (the base). In addition each message's id contains its interval, partition and number. The audit
therefore also finds duplicate messages whose content it cannot compare (in a compacted topic, or at compacted times),
and gaps in the progress of a partition. The service may run during the audit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np

from vernier.service.kafka.reading import CommittedReader
from vernier.service.sinks import position
from vernier.service.sinks.history import Step
from vernier.service.sinks.outgoing import Envelope, NotOneRow, changes_by_key, objects, rows_as_arrays
from vernier.service.sinks.position import Position
from vernier.service.views.view import changes_between, sum_until
from vernier.service.views.view_type import ViewType
from vernier.storage.blob.segment import Segment
from vernier.storage.errors import CallerError, EpochGone, StorageError
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.reshard import open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import MIN_TIME, Updates

Kind = Literal["missing", "doubled", "wrong"]
KINDS: tuple[Kind, ...] = ("missing", "doubled", "wrong")
MOST = 1_000
"""Differences of a topic that are kept; all are counted."""
_Place = tuple[int, int]
"""Partition and offset."""
_Change = tuple[bytes, int]
"""A row's JSON and its data time. Rows as of the base have the base as their time."""


class CannotCompare(CallerError):
    """A view and its topic have nothing that can be compared."""

    message = "view {view} cannot be compared with its topic: {reason}"
    view: str
    reason: str


@dataclass(frozen=True)
class Difference:
    """One difference between a topic and its view.

    row: JSON, or a message's id. time: None for the rows as of the base. expected, found: the sums of diffs. epoch: the
    epoch that made the change, if known.
    """

    kind: Kind
    row: str
    time: int | None
    expected: int
    found: int
    epoch: int | None = None
    places: tuple[_Place, ...] = ()

    def describe(self) -> str:
        """Describe the difference in one line."""
        at = "" if self.time is None else f" at {self.time}"
        where = [] if self.epoch is None else [f"epoch {self.epoch}"]
        where += [f"partition {partition} offset {offset}" for partition, offset in self.places]
        more = f" ({', '.join(where)})" if where else ""
        return f"{self.kind}: {self.row}{at}, expected {self.expected:+d}, found {self.found:+d}{more}"


@dataclass
class TopicAudit:
    """The result for one topic: it compared all changes with base < time < frontier, and the rows as of `base` if not
    None.

    problem: why nothing could be compared.
    """

    view: str
    topic: str
    format: str
    base: int | None = None
    frontier: int = MIN_TIME
    messages: int = 0
    changes: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    problem: str | None = None

    @property
    def equal(self) -> bool:
        """Whether the topic agrees with the view."""
        return not self.counts and self.problem is None

    def add(self, difference: Difference) -> None:
        """Count a difference; the first MOST are kept."""
        self.counts[difference.kind] += 1
        if len(self.differences) < MOST:
            self.differences.append(difference)

    def to_json(self, limit: int = MOST) -> dict[str, Any]:
        """The result for `--format json`."""
        return {
            "view": self.view,
            "topic": self.topic,
            "format": self.format,
            "base": self.base,
            "frontier": self.frontier,
            "messages": self.messages,
            "changes": self.changes,
            **{kind: self.counts[kind] for kind in KINDS},
            "equal": self.equal,
            "problem": self.problem,
            "differences": [asdict(one) for one in self.differences[:limit]],
        }


def audit_topics(
    client: Mapping[str, Any],
    state: StateDirectory,
    views: Sequence[str] = (),
    read: Callable[[str, int], None] = lambda topic, messages: None,
) -> list[TopicAudit]:
    """Compare the output topics of some views, by default of all published views, with the state directory.

    client: keyword arguments of Kafka clients. read: called with a topic and the number of its messages read so far.
    Raises KafkaErrors, StorageErrors, and CannotCompare for a view that is not published.
    """
    latest = state.latest()
    app = "" if latest is None else latest.app
    # Read the positions first: an epoch read afterwards contains everything that they refer to.
    known = position.read(client, app).views
    for view in views:
        if view not in known:
            raise CannotCompare(
                view=view, reason=f"nothing of it has been published (published views: {', '.join(known) or 'none'})"
            )
    found = []
    for view, reached in known.items():
        if not views or view in views:
            audit = TopicAudit(view, reached.topic, reached.format)
            found.append(audit)
            try:
                _compare(client, state, reached, audit, partial(read, reached.topic))
            except CannotCompare as error:
                audit.problem = error.reason
    return found


# --- the topic --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message with what its id says: the step [lower, upper), and its number within its partition."""

    place: _Place
    kind: str
    epoch: int
    identity: str
    lower: int
    upper: int
    key: bytes | None
    value: bytes | None


def _messages(client: Mapping[str, Any], topic: str, read: Callable[[int], None]) -> tuple[list[_Sent], bool]:
    """The committed messages that are in a topic now, and whether they include its first message."""
    found: list[_Sent] = []
    with CommittedReader(client) as reader:
        for records in reader.read(topic):
            found += map(_sent, records)
            read(len(found))
        begins = reader.first
    found.sort(key=lambda one: one.place)
    return found, not any(begins.values())


def _sent(record: Any) -> _Sent:
    headers = dict(record.headers)
    identity = (headers.get("vernier-message-id") or b"").decode("utf-8", "replace")
    try:
        _, lower, upper, _, _ = identity.rsplit(":", 4)
        step = int(lower), int(upper)
        epoch = int(headers.get("vernier-epoch") or b"")
    except ValueError:
        step, epoch = (MIN_TIME, MIN_TIME), 0
    kind = (headers.get("vernier-kind") or b"").decode("utf-8", "replace")
    return _Sent((record.partition, record.offset), kind, epoch, identity, *step, record.key, record.value)


class _Update(msgspec.Struct):
    v: int
    u: list[tuple[msgspec.Raw, str, int]] = []


def _changes_in(message: _Sent, form: str) -> Iterator[tuple[bytes, int, int]]:
    """The changes in a message: row, data time, diff."""
    value = message.value or b""
    if form == "vernier":
        for row, at, diff in msgspec.json.decode(value, type=_Update).u:
            yield bytes(row), int(at), diff
        return
    said = msgspec.json.decode(value, type=Envelope)
    for text, diff in ((bytes(said.before), -1), (bytes(said.after), 1)):
        if text != b"null":
            yield text, said.source.ts_ns, diff


# --- the view ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Truth:
    """What the newest epoch knows of a view."""

    view: ViewType
    manifest: Manifest
    batches: list[Batch]
    since: int

    def rows(self, as_of: int) -> Step:
        """The rows at a time."""
        found = sum_until(self.batches, self.view.stored.width, as_of).flat()
        return self._step(Updates.of(found.rows, np.full(len(found), as_of, np.int64), found.counts), as_of, as_of + 1)

    def changes(self, lower: int, upper: int) -> Step:
        """The changes with lower <= time < upper, none of which is compacted."""
        return self._step(changes_between(self.batches, self.view.stored.width, lower, upper), lower, upper)

    def _step(self, updates: Updates, lower: int, upper: int) -> Step:
        heap = None
        if self.view.stored.text_words:
            heap = Heap()
            heap.attach(batch.texts for batch in self.batches)
        return Step(self.view, "updates", self.manifest.epoch, lower, upper, updates, heap)


def _truth(state: StateDirectory, manifest: Manifest, reached: Position, name: str) -> _Truth:
    entry = manifest.views.get(name)
    if entry is None:
        raise CannotCompare(view=name, reason="the program no longer has this view")
    view = ViewType.of(name, entry)
    if view.meaning != reached.meaning:
        raise CannotCompare(
            view=name, reason="the program has changed the view, and its rows have not been published since"
        )
    if manifest.upper < reached.frontier:
        raise CannotCompare(
            view=name,
            reason=f"the state ends at {manifest.upper}, before the {reached.frontier} that the topic has reached: "
            "another state was published",
        )
    segments: dict[str, Segment] = {}
    batches = []
    for ref in (ref for shard in manifest.traces[entry.trace].shards for ref in shard):
        if ref.segment not in segments:
            segments[ref.segment] = state.open(ref.segment)
        batches.append(open_batch(segments[ref.segment], ref))
    return _Truth(view, manifest, batches, entry.since)


# --- both -------------------------------------------------------------------------------------------------------------


def _compare(
    client: Mapping[str, Any], state: StateDirectory, reached: Position, audit: TopicAudit, read: Callable[[int], None]
) -> None:
    messages, whole = _messages(client, audit.topic, read)
    # Ignore messages that were published after the position was read.
    messages = [one for one in messages if one.upper <= reached.frontier]
    audit.frontier, audit.messages = reached.frontier, len(messages)
    _doubled(messages, audit)
    if audit.format != "upsert":
        _progress_gaps(messages, audit)
    if not whole and audit.format != "upsert":
        # Retention has removed the beginning, so compare only the complete steps that every partition still has.
        first: dict[int, int] = {}
        for one in messages:
            first.setdefault(one.place[0], one.upper)
        start = max(first.values(), default=reached.frontier)
        messages = [one for one in messages if one.lower >= start]
    else:
        start = MIN_TIME
    with state.lease() as lease:
        truth = _truth(state, lease.manifest, reached, reached.view or audit.view)
        if audit.format == "upsert":
            _compare_keys(messages, truth, audit)
        else:
            _compare_changes(messages, truth, start, audit)
    _name_epochs(state, audit)


def _doubled(messages: Sequence[_Sent], audit: TopicAudit) -> None:
    seen: dict[str, _Sent] = {}
    for one in messages:
        before = seen.setdefault(one.identity, one)
        if before is not one and one.identity:
            places = (before.place, one.place)
            audit.add(Difference("doubled", f"message {one.identity}", None, 1, 2, one.epoch, places))


def _compare_changes(messages: Sequence[_Sent], truth: _Truth, start: int, audit: TopicAudit) -> None:
    """Compare topics in the formats that say when each row changed."""
    snapshots = [one for one in messages if one.kind == "snapshot"]
    base = max(truth.since, start - 1) if start > MIN_TIME else truth.since
    if snapshots:
        # A snapshot replaces everything before it with the rows as of one time.
        newest = max(snapshots, key=lambda one: one.upper)
        messages = [one for one in messages if one.lower >= newest.lower]
        base, start = max(base, newest.upper - 1), MIN_TIME
    if base >= audit.frontier:
        reason = f"its changes before {base} are compacted, and the topic ends at {audit.frontier}"
        raise CannotCompare(view=audit.view, reason=reason)
    found: dict[_Change, int] = defaultdict(int)
    places: dict[_Change, tuple[_Place, ...]] = {}
    for one in messages:
        if one.kind == "progress":
            continue
        try:
            changes = list(_changes_in(one, audit.format))
        except (msgspec.DecodeError, ValueError) as error:
            audit.add(Difference("wrong", f"message {one.identity or 'without id'}: {error}", None, 0, 1,
                                 one.epoch, (one.place,)))  # fmt: skip
            continue
        audit.changes += len(changes)
        for row, at, diff in changes:
            change = (_canonical(row), max(at, base))
            found[change] += diff
            places[change] = (*places.get(change, ())[-2:], one.place)
    expected: dict[_Change, int] = defaultdict(int)
    texts = rows_as_arrays if audit.format == "vernier" else objects
    if start <= MIN_TIME and base > MIN_TIME:
        audit.base = base
        _count(expected, texts, truth.rows(base))
    _count(expected, texts, truth.changes(base + 1, audit.frontier))
    for change in sorted(expected.keys() | found.keys(), key=lambda one: (one[1], one[0])):
        wanted, there = expected.get(change, 0), found.get(change, 0)
        if wanted == there:
            continue
        row, at = change
        if start > MIN_TIME and at <= base:
            continue
        kind: Kind = (
            "missing" if there == 0 else "doubled" if wanted and there % wanted == 0 < there // wanted else "wrong"
        )
        when = at if at > base else None
        audit.add(Difference(kind, row.decode(), when, wanted, there, None, places.get(change, ())))


def _count(total: dict[_Change, int], texts: Callable[[Step], list[str]], step: Step) -> None:
    rows = texts(step)
    for row, at, diff in zip(rows, step.changes.time.tolist(), step.changes.diff.tolist(), strict=True):
        total[_canonical(row.encode()), at] += diff


def _compare_keys(messages: Sequence[_Sent], truth: _Truth, audit: TopicAudit) -> None:
    """Compare the newest row of each key. A compacted topic may or may not still contain older rows."""
    newest: dict[bytes, tuple[bytes | None, _Sent]] = {}
    passed: Counter[tuple[bytes, bytes | None]] = Counter()
    base = truth.since
    # Messages of earlier epochs than a snapshot's may be of another history, which it replaced.
    begun = max((one.epoch for one in messages if one.kind == "snapshot"), default=0)
    for one in messages:
        if one.kind == "progress":
            continue
        key = _canonical(one.key or b"null")
        value = None if one.value is None else _canonical(one.value)
        newest[key] = value, one
        audit.changes += 1
        if one.lower > base and one.kind == "updates" and one.epoch >= begun:
            passed[key, value] += 1
    try:
        changed = list(changes_by_key(truth.changes(max(base + 1, MIN_TIME), audit.frontier)))
    except NotOneRow as error:
        raise CannotCompare(view=audit.view, reason=str(error)) from error
    audit.base = audit.frontier - 1
    at_end = truth.rows(audit.base)
    keys = objects(at_end, truth.view.key)
    rows = dict(zip((_canonical(one.encode()) for one in keys), (_canonical(one.encode()) for one in objects(at_end))))
    for key in sorted(rows.keys() | newest.keys()):
        value, where = newest.get(key, (None, None))
        if rows.get(key) == value:
            continue
        kind: Kind = "missing" if value is None else "wrong"
        epoch, places = (None, ()) if where is None else (where.epoch, (where.place,))
        expected, found = int(key in rows), int(value is not None and key not in rows)
        row = rows.get(key) or value or b""
        audit.add(Difference(kind, row.decode(), None, expected, found, epoch, places))
    allowed: Counter[tuple[bytes, bytes | None]] = Counter()
    for change in changed:
        allowed[_canonical(change.key.encode()), _value(change.after)] += 1
    for (key, value), count in (passed - allowed).items():
        wanted = allowed[key, value]
        row = b"key " + key + b": " + (value or b"null")
        audit.add(Difference("doubled" if wanted else "wrong", row.decode(), None, wanted, wanted + count))


def _value(text: str | None) -> bytes | None:
    return None if text is None else _canonical(text.encode())


def _progress_gaps(messages: Sequence[_Sent], audit: TopicAudit) -> None:
    """Find intervals that the progress messages skip. Readers rely on progress to know how far a
    partition is complete.
    """
    reached: dict[int, int] = {}
    for one in messages:
        if one.kind != "progress":
            continue
        partition = one.place[0]
        before = reached.get(partition, one.lower)
        # A step may have several progress messages, and a publisher that starts afresh may begin with an earlier
        # interval.
        if one.lower > before:
            audit.add(_gap(partition, before, one.lower, (one.place,)))
        reached[partition] = one.upper
    for partition, upper in sorted(reached.items()):
        if upper != audit.frontier:
            audit.add(_gap(partition, upper, audit.frontier, ()))


def _gap(partition: int, lower: int, upper: int, places: tuple[_Place, ...]) -> Difference:
    row = f"progress of partition {partition} from {lower} to {upper}"
    return Difference("missing", row, None, 1, 0, None, places)


def _canonical(text: bytes) -> bytes:
    """Normalise the JSON text, because releases may write a number differently."""
    return msgspec.json.encode(msgspec.json.decode(text))


def _name_epochs(state: StateDirectory, audit: TopicAudit) -> None:
    """Fill in which epoch made each differing change, as far as its manifest still exists."""
    if not any(one.epoch is None and one.time is not None for one in audit.differences):
        return
    spans = []
    for epoch in state.epochs():
        try:
            manifest = state.manifest(epoch)
        except (StorageError, EpochGone):
            continue
        spans.append((manifest.lower, manifest.upper, epoch))
    for index, one in enumerate(audit.differences):
        at = one.time
        if one.epoch is None and at is not None:
            found = next((made for lower, upper, made in spans if lower <= at < upper), None)
            audit.differences[index] = replace(one, epoch=found)
