"""Consumer lag: how many messages of each partition no epoch has read yet.

Spark reports offsets only for what it reads, so a thread asks the brokers for the end offsets of the partitions every
two seconds. Lag is counted in messages: after an epoch that has read everything it is 0.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from vernier.storage.errors import StorageError
from vernier.storage.threads import Threads

POLL_SECONDS = 2.0


class LagUnknown(StorageError):
    """The brokers do not report where the topics end."""

    message = "the brokers do not report where the topics end ({reason})"
    reason: str


Offsets = Mapping[str, Mapping[int, int]]
_log = logging.getLogger("vernier.lag")


def ends(client: Mapping[str, Any], partitions: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """The end offsets, by topic and partition: the offset after the newest message. Raises LagUnknown while no broker
    answers."""
    where = [TopicPartition(topic, one) for topic, count in partitions.items() for one in range(count)]
    found: dict[str, dict[int, int]] = {}
    try:
        consumer = KafkaConsumer(**client, group_id=None)
        try:
            for one, end in consumer.end_offsets(where).items():
                found.setdefault(one.topic, {})[one.partition] = end
        finally:
            consumer.close()
    except KafkaError as error:
        raise LagUnknown(reason=str(error)) from error
    return found


class Lag:
    """Polls the first and end offsets of partitions, in a thread of `threads`. client: Kafka client settings;
    partitions: the number of partitions of each topic; see `follow`. watch: called at each poll, for anything else that
    must be polled; it may raise LagUnknown."""

    def __init__(
        self,
        client: Mapping[str, Any],
        partitions: Mapping[str, int],
        threads: Threads,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._watch = client, watch
        self._where: list[TopicPartition] = []
        self._bounds: dict[tuple[str, int], tuple[int, int]] = {}
        self.follow(partitions)
        self._loop = threads.start("lag", self._run)

    def follow(self, partitions: Mapping[str, int]) -> None:
        """Poll these partitions from now on."""
        self._where = [TopicPartition(topic, one) for topic, count in partitions.items() for one in range(count)]

    def unread(self, topic: str, read: Offsets) -> dict[int, int]:
        """The number of unread messages by partition, given the next offset to read. Partitions for which the brokers
        have not answered are left out."""
        next_offsets = read.get(topic, {})
        return {
            partition: max(0, end - max(first, next_offsets.get(partition, first)))
            for (name, partition), (first, end) in self._bounds.items()
            if name == topic
        }

    def close(self) -> None:
        """Stop polling."""
        self._loop.stop()

    def _run(self, stopping: threading.Event) -> None:
        consumer: KafkaConsumer | None = None
        try:
            while not stopping.is_set():
                try:
                    if consumer is None:
                        consumer = KafkaConsumer(**self._client, group_id=None)
                    where = self._where
                    first, end = consumer.beginning_offsets(where), consumer.end_offsets(where)
                    # A single assignment, so a reader on another thread never sees a mix of two answers.
                    self._bounds = {(one.topic, one.partition): (first[one], end[one]) for one in where if one in end}
                    self._watch()
                except (KafkaError, KeyError, LagUnknown) as error:
                    # The brokers are unreachable, or this one has not heard of a new partition yet (KeyError). The lag
                    # is unknown, so no lag is reported.
                    self._bounds = {}
                    _log.debug("no offsets: %s", error)
                stopping.wait(POLL_SECONDS)
        finally:
            # Numbers that nothing updates any more would be wrong.
            self._bounds = {}
            if consumer is not None:
                consumer.close()
