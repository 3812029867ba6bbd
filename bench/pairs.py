"""Histories that alternate, which make a naive join quadratic: `NUMBA_DISABLE_JIT=1 python -m bench.pairs`.

One key. On the left a row comes and goes; then, on the right, another one does; and so on. Both sides are never there
together, so the join is empty. A join that pairs each change with each change of the other side looks at as many pairs
as the product of both histories; products at different times cancel afterwards. Here the join's kernels run
interpreted, and count the products that they compute and the changes that they replay in time order. Prints a JSON
line with the numbers of both joins for each length of the histories; their answers are compared.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any

import numba

import vernier as vn
from bench.record import tell
from vernier.operators.engine.local import LocalEngine
from vernier.operators.kernels import joining
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

Change = tuple[tuple[int, int], int, int]


class Row(vn.Schema):
    """A row of either side."""

    key: vn.Int64
    value: vn.Int64


def histories(rows: int, overlap: int) -> tuple[list[Change], list[Change]]:
    """Both sides: `rows` rows each, of which each of the left overlaps `overlap` rows of the right."""
    left: list[Change] = []
    right: list[Change] = []
    for i in range(rows):
        left += [((0, i), 4 * i, 1), ((0, i), 4 * i + 1 + 4 * overlap, -1)]
        right += [((0, i), 4 * i + 2, 1), ((0, i), 4 * i + 3, -1)]
    return left, right


def naive(left: list[Change], right: list[Change]) -> tuple[int, Counter[tuple[int, int, int]]]:
    """The naive loop: every change of one side with every change of the other. Returns the number of pairs that
    it looked at, and the changes."""
    pairs, found = 0, Counter[tuple[int, int, int]]()
    for (_, a), time_a, diff_a in left:
        for (_, b), time_b, diff_b in right:
            pairs += 1
            found[a, b, max(time_a, time_b)] += diff_a * diff_b
    return pairs, Counter({change: diff for change, diff in found.items() if diff})


def counted(left: list[Change], right: list[Change]) -> tuple[int, Counter[tuple[int, int, int]]]:
    """The engine's join, in one slice: how many products it computed and changes it replayed, and the changes."""
    app = vn.App("pairs")
    one, two = app.source("left", Row), app.source("right", Row)
    app.view("both", one.join(two.rename(value="other"), on="key").select("value", "other"))
    looked = 0
    multiply, accumulate = joining.multiply, joining._accumulate

    def multiplied(*given: Any) -> Any:
        nonlocal looked
        looked += 1
        return multiply(*given)

    def replayed(*given: Any) -> Any:
        nonlocal looked
        looked += 1
        return accumulate(*given)

    joining.multiply, joining._accumulate = multiplied, replayed
    try:
        with LocalEngine(compile_app(app), slice_updates=1 << 20) as engine:
            batch = {
                name: Updates.of([row for row, _, _ in side], [time for _, time, _ in side], [d for *_, d in side])
                for name, side in (("left", left), ("right", right))
            }
            found = engine.run_epoch(MIN_TIME, CLOSED, batch)["both"]
    finally:
        joining.multiply, joining._accumulate = multiply, accumulate
    return looked, Counter({(a, b, time): diff for a, b, time, diff in found.data.tolist()})


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10,100,200,400")
    parser.add_argument("--overlap", type=int, default=0)
    given = parser.parse_args()
    if not numba.config.DISABLE_JIT:
        sys.exit("bench.pairs counts what interpreted kernels do: set NUMBA_DISABLE_JIT=1")
    found = []
    for rows in map(int, given.rows.split(",")):
        left, right = histories(rows, given.overlap)
        pairs, expected = naive(left, right)
        looked, changes = counted(left, right)
        if changes != expected:
            raise SystemExit(f"the answers differ at {rows} rows")
        found.append({"changes_a_side": 2 * rows, "out": len(changes), "naive_pairs": pairs, "ours": looked})
    tell({"bench": "pairs", "overlap": given.overlap, "histories": found})


if __name__ == "__main__":
    main()
