"""Reading: the committed records of topics, from the first one to the last one that exists now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError

SILENT_SECONDS = 90.0
"""How long a reader waits for an open transaction. Brokers abort a transaction that has not ended after a minute."""
_POLL_MS = 500


class _Silence:
    """How long the brokers have sent nothing new. A pause counts for at most two polls, because brokers are not silent
    while this process, or its machine, stands still."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked, self._reached = time.monotonic(), dict[TopicPartition, int]()

    def look(self, reached: dict[TopicPartition, int]) -> bool:
        """Note the positions that were reached; returns whether the silence has lasted too long."""
        now = time.monotonic()
        if reached != self._reached:
            self.seconds, self._reached = 0.0, reached
        else:
            self.seconds += min(now - self._looked, 2 * _POLL_MS / 1000)
        self._looked = now
        return self.seconds > SILENT_SECONDS


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
        silence = _Silence()
        # Transaction markers and records of aborted transactions have offsets, but no poll returns them; the consumer's
        # position does move past them.
        while left := {part: at for part in parts if (at := consumer.position(part)) < ends[part]}:
            if silence.look(left):
                raise KafkaTimeoutError(
                    f"topic {topic} was not read to its end: nothing came for {SILENT_SECONDS:g} s; "
                    + _left(left, ends)
                )
            polled = consumer.poll(timeout_ms=_POLL_MS)
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
        silence = _Silence()
        while (at := self.consumer.position(part)) < stop:
            if silence.look({part: at}):
                said = f"nothing came for {SILENT_SECONDS:g} s; {_left({part: at}, {part: stop})}"
                raise KafkaTimeoutError(f"topic {part.topic} was not read to {stop}: {said}")
            polled = self.consumer.poll(timeout_ms=_POLL_MS).get(part, ())
            found += [record for record in polled if record.offset < stop]
        return found

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close(autocommit=False)
        self._all.close(autocommit=False)

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _left(reached: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> str:
    """The partitions that were not read to their ends, in words."""
    left = [f"partition {part.partition} at {at} of {ends[part]}" for part, at in reached.items()]
    return f"{', '.join(left)}: a broker is away, or a transaction is open there"
