"""The totals that a manifest carries for monitoring: what an epoch's reports and sources add to them.

Nothing decides by them (service/observability/metrics.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vernier.service.cluster.messages import Report
from vernier.service.coordinator.hot_keys import HotKeyShare
from vernier.service.coordinator.rate_limiter import RateLimiter
from vernier.service.observability.metrics import Stats
from vernier.storage.state.manifest import Manifest, SourceEntry
from vernier.storage.threads import Threads
from vernier.storage.updates import CLOSED, MIN_TIME


class EpochMetrics:
    """The running totals of a service, those of its newest commit included. newest: where they continue.

    threads, limiter: whose restarts and limit are shown.
    """

    def __init__(self, newest: Manifest | None, threads: Threads, limiter: RateLimiter | None) -> None:
        self.totals = Stats.from_json(newest.stats if newest else None)
        self._threads, self._limiter = threads, limiter
        self._restarts: Mapping[str, int] = {}
        self._shown: Mapping[str, int] = {}
        self._commit_seconds: float | None = None

    def failed(self) -> None:
        """Count an attempt that did not become an epoch."""
        self.totals.add("epochs_total", "failed")

    def with_epoch(
        self,
        reports: Sequence[Report],
        seconds: Mapping[str, float],
        sources: Mapping[str, SourceEntry],
        lost: Mapping[str, int],
        views: Sequence[str],
        hot_keys: Sequence[HotKeyShare],
        now: int,
    ) -> Stats:
        """The totals including an epoch. This is a copy, because its commit may still fail; see `committed`.

        seconds: the driver's own phases; lost: messages that were gone before they were read, by source.
        """
        stats = Stats.from_json(self.totals.to_json())
        stats.add("epochs_total", "committed")
        phases = {phase: max(report.phases[phase] for report in reports) for phase in reports[0].phases}
        for phase, took in {**phases, **seconds}.items():
            stats.observe("epoch_phase_duration_seconds", phase, value=took)
        if self._commit_seconds is not None:
            stats.observe("commit_duration_seconds", value=self._commit_seconds)
        stats.set("commit_timestamp_seconds", value=now / 1e9)
        if self._limiter is not None and self._limiter.limit is not None:
            stats.set("epoch_limit_messages", value=self._limiter.limit)
        stats.set("epoch_distinct_times", value=sum(report.times for report in reports))
        for source, count in lost.items():
            stats.add("source_lost_messages_total", source, by=count)
        self._restarts = dict(self._threads.restarts)
        for thread, times in self._restarts.items():
            stats.add("thread_restarts_total", thread, by=times - self._shown.get(thread, 0))
        stats.clear("worker_memory_bytes")
        for report in reports:
            _count_worker(stats, report)
            _count_latency(stats, report, views, now)
        _set_traces(stats, reports)
        for loop, rounds in reports[0].rounds.items():
            stats.set("fixpoint_rounds", loop, value=rounds)
        _set_sources(stats, reports, sources)
        stats.clear("operator_hot_key_share")
        for hot in hot_keys:
            stats.set("operator_hot_key_share", hot.operator, hot.key, value=round(hot.share, 3))
        return stats

    def committed(self, totals: Stats, seconds: float) -> None:
        """The epoch of these totals is committed. seconds: how long that took, which the next epoch counts."""
        self.totals, self._commit_seconds, self._shown = totals, seconds, self._restarts


def _count_latency(stats: Stats, report: Report, views: Sequence[str], now: int) -> None:
    if not report.received_ms:
        return
    waited = np.maximum(now / 1e9 - np.asarray(report.received_ms) / 1e3, 0.0)
    for view in views:
        stats.observe("view_latency_seconds", view, value=waited, count=report.received_count)


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


def _set_sources(stats: Stats, reports: Sequence[Report], sources: Mapping[str, SourceEntry]) -> None:
    """Derive the gauges of sources from their state."""
    stats.clear("source_lag_messages")
    for name, entry in sources.items():
        counts = [report.counts[name] for report in reports if name in report.counts]
        delays = [one.delay_ms for one in counts if one.delay_ms is not None]
        if delays:
            stats.set("source_event_delay_seconds", name, value=max(delays) / 1e3)
        if entry.frontier is not None and MIN_TIME < entry.frontier < CLOSED:
            stats.set("source_frontier_timestamp_seconds", name, value=entry.frontier / 1e9)
        for partition, about in entry.partitions.items():
            if about.lag is not None:
                stats.set("source_lag_messages", name, str(partition), value=about.lag)


def _set_traces(stats: Stats, reports: Sequence[Report]) -> None:
    """Record what the manifest does not contain about traces: their `since` and the memory that workers use for
    them."""
    stats.clear("trace_since_timestamp_seconds")
    stats.clear("trace_bytes")
    for name in reports[0].traces:
        since = max(report.traces[name].since for report in reports)
        if MIN_TIME < since < CLOSED:
            stats.set("trace_since_timestamp_seconds", name, value=since / 1e9)
        stats.set("trace_bytes", name, "memory", value=sum(report.traces[name].memory for report in reports))
