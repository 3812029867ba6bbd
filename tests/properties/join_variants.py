"""Joins of all kinds with and without a condition, and the differences of multisets."""

from __future__ import annotations

from collections.abc import Sequence

import vernier as vn
from tests.oracle.joins import How, Matched, anything, except_all, intersect
from tests.oracle.plan import Node, Project, Whole, columns
from tests.properties.variants import Family, Variant, filled, or_else, pair
from vernier import col

CONDITIONS = {
    "": (anything, None),
    "rising": (lambda one, two: one[1] < two[1], col("b") < col("d")),
    "unequal": (lambda one, two: one[1] != two[0], col("b") != col("c")),
}
KEYS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "aa": ((0,), (0,)),
    "ba": ((1,), (0,)),
    "both": ((0, 1), (0, 1)),
}
"""Positions of the key's columns on the left (a, b) and on the right (c, d)."""


def outer(how: How, keys: str, condition: str, shown: tuple[int, int]) -> Variant:
    """A join by these keys; `shown` are the columns that come out, nulls as 5."""
    left, right = KEYS[keys]
    where, expression = CONDITIONS[condition]

    def oracle(one: Node, two: Node) -> Node:
        joined = Whole((one, two), Matched(how, columns(*left), columns(*right), pair, where))
        return (
            joined
            if how in ("semi", "anti")
            else Project(joined, lambda row: tuple(or_else(row[at], 5) for at in shown))
        )

    def product(one: vn.Collection, two: vn.Collection) -> vn.Collection:
        names = ["a", "b", "c", "d"]
        joined = one.join(
            two.select(c=col("a"), d=col("b")),
            left_on=[names[at] for at in left],
            right_on=[names[2 + at] for at in right],
            how=how,
            where=expression,
        )
        if how in ("semi", "anti"):
            return joined
        one_name, two_name = (names[at] for at in shown)
        return joined.select(a=filled(one_name, 5), b=filled(two_name, 5))

    return Variant(oracle, product, 2)


def by_one_name(how: str, left: Sequence[str]) -> Variant:
    """A semi or anti join whose keys have one name on both sides."""
    place = {"a": 0, "b": 1}
    key = columns(*(place[name] for name in left))
    kind: How = "semi" if how == "semi" else "anti"
    return Variant(
        lambda one, two: Whole((one, two), Matched(kind, key, key, pair)),
        lambda one, two: one.join(two, on=list(left), how=how),
        2,
    )


def merged_key(how: How) -> Variant:
    """An outer join on one name: the key comes once, from the side that is there."""

    def oracle(one: Node, two: Node) -> Node:
        joined = Whole((one, two), Matched(how, columns(0), columns(0), pair))
        return Project(
            joined, lambda row: (or_else(row[0], or_else(row[2], 0)), or_else(row[1], 4) - or_else(row[3], 4))
        )

    def product(one: vn.Collection, two: vn.Collection) -> vn.Collection:
        joined = one.join(two.rename(b="d"), on="a", how=how)
        return joined.select("a", b=filled("b", 4) - filled("d", 4))

    return Variant(oracle, product, 2)


JOINED: Family = {
    "left": outer("left", "ba", "", (0, 3)),
    "left_where": outer("left", "aa", "rising", (1, 3)),
    "left_both": outer("left", "both", "", (0, 3)),
    "right": outer("right", "ba", "", (1, 3)),
    "right_where": outer("right", "ba", "unequal", (0, 3)),
    "full": outer("full", "aa", "", (1, 2)),
    "full_where": outer("full", "ba", "rising", (0, 3)),
    "semi": outer("semi", "ba", "", (0, 1)),
    "semi_where": outer("semi", "aa", "rising", (0, 1)),
    "anti": outer("anti", "ba", "", (0, 1)),
    "anti_where": outer("anti", "aa", "unequal", (0, 1)),
    "inner_where": outer("inner", "aa", "rising", (1, 3)),
    "semi_on": by_one_name("semi", ("b",)),
    "anti_on": by_one_name("anti", ("a", "b")),
    "merged_left": merged_key("left"),
    "merged_right": merged_key("right"),
    "merged_full": merged_key("full"),
    "except_all": Variant(lambda one, two: Whole((one, two), except_all), lambda one, two: one.except_all(two), 2),
    "intersect": Variant(lambda one, two: Whole((one, two), intersect), lambda one, two: one.intersect(two), 2),
}
