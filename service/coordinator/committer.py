"""The committer: holds the newest commit and turns the reports of an attempt into the next one.

The manifest alone decides what exists (storage/state/state.py). It contains everything that must survive: batches, held
updates, the ingest state (`ingestion`), the state of the sources, offsets, dead letters to be sent, running totals.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from vernier.operators.failures import NeedsHistory
from vernier.operators.planning.plan import Plan
from vernier.service.cluster.messages import Report, Start
from vernier.service.coordinator.changing import Changing, show
from vernier.service.coordinator.collector import Collector
from vernier.service.coordinator.consumer_lag import Lag, Offsets
from vernier.service.coordinator.epoch_metrics import EpochMetrics
from vernier.service.coordinator.hot_keys import HotKeyLog, hot_keys
from vernier.service.coordinator.next_epoch import NextEpoch
from vernier.service.coordinator.opening import acquire, check_app, check_plan, show_plan, with_columns
from vernier.service.coordinator.rate_limiter import RateLimiter
from vernier.service.coordinator.shown_views import Shown
from vernier.service.coordinator.source_entries import source_entry
from vernier.service.coordinator.topics import Found
from vernier.service.errors import ProgramChanged
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.former import former_columns
from vernier.service.ingest.ingestion_state import SnapshotState, snapshots_in
from vernier.service.ingest.loading import SnapshotPart
from vernier.service.observability.metrics import Stats
from vernier.storage.state.manifest import BatchRef, Manifest, TraceEntry, WholeEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Threads

_log = logging.getLogger("vernier.epochs")


class Committer:
    """The chain of committed epochs of one service. Owns the service's state directory until `close`.

    keep: how many manifests to keep (readers step through them). hold: how many more to keep, at most, while a
    publisher is behind. now: wall clock, ns. rebuild: if the program cannot continue from the state, build the state
    again from everything that the topics still contain. collect_beside: collect garbage in a thread, because with an
    object store each delete is a remote request. threads: the owner of that thread. lag: knows the end offsets of the
    partitions; limiter: the rate limit, for the metrics. begins: whether a source begins with a snapshot. Not
    thread-safe. Raises StateInUse, WrongState, NoIntactManifest and other StorageErrors.
    """

    def __init__(
        self,
        directory: StateDirectory,
        plan: Plan,
        ingestion: IngestionConfig,
        workers: int,
        keep: int,
        now: Callable[[], int] = time.time_ns,
        *,
        rebuild: bool = False,
        collect_beside: bool = False,
        hold: int = 0,
        threads: Threads | None = None,
        lag: Lag | None = None,
        limiter: RateLimiter | None = None,
        begins: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.directory = directory
        self.plan, self.workers = plan, workers
        self._now, self._ingestion, self._lag, self._begins = now, ingestion, lag, begins
        self.due: int | None = None
        """The next data time at which something happens without new input, if any worker has such a time."""
        self.changing: Changing | None = None
        """The programs to change to, if any. Set it between two epochs."""
        self.loading: SnapshotPart | None = None
        """What of a snapshot the next epoch loads, if it loads one. Set it between two epochs."""
        threads = threads or Threads()
        self._collector = Collector(directory, keep, hold, threads if collect_beside else None)
        self._next = NextEpoch()
        self.newest: Manifest | None = with_columns(directory, acquire(directory))
        try:
            self._continue(rebuild)
            show_plan(directory, plan)
        except BaseException:
            directory.release()
            raise
        self._metrics, self._hot_keys = EpochMetrics(self.newest, threads, limiter), HotKeyLog()

    def close(self) -> None:
        """Release the state directory, after a running collection has ended."""
        self._collector.close()
        self.directory.release()

    @property
    def start(self) -> Start:
        """The state from which the workers of the next epoch start."""
        start = msgspec.structs.replace(self._next.start(self.newest), part=self.loading)
        if self.changing is None or start.base == "":
            return start
        return msgspec.structs.replace(start, target=self.changing.target)

    @property
    def reached(self) -> int:
        """The newest committed epoch; 0 if there is none."""
        return self.newest.epoch if self.newest else 0

    @property
    def anew(self) -> bool:
        """Whether the next epoch starts from an empty state, because the program has changed too much."""
        return self._next.anew

    @property
    def snapshots(self) -> Mapping[str, SnapshotState]:
        """How much of the sources' snapshots has entered."""
        return {} if self.newest is None or self.anew else snapshots_in(self.newest.ingestion)

    @property
    def topics(self) -> Mapping[str, str]:
        """The ids of the topics that epochs read, as last passed to `follow`."""
        return self._next.topics

    @property
    def known_topics(self) -> Mapping[str, str]:
        """The ids of the topics from which the state was built."""
        return {} if self.newest is None or self.anew else self.newest.topics

    @property
    def stats(self) -> Stats:
        """The running totals, for monitoring."""
        return self._metrics.totals

    def begin_anew(self, why: str) -> None:
        """Make the next epoch start from an empty state."""
        self._next.begin_anew(self.newest, why)

    def discard(self, after: int, ends: Callable[[], Offsets]) -> None:
        """Discard everything that is in the topics now and is at or after the data time `after`; see
        `NextEpoch.discard`."""
        self._next.discard(self.newest, after, ends)

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
        self._next.follow(self.known_topics, found, begun, lost, sources)

    def commit(self, reports: list[Report], seconds: Mapping[str, float], *, show: bool = True) -> Manifest:
        """Commit the epoch that the reports describe (one report per shard, in order). seconds: the driver's own
        phases. show: False if the caller calls `show` soon; before, readers do not see the epoch.

        Raises StorageErrors. The epoch then does not exist, except that it may exist if the error has
        `may_have_happened`.
        """
        began = time.perf_counter()
        start, one = self.start, reports[0]
        newest, changing = self.newest, self.changing
        switched = changing if start.target is not None and start.target.switch else None
        plan = self.plan if switched is None else switched.plan
        offsets = {topic: dict(own) for topic, own in start.offsets.items()}
        for topic, own in one.offsets.items():
            offsets.setdefault(topic, {}).update(own)
        now = self._now()
        sources = {}
        former = former_columns(None if self.anew else newest, plan.sources)
        for name, row in plan.sources.items():
            config = self._ingestion.sources[name]
            unread = {} if self._lag is None else self._lag.unread(config.topic, offsets)
            sources[name] = source_entry(name, config, reports, unread, row.to_json(), former.get(name, []))
        shown = Shown.of(plan, one, None if self.anew else newest, self._began_at)
        hot, views = hot_keys(reports), list(plan.views)
        stats = self._metrics.with_epoch(reports, seconds, sources, self._next.lost, views, hot, now)
        manifest = Manifest(
            epoch=start.epoch,
            attempt=one.attempt,
            lower=shown.lower,
            upper=one.upper,
            committed_ns=now,
            workers=self.workers,
            app=plan.app,
            program=plan.fingerprint,
            traces={name: _trace(plan, name, reports) for name in plan.arrangements},
            held={name: [report.held.get(name, []) for report in reports] for name in (*plan.sources, *plan.queues)},
            ingestion=one.ingestion,
            sources=sources,
            offsets=offsets,
            views=shown.views(reports),
            changes={name: _present(report.changes.get(name) for report in reports) for name in shown.steady},
            dead=_present(report.dead for report in reports),
            stats=stats.to_json(),
            topics=dict(self.topics),
            cut_at=None if self.anew else _cut_at(newest, self.workers),
        )
        manifest = self.directory.commit(manifest, show=show)
        self.newest = manifest
        self._metrics.committed(stats, time.perf_counter() - began)
        self._hot_keys.follow(hot, plan)
        self.due = min((report.due for report in reports if report.due is not None), default=None)
        anew = self.anew
        self._next.committed()
        if switched is not None:
            self.change(switched.plan, switched.ingestion)
            self.change_to(None)
        elif changing is not None:
            changing.reported(reports, self.directory.blob)
        if newest is not None and manifest.upper < newest.upper and not anew:
            _log.error("the frontier went back from %d to %d", newest.upper, manifest.upper)
        return manifest

    def show(self) -> None:
        """Show the newest epoch to readers. Any thread may call this."""
        self.directory.show()

    def failed(self) -> None:
        """Count an attempt that did not become an epoch."""
        self._metrics.failed()

    def collect(self) -> None:
        """Now and then, delete what no kept epoch needs."""
        self._collector.collect(self.newest)

    def check(self, plan: Plan) -> None:
        """Check that a plan can continue from the newest epoch. Raises NeedsHistory."""
        check_plan(self.newest, plan, self._begins)

    def change(self, plan: Plan, ingestion: IngestionConfig) -> None:
        """Continue with another plan, which `check` has accepted, or with topics that have more partitions."""
        self.plan, self._ingestion = plan, ingestion
        if self.changing is not None:
            self.changing.ingestion = ingestion
        show_plan(self.directory, plan)

    def rescale(self, workers: int) -> None:
        """Make the next epochs with another number of workers. Nothing is rewritten: the first of these epochs opens
        the parts of the old shards by hash range (storage/state/reshard.py) and its manifest names them. Call it
        between two epochs, and not while workers fill other programs."""
        if self.changing is not None:
            raise RuntimeError("workers fill what is new in other programs")
        _log.info("the state of %d workers is resharded for %d", self.workers, workers)
        self.workers = workers

    def change_to(self, changing: Changing | None) -> None:
        """Let workers fill what is new in other programs, beside the next epochs, and then switch to them. None: give
        that up. Call it between two epochs."""
        if changing is not None or self.changing is not None:
            show(self.directory.blob, None)
        self.changing = changing

    # --- inside -------------------------------------------------------------------------------------------------------

    def _continue(self, rebuild: bool) -> None:
        newest = self.newest
        if newest is None:
            return
        check_app(self.directory, newest, self.plan)
        try:
            self.check(self.plan)
        except NeedsHistory as error:
            if not rebuild:
                raise ProgramChanged(path=self.directory.path, what=error.what, why=error.why) from error
            self.begin_anew(f"the program has changed ({error.why})")
        if newest.workers != self.workers:
            _log.info("the state of %d workers is resharded for %d", newest.workers, self.workers)

    def _began_at(self, view: str) -> int:
        """The epoch that last built this view from an empty state; 0 if there is none."""
        newest = self.newest
        if newest is None:
            return 0
        if self.anew:
            return newest.epoch + 1
        return newest.views[view].began if view in newest.views else 0


def _trace(plan: Plan, name: str, reports: Sequence[Report]) -> TraceEntry:
    shape = plan.arrangements[name]
    shards = [report.traces[name].batches for report in reports]
    whole = None if shape.whole is None else WholeEntry(shape.whole.of, list(shape.whole.words))
    is_view = any(view.trace == name for view in plan.views.values())
    since = max(report.traces[name].since for report in reports) if shape.retained and not is_view else None
    return TraceEntry(shape.key_width, shape.val_width, shape.depth, shards, whole, since)


def _cut_at(newest: Manifest | None, workers: int) -> int | None:
    """The frontier of the last reshard, assuming that the commit after `newest` runs on `workers` workers."""
    if newest is None or newest.workers == workers:
        return None if newest is None else newest.cut_at
    return newest.upper


def _present(refs: Iterable[BatchRef | None]) -> list[BatchRef]:
    return [ref for ref in refs if ref is not None]
