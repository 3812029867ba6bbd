"""Reductions by a logic: the same answers as the kernel's at every time, in and out of loops, however waves are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import vernier as vn
from tests.profiles import examples
from tests.properties import plans
from tests.properties.engine import run
from tests.properties.plans import GROUPS, InVernier, LoopStep, Steps, build
from tests.properties.test_plans import Case, cases, in_engine, last
from vernier import col
from vernier.operators.group_functions.rows import ReduceRows
from vernier.operators.language.collection import grouping
from vernier.operators.physical import reduce_batched
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import BatchedReduceOp
from vernier.storage.errors import CallerError

Rows = list[tuple[tuple[Any, ...], int]]


class SteadyRows(ReduceRows):
    """A function that may be asked again, so that nothing is kept of what it said outside loops."""

    steady: ClassVar[bool] = True


class InWaves(InVernier):
    """Plans whose groups and distincts are functions of rows."""

    def distinct(self, node: vn.Collection) -> vn.Collection:
        def present(key: tuple[Any, ...], rows: Rows) -> Iterator[tuple[Any, ...]]:
            if rows[0][1] > 0:
                yield (0,)

        return node.reduce(present, keys=["a", "b"], returns=returning("zero")).select("a", "b")

    def group(self, node: vn.Collection, kind: str) -> vn.Collection:
        keys, aggregates, output = GROUPS[kind]
        plain = [key for key, of in keys.items() if key == of]
        named = {key: col(of) for key, of in keys.items() if key != of}
        seen = [name for name in ("a", "b") if name not in plain]

        def totals(key: tuple[Any, ...], rows: Rows) -> Iterator[tuple[Any, ...]]:
            made = []
            for function, of in aggregates.values():
                here = {"a": key[0], **dict(zip(plain, key))}
                values = [(({**here, **dict(zip(seen, row))}[of]) if of else 0, count) for row, count in rows]
                made.append(FUNCTIONS[function](values))
            # A group of linear aggregates alone exists while one of them, or the number of its rows, is not 0.
            linear = {function for function, _ in aggregates.values()} <= {"count", "sum"}
            if None not in made and not (linear and not any((sum(count for _, count in rows), *made))):
                yield tuple(made)

        reduced = node.group_by(*plain, **named).reduce(totals, returns=returning(*aggregates))
        return reduced.select(a=col(output[0]), b=col(output[1]))


FUNCTIONS: dict[str, Callable[[list[tuple[int, int]]], int | None]] = {
    "count": lambda values: sum(count for _, count in values),
    "sum": lambda values: sum(value * count for value, count in values),
    "min": lambda values: min((value for value, count in values if count > 0), default=None),
    "max": lambda values: max((value for value, count in values if count > 0), default=None),
}


def returning(*names: str) -> type[vn.Schema]:
    """A schema of integers."""
    return type("Returned", (vn.Schema,), {"__annotations__": dict.fromkeys(names, vn.Int64)})


def same(steps: Steps, case: Case, wave_rows: int, steady: bool) -> None:
    """The plan with the kernel's reductions and the plan with functions change alike; or both fail alike."""
    try:
        expected: Any = in_engine(steps, case)
    except CallerError:
        reject()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce_batched, "WAVE_ROWS", wave_rows)
        patch.setattr(grouping, "ReduceRows", SteadyRows if steady else ReduceRows)
        language = InWaves(case.retain)
        for name, collection in last(build(steps, language), case).items():
            language.app.view(name, collection, key=case.key)
        found = run(
            language.app, case.updates, cuts=case.cuts, workers=case.workers, slice_updates=case.slice_updates,
            between=case.between,
        )  # fmt: skip
    assert found == expected


small = st.sampled_from((1, 2, 5, 1 << 16))


@examples(60)
@given(plans.plans(4), cases(), small, st.booleans())
def test_outside_loops(steps: Steps, case: Case, wave_rows: int, steady: bool) -> None:
    same(steps, case, wave_rows, steady)


@examples(100)
@given(plans.loop_steps(len(plans.SOURCES), 2), cases(), small, st.booleans())
def test_in_loops(loop: LoopStep, case: Case, wave_rows: int, steady: bool) -> None:
    same((loop,), case, wave_rows, steady)


def test_many_rows_a_key_and_several_outputs() -> None:
    """Every row of a key gets its rank: answers grow with the key, and a wave ends in the middle of its times."""
    app = vn.App("ranks")

    def ranks(key: tuple[int, ...], rows: Rows) -> Iterator[Any]:
        for rank, (row, count) in enumerate(sorted(rows)):
            yield (*row, rank), count

    app.view("v", app.source("s", plans.Pair).reduce(ranks, keys="a", returns=returning("b", "rank")))
    updates = [((i % 2, i * 7 % 31), i // 3, 1) for i in range(60)]
    with pytest.MonkeyPatch.context() as patch, vn.testing.run(app, epochs=[7]) as t:
        patch.setattr(reduce_batched, "WAVE_ROWS", 10)
        t.update("s", updates)
        t.finish()
        for at in range(20):
            truth: dict[tuple[int, int], int] = {}
            for row, time, _ in updates:
                if time <= at:
                    truth[row] = truth.get(row, 0) + 1
            expected = {}
            for a in (0, 1):
                for rank, row in enumerate(sorted(row for row in truth if row[0] == a)):
                    expected[*row, rank] = truth[row]
            assert t.counts("v", at=at) == expected


def test_user_code_keeps_what_it_said_and_is_not_asked_twice() -> None:
    asked: list[tuple[Any, ...]] = []

    def one(key: tuple[Any, ...], rows: Rows) -> list[tuple[int]]:
        asked.append((key, rows))
        return [(len(rows),)]

    app = vn.App("once")
    app.view("v", app.source("s", plans.Pair).reduce(one, keys=["a"], returns=returning("n")))
    (op,) = [op for op in compile_app(app).ops if isinstance(op, BatchedReduceOp)]
    assert op.trace is not None
    with vn.testing.run(app) as t:
        t.insert("s", (1, 1), at=1)
        t.advance(2)
        t.insert("s", (1, 2), at=2)
        t.finish()
        assert t.changes("v") == [((1, 1), 1, 1), ((1, 1), 2, -1), ((1, 2), 2, 1)]
    assert asked == [((1,), [((1,), 1)]), ((1,), [((1,), 1), ((2,), 1)])]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda key, rows: 1 / 0, "ZeroDivisionError"),
        (lambda key, rows: [("text",)], "what it returned is not (n: Int64)"),
        (lambda key, rows: [7], "it must return tuples, not 7"),
    ],
)
def test_failures_of_user_code_name_the_line_and_a_sample(function: Any, said: str) -> None:
    app = vn.App("fails")
    app.view("v", app.source("s", plans.Pair).reduce(function, keys=["a"], returns=returning("n")))
    with vn.testing.run(app) as t:
        t.insert("s", (1, 5), at=1)
        with pytest.raises(vn.VernierError, match=r"test_waves\.py") as caught:
            t.finish()
    assert said in str(caught.value)


def test_what_is_wrong_with_a_reduce_is_told_when_it_is_built() -> None:
    rows = vn.App("wrong").source("s", plans.Pair)
    wrong: list[Callable[[], object]] = [
        lambda: rows.reduce(7, keys=["a"], returns=returning("n")),  # type: ignore[arg-type]
        lambda: rows.reduce(len, keys=["a"], returns=int),  # type: ignore[arg-type]
        lambda: rows.reduce(len, keys=["a"], returns=returning("a")),  # type: ignore[arg-type]
        lambda: rows.reduce(len, keys=["c"], returns=returning("n")),  # type: ignore[arg-type]
    ]
    for build_it in wrong:
        with pytest.raises(vn.ProgramError, match="test_waves"):
            build_it()


def test_explain_says_which_form_a_reduction_has() -> None:
    app = vn.App("forms")
    rows = app.source("s", plans.Pair)

    @vn.fixpoint(max_rounds=3, on_limit="truncate")
    def loop(x: vn.Collection) -> vn.Collection:
        return InWaves.distinct(InWaves(), x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "ReduceRows", SteadyRows)
        app.view("v", InWaves.distinct(InWaves(), rows))
        app.view("w", loop(rows))
    forms = [op["form"] for op in compile_app(app).explain()["operators"] if op["kind"] == "reduce"]
    assert forms == ["total", "general"]
