"""Log reader: the committed messages of some partitions, from given offsets on, as they come.

This is the driver's way to messages, and each costs some of the processor that workers compute with, so it uses
librdkafka, which receives, checks and unpacks in threads of its own, outside of Python: 3 ms of processor time for 400
messages of 12 kB, where the kafka package takes 17. Everything else asks brokers with the kafka package.

librdkafka cannot tell where it is while nothing comes: marks of transactions, and messages of aborted ones, have
offsets but are never returned. After them it says that it has reached the partition's end, when a broker's answer has
been empty, so brokers do not wait long for something to answer with.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position
from kafka import TopicPartition

_NAMES = {
    "security_protocol": "security.protocol",
    "ssl_cafile": "ssl.ca.location",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
}
"""What librdkafka calls the settings of the kafka package's clients that Settings.kafka_client gives."""
_OURS = ("bootstrap_servers", "kafka_client")
_GROUP = "vernier-reader"
"""librdkafka wants the name of a group, and does nothing with it for a reader that commits nothing."""
_PARTITION_BYTES = 4 << 20
"""What a request asks of a partition at most."""
_AHEAD_BYTES = 16 << 20
"""How much may wait to be polled."""
_EMPTY_MS = 50
"""How long a broker waits for something to answer with."""
_CONNECT_MS = 2_000
_AGAIN_MS = 10
"""How soon more is asked for after the queue of what has come was full."""

_log = logging.getLogger("vernier.kafka")


class Record(NamedTuple):
    """A message. timestamp: the broker's time or the producer's in ms, -1 if it has none."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: list[tuple[str, bytes | None]]


class LogReader:
    """Reads partitions. client: as Settings.kafka_client gives it. Not thread-safe. Raises KafkaException, also if an
    offset is gone. Of a topic that is gone nothing comes."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        settings = {_NAMES[name]: value for name, value in client.items() if name not in _OURS}
        servers = client["bootstrap_servers"]
        self._consumer = Consumer(
            settings
            | {
                "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers),
                "group.id": _GROUP,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": _EMPTY_MS,
                "fetch.queue.backoff.ms": _AGAIN_MS,
                "fetch.message.max.bytes": _PARTITION_BYTES,
                "fetch.max.bytes": _AHEAD_BYTES,
                "queued.max.messages.kbytes": _AHEAD_BYTES >> 10,
                "socket.connection.setup.timeout.ms": _CONNECT_MS,
            },
            logger=_log,
        )
        self._at: dict[TopicPartition, int] = {}
        self._named: dict[tuple[str, int], TopicPartition] = {}

    def read_from(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from now on, from these offsets. What has not been polled is dropped."""
        self._at = dict(offsets)
        self._named = {(part.topic, part.partition): part for part in offsets}
        self._consumer.assign([Position(part.topic, part.partition, at) for part, at in offsets.items()])

    def position(self, part: TopicPartition) -> int:
        """The offset after the last message that was polled, or after what is known to follow it and is no message."""
        return self._at[part]

    def end(self, part: TopicPartition) -> int | None:
        """The offset after a partition's last message, as its broker has said with its last answer; None before it."""
        _, end = self._consumer.get_watermark_offsets(Position(part.topic, part.partition), cached=True)
        return int(end) if end >= 0 else None

    def poll(self, seconds: float, most: int) -> dict[TopicPartition, list[Record]]:
        """Up to `most` messages that have come. Waits up to `seconds` for the first of them, or until a position
        changes without one."""
        found: dict[TopicPartition, list[Record]] = {}
        until, before = time.monotonic() + seconds, dict(self._at)
        while self._at == before and (first := self._consumer.poll(max(0.0, until - time.monotonic()))) is not None:
            came: list[Any] = [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]
            for message in came:
                self._take(message, found)
        return found

    def _take(self, message: Any, found: dict[TopicPartition, list[Record]]) -> None:
        """Add a message, or take note of the end of a partition."""
        error = message.error()
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # nothing is asked of the group
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        part, offset = self._named[message.topic(), message.partition()], message.offset()
        if error is not None:
            self._at[part] = max(self._at[part], offset)
            return
        kind, timestamp = message.timestamp()
        record = Record(
            message.key(),
            message.value(),
            part.topic,
            part.partition,
            offset,
            -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
            message.headers() or [],
        )
        found.setdefault(part, []).append(record)
        self._at[part] = offset + 1

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
