"""Aggregates that follow each change: every type, several columns, exact sums, and what cannot be said in 64 bits."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import vernier as vn
from vernier import col
from vernier.operators.failures import UserCodeFailed


class Triple(vn.Schema):
    a: vn.Int64
    b: vn.Int64
    c: vn.Int64


def test_least_and_greatest_of_several_columns() -> None:
    """Each column has its own order; rows are in the order of the first one."""
    app = vn.App("ends")
    rows = app.source("s", Triple)
    app.view("v", rows.group_by("a").agg(lo=vn.min("c"), hi=vn.max("b"), top=vn.max("c"), low=vn.min("b")))
    with vn.testing.run(app) as t:
        t.update("s", [((1, 5, 1), 1, 1), ((1, 3, 7), 1, 1), ((1, 3, 7), 2, -1), ((1, 9, 0), 3, 1)])
        t.finish()
        assert t.rows("v", at=1) == [(1, 1, 5, 7, 3)]
        assert t.rows("v", at=2) == [(1, 1, 5, 1, 5)]
        assert t.rows("v", at=3) == [(1, 0, 9, 1, 5)]


class Pair(vn.Schema):
    a: vn.Int64
    b: vn.Int64


def truth(updates: list[tuple[tuple[int, int], int, int]], at: int) -> dict[tuple[int, int], int]:
    total: Counter[tuple[int, int]] = Counter()
    for row, time, diff in updates:
        if time <= at:
            total[row] += diff
    return {row: count for row, count in total.items() if count}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("workers", [1, 2])
def test_thresholds(seed: int, workers: int) -> None:
    rng = random.Random(seed)
    updates = [
        ((rng.randrange(3), rng.randrange(2)), rng.randrange(10), rng.choice([1, 1, 2, -1, -3])) for _ in range(40)
    ]
    app = vn.App("thresholds")
    rows = app.source("s", Pair)
    app.view("three", rows.threshold(3))
    app.view("one", rows.threshold(1))
    app.view("clipped", rows.threshold(lambda counts: np.clip(counts, -1, 2)))
    app.view("positive", rows.except_all(rows.filter(col("a") < 0)))

    @vn.fixpoint(max_rounds=4, on_limit="truncate")
    def grown(x: vn.Collection) -> vn.Collection:
        return vn.union(x, x.select(a=col("b"), b=col("a"))).threshold(3)

    app.view("loop", grown(rows))
    with vn.testing.run(app, epochs=rng.sample(range(10), 2), workers=workers) as t:
        t.update("s", updates)
        t.finish()
        for at in range(10):
            here = truth(updates, at)
            assert t.counts("three", at=at) == {row: 1 for row, count in here.items() if count >= 3}
            assert t.counts("one", at=at) == {row: 1 for row, count in here.items() if count >= 1}
            assert t.counts("clipped", at=at) == {row: max(-1, min(2, count)) for row, count in here.items()}
            assert t.counts("positive", at=at) == {row: count for row, count in here.items() if count > 0}
            value = here
            for _ in range(4):
                swapped = Counter(value)
                for (a, b), count in value.items():
                    swapped[b, a] += count
                value = {row: 1 for row, count in swapped.items() if count >= 3}
            assert t.counts("loop", at=at) == value


def test_wrong_thresholds() -> None:
    rows = vn.App("wrong").source("s", Pair)
    for copies in (0, -1, True, "many", None):
        with pytest.raises(vn.ProgramError, match="threshold takes"):
            rows.threshold(copies)  # type: ignore[arg-type]
    app = vn.App("fails")
    app.view("v", app.source("s", Pair).threshold(lambda counts: counts / 2))
    with vn.testing.run(app) as t:
        t.insert("s", (1, 2), at=1)
        with pytest.raises(UserCodeFailed, match=r"threshold at .*test_reduce\.py.*one integer for each.*\[1\]"):
            t.finish()
