"""Rules of the joins that look at who has no partner or at the nearest one, and of the differences of multisets.

Each rule makes rows of two whole collections, as Whole wants them. A row of the other side is a partner when the keys
are equal, have no None in them, and `where(left, right)` is true; it matches when it is present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.oracle.plan import Contents, Node, Row, Whole
from tests.oracle.values import order, rank

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Pairs = Iterator[tuple[Row, int]]
Key = Callable[[Row], Row]


def anything(left: Row, right: Row) -> bool:
    """No further condition."""
    return True


@dataclass(frozen=True)
class Matched:
    """A join of any kind. `output` is given None for a side without a partner; semi and anti give rows of the left."""

    how: How
    left_key: Key
    right_key: Key
    output: Callable[[Row | None, Row | None], Row]
    where: Callable[[Row, Row], bool] = anything

    def partners(self, one: Row, two: Row) -> bool:
        key = self.left_key(one)
        return None not in key and key == self.right_key(two) and self.where(one, two)

    def __call__(self, left: Contents, right: Contents) -> Pairs:
        if self.how in ("semi", "anti"):
            for one, count in left.items():
                matched = any(times > 0 and self.partners(one, two) for two, times in right.items())
                if matched == (self.how == "semi"):
                    yield one, count
            return
        for one, count in left.items():
            for two, times in right.items():
                if self.partners(one, two):
                    yield self.output(one, two), count * times
        if self.how in ("left", "full"):
            for one, count in left.items():
                if not any(times > 0 and self.partners(one, two) for two, times in right.items()):
                    yield self.output(one, None), count
        if self.how in ("right", "full"):
            for two, times in right.items():
                if not any(count > 0 and self.partners(one, two) for one, count in left.items()):
                    yield self.output(None, two), times


@dataclass(frozen=True)
class AsOf:
    """Each left row with the nearest present right row of its key, backward or forward in time.

    Of several at one time it is the last in the order of columns. Rows without a time match nothing.
    """

    how: Literal["inner", "left"]
    left_key: Key
    right_key: Key
    left_time: Callable[[Row], int | None]
    right_time: Callable[[Row], int | None]
    output: Callable[[Row, Row | None], Row]
    forward: bool = False
    tolerance: int | None = None

    def fits(self, one: Row, two: Row) -> bool:
        key, now, then = self.left_key(one), self.left_time(one), self.right_time(two)
        if None in key or key != self.right_key(two) or now is None or then is None:
            return False
        apart = then - now if self.forward else now - then
        return apart >= 0 and (self.tolerance is None or apart <= self.tolerance)

    def __call__(self, left: Contents, right: Contents) -> Pairs:
        for one, count in left.items():
            found = [two for two, times in right.items() if times > 0 and self.fits(one, two)]
            if found:
                times = [self.right_time(two) or 0 for two in found]
                nearest = min(times) if self.forward else max(times)
                best = max((two for two in found if self.right_time(two) == nearest), key=order)
                yield self.output(one, best), count
            elif self.how == "left":
                yield self.output(one, None), count


def except_all(left: Contents, right: Contents) -> Pairs:
    """Each row as often as the left has it more often than the right."""
    for row in left.keys() | right.keys():
        more = left.get(row, 0) - right.get(row, 0)
        if more > 0:
            yield row, more


def intersect(left: Contents, right: Contents) -> Pairs:
    """The rows that are present on both sides, once."""
    for row, count in left.items():
        if count > 0 and right.get(row, 0) > 0:
            yield row, 1


@dataclass(frozen=True)
class PrefixSum:
    """For each query row, the sum over the rows of its key whose position is at most the query's; 0 of no rows."""

    row_key: Key
    query_key: Key
    row_position: Callable[[Row], Any]
    query_position: Callable[[Row], Any]
    value: Callable[[Row], Any]

    def __call__(self, rows: Contents, queries: Contents) -> Pairs:
        for query, count in queries.items():
            total = 0
            for row, times in rows.items():
                before = rank(self.row_position(row)) <= rank(self.query_position(query))
                if before and self.row_key(row) == self.query_key(query) and self.value(row) is not None:
                    total += self.value(row) * times
            yield (*query, total), count


def matched(left: Node, right: Node, rule: Callable[[Contents, Contents], Pairs]) -> Whole:
    """The node of a rule about two collections."""
    return Whole((left, right), rule)
