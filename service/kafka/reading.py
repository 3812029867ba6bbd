"""Reading: the committed records of topics, from the first one to the last one that exists now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

SILENT_SECONDS = 90.0
"""How long a reader waits for an open transaction. Brokers abort a transaction that has not ended after a minute."""


class CommittedReader:
    """Reads whole topics as a read_committed consumer sees them. A context manager. Raises KafkaErrors.

    A producer's commit returns before its records are visible in all partitions. The reader therefore reads up to the
    end of all records, committed or not, and waits for transactions that are still open there.
    """

    def __init__(self, client: Mapping[str, Any], *, group: str | None = None) -> None:
        about = {**client, "enable_auto_commit": False}
        self.consumer = KafkaConsumer(
            **about, group_id=group, isolation_level="read_committed", max_partition_fetch_bytes=64 << 20
        )
        try:
            self._all = KafkaConsumer(**about, group_id=None)
        except BaseException:
            self.consumer.close(autocommit=False)
            raise
        self.first: dict[int, int] = {}
        """By partition, the first offset of the topic that was read last."""

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, none if there is no such topic."""
        return [TopicPartition(topic, one) for one in sorted(self._all.partitions_for_topic(topic) or ())]

    def read(self, topic: str) -> Iterator[list[Any]]:
        """The records of a topic, in chunks; those of a partition come in order."""
        parts = self.partitions(topic)
        if not parts:
            return
        consumer = self.consumer
        consumer.assign(parts)
        ends, begins = self._all.end_offsets(parts), consumer.beginning_offsets(parts)
        self.first = {part.partition: offset for part, offset in begins.items()}
        for part in parts:
            consumer.seek(part, begins[part])
        heard = time.monotonic()
        # Transaction markers have offsets, but no poll returns them; the consumer's position does move past them.
        while any(consumer.position(part) < ends[part] for part in parts):
            polled = consumer.poll(timeout_ms=500)
            if polled:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENT_SECONDS:
                raise KafkaTimeoutError(
                    f"topic {topic} was not read to its end: no record arrived for {SILENT_SECONDS:g} s"
                )
            for part, records in polled.items():
                got = [record for record in records if record.offset < ends[part]]
                if got:
                    yield got

    def bounds(self, part: TopicPartition) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last record, committed or not."""
        return self._all.beginning_offsets([part])[part], self._all.end_offsets([part])[part]

    def between(self, part: TopicPartition, start: int, stop: int) -> list[Any]:
        """The committed records of a partition with offsets in [start, stop)."""
        self.consumer.assign([part])
        self.consumer.seek(part, start)
        found: list[Any] = []
        heard = time.monotonic()
        while self.consumer.position(part) < stop:
            polled = self.consumer.poll(timeout_ms=500).get(part, ())
            if polled:
                heard = time.monotonic()
                found += [record for record in polled if record.offset < stop]
            elif time.monotonic() - heard > SILENT_SECONDS:
                raise KafkaTimeoutError(f"{part} was not read to {stop}: nothing came for {SILENT_SECONDS:g} s")
        return found

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close(autocommit=False)
        self._all.close(autocommit=False)

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
