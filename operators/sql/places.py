"""Places of rows in their window, and values at places: first_value, last_value, nth_value.

Each copy of a row has a place from 1 on in its partition. A frame begins and ends at places, which are columns computed
from the row's own place, those of its peers, and the number of rows. A value at a place is a join by partition and
place.

Cost: that of row_number, the places that change.
"""

from __future__ import annotations

from dataclasses import replace

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.expr.expression import Binary, Call, Case, Cast, Column, Expr, IsNull, Literal, Unary
from vernier.operators.language.expr.order import Order
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.logical import AggregateNode, FilterNode, JoinNode, UnionNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.sql.aggregating import beside
from vernier.operators.sql.expressions import nullable
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh, picked
from vernier.operators.sql.trees import Tree

_ONE = Literal(1, Int64())


def numbered(rows: Relation, by: list[Order], within: list[str]) -> tuple[Relation, str]:
    """The rows with a column that is the place of each copy, and its name."""
    place = fresh("place", rows.row.names)
    return replace(rows, node=Collection(rows.node).row_number(by=by, within=within, name=place).node), place


def counted(rows: Relation, within: list[str]) -> tuple[Relation, str]:
    """The rows with the number of rows in their partition, and its name. `within` is not empty."""
    return _of_groups(rows, within, "rows", Aggregation("count"))


def peers(rows: Relation, place: str, keys: list[str], *, last: bool) -> tuple[Relation, str]:
    """The rows with the place of their first peer, or of their last one: peers agree in `keys`."""
    return _of_groups(rows, keys, "peer", Aggregation("max" if last else "min", Column(place)))


def _of_groups(rows: Relation, keys: list[str], name: str, what: Aggregation) -> tuple[Relation, str]:
    keys, name = list(dict.fromkeys(keys)), fresh(name, rows.row.names)
    used = list(dict.fromkeys([*keys, *(column for arg in what.args for column in arg.columns())]))
    node = AggregateNode(picked(rows.node, [(one, Column(one)) for one in used]), tuple(keys), ((name, what),))
    found = beside(rows.node, node, tuple(keys))
    return replace(rows, node=picked(found, [(one, Column(one)) for one in (*rows.row.names, name)])), name


def at_place(rows: Relation, place: str, within: list[str], target: Expr, value: str, name: str) -> Relation:
    """The rows with the value of the column `value` at the place `target` of their partition in the column `name`: null
    where the target is null. Other targets are places of the partition."""
    rows, (wanted,) = rows.with_columns([("target", nullable(target))])
    there = fresh("value there", rows.row.names)
    keys = (*within, wanted)
    node: Node = picked(
        rows.node, [*((one, Column(one)) for one in within), (wanted, nullable(Column(place))), (there, Column(value))]
    )
    some = FilterNode(rows.node, Unary("~", IsNull(Column(wanted))))
    none = FilterNode(rows.node, IsNull(Column(wanted)))
    kept = [one for one in rows.row.names if one != wanted]
    shape = node.schema.field(there).type
    found = picked(
        JoinNode(some, node, keys, keys, null_safe=True),
        [*((one, Column(one)) for one in kept), (name, nullable(Column(there)))],
    )
    lost = picked(none, [*((one, Column(one)) for one in kept), (name, Cast(Literal(None, None), shape))])
    return replace(rows, node=UnionNode((found, lost)))


def value_of_frame(
    rows: Relation,
    function: Tree,
    name: str,
    by: list[Order],
    within: list[str],
    low: int | None,
    high: int | None,
    of_peers: bool,
) -> Relation:
    """first_value, last_value and nth_value over a frame of places, or of peers: `of_peers` has 0 for the row's."""
    kept = rows.row.names
    if function.fields.get("ignoreNulls") or len(function.children) > 2 or _filtered(function):
        raise refuse("IGNORE NULLS and FILTER cannot be maintained here; filter the rows first", "ignore", "nulls")
    inner = function.children[0] if function.kind == "AggregateExpression" else function
    if _ignores(inner):
        raise refuse("IGNORE NULLS cannot be maintained here; filter the nulls first", "ignore", "nulls")
    rows, (value,) = rows.with_columns([("value", rows.of(inner.children[0]))])
    rows, everything = _group(rows, within)
    rows, place = numbered(rows, by, everything)
    rows, count = counted(rows, everything)
    first: Expr = _ONE
    last: Expr = Column(count)
    columns = [*everything, *(str(one.column.column) for one in by)]
    if of_peers:
        if low is not None:
            rows, peer = peers(rows, place, columns, last=False)
            first = Column(peer)
        if high is not None:
            rows, peer = peers(rows, place, columns, last=True)
            last = Column(peer)
    else:
        here = Column(place)
        first = first if low is None else Call("greatest", (first, Binary("+", here, Literal(low, Int64()))))
        last = last if high is None else Call("least", (last, Binary("+", here, Literal(high, Int64()))))
    target = first
    if inner.kind == "Last":
        target = last
    elif inner.kind == "NthValue":
        step = int(rows.scope.constant(inner.children[1], "the number of nth_value()"))
        target = Binary("+", first, Literal(step - 1, Int64()))
    inside = Binary("&", Binary("<=", first, target), Binary("<=", target, last))
    rows = at_place(rows, place, everything, Case(((inside, target),)), value, name)
    return replace(rows, node=picked(rows.node, [(one, Column(one)) for one in (*kept, name)]))


def _group(rows: Relation, within: list[str]) -> tuple[Relation, list[str]]:
    """The rows with a key of the partition: a constant where there is no PARTITION BY."""
    if within:
        return rows, within
    return rows.with_columns([("everything", Literal(0, Int64()))])


def _filtered(function: Tree) -> bool:
    return function.kind == "AggregateExpression" and len(function.children) > 1


def _ignores(inner: Tree) -> bool:
    """Whether first, last or nth_value passes over nulls."""
    given = inner.fields.get("ignoreNulls")
    return given is True or given == "true"
