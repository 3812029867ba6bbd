"""Encodes a step of a view as Kafka messages, in one of three formats. Equal steps give equal messages.

- `vernier`: batches of updates, each at its own data time, and progress with counts. Another Vernier's source can read
  it.
- `upsert`: key and row, null for a deleted key.
- `debezium`: the envelope with before, after and op.

A row goes to the partition of its key, so the changes of one key stay in order. docs/messages.md shows all formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from kafka.partitioner.default import murmur2

from vernier.operators.language.types.schema import RowType
from vernier.service.codec.arrowjson import joined, json_texts
from vernier.service.codec.native import progress_message, updates_message
from vernier.service.sinks.history import Step
from vernier.storage.errors import CallerError
from vernier.storage.kernels.hashing import key_rows, partition_rows
from vernier.storage.updates import Ints, distinct_counts

Flags = npt.NDArray[np.bool_]

Kind = Literal["updates", "progress", "snapshot"]
MESSAGE_BYTES = 256 << 10
"""Approximate size limit of a message with many updates."""
MESSAGE_UPDATES = 1_000
COUNTS = 4_096
"""Maximum number of distinct times that one progress message counts."""

_TEXT = pa.large_string()


class NotOneRow(CallerError):
    """A view with several rows per key cannot be published in a format that holds one row per key."""

    message = (
        "view {view} has several rows of the key {key} at {time}; format {format} allows only one, format "
        "vernier allows several"
    )
    view: str
    key: str
    time: int
    format: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message of an output topic."""

    partition: int
    kind: Kind
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """How a view is published. partitions: of its topic. progress: whether to send progress. app: used
    by `debezium`.
    """

    view: str
    topic: str
    format: str
    partitions: int
    progress: bool
    app: str

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError(f"topic {self.topic} has {self.partitions} partitions, so no message could be sent to it")

    def messages(
        self, step: Step, present: Mapping[str, str] | None = None
    ) -> Iterator[tuple[Message, list[tuple[str, bytes]]]]:
        """Yield a step's messages with their headers, in the order in which they are sent. present: the row of each key
        that the topic has, if the format has one row per key and the step restarts: those that the step does not have
        are deleted. Raises NotOneRow.
        """
        following = [0] * self.partitions
        if self.format == "vernier":
            made = _vernier(self, step)
        else:
            changes = changes_by_key(step, self.format)
            if present:
                changes = _replacing(list(changes), present, step.upper - 1)
            made = (_upsert if self.format == "upsert" else _debezium)(self, step, changes)
        for message in made:
            seq = following[message.partition]
            following[message.partition] += 1
            identity = f"{self.view}:{step.lower}:{step.upper}:{message.partition}:{seq}"
            yield (
                message,
                [
                    ("vernier-format", self.format.encode()),
                    ("vernier-kind", message.kind.encode()),
                    ("vernier-epoch", str(step.epoch).encode()),
                    ("vernier-message-id", identity.encode()),
                ],
            )

    def resolved(self, step: Step) -> Iterator[Message]:
        """The progress messages of formats that have none of their own."""
        if self.progress:
            value = json.dumps({"resolved": str(step.upper)}).encode()
            for partition in range(self.partitions):
                yield Message(partition, "progress", b'{"resolved":null}', value)


def _vernier(sink: Outgoing, step: Step) -> Iterator[Message]:
    whole = step.changes
    own = np.zeros(len(whole), np.int64)
    if sink.partitions > 1:
        own = _owners(step, sink.partitions)
    rows = _array(_columns(step, step.view.schema.names))
    texts = joined("[", *rows, ',"', _integers(whole.time), '",', _integers(whole.diff), "]")
    kind: Kind = "snapshot" if step.kind == "snapshot" else "updates"
    for partition in range(sink.partitions):
        mine = np.flatnonzero(own == partition)
        time = whole.time[mine]
        for start, stop in _cuts(texts.take(pa.array(mine))):
            updates = texts.take(pa.array(mine[start:stop])).cast(pa.large_binary()).to_pylist()
            # A snapshot that restarts replaces the earlier rows; the flag tells sources not to add it to them.
            value = updates_message(int(time[start]), updates, restarts=step.restarts)
            yield Message(partition, kind, None, value)
        if sink.progress:
            for stated in _statements(step.lower, step.upper, time):
                yield Message(partition, "progress", None, stated)


def _statements(lower: int, upper: int, time: Ints) -> Iterator[bytes]:
    """Progress messages over [lower, upper) that count the updates at each time; several if there are many times."""
    times, counts = distinct_counts(time)
    for start in range(0, max(len(times), 1), COUNTS):
        end = upper if start + COUNTS >= len(times) else int(times[start + COUNTS])
        some = slice(start, start + COUNTS)
        yield progress_message(end, lower, list(zip(times[some].tolist(), counts[some].tolist(), strict=True)))
        lower = end


@dataclass(frozen=True, slots=True)
class Keyed:
    """One change of a key. key: JSON text; before, after: the row's JSON text, None if there is no row."""

    key: str
    time: int
    before: str | None
    after: str | None


def _replacing(changes: list[Keyed], present: Mapping[str, str], time: int) -> Iterator[Keyed]:
    """The rows of a step that replaces what a topic has, after a deletion of each key that is not among them."""
    kept = {change.key for change in changes}
    yield from (Keyed(key, time, row, None) for key, row in present.items() if key not in kept)
    yield from changes


def _upsert(sink: Outgoing, step: Step, changes: Iterable[Keyed]) -> Iterator[Message]:
    kind: Kind = "snapshot" if step.kind == "snapshot" else "updates"
    for change in changes:
        key = change.key.encode()
        value = None if change.after is None else change.after.encode()
        yield Message(murmur2(key) % 0x80000000 % sink.partitions, kind, key, value)
    yield from sink.resolved(step)


def _debezium(sink: Outgoing, step: Step, changes: Iterable[Keyed]) -> Iterator[Message]:
    kind: Kind = "snapshot" if step.kind == "snapshot" else "updates"
    about = {"connector": "vernier", "name": sink.app, "db": sink.app, "table": sink.view}
    about["snapshot"] = "true" if kind == "snapshot" else "false"
    fixed = json.dumps(about)[:-1]
    for change in changes:
        op = "d" if change.after is None else "r" if kind == "snapshot" else "c" if change.before is None else "u"
        ms, us = change.time // 1_000_000, change.time // 1_000
        at = f'"ts_ms": {ms}, "ts_us": {us}, "ts_ns": {change.time}'
        value = (
            f'{{"before": {change.before or "null"}, "after": {change.after or "null"}, '
            f'"source": {fixed}, {at}}}, "op": "{op}", {at}}}'
        )
        key = change.key.encode()
        yield Message(murmur2(key) % 0x80000000 % sink.partitions, kind, key, value.encode())
    yield from sink.resolved(step)


class Origin(msgspec.Struct):
    """What an envelope says of where a change comes from: its data time."""

    ts_ns: int


class Envelope(msgspec.Struct):
    """A message of format `debezium`, as far as it is read again. before, after: the row's JSON or null."""

    before: msgspec.Raw
    after: msgspec.Raw
    source: Origin


def row_of(value: bytes | None, form: str) -> str | None:
    """The row that a key has after a message of one of the formats with one row per key; None if it has none."""
    if value is None:
        return None
    if form == "upsert":
        return value.decode()
    row = bytes(msgspec.json.decode(value, type=Envelope).after)
    return None if row == b"null" else row.decode()


def changes_by_key(step: Step, form: str = "upsert") -> Iterator[Keyed]:
    """The changes of each key at each time, in the order of time. Raises NotOneRow, which names the format."""
    order, groups = key_changes(step, form)
    if not groups:
        return
    keys = joined(*_object(_columns(step, step.view.key, order))).to_pylist()
    rows = joined(*_object(_columns(step, step.view.schema.names, order))).to_pylist()
    time, diff = step.changes.time[order].tolist(), step.changes.diff[order].tolist()
    for start, end in groups:
        before = rows[start] if diff[start] < 0 else None
        after = rows[end - 1] if diff[end - 1] > 0 else None
        yield Keyed(keys[start], time[start], before, after)


def key_changes(step: Step, form: str) -> tuple[Ints, list[tuple[int, int]]]:
    """The order of a step's changes by time, key, then deletions before insertions, and in that order where the changes
    of each key at each time begin and end. Raises NotOneRow, which names the format, unless each is a deletion, an
    insertion, or one of both, what a key loses is what it had, and, where that is known, it has at the end what it got
    last. Raises StorageErrors.
    """
    view, updates = step.view, step.changes
    if not len(updates):
        return np.empty(0, np.int64), []
    words = sum(view.stored.field(name).words for name in view.key)
    data = updates.data
    order = np.lexsort([updates.diff > 0, *(data[:, c] for c in range(words - 1, -1, -1)), updates.time])
    data, diff = data[order], updates.diff[order]
    identity = data[:, [*range(words), updates.width]]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (identity[1:] != identity[:-1]).any(axis=1)
    first = np.flatnonzero(fresh)
    stop = np.append(first[1:], len(order))
    length = stop - first
    single = (length == 1) & (np.abs(diff[first]) == 1)
    both = (length == 2) & (diff[first] == -1) & (diff[stop - 1] == 1)
    wrong = np.flatnonzero(~(single | both))
    if not len(wrong):
        wrong = _inconsistent(step, data[first, :words], diff[first] < 0, diff[stop - 1] > 0)
    if len(wrong):
        at = order[first[wrong[:1]]]
        (key,) = joined(*_object(_columns(step, view.key, at))).to_pylist()
        raise NotOneRow(view=view.name, key=key, time=int(updates.time[at[0]]), format=form)
    return order, list(zip(first.tolist(), stop.tolist(), strict=True))


def _inconsistent(step: Step, keys: Ints, before: Flags, after: Flags) -> Ints:
    """Where keys cannot have had at most one row. keys: those of the changes, ordered by time; before, after: whether a
    change takes a row and gives one."""
    order = np.lexsort(keys.T[::-1]) if keys.shape[1] else np.arange(len(keys))
    keys, before, after = keys[order], before[order], after[order]
    ends = np.ones(len(keys), np.bool_)
    ends[:-1] = (keys[1:] != keys[:-1]).any(axis=1)
    wrong = np.flatnonzero(~ends[:-1] & (after[:-1] != before[1:])) + 1
    if not len(wrong) and step.held is not None and keys.shape[1]:
        last = np.flatnonzero(ends)
        held = step.held.count(keys[last])
        wrong = wrong if held is None else last[held != after[last]]
    return np.sort(order[wrong])


def rows_as_arrays(step: Step) -> list[str]:
    """The rows of a step's changes, as format `vernier` writes them."""
    found: list[str] = joined(*_array(_columns(step, step.view.schema.names))).to_pylist()
    return found


def objects(step: Step, names: Sequence[str] | None = None) -> list[str]:
    """The rows of a step's changes, or some of their columns, as the other formats write them."""
    listed = step.view.schema.names if names is None else names
    found: list[str] = joined(*_object(_columns(step, listed))).to_pylist()
    return found


# --- columns of text --------------------------------------------------------------------------------------------------


def _columns(step: Step, names: Iterable[str], order: Any = None) -> list[tuple[str, pa.LargeStringArray]]:
    """The name and the JSON texts of each column."""
    stored: RowType = step.view.stored
    rows = step.changes.rows if order is None else step.changes.rows[order]
    found = []
    for name in names:
        field = stored.field(name)
        words = np.ascontiguousarray(rows[:, field.offset : field.offset + field.words])
        found.append((name, json_texts(field.slot, field.decode(words, step.heap))))
    return found


def _array(columns: Sequence[tuple[str, pa.LargeStringArray]]) -> list[Any]:
    parts: list[Any] = ["["]
    for number, (_, texts) in enumerate(columns):
        parts += [",", texts] if number else [texts]
    return [*parts, "]"]


def _object(columns: Sequence[tuple[str, pa.LargeStringArray]]) -> list[Any]:
    parts: list[Any] = []
    for name, texts in columns:
        parts += [f"{',' if parts else '{'}{json.dumps(name)}:", texts]
    return [*parts, "}"]


def _integers(values: Ints) -> pa.LargeStringArray:
    return pa.array(np.ascontiguousarray(values)).cast(_TEXT)


def _cuts(texts: pa.LargeStringArray) -> Iterator[tuple[int, int]]:
    """Yield where to cut a partition's updates into messages."""
    ends = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False) + 1)
    start, count = 0, len(texts)
    while start < count:
        begin = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, begin + MESSAGE_BYTES, "right"))
        stop = min(max(stop, start + 1), start + MESSAGE_UPDATES, count)
        yield start, stop
        start = stop


def _owners(step: Step, partitions: int) -> Ints:
    """The partition of each change, by the hash of its key: int64[n]."""
    view = step.view
    words = sum(view.stored.field(name).words for name in view.key)
    numbered = np.column_stack((step.changes.rows[:, :words], np.arange(len(step.changes))))
    keyed = key_rows(np.ascontiguousarray(numbered), np.arange(words), np.empty(0, np.int64), 1)
    placed, offsets = partition_rows(keyed, partitions)
    owners = np.empty(len(placed), np.int64)
    for partition in range(partitions):
        owners[placed[offsets[partition] : offsets[partition + 1], -1]] = partition
    return owners
