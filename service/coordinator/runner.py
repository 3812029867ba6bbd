"""Runner: turns Spark's micro-batches into epochs, on the driver.

An epoch is tried a bounded number of times with the same frame, because Spark never repeats a barrier stage. Each
attempt has its own id in the rendezvous, the exchange and file names, so surviving workers of an earlier attempt can do
no harm. The commit happens when the last worker has reported. Spark ends the stage some ten milliseconds later, and the
runner only waits for that. Epochs of few messages have no stage, and several of them may follow one micro-batch
(small_batches.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from vernier.service.cluster.messages import Poisoned, Start
from vernier.service.cluster.rendezvous import Attempt, Rendezvous
from vernier.service.cluster.shelf import Rows
from vernier.service.cluster.surplus import end_surplus, kill
from vernier.service.config.settings import Settings
from vernier.service.coordinator.attempt_watch import AttemptWatch, TimeLimit, await_end
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.consumer_lag import Offsets
from vernier.service.coordinator.dead_letter_sender import DeadLetterSender
from vernier.service.coordinator.epoch_log import EpochLog
from vernier.service.coordinator.executors import MissingWorkers
from vernier.service.coordinator.heartbeat import Heartbeat
from vernier.service.coordinator.stuck_workers import StuckWorkers
from vernier.service.coordinator.tracing import Spans
from vernier.service.errors import EpochFailed, ProgramFailed, SparkFailed, Stopping
from vernier.service.status.trouble import Trouble, Troubles
from vernier.storage.errors import VernierError
from vernier.storage.state.manifest import Manifest
from vernier.storage.threads import Threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from vernier.service.coordinator.session import LoadStage, Stage
    from vernier.service.coordinator.small_batches import SmallBatches

MISSING_SECONDS = 1.5
"""Workers that have not begun their tasks for this long are reported."""
FIRST_SECONDS = 10.0
"""The same for the first epoch, which waits for Python and the kernels."""
WAIT_SECONDS = 0.1
"""How long an epoch of messages that come after a micro-batch waits for the first of them."""
KEEP_SECONDS, STAGE_SECONDS = 30.0, 45.0
"""Spark ends Python processes if none of them has had a task for a minute. Between epochs that need no job of Spark's,
they get one after the first number of seconds; if they did not, the next epoch after the second number has a job."""
REPORT_SECONDS = 5.0
"""Seconds that a worker's last report may take to arrive here after the stage has ended."""

_log = logging.getLogger("vernier.epoch")

SOON_SECONDS = 0.003
"""Arrival times are in milliseconds. A heartbeat this much later admits the updates that wait for the clock to pass
their own arrival time."""


def _nothing(*_: object) -> None:
    pass


def _never(*_: object) -> bool:
    return False


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Hooks:
    """What a runner calls.

    took: after each epoch, with the number of messages it took from the sources' topics, and its seconds. check_topics:
    after messages of these topics have been read, and before their epoch is committed; raises if one of the topics is
    no longer the one that the query reads. check_files: before each attempt; raises if the attempt must not start. Its
    argument says whether an earlier attempt has failed. switched: after the first epoch of the programs that the
    service has changed to. refused: when the service cannot change to them, with the reason; returns whether it goes on
    with those that it runs. between: after each epoch of a micro-batch; it may make an epoch with `beside`, and returns
    whether the next micro-batch should follow at once. missing: what Spark lacks for the tasks of an attempt that have
    not begun, in words. alone: whether epochs may be made of messages that Spark has not heard of yet. keep: have Spark
    keep the processes of the workers; raises SparkFailed.
    """

    took: Callable[[int, float], None] = _nothing
    check_topics: Callable[[Collection[str]], None] = _nothing
    check_files: Callable[[bool], None] = _nothing
    switched: Callable[[], None] = _nothing
    refused: Callable[[str], bool] = _never
    between: Callable[[], bool] = _never
    missing: Callable[[], str] = str
    alone: Callable[[], bool] = _always
    keep: Callable[[], None] = _nothing


def _settle(awaited: Future[None], call: Callable[[], None]) -> None:
    """Call a function whose end another thread awaits. What it raises is for that thread."""
    try:
        call()
    except BaseException as problem:
        awaited.set_exception(problem)
        if not isinstance(problem, Exception):
            raise
    else:
        awaited.set_result(None)


class Runner:
    """Spark's foreachBatch function. `attach` the stage before the query starts.

    Raises EpochFailed, ProgramFailed, StateDamaged, DeadLettersNotSent, Stopping and the commit's StorageErrors into
    the query, which then fails. All of them leave the state at the newest commit. `failure` is the last of them.
    """

    def __init__(
        self,
        settings: Settings,
        epochs: Committer,
        dead_letters: DeadLetterSender,
        heartbeat: Heartbeat | None,
        meet: Callable[[int, Callable[[Attempt], Callable[[], None] | None]], Rendezvous] | None = None,
        *,
        hooks: Hooks | None = None,
        spans: Spans | None = None,
        threads: Threads | None = None,
    ) -> None:
        """meet: makes the rendezvous, if not the one from the settings. spans: where to send spans. threads: the owner
        of the rendezvous' threads."""
        self.epochs = epochs
        exchange = settings.exchange
        away = partial(Rendezvous, host=exchange.host, encrypted=exchange.encrypted, stuck=self._stuck, threads=threads)
        self.rendezvous = (meet or away)(settings.workers, self._complete)
        self._settings, self._dead_letters, self._heartbeat = settings, dead_letters, heartbeat
        self._stage: Stage | LoadStage | None = None
        self._small: SmallBatches | None = None
        self._staged: tuple[Stage | LoadStage | None, float] = None, 0.0
        self._committed: dict[str, Manifest] = {}
        self._check: Future[None] | None = None
        self._problem: BaseException | None = None
        self.failure: BaseException | None = None
        self._log, self._hooks = EpochLog(spans), hooks or Hooks()
        self._quarantine = False
        self._poisoned: dict[tuple[str, int, int], Poisoned] = {}
        self._running = threading.Lock()
        self._attempt: Attempt | None = None
        self._stopping = self._made = self._waiting = False
        self._awaited = "", ""
        self.troubles = Troubles(epochs.directory.blob)
        self.go_on()

    def attach(self, stage: Stage | LoadStage) -> None:
        """Use this stage from now on."""
        self._stage = stage

    def read_with(self, small: SmallBatches | None) -> None:
        """Use this from now on to read micro-batches of few messages."""
        self._small = small

    def rescale(self, workers: int) -> None:
        """Make the next epochs with another number of workers. Call it between two epochs, and attach a stage."""
        self.epochs.rescale(workers)
        self.rendezvous.workers = workers

    def stop(self) -> None:
        """Wait for the running epoch to end; no other begins."""
        self._stopping = True
        with self._running:
            pass

    def between(self, call: Callable[[], None]) -> None:
        """Call a function between two epochs."""
        self._waiting = True
        with self._running:
            self._waiting = False
            call()

    def beside(self, frame: DataFrame, stage: LoadStage) -> None:
        """Make an epoch of a part of a snapshot after that of a micro-batch. Call it in the hook `between`."""
        before, self._stage = self._stage, stage
        try:
            self._epoch(frame)
        finally:
            if self._stage is stage:  # else the epoch was the first one of other programs
                self._stage = before

    def abandon(self, reason: str) -> None:
        """End the running attempt, if there is one, because the service stops. The next start makes its epoch again."""
        self._stopping = True
        running = self._attempt
        if running is not None and self._stage is not None and self.rendezvous.cancel(running, reason):
            self._stage.cancel()

    def go_on(self) -> None:
        """Allow epochs again after `stop`, once another stage is attached or programs have changed."""
        self._stopping = False
        self._arrival = {name for name in self.epochs.plan.sources if self._settings.source(name).clock == "arrival"}

    def close(self) -> None:
        """Disconnect all workers."""
        self.rendezvous.close()

    def __call__(self, frame: DataFrame, _batch: int) -> None:
        """Make an epoch of a micro-batch, and more of the messages that come after it, as long as they are few: Spark
        takes longer to make a micro-batch than workers take for such an epoch."""
        small = self._small
        if small is not None:
            small.look()
        self._round(frame, small)
        while small is not None and small is self._small and self._hands_out() and self._hooks.alone():
            if self._stopping or self._waiting:
                return
            rows = small.more(self.rendezvous.workers, WAIT_SECONDS)
            if rows is None or (rows and not self._round(None, small, rows)) or not self._keep():
                return

    # --- inside -------------------------------------------------------------------------------------------------------

    def _round(self, frame: DataFrame | None, small: SmallBatches | None, rows: list[Rows] | None = None) -> bool:
        """Make an epoch of a micro-batch or of these rows; returns False if there is none."""
        with self._running:
            if frame is None and (self._stopping or not self._hands_out()):
                self._leave(small)
                return False
            if self._stopping:
                raise Stopping()
            if self._heartbeat is not None:
                self._heartbeat.began()
            wanted_in: float | None = None
            try:
                self._dead_letters.settle()
                manifest = self._epoch(frame, small, rows)
                if manifest is not None:
                    self._dead_letters.send(manifest)
                    self.epochs.collect()
                    more = self._hooks.between()
                    wanted_in = SOON_SECONDS if more else self._wanted_in()
                    self.troubles.clear()
                return manifest is not None
            except BaseException as problem:
                # Spark reports the query's failure in twenty lines of text, of which this error is one; so keep the
                # error itself.
                self.failure = problem
                raise
            finally:
                if self._heartbeat is not None:
                    self._heartbeat.ended(wanted_in)

    def _epoch(
        self, frame: DataFrame | None, small: SmallBatches | None = None, rows: list[Rows] | None = None
    ) -> Manifest | None:
        """Make the epoch; returns its manifest, or None if there is nothing to make one of. small: what may read the
        frame's messages instead of Spark. rows: the messages, for each worker; without a frame, a failed attempt is
        left to the next micro-batch, which has the same messages."""
        start = self.epochs.start
        number, reason = start.epoch, ""
        tries = self._settings.epoch.attempts
        failed = False
        if frame is not None and small is not None and self._hands_out():
            rows = small.read(self.rendezvous.workers, start.offsets)
            if rows == []:
                return None
        while tries:
            self._hooks.check_files(failed)
            tries -= 1
            self._problem = None
            attempt = self._attempt = self.rendezvous.begin(self._judged(start))
            began = time.perf_counter()
            # The messages that are handed out are read already, so their topics are checked while workers compute.
            check = self._check = None if rows is None else Future()
            if rows is not None and not self.rendezvous.hand_out(attempt, rows):
                self._leave(small)
                rows = None
            if frame is None and rows is None:
                self.rendezvous.cancel(attempt, "a worker is gone")
                return None
            if attempt.handed_out and check is not None and small is not None:
                _settle(check, partial(self._hooks.check_topics, small.topics))
                small.prefetch(self.rendezvous.workers, attempt.ended, self.rendezvous.lay)
            reason = self._try(frame, attempt)
            manifest = self._committed.pop(attempt.id, None)
            if manifest is not None:
                self._quarantine, self._poisoned = False, {}
                seconds = time.perf_counter() - began
                if not self._settings.spark.on_cluster and (surplus := self.rendezvous.surplus(attempt)):
                    end_surplus(surplus)
                self._log.committed(manifest, attempt, seconds)
                if start.part is None:
                    self._hooks.took(read_between(start.offsets, manifest.offsets), seconds)
                if start.target is not None and start.target.switch:
                    self._hooks.switched()
                return manifest
            if reason == "":
                return None
            failed = True
            self.epochs.failed()
            self._log.failed(number, attempt, reason)
            if rows is not None:
                self._leave(small)
                rows = None
            if frame is None:
                self._learn(attempt)
                return None
            if attempt.filling and (attempt.caller or not tries) and self._hooks.refused(reason):
                # The epoch itself is not at fault; it goes on without the change.
                start, tries = self.epochs.start, max(tries, 1)
                continue
            if self._learn(attempt):
                # It failed for another reason than before, so it may be tried once more.
                tries = max(tries, 1)
                continue
            if attempt.caller:
                raise ProgramFailed(epoch=number, reason=reason, final=attempt.final)
            if self._stopping:
                raise Stopping()
        raise EpochFailed(epoch=number, attempts=self._settings.epoch.attempts, reason=reason)

    def _judged(self, start: Start) -> Start:
        """Add to `start` what earlier attempts learned about the epoch's messages. This stays valid until a commit,
        also in later queries, so that dead letters do not depend on which attempt succeeds."""
        return msgspec.structs.replace(start, quarantine=self._quarantine, poisoned=list(self._poisoned.values()))

    def _learn(self, attempt: Attempt) -> bool:
        """Record what a failed attempt shows about the epoch's messages; returns whether any of it is new."""
        found = {(one.topic, one.partition, one.offset): one for one in attempt.convicted}
        fresh = found.keys() - self._poisoned.keys()
        self._poisoned |= found
        first = attempt.decoding and not self._quarantine
        if first:
            self._quarantine = True
            _log.warning("epoch=%d ended while its messages were decoded: quarantine", attempt.start.epoch)
        return first or bool(fresh)

    def _hands_out(self) -> bool:
        """Whether messages may go to the workers without a job of Spark's. They must have made an epoch in tasks of
        this stage before: tasks bring the programs."""
        stage, at = self._staged
        return stage is not None and stage is self._stage and time.monotonic() - at < STAGE_SECONDS

    def _keep(self) -> bool:
        """Have Spark keep the processes of the workers, if it is time; returns whether it does."""
        stage, at = self._staged
        if time.monotonic() - at >= KEEP_SECONDS:
            try:
                self._hooks.keep()
            except SparkFailed as error:
                _log.debug("the next epoch has a job: %s", error)
                return False
            self._staged = stage, time.monotonic()
        return True

    def _leave(self, small: SmallBatches | None) -> None:
        """Leave what was read, and has not become an epoch, to Spark: its tasks try it next."""
        self._staged = None, 0.0
        if small is not None:
            small.rewind()

    def _try(self, frame: DataFrame | None, attempt: Attempt) -> str:
        """Run one attempt to its end, in tasks of Spark's unless its rows are handed out. Returns the reason it failed;
        "" if it succeeded or there was nothing to do."""
        if self._stage is None:
            raise SparkFailed(problem="an epoch came before its stage")
        stage, seconds = self._stage, self._settings.epoch.timeout_ms / 1000
        watches: list[AttemptWatch] = [
            TimeLimit(attempt, seconds, partial(self._give_up, stage, attempt, seconds)),
            StuckWorkers(attempt, self._settings.epoch.function_ms / 1000, self._stuck),
        ]
        if self._settings.spark.on_cluster:
            # On one host workers are forked.
            watches.append(MissingWorkers(attempt, MISSING_SECONDS if self._made else FIRST_SECONDS, self._missing))
        spark = ""
        try:
            if attempt.handed_out:
                await_end(attempt, watches)
                return self._reason(attempt)
            for one in watches:
                one.begin()
            if frame is None or not stage.run(frame, attempt.id):
                self.rendezvous.cancel(attempt, "there are no rows")
                return ""
        except SparkFailed as error:
            spark = str(error)
        finally:
            for one in watches:
                one.cancel()
        if not spark:
            # Every worker reported before its task ended, but our thread may not have received the last report yet.
            attempt.ended.wait(REPORT_SECONDS)
        # Either the attempt has ended, or its last report is being committed right now.
        self.rendezvous.cancel(attempt, spark or "a worker ended without a report")
        attempt.ended.wait()
        reason = self._reason(attempt)
        if attempt.reports:
            self._staged = stage, time.monotonic()
            return ""
        # Workers know the cause better than Spark, which sees only that a process ended.
        return reason or spark

    def _reason(self, attempt: Attempt) -> str:
        """Why an attempt that has ended failed; "" if it succeeded. Raises what its commit raised."""
        if self._problem is not None:
            raise self._problem
        return "" if attempt.reports else attempt.reason or ""

    def _stuck(self, attempt: Attempt, call: str, seconds: float) -> None:
        """Report a function of the program that does not return, and keep waiting."""
        reason = f"for {seconds:.3g} s a worker has been in {call}"
        _log.warning("epoch %d has not finished: %s", attempt.start.epoch, reason)
        now = time.time_ns()
        self.troubles.report(
            Trouble(epoch=attempt.start.epoch, reason=reason, program=True, tries=1, since_ns=now, running=True)
        )

    def _missing(self, attempt: Attempt, missing: int, seconds: float) -> None:
        """Report workers that have not begun their tasks, and keep waiting."""
        workers = attempt.workers
        some = "worker has" if workers == 1 else f"{workers} workers have"
        reason = f"{missing} of {some} not begun for {seconds:g} s: {self._hooks.missing()}"
        if (attempt.id, reason) == self._awaited:
            return
        self._awaited = attempt.id, reason
        _log.warning("epoch %d has not finished: %s", attempt.start.epoch, reason)
        self.troubles.report(
            Trouble(
                epoch=attempt.start.epoch, reason=reason, program=False, tries=1, since_ns=time.time_ns(), running=True
            )
        )

    def _give_up(self, stage: Stage | LoadStage, attempt: Attempt, seconds: float) -> None:
        if self.rendezvous.cancel(attempt, f"it took more than {seconds:g} s"):
            stage.cancel()
            if attempt.handed_out:
                # To Spark its processes are idle: it would give them the tasks of the next attempt.
                kill(attempt.late)

    def _complete(self, attempt: Attempt) -> Callable[[], None] | None:
        """Commit what the workers have reported. Runs on the thread that received the last report. Returns what is to
        be done beside the next epoch."""
        waited = time.monotonic() - attempt.began
        try:
            if attempt.handed_out and self._check is not None:
                self._check.result()
            else:
                self._hooks.check_topics(attempt.reports[0].offsets)
            seconds = {"open": attempt.opened_seconds, "reported": waited}
            manifest = self.epochs.commit(attempt.reports, seconds, show=False)
        except BaseException as problem:
            self._problem = problem
            attempt.reason = str(problem)
            if not isinstance(problem, VernierError):
                _log.exception("the commit of attempt %s failed", attempt.id)
            return None
        self._committed[attempt.id] = manifest
        self._made = True
        return self.epochs.show

    def _wanted_in(self) -> float | None:
        """Seconds after which an epoch should follow even without input. At once, if updates wait for the arrival clock
        to advance or if workers fill what is new in other programs; otherwise when the next data time comes at which
        the program has work to do; None for neither."""
        if self.epochs.changing is not None:
            return SOON_SECONDS
        newest, due = self.epochs.newest, self.epochs.due
        if newest is not None and any(newest.sources[name].held for name in self._arrival & newest.sources.keys()):
            return SOON_SECONDS
        # Heartbeats advance only arrival clocks; a source with any other clock may stand still for any length of time.
        if newest is None or due is None or len(self._arrival) < len(self.epochs.plan.sources):
            return None
        return beat_in(newest.upper, due, self._settings.epoch.heartbeat_ms / 1000)


def read_between(before: Offsets, after: Offsets) -> int:
    """The number of messages between two sets of next offsets. Partitions that were not read before do not count,
    because their first offset is unknown."""
    return sum(
        after[topic][partition] - offset
        for topic, own in before.items()
        for partition, offset in own.items()
        if partition in after.get(topic, {})
    )


def beat_in(upper: int, due: int, pause: float) -> float | None:
    """Seconds until an epoch that starts at the frontier `upper` would reach the data time `due`; None if that is not
    before the usual heartbeat after `pause` seconds. Data time advances as fast as the clock."""
    left = max(0.0, (due - upper) / 1e9) + SOON_SECONDS
    return left if left < pause else None
