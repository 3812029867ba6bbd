"""Degrees of a graph and how often each occurs, by both forms of a count: "Specializing differential dataflow".

`count_total` is for times that are totally ordered. The engine takes that form by itself (`degrees`); inside loops it
takes the general one, which keeps its output (`degrees_general`). Differential dataflow has an operator for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.cargo import CannotBuild
from bench.seeds.experiment import Experiment, Found, Graph, percentiles, playing, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH = 100_000
ROUNDS = 5
FORMS = {
    "vernier, total": ("vernier", "degrees"),
    "vernier, general": ("vernier", "degrees_general"),
    "differential, count_total": ("differential", "degrees"),
    "differential, count": ("differential-count", "degrees"),
}
ARTICLE = {
    "small": {
        "article, count_total": (0.0082, (121, 116, 112, 111, 113)),
        "article, count": (0.0129, (307, 308, 310, 323, 320)),
    },
    "large": {
        "article, count_total": (10.5, (149, 160, 156, 200, 146)),
        "article, count": (14.1, (449, 466, 423, 570, 434)),
    },
}
"""Seconds of the load, milliseconds of each batch."""


def counts(size: str, graph: Graph) -> Experiment:
    """The experiment on a graph."""

    def run(scale: float) -> Found:
        mine, batch = graph.scaled(scale), max(10, round(BATCH * scale))
        rows = [
            [name, shown(load_s), " ".join(map(str, ms)), shown(sum(ms) / len(ms) * 1e3 / BATCH)]
            for name, (load_s, ms) in ARTICLE[size].items()
        ]
        values: dict[str, Any] = {"nodes": mine.nodes, "edges": mine.edges, "batch": batch, "forms": {}}
        left_out: dict[str, str] = {}
        series: dict[str, list[float]] = {}
        for form, (name, program) in FORMS.items():
            try:
                with playing(name, program, mine, batch * ROUNDS) as (player, loaded):
                    taken = player.run(ROUNDS, batch)
            except CannotBuild as reason:
                left_out[name] = str(reason)
                continue
            ms = [
                round(one / 1e6, 1) for one in taken["cpu_ns"]
            ]  # one worker: other work on the machine must not count
            one = {
                "load_s": round(loaded["cpu_ns"][0] / 1e9, 4),
                "rounds_ms": ms,
                "us_an_update": round(sum(ms) / len(ms) * 1e3 / batch, 3),
                "resident_mb": round(taken["resident"] / 2**20, 1),
                **percentiles(taken["wall_ns"]),
            }
            values["forms"][form] = one
            series[form] = ms
            rows.append([form, shown(one["load_s"]), " ".join(map(shown, ms)), shown(one["us_an_update"])])

        def draw(axes: Sequence[Axes]) -> None:
            shown_ = {name: list(ms) for name, (_, ms) in ARTICLE[size].items()} | series
            for place, (name, ms) in enumerate(shown_.items()):
                axes[0].bar(place, sum(ms) / len(ms), label=name)
            axes[0].set(ylabel=f"ms a batch of {batch:,}", xticks=[])
            axes[0].set_title(f"degrees, {mine}", fontsize="medium")
            axes[0].legend(fontsize="x-small")

        head = [
            "form (ours and today's: CPU)",
            "load, s",
            f"each batch of {batch:,} (article: {BATCH:,}), ms",
            "µs an update",
        ]
        return Found(values, {"counts": {"head": head, "rows": rows}}, draw, 1, left_out)

    return run
