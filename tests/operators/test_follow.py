"""Counts outside loops, which move on from a few numbers a key: against a recount at every time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import vernier as vn
from vernier.operators.engine.local import LocalEngine
from vernier.operators.failures import AggregateOverflow
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

Changes = dict[tuple[int, int, int], int]


class Pair(vn.Schema):
    """A row of two numbers."""

    a: vn.Int64
    b: vn.Int64


def program() -> vn.App:
    """How many rows each a has, how many a have how many, and how many rows there are of each."""
    app = vn.App("counts", retain="1us")
    pairs = app.source("pairs", Pair)
    counts = pairs.group_by("a").agg(n=vn.count())
    app.view("counts", counts)
    app.view("histogram", counts.group_by("n").agg(keys=vn.count()))
    app.view("copies", pairs.select("b").group_by("b").agg(n=vn.count()))
    return app


def recounted(log: list[tuple[int, int, int, int]]) -> dict[str, Changes]:
    """What the views must change, (row, time) to by how much: a group is there while its count is not 0."""
    found: dict[str, Changes] = {"counts": {}, "histogram": {}, "copies": {}}
    held: Counter[tuple[int, int]] = Counter()
    before: dict[str, Counter[tuple[int, int]]] = {name: Counter() for name in found}
    for time in sorted({time for _, _, time, _ in log}):
        for a, b, at, diff in log:
            if at == time:
                held[a, b] += diff
        there = [row for row, copies in held.items() if copies]
        counts = {a: n for a in {a for a, _ in there} if (n := sum(held[row] for row in there if row[0] == a))}
        copies = Counter({b: sum(held[row] for row in there if row[1] == b) for _, b in there})
        now = {
            "counts": Counter(dict.fromkeys(counts.items(), 1)),
            "histogram": Counter(dict.fromkeys(Counter(counts.values()).items(), 1)),
            "copies": Counter({(b, n): 1 for b, n in copies.items() if n}),
        }
        for name, rows in now.items():
            for row in {*rows, *before[name]}:
                if rows[row] != before[name][row]:
                    found[name][(*row, time)] = rows[row] - before[name][row]
        before = now
    return found


@pytest.mark.parametrize("slice_updates", [0, 7, 300])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["sets", "bags", "debts"])
def test_counts_are_those_of_the_rows_at_each_time(kind: str, workers: int, slice_updates: int) -> None:
    choose = random.Random(f"{kind} {workers} {slice_updates}")
    log: list[tuple[int, int, int, int]] = []
    held: Counter[tuple[int, int]] = Counter()
    for i in range(900):
        # Some groups are much larger than others, and several updates share a time.
        row = (choose.choice([0, 0, choose.randrange(40)]), choose.randrange(25))
        diff = -1 if held[row] > 0 else 1
        if kind == "bags":
            diff = choose.choice([1, 3, -min(2, held[row])])
        elif kind == "debts":
            diff = choose.choice([1, -1, 2, -2])
        held[row] += diff
        if diff:
            log.append((*row, i // choose.choice([1, 1, 3]), diff))
    found: dict[str, Counter[tuple[int, int, int]]] = {}
    with LocalEngine(compile_app(program()), workers, slice_updates=slice_updates) as engine:
        lower = MIN_TIME
        for upper in (150, 160, 700, CLOSED):
            part = [one for one in log if lower <= one[2] < upper]
            updates = Updates.of([one[:2] for one in part], [one[2] for one in part], [one[3] for one in part])
            for name, changes in engine.run_epoch(lower, upper, {"pairs": updates}).items():
                assert changes.data.tolist() == changes.consolidate().data.tolist()
                for *row, diff in changes.data.tolist():
                    found.setdefault(name, Counter())[tuple(row)] += diff
            lower = upper
    assert {name: dict(changes) for name, changes in found.items()} == recounted(log)


@pytest.mark.parametrize("rows", [[(1, 1), (1, 2)], [(1, 1), (2, 1)]])
def test_counts_that_do_not_fit_are_refused(rows: list[tuple[int, int]]) -> None:
    with LocalEngine(compile_app(program())) as engine:
        engine.run_epoch(0, 5, {"pairs": Updates.of([rows[0]], [0], [2**63 - 1])})
        with pytest.raises(AggregateOverflow):
            engine.run_epoch(5, 9, {"pairs": Updates.of([rows[1]], [5], [1])})
