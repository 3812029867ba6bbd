"""Plans groups of different aggregates as parts that stand beside one another, so that each is read as fast as alone.

A least or greatest value reads one end of a group, a quantile follows ranks, and counts and sums are one vector. Beside
one another they would all be computed from whole groups. So each part is a group of its own, and all contribute rows
with a column for each aggregate to one union, of which a vector is kept:

    (key, 1 and the summed columns for each row) + (key, 1 for each distinct value) + (key, the least value) + …

The sum of a column to which one row contributes is the value of that row, word by word, whatever its type. A hidden sum
counts the rows of those parts that have one row a group (`parts`): the group exists while all of them do, and they
exist as long as the group of all aggregates did. All parts change at the same data times, so at no time is the row half
old. A change costs what it costs in each part, and O(1) for the vector. Not for texts, whose words are places of
contents, and not inside loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vernier.operators.group_functions.aggregations import Item
from vernier.operators.language.expr.expression import Cast, Expr, Literal, Nullability, col
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.choices import choices
from vernier.operators.planning.distinct_counts import SHARED, distinct_values, projected, summable, value_of, zero_of
from vernier.operators.planning.sharing import identity

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner

_SUMMED = frozenset(("count", "sum", "avg"))
_EXTREME = frozenset(("min", "max"))
_CHOSEN = frozenset(("quantile", "mode"))
_PARTS = "parts"


def has_parts(node: logical.AggregateNode, below: Node, items: Sequence[Item], val: RowType) -> bool:
    """Whether the aggregates, which are no sums alone, are faster as parts, and may be."""
    kinds = {item.kind for item in items}
    if node.scope.depth > 0 or len(items) < 2 or kinds - (_SUMMED | _EXTREME | _CHOSEN | {"count_distinct"}):
        return False
    if not kinds & (_EXTREME | _CHOSEN) or (kinds & _CHOSEN and choices(items, val) is not None):
        return False
    alone = (item for item in items if item.kind in _EXTREME | _CHOSEN)
    return not any(item.type.text_words for item in alone) and all(summable(item, below) for item in items)


def as_parts(
    planner: Planner, node: logical.AggregateNode, below: Node, items: Sequence[Item]
) -> logical.AggregateNode:
    """An aggregate of sums alone with the rows of `node`, whose aggregates are `items` of `below`."""
    row = below.schema
    keys = tuple((name, col(name)) for name in node.keys)
    columns = [f"value {at}" for at in range(len(items))]
    alone = [at for at, item in enumerate(items) if item.kind in _EXTREME | _CHOSEN]
    zeros: dict[str, Expr] = {
        columns[at]: Cast(Literal(None, None), item.type) if at in alone else zero_of(item, row)
        for at, item in enumerate(items)
    }
    zeros[_PARTS] = Literal(0, Int64())
    parts: list[Node] = []
    for at, item in enumerate(items):
        if item.kind == "count_distinct":
            one = zeros | {columns[at]: Literal(1, Int64())}
            parts.append(projected(planner, distinct_values(planner, below, node, item), (*keys, *one.items())))
    if any(item.kind in _SUMMED for item in items):
        summed = {columns[at]: value_of(item, row) for at, item in enumerate(items) if item.kind in _SUMMED}
        parts.append(projected(planner, below, (*keys, *(zeros | summed).items())))
    # What ranks choose reads the group once for all; each end is a part of its own.
    chosen = any(items[at].kind in _CHOSEN for at in alone)
    groups = [alone] if chosen else [[at] for at in alone]
    for group in groups:
        aggs = tuple((items[at].name, _alone(items[at])) for at in group)
        part = logical.AggregateNode(below, node.keys, aggs, where=node.where)
        planner.uses[identity(part)] += SHARED
        found: dict[str, Expr] = {columns[at]: _nullable(part, items[at].name) for at in group}
        parts.append(projected(planner, part, (*keys, *(zeros | found | {_PARTS: Literal(1, Int64())}).items())))
    union = logical.UnionNode(tuple(parts), where=node.where)
    planner.uses[identity(union)] += SHARED
    sums = [(item.name, _sum(item, col(columns[at]), at in alone)) for at, item in enumerate(items)]
    count = (_PARTS, Aggregation(_PARTS, col(_PARTS), option=len(groups)))
    return logical.AggregateNode(union, node.keys, (*sums, count), where=node.where)


def _alone(item: Item) -> Aggregation:
    return Aggregation(item.kind, col(item.columns[0]), option=item.option)


def _nullable(part: Node, name: str) -> Expr:
    return col(name) if part.schema.field(name).nullable else Nullability(col(name), True)


def _sum(item: Item, column: Expr, alone: bool) -> Aggregation:
    if alone:
        return Aggregation("only", column, option=item.nullable)
    return Aggregation("avg" if item.kind == "avg" else "sum", column)
