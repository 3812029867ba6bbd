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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from vernier.operators.failures import NeedsHistory
from vernier.service.cluster.process import Job
from vernier.service.cluster.rehearsal import Rehearsal
from vernier.service.config.settings import Settings, load
from vernier.service.coordinator import standing_by
from vernier.service.coordinator.bundle import Bundle, Programs
from vernier.service.coordinator.changing import Changing
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.consumer_lag import LagUnknown
from vernier.service.coordinator.dead_letter_sender import DeadLetterSender
from vernier.service.coordinator.executors import Executors
from vernier.service.coordinator.failures import Failures
from vernier.service.coordinator.first_commit import FirstCommit
from vernier.service.coordinator.heartbeat import Heartbeat
from vernier.service.coordinator.intake_controller import IntakeController
from vernier.service.coordinator.opening import check_plan, with_columns
from vernier.service.coordinator.rate_limiter import RateLimiter
from vernier.service.coordinator.runner import Hooks, Runner
from vernier.service.coordinator.scrub import Scrub
from vernier.service.coordinator.service_topics import ServiceTopics
from vernier.service.coordinator.session import Keeper, Stage, local_slots, start_session
from vernier.service.coordinator.snapshots import Snapshots
from vernier.service.coordinator.streaming_query import Query
from vernier.service.coordinator.topics import LASTING, TopicReplaced
from vernier.service.coordinator.tracing import Spans
from vernier.service.coordinator.warming import Warming
from vernier.service.coordinator.worker_count import WorkerCount
from vernier.service.errors import (
    CoresLost,
    OffsetsBeyond,
    OperatorNeeded,
    ProgramStopped,
    SnapshotChanged,
    SnapshotShares,
    SparkFailed,
    StateDamaged,
)
from vernier.service.ingest.former import former_columns
from vernier.service.observability import logs
from vernier.service.status.trouble import STOPPED, Trouble
from vernier.storage.errors import StorageError, VernierError
from vernier.storage.flag import Flag
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Threads
from vernier.storage.trace import spill

_FINAL = (*LASTING, SnapshotChanged, SnapshotShares, OffsetsBeyond)
"""Problems that only an operator can resolve."""
LOOK_SECONDS = 1
"""Seconds between checks for programs that join and for changes of the desired state."""

_log = logging.getLogger("vernier.driver")


class Driver:
    """The Spark side of one service, from its topics to its query. Raises VernierErrors when it cannot start."""

    def __init__(self, settings: Settings, gateway: Gateway | None = None) -> None:
        configured, self._local_slots = settings.workers, local_slots(settings)
        self._executors: Executors | None = None
        self._count = WorkerCount(settings.state.place.open(), configured, self._slots)
        self.settings = settings = settings.with_workers(self._count.workers)
        self._local_slots = local_slots(settings)
        self._stop = Flag()
        self._threads = Threads()
        self._programs = Programs(settings)
        directory = StateDirectory(settings.state.place)
        wanted = self._programs.bundle()
        self._bundle = self._earlier(directory, wanted) or wanted
        self._target: Bundle | None = None
        app = self._bundle.app
        settings.check_sources(app.sources)
        # If the JVM was launched earlier, use its folder for temporary files.
        self._scratch = gateway.scratch if gateway is not None else Path(tempfile.mkdtemp(prefix="d-"))
        self._spark: SparkSession | None = None
        self._keeper: Keeper | None = None
        self._running: Query | None = None
        self._session = ThreadPoolExecutor(1, "session").submit(self._start_session, gateway)
        directory = StateDirectory(settings.state.place)
        self._topics = ServiceTopics(settings, app, self._threads)
        waited = settings.state.standby and standing_by.acquire(directory, self._warming, self._has_spark)
        self._stood_by = bool(waited)
        self._first = FirstCommit(after_standing_by=self._stood_by)
        if waited:
            # Programs may have joined or left meanwhile, and the number of workers may have changed.
            before, self._count = settings.workers, WorkerCount(directory.blob, configured, self._slots)
            self.settings = settings = settings.with_workers(self._count.workers)
            same = settings.workers == before
            if not same or not self._programs.still(wanted, directory.latest()):
                self._programs = Programs(settings)
                wanted = self._programs.bundle()
            self._bundle = self._earlier(directory, wanted) or wanted
            if not same:
                self._topics.close()
                self._topics = ServiceTopics(settings, self._bundle.app, self._threads)
            elif self._bundle.app.sources != app.sources:
                self._topics.use(self._bundle.app)
            app = self._bundle.app
        self._first.passed("programs")
        self._limiter = RateLimiter.of(settings.epoch)
        self._epochs = epochs = Committer(
            directory,
            self._bundle.plan,
            self._topics.ingestion,
            settings.workers,
            settings.state.keep,
            rebuild=settings.state.rebuild,
            collect_beside=settings.state.place.folder is None,
            hold=settings.publish.hold_epochs if settings.publishes else 0,
            threads=self._threads,
            lag=self._topics.lag,
            limiter=self._limiter,
            begins=settings.begins,
        )
        self._count.publish()
        self._first.passed("state")
        if settings.state.rebuild and not epochs.anew:
            self._topics.rebuild_replaced(epochs)
        if settings.state.discard_after is not None:
            epochs.discard(int(settings.state.discard_after), self._topics.ends)
        if epochs.anew:
            self._topics.check_whole()
        self._controller = IntakeController(epochs.directory.blob, self._topics.ends)
        self._dead_letters = DeadLetterSender(settings, app.name, epochs.directory)
        self._dead_letters.recover(epochs.newest, anew=epochs.anew)
        self._heartbeat = Heartbeat(settings, app.name, self._threads)
        self._scrub: Scrub | None = None
        if settings.state.place.folder is not None:
            rate = settings.state.scrub_mb_s << 20
            self._scrub = Scrub(epochs.directory, lambda: epochs.newest, rate, self._threads)
        hooks = Hooks(
            took=self._took,
            check_topics=lambda topics: self._topics.check(epochs, topics),
            check_files=self._check_files,
            switched=self._switched,
            refused=self._refused,
            between=lambda: self._snapshots.step(),
            missing=lambda: "Spark is starting" if self._executors is None else self._executors.missing(),
            # Only Spark knows whether what is left before a drain's end are messages or marks of transactions.
            alone=lambda: not self._controller.draining,
            keep=self._keep,
        )
        self._spans = Spans.of(settings.otel, app.name)
        self._runner = Runner(
            settings, epochs, self._dead_letters, self._heartbeat, hooks=hooks, spans=self._spans, threads=self._threads
        )
        self._snapshots = Snapshots(settings, epochs, self._runner, self._job)
        self._programs.remember(self._bundle)
        if wanted is not self._bundle:
            self._fill(wanted)
        self._first.passed("services")

    def stop(self) -> None:
        """Ask `run` to finish the current epoch and return. Safe in a signal handler and from any thread.

        An epoch that takes longer than `epoch.stop_ms` is abandoned; the service makes it again at its next start.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        seconds = self.settings.epoch.stop_ms / 1000
        late = threading.Timer(seconds, self._runner.abandon, [f"the service stops, and it took {seconds:g} s more"])
        late.daemon = True
        late.start()

    def run(self) -> None:
        """Run queries until `stop`. Raises SparkFailed and StorageErrors, OwnershipLost among them, if a new process
        should try."""
        try:
            self._topics.follow(self._epochs)
        except LASTING as error:
            raise self._stopped(error) from error
        self._first.passed("offsets")
        spark = self._session.result()
        self._keeper = Keeper(spark)
        if self._stood_by and self._executors is not None:
            self._executors.expect()
        self._first.passed("spark")
        check_owned = self._epochs.directory.check_owned
        failures = Failures(self.settings.epoch, self._runner.troubles, self._epochs.reached, check_owned)
        self._attach(spark)
        while not self._stop.is_set():
            self._rescale(spark)
            if not self._wanted():
                check_owned()
                self._stop.wait(LOOK_SECONDS)
                continue
            try:
                self._query(spark)
            except (VernierError, PySparkException) as error:
                if self._stop.is_set():
                    return
                cause = self._runner.failure or error
                if isinstance(cause, _FINAL):
                    raise self._stopped(cause) from error
                reached = self._epochs.reached
                pause = failures.after(cause, reached)
                reason = str(cause).splitlines()[0]
                _log.warning(
                    "the query failed (%s); the next one starts from epoch %d in %.1f s", reason, reached, pause
                )
                self._stop.wait(pause)

    def close(self) -> None:
        """Stop everything that was started, in order. The state stays at its newest commit."""
        self._runner.stop()
        self._heartbeat.close()
        if self._spark is not None:
            for query in self._spark.streams.active:
                query.stop()
            self._spark.stop()
        self._runner.close()
        if self._spans is not None:
            self._spans.close()
        self._dead_letters.close()
        self._topics.close()
        if self._scrub is not None:
            self._scrub.close()
        self._epochs.close()
        self._threads.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _warming(self) -> AbstractContextManager[Warming]:
        """What to do while this driver is a standby."""
        settings, ingestion = self.settings, self._topics.ingestion
        rehearsal = Rehearsal(settings.state.place, tuple(self._bundle.programs), ingestion, self._programs.planning)
        return closing(Warming(settings, rehearsal, self._session, self._scratch))

    def _has_spark(self) -> bool:
        """Whether Spark has started. Raises SparkFailed if it does not, and CoresLost."""
        started = self._session.done() and self._session.result() is not None
        if started:
            self._check_cores()
        return started

    def _check_cores(self) -> None:
        if self._executors is not None and self.settings.spark.on_cluster:
            self._executors.check(self.settings.spark.gone_ms / 1000)

    def _start_session(self, gateway: Gateway | None) -> SparkSession:
        """Start Spark and its workers, in parallel with the checks of the topics and the newest commit."""
        self._spark = spark = start_session(self.settings, self._bundle.app.name, self._scratch, gateway)
        workers, on_cluster = self.settings.workers, self.settings.spark.on_cluster
        self._executors = executors = Executors(spark, workers, self._threads, on_cluster=on_cluster)
        executors.wake()
        return spark

    def _attach(self, spark: SparkSession) -> None:
        """Give the runner a stage for the programs, topics and workers as they are now."""
        if self._executors is not None:
            self._executors.workers = self.settings.workers
        self._runner.attach(Stage(spark, self._job(), self.settings.workers))

    def _keep(self) -> None:
        """Have Spark keep the processes of the workers."""
        if self._keeper is not None:
            self._keeper.keep()

    def _query(self, spark: SparkSession) -> None:
        """Run one query from the newest manifest until it fails, the service stops, or something requires another
        query."""
        self._runner.failure = None
        if self._topics.follow(self._epochs):
            self._attach(spark)
        if self._load(spark):
            return  # the next query finds how far it came
        offsets, limit, entering = self._epochs.start.offsets, self._limiter.limit, self._snapshots.entering
        ingestion = self._topics.ingestion.without(entering)
        query = Query(spark, self.settings, ingestion, offsets, limit, self._runner, self._scratch)
        self._first.passed("query")
        self._running = query
        self._runner.read_with(query.small)
        changed: Bundle | None = None
        lost = False
        try:
            while not self._stop.is_set():
                changed = self._programs.changed(self._target or self._bundle, self._epochs.check)
                if changed is not None and not self._beside(changed):
                    break
                if self._executors is not None and self.settings.spark.on_cluster:
                    self._executors.wake()
                self._check_cores()
                self._rescale(spark)
                if query.ended(LOOK_SECONDS):
                    raise SparkFailed(problem="the query ended by itself")
                if not self._wanted(query) or self._topics.differ(self._epochs):
                    break
                if entering != self._snapshots.entering:
                    break  # the next query reads the topics whose snapshots have entered
            # Stopping Spark in the middle of an epoch logs many errors, so let the epoch end first.
            self._runner.stop()
        except CoresLost:
            lost = True
            raise
        finally:
            self._running = None
            self._runner.read_with(None)
            if not lost:  # otherwise the epoch waits for cores, and stopping would wait for the epoch
                query.close()

        if changed is not None:
            self._change(spark, changed)
        self._runner.go_on()

    def _rescale(self, spark: SparkSession) -> None:
        """Make the next epochs with another number of workers, if an operator wants that. An epoch that runs ends
        first; nothing else waits."""
        busy = "a change of programs has to end first" if self._target is not None else ""
        if self._snapshots.entering:
            busy = "the snapshot of a source has to enter first"
        if self._count.look(busy):
            self._verify()
            self._runner.between(lambda: self._use_workers(spark, self._count.workers))
        self._count.publish()

    def _use_workers(self, spark: SparkSession, workers: int) -> None:
        """Continue with another number of workers. Called between epochs."""
        self._verify()
        self.settings = self.settings.with_workers(workers)
        self._runner.rescale(workers)
        self._attach(spark)

    def _verify(self) -> None:
        """Verify files that were written since the last call, because other workers will open parts of them."""
        if self._scrub is not None:
            with suppress(StateDamaged):  # the next epoch raises it
                self._scrub.require(anew=True)

    def _slots(self) -> int | None:
        """How many tasks Spark can run at once; None if that is not known."""
        if self._local_slots is not None or self._executors is None:
            return self._local_slots
        return self._executors.slots()

    def _load(self, spark: SparkSession) -> bool:
        """Load what the query needs of the sources' snapshots; returns whether it has loaded anything."""
        loaded = True
        try:
            wanted = lambda: not self._stop.is_set() and self._wanted()  # noqa: E731
            loaded = self._snapshots.load(spark, self._topics.ingestion, wanted)
        finally:
            # Whatever ended it, the next epochs have messages.
            if loaded:
                self._attach(spark)
        return loaded

    def _took(self, messages: int, seconds: float) -> None:
        """Called after each epoch, on the thread on which Spark makes the next micro-batch: update the rate limit for
        that batch."""
        self._first.committed(seconds)
        self._limiter.took(messages, seconds)
        limit, query = self._limiter.limit, self._running
        if limit is None or query is None or limit == query.limit:
            return
        _log.info("an epoch may take %d messages (%d took %.1f s)", limit, messages, seconds)
        query.limit_to(limit)

    def _wanted(self, query: Query | None = None) -> bool:
        """Whether the desired state lets epochs run. query: the running query, or None if there is none."""
        try:
            self._controller.look()
        except LagUnknown as error:
            _log.warning("the drain waits: %s", error)
        if query is not None and self._controller.draining:
            self._controller.passed(query.passed(self._epochs.start.offsets), self._held())
        if query is None and not self._controller.open:
            self._controller.settle()
            # While no epochs are made, no heartbeats are needed.
            self._heartbeat.began()
        elif query is None:
            self._heartbeat.ended()
        return self._controller.open

    def _held(self) -> int:
        """The number of held updates that the next epochs will admit without new input, because the arrival clock
        advances."""
        sources = self._epochs.newest.sources if self._epochs.newest else {}
        return sum(entry.held for name, entry in sources.items() if self.settings.source(name).clock == "arrival")

    def _change(self, spark: SparkSession, bundle: Bundle) -> None:
        """Continue with other programs from the newest commit. Called between queries."""
        self._bundle, self._target = bundle, None
        self._topics.use(bundle.app)
        self._epochs.change(bundle.plan, self._topics.ingestion)
        self._epochs.change_to(None)
        self._programs.remember(bundle)
        self._attach(spark)
        self._runner.go_on()
        _log.info("programs: %s", ", ".join(program.name for program in bundle.programs))

    def _earlier(self, directory: StateDirectory, wanted: Bundle) -> Bundle | None:
        """The programs that the state is from, if they can run on while what is new in `wanted` is filled."""
        try:
            newest = with_columns(directory, directory.latest())
        except StorageError:
            return None  # the committer says what is wrong, or uses an older epoch
        if newest is None or newest.program == wanted.plan.fingerprint or newest.workers != self.settings.workers:
            return None
        if self.settings.state.rebuild or self.settings.state.discard_after is not None:
            return None
        earlier = self._programs.running(newest.program)
        if earlier is None or earlier.plan.sources != wanted.plan.sources or earlier.plan.app != wanted.plan.app:
            return None
        try:
            check_plan(newest, wanted.plan)
        except NeedsHistory:
            return None  # the committer refuses it, with the reason
        return earlier

    def _beside(self, bundle: Bundle) -> bool:
        """Begin a change to other programs beside the epochs, if they read the same sources."""
        if bundle.plan.sources != self._bundle.plan.sources or not self._epochs.reached:
            return False
        self._runner.between(lambda: self._fill(bundle))
        return True

    def _fill(self, bundle: Bundle) -> None:
        """Let workers fill what is new in other programs. Called between epochs."""
        if bundle.programs == self._bundle.programs:
            self._target = None
            self._epochs.change_to(None)
            return
        self._target = bundle
        running = self._bundle.plan.views
        views = [name for name, view in bundle.plan.views.items() if running.get(name) != view]
        changing = Changing(bundle.programs, bundle.plan, self._topics.ingestion, time.time_ns(), views=views)
        self._epochs.change_to(changing)

    def _switched(self) -> None:
        """The first epoch of other programs is committed: continue with them. Called on the query's thread."""
        spark, bundle = self._spark, self._target
        if spark is None or bundle is None:
            raise SparkFailed(problem="an epoch of other programs came without a change to them")
        self._bundle, self._target = bundle, None
        self._programs.remember(bundle)
        self._attach(spark)
        _log.info("programs: %s", ", ".join(program.name for program in bundle.programs))

    def _refused(self, reason: str) -> bool:
        """Give up a change whose fill fails; False if the service's own program is at fault."""
        if self._target is None or not self._programs.refuse(self._target, self._bundle, reason):
            return False
        self._target = None
        self._epochs.change_to(None)
        return True

    def _check_files(self, anew: bool) -> None:
        if self._scrub is not None:
            self._scrub.require(anew=anew)

    def _stopped(self, cause: VernierError) -> VernierError:
        """Tell readers about a problem that only an operator can resolve; returns the error to end the process with."""
        if isinstance(cause, TopicReplaced) and self.settings.state.rebuild:
            return SparkFailed(problem=f"{cause}; state.rebuild is set: the next start begins from an empty state")
        epoch = self._epochs.reached + 1
        trouble = Trouble(epoch=epoch, reason=str(cause), program=False, tries=1, since_ns=time.time_ns(), stopped=True)
        self._runner.troubles.report(trouble)
        return OperatorNeeded(reason=str(cause))

    def _job(self) -> Job:
        return Job(
            address=self._runner.rendezvous.address,
            keys=self._runner.rendezvous.keys,
            shelf=None if self._runner.rendezvous.shelf is None else self._runner.rendezvous.shelf.sample,
            programs=tuple(self._bundle.programs),
            fingerprint=self._bundle.plan.fingerprint,
            state=self.settings.state.place,
            ingestion=self._topics.ingestion,
            slice_updates=self.settings.epoch.slice_updates,
            seconds=self.settings.epoch.timeout_ms / 1000,
            former=former_columns(None if self._epochs.anew else self._epochs.newest, self._bundle.plan.sources),
            **self._programs.planning,
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
        if settings.spill_folder is None:
            spill.keep()  # each epoch's messages need as much memory again
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
