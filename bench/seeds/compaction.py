"""The newest row of one key under open load, with compaction and without: "Managing memory with differential dataflow".

One event a millisecond with a delay of a second, and ten with a delay of a millisecond, as in the article; events are
released by the wall clock (bench/flows.py). The article prints the greatest latency so far after each second; the table
has the greatest of each tenth of the run, and what the state holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.flows import compared, nanoseconds
from bench.flows import run as flow
from bench.seeds.experiment import Found, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SECONDS = 30
SHOWN = ("max_ms", "p99_ms", "p50_ms", "p99_cpu_ms", "updates")
RUNS = {
    ("1ms", "1s"): {"compacted": "36 → 71 (8 s)", "plain": "260 → 46,983 (55 s)"},
    ("100us", "1ms"): {"compacted": "2.1 → 2.1 (8 s)", "plain": "181 → 42,207 (46 s)"},
}
"""Pause and delay; the article's greatest latency after the first second and at the end of its run. In the first case
it runs a debug build, in the second a release."""


def compaction(scale: float) -> Found:
    """The experiment."""
    values: dict[str, Any] = {}
    rows: list[list[str]] = []
    for (pause, delay), article in RUNS.items():
        events = max(400, round(SECONDS * scale * 10**9) // nanoseconds(pause))
        given = argparse.Namespace(events=events, plain_events=None, open=True, behind=20.0, batch=1_000)
        forms = {
            form: flow("latest", nanoseconds(pause), nanoseconds(delay), form, given) for form in ("compacted", "plain")
        }
        if compared(forms) is False:
            raise SystemExit("compaction: the answers differ")
        values[f"{pause}, {delay}"] = forms
        for form, one in forms.items():
            early, last = one["tenths"][1], one["tenths"][-1]
            rows.append([
                f"{pause}, {delay}", form, article[form],
                *(f"{shown(early[name])} → {shown(last[name])}" for name in SHOWN),
            ])  # fmt: skip

    def draw(axes: Sequence[Axes]) -> None:
        for (name, forms), place in zip(values.items(), axes, strict=True):
            for form, one in forms.items():
                place.plot(range(1, 1 + len(one["tenths"])), [tenth["max_ms"] for tenth in one["tenths"]], label=form)
            place.set(yscale="log", xlabel="tenth of the run", ylabel="longest, ms")
            place.set_title(f"an event each {name}: pause, delay", fontsize="medium")
            place.grid(alpha=0.3)
            place.legend(fontsize="small")

    head = [
        "pause, delay", "form", "article, longest so far, ms: after 1 s → at the end",
        "longest of the second tenth → of the last, ms", "p99, ms", "p50, ms",
        "CPU of an epoch, p99, ms", "updates held",
    ]  # fmt: skip
    return Found(values, {"compaction": {"head": head, "rows": rows}}, draw, len(RUNS))
