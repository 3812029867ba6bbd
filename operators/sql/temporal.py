"""`data_time()` in a filter: a row is there while the condition holds, to the nanosecond (a temporal filter).

`data_time() < e` ends a row at e, `data_time() >= e` begins it; both are `valid_between`. Any other use would give a
value that changes at every nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vernier.operators.language.expr.expression import Binary, Call, Cast, Expr, IsNull, Literal, Unary
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.tables import ValidBetween
from vernier.operators.language.types.scalars import Int64, TimestampNs
from vernier.operators.sql.expressions import converted
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation
from vernier.operators.sql.trees import Tree

_TURNED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
HINT = (
    "data_time() stands alone on one side of <, <=, > or >= in WHERE, e.g. WHERE data_time() < valid_to AND "
    "data_time() >= valid_from; what is added to it goes to the other side: data_time() < ts + INTERVAL 1 HOUR"
)


def is_now(tree: Tree) -> bool:
    """Whether an expression is data_time()."""
    return tree.kind == "PythonUDF" and tree.fields.get("name") == "data_time"


def is_temporal(tree: Tree) -> bool:
    """Whether an expression has data_time() in it."""
    return any(is_now(one) for one in tree.walk())


def during(rows: Relation, tests: Sequence[Tree]) -> Relation:
    """The rows while all of these conditions hold."""
    if not tests:
        return rows
    starts: list[Expr] = []
    stops: list[Expr] = []
    for test in tests:
        kind, sides = test.kind, test.children
        if kind in _TURNED and len(sides) == 2 and is_now(sides[1]) and not is_temporal(sides[0]):
            kind, sides = _TURNED[kind], sides[::-1]
        if kind not in _TURNED or not is_now(sides[0]) or is_temporal(sides[1]):
            raise refuse(HINT, "data_time")
        limit = Cast(converted(rows.scope, rows.of(sides[1]), TimestampNs()), Int64())
        rows = rows.filter(Unary("~", IsNull(limit)))
        if kind in ("LessThanOrEqual", "GreaterThan"):
            limit = Cast(Binary("+", limit, Literal(1, Int64())), Int64())
        (stops if kind.startswith("Less") else starts).append(limit)
    none = Literal(None, None)
    start = starts[0] if len(starts) == 1 else Call("greatest", tuple(starts)) if starts else none
    stop = stops[0] if len(stops) == 1 else Call("least", tuple(stops)) if stops else none
    return replace(rows, node=ExpandNode(rows.node, ValidBetween(start, stop)))
