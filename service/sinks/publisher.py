"""The publisher process: writes the changes of views to topics, files, databases and addresses, each exactly once.

    python -m vernier.service.sinks

It reads committed epochs only, as the sidecar does, so no commit ever waits for it. The changes that it finds go to
targets (target.py): one for all output topics, and one for each other sink. A target makes changes and position durable
together, so after any failure it says itself where to continue. Targets do not wait for each other: one that fails is
tried again, with pauses, while the others go on. The status file `sinks.json` (service/status/publisher.py) says how
far each sink is and why one does not advance.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from kafka import KafkaProducer
from kafka.errors import KafkaError

from vernier.service.config.settings import Settings
from vernier.service.config.streams import Sink
from vernier.service.errors import PublisherFenced
from vernier.service.kafka.clients import Producer
from vernier.service.sinks.history import History
from vernier.service.sinks.kafka_target import KafkaTarget
from vernier.service.sinks.position import Position
from vernier.service.sinks.target import Steps, Target
from vernier.service.sinks.targets import KINDS, open_target
from vernier.service.status import publisher
from vernier.storage.errors import StorageError, VernierError
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import MIN_TIME

MOST = 50_000
"""Approximate number of changes of one view in a transaction."""
_TOLD_SECONDS = 1.0
_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
_log = logging.getLogger("vernier.publisher")


class Channel:
    """A target with the sinks that go there, and when it is its turn. sinks: by name; seconds: from one turn to the
    next, unless more waits. most: about how many changes of one view go out in one turn.
    """

    def __init__(self, target: Target, sinks: Mapping[str, Sink], seconds: float, most: int) -> None:
        self.target, self.sinks, self.seconds, self.most = target, dict(sinks), seconds, most
        self.due, self.failures = 0.0, 0
        self.problem: str | None = None
        self.known: Mapping[str, Position] = {}

    def turn(self, history: History) -> int:
        """Write what has become final, and note the positions after it; returns the number of messages. Raises the
        target's own errors.
        """
        try:
            before = self.target.positions()
            steps: dict[str, Steps] = {}
            for name, given in self.sinks.items():
                if name not in self.target.problems:
                    now = before.get(name)
                    frontier, meaning = (None, None) if now is None else (now.frontier, now.meaning)
                    found = history.steps(given.view or name, frontier, meaning, self.most)
                    if found:
                        steps[name] = found
                        _warn_of_snapshots(name, found)
            sent = self.target.write(steps) if steps else 0
            self.known = self.target.positions()
            return sent
        except BaseException:
            self.target.close()
            raise

    @property
    def frontier(self) -> int | None:
        """All sinks that can be written are complete before it: MIN_TIME if one has nothing yet, None if there is no
        such sink.
        """
        names = [name for name in self.sinks if name not in self.target.problems]
        return min((self.known[n].frontier if n in self.known else MIN_TIME for n in names), default=None)


class Publisher:
    """Publishes the views of one state directory.

    make: creates a producer from keyword arguments; tests pass one that fails. For one thread: `turn` gives each target
    its turn, `run` repeats it.
    """

    def __init__(
        self, settings: Settings, state: StateDirectory, make: Callable[..., KafkaProducer] = Producer
    ) -> None:
        self._settings, self._state, self._make = settings, state, make
        self._history = History(state)
        self._kafka: Channel | None = None
        self._topics: KafkaTarget
        self._others: dict[str, Channel] = {}
        self._missing: dict[str, str] = {}
        self._status: publisher.PublisherStatus | None = None
        self._told_at = -_TOLD_SECONDS

    def run(self, stop: threading.Event) -> None:
        """Publish until `stop` is set. Raises PublisherFenced if another publisher has taken over."""
        while not stop.is_set():
            began = time.monotonic()
            try:
                self.turn(began)
            except PublisherFenced:
                raise
            except (KafkaError, VernierError):
                pass  # `turn` has reported it, and decides when the target is tried again
            stop.wait(max(0.0, self._settings.publish.commit_ms / 1000 - (time.monotonic() - began)))

    def turn(self, now: float | None = None) -> int:
        """Give each target its turn; returns the number of messages.

        now: a monotonic time in seconds; targets that are not due are left out. Raises PublisherFenced at once, and
        after all turns the first error of a target; its next turn finds out what has been written.
        """
        first: BaseException | None = None
        sent = 0
        try:
            self._history.poll()
            channels = list(self._channels())
        except (KafkaError, VernierError) as error:
            if self._status is None or self._status.problem != _said(error):
                _log.warning("publishing is interrupted: %s", _said(error))
            self._publish(_said(error))
            raise
        for channel in channels:
            if now is not None and now < channel.due:
                continue
            try:
                sent += channel.turn(self._history)
                channel.failures, channel.problem = 0, None
                behind = channel.frontier is not None and channel.frontier < self._upper
                channel.due = 0.0 if behind and sent else (now or 0.0) + channel.seconds
            except PublisherFenced:
                raise
            except (KafkaError, VernierError) as error:
                first = first or error
                self._failed(channel, error, now)
        frontiers = [one.frontier for one in channels if one.frontier is not None]
        if frontiers:
            self._history.forget(min(frontiers))
        self._publish(None if self._kafka is None else self._kafka.problem)
        if first is not None:
            raise first
        return sent

    def close(self) -> None:
        """Close all targets."""
        for channel in [*([self._kafka] if self._kafka is not None else []), *self._others.values()]:
            channel.target.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _app(self) -> str:
        newest = self._history.newest
        return newest.app if newest is not None else ""

    @property
    def _upper(self) -> int:
        newest = self._history.newest
        return newest.upper if newest is not None else 0

    def _channels(self) -> Iterator[Channel]:
        """The targets of the existing views."""
        newest = self._history.newest
        if newest is None:
            return
        self._missing = {
            name: f"no program has a view {given.view or name}"
            for name, given in self._settings.sinks.items()
            if (given.view or name) not in newest.views
        }
        wanted = self._published(newest.views)
        if wanted:
            if self._kafka is None:
                target = KafkaTarget(self._settings, self._app, self._history.epoch_at, self._make)
                self._topics = target
                self._kafka = Channel(target, {}, 0.0, MOST)
            self._kafka.sinks = self._topics.wanted = wanted
            yield self._kafka
        for name, given in self._settings.sinks.items():
            if given.to != "kafka" and name not in self._missing:
                if name not in self._others:
                    kind = KINDS[given.to]
                    seconds = kind.seconds if given.every_ms is None else given.every_ms / 1000
                    try:
                        opened = open_target(name, given, self._app, self._state)
                    except Exception as error:
                        # A package, a driver or a file that is missing, or a malformed address, concerns this sink
                        # alone, whatever error it is.
                        self._missing[name] = _said(error)
                        continue
                    self._others[name] = Channel(opened, {name: given}, seconds, kind.most)
                yield self._others[name]

    def _published(self, views: Mapping[str, object]) -> dict[str, Sink]:
        """The sinks that are output topics, by name."""
        which, listed = self._settings.publish.views, self._settings.sinks
        if which == "none":
            return {}
        found = {name: given for name, given in listed.items() if given.to == "kafka" and name not in self._missing}
        if which == "all":
            found |= {view: Sink() for view in views if view not in listed}
        order = {view: number for number, view in enumerate(views)}
        return dict(sorted(found.items(), key=lambda one: order[one[1].view or one[0]]))

    def _failed(self, channel: Channel, error: BaseException, now: float | None) -> None:
        channel.problem = _said(error)
        if channel.failures == 0:
            _log.warning("publishing to %s is interrupted: %s", ", ".join(channel.sinks), channel.problem)
        pause = _PAUSES[min(channel.failures, len(_PAUSES) - 1)]
        channel.failures += 1
        channel.due = (now or 0.0) + pause

    def _publish(self, problem: str | None) -> None:
        """Write the status file, at most once a second if nothing changed. A failure to write must not
        stop publishing.
        """
        sinks: dict[str, publisher.Sink] = {}
        channels = [*([self._kafka] if self._kafka is not None else []), *self._others.values()]
        for channel in channels:
            problems = channel.target.problems
            for name, one in channel.known.items():
                said = problems.get(name) or (channel.problem if channel is not self._kafka else None)
                sinks[name] = publisher.Sink(one.topic, one.format, one.frontier, one.messages, said, one.view)
            for name, given in channel.sinks.items():
                said = problems.get(name) or (channel.problem if channel is not self._kafka else None)
                if name not in sinks and said is not None:
                    sinks[name] = publisher.Sink(self._place(name, given), _form(given), None, {}, said)
        for name, said in self._missing.items():
            given = self._settings.sinks[name]
            sinks[name] = publisher.Sink(self._place(name, given), _form(given), None, {}, said)
        before, now = self._status, time.monotonic()
        quiet = before is not None and before.problem == problem and now - self._told_at < _TOLD_SECONDS
        if quiet:
            return
        reached = [one.frontier for one in channels if one.frontier is not None]
        epoch = self._history.epoch_at(min(reached)) if reached else (0 if before is None else before.epoch)
        self._status = publisher.PublisherStatus(epoch, time.time_ns(), sinks, problem)
        self._told_at = now
        with contextlib.suppress(StorageError, OSError):
            publisher.write(self._state.blob, self._status)

    def _place(self, name: str, given: Sink) -> str:
        if given.to == "kafka":
            return given.topic or f"{self._app}.{name}"
        return KINDS[given.to].place(name, given)


def _form(given: Sink) -> str:
    return given.format if given.to == "kafka" else given.to


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _warn_of_snapshots(name: str, steps: Steps) -> None:
    for step in steps:
        if step.restarts:
            _log.warning(
                "the changes of view %s from %d on are no longer kept: sink %s gets a snapshot instead",
                step.view.name,
                step.lower,
                name,
            )
