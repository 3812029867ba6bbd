"""Running sums, ranks and places, of which a change reads the rows behind it until they are as before."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.recounts import BETWEEN, CUTS, FEW, WORKERS, check, check_cut, drifting, fitting, logs
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier import col
from vernier.operators.failures import AggregateOverflow
from vernier.operators.physical import reduce_base
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app
from vernier.storage.trace import prefix_index

LONG = "a text that is longer than fifteen bytes, "
RANKS = ("ranks", "ties", "down", "texts")
Row = tuple[int, str, int, int | None, Decimal]
Log = list[tuple[Row, int, int]]


class Event(vn.Schema):
    key: vn.Int64
    name: vn.String
    rank: vn.Int64
    at: vn.Int64 | None
    price: vn.Decimal(12, 2)


def program() -> vn.App:
    app = vn.App("stretches", retain="1us")
    events = app.source("events", Event)
    plain = events.select("key", "rank", "at", "price")
    app.view("sums", plain.running_sum("rank", by="at", within="key", name="v"))
    app.view("nulls", plain.running_sum("at", by=["rank", "price"], within="key", name="v"))
    app.view("prices", events.running_sum("price", by=col("rank").desc(), within="key", name="v"))
    wide = plain.running_sum("price", by="at", within="key", name="w")
    app.view("again", wide.running_sum("w", by=["at", "rank"], within="key", name="v"))
    app.view("ranks", events.rank(by="rank", within="key", name="v"))
    app.view("ties", plain.rank(by="at", within="key", name="v"))
    app.view("down", events.rank(by=[col("rank").desc(), col("at").desc()], within="key", name="v"))
    app.view("numbers", plain.row_number(by="price", within="key", name="v"))
    app.view("mixed", events.row_number(by=["rank", col("at").desc()], within="key", name="v"))
    app.view("last", events.row_number(by=col("price").desc(), within="key", name="v"))
    app.view("dense", events.dense_rank(by="rank", within="key", name="v"))
    app.view("dense_down", plain.dense_rank(by=[col("at").desc(), col("rank").desc()], within="key", name="v"))
    app.view("dense_mixed", events.dense_rank(by=["name", col("rank").desc()], within="key", name="v"))
    app.view("texts", events.rank(by="name", within="key", name="v"))
    return app


def _null_first(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0


def _null_last(value: int | None) -> tuple[bool, int]:
    return value is None, -(value or 0)


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in program().views}
    events: dict[int, Counter[Any]] = defaultdict(Counter)
    plain: dict[int, Counter[Any]] = defaultdict(Counter)
    for (key, *row), copies in rows.items():
        events[key][tuple(row)] += copies
        plain[key][tuple(row[1:])] += copies

    def each(of: dict[int, Counter[Any]], order: Callable[[Any], Any]) -> list[tuple[int, list[Any]]]:
        made = []
        for key, group in of.items():
            there = sorted((row for row, copies in group.items() if copies > 0), key=order)
            made.append((key, [row for row in there for _ in range(group[row])]))
        return made

    def summed(view: str, of: dict[int, Counter[Any]], word: int, order: Callable[[Any], Any]) -> None:
        for key, copies in each(of, order):
            total = None
            for row in copies:
                if row[word] is not None:
                    total = row[word] + (total or 0)
                found[view][(key, *row, total)] += 1

    def placed(view: str, of: dict[int, Counter[Any]], by: Callable[[Any], Any], ties: Callable[[Any], Any]) -> None:
        for key, copies in each(of, lambda row: (by(row), ties(row))):
            values = [by(row) for row in copies]
            for at, row in enumerate(copies):
                found[view][(key, *row, (values.index(values[at]) if view in RANKS else at) + 1)] += 1

    def event(row: Any) -> Any:
        return row[0], row[1], _null_first(row[2]), row[3]

    def short(row: Any) -> Any:
        return row[0], _null_first(row[1]), row[2]

    summed("sums", plain, 0, lambda r: (_null_first(r[1]), r[0], r[2]))
    summed("nulls", plain, 1, lambda r: (r[0], r[2], _null_first(r[1])))
    summed("prices", events, 3, lambda r: (-r[1], event(r)))
    wide: dict[int, Counter[Any]] = defaultdict(Counter)
    for key, copies in each(plain, lambda r: (_null_first(r[1]), r[0], r[2])):
        total = Decimal(0)
        for row in copies:
            total += row[2]
            wide[key][(*row, total)] += 1
    summed("again", wide, 3, lambda r: (_null_first(r[1]), r[0], r[2], r[3]))
    placed("ranks", events, lambda r: r[1], event)
    placed("ties", plain, lambda r: _null_first(r[1]), short)
    placed("down", events, lambda r: (-r[1], _null_last(r[2])), event)
    placed("numbers", plain, lambda r: r[2], short)
    placed("mixed", events, lambda r: (r[1], _null_last(r[2])), event)
    placed("last", events, lambda r: -r[3], event)
    placed("texts", events, lambda r: r[0], event)

    def dense(view: str, of: dict[int, Counter[Any]], by: Callable[[Any], Any]) -> None:
        for key, group in of.items():
            values = sorted({by(row) for row, copies in group.items() if copies > 0})
            for row, copies in group.items():
                if copies > 0:
                    found[view][(key, *row, values.index(by(row)) + 1)] += copies

    dense("dense", events, lambda r: r[1])
    dense("dense_down", plain, lambda r: (_null_last(r[1]), -r[0]))
    dense("dense_mixed", events, lambda r: (r[0], -r[1]))
    return found


EVENTS = logs(
    st.integers(0, 1),
    st.sampled_from(["", LONG + "a", LONG + "b"]),
    st.integers(-1, 4),
    st.none() | st.integers(0, 5),
    st.sampled_from([Decimal("-1.25"), Decimal(0), Decimal("9999999999.99")]),
)


@pytest.mark.parametrize("few", FEW)
@given(EVENTS, CUTS, WORKERS, BETWEEN)
@examples(15)
def test_running_sums_and_places_are_those_of_the_rows(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize("seed", range(2))
def test_changes_far_from_each_other_in_large_groups(seed: int) -> None:
    choose = random.Random(seed)

    def event() -> Row:
        name = choose.choice(["b", LONG + str(choose.randrange(3))])
        at = choose.choice([None, *range(0, 400, 3), *range(400)])
        return (0, name, choose.randrange(-9, 300), at, Decimal(choose.randrange(-400, 400)) / 4)

    log = drifting(choose, event, 80, 24, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_index, "_READ", 1)
        check(run(program(), {"events": log}, cuts=(1, 8, 9, 16), slice_updates=5), log, truth)
        check(run(fitting(program()), {"events": log}, cuts=(1, 8, 9, 16), slice_updates=5), log, truth)


def test_a_state_with_rows_in_their_own_order_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)

    def event() -> Row:
        return choose.randrange(3), choose.choice("abc"), choose.randrange(9), choose.randrange(40), Decimal(2)

    with monkeypatch.context() as patch:
        patch.setattr(reductions, "stretches_of", lambda *_: None)
        before = compile_app(program())
    check_continued(program(), before, event)


class Score(vn.Schema):
    group: vn.Int64
    player: vn.Int64
    score: vn.Int64


def scores() -> vn.App:
    app = vn.App("scores", retain="1us")
    rows = app.source("rows", Score)
    app.view("v", rows.rank(by=col("score").desc(), within="group"))
    app.view("sums", rows.running_sum("player", by="score", within="group"))
    return app


def score_truth(rows: Counter[tuple[int, int, int]]) -> dict[str, Counter[tuple[int, ...]]]:
    found: dict[str, Counter[tuple[int, ...]]] = {"v": Counter(), "sums": Counter()}
    for group in {row[0] for row in rows}:
        there = sorted(
            (row for row, n in rows.items() if row[0] == group for _ in range(n)), key=lambda r: (r[2], r[1])
        )
        total = 0
        for row in there:
            total += row[1]
            found["v"][(*row, 1 + sum(other[2] > row[2] for other in there))] += 1
            found["sums"][(*row, total)] += 1
    return found


def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on, how many rows each step reads of the groups."""
    counts, plain = list[int](), reduce_base.read_stretches

    def counted(*given: Any) -> Any:
        found = plain(*given)
        counts.append(len(found[2]))
        return found

    monkeypatch.setattr(reduce_base, "read_stretches", counted)
    return counts


def test_a_change_reads_the_rows_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = [((0, at, 10 * at), 0, 1) for at in range(2000)]
    log += [((0, 7000, 19_905), 1, 1), ((0, 1000, 10_000), 2, -1), ((0, 1000, 10_025), 2, 1)]
    counts = read(monkeypatch)
    check(run(scores(), {"rows": log}, cuts=(1, 2), interpret=False), log, score_truth)
    # Nine rows are behind the new one in ascending order, and all others in descending order; a player that gains on
    # two others changes their ranks and sums alone.
    assert sorted(counts) == [5, 5, 10, 1992]


def test_rows_that_owe_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of batches are not those of the present rows: groups with such a row are read whole until it is there."""
    log: Log = [((group, at, 10 * at), 0, 1) for at in range(100) for group in (0, 1)]
    log += [((0, 7000, 500), 1, -1), ((0, 1, 971), 2, 1), ((1, 1, 971), 3, 1), ((0, 7000, 500), 4, 1)]
    log += [((0, 2, 972), 5, 1), ((0, 2, 972), 6, -2), ((0, 2, 972), 7, 1), ((1, 3, 953), 8, 1)]
    check(run(scores(), {"rows": log}, cuts=range(1, 9)), log, score_truth)
    counts = read(monkeypatch)
    check(run(scores(), {"rows": log}, cuts=range(1, 9), interpret=False), log, score_truth)
    assert counts


@pytest.mark.parametrize("interpret", [True, False])
def test_sums_that_do_not_fit(interpret: bool) -> None:
    large = 2**62
    log: Log = [((0, large if at % 2 else -large, 10 * at), 0, 1) for at in range(99)]
    log += [((0, 5, 901), 1, 1), ((0, -5, 902), 1, 1), ((0, 7, 955), 2, 1)]
    check(run(scores(), {"rows": log}, cuts=(1, 2), interpret=interpret), log, score_truth)
    with pytest.raises(AggregateOverflow):
        run(scores(), {"rows": [*log, ((0, large, 951), 3, 2)]}, cuts=(1, 2, 3), interpret=interpret)
