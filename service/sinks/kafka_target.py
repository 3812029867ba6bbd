"""The output topics of an app, as one target: all messages of a turn and all positions are one Kafka transaction.

At a start, and after any transaction whose commit was not confirmed, it fences every other publisher of the same app
and continues from the positions that Kafka has (position.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaProducer

from vernier.service.config.settings import Settings
from vernier.service.config.streams import Sink
from vernier.service.errors import PublisherFenced
from vernier.service.kafka.clients import Producer
from vernier.service.kafka.reading import CommittedReader
from vernier.service.kafka.topics import create_topics
from vernier.service.kafka.transactions import Fenced, Transactions
from vernier.service.sinks import position
from vernier.service.sinks.outgoing import Message, NotOneRow, Outgoing, row_of
from vernier.service.sinks.position import Position, Positions
from vernier.service.sinks.target import Steps

_LARGEST = (64 << 20) + (1 << 20)
_log = logging.getLogger("vernier.publisher")

Sent = tuple[str, Message, list[tuple[str, bytes]]]
"""The topic that a message goes to, the message, its headers."""


class KafkaTarget:
    """Publishes views to topics. wanted: the sinks to write, by name. reached: the newest epoch that ends at or before
    a frontier. make: creates a producer from keyword arguments; tests pass one that fails.
    """

    def __init__(
        self,
        settings: Settings,
        app: str,
        reached: Callable[[int], int],
        make: Callable[..., KafkaProducer] = Producer,
    ) -> None:
        self.problems: dict[str, str] = {}
        self.wanted: dict[str, Sink] = {}
        self._settings, self._app, self._reached, self._make = settings, app, reached, make
        self._transactions: Transactions | None = None
        self._positions = Positions()
        self._sinks: dict[str, Outgoing] = {}

    def positions(self) -> Mapping[str, Position]:
        """The positions in Kafka of the wanted sinks; one that had another topic or format begins anew.

        Raises KafkaErrors, BrokerError, StrangePositions.
        """
        if self._transactions is None:
            self._transactions = Transactions(
                self._settings.kafka_client(),
                f"{self._app}.publisher",
                self._make,
                linger_ms=5,
                max_request_size=_LARGEST,
            )
        if not self._transactions.is_open:
            position.prepare(self._settings.kafka.bootstrap, self._app, self._settings.kafka.replication)
            self._transactions.open()
            # Only now is the newest position final: fencing has ended any transaction whose commit was not confirmed.
            self._positions = position.read(self._settings.kafka_client(), self._app)
        found = {}
        for name, given in self.wanted.items():
            now, sink = self._positions.views.get(name), self._sink(name, given)
            if now is not None and (now.topic, now.format) == (sink.topic, sink.format):
                found[name] = now
        return found

    def write(self, steps: Mapping[str, Steps]) -> int:
        """Send the steps' messages and the new positions in one transaction; returns the number of messages.

        Raises PublisherFenced, KafkaErrors. The transaction is then visible either completely or not at all; the next
        `positions` finds out which.
        """
        batch: list[Sent] = []
        before = self.positions()
        after = dict(self._positions.views)
        for name, some in steps.items():
            reached = self._messages(name, some, before.get(name), batch)
            if reached is not None:
                after[name] = reached
        if after == self._positions.views:
            return 0
        assert self._transactions is not None
        frontiers = [one.frontier for name, one in after.items() if name in self.wanted and name not in self.problems]
        epoch = self._reached(min(frontiers)) if frontiers else self._positions.epoch
        positions = Positions(epoch, after)
        try:
            self._transactions.commit([*map(_record, batch), position.record(self._app, positions)])
        except Fenced as error:
            raise PublisherFenced(app=self._app) from error
        self._positions = positions
        return len(batch)

    def close(self) -> None:
        """Close the producer. The next producer of this name aborts a transaction that is still open."""
        if self._transactions is not None:
            self._transactions.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _messages(self, name: str, steps: Steps, now: Position | None, batch: list[Sent]) -> Position | None:
        """Add the messages of a sink's steps to the batch; returns the position after them, None if there is none."""
        sink = self._sink(name, self.wanted[name])
        counts = {} if now is None else dict(now.messages)
        for step in steps:
            try:
                replaces = step.restarts and sink.format != "vernier"
                messages = list(sink.messages(step, self._present(sink) if replaces else None))
            except NotOneRow as error:
                _log.error("%s", error)
                self.problems[name] = str(error)
                return now
            for message, headers in messages:
                counts[message.kind] = counts.get(message.kind, 0) + 1
                batch.append((sink.topic, message, headers))
            view = "" if step.view.name == name else step.view.name
            now = Position(sink.topic, sink.format, step.upper, step.view.meaning, dict(counts), view)
        return now

    def _present(self, sink: Outgoing) -> dict[str, str]:
        """The row of each key that a topic has, in a format with one row per key. O(messages of the topic)."""
        found: dict[str, str] = {}
        _log.warning("topic %s is read, to delete keys that view %s no longer has", sink.topic, sink.view)
        with CommittedReader(self._settings.kafka_client()) as reader:
            for records in reader.read(sink.topic):
                for record in records:
                    if dict(record.headers).get("vernier-kind") in (b"updates", b"snapshot") and record.key is not None:
                        row = row_of(record.value, sink.format)
                        found.pop(record.key.decode(), None)
                        if row is not None:
                            found[record.key.decode()] = row
        return found

    def _sink(self, name: str, given: Sink) -> Outgoing:
        if name not in self._sinks:
            kafka, topic = self._settings.kafka, given.topic or f"{self._app}.{name}"
            config = {"cleanup.policy": "compact"} if given.format == "upsert" else {}
            found = create_topics(
                kafka.bootstrap, {topic: given.partitions}, config=config, replication=kafka.replication
            )
            view = given.view or name
            self._sinks[name] = Outgoing(view, topic, given.format, found[topic], given.tells_progress, self._app)
        return self._sinks[name]


def _record(sent: Sent) -> dict[str, Any]:
    topic, message, headers = sent
    about = {"topic": topic, "key": message.key, "value": message.value, "partition": message.partition}
    return {**about, "headers": headers}
