"""OVER with a frame that has an offset on both sides: a join of frames with the rows that they cover, and a GROUP BY.

A row has a position: its place for ROWS, the value of the order for RANGE. The positions are cut into stretches as long
as the frame, so each frame lies in one or two of them. Frames are joined with rows by partition and stretch, pairs
outside the frame are dropped, and the rest is aggregated by frame; any aggregate will do.

Cost of a change: the rows within two lengths of a frame. ROWS number the rows first, which costs the places
that change.
"""

from __future__ import annotations

import decimal
from dataclasses import replace

from vernier.operators.language.collection.matching import once
from vernier.operators.language.expr.expression import Binary, Call, Case, Cast, Column, Expr, IsNull, Literal
from vernier.operators.language.plan.logical import FilterNode, JoinNode, NegateNode, ProjectNode, UnionNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Int64, TimestampNs, Type
from vernier.operators.sql.aggregating import beside, of_groups
from vernier.operators.sql.expressions import floored, nullable
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh, picked
from vernier.operators.sql.trees import Tree

DAY = 86_400 * 10**9


def position(rows: Relation, column: str) -> tuple[Expr, Type]:
    """A value of an order as an integer, and its type. Raises Refused for types that have no distances."""
    kind = rows.row.field(column).type
    value: Expr = Column(column)
    match kind:
        case Int64():
            return value, kind
        case TimestampNs():
            return Cast(value, Int64()), kind
        case Date():
            return Binary("-", value, Literal(0, Date())), kind
        case Decimal() if kind.precision <= MOST_DIGITS:
            one = Cast(
                Literal(decimal.Decimal(10) ** kind.scale, Decimal(kind.scale + 1, 0)), Decimal(kind.scale + 1, 0)
            )
            return Cast(Binary("*", value, one), Int64()), kind
    raise refuse(
        "RANGE with an offset needs an order by BIGINT, DATE, TIMESTAMP or DECIMAL of at most "
        f"{MOST_DIGITS} digits, not {kind}; cast it",
        "range",
    )


MOST_DIGITS = 18


def distance(tree: Tree, kind: Type) -> int:
    """The offset of a RANGE frame in the units of `position`."""
    text, of = str(tree.fields.get("value")), str(tree.fields.get("dataType"))
    if tree.kind != "Literal" or (of.startswith("interval") and ("year" in of or "month" in of)):
        raise refuse("the offset of RANGE is a constant of a fixed length: a number, days, hours or seconds", "range")
    if of.startswith("interval"):
        nanoseconds = int(text) * 1_000
        if kind == TimestampNs():
            return nanoseconds
        if nanoseconds % DAY:
            raise refuse("RANGE over dates takes whole days", "range")
        return nanoseconds // DAY
    exact = decimal.Decimal(text) * (10**kind.scale if isinstance(kind, Decimal) else 1)
    return int(exact)


def covered(
    rows: Relation,
    function: Tree,
    name: str,
    at: Expr,
    within: list[str],
    low: int,
    high: int,
    end: tuple[str, bool] | None = None,
) -> Relation:
    """The rows with an aggregate over the rows of their partition whose position is `low` to `high` from theirs. end:
    for first_value and last_value, the column with the place of each row, and whether it is the last."""
    if not low <= 0 <= high and function.children[0].kind in ("CollectList", "CollectSet"):
        raise refuse("collect_list() needs a frame that has the current row in it", "collect_list", "collect_set")
    kept = rows.row.names
    rows, (own,) = rows.with_columns([("position", at)])
    if own in within:
        rows, (own,) = rows.with_columns([("position", Call("coalesce", (at, at)))])
    length = max(high - low + 1, 1)
    taken = list(rows.row.names)
    stretch, center = (fresh(one, taken) for one in ("stretch", "center"))
    keys = (*within, stretch)
    members = ProjectNode(
        rows.node, (*((one, Column(one)) for one in rows.row.names), (stretch, floored(Column(own), length)))
    )
    frames = once(picked(rows.node, [*((one, Column(one)) for one in within), (center, Column(own))]))
    reached = _stretched(frames, center, stretch, within, low, high, length)
    here, there = Column(own), Column(center)
    first, last = (Binary("+", there, Literal(one, Int64())) for one in (low, high))
    inside: Expr = Binary("&", Binary("<=", first, here), Binary("<=", here, last))
    if rows.row.field(own).nullable:
        inside = Case(((IsNull(there), Literal(True, Bool())),), inside)
    pairs = FilterNode(JoinNode(reached, members, keys, keys, null_safe=True), inside)
    grouped, result, empty = of_groups(Relation(pairs, rows.ids), function, [*within, center], end)
    found: Node = picked(grouped, [*((one, Column(one)) for one in (*within, center)), (name, Column(result))])
    if not low <= 0 <= high:
        found = _with_empty(found, frames, name, empty)
    found = picked(found, [*((one, Column(one)) for one in within), (own, Column(center)), (name, Column(name))])
    wide = beside(rows.node, found, (*within, own))
    return replace(rows, node=picked(wide, [(one, Column(one)) for one in (*kept, name)]))


def _stretched(frames: Node, center: str, stretch: str, within: list[str], low: int, high: int, length: int) -> Node:
    """The frames, once for each stretch that they touch; those of null stay with null."""
    first, last = (floored(Binary("+", Column(center), Literal(one, Int64())), length) for one in (low, high))
    kept: list[tuple[str, Expr]] = [*((one, Column(one)) for one in within), (center, Column(center))]
    one = ProjectNode(frames, (*kept, (stretch, first)))
    other = ProjectNode(FilterNode(frames, Binary("<", first, last)), (*kept, (stretch, last)))
    return UnionNode((one, other))


def _with_empty(found: Node, frames: Node, name: str, empty: Expr | None) -> Node:
    """The results, and those of the frames that cover no row: counts are 0, all others null."""
    names = frames.schema.names
    lost = UnionNode((frames, NegateNode(picked(found, [(one, Column(one)) for one in names]))))
    value = Cast(Literal(None, None), found.schema.field(name).type) if empty is None else nullable(empty)
    padded = picked(lost, [*((one, Column(one)) for one in names), (name, value)])
    given = picked(found, [*((one, Column(one)) for one in names), (name, nullable(Column(name)))])
    return UnionNode((given, padded))
