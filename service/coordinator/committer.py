"""The committer (class Epochs): holds the newest commit and turns the reports of an attempt into the next one.

The manifest alone decides what exists (storage/state/state.py). It contains everything that must survive: layers, held
updates, the ingest state (`door`), offsets, dead letters to be sent, running totals.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from vernier.operators.engine.migrate import plan_migration
from vernier.operators.failures import NeedsHistory
from vernier.operators.planning.plan import Plan
from vernier.service.cluster.messages import Report, Start
from vernier.service.coordinator.consumer_lag import Lag, Offsets
from vernier.service.coordinator.topics import Found
from vernier.service.errors import ProgramChanged, WrongState
from vernier.service.ingest.config import DoorConfig
from vernier.service.ingest.future_times import Discard, discarded, discarding
from vernier.service.ingest.ingestion import begin_again, set_back
from vernier.service.observability.metrics import Stats
from vernier.service.status import publisher as told
from vernier.storage.errors import StateInUse, StorageError
from vernier.storage.state.manifest import LayerRef, Manifest, PartitionEntry, SourceEntry, TraceEntry, ViewEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Loop, Threads
from vernier.storage.updates import CLOSED, MIN_TIME

PLAN_FILE = "plan.json"
GC_EVERY = 16
"""The number of epochs between two garbage collections. Each collection lists the leases, which costs more than the few
files that become garbage in between."""

_LOOK_AGAIN_MS = 1_000

_log = logging.getLogger("vernier.epochs")


class Epochs:
    """The chain of committed epochs of one service. Owns the service's state directory until `close`.

    keep: how many manifests to keep (readers step through them). hold: how many more to keep, at most, while a
    publisher is behind. now: wall clock, ns. rebuild: if the program cannot continue from the state, build the state
    again from everything that the topics still contain. collect_beside: collect garbage in a thread, because with an
    object store each delete is a remote request. threads: the owner of that thread. Not thread-safe. Raises
    StateInUse, WrongState, NoIntactManifest and other StorageErrors.
    """

    def __init__(
        self,
        directory: StateDirectory,
        plan: Plan,
        door: DoorConfig,
        workers: int,
        keep: int,
        now: Callable[[], int] = time.time_ns,
        *,
        rebuild: bool = False,
        collect_beside: bool = False,
        hold: int = 0,
        threads: Threads | None = None,
    ) -> None:
        self.directory = directory
        self.plan, self.workers = plan, workers
        self._now = now
        self._door, self._keep, self._rebuild = door, keep, rebuild
        self._beside, self._hold = collect_beside, hold
        self._threads = threads or Threads()
        self._restarts: Mapping[str, int] = {}
        self._counted: Mapping[str, int] = {}
        self._collector: Loop | None = None
        self.anew = False
        """Whether the next epoch starts from an empty state, because the program has changed too much."""
        self.newest: Manifest | None = _acquire(self.directory)
        self._commit_seconds: float | None = None
        self.due: int | None = None
        """The next data time at which something happens without new input, if any worker has such a time."""
        self.topics: dict[str, str] = {}
        """The ids of the topics that epochs read, as last passed to `follow`."""
        self._discard: Discard | None = None
        self._begun: frozenset[str] = frozenset()
        self._skipped: dict[str, dict[int, int]] = {}
        self._lost: dict[str, int] = {}
        self._partitions: Mapping[str, int] = {}
        self.limit: int | None = None
        """The current rate limit in messages per epoch; kept here for the metrics."""
        self.lag: Lag | None = None
        """Provides the end offsets of the partitions, if it has been set."""
        try:
            self._check()
        except BaseException:
            self.directory.release()
            raise
        self._show_plan()
        self.stats = Stats.from_json(self.newest.stats if self.newest else None)

    def close(self) -> None:
        """Release the state directory, after a running collection has ended."""
        if self._collector is not None:
            self._collector.stop(None)
        self.directory.release()

    @property
    def start(self) -> Start:
        """The state from which the workers of the next epoch start."""
        newest = self.newest
        if newest is None or self.anew:
            door = {} if self._discard is None else set_back({}, self._discard)
            return Start(epoch=newest.epoch + 1 if newest else 1, base="", door=door, offsets={})
        door, offsets = newest.door, newest.offsets
        if self._begun:
            offsets = {topic: own for topic, own in offsets.items() if topic not in self._begun}
            door = begin_again(door, {topic: self._partitions[topic] for topic in self._begun})
        if self._discard is not None:
            door = set_back(door, self._discard)
        if self._skipped:
            offsets = offsets | {topic: offsets[topic] | own for topic, own in self._skipped.items()}
        return Start(epoch=newest.epoch + 1, base=newest.attempt, door=door, offsets=offsets)

    @property
    def known_topics(self) -> Mapping[str, str]:
        """The ids of the topics from which the state was built."""
        return {} if self.newest is None or self.anew else self.newest.topics

    def begin_anew(self, why: str) -> None:
        """Make the next epoch start from an empty state."""
        # Epoch numbers continue, so the old epochs stay until new ones displace them.
        self.anew = True
        _log.warning("epoch %d begins with nothing: %s", self.start.epoch, why)

    def discard(self, after: int, ends: Callable[[], Offsets]) -> None:
        """Discard everything that is in the topics now and is at or after the data time `after`.

        If the state is already past that time, the service starts again from an empty state. This is done once per
        time: if the state has it recorded already, nothing happens. ends: returns the current end offsets of the
        topics.
        """
        newest = self.newest
        if newest is not None and discarded(newest.door) == after:
            return
        self._discard = discarding(after, ends())
        if newest is not None and newest.upper > after:
            self.begin_anew(f"its state is final before {newest.upper}, and all from {after} on is discarded")

    def follow(
        self,
        found: Mapping[str, Found],
        begun: Collection[str],
        lost: Mapping[tuple[str, int], tuple[int, int]],
        sources: Callable[[str], Sequence[str]],
    ) -> None:
        """Set what the next epochs read; this takes effect with the next commit.

        found: the topics as the brokers have them. begun: topics that were created again under an old name; they are
        read from the beginning. lost: see Topics.lost. sources: returns the sources that read a topic.
        """
        self.topics = {topic: about.id or self.known_topics.get(topic, "") for topic, about in found.items()}
        self._partitions = {topic: about.partitions for topic, about in found.items()}
        self._begun, self._skipped, self._lost = frozenset(begun), {}, {}
        for topic in sorted(begun):
            _log.warning("topic %s is a new one of that name: it is read from its beginning", topic)
        for (topic, partition), (first, count) in lost.items():
            if topic in begun:
                continue
            _log.warning("%d messages of partition %d of topic %s are gone unread", count, partition, topic)
            self._skipped.setdefault(topic, {})[partition] = first
            for source in sources(topic):
                self._lost[source] = self._lost.get(source, 0) + count

    def commit(self, reports: list[Report], seconds: Mapping[str, float]) -> Manifest:
        """Commit the epoch that the reports describe (one report per shard, in order). seconds: the driver's own
        phases.

        Raises StorageErrors. The epoch then does not exist, except that it may exist if the error has
        `may_have_happened`.
        """
        began = time.perf_counter()
        start, one = self.start, reports[0]
        newest = self.newest
        offsets = {topic: dict(own) for topic, own in start.offsets.items()}
        for topic, own in one.offsets.items():
            offsets.setdefault(topic, {}).update(own)
        now = self._now()
        self._restarts = dict(self._threads.restarts)
        sources = {name: self._source(name, reports, offsets) for name in self.plan.sources}
        stats = self._count(reports, seconds, sources, now)
        manifest = Manifest(
            epoch=start.epoch,
            attempt=one.attempt,
            lower=one.lower,
            upper=one.upper,
            committed_ns=now,
            workers=self.workers,
            app=self.plan.app,
            program=self.plan.fingerprint,
            traces={name: self._trace(name, reports) for name in self.plan.arrangements},
            held={
                name: [report.held.get(name, []) for report in reports]
                for name in (*self.plan.sources, *self.plan.holds)
            },
            door=one.door,
            sources=sources,
            offsets=offsets,
            views={
                name: ViewEntry(
                    view.schema.to_json(),
                    list(view.key),
                    view.trace,
                    max(report.traces[view.trace].since for report in reports),
                    self._began_at(name),
                )
                for name, view in self.plan.views.items()
            },
            changes={name: _present(report.changes.get(name) for report in reports) for name in self.plan.views},
            dead=_present(report.dead for report in reports),
            stats=stats.to_json(),
            topics=dict(self.topics),
            cut_at=None if self.anew else _cut_at(newest, self.workers),
        )
        manifest = self.directory.commit(manifest)
        self._commit_seconds = time.perf_counter() - began
        self.newest, self.stats = manifest, stats
        self._counted = self._restarts
        self.due = min((report.due for report in reports if report.due is not None), default=None)
        anew, self.anew = self.anew, False
        self._begun, self._skipped, self._lost, self._discard = frozenset(), {}, {}, None
        if newest is not None and manifest.upper < newest.upper and not anew:
            _log.error("the frontier went back from %d to %d", newest.upper, manifest.upper)
        return manifest

    def failed(self) -> None:
        """Count an attempt that did not become an epoch."""
        self.stats.add("epochs_total", "failed")

    def collect(self) -> None:
        """Every GC_EVERY epochs, delete what no kept epoch needs. Failed deletions are tried again later."""
        if self.newest is None or self.newest.epoch % GC_EVERY:
            return
        if not self._beside:
            self.directory.gc(self._kept())
        elif self._collector is None or not self._collector.alive:
            self._collector = self._threads.start("collect", self._collect, again=False)

    def _collect(self, _stopping: threading.Event) -> None:
        try:
            self.directory.gc(self._kept())
        except StorageError as problem:
            _log.warning("old epochs are not collected yet: %s", problem)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _kept(self) -> int:
        """How many epochs to keep, including those that the publisher has not sent yet."""
        published = told.read(self.directory.blob) if self._hold else None
        if published is None or self.newest is None:
            return self._keep
        return self._keep + max(0, min(self.newest.epoch - published.epoch, self._hold))

    def _check(self) -> None:
        newest = self.newest
        if newest is None:
            return
        if newest.app != self.plan.app:
            found, wanted = f"app {newest.app!r}", f"app {self.plan.app!r}"
            raise WrongState(path=self.directory.path, found=found, wanted=wanted)
        try:
            self.check(self.plan)
        except NeedsHistory as error:
            if not self._rebuild:
                raise ProgramChanged(path=self.directory.path, what=error.what, why=error.why) from error
            self.begin_anew(f"the program has changed ({error.why})")
        if newest.workers != self.workers:
            _log.info("the state of %d workers is cut for %d", newest.workers, self.workers)

    def check(self, plan: Plan) -> None:
        """Check that a plan can continue from the newest epoch. Raises NeedsHistory."""
        newest = self.newest
        if newest is not None and newest.program != plan.fingerprint:
            queues = [name for name in newest.held if ":" in name]  # source names contain no colon
            migration = plan_migration(plan, {*newest.traces, *queues})
            _log.info(
                "kept: %d arrangements, new: %s, dropped: %s", len(migration.kept), migration.fresh, migration.dropped
            )

    def change(self, plan: Plan, door: DoorConfig) -> None:
        """Continue with another plan, which `check` has accepted."""
        self.plan, self._door = plan, door
        self._show_plan()

    def _show_plan(self) -> None:
        """Write the plan to a file in the state directory, where readers find it."""
        self.directory.blob.put(PLAN_FILE, [json.dumps(self.plan.explain()).encode()])

    def _began_at(self, view: str) -> int:
        """The epoch that last built this view from an empty state; 0 if there is none."""
        newest = self.newest
        if newest is None:
            return 0
        if self.anew:
            return newest.epoch + 1
        return newest.views[view].began if view in newest.views else 0

    def _trace(self, name: str, reports: list[Report]) -> TraceEntry:
        shape = self.plan.arrangements[name]
        shards = [report.traces[name].layers for report in reports]
        return TraceEntry(shape.key_width, shape.val_width, shape.depth, shards)

    def _count(
        self, reports: list[Report], seconds: Mapping[str, float], sources: Mapping[str, SourceEntry], now: int
    ) -> Stats:
        """The running totals including this epoch. This is a copy, because the commit may still fail."""
        stats = Stats.from_json(self.stats.to_json())
        stats.add("epochs_total", "committed")
        phases = {phase: max(report.phases[phase] for report in reports) for phase in reports[0].phases}
        for phase, took in {**phases, **seconds}.items():
            stats.observe("epoch_phase_duration_seconds", phase, value=took)
        if self._commit_seconds is not None:
            stats.observe("commit_duration_seconds", value=self._commit_seconds)
        stats.set("commit_timestamp_seconds", value=now / 1e9)
        if self.limit is not None:
            stats.set("epoch_limit_messages", value=self.limit)
        stats.set("epoch_distinct_times", value=sum(report.times for report in reports))
        for source, count in self._lost.items():
            stats.add("source_lost_messages_total", source, by=count)
        stats.clear("worker_memory_bytes")
        for thread, times in self._restarts.items():
            stats.add("thread_restarts_total", thread, by=times - self._counted.get(thread, 0))
        for report in reports:
            _count_worker(stats, report)
            self._count_latency(stats, report, now)
        _tell_traces(stats, reports)
        for loop, rounds in reports[0].rounds.items():
            stats.set("fixpoint_rounds", loop, value=rounds)
        self._tell_delays(stats, reports)
        _tell_sources(stats, sources)
        return stats

    def _count_latency(self, stats: Stats, report: Report, now: int) -> None:
        if not report.received_ms:
            return
        waited = np.maximum(now / 1e9 - np.asarray(report.received_ms) / 1e3, 0.0)
        for view in self.plan.views:
            stats.observe("view_latency_seconds", view, value=waited, count=report.received_count)

    def _tell_delays(self, stats: Stats, reports: list[Report]) -> None:
        for name in self.plan.sources:
            counts = [report.counts[name] for report in reports if name in report.counts]
            delays = [one.delay_ms for one in counts if one.delay_ms is not None]
            if delays:
                stats.set("source_event_delay_seconds", name, value=max(delays) / 1e3)

    def _source(self, name: str, reports: list[Report], offsets: Offsets) -> SourceEntry:
        """A source as the epoch of these reports has read it."""
        config, one = self._door.sources[name], reports[0]
        frontiers = one.frontiers.get(config.topic, {})
        known = [frontier for frontier in frontiers.values() if frontier is not None]
        unread = self.lag.unread(config.topic, offsets) if self.lag is not None else {}
        clocks = one.door.get("topics", {}).get(config.topic, {})
        return SourceEntry(
            topic=config.topic,
            format=config.format,
            clock=config.clock,
            on_late=config.on_late,
            rounding=config.rounding,
            frontier=min(known, default=None),
            idle=bool(frontiers) and not known,
            partitions={
                int(partition): partition_entry(frontier, clocks.get(partition, {}), unread.get(int(partition)))
                for partition, frontier in frontiers.items()
            },
            held=sum(report.waiting.get(name, 0) for report in reports),
        )


def partition_entry(frontier: int | None, clock: Mapping[str, Any], lag: int | None = None) -> PartitionEntry:
    """The state of a partition. A partition without a frontier (None) is idle: it no longer holds back the others, and
    its own clock gives the time it had reached."""
    if frontier is not None:
        return PartitionEntry(frontier, lag=lag)
    last = clock.get("frontier", MIN_TIME)
    return PartitionEntry(None if last == MIN_TIME else last, idle=True, lag=lag)


def _cut_at(newest: Manifest | None, workers: int) -> int | None:
    """The frontier of the last reshard, assuming that the commit after `newest` runs on `workers` workers."""
    if newest is None or newest.workers == workers:
        return None if newest is None else newest.cut_at
    return newest.upper


def _acquire(directory: StateDirectory) -> Manifest | None:
    """Acquire the directory. If its lock expires by itself and is not being renewed, the holder has died: wait for
    expiry."""
    least: int | None = None
    while True:
        try:
            return directory.acquire()
        except StateInUse as error:
            left = error.left_ms
            if left is None or (least is not None and left >= least):
                raise
            least = left
            time.sleep(min(left, _LOOK_AGAIN_MS) / 1000)


def _count_worker(stats: Stats, report: Report) -> None:
    for source, counts in report.counts.items():
        for name, label, count in (
            ("source_updates_total", "+", counts.inserted),
            ("source_updates_total", "-", counts.deleted),
            ("source_late_updates_total", "reject", counts.late_rejected),
            ("source_late_updates_total", "advance", counts.late_advanced),
            ("source_late_updates_total", "skewed", counts.skewed),
            *(("source_errors_total", reason, refused) for reason, refused in counts.refused.items()),
        ):
            if count:
                stats.add(name, source, label, by=count)
        if counts.bytes:
            stats.add("source_bytes_total", source, by=counts.bytes)
    for view, (inserts, deletes) in report.signs.items():
        stats.add("view_changes_total", view, "+", by=inserts)
        stats.add("view_changes_total", view, "-", by=deletes)
    for operator, (took, taken, out) in report.operators.items():
        stats.observe("operator_duration_seconds", operator, value=took)
        stats.add("operator_updates_total", operator, "in", by=taken)
        stats.add("operator_updates_total", operator, "out", by=out)
    stats.add("trace_merge_updates_total", "kept", by=report.kept)
    stats.add("trace_merge_updates_total", "cancelled", by=report.merged - report.kept)
    stats.add("exchange_bytes_total", by=report.exchanged)
    stats.set("worker_memory_bytes", str(report.shard), value=report.memory)


def _tell_sources(stats: Stats, sources: Mapping[str, SourceEntry]) -> None:
    """Derive the gauges of sources from their state."""
    stats.clear("source_lag_messages")
    for name, entry in sources.items():
        if entry.frontier is not None and MIN_TIME < entry.frontier < CLOSED:
            stats.set("source_frontier_timestamp_seconds", name, value=entry.frontier / 1e9)
        for partition, about in entry.partitions.items():
            if about.lag is not None:
                stats.set("source_lag_messages", name, str(partition), value=about.lag)


def _tell_traces(stats: Stats, reports: list[Report]) -> None:
    """Record what the manifest does not contain about traces: their `since` and the memory that workers use for
    them."""
    stats.clear("trace_since_timestamp_seconds")
    stats.clear("trace_bytes")
    for name in reports[0].traces:
        since = max(report.traces[name].since for report in reports)
        if MIN_TIME < since < CLOSED:
            stats.set("trace_since_timestamp_seconds", name, value=since / 1e9)
        stats.set("trace_bytes", name, "memory", value=sum(report.traces[name].memory for report in reports))


def _present(refs: Any) -> list[LayerRef]:
    return [ref for ref in refs if ref is not None]
