"""Running least and greatest values, of which a change reads the rows whose value it changes."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.recounts import BETWEEN, CUTS, FEW, WORKERS, Log, check, check_cut, drifting, fitting, logs
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier.operators.group_functions.running import RunningExtreme
from vernier.operators.language.collection.ordering import grouped_by
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import ExtremesOp

LONG = "a text that is longer than fifteen bytes, "
Row = tuple[str, int, int | None, Decimal]


class Event(vn.Schema):
    key: vn.String
    at: vn.Int64
    level: vn.Int64 | None
    price: vn.Decimal(30, 2)  # type: ignore[valid-type]


def extremes(
    rows: vn.Collection, column: str, order: tuple[str, bool], *within: str, greatest: bool = True, single: bool = False
) -> vn.Collection:
    """The rows with the least or greatest value up to each, as OVER in SQL has them."""
    return rows._of(grouped_by(rows.node, within, RunningExtreme((order,), "best", column, greatest, single)))


def program() -> vn.App:
    app = vn.App("extremes", retain="1us")
    events = app.source("events", Event)
    last = events.group_by("at").agg(level=vn.max("level"), name=vn.min("key"), price=vn.min("price"))
    app.view("levels", extremes(events, "level", ("at", False), "key"))
    app.view("prices", extremes(events, "price", ("level", False), "key", greatest=False))
    app.view("all", extremes(events.select("at", "level"), "level", ("at", False), greatest=False))
    app.view("down", extremes(last, "level", ("at", True), single=True))
    app.view("cheap", extremes(last, "price", ("at", True), greatest=False, single=True))
    best = extremes(events, "level", ("at", False), "key")
    app.view("counted", best.group_by("key", "best").agg(n=vn.count()))
    return app


def _sorts(value: Any) -> Any:
    return (value is not None, 0 if value is None else value)


def along(rows: Counter[Any], group: Any, order: Any, value: int, *, least: bool = False) -> Counter[Any]:
    """Rows with the best of these values in all rows of the group that are not behind them."""
    there = [row for row, copies in rows.items() if copies > 0]
    found: Counter[Any] = Counter()
    for row in there:
        before = [one for one in there if group(one) == group(row) and order(one) <= order(row)]
        values = [one[value] for one in before if one[value] is not None]
        best = None if not values else min(values) if least else max(values)
        found[(*row, best)] += rows[row]
    return found


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    plain: Counter[Any] = Counter()
    for row, copies in rows.items():
        plain[row[1:3]] += copies
    last: Counter[Any] = Counter()
    for at in {row[1] for row, copies in rows.items() if copies}:
        there = [row for row, copies in rows.items() if copies > 0 and row[1] == at]
        levels = [row[2] for row in there if row[2] is not None]
        if there:
            name, price = min(row[0] for row in there), min(row[3] for row in there)
            last[at, max(levels, default=None), name, price] = 1
    levels = along(rows, lambda row: row[0], lambda row: (row[1], _sorts(row[2]), row[3]), 2)
    groups: Counter[Any] = Counter()
    for row, copies in levels.items():
        groups[row[0], row[4]] += copies
    return {
        "levels": levels,
        "prices": along(rows, lambda row: row[0], lambda row: (_sorts(row[2]), row[1], row[3]), 3, least=True),
        "all": Counter(
            {
                (0, *row): copies
                for row, copies in along(
                    plain, lambda row: 0, lambda row: (row[0], _sorts(row[1])), 1, least=True
                ).items()
            }
        ),
        "down": Counter({(0, *row): n for row, n in along(last, lambda row: 0, lambda row: -row[0], 1).items()}),
        "cheap": Counter(
            {(0, *row): n for row, n in along(last, lambda row: 0, lambda row: -row[0], 3, least=True).items()}
        ),
        "counted": Counter({(*key, n): 1 for key, n in groups.items()}),
    }


PRICES = st.sampled_from([Decimal("-0.01"), Decimal(0), Decimal("0.01"), Decimal(10) ** 22, -(Decimal(10) ** 22)])
EVENTS = logs(st.sampled_from(["", LONG + "a"]), st.integers(0, 5), st.none() | st.integers(-2, 2), PRICES)


@pytest.mark.parametrize("few", FEW[1:])
@given(EVENTS, CUTS, WORKERS, BETWEEN)
@examples(40)
def test_extremes_are_those_of_the_rows(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize(("seed", "span"), [(0, 400), (1, 60), (2, 9)])
@pytest.mark.parametrize("slope", [-1, 0, 1])
def test_records_come_and_leave_in_large_groups(seed: int, span: int, slope: int) -> None:
    choose = random.Random(seed)

    def event() -> Row:
        at = choose.randrange(span)
        level = slope * at + choose.randrange(-9, 9)
        return LONG, at, choose.choice([None, level, level]), Decimal(choose.randrange(span))

    log = drifting(choose, event, 80, 40, 4)
    check(run(program(), {"events": log}, cuts=(1, 20, 21, 30), slice_updates=7), log, truth)
    check(run(program(), {"events": log}, cuts=(25,), slice_updates=10_000), log, truth)
    check(run(fitting(program()), {"events": log}, cuts=(1, 20, 21, 30), slice_updates=7), log, truth)


def test_a_state_without_records_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)

    def event() -> Row:
        return choose.choice(["", LONG]), choose.randrange(90), choose.randrange(90), Decimal(choose.randrange(90))

    with monkeypatch.context() as patch:
        patch.setattr(reductions, "directed", lambda *_: False)
        before = compile_app(program())
    assert not before.of(ExtremesOp)
    assert len(compile_app(program()).of(ExtremesOp)) == 5
    check_continued(program(), before, event)


def test_an_order_that_words_do_not_have_reads_whole_groups() -> None:
    app = vn.App("orders")
    events = app.source("events", Event)
    app.view("texts", extremes(events, "level", ("key", False)))
    app.view("of_texts", extremes(events, "key", ("at", False)))
    app.view("ties", extremes(events, "level", ("at", True)))
    assert not compile_app(app).of(ExtremesOp)
