"""Plans count_distinct: each value of a group once, and then a count of them, so that no group is read.

The distinct values of a group are rows of a `distinct`, whose changes are counted like any others. Where rows can
cancel, all values of the group's rows are kept, of which only those of present rows count, so that their vector tells
whether the group exists. With several distinct counts, or counts and sums beside them, all contribute rows with a
column each to one union, and the aggregates are sums of these columns:

    (key, 1 for each distinct value) + (key, 1 and the summed columns for each row) + (key, zeros for each group)

A change costs what it changes of the distinct values and of one vector, O(1).
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from vernier.operators.group_functions.aggregations import Item
from vernier.operators.language.collection.reductions import ExistsNode
from vernier.operators.language.expr.expression import Cast, Expr, Literal, Nullability, col, when
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Float64, Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.sharing import identity

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner

SHARED = 2
"""Uses of a node that is made here: never one, because another group may need the same node, and an operator that has
been fused with its only reader cannot be read by others."""
_PRESENT = "is present"
"""The column that says whether a row with a value is present."""


def counts_distinct(node: logical.AggregateNode, below: Node, items: Sequence[Item]) -> bool:
    """Whether the aggregates are distinct counts, perhaps with counts and sums, that need no whole groups.

    A group exists while any of its rows has copies. If rows can cancel, the number of rows must be among the aggregates
    for their vector to tell that, and null sums would need the rows.
    """
    kinds = {item.kind for item in items}
    if node.scope.depth > 0 or "count_distinct" not in kinds or kinds - {"count_distinct", "count", "sum", "avg"}:
        return False
    if not all(summable(item, below) for item in items):
        return False
    return below.is_positive or kinds == {"count_distinct"} or any(_counts_rows(item, below.schema) for item in items)


def summable(item: Item, below: Node) -> bool:
    """Whether rows that are no rows of the group may contribute nothing to this aggregate: a null sum of rows that can
    cancel would need these rows."""
    if item.kind not in ("sum", "avg"):
        return True
    found = below.schema.field(item.columns[0])
    if type(found.type) not in (Int64, Float64, Decimal):
        return False
    return below.is_positive or not found.nullable or item.kind == "avg"


def as_sums(planner: Planner, node: logical.AggregateNode, below: Node, items: Sequence[Item]) -> logical.AggregateNode:
    """An aggregate of counts and sums alone with the rows of `node`, whose aggregates are `items` of `below`."""
    row = below.schema
    keys = tuple((name, col(name)) for name in node.keys)
    distinct = [item for item in items if item.kind == "count_distinct"]
    zeros: dict[str, Expr] = {f"value {at}": zero_of(item, row) for at, item in enumerate(items)}
    parts: list[Node] = []
    for at, item in enumerate(items):
        if item.kind == "count_distinct":
            one = zeros | {f"value {at}": Literal(1, Int64())}
            parts.append(projected(planner, distinct_values(planner, below, node, item), (*keys, *one.items())))
    if len(distinct) < len(items):
        values_of = {f"value {at}": value_of(item, row) for at, item in enumerate(items)}
        parts.append(projected(planner, below, (*keys, *values_of.items())))
    if len(distinct) == len(items) or not below.is_positive:
        parts.append(projected(planner, _groups(planner, node, below), (*keys, *zeros.items())))
    union = logical.UnionNode(tuple(parts), where=node.where)
    planner.uses[identity(union)] += SHARED
    sums = tuple(
        (item.name, Aggregation("avg" if item.kind == "avg" else "sum", col(f"value {at}")))
        for at, item in enumerate(items)
    )
    return logical.AggregateNode(union, node.keys, sums, where=node.where)


def as_count(planner: Planner, node: logical.AggregateNode, below: Node, item: Item) -> logical.AggregateNode:
    """A node of counts or sums alone with the rows of `node`, whose one aggregate is the distinct count `item`."""
    names = tuple(dict.fromkeys((*node.keys, *item.columns)))
    null = [name for name in item.columns if below.schema.field(name).nullable]
    counted: Expr = Literal(1, Int64())
    values: Node
    if below.is_positive:
        values = logical.DistinctNode(
            projected(planner, below, tuple((name, col(name)) for name in names)), where=node.where
        )
    else:
        values, counted = ExistsNode(below, names, _PRESENT, where=node.where), col(_PRESENT)
    planner.uses[identity(values)] += SHARED
    if null:
        there = reduce(operator.and_, (col(name).is_not_null() for name in null))
        counted = when(there, counted).otherwise(Literal(0, Int64()))
    counts = below.is_positive and not null
    sum_ = Aggregation("count") if counts else Aggregation("sum", counted)
    return logical.AggregateNode(values, node.keys, ((item.name, sum_),), where=node.where)


def _groups(planner: Planner, node: logical.AggregateNode, below: Node) -> Node:
    """The groups that exist, once each."""
    groups = logical.AggregateNode(below, node.keys, (), where=node.where)
    planner.uses[identity(groups)] += SHARED
    return groups


def _counts_rows(item: Item, row: RowType) -> bool:
    return item.kind == "count" and not any(row.field(name).nullable for name in item.columns)


def projected(planner: Planner, node: Node, exprs: tuple[tuple[str, Expr], ...]) -> Node:
    made = logical.ProjectNode(node, exprs, where=node.where)
    planner.uses[identity(made)] += SHARED
    return made


def distinct_values(planner: Planner, below: Node, node: logical.AggregateNode, item: Item) -> Node:
    """The distinct values of one aggregate, by key, without nulls."""
    kept: Node = below
    for name in item.columns:
        if below.schema.field(name).nullable:
            kept = logical.FilterNode(kept, col(name).is_not_null(), where=node.where)
            planner.uses[identity(kept)] += SHARED
    names = tuple(dict.fromkeys((*node.keys, *item.columns)))
    found: Node
    if below.is_positive:
        pairs = tuple((name, col(name)) for name in names)
        found = logical.DistinctNode(projected(planner, kept, pairs), where=node.where)
    else:
        # A value is there if one of its rows is present, whatever the copies of its other rows.
        found = logical.PresentNode(kept, names, where=node.where)
    planner.uses[identity(found)] += SHARED
    return found


def zero_of(item: Item, row: RowType) -> Expr:
    """What a row that is no row of the group contributes to an aggregate."""
    if item.kind not in ("sum", "avg"):
        return Literal(0, Int64())
    kind = row.field(item.columns[0]).type
    if item.kind == "avg" or row.field(item.columns[0]).nullable:
        return Cast(Literal(None, None), kind)
    if isinstance(kind, Decimal):
        return Literal(decimal.Decimal(0), kind)
    return Literal(0.0, kind) if isinstance(kind, Float64) else Literal(0, kind)


def value_of(item: Item, row: RowType) -> Expr:
    """What a row of the group contributes to an aggregate."""
    if item.kind == "count_distinct":
        return Literal(0, Int64())
    if item.kind == "count":
        one, null = Literal(1, Int64()), [name for name in item.columns if row.field(name).nullable]
        return when(col(null[0]).is_not_null(), one).otherwise(Literal(0, Int64())) if null else one
    value = col(item.columns[0])
    if item.kind == "avg" and not row.field(item.columns[0]).nullable:
        return Nullability(value, True)
    return value
