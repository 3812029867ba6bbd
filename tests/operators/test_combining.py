"""What a worker adds up before it sends rows to the owners of their keys changes no answer and no error."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change
from tests.profiles import examples
from tests.properties.engine import run
from vernier.operators.engine.local import LocalEngine
from vernier.operators.failures import AggregateOverflow, MultiplicityOverflow
from vernier.operators.kernels.combining import IS_FLAG, MOST, PLAIN, combine_rows
from vernier.operators.physical import combine
from vernier.operators.planning.planner import compile_app
from vernier.storage.errors import DiffOverflow
from vernier.storage.updates import MIN_TIME, Ints, Updates

FAR = 2**63 - 1
NEVER = 2**62
GATES = np.array([PLAIN, IS_FLAG, 1, IS_FLAG], np.int64)
"""A word that is added up; a null flag and its word; the flag of a word whose values are only counted."""

numbers = st.integers(-3, 3) | st.sampled_from([FAR, -FAR - 1, 2**62, -(2**62), 2**33])
copies = st.integers(-3, 3).filter(bool) | st.sampled_from([MOST, MOST + 1, -MOST, FAR, -FAR - 1, 2**31])
rows_of = st.lists(
    st.tuples(st.integers(0, 1), numbers, st.integers(0, 1), numbers, st.integers(0, 1), st.integers(0, 1), copies),
    min_size=1, max_size=30,
)  # fmt: skip

Sums = dict[tuple[int, int], tuple[int, ...]]


def sums(rows: Ints) -> Sums:
    """Of each key and time: its rows, and what GATES says is added up; without those that are zeros."""
    found: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * 5)
    for key, plain, flag, gated, counted, time, diff in rows.tolist():
        each = diff, plain * diff, flag * diff, flag * gated * diff, counted * diff
        found[key, time] = [before + more for before, more in zip(found[key, time], each, strict=True)]
    return {at: tuple(each) for at, each in found.items() if any(each)}


@given(rows_of)
@examples(400)
def test_fewer_rows_have_the_same_sums(drawn: list[tuple[int, ...]]) -> None:
    rows = np.array(drawn, np.int64)
    combined = combine_rows(rows, 1, GATES, True)
    assert sums(combined) == sums(rows)
    assert len(combined) <= len(rows)
    assert sums(combine_rows(combined, 1, GATES, True)) == sums(rows)


def test_a_key_without_nulls_is_two_rows() -> None:
    rows = np.array([[key, 7 * at, 1, at, 1, 5, 1] for key in range(3) for at in range(100)], np.int64)
    combined = combine_rows(rows, 1, GATES, True)
    assert sorted(combined.tolist()) == sorted(
        row for key in range(3) for row in ([key, 34650, 1, 4950, 1, 5, 1], [key, 0, 1, 0, 1, 5, 99])
    )
    # A vector of the program has no number of rows.
    plain = np.ascontiguousarray(rows[:, [0, 1, 5, 6]])
    assert combine_rows(plain, 1, np.array([PLAIN]), False).tolist() == [[key, 34650, 5, 1] for key in range(3)]


def test_keys_alone_are_added_up_in_every_round() -> None:
    rows = np.array([[1, 5, 0, 2], [1, 5, 1, 1], [1, 5, 0, 3], [1, 5, 1, -1], [2, 5, 0, 1]], np.int64)
    combined = combine_rows(rows, 1, np.empty(0, np.int64), True)
    assert sorted(combined.tolist()) == [[1, 5, 0, 5], [2, 5, 0, 1]]


def test_rows_with_keys_or_times_of_their_own_are_sent_as_they_are() -> None:
    rows = np.column_stack((np.zeros(10_000), np.arange(10_000), np.arange(10_000), np.ones(10_000))).astype(np.int64)
    assert np.shares_memory(combine_rows(rows, 1, np.array([PLAIN]), True), rows)
    many = np.column_stack((np.arange(10_000) // 4, np.arange(10_000), np.zeros(10_000), np.ones(10_000)))
    assert len(combine_rows(many.astype(np.int64), 1, np.array([PLAIN]), True)) == 5_000


class Sale(vn.Schema):
    key: vn.Int64
    shop: vn.String
    value: vn.Int64
    maybe: vn.Int64 | None
    price: vn.Decimal(9, 2) | None  # type: ignore[valid-type]


def program() -> vn.App:
    app = vn.App("sales")
    sales = app.source("sales", Sale)
    app.view("n", sales.group_by("key").agg(n=vn.count()))
    app.view("whole", sales.group_by().agg(n=vn.count()))
    app.view("sum", sales.group_by().agg(total=vn.sum("value")))
    app.view("shops", sales.group_by("shop").agg(n=vn.count()))
    app.view(
        "all",
        sales.group_by("key").agg(
            n=vn.count(), total=vn.sum("value"), mean=vn.avg("value"), some=vn.sum("maybe"), have=vn.count("maybe"),
            usual=vn.avg("maybe"), paid=vn.sum("price"), priced=vn.count("price"),
        ),
    )  # fmt: skip
    app.view("have", sales.group_by("shop").agg(have=vn.count("maybe"), priced=vn.count("price")))
    app.view("vector", sales.group_by("key").agg(vn.Vector(value="value", maybe="maybe")))
    app.view("keys", sales.select("key").distinct())
    app.view("greatest", sales.group_by("key").agg(most=vn.max("value"), n=vn.count()))

    @vn.fixpoint
    def sinking(found: vn.Collection, *, sales: vn.Collection) -> vn.Collection:
        return found.union(found.filter(vn.col("key") > 0).select(key=vn.col("key") - 1)).distinct()

    app.view("sinking", sinking(sales.select("key"), sales=sales))
    return app


Answer = dict[str, list[Change]] | str


def answer(sales: list[Change], cuts: set[int], workers: int, least: int) -> Answer:
    """The changes of all views, or the kind of the error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combine, "LEAST", least)
        try:
            return run(program(), {"sales": sales}, cuts=cuts, workers=workers, slice_updates=8)
        except (AggregateOverflow, DiffOverflow, MultiplicityOverflow) as error:
            return type(error).__name__


names = st.sampled_from(["", "a", "a shop whose name is a long text"])
prices = st.none() | st.sampled_from([Decimal("0.01"), Decimal("-9999999.99"), Decimal("9999999.99")])


def changes(values: st.SearchStrategy[int], diffs: st.SearchStrategy[int]) -> st.SearchStrategy[list[Change]]:
    """Some sales at few times."""
    row = st.tuples(st.integers(0, 3), names, values, st.none() | values, prices)
    return st.lists(st.tuples(row, st.integers(0, 3), diffs), max_size=40)


@given(changes(st.integers(-9, 9), st.integers(-3, 3).filter(bool)), st.sets(st.integers(1, 3)), st.integers(2, 3))
@examples(60)
def test_answers_are_those_of_one_worker(sales: list[Change], cuts: set[int], workers: int) -> None:
    assert answer(sales, cuts, workers, 2) == answer(sales, set(), 1, NEVER)


@given(
    changes(st.sampled_from([0, 1, -1, 3, 2**31, 2**61, -(2**61), FAR]), st.sampled_from([1, 1, 1, -1, 2, -(2**31)])),
    st.sets(st.integers(1, 3)),
    st.integers(2, 3),
)
@examples(60)
def test_answers_and_errors_are_those_without_it(sales: list[Change], cuts: set[int], workers: int) -> None:
    assert answer(sales, cuts, workers, 2) == answer(sales, cuts, workers, NEVER)


@given(
    changes(st.integers(-9, 9), st.sampled_from([1, 1, 2, MOST, 2**62, FAR])),
    st.sets(st.integers(1, 3)),
    st.integers(2, 3),
)
@examples(40)
def test_numbers_of_copies_leave_64_bits_with_and_without_it(sales: list[Change], cuts: set[int], workers: int) -> None:
    combined, plain = answer(sales, cuts, workers, 2), answer(sales, cuts, workers, NEVER)
    assert combined == plain or (isinstance(combined, str) and isinstance(plain, str))


def test_few_rows_of_a_hot_key_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(3), 20_000
    words = np.zeros((n, 10), np.int64)
    words[:, 0] = np.where(rng.random(n) < 0.5, -1, np.arange(n))
    words[:, 5] = rng.integers(-100, 100, n)
    app = vn.App("hot")
    sums = app.source("sales", Sale).group_by("key").agg(n=vn.count(), total=vn.sum("value"))
    app.view("v", sums, key=["key"])
    sent: dict[int, int] = defaultdict(int)
    found = []
    for least in (NEVER, 128):
        monkeypatch.setattr(combine, "LEAST", least)
        with LocalEngine(compile_app(app), 2) as engine:
            for worker in engine.workers:
                worker.interpreter = None  # kernels exchange rows as they are
                swap = worker.exchange.all_to_all

                def counted(parts: list[Ints], swap=swap, least=least) -> list[Ints]:  # type: ignore[no-untyped-def]
                    sent[least] += sum(map(len, parts))
                    return swap(parts)

                worker.exchange.all_to_all = counted
            found.append(engine.run_epoch(MIN_TIME, 1, {"sales": Updates.of(words, 0, 1)})["v"].data)
    np.testing.assert_array_equal(*found)
    assert sent[NEVER] == n
    assert sent[128] < 0.52 * n


def test_explain_says_where_rows_are_added_up_before_they_are_sent() -> None:
    plan = compile_app(program())
    with LocalEngine(plan, 2) as engine:
        adding = {one.op.id for one in engine.workers[0].operators if getattr(one, "combiner", None) is not None}
    assert {op["id"] for op in plan.explain()["operators"] if op.get("sums_first")} == adding
    assert adding < {op["id"] for op in plan.explain()["operators"] if op.get("exchange")}
