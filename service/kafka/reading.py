"""Reading: the committed records of topics, from the first to the last one that is there now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

SILENT_SECONDS = 90.0
"""How long a reader waits for a transaction under way. Brokers abort one that nobody ends after a minute."""


class CommittedReader:
    """Reads whole topics as a reader of committed messages sees them. A context manager. Raises KafkaErrors.

    A producer's commit returns before its records are visible in all partitions. So the end that is read up to is that
    of all records, and a transaction that is under way there is waited for.
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
        """By partition, where the topic that was read last begins."""

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, none if there is no such topic."""
        return [TopicPartition(topic, one) for one in sorted(self._all.partitions_for_topic(topic) or ())]

    def read(self, topic: str) -> Iterator[list[Any]]:
        """The records of a topic, some at a time; those of a partition in their order."""
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
        # Markers of transactions have offsets, and no poll returns them: positions pass them.
        while any(consumer.position(part) < ends[part] for part in parts):
            polled = consumer.poll(timeout_ms=500)
            if polled:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENT_SECONDS:
                raise KafkaTimeoutError(f"topic {topic} was not read to its end: nothing came for {SILENT_SECONDS:g} s")
            for part, records in polled.items():
                got = [record for record in records if record.offset < ends[part]]
                if got:
                    yield got

    def close(self) -> None:
        """Drop the connections."""
        self.consumer.close(autocommit=False)
        self._all.close(autocommit=False)

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
