"""Sends messages to Kafka and waits until the brokers have acknowledged them.

The brokers acknowledge all messages of a call, or the call fails. A broker that is unreachable or too slow causes an
error after a time limit, so unsent messages do not accumulate here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from vernier.service.kafka.clients import Producer
from vernier.storage.errors import StorageError

_log = logging.getLogger("vernier.delivery")
_LARGEST = 64 << 20

Messages = Callable[[int], Iterable[tuple[int, bytes]]]
"""A function from the number of partitions to (partition, value) of each message."""


class KafkaAway(StorageError):
    """Kafka did not accept messages in time."""

    code = "kafka_unavailable"
    message = "topic {topic} at {bootstrap} accepts no updates: {reason}; {written}"
    topic: str
    bootstrap: str
    reason: str
    written: str


class Delivery:
    """Sends to the brokers that `client` names, within `ms` milliseconds per call. Thread-safe."""

    def __init__(self, client: Mapping[str, Any], ms: int) -> None:
        self._client, self._ms = dict(client), ms
        self._lock = threading.Lock()
        self._producer: KafkaProducer | None = None

    def deliver(self, topic: str, messages: Messages) -> dict[int, int]:
        """Send the messages; returns, by partition, the offset after the last one.

        Messages of one partition keep their order. Raises KafkaAway, and what `messages` raises.
        """
        deadline = time.monotonic() + self._ms / 1000
        begun = []
        try:
            producer = self._connected()
            found = producer.partitions_for(topic)
            if not found:
                raise self._away(topic, "there is no such topic; the service makes it when it starts", begun=False)
            # Build all messages before the first is sent, so that a body with a mistake is not sent in part.
            listed = list(messages(len(found)))
            for partition, value in listed:
                begun.append((partition, producer.send(topic, value=value, partition=partition)))
            producer.flush(timeout=max(0.0, deadline - time.monotonic()))
            ends: dict[int, int] = {}
            for partition, future in begun:
                metadata = future.get(timeout=max(0.0, deadline - time.monotonic()))
                ends[partition] = max(ends.get(partition, 0), metadata.offset + 1)
            return ends
        except KafkaError as error:
            # Drop the producer with its pending messages. The client learns that they failed, so they must not be sent
            # later.
            self._drop()
            raise self._away(topic, _said(error), begun=bool(begun)) from error

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._drop()

    def _connected(self) -> KafkaProducer:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(
                    **self._client,
                    acks="all",
                    enable_idempotence=True,
                    linger_ms=2,
                    max_block_ms=self._ms,
                    request_timeout_ms=self._ms,
                    delivery_timeout_ms=self._ms + 2,
                    bootstrap_timeout_ms=self._ms,
                    max_request_size=_LARGEST,
                    allow_auto_create_topics=False,
                )
            return self._producer

    def _drop(self) -> None:
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0)

    def _away(self, topic: str, reason: str, *, begun: bool) -> KafkaAway:
        _log.warning("cannot send to topic %s: %s", topic, reason)
        bootstrap = ",".join(self._client.get("bootstrap_servers", ()))
        written = "some of the updates may have been written" if begun else "nothing was sent"
        return KafkaAway(topic=topic, bootstrap=bootstrap, reason=reason, written=written)


def _said(error: BaseException) -> str:
    named = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return named.splitlines()[0]
