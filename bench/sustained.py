"""Do single updates take longer, and does memory grow, after a million updates?

    python -m bench.sustained --updates 1000000 --window 5000 --players vernier,differential

Epochs of one update, `window` of them, after the first thousand updates and again after `updates` more, which come in
batches of 1,000. The graph goes round (bench/stream.py), so the later window has the very same graphs and updates as
the earlier one: only the engine's history differs. Engines take turns of a hundred epochs inside a
window; their answers are compared. One JSON line: the 50th, 99th and 99.9th percentile of both windows, and memory.
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

SHARES = (50, 99, 99.9)
BATCH = 1000
TURN = 100


def window(players: list[Player], epochs: int) -> dict[str, dict[str, Any]]:
    """Single updates, the players in turn; by player."""
    taken: dict[str, list[dict[str, Any]]] = {player.spec.text: [] for player in players}
    for turn in range(epochs // TURN):
        for player in players if turn % 2 else reversed(players):
            taken[player.spec.text].append(player.run(TURN, 1))
        agree(players, [taken[player.spec.text][-1] for player in players])
    found: dict[str, dict[str, Any]] = {}
    for name, answers in taken.items():
        found[name] = {"mb": round(answers[-1]["resident"] / 2**20, 1)}
        for clock in ("wall", "cpu"):
            epochs_ns = np.concatenate([answer[f"{clock}_ns"] for answer in answers])
            found[name][f"{clock}_ms"] = [round(float(at) / 1e6, 4) for at in np.percentile(epochs_ns, SHARES)]
    return found


def pass_by(players: list[Player], batches: int, epochs: int) -> dict[str, dict[str, Any]]:
    """Large batches, a turn of single updates that does not count, then a window of them."""
    agree(players, [player.run(batches, BATCH) for player in players])
    agree(players, [player.run(TURN, 1) for player in players])
    return window(players, epochs)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="bfs")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges", type=int, default=2000)
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--window", type=int, default=2000)
    parser.add_argument("--players", default="vernier,differential")
    args = parser.parse_args()
    batches = -(-args.updates // BATCH)
    # One round is the distance from the beginning of one window to that of the other.
    edges = random_graph(args.nodes, args.window + batches * BATCH + TURN)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "edges"
        write_words(path, edges)
        players, left_out = start(args.players.split(","), args.program, path, args.edges, stack)
        agree(players, [player.load() for player in players])
        early = pass_by(players, 1, args.window)
        late = pass_by(players, batches, args.window)
    windows = {"early": early, "late": late}
    reports = {
        name: {f"{when}_{key}": value for when, all_ in windows.items() for key, value in all_[name].items()}
        for name in early
    }
    result = {
        "program": args.program, "nodes": args.nodes, "edges": args.edges, "updates": args.updates,
        "window": args.window, "players": reports, "left_out": left_out,
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    tell(result)


if __name__ == "__main__":
    main()
