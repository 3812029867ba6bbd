"""OVER: window functions as columns of ordered groups.

A window over a whole partition is an aggregate that is joined with its rows; ranks, neighbours and frames are logics of
ordered groups (operators/group_functions), which cost O(rows of the partition) for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.expr.expression import Column, Literal
from vernier.operators.language.expr.order import Order
from vernier.operators.sql.aggregating import over_partition
from vernier.operators.sql.expressions import unknown
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh
from vernier.operators.sql.trees import Tree

Ordered = Callable[[Relation, Sequence[Tree]], tuple[Relation, list[Order]]]
_RANKS = {"Rank": Collection.rank, "DenseRank": Collection.dense_rank, "RowNumber": Collection.row_number}


def window(below: Relation, tree: Tree, ordered: Ordered) -> Relation:
    """The relation with a column for each of the window expressions."""
    ids = dict(below.ids)
    found, by = ordered(below, tree.trees("orderSpec"))
    found, within = found.with_columns([("partition", found.of(one)) for one in tree.trees("partitionSpec")])
    within = list(dict.fromkeys(within))
    for one in tree.trees("windowExpressions"):
        expression = one.one
        while expression.kind != "WindowExpression":
            raise unknown(expression)
        function, spec = expression.children
        name = fresh(one.name, found.row.names)
        found = _with(found, function, spec, name, by, within)
        ids[one.id] = name
    return Relation(found.node, ids).project([(n, column, Column(column)) for n, column in ids.items()])


def _with(rows: Relation, function: Tree, spec: Tree, name: str, by: list[Order], within: list[str]) -> Relation:
    frame = spec.children[-1]
    low, high = (one.kind for one in frame.children) if frame.children else ("", "")
    if function.kind in _RANKS:
        made = _RANKS[function.kind](Collection(rows.node), by=_needed(by, within, rows), within=within, name=name)
        return replace(rows, node=made.node)
    if function.kind in ("Lag", "Lead"):
        return _shifted(rows, function, name, by, within)
    if function.kind == "AggregateExpression" and (low, high) == ("UnboundedPreceding", "UnboundedFollowing"):
        return over_partition(rows, function, name, within)
    raise refuse("this frame cannot be maintained; write a frame over the whole partition, or a join", "over", "rows")


def _needed(by: list[Order], within: list[str], rows: Relation) -> list[Order]:
    """The order, without the partition's own columns; all columns where nothing is left."""
    kept = [one for one in by if one.column.column not in within]
    return kept or [Order(Column(one)) for one in rows.row.names if one not in within][:1] or by


def _shifted(rows: Relation, function: Tree, name: str, by: list[Order], within: list[str]) -> Relation:
    if function.fields.get("ignoreNulls"):
        raise refuse("IGNORE NULLS cannot be maintained; filter the nulls first", "ignore", "nulls")
    value, offset, default = function.children[:3]
    step = rows.scope.constant(offset, "the offset of lag() and lead()")
    rows, (column,) = rows.with_columns([("shifted", rows.of(value))])
    given = rows.of(default)
    if column in within:
        raise refuse("lag() and lead() of a column of PARTITION BY: it is equal in all of the partition", function.kind)
    if not isinstance(given, Literal):
        while hasattr(given, "part"):
            given = given.part
    if not isinstance(given, Literal):
        raise refuse("the default of lag() and lead() must be a constant", function.kind)
    method = Collection.lag if function.kind == "Lag" else Collection.lead
    number = int(step)
    if function.kind == "Lead" and function.fields.get("offset") is not None and number < 0:
        number = -number
    made = method(
        Collection(rows.node),
        column,
        number,
        by=_needed(by, within, rows),
        within=within,
        name=name,
        default=None if given.value is None else given,
    )
    return replace(rows, node=made.node)
