"""Throughput by the size of a batch and the number of workers, each update at its own time or a batch at one.

Tables of parameters: `batching` (Differential dataflow roadmap: 10,000 updates to 1m/2m by 1, 10 and 100, one worker
and two), `scaling` (its second goal: single updates a second and worker on 1k/2k), and the tables of "High resolution,
high throughput" (bfs, a million updates in batches of 1 to 1,000,000). A small batch takes long for a million updates:
fewer are run and the time is stated for a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.cargo import CannotBuild
from bench.record import Table
from bench.seeds.experiment import Experiment, Found, Graph, curve, percentiles, playing, short, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MILLION = 1_000_000
Cells = dict[str, dict[int, dict[str, Any]]]
"""By player and batch."""


@dataclass(frozen=True)
class Sweep:
    """Players, and the updates that each makes by size of batch. article: its cells by batch, under its own heads."""

    program: str
    graph: Graph
    players: tuple[str, ...]
    updates: dict[int, int]
    article: dict[int, Sequence[str]]
    article_head: Sequence[str]
    rate: bool
    """Whether the table has updates a second, or seconds for a million updates and the load, as the article's."""

    def runs(self, scale: float) -> dict[int, int]:
        """Updates by batch: whole batches, and at least two."""
        batches = {max(1, round(batch * min(1.0, scale * 10))): count for batch, count in self.updates.items()}
        return {batch: max(2, round(count * scale) // batch) * batch for batch, count in batches.items()}


def swept(sweep: Sweep, graph: Graph, updates: dict[int, int]) -> tuple[Cells, dict[str, float], dict[str, str]]:
    """Every player's cells; the seconds of its load; which players cannot run."""
    cells: Cells = {}
    loads: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name in sweep.players:
        try:
            with playing(name, sweep.program, graph, sum(updates.values()) + 3 * sum(updates)) as (player, loaded):
                loads[name] = round(loaded["wall_ns"][0] / 1e9, 2)
                cells[name] = {}
                for batch, count in updates.items():
                    player.run(1, batch)  # traces get used to the size
                    cells[name][batch] = player.run(count // batch, batch)
        except CannotBuild as reason:
            left_out[name] = str(reason)
    return cells, loads, left_out


def measured(cells: Cells) -> dict[str, Any]:
    """Values of the cells."""
    found: dict[str, Any] = {}
    for name, batches in cells.items():
        for batch, one in batches.items():
            updates, seconds = batch * len(one["wall_ns"]), sum(one["wall_ns"]) / 1e9
            found.setdefault(name, {})[str(batch)] = {
                "updates": updates,
                "updates_per_s": round(updates / seconds, 1),
                "million_s": round(seconds / updates * MILLION, 2),
                "cpu_us": round(sum(one["cpu_ns"]) / updates / 1e3, 2),
                **percentiles(one["wall_ns"]),
            }
    return found


def tabled(sweep: Sweep, found: dict[str, Any], loads: dict[str, float], batches: Sequence[int]) -> Table:
    """Players as columns, batches as rows; two workers of a player beside one: their increase."""
    names = list(found)
    pairs = [name for name in names if name.endswith(":2") and name[:-2] in found]
    unit = "updates a second" if sweep.rate else "s for a million updates"
    head = ["updates a batch", *sweep.article_head]
    alone = [name for name in names if ":" not in name]
    head += [f"{name}, {unit}" for name in names] + [f"{name}, CPU µs an update" for name in alone]
    head += [f"{name[:-2]}, 2 workers ÷ 1" for name in pairs]
    rows = []
    for place, batch in enumerate(batches):
        theirs = list(sweep.article.values())
        row = [f"{batch:,}", *(theirs[place] if place < len(theirs) else ["–"] * len(sweep.article_head))]
        for name in names:
            one = found[name][str(batch)]
            row.append(shown(one["updates_per_s"] if sweep.rate else one["million_s"]))
        row += [shown(found[name][str(batch)]["cpu_us"]) for name in alone]
        for name in pairs:
            ratio = found[name][str(batch)]["updates_per_s"] / found[name[:-2]][str(batch)]["updates_per_s"]
            found[name][str(batch)]["increase"] = round(ratio, 2)
            row.append(f"{ratio:.2f}")
        rows.append(row)
    if not sweep.rate:
        given = [""] * len(sweep.article_head)
        rows.append(["load, s", *given, *map(shown, loads.values()), *[""] * (len(alone) + len(pairs))])
    return {"head": head, "rows": rows}


def throughput(sweep: Sweep) -> Experiment:
    """The experiment of a sweep."""

    def run(scale: float) -> Found:
        graph, updates = sweep.graph.scaled(scale), sweep.runs(scale)
        cells, loads, left_out = swept(sweep, graph, updates)
        found = measured(cells)
        table = tabled(sweep, found, loads, list(updates))
        values = {"nodes": graph.nodes, "edges": graph.edges, "load_s": loads, "players": found}

        def draw(axes: Sequence[Axes]) -> None:
            axes[0].set_title(f"{sweep.program}, {graph}", fontsize="medium")
            for name, batches in cells.items():
                line = "--" if ":" in name else "-"
                if sweep.rate:
                    for color, (batch, one) in enumerate(batches.items()):
                        label = f"{name}, {short(batch)} a batch"
                        curve(axes[0], one["wall_ns"], label, color=f"C{color}", linestyle=line)
                else:
                    seconds = [found[name][str(batch)]["million_s"] for batch in batches]
                    axes[0].plot(list(batches), seconds, marker="o", linestyle=line, label=name)
                    axes[0].set(xscale="log", yscale="log", xlabel="updates a batch", ylabel="s for a million updates")
                    axes[0].grid(alpha=0.3)
            axes[0].legend(fontsize="x-small")

        return Found(values, {"throughput": table}, draw, 1, left_out)

    return run


ROADMAP = {
    1: ["1,244.96", "1,297.07", "1.042"],
    10: ["1,988.71", "2,530.23", "1.272"],
    100: ["1,563.32", "2,743.31", "1.755"],
}
SMALL = {
    1: ["142", "–"], 10: ["73", "117"], 100: ["27", "75"], 1_000: ["5", "63"], 10_000: ["–", "61"],
    100_000: ["–", "127"], 1_000_000: ["–", "385"],
}  # fmt: skip
LARGE = {
    1: ["100", "–", "–"], 10: ["64", "82", "68"], 100: ["51", "65", "46"], 1_000: ["48", "54", "36"],
    10_000: ["34", "43", "28"], 100_000: ["21", "31", "20"], 1_000_000: ["12", "23", "16"],
}  # fmt: skip
MANY = {1: 5_000, 10: 30_000, 100: 100_000, 1_000: 200_000, 10_000: 500_000, 100_000: MILLION, MILLION: MILLION}
SWEEPS = {
    "batching": Sweep(
        "reach", Graph(10**6, 2 * 10**6), ("vernier", "vernier:2"), dict.fromkeys((1, 10, 100), 10_000), ROADMAP,
        ["article, 1 worker", "article, 2", "increase"], True,
    ),
    "scaling": Sweep(
        "reach", Graph(1_000, 2_000), ("vernier", "vernier:2", "differential", "differential:2"),
        {1: 3_000, 10: 10_000, 100: 30_000, 1_000: 100_000, 10_000: 200_000}, {}, [], True,
    ),
    "resolution1k": Sweep(
        "bfs", Graph(1_000, 2_000), ("vernier/batch", "vernier", "vernier:2"), MANY, SMALL,
        ["article, a time a batch, s", "article, a time an update, s"], False,
    ),
    "resolution1m": Sweep(
        "bfs", Graph(10**6, 10**7), ("vernier/batch", "vernier", "vernier:2"), MANY, LARGE,
        ["article, a time a batch, s", "article, a time an update, s", "article, 2 workers, s"], False,
    ),
}  # fmt: skip
