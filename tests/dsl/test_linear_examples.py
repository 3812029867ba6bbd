"""The worked examples of "Generalizing linear operators", run by the engine: each linear operator is a join with the
collection of what its function makes of each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vernier as vn
from vernier import col
from vernier.operators.language.collection.collection import Collection
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED

LARGEST = 9
Update = tuple[int, int, int]
"""(data, time, diff)."""


class Number(vn.Schema):
    x: vn.Int64


class Value(vn.Schema):
    value: vn.Int64


class Made(vn.Schema):
    x: vn.Int64
    value: vn.Int64


CHANGES = [((3,), 6, +1), ((3,), 8, +1), ((2,), 8, +1), ((3,), 9, -2), ((9,), 30, +1), ((5,), 17, +1), ((0,), 1, +1)]
"""The article's own changes, of 3 and 2 for its two names, and some more."""


def many(logic: Callable[[int], list[Update]]) -> Callable[[Any], vn.Produced]:
    """A function for `join_function` from the article's own form, a function of one record."""

    def function(rows: Any) -> vn.Produced:
        made = [(row, *one) for row, x in enumerate(rows.x.tolist()) for one in logic(x)]
        row, value, time, diff = (np.array([one[at] for one in made], np.int64) for at in range(4))
        return vn.Produced({"value": value}, row=row, time=time, diff=diff)

    return function


def copies(rows: Any) -> vn.Produced:
    """The article's example: x copies of 2 x from time 3 x until 4 x."""
    row, x = np.tile(np.arange(len(rows.x)), 2), np.tile(rows.x, 2)
    time = np.concatenate((3 * rows.x, 4 * rows.x))
    return vn.Produced({"value": 2 * x}, row=row, time=time, diff=np.concatenate((rows.x, -rows.x)))


OPERATORS: dict[str, tuple[Callable[[Collection], Collection], Callable[[int], list[Update]]]] = {
    "map": (lambda rows: rows.select(value=col("x") * 10), lambda x: [(10 * x, 0, 1)]),
    "filter": (
        lambda rows: rows.filter(col("x") > 2).select(value="x"),
        lambda x: [(x, 0, 1)] if x > 2 else [],
    ),
    "flat_map": (
        lambda rows: rows.flat_map(vn.generate_series(1, col("x"))).select("value"),
        lambda x: [(i, 0, 1) for i in range(1, x + 1)],
    ),
    "explode": (
        lambda rows: vn.union(rows.map_diff(col("x")), rows.with_columns(x=col("x") + 100).negate()).select(value="x"),
        lambda x: [(x, 0, x), (x + 100, 0, -1)],
    ),
    "temporal filter": (
        lambda rows: rows.valid_between(2 * col("x"), 4 * col("x")).select(value="x"),
        lambda x: [(x, 2 * x, 1), (x, 4 * x, -1)],
    ),
    "join_function": (
        lambda rows: rows.join_function(copies, returns=Value, times="at"),
        lambda x: [(2 * x, 3 * x, x), (2 * x, 4 * x, -x)],
    ),
    "three operators": (
        lambda rows: rows.valid_between(3 * col("x"), 4 * col("x")).map_diff(col("x")).select(value=2 * col("x")),
        lambda x: [(2 * x, 3 * x, x), (2 * x, 4 * x, -x)],
    ),
}


def run(app: vn.App, **inputs: list[tuple[tuple[int, ...], int, int]]) -> dict[str, object]:
    """The changes of all views."""
    with vn.testing.run(app, epochs=[7, 8, 20]) as t:
        for name, changes in inputs.items():
            t.update(name, changes)
        t.finish()
        return {name: t.changes(name, until=CLOSED) for name in app.views}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_a_join_with_large(name: str) -> None:
    operator, logic = OPERATORS[name]
    app = vn.App("linear")
    rows, large = app.source("rows", Number), app.source("large", Made)
    app.view("operator", operator(rows))
    app.view("join", rows.join(large, on="x").select("value"))
    made = [((x, value), time, diff) for x in range(LARGEST + 1) for value, time, diff in logic(x)]
    found = run(app, rows=CHANGES, large=[one for one in made if one[2]])
    assert found["operator"] == found["join"] != []


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_is_an_instance_of_join_function(name: str) -> None:
    operator, logic = OPERATORS[name]
    app = vn.App("instances")
    rows = app.source("rows", Number)
    app.view("operator", operator(rows))
    app.view("general", rows.join_function(many(logic), returns=Value, times="at"))
    found = run(app, rows=CHANGES)
    assert found["operator"] == found["general"] != []


def test_operators_and_join_function_fuse_into_one_pass() -> None:
    app = vn.App("fused")
    rows = app.source("rows", Number).filter(col("x") > 0).join_function(copies, returns=Value, times="at")
    app.view("made", rows.flat_map(vn.generate_series(1, col("value"), name="i")).select("i").map_diff(2))
    linear = [op for op in compile_app(app).explain()["operators"] if op["kind"] == "linear"]
    assert [op["name"] for op in linear] == ["filter → join_function → generate_series → select → repeat_row"]


def test_the_documented_example_of_join_function() -> None:
    """x copies of 2 x from time 3 x until 4 x, for x from 0 through 9."""
    app = vn.App("example")
    app.view("copies", OPERATORS["join_function"][0](app.source("rows", Number)))
    found = run(app, rows=[((x,), 0, 1) for x in range(10)])["copies"]
    each = [one for x in range(1, 10) for one in (((2 * x,), 3 * x, x), ((2 * x,), 4 * x, -x))]
    assert found == sorted(each, key=lambda one: (one[1], one[0]))


@pytest.mark.parametrize("name", OPERATORS)
def test_it_is_linear(name: str) -> None:
    """OP(x + y) = OP(x) + OP(y)."""
    operator, _ = OPERATORS[name]
    app = vn.App("linear")
    x, y = app.source("x", Number), app.source("y", Number)
    app.view("of_sum", operator(x.union(y)))
    app.view("sum", operator(x).union(operator(y)))
    found = run(app, x=CHANGES[::2], y=CHANGES[1::2])
    assert found["of_sum"] == found["sum"] != []


def test_a_sequence_is_one_function() -> None:
    """The article's `followed_by`: three operators in sequence are one whose times are joined and diffs multiplied."""

    def logic(x: int) -> list[Update]:
        once = [(2 * x, 3 * x, x), (2 * x, 4 * x, -x)]
        then = [(one, max(time, 20), diff) for one, time, diff in once if one > 4]
        return [(i, time, diff) for one, time, diff in then for i in range(1, one + 1)]

    app = vn.App("fused")
    rows, large = app.source("rows", Number), app.source("large", Made)
    first = OPERATORS["join_function"][0](rows).rename(value="x")
    second = first.filter(col("x") > 4).valid_between(vn.lit(20))
    app.view("operator", second.flat_map(vn.generate_series(1, col("x"))).select("value"))
    app.view("join", rows.join(large, on="x").select("value"))
    made = [((x, value), time, diff) for x in range(LARGEST + 1) for value, time, diff in logic(x)]
    found = run(app, rows=CHANGES, large=made)
    assert found["operator"] == found["join"] != []
