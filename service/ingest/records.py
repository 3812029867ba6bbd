"""Records: Kafka rows, as Spark delivers them, become messages of one topic in log order.

Rows come in any order, and after a restart some come a second time. The result is sorted by topic, partition and offset
and contains no offset that an earlier epoch has consumed, so exactly-once relies on the manifest alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.service.ingest.watermarks import broker_ms

Ints = npt.NDArray[np.int64]
Offsets = Mapping[str, Mapping[int, int] | Mapping[str, int]]
"""The next offset to consume, by topic and partition."""

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of Spark's Kafka source, in the types in which a worker gets them."""
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Messages:
    """n messages of one topic, sorted by partition and offset. partition, offset, ms (the broker's time): int64[n]."""

    topic: str
    partition: Ints
    offset: Ints
    ms: Ints
    values: pa.LargeBinaryArray
    keys: pa.Array
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.offset)

    def runs(self) -> Iterator[tuple[int, slice]]:
        """Every partition, with the slice of its messages."""
        edges = np.flatnonzero(np.diff(self.partition)) + 1
        for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(self)]):
            yield int(self.partition[start]), slice(start, stop)

    def part(self, start: int, stop: int) -> "Messages":
        """The messages [start, stop)."""
        own = slice(start, stop)
        headers = self.headers[own] if self.headers is not None else None
        ints = self.partition[own], self.offset[own], self.ms[own]
        return Messages(self.topic, *ints, self.values[own], self.keys[own], headers)

    def original(self, message: int) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        """Key, value and headers of a message as they came."""
        given = self.headers[message].as_py() if self.headers is not None else None
        headers = tuple((header["key"], header["value"]) for header in given or ())
        return self.keys[message].as_py(), self.values[message].as_py(), headers


def sort_messages(batches: Iterable[pa.RecordBatch], consumed: Offsets) -> tuple[list[Messages], int]:
    """The messages at or after the consumed offsets, by topic, and the number of rows that were not new. O(n log n),
    O(n) if the rows are sorted already."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return [], 0
    table = pa.Table.from_batches(filled)
    names = [*_COLUMNS, "headers"] if "headers" in table.column_names else [*_COLUMNS]
    table = table.select(names).set_column(1, "value", table["value"].cast(pa.large_binary()))
    topics = pc.dictionary_encode(table["topic"].cast(pa.string())).combine_chunks()
    known = topics.dictionary.to_pylist()
    ranks = np.argsort(np.argsort(np.array(known, dtype=object)))
    topic = ranks[topics.indices.to_numpy()]
    partition, offset = _ints(table["partition"]), _ints(table["offset"])
    order = np.lexsort((offset, partition, topic))
    topic, partition, offset = topic[order], partition[order], offset[order]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (np.diff(topic) != 0) | (np.diff(partition) != 0) | (np.diff(offset) != 0)
    _mark_consumed(fresh, sorted(known), topic, partition, offset, consumed)
    order = order[fresh]
    if not np.array_equal(order, np.arange(table.num_rows)):
        table = table.take(order)
    topic, partition, offset = topic[fresh], partition[fresh], offset[fresh]
    ms = broker_ms(_milliseconds(table["timestamp"]))
    edges = np.searchsorted(topic, np.arange(len(known) + 1))
    messages = []
    for name, start, stop in zip(sorted(known), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if start == stop:
            continue
        part, own = table.slice(start, stop - start), slice(start, stop)
        values, keys = _whole(part["value"]), _whole(part["key"])
        headers = _whole(part["headers"]) if "headers" in names else None
        messages.append(Messages(name, partition[own], offset[own], ms[own], values, keys, headers))
    return messages, len(fresh) - int(fresh.sum())


def _mark_consumed(
    fresh: npt.NDArray[np.bool_], names: list[str], topic: Ints, partition: Ints, offset: Ints, consumed: Offsets
) -> None:
    for number, name in enumerate(names):
        for key, following in consumed.get(name, {}).items():
            fresh &= ~((topic == number) & (partition == int(key)) & (offset < following))


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)


def _milliseconds(column: pa.ChunkedArray) -> Ints:
    """Broker times as ms, from integers of ms or any timestamp; a missing one counts as 1970."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return _ints(column.cast(pa.int64()).fill_null(0))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
