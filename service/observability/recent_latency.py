"""Latency histograms of the last five minutes, derived from totals that only grow.

A mark is a copy of the totals at some time; the difference to the present totals is what was observed since. Marks are
a few seconds apart, so five minutes need about sixty of them, however many epochs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vernier.service.observability.metrics import Histogram, Stats

LATENCY = "view_latency_seconds"
WINDOW_NS = 300 * 1_000_000_000
"""The length of the window that counts as recent."""
_APART_NS = 5_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """The totals by view at a wall-clock time."""

    at_ns: int
    totals: Mapping[str, Histogram]

    @staticmethod
    def of(at_ns: int, stats: Stats) -> Mark:
        """The totals of an epoch that was committed at that time."""
        return Mark(at_ns, {labels[0]: total for labels, total in stats.histograms.get(LATENCY, {}).items()})


def followed(marks: Sequence[Mark], at_ns: int, stats: Stats) -> tuple[Mark, ...]:
    """The marks after one more epoch: those of the window, and the newest before it. O(marks); most calls add none."""
    if marks and at_ns < marks[-1].at_ns + _APART_NS:
        return tuple(marks)
    return (*_needed(marks, at_ns), Mark.of(at_ns, stats))


def recent(marks: Sequence[Mark], stats: Stats, now_ns: int) -> tuple[float, dict[str, Histogram]]:
    """The observations of the last five minutes by view, and the seconds that they cover, fewer shortly
    after a start.
    """
    kept = _needed(marks, now_ns)
    totals = Mark.of(now_ns, stats).totals
    if not kept:
        return 0.0, dict(totals)
    begun = kept[0]
    found = {view: total.minus(begun.totals[view]) if view in begun.totals else total for view, total in totals.items()}
    return min(WINDOW_NS, max(0, now_ns - begun.at_ns)) / 1e9, found


def _needed(marks: Sequence[Mark], now_ns: int) -> Sequence[Mark]:
    first = 0
    while first + 1 < len(marks) and marks[first + 1].at_ns <= now_ns - WINDOW_NS:
        first += 1
    return marks[first:]
