"""OVER with a frame that begins or ends beside the current row: sums and counts as differences of running sums.

`RANGE … CURRENT ROW`, which ORDER BY means by itself, adds up the rows of each value of the order first, runs over
these sums, and joins the rows with them: rows that are equal in the order have equal results. `ROWS` between two
places adds up the rows around each row, of which a change reads no others. With an end that is unbounded it numbers the
rows, so that each copy has a place, and takes the running sum at the frame's end less the one before its beginning.

Cost of frames with an unbounded end: the results that change; O(rows of the partition) for min and max of texts, and in
orders by texts or in both directions. Sums of doubles are refused where they would be differences, because these are
not exact.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vernier.operators.group_functions.frames import FrameSums
from vernier.operators.group_functions.running import RunningExtreme
from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.ordering import grouped_by, orders
from vernier.operators.language.expr.expression import (
    Binary,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    IsNull,
    Literal,
    Unary,
)
from vernier.operators.language.expr.order import Order
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.logical import AggregateNode, ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Float64, Int64, Type
from vernier.operators.sql.aggregating import beside, over_partition, summand
from vernier.operators.sql.covering import covered, distance, position
from vernier.operators.sql.defaults import default_of
from vernier.operators.sql.expressions import Expressions, converted
from vernier.operators.sql.places import at_place, counted, numbered, value_of_frame
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh, picked
from vernier.operators.sql.trees import Tree

_REFUSED = (
    "this frame cannot be maintained for this function; write a frame with an offset on both sides (ROWS BETWEEN 5 "
    "PRECEDING AND CURRENT ROW), UNBOUNDED PRECEDING AND CURRENT ROW, or the whole partition"
)
_ZERO = Literal(0, Int64())


@dataclass(frozen=True)
class Frame:
    """Rows from `low` to `high` places after the current row; None: to the partition's end. peers: a RANGE frame, whose
    bounds are 0 for the row's peers, or offsets, which `bounds` has as they are in the plan. order: what offsets are
    measured by; None where it is one constant."""

    low: int | None
    high: int | None
    peers: bool
    bounds: tuple[Tree, Tree]
    order: Order | None = None

    @staticmethod
    def of(tree: Tree) -> Frame:
        """The frame of a plan. Raises Refused."""
        peers = "Range" in str(tree.fields["frameType"]["object"])
        low, high = tree.children
        if not peers:
            return Frame(_bound(low), _bound(high), False, (low, high))
        return Frame(_side(low), _side(high), True, (low, high))

    @property
    def by_distance(self) -> bool:
        """Whether it is a RANGE frame with an offset."""
        return self.peers and any(one.kind not in _SIDES for one in self.bounds)


_SIDES = ("UnboundedPreceding", "UnboundedFollowing", "CurrentRow")


def _side(tree: Tree) -> int | None:
    return None if tree.kind.startswith("Unbounded") else 0


def _bound(tree: Tree) -> int | None:
    if tree.kind in _SIDES:
        return _side(tree)
    value = str(tree.fields.get("value"))
    if tree.kind != "Literal" or not value.lstrip("-").isdigit():
        raise refuse("the offset of ROWS is a constant number", "rows")
    return int(value)


def framed(rows: Relation, function: Tree, name: str, by: list[Order], within: list[str], frame: Frame) -> Relation:
    """The rows with an aggregate over their frame in the column `name`."""
    inner = function.children[0] if function.kind == "AggregateExpression" else function
    if frame.by_distance:
        return _by_distance(rows, function, name, by, within, frame)
    if inner.kind in ("First", "Last", "NthValue"):
        return value_of_frame(rows, function, name, by, within, frame.low, frame.high, frame.peers)
    kind, value = summand(rows, function)
    if (frame.low, frame.high) == (0, 0) and frame.peers:
        return over_partition(rows, function, name, [*within, *_columns(by)])
    of = None if value is None or kind == "Count" else rows.scope.type(value)
    if frame.peers and frame.low == 0:  # to the partition's end: the same frame in the order turned round
        by, frame = [Order(one.column, not one.descending) for one in by], replace(frame, low=None, high=0)
    if kind in ("Min", "Max") and value is not None and None in (frame.low, frame.high):
        return _extreme(rows, value, name, by, within, frame, greatest=kind == "Max")
    exact = of != Float64() or (frame.low, frame.high) == (None, 0)
    if kind not in ("Sum", "Count", "Average") or not exact or (kind == "Average" and isinstance(of, Decimal)):
        if frame.low is None or frame.high is None or frame.peers:
            raise refuse(_REFUSED, inner.kind, "over", "rows", "range")
        wanted = (*rows.row.names, name)
        rows, place = numbered(rows, by, within)
        found = covered(rows, function, name, Column(place), within, frame.low, frame.high)
        return replace(found, node=picked(found.node, [(one, Column(one)) for one in wanted]))
    counted = Literal(1, Int64()) if value is None else Case(((IsNull(value), _ZERO),), Literal(1, Int64()))
    added = _ZERO if value is None or of is None else Call("coalesce", (value, default_of(of)))
    given = [("frame_sum", added), ("frame_count", counted), ("frame_all", _ZERO)]
    wide, (sums, counts, everything) = rows.with_columns(given)
    make = _by_peers if frame.peers else _by_places
    if frame.low is not None and frame.high is not None and not frame.peers:
        make = _by_neighbours
    node, total, number = make(wide, sums, counts, by, within or [everything], frame)
    result = _result(Expressions(node.schema, {}), kind, of, total, number)
    kept = [(own, Column(own)) for own in rows.row.names]
    return replace(rows, node=ProjectNode(node, (*kept, (name, result))))


def _by_distance(
    rows: Relation, function: Tree, name: str, by: list[Order], within: list[str], frame: Frame
) -> Relation:
    """RANGE with offsets: positions are the values of the order."""
    if any(one.kind.startswith("Unbounded") for one in frame.bounds):
        raise refuse(
            "RANGE with an offset on one side alone cannot be maintained; write an offset on both sides", "range"
        )
    kept, order = rows.row.names, frame.order
    if order is None:
        at: Expr = _ZERO
        low, high = map(_sign, frame.bounds)
    else:
        at, kind = position(rows, str(order.column.column))
        low, high = (0 if one.kind == "CurrentRow" else distance(one, kind) for one in frame.bounds)
        if order.descending:
            low, high = -high, -low
    inner = function.children[0]
    if inner.kind in ("First", "Last"):
        rows, place = numbered(rows, by, within)
        found = covered(rows, function, name, at, within, low, high, end=(place, inner.kind == "Last"))
    else:
        found = covered(rows, function, name, at, within, low, high)
    return replace(found, node=picked(found.node, [(one, Column(one)) for one in (*kept, name)]))


def _sign(bound: Tree) -> int:
    """-1 for rows before the current one, 1 for those behind it, 0 for it."""
    if bound.kind != "Literal":
        return 0
    offset = decimal.Decimal(str(bound.fields["value"]))
    return int(offset.compare(0))


def _extreme(
    rows: Relation, value: Expr, name: str, by: list[Order], within: list[str], frame: Frame, *, greatest: bool
) -> Relation:
    """min and max over a frame that reaches to an end of the partition: running ones, at the frame's other end."""
    kept = rows.row.names
    rows, (column,) = rows.with_columns([("running_value", value)])
    if column in within:
        rows, (column,) = rows.with_columns([("running_value", Call("coalesce", (value, value)))])
    if frame.peers:
        keys = list(dict.fromkeys([*within, *_columns(by)]))
        pairs = [*((one, Column(one)) for one in keys), *(() if column in keys else ((column, Column(column)),))]
        best = fresh("best_value", rows.row.names)
        what = Aggregation("max" if greatest else "min", Column(column))
        node: Node = AggregateNode(picked(rows.node, pairs), tuple(keys), ((best, what),))
        node = _running(node, best, name, by, within, greatest)
        found = beside(rows.node, picked(node, [(one, Column(one)) for one in (*keys, name)]), tuple(keys))
    else:
        everything = within
        if not within:
            rows, everything = rows.with_columns([("everything", _ZERO)])
        rows, place = numbered(rows, by, everything)
        offset, along = frame.high, Order(Column(place))
        if frame.high is None:
            offset, along = -(frame.low or 0), Order(Column(place), True)
        running = fresh("running_best", rows.row.names)
        rows = replace(rows, node=_running(rows.node, column, running, [along], everything, greatest))
        if offset:
            rows, count = counted(rows, everything)
            step = Literal(offset if frame.high is not None else -offset, Int64())
            target: Expr = Binary("+", Column(place), step)
            first = Call("greatest", (target, Literal(1, Int64())))
            last = Call("least", (target, Column(count)))
            beyond = (
                Binary(">", target, Column(count)) if frame.high is None else Binary("<", target, Literal(1, Int64()))
            )
            target = Case(((Unary("~", beyond), first if frame.high is None else last),))
            found = at_place(rows, place, everything, target, running, name).node
        else:
            found = picked(rows.node, [*((one, Column(one)) for one in kept), (name, Column(running))])
    return replace(rows, node=picked(found, [(one, Column(one)) for one in (*kept, name)]))


def _running(node: Node, column: str, name: str, by: list[Order], within: Sequence[str], greatest: bool) -> Node:
    """Running extremes of rows that differ in the columns of the order."""
    order = tuple((str(one.column.column), one.descending) for one in by if one.column.column not in within)
    made = grouped_by(node, tuple(within), RunningExtreme(order, name, column, greatest, True))
    return picked(made, [(one, Column(one)) for one in (*node.schema.names, name)])


def _columns(by: Sequence[Order]) -> list[str]:
    return [str(one.column.column) for one in by]


def _result(scope: Expressions, kind: str, of: Type | None, total: Expr, number: Expr) -> Expr:
    number = Call("coalesce", (number, _ZERO))
    if kind == "Count":
        return number
    if kind == "Average":
        total = Binary("/", converted(scope, total, Float64()), Cast(number, Float64()))
    elif isinstance(of, Decimal):
        total = converted(scope, total, Decimal(min(38, of.precision + 10), of.scale))
    return Case(((Binary(">", number, _ZERO), total),))


def _by_peers(
    rows: Relation, sums: str, counts: str, by: list[Order], within: list[str], frame: Frame
) -> tuple[Node, Expr, Expr]:
    """Running sums over the values of the order, beside the rows that have them."""
    keys = list(dict.fromkeys([*within, *(str(one.column.column) for one in by)]))
    running = Collection(_totals(rows, keys, sums, counts))
    total, number = _names(rows, "running_sum", "running_count")
    running = running.running_sum(sums, by=by, within=within, name=total)
    running = running.running_sum(counts, by=by, within=within, name=number)
    other = ProjectNode(running.node, tuple((one, Column(one)) for one in (*keys, total, number)))
    return beside(rows.node, other, tuple(keys)), Column(total), Column(number)


def _by_places(
    rows: Relation, sums: str, counts: str, by: list[Order], within: list[str], frame: Frame
) -> tuple[Node, Expr, Expr]:
    """The running sums at the frame's end less those before its beginning."""
    place, *names = _names(rows, "place", "running_sum", "running_count", "whole_sum", "whole_count")
    node = rows.node
    if frame.high is None or max(frame.high, frame.low or 0) > 0:
        whole = _totals(rows, within, sums, counts)
        renamed = [(names[2], Column(sums)), (names[3], Column(counts))]
        node = beside(node, ProjectNode(whole, (*((one, Column(one)) for one in within), *renamed)), tuple(within))
    found = Collection(node).row_number(by=by, within=within, name=place)
    for source, running in zip((sums, counts), names[:2], strict=True):
        found = found.running_sum(source, by=place, within=within, name=running)
    ends: list[Expr] = []
    for running, whole_name in zip(names[:2], names[2:], strict=True):
        high: Expr = Column(whole_name)
        if frame.high is not None:
            found, high = _at(found, running, whole_name, place, within, frame.high)
        if frame.low is not None:
            found, low = _at(found, running, whole_name, place, within, frame.low - 1)
            high = Binary("-", high, low)
        ends.append(high)
    return found.node, ends[0], ends[1]


def _by_neighbours(
    rows: Relation, sums: str, counts: str, by: list[Order], within: list[str], frame: Frame
) -> tuple[Node, Expr, Expr]:
    """The sums over the rows around each row: a change reads no others."""
    total, number = _names(rows, "frame_total", "frame_number")
    order = tuple(one for one in orders(by, rows.node.schema, "over") if one[0] not in within)
    if not order:
        return _by_places(rows, sums, counts, by, within, frame)
    spec = FrameSums(order, total, (number,), (sums, counts), frame.low or 0, frame.high or 0)
    return grouped_by(rows.node, tuple(within), spec), Column(total), Column(number)


def _at(
    rows: Collection, running: str, whole: str, place: str, within: list[str], offset: int
) -> tuple[Collection, Expr]:
    """A running sum at an offset from the row: 0 before the first row, all of it behind the last."""
    if offset == 0:
        return rows, Column(running)
    name = fresh(f"{running}_there", rows.columns)
    if offset < 0:
        return rows.lag(running, -offset, by=place, within=within, name=name, default=0), Column(name)
    found = rows.lead(running, offset, by=place, within=within, name=name)
    return found, Call("coalesce", (Column(name), Column(whole)))


def _totals(rows: Relation, keys: Sequence[str], sums: str, counts: str) -> Node:
    pairs = [(one, Column(one)) for one in (*keys, sums, counts)]
    totals = tuple((one, Aggregation("sum", Column(one))) for one in (sums, counts))
    return AggregateNode(picked(rows.node, pairs), tuple(keys), totals)


def _names(rows: Relation, *wanted: str) -> list[str]:
    """Names that no column has."""
    return [fresh(one, rows.row.names) for one in wanted]
