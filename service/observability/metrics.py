"""The service's running totals, committed with each epoch and exported by the sidecar as Prometheus metrics.

The totals are in the manifest, so they count each committed epoch exactly once, whichever process dies in between, and
the process that exports them can be a different one from the process that counts. `CATALOGUE` is the only list of
names, labels and buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from vernier.storage.errors import InvariantError

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]


def _decades(least: int, greatest: int) -> tuple[float, ...]:
    """1, 1.5, 2, 3, 5 and 7 times the powers of ten from 10**least, ending with 10**greatest; seconds."""
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    return (*(float(f"{step}e{power}") for power in range(least, greatest) for step in steps), float(f"1e{greatest}"))


LATENCY_BOUNDS = _decades(-3, 2)
"""Upper bounds of latency buckets in seconds: 1 ms to 100 s, six per decade, so a quantile is off by at most a half."""
DURATION_BOUNDS = _decades(-4, 1)
"""Upper bounds, in seconds, of the buckets for durations inside an epoch: 0.1 ms to 10 s."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without the prefix `vernier_`, its kind, its labels in order, and its description."""

    name: str
    kind: Kind
    labels: Labels
    help: str
    bounds: tuple[float, ...] = ()


def _catalogue(metrics: Iterable[Metric]) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


CATALOGUE = _catalogue(
    (
        Metric("epochs_total", "counter", ("outcome",), "Epochs by outcome: committed, or failed and tried again."),
        Metric(
            "epoch_phase_duration_seconds", "histogram", ("phase",), "Time of each phase of an epoch.", DURATION_BOUNDS
        ),
        Metric("epoch_limit_messages", "gauge", (), "Messages that an epoch takes at most, as far as is known now."),
        Metric("epoch_distinct_times", "gauge", (), "Distinct data times in the newest epoch."),
        Metric("source_updates_total", "counter", ("source", "sign"), "Updates admitted, by the sign of their diff."),
        Metric("source_bytes_total", "counter", ("source",), "Bytes of the messages read."),
        Metric("source_errors_total", "counter", ("source", "reason"), "Messages sent to the dead letters, by reason."),
        Metric("source_lost_messages_total", "counter", ("source",), "Messages that were gone before they were read."),
        Metric(
            "source_late_updates_total",
            "counter",
            ("source", "action"),
            "Updates behind the frontier, by what was done.",
        ),
        Metric("source_event_delay_seconds", "gauge", ("source",), "Arrival minus data time of the newest update."),
        Metric(
            "source_lag_messages", "gauge", ("source", "partition"), "Messages in the topic that no epoch has read yet."
        ),
        Metric("source_frontier_timestamp_seconds", "gauge", ("source",), "The source's frontier as data time."),
        Metric("view_frontier_timestamp_seconds", "gauge", ("view",), "Data times before it are final in the view."),
        Metric("view_lag_seconds", "gauge", ("view",), "Wall clock minus the view's frontier."),
        Metric("view_latency_seconds", "histogram", ("view",), "Per update: received to visible.", LATENCY_BOUNDS),
        Metric(
            "view_recent_latency_seconds",
            "gauge",
            ("view", "quantile"),
            "Per update: received to visible, in the last five minutes.",
        ),
        Metric("view_changes_total", "counter", ("view", "sign"), "Changes of the view, by the sign of their diff."),
        Metric("view_rows", "gauge", ("view",), "Distinct rows in the view."),
        Metric(
            "operator_duration_seconds", "histogram", ("operator",), "Time in an operator per epoch.", DURATION_BOUNDS
        ),
        Metric("operator_updates_total", "counter", ("operator", "direction"), "Updates into and out of an operator."),
        Metric(
            "operator_hot_key_share",
            "gauge",
            ("operator", "key"),
            "Share of the rows sent to an operator that have one key, from a quarter on.",
        ),
        Metric("fixpoint_rounds", "gauge", ("operator",), "Rounds that the loop ran in the newest epoch."),
        Metric("trace_updates", "gauge", ("trace",), "Updates held in a trace."),
        Metric("trace_bytes", "gauge", ("trace", "tier"), "Bytes of a trace, by where they are."),
        Metric("trace_layers", "gauge", ("trace",), "Batches of a trace over all shards."),
        Metric("trace_merge_updates_total", "counter", ("result",), "Updates through merges: kept, or cancelled."),
        Metric("trace_since_timestamp_seconds", "gauge", ("trace",), "Data times before it may be read as one."),
        Metric("commit_duration_seconds", "histogram", (), "Time to make an epoch durable.", DURATION_BOUNDS),
        Metric("commit_timestamp_seconds", "gauge", (), "Wall clock of the newest commit."),
        Metric("exchange_bytes_total", "counter", (), "Bytes sent between workers."),
        Metric(
            "thread_restarts_total",
            "counter",
            ("thread",),
            "Background threads of the driver that failed and were started again.",
        ),
        Metric("workers", "gauge", (), "Workers that made the newest epoch."),
        Metric("worker_memory_bytes", "gauge", ("worker",), "Resident memory of a worker."),
        Metric("sink_messages_total", "counter", ("sink", "kind"), "Messages written to output topics."),
        Metric("sink_frontier_timestamp_seconds", "gauge", ("sink",), "Data times before it are in the output topic."),
        Metric("sink_lag_seconds", "gauge", ("sink",), "The view's frontier minus the output topic's."),
    )
)


class UnknownMetric(InvariantError):
    """A value was recorded under a name that is not in the catalogue."""

    message = "metric {name} with labels {labels} is not in the catalogue as a {kind}"
    name: str
    labels: tuple[str, ...]
    kind: str


@dataclass(slots=True)
class Histogram:
    """Totals by bucket: counts[i] values fell in (bounds[i-1], bounds[i]], the last count is beyond all bounds."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Self:
        """A histogram without observations."""
        return cls(bounds, [0] * (len(bounds) + 1))

    @property
    def observations(self) -> int:
        """The number of observed values."""
        return sum(self.counts)

    def observe(self, value: float, count: int = 1) -> None:
        """Add `count` observations of one value, in seconds."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def observe_many(self, values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> None:
        """Add counts[i] observations of values[i]."""
        buckets = np.searchsorted(np.asarray(self.bounds), values, side="left")
        for bucket, count in enumerate(np.bincount(buckets, weights=counts, minlength=len(self.counts))):
            self.counts[bucket] += int(count)
        self.total += float(np.dot(values, counts))

    def minus(self, earlier: Histogram) -> Histogram:
        """The observations made after `earlier`, an older state of this histogram."""
        counts = [max(0, now - then) for now, then in zip(self.counts, earlier.counts, strict=True)]
        return Histogram(self.bounds, counts, max(0.0, self.total - earlier.total))

    def quantile(self, q: float) -> float | None:
        """The value below which the share `q` lies, linear inside its bucket; None without observations."""
        if not any(self.counts):
            return None
        return float(quantiles(self.bounds, np.array([self.counts]), q)[0])


def quantiles(bounds: tuple[float, ...], counts: npt.NDArray[np.int64], q: float) -> npt.NDArray[np.float64]:
    """The quantile `q` of many histograms, counts[n, len(bounds) + 1], linear inside buckets; 0 for empty ones.

    Values beyond all bounds count as the greatest bound.
    """
    edges = np.array([0.0, *bounds, bounds[-1]])
    below = np.cumsum(counts, axis=1)
    wanted = q * below[:, -1]
    bucket = np.argmax((below >= wanted[:, None]) & (counts > 0), axis=1)
    line = np.arange(len(counts))
    inside = counts[line, bucket]
    share = (wanted - (below[line, bucket] - inside)) / np.maximum(inside, 1)
    low, high = edges[bucket], edges[bucket + 1]
    return np.where(inside > 0, low + (high - low) * share, 0.0)


class Stats:
    """Totals by metric name and label values; stored as JSON in the manifest's `stats`. They are for people and
    monitoring: no process decides by them."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self:
        """Load the totals of a manifest. Names unknown to this release are dropped, so that a downgrade
        still starts.
        """
        stats = cls()
        for name, rows in (data or {}).get("metrics", {}).items():
            metric = CATALOGUE.get(name)
            if metric is None:
                continue
            for labels, value in rows:
                if metric.kind == "histogram":
                    if len(value["counts"]) == len(metric.bounds) + 1:
                        kept = Histogram(metric.bounds, list(value["counts"]), value["sum"])
                        stats.histograms.setdefault(name, {})[tuple(labels)] = kept
                else:
                    stats.numbers.setdefault(name, {})[tuple(labels)] = value
        return stats

    def to_json(self) -> dict[str, Any]:
        """The form that `from_json` reads: JSON types only."""
        metrics: dict[str, list[Any]] = {
            name: [[list(labels), value] for labels, value in rows.items()] for name, rows in self.numbers.items()
        }
        for name, histograms in self.histograms.items():
            metrics[name] = [
                [list(labels), {"counts": histogram.counts, "sum": histogram.total}]
                for labels, histogram in histograms.items()
            ]
        return {"metrics": metrics}

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Increase a counter."""
        rows = self.numbers.setdefault(_known(name, labels, "counter").name, {})
        rows[labels] = rows.get(labels, 0) + by

    def set(self, name: str, *labels: str, value: float) -> None:
        """Set a gauge."""
        self.numbers.setdefault(_known(name, labels, "gauge").name, {})[labels] = value

    def clear(self, name: str) -> None:
        """Remove a gauge for all label values, so that things that no longer exist are absent."""
        self.numbers.pop(name, None)

    def observe(self, name: str, *labels: str, value: float | npt.ArrayLike, count: int | npt.ArrayLike = 1) -> None:
        """Add to a histogram: one value or an array of values in seconds, each `count` times."""
        metric = _known(name, labels, "histogram")
        histograms = self.histograms.setdefault(name, {})
        histogram = histograms.setdefault(labels, Histogram.empty(metric.bounds))
        if isinstance(value, float) and isinstance(count, int):
            # An epoch has one for each operator and worker, and numpy takes ten times as long for one.
            histogram.observe(value, count)
            return
        values = np.atleast_1d(np.asarray(value, np.float64))
        histogram.observe_many(values, np.broadcast_to(np.asarray(count, np.int64), values.shape))


def _known(name: str, labels: Labels, kind: Kind) -> Metric:
    metric = CATALOGUE.get(name)
    if metric is None or metric.kind != kind or len(metric.labels) != len(labels):
        raise UnknownMetric(name=name, labels=labels, kind=kind)
    return metric
