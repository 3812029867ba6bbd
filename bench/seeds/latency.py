"""Latency by the number of updates before: reachability from ten roots, the gnp1m and gnp1k of "Differential dataflow
roadmap".

Updates come one by one, each in an epoch of its own. The latencies of the last hundred before 100, 1,000, 10,000 and
100,000 updates are kept (bench/sustained.py goes on to a million). Beyond 10,000 updates the stretches between them go
by in batches of a hundred, each update still at its own time: the state is the same, the run shorter. A latency is the
CPU time of an update's epoch, which is that by the clock where a core is free.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.cargo import CannotBuild
from bench.players import Player
from bench.seeds.experiment import Experiment, Found, Graph, curve, percentiles, playing, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAST = 100
ALONE = 10_000
PLAYERS = ("vernier", "differential")
SECONDS = 240.0
"""A player ends before the next mark once it took so long."""


def marked(player: Player, marks: Sequence[int]) -> dict[int, dict[str, list[int]]]:
    """The latencies before each mark, in nanoseconds by the clock and of CPU (`wall_ns`, `cpu_ns`)."""
    found: dict[int, dict[str, list[int]]] = {}
    at, began = 0, time.monotonic()
    for mark in marks:
        if time.monotonic() - began > SECONDS:
            break
        stop = mark - LAST
        if mark > ALONE:
            together = (stop - at) // LAST - 10  # the last thousand alone, too
            player.run(together, LAST)
            at += together * LAST
        if stop > at:
            player.run(stop - at, 1)
        found[mark] = player.run(LAST, 1)
        at = mark
    return found


def latency(graph: Graph, marks: Sequence[int]) -> Experiment:
    """The experiment on a graph."""

    def run(scale: float) -> Found:
        mine = graph.scaled(scale)
        wanted = [mark for mark in marks if mark <= max(1_000, marks[-1] * scale)]
        taken: dict[str, dict[int, dict[str, list[int]]]] = {}
        values: dict[str, Any] = {"nodes": mine.nodes, "edges": mine.edges, "roots": 10, "players": {}}
        left_out, rows = {}, []
        for name in PLAYERS:
            try:
                with playing(name, "reach", mine, wanted[-1]) as (player, loaded):
                    taken[name] = marked(player, wanted)
            except CannotBuild as reason:
                left_out[name] = str(reason)
                continue
            load_s = round(loaded["wall_ns"][0] / 1e9, 2)
            found = {
                str(mark): {
                    **{f"cpu_{name}": value for name, value in percentiles(one["cpu_ns"]).items()},
                    **percentiles(one["wall_ns"]),
                }
                for mark, one in taken[name].items()
            }
            values["players"][name] = {"load_s": load_s, "updates": found}
            for mark, one in found.items():
                rows.append([name, f"{int(mark):,}", *(shown(value) for value in one.values())])

        def draw(axes: Sequence[Axes]) -> None:
            for place, name in zip(axes, taken, strict=False):
                for mark, one in taken[name].items():
                    curve(place, one["cpu_ns"], f"{mark:,}")
                place.set_title(f"{name}, reachability, {mine}, 10 roots", fontsize="medium")
                place.legend(title="after updates", fontsize="small")

        clocks = [f"{name}{clock}, ms" for clock in ("", " by the clock") for name in ("p50", "p90", "p99", "longest")]
        head = ["engine", "after updates", *clocks]
        return Found(values, {"latency": {"head": head, "rows": rows}}, draw, len(taken), left_out)

    return run
