"""Placement: which words' hash places an operator's rows on workers, and which outer operators can wake a loop.

Rows move between workers only where they must. An operator that keeps the placing words in its output keeps the
placement, and an arrangement whose input is already placed by its key needs no exchange. A loop's variable takes the
placement of its feedback.
"""

from __future__ import annotations

from collections.abc import Sequence

from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.plan import (
    ArrangeOp,
    CheckOp,
    ConsolidateOp,
    EnterOp,
    Expand,
    HoldOp,
    InspectOp,
    JoinOp,
    Keep,
    KeyedOp,
    LeaveOp,
    LinearOp,
    LookupOp,
    Move,
    Negated,
    Op,
    Scope,
    Stage,
    Take,
    UnionOp,
    VariableOp,
    ViewOp,
    Words,
    inputs_of,
)


def place(ops: list[Op]) -> None:
    """Find the words by which each operator's rows are placed, and drop exchanges that would move nothing."""
    variables = [op for op in ops if isinstance(op, VariableOp)]
    for variable in variables:
        variable.part = None
    for _ in range(len(variables) + 1):
        _propagate(ops)
        changed = False
        for variable in variables:
            part = ops[variable.feedback].part
            if variable.part is None and part is not None:
                variable.part = part
                changed = True
        if not changed:
            break
    for variable in variables:
        if variable.part is None:
            variable.part = tuple(range(variable.width))
    _propagate(ops)
    for variable in variables:
        if ops[variable.initial].part != variable.part:
            variable.initial_exchange = variable.part
        if ops[variable.feedback].part != variable.part:
            variable.feedback_exchange = variable.part
    for op in ops:
        if isinstance(op, ArrangeOp):
            op.exchange = ops[op.input].part != op.key
        elif isinstance(op, LookupOp):
            op.exchange = ops[op.left].part != op.key
        elif isinstance(op, (ConsolidateOp, CheckOp)):
            # Rows that are placed by some of their words are on the same worker as all rows equal to them.
            op.exchange = ops[op.input].part is None


def _propagate(ops: list[Op]) -> None:
    for op in ops:
        if not isinstance(op, VariableOp):
            op.part = _part(ops, op)


def _part(ops: list[Op], op: Op) -> Words | None:
    part: Words | None
    match op:
        case ArrangeOp():
            return tuple(range(len(op.key)))
        case KeyedOp():
            return tuple(range(op.key_width))
        case JoinOp():
            left = ops[op.left]
            width = len(left.key) if isinstance(left, ArrangeOp) else _key_width(left)
            wanted = [(0, i) for i in range(width)]
            if not all(column in op.columns for column in wanted):
                return None
            part = tuple(op.columns.index(column) for column in wanted)
            for stage in op.stages:
                part = _carry(part, stage)
            return part
        case LookupOp():
            places = range(len(op.key))
            return tuple(op.columns.index(at) for at in places) if set(places) <= set(op.columns) else None
        case LinearOp():
            part = ops[op.input].part
            for stage in op.stages:
                part = _carry(part, stage)
            return part
        case UnionOp():
            parts = {ops[i].part for i in op.inputs}
            return parts.pop() if len(parts) == 1 else None
        case ConsolidateOp():
            part = ops[op.input].part
            return tuple(range(op.width)) if part is None else part
        case InspectOp() | HoldOp() | EnterOp() | LeaveOp() | ViewOp():
            return ops[op.input].part
        case _:
            return None


def capture(ops: list[Op], scopes: list[Scope]) -> None:
    """Record for each loop the outer operators that can wake it: collections that enter it, arrangements joined inside
    it, and initial values."""
    for op in ops:
        for i in inputs_of(op):
            scope = scopes[op.scope]
            home = ops[i].scope
            while scope.id != home and scope.parent is not None:
                if scopes[home].depth >= scope.depth:
                    break
                if i not in scope.captures:
                    scope.captures.append(i)
                scope = scopes[scope.parent]


def _key_width(op: Op) -> int:
    assert isinstance(op, KeyedOp)
    return op.key_width


def _carry(part: Words | None, stage: Stage) -> Words | None:
    """The positions of the placing words after a stage; None if the stage drops one of them."""
    if part is None or isinstance(stage, (Keep, Move, Negated)):
        return part
    if isinstance(stage, Take):
        source: list[int] = list(stage.words)
    elif isinstance(stage, Expand):
        source = list(stage.table.source_words(stage.schema))
    else:
        source = []
        for expr in stage.exprs:
            words = plain_words((("", expr),), stage.schema)
            source += words if words is not None else [-1] * _width_of(expr, stage.schema)
    if all(word in source for word in part):
        return tuple(source.index(word) for word in part)
    return None


def _width_of(expr: Expr, row: RowType) -> int:
    bound = bind(expr, row)
    return bound.type.words + int(bound.nullable)


def plain_words(exprs: Sequence[tuple[str, Expr]], row: RowType) -> Words | None:
    """The words that a projection picks, if all its expressions are columns; otherwise None."""
    words: list[int] = []
    for _, expr in exprs:
        column = expr.column
        if column is None:
            return None
        words += [int(w) for w in row.index([column])]
    return tuple(words)
