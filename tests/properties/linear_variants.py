"""Row-wise operators that make many rows of one, or none, and change multiplicities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import vernier as vn
from tests.oracle.plan import Expand, Row
from tests.properties.variants import HIGH, LOW, Family, Variant, small, small_b
from vernier import col


class Both(vn.Schema):
    """What functions of rows return."""

    a: vn.Int64
    b: vn.Int64


def neighbours(row: Any) -> Iterable[tuple[int, int]]:
    """Both numbers beside b, the lower one twice, for rows with an even a."""
    if row.a % 2 == 0:
        return [(row.a, row.b - 1), (row.a, row.b + 1), (row.a, row.b - 1)]
    return []


def ends(row: Any) -> Iterable[dict[str, int]]:
    """Each column as a row of its own."""
    yield {"b": 0, "a": row.a}
    yield {"a": row.b, "b": 1}


def series(row: Row) -> list[tuple[Row, int]]:
    """The row with every number from a to b."""
    return [((row[0], value), 1) for value in range(row[0], row[1] + 1)]


def falling(row: Row) -> list[tuple[Row, int]]:
    """Every second number from b down to a."""
    return [((row[1], value), 1) for value in range(row[1], row[0] - 1, -2)]


def all_neighbours(rows: Any) -> vn.Produced:
    """The same as `neighbours`, at once: the lower neighbour with a diff of 2."""
    even = np.flatnonzero(rows.a % 2 == 0)
    row = np.concatenate((even, even))
    b = np.concatenate((rows.b[even] - 1, rows.b[even] + 1))
    return vn.Produced({"b": b, "a": rows.a[row]}, row=row, diff=np.repeat([2, 1], len(even)))


def scaled(rows: Any) -> vn.Produced:
    """Each row with diff a - 2, which may be 0."""
    return vn.Produced({"a": rows.a, "b": rows.b}, diff=rows.a - 2)


LINEAR: Family = {
    "all_neighbours": Variant(
        lambda node: small(
            Expand(
                node,
                lambda row: [((row[0], row[1] - 1), 2), ((row[0], row[1] + 1), 1)] if row[0] % 2 == 0 else [],
            )
        ),
        lambda rows: small_b(rows.join_function(all_neighbours, returns=Both)),
    ),
    "scaled": Variant(
        lambda node: Expand(node, lambda row: [(row, row[0] - 2)]),
        lambda rows: rows.join_function(scaled, returns=Both),
    ),
    "neighbours": Variant(
        lambda node: small(
            Expand(
                node,
                lambda row: [((row[0], row[1] - 1), 2), ((row[0], row[1] + 1), 1)] if row[0] % 2 == 0 else [],
            )
        ),
        lambda rows: small_b(rows.flat_map(neighbours, returns=Both)),
    ),
    "ends": Variant(
        lambda node: Expand(node, lambda row: [((row[0], 0), 1), ((row[1], 1), 1)]),
        lambda rows: rows.flat_map(ends, returns=Both),
    ),
    "series": Variant(
        lambda node: Expand(node, series),
        lambda rows: rows.flat_map(vn.generate_series("a", "b")).select("a", b=col("value")),
    ),
    "falling": Variant(
        lambda node: Expand(node, falling),
        lambda rows: rows.flat_map(vn.generate_series("b", "a", -2)).select(a=col("b"), b=col("value")),
    ),
    "repeat": Variant(
        lambda node: Expand(node, lambda row: [(row, row[1] - 2)]),
        lambda rows: rows.flat_map(vn.repeat_row(col("b") - 2)),
    ),
    "thrice": Variant(
        lambda node: Expand(node, lambda row: [(row, -3)]),
        lambda rows: rows.map_diff(-3),
    ),
    "by_a": Variant(
        lambda node: Expand(node, lambda row: [(row, row[0])]),
        lambda rows: rows.map_diff("a"),
    ),
    "consolidate": Variant(lambda node: node, lambda rows: rows.consolidate()),
    "arrange": Variant(lambda node: node, lambda rows: rows.arrange_by("b")),
    "inspect": Variant(lambda node: node, lambda rows: rows.inspect(lambda row, time, diff: None, name="look")),
    "fused": Variant(
        lambda node: Expand(
            node,
            lambda row: [
                ((value, row[0]), factor * value)
                for (_, value), factor in series(row)
                if value != 1
                if LOW <= row[0] <= HIGH
            ],
        ),
        lambda rows: small_b(
            rows.flat_map(vn.generate_series("a", "b"))
            .filter(col("value") != 1)
            .select(a=col("value"), b=col("a"))
            .map_diff(col("a"))
        ),
    ),
}
