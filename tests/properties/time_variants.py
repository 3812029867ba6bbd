"""Operators that look at other times than the present: temporal filters, coarser times, delays, delayed variables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import vernier as vn
from tests.oracle.plan import (
    Between,
    Coarsen,
    Delay,
    Distinct,
    Expand,
    Feedback,
    Filter,
    Lookup,
    Negate,
    Node,
    Project,
    Row,
    Union,
    columns,
)
from tests.properties.linear_variants import Both
from tests.properties.variants import Family, Variant
from vernier import col

NOW = 1_700_000_000_000_000_000
"""Where the data times of some cases begin."""
NAMES = itertools.count()
"""Variables of one program must have different names."""


def valid(start: Callable[[Row], int | None], end: Callable[[Row], int | None], *bounds: vn.Expr | None) -> Variant:
    """Rows between two times."""
    return Variant(lambda node: Between(node, start, end), lambda rows: rows.valid_between(*bounds))


def fading(delay: int) -> Variant:
    """Rows less the distinct rows of a while ago."""

    def oracle(node: Node) -> Node:
        back = Feedback(delay)
        back.define(Distinct(node))
        return Union((node, Negate(back)))

    def product(rows: vn.Collection) -> vn.Collection:
        back = vn.Variable(f"fading{next(NAMES)}", Both, delay=delay)
        back.set(rows.distinct())
        return rows.union(back.negate())

    return Variant(oracle, product, loops=False)


def wandering(delay: int) -> Variant:
    """Rows that come back a while later with b two greater, until it is large: a variable that depends on itself."""

    def oracle(node: Node) -> Node:
        back = Feedback(delay)
        both = Union((node, back))
        back.define(Project(Filter(both, lambda row: row[1] < 5), lambda row: (row[0], row[1] + 2)))
        return both

    def product(rows: vn.Collection) -> vn.Collection:
        back = vn.Variable(f"wandering{next(NAMES)}", Both, delay=delay)
        both = rows.union(back)
        back.set(both.filter(col("b") < 5).select("a", b=col("b") + 2))
        return both

    return Variant(oracle, product, loops=False)


def compacted(delay: int) -> Variant:
    """Rows that were there a while ago and at that time had one of greater b beside them; those with a in its place."""

    def oracle(node: Node) -> Node:
        small, large = Feedback(delay), Feedback(2 * delay)
        small.define(Filter(Union((node, large)), lambda row: row[1] <= 2))
        large.define(Filter(Distinct(Union((node, Negate(small)))), lambda row: row[1] > 2))
        return Union((node, Negate(small), large))

    def product(rows: vn.Collection) -> vn.Collection:
        count = next(NAMES)
        small = vn.Variable(f"small{count}", Both, delay=delay)
        large = vn.Variable(f"large{count}", Both, delay=2 * delay)
        small.set(rows.union(large).filter(col("b") <= 2))
        large.set(rows.union(small.negate()).distinct().filter(col("b") > 2))
        return rows.union(small.negate(), large)

    return Variant(oracle, product, loops=False)


def windows(rows: Any) -> vn.Produced:
    """Each row a times from a until b + 4, where that is later: a temporal filter that also multiplies."""
    some = np.flatnonzero(rows.a < rows.b + 4)
    a, b = rows.a[some], rows.b[some]
    return vn.Produced(
        {"a": np.tile(a, 2), "b": np.tile(b, 2)},
        row=np.tile(some, 2),
        diff=np.concatenate((a, -a)),
        time=np.concatenate((a, b + 4)),
    )


def later(rows: Any) -> vn.Produced:
    """Rows with an even a at once, and all rows with the columns swapped, a later."""
    even = np.flatnonzero(rows.a % 2 == 0)
    row = np.concatenate((even, np.arange(len(rows.a))))
    after = np.concatenate((np.zeros_like(even), rows.a))
    return vn.Produced(
        {"a": np.concatenate((rows.a[even], rows.b)), "b": np.concatenate((rows.b[even], rows.a))}, row, after=after
    )


def in_oracle_later(node: Node) -> Node:
    """The same in the oracle's language: for each a that there can be, its rows, delayed by a."""

    def swapped(a: int) -> Node:
        return Project(Filter(node, lambda row: row[0] == a), lambda row: (row[1], row[0]))

    return Union((Filter(node, lambda row: row[0] in (0, 2)), swapped(0), *(Delay(swapped(a), a) for a in (1, 2, 3))))


TIMED: Family = {
    "windows": Variant(
        lambda node: Between(Expand(node, lambda row: [(row, row[0])]), lambda row: row[0], lambda row: row[1] + 4),
        lambda rows: rows.join_function(windows, returns=Both, times="at"),
    ),
    "later": Variant(
        in_oracle_later,
        lambda rows: rows.filter((col("a") >= 0) & (col("a") <= 3)).join_function(later, returns=Both, times="after"),
        loops=False,
    ),
    "from_until": valid(lambda row: row[0], lambda row: row[0] + row[1], col("a"), col("a") + col("b")),
    "from": valid(lambda row: 2 * row[1], lambda _: None, col("b") * 2),
    "until": valid(lambda _: None, lambda row: row[1] + 3, None, col("b") + 3),
    "nullable": valid(
        lambda row: None if row[0] == 1 else row[0],
        lambda row: None if row[1] == 2 else row[1] + 4,
        vn.when(col("a") == 1, None).otherwise(col("a")),
        vn.when(col("b") == 2, None).otherwise(col("b") + 4),
    ),
    "now": valid(lambda row: NOW + row[0], lambda row: NOW + 3 * row[1], col("a") + NOW, col("b") * 3 + NOW),
    "coarsen": Variant(lambda node: Coarsen(node, 4), lambda rows: rows.coarsen(4)),
    "coarsen_twice": Variant(
        lambda node: Coarsen(Negate(Coarsen(node, 3)), 2), lambda rows: rows.coarsen(3).negate().coarsen(2)
    ),
    "delay": Variant(lambda node: Delay(node, 2), lambda rows: rows.delay(2), loops=False),
    "recent": Variant(
        lambda node: Union((node, Negate(Delay(node, 3)))),
        lambda rows: rows.union(rows.delay(3).negate()),
        loops=False,
    ),
    "shifted": Variant(
        lambda node: Coarsen(Between(Delay(node, 1), lambda row: row[0], lambda row: row[1] + 6), 5),
        lambda rows: rows.delay(1).valid_between("a", col("b") + 6).coarsen(5),
        loops=False,
    ),
    "lookup": Variant(
        lambda one, two: Lookup(one, two, columns(0), columns(0), lambda left, right: (left[1], right[1])),
        lambda one, two: one.lookup(two.rename(b="d"), on="a").select(a=col("b"), b=col("d")),
        2,
        loops=False,
    ),
    "fading": fading(2),
    "wandering": wandering(3),
    "compacted": compacted(2),
}
