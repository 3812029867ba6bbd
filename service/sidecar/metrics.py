"""Prometheus metrics: the totals of the newest epoch, and what this process counts itself.

Everything about the pipeline is exported from the committed stats, so counters continue after a restart. Unknown values
are absent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from vernier.service.observability.metrics import CATALOGUE, Labels, Metric, Stats
from vernier.service.observability.recent_latency import recent
from vernier.service.sidecar.context import Context
from vernier.service.status import change, intake, publisher, trouble
from vernier.service.views.snapshot_reader import Snapshot
from vernier.storage.updates import CLOSED, MIN_TIME

PREFIX = "vernier_"
RECENT_QUANTILES = (0.5, 0.99)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_REQUEST_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class SidecarMetrics:
    """The registry of one sidecar."""

    def __init__(self, context: Context) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "http_request_duration_seconds",
            "Time to answer; of a change stream, to begin it.",
            ("route", "method", "code"),
            namespace="vernier",
            registry=self.registry,
            buckets=_REQUEST_BOUNDS,
        )
        self.registry.register(_Committed(context))

    def observe(self, route: str, method: str, code: int, seconds: float) -> None:
        """Count an answered request."""
        # Clients can invent methods, and each would create a permanent time series.
        self.requests.labels(route, method if method in _METHODS else "other", str(code)).observe(seconds)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that the scraper accepts, and their content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type


class _Committed(Collector):
    def __init__(self, context: Context) -> None:
        self.context = context

    def describe(self) -> Iterable[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        yield InfoMetricFamily(f"{PREFIX}build", "The release.", {"version": release()})
        snapshot, now_ns = self.context.follower.snapshot, time.time_ns()
        streams = self.context.streams
        subscribers = GaugeMetricFamily(f"{PREFIX}subscribers", "Open change streams.", labels=("view",))
        for view, count in streams.counts.items():
            subscribers.add_metric((view,), count)
        yield subscribers
        dropped = CounterMetricFamily(
            f"{PREFIX}subscribers_dropped", "Change streams ended as too slow.", labels=("view",)
        )
        for view, count in streams.dropped.items():
            dropped.add_metric((view,), count)
        yield dropped
        if snapshot is None:
            return
        numbers = {name: dict(rows) for name, rows in snapshot.stats.numbers.items()} | self._derived(snapshot, now_ns)
        numbers |= self._published(snapshot)
        for metric in CATALOGUE.values():
            if metric.kind == "histogram":
                family = _histogram(metric, snapshot.stats)
            else:
                family = _plain(metric, numbers.get(metric.name, {}))
            if family.samples:
                yield family
        state = GaugeMetricFamily(f"{PREFIX}dataflow_state", "1 for the current state.", labels=("dataflow", "state"))
        stalled = self.context.stale_ms(snapshot) > self.context.options.stale_after_ms
        found = trouble.read(self.context.follower.files)
        now = "stalled" if stalled else "running"
        observed = intake.observed(self.context.follower.files)
        if not observed.open:
            now = "paused"
        elif found is not None:
            now = "stopped" if found.stopped else "failing"
        elif observed.intake == "draining" and not stalled:
            now = "draining"
        for name in ("running", "draining", "paused", "stalled", "failing", "stopped"):
            state.add_metric((snapshot.manifest.app, name), float(name == now))
        yield state
        filling = change.FILE.read(self.context.follower.files)
        if filling is not None:
            rows = GaugeMetricFamily(
                f"{PREFIX}change_rows",
                "Rows to read for a change of programs, and those read so far.",
                labels=("what",),
            )
            rows.add_metric(("total",), float(filling.rows))
            rows.add_metric(("read",), float(filling.taken))
            yield rows

    @staticmethod
    def _derived(snapshot: Snapshot, now_ns: int) -> dict[str, dict[Labels, float]]:
        """Metrics derived from the manifest itself: frontiers, lags, rows, traces."""
        manifest = snapshot.manifest
        derived: dict[str, dict[Labels, float]] = {}
        known = {name: v for name, v in snapshot.views.items() if MIN_TIME < v.frontier < CLOSED}
        derived["view_frontier_timestamp_seconds"] = {(name,): view.frontier / 1e9 for name, view in known.items()}
        derived["view_lag_seconds"] = {(name,): (now_ns - view.frontier) / 1e9 for name, view in known.items()}
        derived["view_rows"] = {(name,): float(len(view.rows)) for name, view in snapshot.views.items()}
        _, latencies = recent(snapshot.marks, snapshot.stats, now_ns)
        derived["view_recent_latency_seconds"] = {
            (view, str(q)): value
            for view, histogram in latencies.items()
            for q in RECENT_QUANTILES
            if (value := histogram.quantile(q)) is not None
        }
        derived["workers"] = {(): float(manifest.workers)}
        derived["commit_timestamp_seconds"] = {(): manifest.committed_ns / 1e9}
        updates: dict[Labels, float] = {}
        batches: dict[Labels, float] = {}
        disk: dict[Labels, float] = {}
        memory = snapshot.stats.numbers.get("trace_bytes", {})
        for name, trace in manifest.traces.items():
            refs = [ref for shard in trace.shards for ref in shard]
            updates[name,], batches[name,] = sum(ref.updates for ref in refs), len(refs)
            disk[name, "disk"] = sum(ref.nbytes for ref in refs)
        derived["trace_updates"], derived["trace_layers"], derived["trace_bytes"] = updates, batches, memory | disk
        return derived

    def _published(self, snapshot: Snapshot) -> dict[str, dict[Labels, float]]:
        """Metrics of the sinks, from the publisher's status file."""
        found = publisher.read(self.context.follower.files)
        if found is None:
            return {}
        frontiers = {
            name: (snapshot.views[sink.view or name].frontier, sink.frontier)
            for name, sink in found.sinks.items()
            if sink.frontier is not None and MIN_TIME < sink.frontier < CLOSED and (sink.view or name) in snapshot.views
        }
        return {
            "sink_messages_total": {
                (name, kind): float(count)
                for name, sink in found.sinks.items()
                for kind, count in sink.messages.items()
            },
            "sink_frontier_timestamp_seconds": {(name,): sent / 1e9 for name, (_, sent) in frontiers.items()},
            "sink_lag_seconds": {
                (name,): max(0, final - sent) / 1e9 for name, (final, sent) in frontiers.items() if final < CLOSED
            },
        }


def _plain(metric: Metric, rows: dict[Labels, float]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: Family = kind(PREFIX + metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    for labels, value in rows.items():
        family.add_metric(labels, value)  # type: ignore[attr-defined]
    return family


def _histogram(metric: Metric, stats: Stats) -> Family:
    family = HistogramMetricFamily(PREFIX + metric.name, metric.help, labels=metric.labels)
    for labels, histogram in stats.histograms.get(metric.name, {}).items():
        running, buckets = 0, []
        bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, histogram.counts, strict=True):
            running += count
            buckets.append((bound, running))
        family.add_metric(labels, buckets, histogram.total)
    return family


def release() -> str:
    """The installed version of vernier; "unknown" in a bare checkout."""
    try:
        return version("vernier")
    except PackageNotFoundError:
        return "unknown"
