"""Least and greatest values and quantiles beside counts, sums and distinct counts: parts of a group side by side."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.recounts import FEW, check_cut
from tests.profiles import examples
from tests.properties.engine import Between
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import BatchedReduceOp, ReduceOp

LONG = "a text that is longer than fifteen bytes, "
Row = tuple[int | None, str, int | None, float, Decimal]
Log = list[tuple[Row, int, int]]


class Event(vn.Schema):
    key: vn.Int64 | None
    name: vn.String
    score: vn.Int64 | None
    weight: vn.Float64
    price: vn.Decimal(20, 2)


def program() -> vn.App:
    app = vn.App("parts", retain="1us")
    events = app.source("events", Event)
    one, once = events.group_by("key"), events.select("key", "score", "weight").distinct().group_by("key")
    app.view("most", one.agg(n=vn.count(), x=vn.max("score")))
    ends = {"low": vn.min("weight"), "high": vn.max("weight")}
    app.view("ends", one.agg(**ends))
    app.view("both", one.agg(**ends, sum=vn.sum("weight"), mean=vn.avg("score"), known=vn.count("score")))
    app.view("price", one.agg(low=vn.min("price"), sum=vn.sum("price"), names=vn.count_distinct("name")))
    app.view("median", one.agg(n=vn.count(), x=vn.quantile("score", 0.5), sum=vn.sum("weight"), low=vn.min("weight")))
    app.view("once", once.agg(sum=vn.sum("score"), high=vn.max("score"), mean=vn.avg("weight")))
    app.view("cancel", one.agg(sum=vn.sum("score"), high=vn.max("weight")))
    app.view("texts", one.agg(n=vn.count(), first=vn.min("name")))
    return app


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in program().views}
    groups: dict[int | None, Counter[Row]] = defaultdict(Counter)
    for row, copies in rows.items():
        if copies:
            groups[row[0]][row] = copies

    def total(group: Counter[Row], column: int) -> Any:
        return sum((row[column] * copies for row, copies in group.items() if row[column] is not None), start=0)

    def count(group: Counter[Row], column: int) -> int:
        return sum(copies for row, copies in group.items() if row[column] is not None)

    def mean(group: Counter[Row], column: int) -> float | None:
        n = count(group, column)
        return total(group, column) / n if n else None

    for key, group in groups.items():
        there = [row for row, copies in group.items() for _ in range(copies)]
        scores = sorted(row[2] for row in there if row[2] is not None)
        known = {row for row in group if row[2] is not None}
        n, high = sum(group.values()), max(scores, default=None)
        found["most"][(key, n, high)] = 1
        if not there:
            continue
        weights = [row[3] for row in there]
        low, heavy = min(weights), max(weights)
        found["ends"][(key, low, heavy)] = 1
        found["both"][(key, low, heavy, float(total(group, 3)), mean(group, 2), count(group, 2))] = 1
        price = total(group, 4), len({row[1] for row in there})
        found["price"][(key, min(row[4] for row in there), *price)] = 1
        half = scores[-(-len(scores) // 2) - 1] if scores else None
        found["median"][(key, n, half, float(total(group, 3)), low)] = 1
        found["cancel"][(key, total(group, 2) if known else None, heavy)] = 1
        found["texts"][(key, n, min(row[1] for row in there))] = 1
    projected = Counter[Row]()
    for (key, _, score, weight, _), copies in rows.items():
        projected[(key, "", score, weight, Decimal(0))] += copies
    for key in {row[0] for row, copies in projected.items() if copies > 0}:
        single = Counter({row: 1 for row, copies in projected.items() if copies > 0 and row[0] == key})
        scores = [row[2] for row in single if row[2] is not None]
        some = total(single, 2) if scores else None
        found["once"][(key, some, max(scores, default=None), mean(single, 3))] = 1
    return found


EVENTS = st.lists(
    st.tuples(
        st.tuples(
            st.sampled_from([None, 1, 1]),
            st.sampled_from(["", LONG + "a", LONG + "b"]),
            st.none() | st.integers(-1, 2),
            st.sampled_from([-1.5, 0.0, 2.0]),
            st.sampled_from([Decimal("-0.50"), Decimal("0.00"), Decimal("12345678901234567.25")]),
        ),
        st.integers(0, 8),
        st.sampled_from([1, 1, 1, 2, -1, -2]),
    ),
    max_size=24,
)


@pytest.mark.parametrize("few", FEW)
@given(
    EVENTS,
    st.sets(st.integers(1, 8), max_size=4),
    st.integers(1, 2),
    st.sampled_from(["go on", "reopen", "repeat"]),
    st.sampled_from([3, 1024]),
)
@examples(12)
def test_parts_stand_beside_one_another(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between, slice_updates: int
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between, slice_updates)


def test_only_texts_and_sums_that_can_cancel_read_whole_groups() -> None:
    ops = compile_app(program()).ops
    whole = {op.width for op in ops if isinstance(op, (ReduceOp, BatchedReduceOp)) and op.reads is None}
    row = {name: compile_app(program()).views[name].schema.width for name in ("cancel", "texts")}
    assert whole == set(row.values())


def test_a_state_of_whole_groups_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)

    def event() -> Row:
        score, weight = choose.choice([None, *range(9)]), float(choose.randrange(9))
        return choose.randrange(2), choose.choice("abc"), score, weight, Decimal(choose.randrange(900)) / 4

    with monkeypatch.context() as patch:
        patch.setattr(reductions, "has_parts", lambda *_: False)
        before = compile_app(program())
    assert compile_app(program()).arrangements.keys() != before.arrangements.keys()
    check_continued(program(), before, event)
