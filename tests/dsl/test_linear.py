"""Row-wise operators that make many rows of one, and that running a chain at once changes no answer."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.failures import SeriesTooLong, UserCodeFailed
from vernier.operators.language.expr.functions import function_key
from vernier.operators.physical.stages import compile_stage
from vernier.operators.planning.ops import LinearOp
from vernier.operators.planning.planner import compile_app
from vernier.storage.diff import multiply
from vernier.storage.errors import DiffOverflow

Update = tuple[tuple[Any, ...], int, int]


class Span(vn.Schema):
    low: vn.Int64
    high: vn.Int64 | None


class Word(vn.Schema):
    key: vn.Int64
    part: vn.Int64 | None


def answer(build: Callable[[vn.Collection], vn.Collection], updates: Sequence[Update]) -> list[Update]:
    """The changes of one view over one source."""
    app = vn.App("t")
    app.view("v", build(app.source("s", Span)))
    with vn.testing.run(app) as t:
        t.update("s", updates)
        t.finish()
        return t.changes("v")


def test_a_series_includes_its_end_and_adds_a_column() -> None:
    updates = [((1, 3), 5, 2), ((4, 3), 5, 1), ((7, None), 6, 1), ((1, 3), 9, -2)]
    found = answer(lambda s: s.flat_map(vn.generate_series("low", "high", name="n")), updates)
    rows = [(1, 3, 1), (1, 3, 2), (1, 3, 3)]
    assert found == [*((row, 5, 2) for row in rows), *((row, 9, -2) for row in rows)]


@pytest.mark.parametrize(
    ("low", "high", "step", "wanted"),
    [
        (1, 6, 2, [1, 3, 5]),
        (6, 1, -2, [2, 4, 6]),
        (6, 1, 2, []),
        (-(2**63), 2**63 - 1, 2**62, [-(2**63), -(2**62), 0, 2**62]),
        (2**63 - 1, 2**63 - 1, 2**63 - 1, [2**63 - 1]),
        (2**63 - 1, -(2**63), -(2**63), [-1, 2**63 - 1]),
    ],
)
def test_a_series_in_steps(low: int, high: int, step: int, wanted: list[int]) -> None:
    found = answer(lambda s: s.flat_map(vn.generate_series("low", "high", step)).select("value"), [((low, high), 1, 1)])
    assert [row[0] for row, _, _ in found] == wanted


def test_a_series_of_times_and_one_too_long() -> None:
    class Shift(vn.Schema):
        start: vn.TimestampNs
        stop: vn.TimestampNs

    app = vn.App("t")
    app.view("v", app.source("s", Shift).flat_map(vn.generate_series("start", "stop", "1h")).select("value"))
    with vn.testing.run(app) as t:
        t.insert("s", (0, 2 * 3600 * 10**9), at=1)
        t.finish()
        assert t.rows("v") == [(0,), (3600 * 10**9,), (7200 * 10**9,)]
    with pytest.raises(SeriesTooLong, match="from 0 to 1000000000000 by 1"):
        answer(lambda s: s.flat_map(vn.generate_series("low", "high")), [((0, 10**12), 1, 1)])
    with pytest.raises(SeriesTooLong, match="a step of 0"):
        answer(lambda s: s.flat_map(vn.generate_series("low", "high", "low")), [((0, 5), 1, 1)])
    with pytest.raises(vn.ProgramError, match="would never end"):
        vn.generate_series("low", "high", 0)


def test_multiplicities_multiply() -> None:
    updates = [((3, 1), 2, 2), ((0, 1), 2, 5), ((-1, None), 3, 1)]
    assert answer(lambda s: s.flat_map(vn.repeat_row("low")), updates) == [((3, 1), 2, 6), ((-1, None), 3, -1)]
    assert answer(lambda s: s.map_diff(col("high") * 4), updates) == [((0, 1), 2, 20), ((3, 1), 2, 8)]
    assert answer(lambda s: s.map_diff(-1).map_diff(-2), [((1, 1), 1, 3)]) == [((1, 1), 1, 6)]


def test_a_product_of_multiplicities_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(DiffOverflow, match="multiplication"):
        answer(lambda s: s.map_diff(2**40).map_diff(2**40).filter(col("low") > 1), [((1, 1), 1, 1)])


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_multiplication_is_exact_or_an_error(pairs: list[tuple[int, int]]) -> None:
    fits = all(-(2**63) <= a * b < 2**63 for a, b in pairs)
    a, b = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    if fits:
        assert multiply(a, b).tolist() == [x * y for x, y in pairs]
    else:
        with pytest.raises(DiffOverflow):
            multiply(a, b)


def test_flat_map_of_a_function() -> None:
    def parts(row: Any) -> Iterator[Any]:
        for n in range(row.low):
            yield (n, row.high)
        if row.high is None:
            yield {"part": None, "key": -1}

    updates = [((2, 7), 4, 1), ((0, None), 5, 3), ((2, 7), 8, -1)]
    wanted = [((0, 7), 4, 1), ((1, 7), 4, 1), ((-1, None), 5, 3), ((0, 7), 8, -1), ((1, 7), 8, -1)]
    assert answer(lambda s: s.flat_map(parts, returns=Word), updates) == wanted


def _breaks(row: Any) -> list[Any]:
    return [(1 // row.low, 1)]


def _texts(row: Any) -> list[Any]:
    return [(1, 1)] if row.low else [("a", 1)]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_breaks, r"test_linear.py:\d+: the function _breaks failed: ZeroDivisionError.*Row\(low=0, high=None\)"),
        (_texts, r"_texts failed: it returned \('a', 1\): column key.*example, \(0, None\)"),
        (lambda row: [5], "it returned 5, but each row must be a tuple or a dict"),
        (lambda row: [{"key": 1}], "without 'part'"),
    ],
)
def test_a_function_that_fails_is_named_with_its_input(function: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(UserCodeFailed, match=said):
        answer(lambda s: s.flat_map(function, returns=Word), [((1, 1), 1, 1), ((0, None), 2, 1)])


def test_mistakes_are_told_when_the_program_is_built() -> None:
    import random

    spans = vn.App("t").source("s", Span)
    with pytest.raises(vn.ProgramError, match="needs the schema of the rows"):
        spans.flat_map(lambda row: [])
    with pytest.raises(vn.ProgramError, match="flat_map takes a function, not 3"):
        spans.flat_map(3, returns=Word)  # type: ignore[arg-type]
    with pytest.raises(vn.ProgramError, match="uses random"):
        spans.flat_map(lambda row: [(random.randint(1, 5), 1)], returns=Word)
    with pytest.raises(vn.ProgramError, match="did you mean 'low'"):
        spans.flat_map(vn.generate_series("lo", "high"))
    with pytest.raises(vn.ProgramError, match="start and a stop of one type"):
        spans.flat_map(vn.generate_series(col("low").cast(vn.Float64), "high"))


def test_functions_are_the_same_when_they_do_the_same() -> None:
    def adder(n: int) -> Callable[[int], int]:
        return lambda x: x + n

    assert function_key(adder(1)) == function_key(adder(1)) != function_key(adder(2))
    assert function_key(lambda x: x + 1) != function_key(lambda x: x - 1)


class Basket(vn.Schema):
    buyer: vn.Int64
    items: vn.List(vn.String | None) | None  # type: ignore[valid-type]
    day: vn.Int64


@pytest.mark.parametrize("workers", [1, 2])
def test_explode_gives_a_row_for_each_element(workers: int) -> None:
    long = "a text that is longer than fifteen bytes"
    app = vn.App("t")
    baskets = app.source("s", Basket)
    app.view("v", baskets.explode("items", name="item", index_name="at"))
    app.view("n", baskets.explode("items").group_by("items").agg(n=vn.count()))
    with vn.testing.run(app, workers=workers, epochs=[3]) as t:
        t.insert("s", (1, ["x", long, None, "x"], 7), at=1)
        t.insert("s", (2, [], 8), at=2)
        t.insert("s", (3, None, 9), at=2)
        t.insert("s", (4, [long], 9), at=4)
        t.delete("s", (1, ["x", long, None, "x"], 7), at=5)
        t.finish()
        assert t.rows("v", at=4) == [(1, None, 2, 7), (1, long, 1, 7), (1, "x", 0, 7), (1, "x", 3, 7), (4, long, 0, 9)]
        assert t.rows("n", at=4) == [(None, 1), (long, 2), ("x", 2)]
        assert t.rows("v") == [(4, long, 0, 9)]
    with pytest.raises(vn.ProgramError, match="explode takes a List, but column 'day' is Int64"):
        baskets.explode("day")


def test_functions_of_rows_read_and_make_long_texts() -> None:
    class Name(vn.Schema):
        name: vn.String

    app = vn.App("t")
    shout = app.source("s", Name).flat_map(lambda row: [(part + "!" * 20,) for part in row.name.split()], returns=Name)
    app.view("v", shout)
    with vn.testing.run(app, workers=2) as t:
        t.insert("s", ("a long name of several parts",), at=1)
        t.finish()
        assert t.rows("v") == sorted((part + "!" * 20,) for part in ["a", "long", "name", "of", "several", "parts"])


# --- fusing ---------------------------------------------------------------------------------------------------------

STEPS: list[Callable[[vn.Collection], vn.Collection]] = [
    lambda c: c.filter(col("low") > 0),
    lambda c: c.filter(col("high") < 3),
    lambda c: c.select(low="high", high="low").filter(col("low").is_not_null()).cast(low=vn.Int64),
    lambda c: c.with_columns(low=col("low") * 2 - 1),
    lambda c: c.negate(),
    lambda c: c.map_diff("low"),
    lambda c: c.flat_map(vn.generate_series("low", 2, name="n")).select(low="n", high="high"),
    lambda c: c.flat_map(lambda row: [(row.low, row.high), (row.low + 1, None)], returns=Span),
]


@given(
    st.lists(st.integers(0, len(STEPS) - 1), max_size=6),
    st.lists(
        st.tuples(st.tuples(st.integers(-2, 4), st.none() | st.integers(-2, 4)), st.integers(0, 5), st.integers(-2, 2)),
        max_size=8,
    ),
)
def test_fusing_changes_no_answer(steps: list[int], updates: list[Update]) -> None:
    def build(cut: bool) -> vn.App:
        app = vn.App("t")
        collection = app.source("s", Span)
        for number, step in enumerate(steps):
            if cut:
                app.view(f"cut{number}", collection)  # another operator reads it, so it cannot fuse
            collection = _loose(STEPS[step](collection))
        app.view("v", collection)
        return app

    def changes(app: vn.App) -> list[Update]:
        with vn.testing.run(app) as t:
            t.update("s", updates)
            t.finish()
            return t.changes("v")

    whole = build(cut=False)
    assert sum(isinstance(op, LinearOp) for op in compile_app(whole).ops) <= 1
    assert changes(whole) == changes(build(cut=True))


def _loose(collection: vn.Collection) -> vn.Collection:
    """With the columns of Span, whatever a step has done to their nullability."""
    if collection.schema.field("low").nullable:
        collection = collection.filter(col("low").is_not_null()).flat_map(lambda row: [row], returns=Span)
    return collection.cast(high=vn.Int64 | None)


def test_conditions_on_a_join_run_where_they_cost_least() -> None:
    app = vn.App("t")
    left, right = app.source("l", Span), app.source("r", Word)
    pairs = left.join(
        right,
        left_on="low",
        right_on="key",
        where=(col("low") > 1)
        & (col("high") > 2)
        & (col("part") < 9)
        & (col("high") > col("part"))
        & (col("low") / 2 > 0),
    )
    app.view("v", pairs.select("high", total=col("low") + col("part")))
    plan = compile_app(app)
    assert [op["name"] for op in plan.explain()["operators"] if op["kind"] in ("linear", "join")] == [
        "filter → filter → filter",
        "filter",
        "join on low = key → filter → compute",
    ]
    assert {op["fused"] for op in plan.explain()["operators"] if op["kind"] == "join"} == {3}
    updates = [((low, high), 1, 1) for low in range(4) for high in (1, 3, 5)]
    with vn.testing.run(app, workers=2) as t:
        t.update("l", updates)
        t.update("r", [((key, part), 2, 1) for key in range(4) for part in (None, 2, 4, 9)])
        t.finish()
        wanted = [(h, low + p) for (low, h), _, _ in updates for p in (2, 4) if low > 1 and h > 2 and h > p]
        assert t.rows("v") == sorted(wanted)


def test_conditions_behind_a_choice_of_columns_reach_the_join() -> None:
    app = vn.App("t")
    left, right = app.source("l", Span), app.source("r", Word)
    chosen = left.join(right, left_on="low", right_on="key").select(top="high", part="part", twice=col("low") * 2)
    app.view("v", chosen.filter(vn.when(col("top") > 2, col("top")).otherwise(0) > 3, col("part") > col("top")))
    pairs = app.source("l2", Span).join(app.source("r2", Word), left_on="low", right_on="key").select("high", "part")
    app.view("w", pairs.filter(col("part").is_null()))
    names = [op.name for op in compile_app(app).ops if type(op).__name__ in ("LinearOp", "JoinOp")]
    assert names == ["filter", "join on low = key → compute → filter", "filter", "join on low = key → select"]
    with vn.testing.run(app, workers=2) as t:
        for name in ("l", "l2"):
            t.update(name, [((low, high), 1, 1) for low in range(3) for high in (None, 1, 4)])
        for name in ("r", "r2"):
            t.update(name, [((key, part), 2, 1) for key in range(5) for part in (None, 2, 4, 9)])
        t.finish()
        assert t.rows("v") == [(4, 9, 0), (4, 9, 2), (4, 9, 4)]
        assert t.rows("w") == [(high, None) for high in (None, 1, 4) for _ in range(3)]


def test_conditions_stay_where_others_read_the_side_or_they_can_raise() -> None:
    app = vn.App("t")
    left, right = app.source("l", Span), app.source("r", Word)
    app.view("other", left)
    pairs = left.join(right, left_on="low", right_on="key", where=(col("low") > 1) & (col("part") * 2 < 9))
    app.view("v", pairs)
    names = [op.name for op in compile_app(app).ops if type(op).__name__ in ("LinearOp", "JoinOp")]
    assert names == ["join on low = key → filter → filter"]


def test_a_chain_is_its_stages_one_after_another() -> None:
    app = vn.App("t")
    app.view(
        "v", app.source("s", Span).flat_map(vn.generate_series("low", "high")).filter(col("value") > 1).map_diff(3)
    )
    plan = compile_app(app)
    chain = next(op for op in plan.ops if isinstance(op, LinearOp))
    assert chain.name == "generate_series → filter → repeat_row"
    scope = Worker(plan).root
    data = np.array([[1, 1, 3, 10, 2], [5, 1, 4, 11, 1]], np.int64)
    for stage in chain.stages:
        data = compile_stage(stage, 2, scope)(data)
    total = Counter({tuple(row[:-1]): row[-1] for row in data.tolist()})
    assert total == {(1, 1, 3, 2, 10): 6, (1, 1, 3, 3, 10): 6}
