"""Small batches: reads micro-batches of few messages on the driver, beside Spark, and what comes soon after them.

A job of Spark's takes some 40 ms to begin, to read its partitions and to end, whatever their size, and the next
micro-batch as long to be made. Few messages are read here instead, with one request to the brokers, in the form that
Spark would give them. The manifest says which messages are processed; if Spark reads some of them once more, workers
drop them. Whatever stands in the way here (messages that are too large, a broker that does not answer) is left to Spark
and to its errors.

More messages than an epoch of this kind may have are left to Spark, too, because larger epochs cost less. If the rate
limit allows no larger ones, they follow one another here.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
from kafka import TopicPartition

from vernier.service.cluster.shelf import Rows
from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.ingest.records import SCHEMA
from vernier.service.kafka.log_reader import LogReader, Record

READ_SECONDS = 0.1
"""Seconds without a message after which a micro-batch that has not come completely is left to Spark."""
LARGEST_BYTES = 16 << 20
"""Messages with more bytes than this, together, are left to Spark."""
AHEAD, AHEAD_BYTES = 50_000, 256 << 20
"""Messages, and their bytes, that may be processed before Spark has made a micro-batch of them."""
DECODING_SECONDS, PREFETCH_SECONDS = 0.05, 0.02
"""How long workers have a beginning epoch to themselves (they decode, and wait for the last of them), and after that
the longest wait for messages of the next one."""
REST_SECONDS = 0.2, 60.0
"""Seconds without an attempt after a failed one; twice as many after each further one, up to the second number."""

_log = logging.getLogger("vernier.spark")


class SmallBatches:
    """The micro-batches of one query, and what comes after them. client: Kafka client settings; ends: where Spark's
    current micro-batch ends; most: the maximum number of messages to read at once, 0 for none; limit: how many an epoch
    may take now, None for all. Call `look` for each micro-batch, then perhaps `read`, and after that perhaps `more`.
    What either has returned counts as processed, unless `rewind` says otherwise.

    Spark knows the offsets at which a query begins before anybody else does, so the first micro-batch is not read here,
    nor is the first one with another partition.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        ends: Callable[[], Offsets],
        most: int,
        limit: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._client, self._ends, self._most, self._limit = dict(client), ends, most, limit
        self.topics: Collection[str] = ()
        """The topics of the messages that were returned last."""
        self._reader: LogReader | None = None
        self._known: dict[TopicPartition, int] | None = None
        self._wanted: dict[TopicPartition, tuple[int, int]] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._left: dict[TopicPartition, list[Record]] = {}
        self._committed: Offsets = {}
        self._ready: _Ready | None = None
        self._bytes, self._heard = 0, 0.0
        self._rest, self._not_before = REST_SECONDS[0], 0.0
        self._follows = False

    def look(self) -> None:
        """Note which messages the micro-batch has that Spark has just handed over."""
        self._follows, self._bytes = False, 0
        if not self._most:
            return
        known = self._known
        self._known = now = {
            TopicPartition(topic, one): end for topic, own in self._ends().items() for one, end in own.items()
        }
        self._wanted = {}
        if known is not None and known.keys() == now.keys():
            self._wanted = {part: (known[part], end) for part, end in now.items()}

    def read(self, workers: int, committed: Offsets) -> list[Rows] | None:
        """The messages of the micro-batch that are not processed yet, and what has come since Spark looked, as one
        stream of Arrow's for each worker: all those of a partition go to one of them. A stream without messages has no
        bytes; without any messages, there are no streams. None if Spark should read the micro-batch. committed: the
        next offsets, as the newest manifest has them."""
        self._committed = committed
        next_in = {part: (max(begin, self._processed(part)), end) for part, (begin, end) in self._wanted.items()}
        count = sum(max(0, end - begin) for begin, end in next_in.values())
        if not next_in or count > self._most or time.monotonic() < self._not_before:
            return None
        found = self._guarded(lambda reader: self._read(reader, next_in, workers))
        if found is None:
            self.rewind()  # an open connection stays: the first request on it takes longer than later ones
            self._not_before = time.monotonic() + self._rest
            self._rest = min(2 * self._rest, REST_SECONDS[1])
        else:
            self._rest, self._follows = REST_SECONDS[0], True
        return found

    def more(self, workers: int, seconds: float) -> list[Rows] | None:
        """What has come since the last `read` or `more`, in the same form; waits up to `seconds` for the first of it.
        None if Spark should make a micro-batch of it: it is too much, or Spark is far behind already."""
        if not self._follows or self.ahead > AHEAD or self._bytes > AHEAD_BYTES:
            return None
        found = self._guarded(lambda reader: self._more(reader, workers, seconds))
        self._follows = found is not None
        return found

    def prefetch(
        self, workers: int, ended: threading.Event, lay: Callable[[list[bytes]], Sequence[Rows]] = list
    ) -> None:
        """Read what the next epoch will have if that is a full one, while workers make the one before, until that has
        ended. lay: lays the streams out for workers."""
        reader, most = self._reader, self._most_now
        if reader is None or most != self._limit() or not self._follows or ended.wait(DECODING_SECONDS):
            return
        with suppress(Exception):  # whatever it is, `more` meets it as well
            shares = self._gather(
                reader, most, lambda: 0.0 if ended.is_set() else min(PREFETCH_SECONDS, self._patience())
            )
            full = sum(self._behind(reader).values()) >= most
            if full and self._has(shares) and not ended.is_set():
                ends = self._stops(reader, shares)
                own, _, taken = self._chosen(workers, ends)
                self._ready = _Ready(most, workers, dict(self._taken), taken, [*lay(_streams(own))])

    @property
    def ahead(self) -> int:
        """How many messages count as processed of which Spark has not made a micro-batch."""
        known = self._known or {}
        return sum(max(0, self._taken.get(part, 0) - end, self._processed(part) - end) for part, end in known.items())

    def rewind(self) -> None:
        """What was returned last is not processed, and neither is what has come since."""
        self._taken.clear()
        self._follows, self._ready = False, None

    def close(self) -> None:
        """Close the connection to the brokers; the next `read` opens another one."""
        reader, self._reader = self._reader, None
        self.rewind()
        if reader is not None:
            with suppress(Exception):
                reader.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[LogReader], list[Rows] | None]) -> list[Rows] | None:
        """What `work` returns; None, too, if it fails."""
        try:
            if self._reader is None:
                self._reader = self._connect()
            return work(self._reader)
        except Exception as error:  # whatever it is, Spark reads the messages or says what is wrong
            _log.debug("Spark reads the messages of an epoch: %s: %s", type(error).__name__, error)
            self.close()
            return None

    def _connect(self) -> LogReader:
        return LogReader(self._client)

    def _read(
        self, reader: LogReader, wanted: Mapping[TopicPartition, tuple[int, int]], workers: int
    ) -> list[Rows] | None:
        self._ready = None
        if self._taken.keys() != wanted.keys():
            self._taken.clear()
            self._left.clear()
        moved = {part: begin for part, (begin, _) in wanted.items() if self._taken.get(part, -1) < begin}
        if moved:
            reader.read_from({part: moved[part] if part in moved else reader.position(part) for part in wanted})
            self._left |= {part: [] for part in moved}
            self._taken |= moved
        self._heard = time.monotonic()
        while any(reader.position(part) < end for part, (_, end) in wanted.items()):
            if (seconds := self._patience()) <= 0 or self._full:
                return None
            self._poll(reader, seconds)
        if self._waiting <= self._most_now:
            found = self._take(workers, {part: reader.position(part) for part in wanted})
            if found is not None:
                return found
        return self._take(workers, {part: end for part, (_, end) in wanted.items()})

    def _more(self, reader: LogReader, workers: int, seconds: float) -> list[Rows] | None:
        most, only = self._most_now, self._most_now == self._limit()
        ready, self._ready = self._ready, None
        if only and ready is not None and (ready.most, ready.workers, ready.begins) == (most, workers, self._taken):
            return self._take(workers, ready.ends, ready.streams)
        if not self._waiting:
            self._poll(reader, seconds)
        if only and sum(self._behind(reader).values()) >= most:
            ends = self._stops(reader, self._gather(reader, most, self._patience))
        elif self._waiting >= most:
            return None
        else:
            ends = {part: reader.position(part) for part in self._left}
        return self._take(workers, ends)

    def _gather(self, reader: LogReader, most: int, left: Callable[[], float]) -> dict[TopicPartition, int]:
        """Read until an epoch of `most` messages has come, or no seconds are left. Returns how many of each partition
        it should have: as large a part of each one's."""
        self._heard = time.monotonic()
        while True:
            behind = self._behind(reader)
            every = sum(behind.values())
            shares = {part: max(most * count // max(every, 1), min(count, 1)) for part, count in behind.items()}
            seconds = left()
            if every < most or self._has(shares) or seconds <= 0 or self._full:
                return shares
            self._poll(reader, seconds)

    def _has(self, shares: Mapping[TopicPartition, int]) -> bool:
        """Whether that many messages of each partition have come."""
        return all(share <= len(self._left[part]) for part, share in shares.items())

    def _stops(self, reader: LogReader, shares: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset of each partition before which an epoch ends that has its share of messages, or all that have come
        if those are fewer."""
        ends = {}
        for part, share in shares.items():
            left = self._left[part]
            ends[part] = left[share - 1].offset + 1 if 0 < share < len(left) else reader.position(part)
        return ends

    def _behind(self, reader: LogReader) -> dict[TopicPartition, int]:
        """How many messages of each partition are known that have not been taken yet."""
        return {
            part: len(left) + max(0, (reader.end(part) or 0) - reader.position(part))
            for part, left in self._left.items()
        }

    def _patience(self) -> float:
        """Seconds that are left to wait for a message."""
        return self._heard + READ_SECONDS - time.monotonic()

    def _processed(self, part: TopicPartition) -> int:
        """The next offset of a partition, as the newest manifest has it."""
        return self._committed.get(part.topic, {}).get(part.partition, 0)

    @property
    def _most_now(self) -> int:
        """The maximum number of messages to read at once under the rate limit."""
        limit = self._limit()
        return self._most if limit is None else min(limit, self._most)

    @property
    def _waiting(self) -> int:
        """How many messages have come that have not been taken yet."""
        return sum(map(len, self._left.values()))

    @property
    def _full(self) -> bool:
        """Whether so much has come that no more should be read before it is taken."""
        return sum(map(size_of, self._left.values())) > 2 * LARGEST_BYTES

    def _poll(self, reader: LogReader, seconds: float) -> None:
        """Wait for messages, also of partitions of which enough have come."""
        found = reader.poll(seconds, self._most)
        for part, records in found.items():
            self._left[part] += records
        if found:
            self._heard = time.monotonic()

    def _take(
        self, workers: int, ends: Mapping[TopicPartition, int], streams: list[Rows] | None = None
    ) -> list[Rows] | None:
        """What has come and is before these offsets; None if it is too large. streams: those that it is, if they are
        made."""
        own, left, taken = self._chosen(workers, ends)
        size = sum(map(size_of, own))
        if size > LARGEST_BYTES:
            return None
        self.topics = {part.topic for part, end in taken.items() if end > self._taken[part]}
        self._left, self._taken = left, taken
        self._bytes += size
        if not any(own):
            return []
        return [*_streams(own)] if streams is None else streams

    def _chosen(
        self, workers: int, ends: Mapping[TopicPartition, int]
    ) -> tuple[list[list[Record]], dict[TopicPartition, list[Record]], dict[TopicPartition, int]]:
        """What has come and is before these offsets, by worker; then, by partition, what is left, and where it
        begins."""
        own: list[list[Record]] = [[] for _ in range(workers)]
        left, taken = {}, {}
        for number, part in enumerate(sorted(ends)):
            records, end = self._left[part], max(ends[part], self._taken[part])
            count = bisect_left(records, end, key=attrgetter("offset"))
            own[number % workers] += records[:count]
            left[part], taken[part] = records[count:], end
        return own, left, taken


@dataclass(frozen=True)
class _Ready:
    """The next epoch's streams, made before it begins. most, workers: what they were made for; begins, ends: from which
    offset of each partition on they have its messages, and before which."""

    most: int
    workers: int
    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    streams: list[Rows]


def _streams(own: Iterable[list[Record]]) -> list[bytes]:
    """A stream for each worker's messages."""
    return [to_arrow(records) if records else b"" for records in own]


def size_of(records: list[Record]) -> int:
    """The bytes of these records' values."""
    return sum(len(record.value or b"") for record in records)


def to_arrow(records: list[Record]) -> bytes:
    """Records as a stream of Arrow's with the columns of Spark's Kafka source. There is at least one."""
    *columns, timestamps, headers = map(list, zip(*records, strict=True))
    columns.append([1000 * timestamp for timestamp in timestamps])
    columns.append([[{"key": key, "value": value} for key, value in own] or None for own in headers])
    batch = pa.record_batch([pa.array(one, kind) for one, kind in zip(columns, SCHEMA.types)], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
