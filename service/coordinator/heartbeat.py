"""Heartbeat: records that the service sends to itself, so that epochs, and with them time, advance without input.

Spark runs no batch without records and ends Python workers that are idle for a minute. The topic `<app>.heartbeat` has
one partition per worker, so a heartbeat makes an epoch of exactly as many tasks as there are workers. If it has fewer,
because the brokers did not add any or the number of workers has just changed, each of these gets one: Spark then
divides what it read.
"""

from __future__ import annotations

import logging
import threading
import time

from kafka import KafkaProducer
from kafka.errors import KafkaError

from vernier.service.config.settings import Settings, heartbeat_topic
from vernier.storage.threads import Threads

_log = logging.getLogger("vernier.heartbeat")


class Heartbeat:
    """Sends a heartbeat when there was no epoch for `epoch.heartbeat_ms`, in a thread of `threads`."""

    def __init__(self, settings: Settings, app: str, threads: Threads) -> None:
        self._settings, self._topic = settings, heartbeat_topic(app)
        self._pause = settings.epoch.heartbeat_ms / 1000
        self._due = time.monotonic() + self._pause
        self._busy = False
        self._changed = threading.Condition()
        self._stopping = False
        self._loop = threads.start("heartbeat", self._run)

    def began(self) -> None:
        """An epoch has started: send no heartbeat until it has ended."""
        with self._changed:
            self._busy = True

    def ended(self, wanted_in: float | None = None) -> None:
        """An epoch has ended. wanted_in: seconds after which the next one should start without input, if not after the
        usual pause."""
        with self._changed:
            self._busy = False
            self._due = time.monotonic() + (self._pause if wanted_in is None else wanted_in)
            self._changed.notify()

    def close(self) -> None:
        """Stop sending heartbeats."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._loop.stop()

    def _run(self, _stopping: threading.Event) -> None:
        producer: KafkaProducer | None = None
        try:
            while self._wait():
                try:
                    if producer is None:
                        producer = KafkaProducer(**self._settings.kafka_client(), acks=1, max_block_ms=2_000)
                    known = len(producer.partitions_for(self._topic) or ())
                    for partition in range(min(known, self._settings.workers)):
                        producer.send(self._topic, value=b"", partition=partition)
                    producer.flush(2)
                    if known < self._settings.workers:
                        # This broker may not know all partitions yet; a producer asks again only when it is new.
                        producer.close(timeout=1)
                        producer = None
                except KafkaError as error:
                    # The brokers are unreachable. The query notices this too, and a heartbeat would have no effect.
                    _log.debug("no heartbeat: %s", error)
        finally:
            if producer is not None:
                producer.close(timeout=1)

    def _wait(self) -> bool:
        """Wait until a heartbeat is due; False when it is time to stop."""
        with self._changed:
            while not self._stopping:
                left = self._due - time.monotonic()
                if left <= 0 and not self._busy:
                    self._due = time.monotonic() + self._pause
                    return True
                self._changed.wait(self._pause if self._busy else left)
            return False
