"""OVER with a frame that begins or ends beside the current row: sums and counts as differences of running sums.

`RANGE … CURRENT ROW`, which ORDER BY means by itself, adds up the rows of each value of the order first, runs over
these sums, and joins the rows with them: rows that are equal in the order have equal results. `ROWS` numbers the rows,
so that each copy has a place, and takes the running sum at the frame's end less the one before its beginning.

Cost: as the running sum's, O(rows of the partition) for a change. Sums of doubles are refused where they would be
differences, because these are not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.expr.expression import Binary, Call, Case, Cast, Column, Expr, IsNull, Literal
from vernier.operators.language.expr.order import Order
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.logical import AggregateNode, ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Float64, Int64, Type
from vernier.operators.sql.aggregating import beside, summand
from vernier.operators.sql.defaults import default_of
from vernier.operators.sql.expressions import Expressions, converted
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation, fresh, picked
from vernier.operators.sql.trees import Tree

_REFUSED = (
    "this frame cannot be maintained; write sum, count or avg over ROWS BETWEEN … AND … or RANGE UNBOUNDED PRECEDING, "
    "or a frame over the whole partition"
)
_ZERO = Literal(0, Int64())


@dataclass(frozen=True)
class Frame:
    """Rows from `low` to `high` places after the current row; None: to the partition's end. peers: a RANGE frame."""

    low: int | None
    high: int | None
    peers: bool

    @staticmethod
    def of(tree: Tree) -> Frame:
        """The frame of a plan. Raises Refused."""
        peers = "Range" in str(tree.fields["frameType"]["object"])
        low, high = (_bound(one) for one in tree.children)
        if peers and (low, high) != (None, 0):
            raise refuse(_REFUSED, "over", "range")
        return Frame(low, high, peers)


def _bound(tree: Tree) -> int | None:
    if tree.kind.startswith("Unbounded"):
        return None
    if tree.kind == "CurrentRow":
        return 0
    value = str(tree.fields.get("value"))
    if tree.kind != "Literal" or not value.lstrip("-").isdigit():
        raise refuse(_REFUSED, "over", "range", "rows")
    return int(value)


def framed(rows: Relation, function: Tree, name: str, by: list[Order], within: list[str], frame: Frame) -> Relation:
    """The rows with an aggregate over their frame in the column `name`."""
    kind, value = summand(rows, function)
    if kind not in ("Sum", "Count", "Average"):
        raise refuse(_REFUSED, "over", "rows", "range")
    of = None if value is None or kind == "Count" else rows.scope.type(value)
    if kind == "Average" and isinstance(of, Decimal):
        raise refuse("avg of decimals over a frame: write sum(x) OVER (…) / count(x) OVER (…)", "avg")
    if of == Float64() and (frame.low, frame.high) != (None, 0):
        raise refuse("sums of doubles over this frame are not exact; cast to DECIMAL", "over", "rows")
    counted = Literal(1, Int64()) if value is None else Case(((IsNull(value), _ZERO),), Literal(1, Int64()))
    added = _ZERO if value is None or of is None else Call("coalesce", (value, default_of(of)))
    given = [("frame_sum", added), ("frame_count", counted), ("frame_all", _ZERO)]
    wide, (sums, counts, everything) = rows.with_columns(given)
    make = _by_peers if frame.peers else _by_places
    node, total, number = make(wide, sums, counts, by, within or [everything], frame)
    result = _result(Expressions(node.schema, {}), kind, of, total, number)
    kept = [(own, Column(own)) for own in rows.row.names]
    return replace(rows, node=ProjectNode(node, (*kept, (name, result))))


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
