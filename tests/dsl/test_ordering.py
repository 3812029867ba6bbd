"""Ranks, neighbours, first rows and running sums against a sorted list of copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import check, cuts, updates
from tests.oracle.model import Change, Collection
from tests.profiles import examples
from vernier import col
from vernier.operators.failures import AggregateOverflow, TooManyCopies

Row = tuple[Any, ...]
Answered = Iterable[tuple[Row, int]]


class Score(vn.Schema):
    team: vn.Int64
    points: vn.Int64 | None
    player: vn.Int64


SCHEMAS: dict[str, type[vn.Schema]] = {"scores": Score}
rows = st.tuples(st.integers(0, 1), st.sampled_from((None, 1, 2, 3)), st.integers(0, 2))
ORDERS: dict[str, tuple[Any, Callable[[Row], Any]]] = {
    "up": ("points", lambda row: (row[1] is not None, row[1] or 0)),
    "down": (col("points").desc(), lambda row: (row[1] is None, -(row[1] or 0))),
    "both": (["player", col("points").desc()], lambda row: (row[2], row[1] is None, -(row[1] or 0))),
}
WITHIN: dict[str, tuple[Any, Callable[[Row], Any]]] = {
    "team": ("team", lambda row: row[0]),
    "all": ((), lambda row: 0),
    "two": (["player", "team"], lambda row: (row[2], row[0])),
}


def null_first(row: Row) -> Any:
    return [(value is not None, value or 0) for value in row]


def copies(scores: Collection, order: str, within: str) -> Iterable[list[Row]]:
    """The present copies of each group, in order."""
    group, place = WITHIN[within][1], ORDERS[order][1]
    present = [row for row, count in scores.items() for _ in range(count)]
    present.sort(key=lambda row: (group(row), place(row), null_first(row)))
    return [list(part) for _, part in groupby(present, group)]


def top(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
    return part[:2]


def rank(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
    return [(*row, 1 + sum(place(other) < place(row) for other in part)) for row in part]


def dense_rank(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
    return [(*row, 1 + len({place(other) for other in part if place(other) < place(row)})) for row in part]


def row_number(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
    return [(*row, number) for number, row in enumerate(part, 1)]


def shifted(step: int, column: int, default: Any) -> Callable[[list[Row], Callable[[Row], Any]], Iterable[Row]]:
    def answer(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
        for i, row in enumerate(part):
            yield (*row, part[i - step][column] if 0 <= i - step < len(part) else default)

    return answer


def running_sum(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
    for i, row in enumerate(part, 1):
        values = [other[1] for other in part[:i] if other[1] is not None]
        yield (*row, sum(values) if values else None)


def running(best: Callable[[list[int]], int]) -> Callable[[list[Row], Callable[[Row], Any]], Iterable[Row]]:
    def answer(part: list[Row], place: Callable[[Row], Any]) -> Iterable[Row]:
        for i, row in enumerate(part, 1):
            values = [other[1] for other in part[:i] if other[1] is not None]
            yield (*row, best(values) if values else None)

    return answer


Built = Callable[[vn.Collection, Any, Any], vn.Collection]
OPERATORS: dict[str, tuple[Built, Callable[[list[Row], Callable[[Row], Any]], Iterable[Row]]]] = {
    "top_k": (lambda scores, by, within: scores.top_k(2, by=by, within=within), top),
    "rank": (lambda scores, by, within: scores.rank(by=by, within=within), rank),
    "dense_rank": (lambda scores, by, within: scores.dense_rank(by=by, within=within), dense_rank),
    "row_number": (lambda scores, by, within: scores.row_number(by=by, within=within), row_number),
    "lag": (lambda scores, by, within: scores.lag("points", by=by, within=within), shifted(1, 1, None)),
    "lag 2": (
        lambda scores, by, within: scores.with_columns(n="player").lag("n", 2, by=by, within=within).drop("n"),
        shifted(2, 2, None),
    ),
    "lead": (
        lambda scores, by, within: (
            scores.with_columns(n="player").lead("n", by=by, within=within, default=9).drop("n").cast(lead=vn.Int64)
        ),
        shifted(-1, 2, 9),
    ),
    "itself": (lambda scores, by, within: scores.lead("points", 0, by=by, within=within), shifted(0, 1, None)),
    "running_sum": (lambda scores, by, within: scores.running_sum("points", by=by, within=within), running_sum),
    "running_min": (lambda scores, by, within: scores.running_min("points", by=by, within=within), running(min)),
    "running_max": (lambda scores, by, within: scores.running_max("points", by=by, within=within), running(max)),
}


@pytest.mark.parametrize("operator", OPERATORS)
@examples(60)
@given(
    changes=updates(rows),
    order=st.sampled_from(sorted(ORDERS)),
    within=st.sampled_from(sorted(WITHIN)),
    cuts=cuts,
    workers=st.sampled_from((1, 2)),
)
def test_an_operator_is_what_its_sorted_copies_give(
    operator: str, changes: list[Change], order: str, within: str, cuts: list[int], workers: int
) -> None:
    build, expected = OPERATORS[operator]

    def answer(scores: Collection) -> Answered:
        parts = copies(scores, order, within)
        return [(row, 1) for part in parts for row in expected(part, ORDERS[order][1])]

    def built(scores: vn.Collection) -> vn.Collection:
        return build(scores, ORDERS[order][0], WITHIN[within][0])

    check(built, SCHEMAS, answer, {"scores": changes}, cuts, workers)


@examples(25)
@given(changes=updates(rows), cuts=cuts)
def test_top_k_in_a_loop(changes: list[Change], cuts: list[int]) -> None:
    """Each round keeps the best of each team and lets them score once more."""

    def build(scores: vn.Collection) -> vn.Collection:
        @vn.fixpoint(max_rounds=4, on_limit="truncate")
        def play(play: vn.Collection) -> vn.Collection:
            best = play.top_k(1, by=[col("points").desc(), "player"], within="team")
            return vn.union(scores, best.with_columns(points=col("points") + 1).filter(col("points") < 6))

        result: vn.Collection = play(scores)
        return result

    def answer(scores: Collection) -> Answered:
        current = scores
        for _ in range(4):
            found = dict(scores)
            for team in (0, 1):
                here = [row for row, count in current.items() if count > 0 and row[0] == team]
                here.sort(key=lambda row: (row[1] is None, -(row[1] or 0), row[2]))
                for _, points, player in here[:1]:
                    if points is not None and points < 5:
                        row = (team, points + 1, player)
                        found[row] = found.get(row, 0) + 1
            current = {row: count for row, count in found.items() if count}
        return list(current.items())

    check(build, SCHEMAS, answer, {"scores": changes}, cuts)


class Amount(vn.Schema):
    account: vn.Int64
    amount: vn.Float64


def answered(
    build: Callable[[vn.Collection], vn.Collection], schema: type[vn.Schema], given: list[Change]
) -> list[Row]:
    app = vn.App("t")
    app.view("v", build(app.source("s", schema)))
    with vn.testing.run(app) as t:
        t.update("s", given)
        t.finish()
        return t.rows("v")


def test_sums_of_floats_depend_on_the_rows_alone() -> None:
    def build(amounts: vn.Collection) -> vn.Collection:
        return amounts.running_sum("amount", by="amount", within="account")

    settled: list[Change] = [((1, 0.1), 1, 3), ((1, 0.2), 1, 1), ((2, math.inf), 1, 1), ((2, -math.inf), 1, 1)]
    detour: list[Change] = [((1, 1e300), 0, 1), *settled, ((1, 1e300), 3, -1)]
    assert answered(build, Amount, settled) == answered(build, Amount, detour)
    sums = [row[2] for row in answered(build, Amount, settled)]
    assert sums[:4] == [0.1, 0.1 + 0.1, 0.1 + 0.1 + 0.1, 0.1 + 0.1 + 0.1 + 0.2]
    assert sums[4] == -math.inf
    assert math.isnan(sums[5])


def test_a_running_sum_that_does_not_fit_names_its_group() -> None:
    def build(scores: vn.Collection) -> vn.Collection:
        return scores.running_sum("points", by="player", within="team")

    large = 2**62
    # On its way a sum may be as great as it likes, if each that is given fits.
    assert sorted(row[3] for row in answered(build, Score, [((1, large, 1), 1, 1), ((1, large - 1, 2), 1, 1)])) == [
        large,
        2 * large - 1,
    ]
    with pytest.raises(AggregateOverflow, match=r"running_sum by player: .* group team=7"):
        answered(build, Score, [((7, large, 1), 1, 1), ((7, large, 2), 1, 1)])


def test_many_copies_cost_nothing_where_they_are_alike() -> None:
    many = 2**40
    given: list[Change] = [((1, 5, 1), 1, many), ((1, 4, 2), 1, many), ((1, None, 3), 1, many)]
    assert len(answered(lambda scores: scores.top_k(3, by=col("points").desc()), Score, given)) == 3
    app = vn.App("t")
    scores = app.source("s", Score)
    app.view("rank", scores.rank(by=col("points").desc(), within="team"))
    app.view("lag", scores.lag("player", by=col("points").desc(), within="team"))
    with vn.testing.run(app) as t:
        t.update("s", given)
        t.finish()
        assert t.counts("rank") == {(1, 5, 1, 1): many, (1, 4, 2, many + 1): many, (1, None, 3, 2 * many + 1): many}
        assert t.counts("lag") == {
            (1, 5, 1, None): 1,
            (1, 5, 1, 1): many - 1,
            (1, 4, 2, 1): 1,
            (1, 4, 2, 2): many - 1,
            (1, None, 3, 2): 1,
            (1, None, 3, 3): many - 1,
        }
    with pytest.raises(AggregateOverflow, match="rank by points"):
        answered(lambda s: s.rank(by="points"), Score, [((1, 5, 1), 1, 2**62), ((1, 4, 2), 1, 2**62)])


@pytest.mark.parametrize("operator", ["row_number", "running_sum", "lag"])
def test_too_many_copies_to_be_rows_are_an_error_that_names_the_group(operator: str) -> None:
    builds: dict[str, Callable[[vn.Collection], vn.Collection]] = {
        "row_number": lambda scores: scores.row_number(by="points", within="team"),
        "running_sum": lambda scores: scores.running_sum("points", by="player", within="team"),
        "lag": lambda scores: scores.lag("points", 2**30, by="player", within="team"),
    }
    given: list[Change] = [((3, 1, 1), 1, 1), ((7, 5, 1), 1, 2**40), ((7, 4, 1), 1, 1)]
    with pytest.raises(TooManyCopies, match=rf"{operator}.*: 1\d+ copies in the group team=7"):
        answered(builds[operator], Score, given)


class Note(vn.Schema):
    who: vn.String
    text: vn.String | None
    paid: vn.Decimal(38, 2)  # type: ignore[valid-type]


LONG = "the same fifteen letters and then "


def test_texts_and_decimals() -> None:
    """Long texts with one beginning are ordered by what they hold, not by what stands for them."""
    app = vn.App("t")
    notes = app.source("notes", Note)
    texts = [LONG + letter for letter in "hdbgaecf"]
    app.view("first", notes.top_k(3, by="text", within="who"))
    app.view("next", notes.lead("text", by="text", within="who", default="none").drop("paid"))
    app.view("other", notes.lag("paid", 99, by="text", default=7).lag("who", 99, by="text", name="w", default=LONG))
    app.view("sums", notes.running_sum("paid", by=["who", col("text").desc()]).drop("text"))
    with vn.testing.run(app, workers=2) as t:
        for place, text in enumerate(texts):
            t.insert("notes", ("ann", text, Decimal(place)), at=1)
        t.insert("notes", ("bob", None, Decimal("0.01")), at=1)
        t.advance(2)
        ordered = sorted(texts)
        assert [row[1] for row in t.rows("first") if row[0] == "ann"] == ordered[:3]
        assert {(row[3], row[4]) for row in t.rows("other")} == {(Decimal("7.00"), LONG)}
        following = sorted(row[1:] for row in t.rows("next") if row[0] == "ann")
        assert following == list(zip(ordered, [*ordered[1:], "none"]))
        down = [Decimal(texts.index(text)) for text in reversed(ordered)]
        sums = sorted((row[2], row[1]) for row in t.rows("sums") if row[0] == "ann")
        assert sums == sorted((sum(down[: i + 1]), value) for i, value in enumerate(down))
        assert t.rows("sums")[-1] == ("bob", Decimal("0.01"), Decimal("28.01"))
        assert app.views["sums"].node.schema.field("running_sum").type == vn.Decimal(38, 2)
        t.insert("notes", ("cyd", None, Decimal("9" * 36 + ".99")), at=2)
        with pytest.raises(AggregateOverflow, match="running_sum by who, text desc"):
            t.finish()
