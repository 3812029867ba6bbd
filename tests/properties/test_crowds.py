"""Many updates of few keys and many keys at once: where joins replay histories and sorts change their way."""

from __future__ import annotations

import random

import pytest

import vernier as vn
from tests.oracle.model import Change, accumulate, changes, collection_at, evaluate
from tests.oracle.plan import Aggregate, Distinct, Group, Join, Node, Source, Union, columns, fixpoint, item
from tests.profiles import no_timeout, seeds
from tests.properties.engine import run
from tests.properties.programs import KNOWN, Edge, known_programs
from vernier import col


def crowd(choose: random.Random, count: int, keys: int, values: int) -> list[Change]:
    """Rows of few keys that come and go at many times, some of them more than once at a time."""
    updates: list[Change] = []
    for time in range(count):
        row = (choose.randrange(keys), choose.randrange(values))
        updates.append((row, time // 2, choose.choice((1, 1, -1, 2))))
        if choose.random() < 0.6:
            updates.append((choose.choice(updates)[0], time // 2, -1))
    return updates


A, B = Source("a"), Source("b")
PAIRS = Join(A, B, columns(0), columns(0), lambda one, two: (one[1], two[1]))


def round_and_round(around: Node) -> tuple[Node]:
    """A loop whose join meets long histories in several rounds."""
    return (Distinct(Union((A, Join(around, B, columns(1), columns(0), lambda one, two: (one[0], two[1]))))),)


VIEWS: dict[str, Node] = {
    "pairs": PAIRS,
    "bounds": Group(A, columns(0), (Aggregate("min", item(1)), Aggregate("max", item(1)), Aggregate("sum", item(1)))),
    "counts": Group(PAIRS, columns(0), (Aggregate("count"),)),
    "around": fixpoint((A,), round_and_round, max_rounds=4, truncate=True)[0],
}


def crowded() -> vn.App:
    """The same in the product."""
    app = vn.App("crowded")
    a, b = app.source("a", Edge), app.source("b", Edge)
    pairs = a.join(b.rename(dst="other"), on="src").select(left=col("dst"), right=col("other"))
    app.view("pairs", pairs)
    app.view("bounds", a.group_by("src").agg(lo=vn.min("dst"), hi=vn.max("dst"), total=vn.sum("dst")))
    app.view("counts", pairs.group_by("left").agg(n=vn.count()))

    @vn.fixpoint(max_rounds=4, on_limit="truncate")
    def around(x: vn.Collection) -> vn.Collection:
        onwards = x.join(b.rename(src="via", dst="end"), left_on="dst", right_on="via").select("src", dst=col("end"))
        return a.union(onwards).distinct()

    app.view("around", around(a))
    return app


@no_timeout
@pytest.mark.parametrize("keys", [1, 3])
def test_few_keys_with_long_histories(keys: int) -> None:
    app = crowded()
    for seed in seeds(2):
        choose = random.Random(seed)
        updates = {"a": crowd(choose, 220, keys, 6), "b": crowd(choose, 220, keys, 6)}
        expected = {name: changes(plan, updates) for name, plan in VIEWS.items()}
        cuts = choose.choice(([], [60], [40, 41, 90]))
        for workers, slice_updates in ((1, 100_000), (2, 300), (1, 64)):
            found = run(app, updates, cuts=cuts, workers=workers, slice_updates=slice_updates)
            for name, plan in expected.items():
                assert found[name] == plan, f"seed {seed}, {name}, {workers} workers, slices of {slice_updates}"


@no_timeout
@pytest.mark.parametrize(("workers", "slice_updates"), [(1, 100_000), (2, 1024), (3, 200)])
def test_many_keys(workers: int, slice_updates: int) -> None:
    """A graph of 800 nodes and 4,000 changes, looked at at some of its times."""
    choose = random.Random(workers)
    edges: list[Change] = []
    held: list[tuple[int, int]] = []
    for time in range(2600):
        edge = (choose.randrange(800), choose.randrange(800))
        held.append(edge)
        edges.append((edge, time, 1))
        if len(held) > 1200:
            edges.append((held.pop(choose.randrange(len(held))), time, -1))
    updates: dict[str, list[Change]] = {"edges": edges, "roots": [((node,), 7 * node, 1) for node in range(20)]}
    names = ("reach", "bfs", "histogram", "even", "self_join", "fed")
    app = known_programs(names)
    found = run(app, updates, cuts=[1000, 1001, 2400], workers=workers, slice_updates=slice_updates)
    for time in (0, 1000, 1777, 2599):
        sources = {name: collection_at(part, time) for name, part in updates.items()}
        for name in names:
            rows = accumulate((row, diff) for row, at, diff in found[name] if at <= time)
            assert rows == evaluate(KNOWN[name].oracle, sources), f"{name} at {time}"
