"""Reductions: functions of whole groups, thresholds, aggregates."""

from __future__ import annotations

from typing import Any

import vernier as vn
from tests.oracle.plan import Contents, PerKey, Row, columns
from tests.properties.linear_variants import Both
from tests.properties.variants import Family, Variant


class One(vn.Schema):
    """What functions of groups return beside the key."""

    b: vn.Int64


Rows = list[tuple[Row, int]]


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
    "reduce_all": Variant(
        lambda node: PerKey(node, lambda _: (), lambda rows: turned((), listed(rows, 0, 1))),
        lambda rows: rows.reduce(turned, returns=Both),
    ),
}
