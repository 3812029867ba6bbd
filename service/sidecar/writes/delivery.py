"""Delivery: puts messages into Kafka for those who wait until they are there.

All of one call are acknowledged by the brokers, or the call fails; a broker that is away, or does not keep up, is an
error after a while, so what cannot be sent does not pile up here.
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
"""From the number of partitions: (partition, value) of each message."""


class KafkaAway(StorageError):
    """Kafka did not take messages in time."""

    code = "kafka_unavailable"
    message = "topic {topic} at {bootstrap} takes no updates: {reason}; {written}"
    topic: str
    bootstrap: str
    reason: str
    written: str


class Delivery:
    """Sends to the brokers that `client` names, within `ms` milliseconds a call. For threads."""

    def __init__(self, client: Mapping[str, Any], ms: int) -> None:
        self._client, self._ms = dict(client), ms
        self._lock = threading.Lock()
        self._producer: KafkaProducer | None = None

    def deliver(self, topic: str, messages: Messages) -> dict[int, int]:
        """Send the messages; the offset behind the last one by partition. Raises KafkaAway, and what `messages` raises.

        Messages of one partition keep their order.
        """
        deadline = time.monotonic() + self._ms / 1000
        begun = []
        try:
            producer = self._connected()
            found = producer.partitions_for(topic)
            if not found:
                raise self._away(topic, "there is no such topic; the service makes it when it starts", begun=False)
            # All of them before the first is sent: a body that cannot be sent whole is not sent at all.
            listed = list(messages(len(found)))
            for partition, value in listed:
                begun.append((partition, producer.send(topic, value=value, partition=partition)))
            producer.flush(timeout=max(0.0, deadline - time.monotonic()))
            ends: dict[int, int] = {}
            for partition, future in begun:
                told = future.get(timeout=max(0.0, deadline - time.monotonic()))
                ends[partition] = max(ends.get(partition, 0), told.offset + 1)
            return ends
        except KafkaError as error:
            # What it still holds must not be sent later on: who asked has been told that it was not.
            self._drop()
            raise self._away(topic, _said(error), begun=bool(begun)) from error

    def close(self) -> None:
        """Let go of the brokers."""
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
        written = "some of the updates may be there" if begun else "nothing was sent"
        return KafkaAway(topic=topic, bootstrap=bootstrap, reason=reason, written=written)


def _said(error: BaseException) -> str:
    named = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return named.splitlines()[0]
