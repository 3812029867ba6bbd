"""What bench.order prints and bench.pairs counts, which does not depend on the machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.order import run, seen

ROOT = Path(__file__).resolve().parents[2]


def printed(module: str, *arguments: str, **environment: str) -> str:
    """What `python -m bench.…` prints."""
    command = [sys.executable, "-W", "ignore", "-m", f"bench.{module}", *arguments]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def test_the_order_is_printed() -> None:
    single, _, rest = printed("order").partition("one epoch:")
    together, _, histogram = rest.partition("different times")
    orders = [
        [(int(time), int(round_)) for time, round_ in re.findall(r"\((\d+), (\d+)\)", one)]
        for one in (single, together)
    ]
    assert orders[0] == sorted(orders[0])  # by data time, and in each by round
    rounds = [round_ for _, round_ in orders[1]]
    assert rounds == sorted(rounds)  # by round, all data times at once
    assert set(orders[0]) == set(orders[1])
    assert len(orders[0]) > 10
    assert sum(int(keys) for keys in re.findall(r": (\d+)$", histogram, re.MULTILINE)) == 15


def test_the_loops_of_the_seed() -> None:
    """Its four changes: the first round sets distance 1 at 0 and 5 and ends one at 11; the second has work at 11 only,
    though the edge with which it works is from 10."""
    watched, found = run([((0, 3), 0, 1), ((0, 2), 5, 1), ((2, 3), 10, 1), ((0, 3), 11, -1)], False)
    assert found == [[0, 0, 0, 1], [2, 1, 5, 1], [3, 1, 0, 1], [3, 1, 11, -1], [3, 2, 11, 1]]
    assert seen(watched) == [(0, 0), (5, 0), (11, 0), (11, 1)]


def test_alternating_histories_cost_what_they_are_long() -> None:
    told = json.loads(printed("pairs", "--rows", "100,200", NUMBA_DISABLE_JIT="1"))
    for one in told["histories"]:
        assert one["out"] == 0
        assert one["naive_pairs"] == one["changes_a_side"] ** 2
        assert one["ours"] <= 2 * one["changes_a_side"]
