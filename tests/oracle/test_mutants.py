"""Mistakes that are easily made in an operator's rule, each planted: small random collections show every one of them.

The properties draw from the same kind of data: few keys and values, multiplicities of both signs, nulls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.oracle.joins import AsOf, Matched, PrefixSum, except_all, intersect
from tests.oracle.model import Collection, accumulate
from tests.oracle.ordering import Rank, RowNumber, RunningSum, Sessions, Shifted, TopK, windows
from tests.oracle.plan import Contents, Row, columns, item
from tests.oracle.values import By, order, rank

Rule = Callable[..., Iterable[tuple[Row, int]]]


def collection(choose: random.Random) -> Collection:
    """Rows (a, b) of few values, some null, some less than not there."""
    rows = [(choose.choice((0, 1, 1, None)), choose.choice((0, 1, 2, 3, 5))) for _ in range(choose.randrange(1, 7))]
    return accumulate((row, choose.choice((1, 1, 2, -1))) for row in rows)


def present(rows: Contents) -> Collection:
    return {row: 1 for row, count in rows.items() if count > 0}


def anyhow(rows: Contents) -> Collection:
    return {row: abs(count) for row, count in rows.items()}


def of_one(change: Callable[[Contents], Contents], rule: Rule) -> Rule:
    """The rule of changed rows."""
    return lambda *sides: rule(*map(change, sides))


def of_right(change: Callable[[Contents], Contents], rule: Rule) -> Rule:
    """The rule of a changed right side."""
    return lambda left, right: rule(left, change(right))


def tripled(rule: Rule) -> Rule:
    """Outer joins whose unmatched rows come once, whatever their multiplicity."""
    return lambda left, right: ((row, 1 if None in row[-2:] else count) for row, count in rule(left, right))


def beside(left: Row | None, right: Row | None) -> Row:
    return (left or (None, None)) + (right or (None, None))


def lower(one: Row, two: Row) -> bool:
    return bool(one[1] < two[1])


def at_most(one: Row, two: Row) -> bool:
    return bool(one[1] <= two[1])


def nulls_match(row: Row) -> Row:
    return (-1 if row[0] is None else row[0],)


def half(row: Row) -> int:
    return int(row[1]) // 2


LEFT = Matched("left", columns(0), columns(0), beside, lower)
ANTI = Matched("anti", columns(0), columns(0), beside, lower)
NEAREST = AsOf("left", columns(0), columns(0), item(1), item(1), beside)
COARSE = AsOf("left", columns(), columns(), half, half, beside)
PREFIX = PrefixSum(columns(0), columns(0), item(1), item(1), item(1))
BY = (By(item(1), descending=True),)


def condition_after_padding(left: Contents, right: Contents) -> Iterator[tuple[Row, int]]:
    """A left join by key alone, of which the condition then takes rows away."""
    for row, count in replace(LEFT, where=lambda one, two: True)(left, right):
        if row[2:] == (None, None) or lower(row[:2], row[2:]):
            yield row, count


def set_difference(left: Contents, right: Contents) -> Iterator[tuple[Row, int]]:
    for row, count in left.items():
        if right.get(row, 0) <= 0 < count:
            yield row, count


def without_right_only(left: Contents, right: Contents) -> Iterator[tuple[Row, int]]:
    for row, count in except_all(left, right):
        if row in left:
            yield row, count


def least_of_both(left: Contents, right: Contents) -> Iterator[tuple[Row, int]]:
    for row, count in intersect(left, right):
        yield row, min(left[row], right[row]) * count


def least_of_ties(left: Contents, right: Contents) -> Iterator[tuple[Row, int]]:
    """As-of joins that take the least row of a time."""
    kept: dict[int, Row] = {}
    for row in sorted(present(right), key=order):
        kept.setdefault(half(row), row)
    return COARSE(left, dict.fromkeys(kept.values(), 1))


def before_only(rows: Contents, queries: Contents) -> Iterator[tuple[Row, int]]:
    """Prefix sums without the query's own position."""
    moved = replace(PREFIX, row_position=lambda row: row[1] + 1)
    return moved(rows, queries)


def numbered_rows(rows: Contents) -> Iterator[tuple[Row, int]]:
    """Row numbers of rows, not of copies."""
    return RowNumber(BY)(present(rows))


def from_zero(rows: Contents) -> Iterator[tuple[Row, int]]:
    """Row numbers that begin at 0."""
    for row, count in RowNumber(BY)(rows):
        yield (*row[:-1], row[-1] - 1), count


def ranks_by_row(rows: Contents) -> Iterator[tuple[Row, int]]:
    """Ranks that tell apart what the order leaves equal."""
    return Rank((*BY, By(item(0))))(rows)


def sums_of_peers(rows: Contents) -> Iterator[tuple[Row, int]]:
    """Running sums that all rows equal in the order have in common, as SQL's RANGE has."""
    sums = list(RunningSum(item(1), BY)(rows))
    for row, count in sums:
        yield (*row[:-1], max(other[-1] for other, _ in sums if rank(other[1]) == rank(row[1]))), count


def hopping(size: int, every: int, *, closed: bool = False, toward_zero: bool = False) -> Rule:
    """Windows on b - 2, so that some times are negative."""

    def rule(rows: Contents) -> Iterator[tuple[Row, int]]:
        for row, count in rows.items():
            time = row[1] - 2
            found = windows(int(time / every) * every if toward_zero else time, size, every)
            if closed:
                found = [*found, *((time - size, time) for _ in range(1) if (time - size) % every == 0)]
            for window in found:
                yield (*row, *window), count

    return rule


MUTANTS: dict[str, tuple[int, Rule, Rule]] = {
    "outer joins ask for the condition after padding": (2, LEFT, condition_after_padding),
    "outer joins take rows that are not present for partners": (2, LEFT, of_right(anyhow, LEFT)),
    "outer joins multiply with presence": (2, LEFT, of_right(present, LEFT)),
    "unmatched rows come once": (2, LEFT, tripled(LEFT)),
    "null keys match": (2, LEFT, replace(LEFT, left_key=nulls_match, right_key=nulls_match)),
    "conditions are not strict": (2, LEFT, replace(LEFT, where=at_most)),
    "anti joins drop null keys": (2, ANTI, lambda *both: ((row, c) for row, c in ANTI(*both) if row[0] is not None)),
    "anti joins keep present rows only": (2, ANTI, lambda left, right: ANTI(present(left), right)),
    "semi joins multiply": (
        2,
        replace(ANTI, how="semi"),
        lambda *both: ((row[:2], count) for row, count in replace(LEFT, how="inner")(*both)),
    ),
    "as-of joins look strictly before": (2, NEAREST, replace(NEAREST, right_time=lambda row: row[1] + 1)),
    "as-of joins look forward": (2, NEAREST, replace(NEAREST, forward=True)),
    "as-of joins see rows that are not present": (2, NEAREST, of_right(anyhow, NEAREST)),
    "as-of joins multiply": (
        2,
        NEAREST,
        lambda left, right: ((row, count * right.get(row[2:], 1)) for row, count in NEAREST(left, right)),
    ),
    "as-of joins take the least row of a time": (2, COARSE, least_of_ties),
    "tolerance is exclusive": (2, replace(NEAREST, tolerance=2), replace(NEAREST, tolerance=1)),
    "except_all is about presence": (2, except_all, set_difference),
    "except_all forgets rows of the right alone": (2, except_all, without_right_only),
    "intersect keeps copies": (2, intersect, least_of_both),
    "intersect sees all rows": (2, intersect, of_one(anyhow, intersect)),
    "prefix sums leave out the position itself": (2, PREFIX, before_only),
    "prefix sums see present rows": (2, PREFIX, lambda rows, queries: PREFIX(present(rows), queries)),
    "prefix sums leave out what is nothing": (
        2,
        PREFIX,
        lambda rows, queries: ((row, c) for row, c in PREFIX(rows, queries) if row[-1] != 0),
    ),
    "top_k counts rows, not copies": (1, TopK(2, BY), of_one(present, TopK(2, BY))),
    "top_k sees rows that are not present": (1, TopK(2, BY), of_one(anyhow, TopK(2, BY))),
    "top_k goes the other way": (1, TopK(2, BY), TopK(2, (By(item(1)),))),
    "ranks have no gaps": (1, Rank(BY), Rank(BY, True)),
    "ranks count rows, not copies": (1, Rank(BY), lambda rows: ((r, rows[r[:-1]]) for r, _ in Rank(BY)(present(rows)))),
    "ranks tell equal rows apart": (1, Rank(BY), ranks_by_row),
    "dense ranks have gaps": (1, Rank(BY, True), Rank(BY)),
    "nulls come last upwards": (
        1,
        RowNumber((By(item(0)),)),
        RowNumber((By(lambda row: 9 if row[0] is None else row[0]),)),
    ),
    "row numbers are of rows": (1, RowNumber(BY), numbered_rows),
    "row numbers do not count": (
        1,
        RowNumber(BY),
        lambda rows: ((row, count - 1) for row, count in RowNumber(BY)(rows)),
    ),
    "lag looks ahead": (1, Shifted(item(0), 1, BY), Shifted(item(0), -1, BY)),
    "lag skips copies": (1, Shifted(item(1), 1, BY), of_one(present, Shifted(item(1), 1, BY))),
    "running sums are of peers": (1, RunningSum(item(1), BY), sums_of_peers),
    "running sums begin at 0 where nothing was": (
        1,
        RunningSum(item(0), BY),
        lambda rows: (((*r[:-1], r[-1] or 0), c) for r, c in RunningSum(item(0), BY)(rows)),
    ),
    "sessions end with a gap": (1, Sessions(item(1), 2), Sessions(item(1), 1)),
    "sessions see rows that are not present": (1, Sessions(item(1), 1), of_one(anyhow, Sessions(item(1), 1))),
    "sessions come once": (1, Sessions(item(1), 1), of_one(present, Sessions(item(1), 1))),
    "windows hold their end": (1, hopping(4, 2), hopping(4, 2, closed=True)),
    "windows are rounded to zero": (1, hopping(3, 3), hopping(3, 3, toward_zero=True)),
    "windows do not overlap": (1, hopping(4, 2), hopping(4, 4)),
}
"""How many collections the rule is about, the rule, and the rule with a mistake in it."""


@pytest.mark.parametrize("name", MUTANTS)
def test_small_collections_show_every_planted_mistake(name: str) -> None:
    sides, rule, mutant = MUTANTS[name]
    assert any(differs(random.Random(seed), sides, rule, mutant) for seed in range(60))


def differs(choose: random.Random, sides: int, rule: Rule, mutant: Rule) -> bool:
    """Whether the mistake shows on some collections."""
    parts: list[Any] = [collection(choose) for _ in range(sides)]
    return accumulate(rule(*parts)) != accumulate(mutant(*parts))
