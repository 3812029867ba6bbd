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
ENOUGH = 0.9
"""Of a core: single workers had one to themselves."""
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
        """Updates by batch: whole batches, and at least two; batches larger than all updates are left out."""
        counts = {batch: round(count * scale) for batch, count in self.updates.items()}
        return {batch: max(2, count // batch) * batch for batch, count in counts.items() if batch <= max(1, count)}


def swept(sweep: Sweep, graph: Graph, updates: dict[int, int]) -> tuple[Cells, dict[str, float], dict[str, str]]:
    """Every player's cells; the seconds of its load; which players cannot run."""
    cells: Cells = {}
    loads: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name in sweep.players:
        try:
            with playing(name, sweep.program, graph, sum(updates.values()) + 3 * sum(updates)) as (player, loaded):
                loads[name] = round(loaded["wall_ns" if ":" in name else "cpu_ns"][0] / 1e9, 4)
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
                "cpu_updates_per_s": round(updates / (sum(one["cpu_ns"]) / 1e9), 1),
                "cpu_million_s": round(sum(one["cpu_ns"]) / 1e9 / updates * MILLION, 2),
                **percentiles(one["wall_ns"]),
            }
    return found


def core_share(cells: Cells) -> float:
    """How much of a core single workers had while they ran: their CPU time by the clock time."""
    alone = [one for name, batches in cells.items() if ":" not in name for one in batches.values()]
    return round(sum(sum(one["cpu_ns"]) for one in alone) / sum(sum(one["wall_ns"]) for one in alone), 3)


def tabled(sweep: Sweep, found: dict[str, Any], loads: dict[str, float], batches: Sequence[int], quiet: bool) -> Table:
    """Players as columns, batches as rows. One worker counts by its CPU time, with which other work on the machine does
    not interfere. Several workers, and what a second one adds, count by the clock: a dash unless the single workers of
    the same run had a core to themselves (`core_share`)."""
    alone = [name for name in found if ":" not in name]
    more = [name for name in found if ":" in name]
    unit = "updates a second" if sweep.rate else "s for a million updates"
    head = ["updates a batch", *sweep.article_head, *(f"{name}, {unit} of CPU" for name in alone)]
    head += [f"{name}, {unit} by the clock" for name in more] + [f"{name} ÷ one worker" for name in more]
    rows = []
    for batch in batches:
        row = [f"{batch:,}", *sweep.article.get(batch, ["–"] * len(sweep.article_head))]
        for name in (*alone, *more):
            one, clock = found[name][str(batch)], "" if name in more else "cpu_"
            wanted = one[f"{clock}updates_per_s"] if sweep.rate else one[f"{clock}million_s"]
            row.append(shown(wanted if quiet or name in alone else None))
        for name in more:
            single = found[name.partition(":")[0]][str(batch)]["updates_per_s"]
            found[name][str(batch)]["increase"] = round(found[name][str(batch)]["updates_per_s"] / single, 2)
            row.append(shown(found[name][str(batch)]["increase"] if quiet else None))
        rows.append(row)
    if not sweep.rate:
        rest = [""] * (len(head) - 1 - len(sweep.article_head) - len(loads))
        rows.append(
            ["load, s", *[""] * len(sweep.article_head), *(shown(loads[name]) for name in (*alone, *more)), *rest]
        )
    return {"head": head, "rows": rows}


def lines(axes: Axes, name: str, found: dict[str, Any], wanted: str) -> None:
    """A player's line over the sizes of batches."""
    unit = "updates a second" if wanted.endswith("per_s") else "s for a million updates"
    places = [float(batch) for batch in found]
    axes.plot(places, [one[wanted] for one in found.values()], "--" if ":" in name else "-", marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="updates a batch", ylabel=unit)
    axes.grid(alpha=0.3)


def throughput(sweep: Sweep) -> Experiment:
    """The experiment of a sweep."""

    def run(scale: float) -> Found:
        graph, updates = sweep.graph.scaled(scale), sweep.runs(scale)
        cells, loads, left_out = swept(sweep, graph, updates)
        found = measured(cells)
        share = core_share(cells)
        quiet = share >= ENOUGH  # otherwise the clock counts other work
        table = tabled(sweep, found, loads, list(updates), quiet)
        values = {"nodes": graph.nodes, "edges": graph.edges, "core_share": share, "load_s": loads}
        values["players"] = found

        def draw(axes: Sequence[Axes]) -> None:
            axes[0].set_title(f"{sweep.program}, {graph}", fontsize="medium")
            for name, batches in cells.items():
                line, clock, by = ("--", "wall_ns", "") if ":" in name else ("-", "cpu_ns", "cpu_")
                if by == "" and not quiet:
                    continue
                if sweep.article and sweep.rate:  # its picture has latencies
                    for color, (batch, one) in enumerate(batches.items()):
                        label = f"{name}, {short(batch)} a batch"
                        curve(axes[0], one[clock], label, color=f"C{color}", linestyle=line)
                else:
                    lines(axes[0], name, found[name], f"{by}{'updates_per_s' if sweep.rate else 'million_s'}")
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
        "bfs", Graph(1_000, 2_000), ("vernier/batch", "vernier", "vernier:2", "differential"), MANY, SMALL,
        ["article, a time a batch, s", "article, a time an update, s"], False,
    ),
    "resolution1m": Sweep(
        "bfs", Graph(10**6, 10**7), ("vernier/batch", "vernier", "vernier:2", "differential"), MANY, LARGE,
        ["article, a time a batch, s", "article, a time an update, s", "article, 2 workers, s"], False,
    ),
}  # fmt: skip
