"""Small batches: reads micro-batches of few messages on the driver, beside Spark.

A job of Spark's takes some 40 ms to begin, to read its partitions and to end, whatever their size. Fewer messages than
`epoch.direct_messages` are read here instead, with one request to the brokers, in the form that Spark would give them:
the offsets of a micro-batch say which messages it has, so both ways read the same. Whatever stands in the way (messages
that are too large, a codec without its package, a broker that does not answer) is left to Spark and to its errors.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition

Ends = Mapping[str, Mapping[int, int]]
"""By topic and partition, the offset after the last message of a micro-batch."""

READ_SECONDS = 0.1
LARGEST_BYTES = 4 << 20
"""Messages with more bytes than this, together, are left to Spark."""
REST_SECONDS = 0.2, 60.0
"""Seconds without an attempt after a failed one; twice as many after each further one, up to the second number."""

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

_log = logging.getLogger("vernier.spark")


class SmallBatches:
    """The micro-batches of one query. client: Kafka client settings; ends: where Spark's current micro-batch ends;
    most: the maximum number of messages to read here, 0 for none. Call `look` for each micro-batch, then perhaps
    `read`.

    Spark knows the offsets at which a query begins before anybody else does, so the first micro-batch is not read here,
    nor is the first one with another partition.
    """

    def __init__(self, client: Mapping[str, Any], ends: Callable[[], Ends], most: int) -> None:
        self._client, self._ends, self._most = dict(client), ends, most
        self._consumer: KafkaConsumer | None = None
        self._known: dict[TopicPartition, int] | None = None
        self._wanted: dict[TopicPartition, tuple[int, int]] | None = None
        self._taken: dict[TopicPartition, int] = {}
        self._left: dict[TopicPartition, deque[Any]] = {}
        self._rest, self._not_before = REST_SECONDS[0], 0.0

    def look(self) -> None:
        """Note which messages the micro-batch has that Spark has just handed over."""
        if not self._most:
            return
        known = self._known
        self._known = now = {
            TopicPartition(topic, one): end for topic, own in self._ends().items() for one, end in own.items()
        }
        self._wanted = None
        if known is not None and known.keys() == now.keys():
            self._wanted = {part: (known[part], end) for part, end in now.items()}

    def read(self, workers: int) -> list[bytes] | None:
        """The messages of the micro-batch, as one stream of Arrow's for each worker: all those of a partition go to one
        of them. An empty stream has no bytes. None if Spark should read them."""
        wanted = self._wanted or {}
        count = sum(end - begin for begin, end in wanted.values())
        if not 0 < count <= self._most or time.monotonic() < self._not_before:
            return None
        try:
            found = self._poll(wanted)
        except Exception as error:  # whatever it is, Spark reads the messages or says what is wrong
            found, said = None, f"{type(error).__name__}: {error}"
            self.close()
        else:
            said = f"not all {count} messages came within {READ_SECONDS:g} s and {LARGEST_BYTES >> 20} MiB"
        if found is None:
            _log.debug("Spark reads the messages of an epoch: %s", said)
            self._not_before = time.monotonic() + self._rest
            self._rest = min(2 * self._rest, REST_SECONDS[1])
            self._taken.clear()  # an open connection stays: the first request on it takes longer than later ones
            return None
        self._rest = REST_SECONDS[0]
        own: list[list[Any]] = [[] for _ in range(workers)]
        for number, part in enumerate(sorted(found)):
            own[number % workers] += found[part]
        return [to_arrow(records) if records else b"" for records in own]

    def close(self) -> None:
        """Close the connection to the brokers; the next `read` opens another one."""
        consumer, self._consumer = self._consumer, None
        self._taken.clear()
        if consumer is not None:
            with suppress(Exception):
                consumer.close(autocommit=False)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _poll(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, list[Any]] | None:
        """The records in the given ranges of offsets. None if they do not come in time or are too large.

        What has come beyond a range stays for the next call: a consumer asks for more as soon as it has something.
        """
        consumer = self._consumer
        if consumer is None:
            self._consumer = consumer = KafkaConsumer(
                **self._client,
                group_id=None,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="none",
                metrics_enabled=False,
                max_poll_records=self._most,
                max_partition_fetch_bytes=LARGEST_BYTES,
                fetch_max_bytes=LARGEST_BYTES,
            )
        if self._taken.keys() != wanted.keys():
            consumer.assign(list(wanted))
            self._taken.clear()
        for part, (begin, _) in wanted.items():
            if self._taken.get(part) != begin:
                consumer.seek(part, begin)
                self._left[part], self._taken[part] = deque(), begin
        deadline = time.monotonic() + READ_SECONDS
        come = 0
        while any(consumer.position(part) < end for part, (_, end) in wanted.items()):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            for part, records in consumer.poll(timeout_ms=int(1000 * left) + 1).items():
                self._left[part].extend(records)
                come += sum(len(record.value or b"") for record in records)
            if come > LARGEST_BYTES:
                return None
        found = {}
        for part, (begin, end) in wanted.items():
            waiting, own = self._left[part], []
            while waiting and waiting[0].offset < end:
                own.append(waiting.popleft())
            self._taken[part] = end
            if begin < end:
                found[part] = own
        return found


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
