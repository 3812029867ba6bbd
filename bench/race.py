"""A program on a moving graph, by several engines in turn, on the same updates, in one run.

    python -m bench.race --program bfs --nodes 1000 --edges 2000 --batch 1000 --updates 60000 \\
        --players vernier,vernier/batch,differential,differential/batch

An update puts an edge in and takes the oldest out, at a time of its own, or, for players with `/batch`, at one time
with the others of its batch. The players take turns, a few batches each, forwards and back; after each turn their
answers are compared, all changes with their times, by sums over them. What is printed are medians over the turns, the
first of which is not counted: microseconds an update by the clock and of CPU (of all threads and processes), and
memory: the most after a turn, and the most at any time, usually while the edges are loaded. For single workers compare
the CPU, which other work on the machine affects least. One JSON line.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bench.edges import write_words
from bench.players import Player, agree, start
from bench.record import tell
from bench.stream import random_graph


class Times:
    """The measurements of one player."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.loaded: dict[str, Any] = {}
        self.turns: list[dict[str, Any]] = []

    def report(self, size: int) -> dict[str, Any]:
        """Medians and percentiles; the first turn is separate. us: microseconds an update; ms: an epoch."""
        counted = self.turns[1:] or self.turns
        found: dict[str, Any] = {
            "workers": self.player.spec.workers,
            "load_s": round(self.loaded["wall_ns"][0] / 1e9, 3),
            "load_cpu_s": round(self.loaded["cpu_ns"][0] / 1e9, 3),
            "resident_mb": round(max(turn["resident"] for turn in self.turns) / 2**20, 1),
            "highest_mb": round(self.turns[-1]["highest"] / 2**20, 1),
        }
        for clock in ("wall", "cpu"):
            epochs = np.concatenate([turn[f"{clock}_ns"] for turn in counted])
            found[f"{clock}_us"] = float(np.median([np.mean(turn[f"{clock}_ns"]) for turn in counted])) / size / 1e3
            found[f"{clock}_ms_p50"], found[f"{clock}_ms_p99"] = np.percentile(epochs, (50, 99)) / 1e6
        return {name: round(one, 4) if isinstance(one, float) else one for name, one in found.items()}


def race(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All players, in turn."""
    each = max(1, args.updates // args.turns // args.batch)
    edges = random_graph(args.nodes, args.edges + each * args.batch * (args.turns + 1))
    write_words(folder / "edges", edges)
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        logs = folder if args.log else None
        players, left_out = start(args.players.split(","), args.program, folder / "edges", args.edges, stack, logs)
        times = [Times(player) for player in players]
        for one in times:
            one.loaded = one.player.load()
        agree(players, [one.loaded for one in times])
        for turn in range(args.turns + 1):
            for one in times if turn % 2 else reversed(times):
                one.turns.append(one.player.run(each, args.batch))
            agree(players, [one.turns[-1] for one in times])
        reports = {one.player.spec.text: one.report(args.batch) for one in times}
    return {
        "program": args.program, "nodes": args.nodes, "edges": args.edges, "batch": args.batch,
        "updates": each * args.batch * args.turns, "turns": args.turns, "players": reports, "left_out": left_out,
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bfs")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=2000)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--players", default="vernier,differential")
    parser.add_argument("--log", action="store_true", help="keep all changes, to say where answers differ; small sizes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tell(race(args, Path(folder)))


if __name__ == "__main__":
    main()
