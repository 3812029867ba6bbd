"""Small batches: reads micro-batches of few messages on the driver, beside Spark, and what comes soon after them.

A job of Spark's takes some 40 ms to begin, to read its partitions and to end, whatever their size, and the next
micro-batch as long to be made. Few messages are read here instead, with one request to the brokers, in the form that
Spark would give them. The manifest says which messages are processed; if Spark reads some of them once more, workers
drop them. Whatever stands in the way here (messages that are too large, a codec without its package, a broker that does
not answer) is left to Spark and to its errors.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition

from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.ingest.records import SCHEMA

READ_SECONDS = 0.1
LARGEST_BYTES = 4 << 20
"""Messages with more bytes than this, together, are left to Spark."""
AHEAD = 10_000
"""Messages that may be processed before Spark has made a micro-batch of them."""
REST_SECONDS = 0.2, 60.0
"""Seconds without an attempt after a failed one; twice as many after each further one, up to the second number."""

_log = logging.getLogger("vernier.spark")


class SmallBatches:
    """The micro-batches of one query, and what comes after them. client: Kafka client settings; ends: where Spark's
    current micro-batch ends; most: the maximum number of messages to read at once, 0 for none. Call `look` for each
    micro-batch, then perhaps `read`, and after that perhaps `more`. What either has returned counts as processed,
    unless `rewind` says otherwise.

    Spark knows the offsets at which a query begins before anybody else does, so the first micro-batch is not read here,
    nor is the first one with another partition.
    """

    def __init__(self, client: Mapping[str, Any], ends: Callable[[], Offsets], most: int) -> None:
        self._client, self._ends, self._most = dict(client), ends, most
        self._consumer: KafkaConsumer | None = None
        self._known: dict[TopicPartition, int] | None = None
        self._wanted: dict[TopicPartition, tuple[int, int]] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._left: dict[TopicPartition, list[Any]] = {}
        self._rest, self._not_before = REST_SECONDS[0], 0.0
        self._follows = False

    def look(self) -> None:
        """Note which messages the micro-batch has that Spark has just handed over."""
        self._follows = False
        if not self._most:
            return
        known = self._known
        self._known = now = {
            TopicPartition(topic, one): end for topic, own in self._ends().items() for one, end in own.items()
        }
        self._wanted = {}
        if known is not None and known.keys() == now.keys():
            self._wanted = {part: (known[part], end) for part, end in now.items()}

    def read(self, workers: int, committed: Offsets) -> list[bytes] | None:
        """The messages of the micro-batch that are not processed yet, and what has come since Spark looked, as one
        stream of Arrow's for each worker: all those of a partition go to one of them. A stream without messages has no
        bytes; without any messages, there are no streams. None if Spark should read the micro-batch. committed: the
        next offsets, as the newest manifest has them."""
        next_in = {
            part: (max(begin, committed.get(part.topic, {}).get(part.partition, begin)), end)
            for part, (begin, end) in self._wanted.items()
        }
        count = sum(max(0, end - begin) for begin, end in next_in.values())
        if not next_in or count > self._most or time.monotonic() < self._not_before:
            return None
        found = self._guarded(lambda consumer: self._read(consumer, next_in, workers))
        if found is None:
            self.rewind()  # an open connection stays: the first request on it takes longer than later ones
            self._not_before = time.monotonic() + self._rest
            self._rest = min(2 * self._rest, REST_SECONDS[1])
        else:
            self._rest, self._follows = REST_SECONDS[0], True
        return found

    def more(self, workers: int, seconds: float) -> list[bytes] | None:
        """What has come since the last `read` or `more`, in the same form; waits up to `seconds` for the first of it.
        None if Spark should make a micro-batch of it: it is too much, or Spark is far behind already."""
        known = self._known or {}
        if not self._follows or sum(self._taken[part] - known[part] for part in self._taken) > AHEAD:
            return None
        found = self._guarded(lambda consumer: self._more(consumer, workers, seconds))
        self._follows = found is not None
        return found

    def rewind(self) -> None:
        """What was returned last is not processed, and neither is what has come since."""
        self._taken.clear()
        self._follows = False

    def close(self) -> None:
        """Close the connection to the brokers; the next `read` opens another one."""
        consumer, self._consumer = self._consumer, None
        self.rewind()
        if consumer is not None:
            with suppress(Exception):
                consumer.close(autocommit=False)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[KafkaConsumer], list[bytes] | None]) -> list[bytes] | None:
        """What `work` returns; None, too, if it fails."""
        try:
            if self._consumer is None:
                self._consumer = self._connect()
            return work(self._consumer)
        except Exception as error:  # whatever it is, Spark reads the messages or says what is wrong
            _log.debug("Spark reads the messages of an epoch: %s: %s", type(error).__name__, error)
            self.close()
            return None

    def _connect(self) -> KafkaConsumer:
        return KafkaConsumer(
            **self._client,
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
            max_poll_records=self._most,
            max_partition_fetch_bytes=LARGEST_BYTES,
            fetch_max_bytes=LARGEST_BYTES,
            metrics_enabled=False,
        )

    def _read(
        self, consumer: KafkaConsumer, wanted: Mapping[TopicPartition, tuple[int, int]], workers: int
    ) -> list[bytes] | None:
        if self._taken.keys() != wanted.keys():
            consumer.assign(list(wanted))
            self._taken.clear()
            self._left.clear()
        for part, (begin, _) in wanted.items():
            if self._taken.get(part, -1) < begin:
                consumer.seek(part, begin)
                self._left[part], self._taken[part] = [], begin
        deadline = time.monotonic() + READ_SECONDS
        while any(consumer.position(part) < end for part, (_, end) in wanted.items()):
            left = deadline - time.monotonic()
            if left <= 0 or self._poll(consumer, left)[1] > LARGEST_BYTES:
                return None
        if sum(map(len, self._left.values())) <= self._most:
            return self._take(workers, {part: consumer.position(part) for part in wanted})
        return self._take(workers, {part: end for part, (_, end) in wanted.items()})

    def _more(self, consumer: KafkaConsumer, workers: int, seconds: float) -> list[bytes] | None:
        count, size = self._poll(consumer, seconds)
        if count >= self._most or size > LARGEST_BYTES:
            return None
        return self._take(workers, {part: consumer.position(part) for part in self._taken})

    def _poll(self, consumer: KafkaConsumer, seconds: float) -> tuple[int, int]:
        """Wait for messages; returns the number and the bytes of all that have not been taken yet."""
        for part, records in consumer.poll(timeout_ms=int(1000 * seconds) + 1).items():
            self._left[part] += records
        left = [record for own in self._left.values() for record in own]
        return len(left), sum(len(record.value or b"") for record in left)

    def _take(self, workers: int, ends: Mapping[TopicPartition, int]) -> list[bytes]:
        """What has come and is before these offsets."""
        own: list[list[Any]] = [[] for _ in range(workers)]
        for number, part in enumerate(sorted(ends)):
            left, end = self._left[part], max(ends[part], self._taken[part])
            count = bisect_left(left, end, key=attrgetter("offset"))
            own[number % workers] += left[:count]
            self._left[part], self._taken[part] = left[count:], end
        return [to_arrow(records) if records else b"" for records in own] if any(own) else []


def to_arrow(records: list[Any]) -> bytes:
    """Records of Kafka's client as a stream of Arrow's with the columns of Spark's Kafka source."""
    columns = [
        [record.key for record in records],
        [record.value for record in records],
        [record.topic for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        [1000 * record.timestamp for record in records],
        [[{"key": key, "value": value} for key, value in record.headers] or None for record in records],
    ]
    batch = pa.record_batch([pa.array(one, kind) for one, kind in zip(columns, SCHEMA.types)], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
