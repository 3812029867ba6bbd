"""Reductions: functions of whole groups, thresholds, aggregates."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import vernier as vn
from tests.oracle.plan import Aggregate, Contents, Expand, Group, Node, PerKey, Project, Row, columns, item
from tests.properties.linear_variants import Both
from tests.properties.variants import Family, Variant, small, small_b
from vernier import col


class One(vn.Schema):
    """What functions of groups return beside the key."""

    b: vn.Int64


Rows = list[tuple[Row, int]]


def halves(counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Three copies for each two, minus one for what is less than not there."""
    return np.where(counts > 0, counts // 2 * 3, -1)


def threefold(count: int) -> int:
    """The same of one multiplicity."""
    return count // 2 * 3 if count > 0 else -1


def spread(values: Any, counts: Any, offsets: Any) -> Any:
    """How far apart the least and the greatest value of each group are."""
    return np.maximum.reduceat(values, offsets[:-1]) - np.minimum.reduceat(values, offsets[:-1])


def above_two(values: Any, counts: Any) -> Any:
    """By how much all copies together are above 2 each."""
    total = 0
    for place in range(len(values)):
        total += (values[place] - 2) * counts[place]
    return total


def aggregate(of: Aggregate, product: Any, shown: Callable[[Row], Row] = lambda row: row) -> Variant:
    """An aggregate of b by a."""
    return Variant(
        lambda node: small(Project(Group(node, columns(0), (of,)), shown)),
        lambda rows: small_b(rows.group_by("a").agg(b=product)),
    )


def all_sums(rows: Rows) -> Rows:
    """The number of rows and the sum of multiplicities, the second as often as it says."""
    total = sum(count for _, count in rows)
    return [((len(rows),), 1), ((total % 5,), total)]


def in_groups(key: tuple[Any, ...], rows: Rows) -> list[Any]:
    return all_sums(rows)


def least_two(key: tuple[Any, ...], rows: Rows) -> list[Row]:
    """The two least values that are present, without multiplicities."""
    return sorted(row for row, count in rows if count > 0)[:2]


def turned(key: tuple[Any, ...], rows: Rows) -> Rows:
    """Of all rows together: every one turned, with minus its multiplicity, and the greatest once more."""
    return [*(((row[1], row[0]), -count) for row, count in rows), (max(row for row, _ in rows), 1)]


def of_present(product: Any, summary: Callable[[Row], int]) -> Variant:
    """An aggregate of the program, which sees all present copies of b by a, if there is one."""

    def oracle(node: Node) -> Node:
        grouped = Group(node, columns(0), (Aggregate("collect_list", item(1)),))
        return small(Expand(grouped, lambda row: [((row[0], summary(row[1])), 1)] if row[1] else []))

    return Variant(oracle, lambda rows: small_b(rows.group_by("a").agg(b=product)))


def listed(rows: Contents, *places: int) -> Rows:
    """The rows' columns without the key."""
    return [(tuple(row[place] for place in places), count) for row, count in rows.items()]


GROUPED: Family = {
    "reduce_sums": Variant(
        lambda node: PerKey(node, columns(0), lambda rows: all_sums(listed(rows, 1))),
        lambda rows: rows.reduce(in_groups, keys=["a"], returns=One),
    ),
    "reduce_least": Variant(
        lambda node: PerKey(node, columns(0), lambda rows: [(row, 1) for row in least_two((), listed(rows, 1))]),
        lambda rows: rows.group_by("a").reduce(least_two, returns=One),
    ),
    "threshold": Variant(
        lambda node: PerKey(node, lambda row: row, lambda rows: [((), int(max(rows.values()) >= 2))]),
        lambda rows: rows.threshold(2),
    ),
    "threshold_by": Variant(
        lambda node: PerKey(node, lambda row: row, lambda rows: [((), threefold(count)) for count in rows.values()]),
        lambda rows: rows.threshold(halves),
    ),
    "mode": aggregate(Aggregate("mode", item(1)), vn.mode("b")),
    "median": aggregate(Aggregate("quantile", item(1)), vn.median("b")),
    "third": aggregate(Aggregate("quantile", item(1), at=Fraction(1, 3)), vn.quantile("b", Fraction(1, 3))),
    "distinct": aggregate(Aggregate("count_distinct", item(1)), vn.count_distinct("b")),
    "arg_max": aggregate(Aggregate("arg_max", item(1), by=lambda row: -row[1]), vn.arg_max("b", by=-col("b"))),
    "arg_min": Variant(
        lambda node: Project(
            Group(
                node, columns(), (Aggregate("arg_min", item(0), by=item(1)), Aggregate("arg_max", item(1), by=item(0)))
            ),
            columns(0, 1),
        ),
        lambda rows: rows.group_by().agg(a=vn.arg_min("a", by="b"), b=vn.arg_max("b", by="a")),
    ),
    "collected": Variant(
        lambda node: Expand(
            Group(node, columns(0), (Aggregate("collect_list", item(1)),)),
            lambda row: [((row[0], one), 1) for one in row[1]],
        ),
        lambda rows: rows.group_by("a").agg(b=vn.collect_list("b")).explode("b"),
    ),
    "numbered": Variant(
        lambda node: Expand(
            Group(node, columns(1), (Aggregate("collect_set", item(0)),)),
            lambda row: [((one, place), 1) for place, one in enumerate(row[1])],
        ),
        lambda rows: (
            rows.group_by("b").agg(x=vn.collect_set("a")).explode("x", name="a", index_name="i").select("a", b=col("i"))
        ),
    ),
    "spread": of_present(vn.aggregate(spread, returns=vn.Int64)("b"), lambda values: values[-1] - values[0]),
    "above_two": of_present(
        vn.aggregate(above_two, returns=vn.Int64, compiled=True)("b"), lambda values: sum(value - 2 for value in values)
    ),
    "reduce_all": Variant(
        lambda node: PerKey(node, lambda _: (), lambda rows: turned((), listed(rows, 0, 1))),
        lambda rows: rows.reduce(turned, returns=Both),
    ),
}
