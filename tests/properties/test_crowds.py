"""Many updates of few keys and many keys at once: where joins replay histories and sorts change their way."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import pytest

import vernier as vn
from tests.oracle.joins import AsOf, Matched, PrefixSum, except_all
from tests.oracle.model import Change, accumulate, changes, collection_at, evaluate
from tests.oracle.ordering import RowNumber, RunningSum, Sessions, TopK
from tests.oracle.plan import (
    Aggregate,
    Distinct,
    Group,
    Join,
    Node,
    PerKey,
    Project,
    Source,
    Union,
    Whole,
    columns,
    fixpoint,
    item,
)
from tests.oracle.values import By
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


NUMBERED = (By(item(1)),)
ALONG: dict[str, tuple[Node, Callable[[vn.Collection, vn.Collection], vn.Collection]]] = {
    "first": (
        PerKey(A, lambda _: (), TopK(9, (By(item(1), True), By(item(0))))),
        lambda a, b: a.top_k(9, by=[col("dst").desc(), "src"]),
    ),
    "first_of_each": (
        Project(PerKey(A, columns(0), TopK(4, NUMBERED)), columns(1, 2)),
        lambda a, b: a.top_k(4, by="dst", within="src"),
    ),
    "numbers": (
        PerKey(A, lambda _: (), RowNumber(NUMBERED)),
        lambda a, b: a.row_number(by="dst"),
    ),
    "sums": (
        Project(PerKey(A, columns(0), RunningSum(item(1), NUMBERED)), columns(1, 2, 3)),
        lambda a, b: a.running_sum("dst", by="dst", within="src"),
    ),
    "sessions": (
        Project(PerKey(A, columns(0), Sessions(lambda row: int(row[1]), 3)), columns(1, 2, 3, 4)),
        lambda a, b: a.window("dst", session=3, by="src"),
    ),
    "middle": (
        Group(A, columns(0), (Aggregate("quantile", item(1), at=Fraction(1, 2)), Aggregate("count_distinct", item(1)))),
        lambda a, b: a.group_by("src").agg(m=vn.median("dst"), d=vn.count_distinct("dst")),
    ),
    "all": (
        Group(A, columns(), (Aggregate("collect_set", item(1)),)),
        lambda a, b: a.group_by().agg(x=vn.collect_set("dst")),
    ),
    "near": (
        Whole((A, B), AsOf("left", columns(0), columns(0), item(1), item(1), lambda one, two: (*one, two and two[1]))),
        lambda a, b: a.as_of_join(b.rename(dst="d"), on="src", left_time="dst", right_time="d", how="left"),
    ),
    "within": (
        Whole(
            (A, B),
            Matched("anti", columns(0), columns(0), lambda one, two: (), lambda one, two: 0 <= two[1] - one[1] <= 2),
        ),
        lambda a, b: a.interval_join(
            b.rename(dst="d"), on="src", left_time="dst", right_time="d", lower=0, upper=2, how="anti"
        ),
    ),
    "totals": (
        Whole((A, B), PrefixSum(columns(0), columns(0), item(1), item(1), item(1))),
        lambda a, b: a.prefix_sum("dst", at=b, by="dst", within="src", name="total"),
    ),
    "rest": (Whole((A, B), except_all), lambda a, b: a.except_all(b)),
}


@no_timeout
@pytest.mark.parametrize(("workers", "slice_updates", "keys"), [(1, 100_000, 2), (2, 300, 1), (3, 64, 5)])
def test_large_groups_in_order(workers: int, slice_updates: int, keys: int) -> None:
    """Hundreds of rows a group, so that whatever is cut into parts is cut; looked at at some times."""
    app = vn.App("along")
    a, b = app.source("a", Edge), app.source("b", Edge)
    for name, (_, build) in ALONG.items():
        app.view(name, build(a, b))
    for seed in seeds(1):
        choose = random.Random(seed + keys)
        updates = {"a": crowd(choose, 500, keys, 300), "b": crowd(choose, 300, keys, 300)}
        found = run(app, updates, cuts=[100, 101, 200], workers=workers, slice_updates=slice_updates)
        for time in (0, 100, 249):
            sources = {name: collection_at(part, time) for name, part in updates.items()}
            for name, (plan, _) in ALONG.items():
                rows = accumulate((row, diff) for row, at, diff in found[name] if at <= time)
                assert rows == evaluate(plan, sources), f"seed {seed}, {name} at {time}"
