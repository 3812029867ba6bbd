"""The driver process: runs Spark and its streaming query, and turns micro-batches into epochs. Started by the
supervisor.

    python -m vernier.service.coordinator.driver

Whenever the query fails, the driver starts it again from the newest manifest with a fresh checkpoint: exactly-once
relies on the manifest alone. After too many failures in a row, or when Spark itself is gone, the process ends and the
supervisor starts a new one.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys

from vernier.service.toolchain.jvm import Gateway, early

GATEWAY = early(sys.argv[1:]) if __name__ == "__main__" else None
"""Spark's JVM, which starts while the other modules are imported."""

import argparse
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from vernier.operators.language.collection.app import App
from vernier.operators.planning.plan import Plan
from vernier.service.cluster.worker import Job
from vernier.service.config.programs import Program, Registry, compiled
from vernier.service.config.settings import Settings, heartbeat_topic, load
from vernier.service.coordinator.committer import Epochs
from vernier.service.coordinator.consumer_lag import Lag, LagUnknown, ends
from vernier.service.coordinator.dead_letter_sender import Letters
from vernier.service.coordinator.heartbeat import Heartbeat
from vernier.service.coordinator.intake_controller import Steering
from vernier.service.coordinator.rate_limiter import Admission
from vernier.service.coordinator.runner import Runner
from vernier.service.coordinator.scrub import Scrub
from vernier.service.coordinator.session import Stage, start_session, wake_workers
from vernier.service.coordinator.streaming_query import Query
from vernier.service.coordinator.topic_check import check_whole
from vernier.service.coordinator.topics import STANDING, Choice, Found, TopicReplaced, Topics
from vernier.service.coordinator.tracing import Spans
from vernier.service.errors import OperatorNeeded, ProgramFailed, ProgramStopped, SparkFailed, StateDamaged
from vernier.service.ingest.config import DoorConfig
from vernier.service.kafka.embedded_broker import create_topics
from vernier.service.observability import logs
from vernier.service.status.trouble import STOPPED, Trouble
from vernier.storage.errors import VernierError
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Threads

FAILURES_IN_A_ROW = 6
"""After this many query failures without a commit in between, the process ends so that a fresh one replaces it."""

LOOK_SECONDS = 1
"""Seconds between checks for programs that join and for changes of the desired state."""

_HOUR_MS = 3_600_000
Bundled = tuple[list[Program], App, Plan]
"""Programs, with their combined app and plan."""
_log = logging.getLogger("vernier.driver")


class Driver:
    """The Spark side of one service, from its topics to its query. Raises VernierErrors when it cannot start."""

    def __init__(self, settings: Settings, gateway: Gateway | None = None) -> None:
        if settings.program is None:
            raise SparkFailed(problem="there is no program to run: `vernier up PROGRAM.py`, or set `program`")
        self.settings = settings
        self._stop = threading.Event()
        self.threads = Threads()
        self._own = [Program.of(path) for path in (settings.program, *settings.programs)]
        self.registry = Registry(settings.state.place.open())
        self.programs, self.app, self.plan = self._together(lambda plan: None)
        settings.check_sources(self.app.sources)
        # If the JVM was launched earlier, use its folder for temporary files.
        self._scratch = gateway.scratch if gateway is not None else Path(tempfile.mkdtemp(prefix="d-"))
        self.spark: SparkSession | None = None
        self._session = ThreadPoolExecutor(1, "session").submit(self._start_session, gateway)
        self.door = self._prepare_topics()
        self.topics = self._read_topics()
        self._found: dict[str, Found] | None = None
        self.lag = Lag(settings.kafka_client(), self.door.partitions, self.threads, self._look_at_topics)
        wanted = settings.epoch.target_ms
        self.admission = Admission(
            None if wanted is None else wanted / 1000, settings.epoch.min_messages, settings.epoch.max_messages
        )
        self.epochs = Epochs(
            StateDirectory(settings.state.place),
            self.plan,
            self.door,
            settings.workers,
            settings.state.keep,
            rebuild=settings.state.rebuild,
            collect_beside=settings.state.place.folder is None,
            hold=settings.publish.hold_epochs if settings.publish.views != "none" else 0,
            threads=self.threads,
            lag=self.lag,
            limiter=self.admission,
        )
        if settings.state.rebuild and not self.epochs.anew:
            self._rebuild_replaced()
        if settings.state.discard_after is not None:
            self.epochs.discard(int(settings.state.discard_after), self._ends)
        if self.epochs.anew:
            topics = {settings.topic(source) for source in self.app.sources}
            check_whole(settings.kafka_client(), topics, self.door.partitions)
        self.steering = Steering(self.epochs.directory.blob, self._ends)
        self.letters = Letters(settings, self.app.name, self.epochs.directory)
        self.letters.recover(self.epochs.newest)
        self.letters.anew = self.epochs.anew and self.epochs.newest is not None
        self.heartbeat = Heartbeat(settings, self.app.name, self.threads)
        self.runner = Runner(settings, self.epochs, self.letters, self.heartbeat)
        self.runner.took = self._took
        self.runner.check_topics = self._check_topics
        self.scrub: Scrub | None = None
        if settings.state.place.folder is not None:
            rate = settings.state.scrub_mb_s << 20
            self.scrub = Scrub(self.epochs.directory, lambda: self.epochs.newest, rate, self.threads)
            self.runner.check_files = lambda anew, scrub=self.scrub: scrub.require(anew=anew)  # type: ignore[misc]
        self.runner.log.spans = Spans.of(settings.otel, self.app.name)
        self._running: Query | None = None

    def stop(self) -> None:
        """Ask `run` to finish the current epoch and return. Safe in a signal handler and from any thread.

        An epoch that takes longer than `epoch.stop_ms` is abandoned; the service makes it again at its next start.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        seconds = self.settings.epoch.stop_ms / 1000
        late = threading.Timer(seconds, self.runner.abandon, [f"the service stops, and it took {seconds:g} s more"])
        late.daemon = True
        late.start()

    def run(self) -> None:
        """Run queries until `stop`. Raises SparkFailed and StorageErrors if a new process should try."""
        try:
            self._follow_topics()
        except STANDING as error:
            raise self._stopped(error) from error
        spark = self._session.result()
        failures, reached = 0, self.epochs.reached
        self.runner.attach(Stage(spark, self._job(), self.settings.workers))
        began_ns = 0
        while not self._stop.is_set():
            if not self._wanted():
                self._stop.wait(LOOK_SECONDS)
                continue
            try:
                self._query(spark)
            except (VernierError, PySparkException) as error:
                if self._stop.is_set():
                    return
                failures = 1 if self.epochs.reached > reached else failures + 1
                reached = self.epochs.reached
                cause = self.runner.failure or error
                if isinstance(cause, STANDING):
                    raise self._stopped(cause) from error
                said = str(cause).splitlines()[0]
                began_ns = time.time_ns() if failures == 1 else began_ns
                # A program that fails on its data fails in any process, so Spark can keep running.
                faulty = isinstance(cause, ProgramFailed)
                never = isinstance(cause, ProgramFailed) and cause.final
                stop = never or (faulty and self.settings.epoch.on_error == "stop")
                why = "it would fail in the same way again" if never else "epoch.on_error is stop"
                self.runner.troubles.tell(
                    Trouble(
                        epoch=reached + 1,
                        reason=said,
                        program=faulty,
                        tries=failures,
                        since_ns=began_ns,
                        stopped=stop,
                        why=why,
                    )
                )
                if stop:
                    raise ProgramStopped(reason=said, why=why) from error
                # Wait while brokers are unreachable or files are damaged: a new process would find the same.
                lasting = faulty or isinstance(cause, (LagUnknown, StateDamaged))
                if (failures >= FAILURES_IN_A_ROW and not lasting) or getattr(cause, "may_have_happened", False):
                    raise SparkFailed(problem=f"the query failed {failures} times in a row, now: {said}") from error
                longest = self.settings.epoch.retry_ms / 1000 if faulty else 5.0
                pause = min(longest, 0.1 * 2 ** min(failures, 20))
                _log.warning("the query failed (%s); it goes on from epoch %d in %.1f s", said, reached, pause)
                self._stop.wait(pause)

    def close(self) -> None:
        """Stop everything that was started, in order. The state stays at its newest commit."""
        self.runner.stop()
        self.heartbeat.close()
        if self.spark is not None:
            for query in self.spark.streams.active:
                query.stop()
            self.spark.stop()
        self.runner.close()
        if self.runner.log.spans is not None:
            self.runner.log.spans.close()
        self.letters.close()
        self.lag.close()
        self.topics.close()
        if self.scrub is not None:
            self.scrub.close()
        self.epochs.close()
        self.threads.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _start_session(self, gateway: Gateway | None) -> SparkSession:
        """Start Spark and its workers, in parallel with the checks of the topics and the newest commit."""
        self.spark = spark = start_session(self.settings, self.app.name, self._scratch, gateway)
        wake_workers(spark, self.settings.workers)
        return spark

    def _query(self, spark: SparkSession) -> None:
        """Run one query from the newest manifest until it fails, the service stops, or something requires another
        query."""
        self.runner.failure = None
        if self._follow_topics():
            self.runner.attach(Stage(spark, self._job(), self.settings.workers))
        offsets, limit = self.epochs.start.offsets, self.admission.limit
        query = Query(spark, self.settings, self.door, offsets, limit, self.runner, self._scratch)
        self._running = query
        changed: Bundled | None = None
        try:
            while not self._stop.is_set() and (changed := self._changed()) is None:
                if query.ended(LOOK_SECONDS):
                    raise SparkFailed(problem="the query ended by itself")
                if not self._wanted(query) or self._other_topics():
                    break
            # Stopping Spark in the middle of an epoch logs many errors, so let the epoch end first.
            self.runner.stop()
        finally:
            self._running = None
            query.close()

        if changed is not None:
            self._change(spark, changed)
        self.runner.go_on()

    def _took(self, messages: int, seconds: float) -> None:
        """Called after each epoch, on the thread on which Spark makes the next micro-batch: update the rate limit for
        that batch."""
        self.admission.took(messages, seconds)
        limit, query = self.admission.limit, self._running
        if limit is None or query is None or limit == query.limit:
            return
        _log.info("an epoch may take %d messages (%d took %.1f s)", limit, messages, seconds)
        query.limit_to(limit)

    def _wanted(self, query: Query | None = None) -> bool:
        """Whether the desired state lets epochs run. query: the running query, or None if there is none."""
        try:
            self.steering.look()
        except LagUnknown as error:
            _log.warning("a drain has to wait: %s", error)
        if query is not None:
            self.steering.passed(query.passed(self.epochs.start.offsets), self._held())
        if query is None and not self.steering.open:
            self.steering.settle()
            # While no epochs are made, no heartbeats are needed.
            self.heartbeat.began()
        elif query is None:
            self.heartbeat.ended()
        return self.steering.open

    def _held(self) -> int:
        """The number of held updates that the next epochs will admit without new input, because the arrival clock
        advances."""
        sources = self.epochs.newest.sources if self.epochs.newest else {}
        return sum(entry.held for name, entry in sources.items() if self.settings.source(name).clock == "arrival")

    def _ends(self) -> dict[str, dict[int, int]]:
        """The current end offsets of the sources' topics."""
        partitions = {topic: n for topic, n in self.door.partitions.items() if topic != self.door.heartbeat_topic}
        return ends(self.settings.kafka_client(), partitions)

    def _together(self, check: Callable[[Plan], None]) -> Bundled:
        """The service's own programs and those that have joined and that `check` accepts. The others are refused with a
        reason."""
        programs, bundled = list(self._own), compiled(self._own, **self._planning)
        for one in self.registry.joined():
            try:
                tried = compiled([*programs, one], **self._planning)
                check(tried[1])
            except VernierError as error:
                _log.warning("program %s cannot join: %s", one.name, error)
                self.registry.refuse(one, str(error))
                continue
            programs.append(one)
            bundled = tried
        return programs, *bundled

    @property
    def _planning(self) -> dict[str, Any]:
        """The planner's options."""
        return {"keep_sources": self.settings.state.keep_sources, "upserts": self.settings.upserts}

    def _changed(self) -> Bundled | None:
        """The programs to run from now on, if they differ from the running ones; else None."""
        if [*self._own, *self.registry.joined()] == self.programs:
            return None
        bundled = self._together(self.epochs.check)
        return None if bundled[0] == self.programs else bundled

    def _change(self, spark: SparkSession, bundled: Bundled) -> None:
        """Continue with other programs from the newest commit. Called between queries."""
        self.programs, self.app, self.plan = bundled
        self.door = self._prepare_topics()
        self.epochs.change(self.plan, self.door)
        before, self.topics = self.topics, self._read_topics()
        before.close()
        self.lag.follow(self.door.partitions)
        self.runner.attach(Stage(spark, self._job(), self.settings.workers))
        self.runner.go_on()
        _log.info("programs: %s", ", ".join(program.name for program in self.programs))

    # --- topics -------------------------------------------------------------------------------------------------------

    def _read_topics(self) -> Topics:
        """The topics of the programs' sources."""
        choices = []
        for name in self.app.sources:
            about = self.settings.source(name)
            topic = self.settings.topic(name)
            choices.append(Choice(name, topic, about.on_new_topic == "restart", about.on_lost == "skip"))
        return Topics(self.settings.kafka_client(), choices)

    def _look_at_topics(self) -> None:
        self._found = self.topics.look()

    def _rebuild_replaced(self) -> None:
        """Start from an empty state if a topic is not the one that the state was built from, as the settings
        request."""
        try:
            self.topics.replaced(self.epochs.known_topics, self.topics.look())
        except TopicReplaced as error:
            self.epochs.begin_anew(f"topic {error.topic} was deleted and created again")

    def _follow_topics(self) -> bool:
        """Make the next query read the topics as they are now. Returns whether their partitions have changed.

        Raises TopicReplaced, MessagesLost, LagUnknown and BrokerError.
        """
        found = self.topics.look()
        if len(found) < len(self.topics.names):  # a topic has been deleted
            self._prepare_topics()
            found = self.topics.look()
        begun = self.topics.replaced(self.epochs.known_topics, found)
        here = {topic: about for topic, about in found.items() if topic not in begun}
        lost = {} if self.epochs.anew else self.topics.lost(self.epochs.start.offsets, here)
        self.epochs.follow(found, begun, lost, self.topics.sources)
        self._found = found
        counts = {topic: about.partitions for topic, about in found.items()}
        partitions = {**self.door.partitions, **counts}
        if partitions == self.door.partitions:
            return False
        self.door = self.settings.door(self.app, partitions)
        self.epochs.change(self.plan, self.door)
        self.lag.follow(self.door.partitions)
        _log.info("partitions of topics: %s", ", ".join(f"{topic} {count}" for topic, count in sorted(counts.items())))
        return True

    def _other_topics(self) -> bool:
        """Whether the running query must be replaced, because the topics are not those it was started with."""
        found = self._found or {}
        return any(
            about.partitions != self.door.partitions.get(topic)
            or (about.id and about.id != self.epochs.topics.get(topic, about.id))
            for topic, about in found.items()
        )

    def _check_topics(self, topics: Collection[str]) -> None:
        """Raise before an epoch is committed with rows of a topic that is no longer the one that the query was started
        with."""
        mine = [topic for topic in topics if topic != self.door.heartbeat_topic]
        if mine:
            self.topics.check(self.epochs.topics, mine)

    def _stopped(self, cause: VernierError) -> VernierError:
        """Tell readers about a problem that only an operator can resolve; returns the error to end the process with."""
        if isinstance(cause, TopicReplaced) and self.settings.state.rebuild:
            return SparkFailed(problem=f"{cause}; state.rebuild is set: the next start begins with nothing")
        self.runner.troubles.tell(
            Trouble(
                epoch=self.epochs.reached + 1,
                reason=str(cause),
                program=False,
                tries=1,
                since_ns=time.time_ns(),
                stopped=True,
            )
        )
        return OperatorNeeded(reason=str(cause))

    def _prepare_topics(self) -> DoorConfig:
        """Create the missing topics; returns the ingest configuration with the partitions of all topics."""
        settings, name = self.settings, self.app.name
        wanted: dict[str, int] = {}
        for source in self.app.sources:
            count = settings.source(source).partitions or settings.workers
            wanted[settings.topic(source)] = max(count, wanted.get(settings.topic(source), 0))
        letters = {f"{one}.dlq" for one in [*self.app.sources, *wanted]}
        options = {"replication": settings.kafka.replication, "timeout_seconds": settings.kafka.patience_seconds}
        found = create_topics(settings.kafka.bootstrap, wanted, **options)  # type: ignore[arg-type]
        create_topics(settings.kafka.bootstrap, dict.fromkeys(letters, 1), **options)  # type: ignore[arg-type]
        beat = {heartbeat_topic(name): settings.workers}
        kept = {"retention.ms": str(_HOUR_MS)}
        found |= create_topics(settings.kafka.bootstrap, beat, config=kept, **options)  # type: ignore[arg-type]
        return settings.door(self.app, found)

    def _job(self) -> Job:
        return Job(
            address=self.runner.rendezvous.address,
            keys=self.runner.rendezvous.keys,
            programs=tuple(self.programs),
            fingerprint=self.plan.fingerprint,
            state=self.settings.state.place,
            door=self.door,
            slice_updates=self.settings.epoch.slice_updates,
            seconds=self.settings.epoch.timeout_ms / 1000,
            **self._planning,
            memory_bytes=self.settings.memory_bytes,
            most_bytes=self.settings.most_bytes,
            call_seconds=self.settings.epoch.function_ms / 1000,
            spill=self.settings.spill_folder,
            quarantine_seconds=self.settings.epoch.quarantine_ms / 1000,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status: 1, with one line on stderr, when it cannot go on."""
    parser = argparse.ArgumentParser(prog="python -m vernier.service.coordinator.driver", description=__doc__)
    parser.add_argument("--config", metavar="FILE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    driver: Driver | None = None
    status = 1
    try:
        settings = load(given.config, dict(pair.split("=", 1) for pair in given.set)).settings
        logs.begin(settings.log.level, settings.log.format)
        made = driver = Driver(settings, GATEWAY)

        def stop(number: int, frame: FrameType | None) -> None:
            made.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        driver.run()
        driver.close()
        status = 0
    except VernierError as error:
        status = STOPPED if isinstance(error, (ProgramStopped, OperatorNeeded)) else status
        print(f"driver: {error}", file=sys.stderr, flush=True)
    except (Py4JError, OSError, PySparkException) as error:
        print(f"driver: spark is gone: {error}".splitlines()[0], file=sys.stderr, flush=True)
    if status:
        # Threads that wait for a JVM that is gone, or for its workers, must not keep the process alive.
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
