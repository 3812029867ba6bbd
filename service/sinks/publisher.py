"""The publisher process: sends the changes of views to their output topics, each exactly once.

    python -m vernier.service.sinks

It reads committed epochs only, as the sidecar does, so no commit ever waits for it. The changes that it finds are sent
in one Kafka transaction, whose last message is the new position (position.py). At a start, and after any transaction
whose commit was not confirmed, it fences every other publisher of the same name and continues from the position that
Kafka has. While the brokers are unreachable it falls behind, and reports this in its status file `sinks.json`
(service/status/publisher.py).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from vernier.service.config.sections import Sink
from vernier.service.config.settings import Settings
from vernier.service.errors import PublisherFenced
from vernier.service.kafka.clients import Producer
from vernier.service.kafka.embedded_broker import create_topics
from vernier.service.kafka.transactions import Fenced, Transactions
from vernier.service.sinks import position
from vernier.service.sinks.history import History
from vernier.service.sinks.outgoing import Message, NotOneRow, Outgoing
from vernier.service.sinks.position import Position, Positions
from vernier.service.status import publisher
from vernier.storage.errors import StorageError, VernierError
from vernier.storage.state.state import StateDirectory

MOST = 50_000
"""Approximate number of changes of one view in a transaction."""
_TOLD_SECONDS = 1.0
_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
_LARGEST = (64 << 20) + (1 << 20)
_log = logging.getLogger("vernier.publisher")

Sent = tuple[str, Message, list[tuple[str, bytes]]]
"""The topic that a message goes to, the message, its headers."""


class Publisher:
    """Publishes the views of one state directory.

    make: creates a producer from keyword arguments; tests pass one that fails. For one thread: `turn` runs one
    transaction, `run` repeats it.
    """

    def __init__(
        self, settings: Settings, state: StateDirectory, make: Callable[..., KafkaProducer] = Producer
    ) -> None:
        self._settings, self._state, self._make = settings, state, make
        self._history = History(state)
        self._transactions: Transactions | None = None
        self._positions = Positions()
        self._sinks: dict[str, Outgoing] = {}
        self._problems: dict[str, str] = {}
        self._status: publisher.PublisherStatus | None = None
        self._told_at = -_TOLD_SECONDS

    def run(self, stop: threading.Event) -> None:
        """Publish until `stop` is set. Raises PublisherFenced if another publisher has taken over."""
        failures = 0
        while not stop.is_set():
            began = time.monotonic()
            try:
                self.turn()
                failures = 0
            except (KafkaError, VernierError) as error:
                if isinstance(error, PublisherFenced):
                    raise
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                if failures == 0:
                    _log.warning("publishing is interrupted: %s", said)
                self._publish(said)
                stop.wait(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
            stop.wait(max(0.0, self._settings.publish.commit_ms / 1000 - (time.monotonic() - began)))

    def turn(self) -> int:
        """Send the changes found, in one transaction; returns the number of messages.

        Raises PublisherFenced, KafkaErrors and StorageErrors. The transaction is then visible either completely or not
        at all; the next turn finds out which.
        """
        try:
            return self._turn()
        except Fenced as error:
            self.close()
            raise PublisherFenced(app=self._app) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the producer. The next producer of this name aborts a transaction that is still open."""
        if self._transactions is not None:
            self._transactions.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _app(self) -> str:
        newest = self._history.newest
        return newest.app if newest is not None else ""

    def _turn(self) -> int:
        self._history.poll()
        newest = self._history.newest
        if newest is None:
            return 0
        transactions = self._connected()
        batch: list[Sent] = []
        after = dict(self._positions.views)
        for view, sink in self._wanted(newest.views).items():
            if view not in self._problems:
                self._advance(view, sink, batch, after)
        if after == self._positions.views:
            self._publish(None)
            return 0
        positions = Positions(self._reached(after), after)
        transactions.commit([*map(_record, batch), position.record(newest.app, positions)])
        self._positions = positions
        self._history.forget(min(one.frontier for one in after.values()))
        self._publish(None)
        return len(batch)

    def _advance(self, view: str, sink: Outgoing, batch: list[Sent], after: dict[str, Position]) -> None:
        """Add a view's next steps to the batch, and its new position to `after`."""
        now = after.get(view)
        if now is not None and (now.topic, now.format) != (sink.topic, sink.format):
            now = None
        frontier, meaning = (None, None) if now is None else (now.frontier, now.meaning)
        counts = {} if now is None else dict(now.messages)
        for step in self._history.steps(view, frontier, meaning, MOST):
            try:
                messages = list(sink.messages(step))
            except NotOneRow as error:
                _log.error("%s", error)
                self._problems[view] = str(error)
                return
            if step.restarts:
                _log.warning(
                    "the changes of view %s from %d on are no longer kept: a snapshot is published instead",
                    view,
                    step.lower,
                )
            for message, headers in messages:
                counts[message.kind] = counts.get(message.kind, 0) + 1
                batch.append((sink.topic, message, headers))
            after[view] = Position(sink.topic, sink.format, step.upper, step.view.meaning, dict(counts))

    def _reached(self, after: Mapping[str, Position]) -> int:
        """The newest epoch that is published completely, ignoring views that cannot be published."""
        frontiers = [one.frontier for view, one in after.items() if view not in self._problems]
        return self._history.epoch_at(min(frontiers)) if frontiers else self._positions.epoch

    def _wanted(self, views: Mapping[str, Any]) -> dict[str, Outgoing]:
        """The sinks of the existing views; creates their topics."""
        which, listed = self._settings.publish.views, self._settings.sinks
        names = [view for view in views if which == "all" or (which == "listed" and view in listed)]
        for view in names:
            if view not in self._sinks:
                self._sinks[view] = self._open(view, listed.get(view, Sink()))
        for view in listed:
            if view not in views:
                self._problems.setdefault(view, f"no program has a view {view}")
            elif self._problems.get(view, "").startswith("no program"):
                del self._problems[view]
        return {view: self._sinks[view] for view in names}

    def _open(self, view: str, given: Sink) -> Outgoing:
        kafka, topic = self._settings.kafka, given.topic or f"{self._app}.{view}"
        config = {"cleanup.policy": "compact"} if given.format == "upsert" else {}
        found = create_topics(kafka.bootstrap, {topic: given.partitions}, config=config, replication=kafka.replication)
        return Outgoing(view, topic, given.format, found[topic], given.tells_progress, self._app)

    def _connected(self) -> Transactions:
        """A transactional producer that has fenced all others of this app, with the positions that they reached."""
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
        return self._transactions

    def _publish(self, problem: str | None) -> None:
        """Write the status file, at most once a second if nothing changed. A failure to write must not
        stop publishing.
        """
        sinks = {
            view: publisher.Sink(one.topic, one.format, one.frontier, one.messages, self._problems.get(view))
            for view, one in self._positions.views.items()
        }
        for view, said in self._problems.items():
            if view not in sinks:
                given = self._settings.sinks.get(view, Sink())
                sinks[view] = publisher.Sink(given.topic or f"{self._app}.{view}", given.format, None, {}, said)
        before, now = self._status, time.monotonic()
        quiet = before is not None and before.problem == problem and now - self._told_at < _TOLD_SECONDS
        if quiet:
            return
        self._status = publisher.PublisherStatus(self._positions.epoch, time.time_ns(), sinks, problem)
        self._told_at = now
        with contextlib.suppress(StorageError, OSError):
            publisher.write(self._state.blob, self._status)


def _record(sent: Sent) -> dict[str, Any]:
    topic, message, headers = sent
    about = {"topic": topic, "key": message.key, "value": message.value, "partition": message.partition}
    return {**about, "headers": headers}
