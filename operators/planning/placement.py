"""Placement: which words' hash places an operator's rows on workers, and which outer operators can wake a loop.

Rows move between workers only where they must. An operator that keeps the placing words in its output keeps the
placement, and an arrangement whose input is already placed by its key needs no exchange. A loop's variable takes the
placement of its feedback.
"""

from __future__ import annotations

from vernier.operators.planning.loop_ops import VariableOp
from vernier.operators.planning.op import Op
from vernier.operators.planning.plan import ScopePlan


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
    for op in ops:
        op.settle_exchange(ops)


def _propagate(ops: list[Op]) -> None:
    for op in ops:
        op.part = op.placed(ops)


def capture(ops: list[Op], scopes: list[ScopePlan]) -> None:
    """Record for each loop the outer operators that can wake it: collections that enter it, arrangements joined inside
    it, and initial values."""
    for op in ops:
        for i in op.inputs:
            scope = scopes[op.scope]
            home = ops[i].scope
            while scope.id != home and scope.parent is not None:
                if scopes[home].depth >= scope.depth:
                    break
                if i not in scope.captures:
                    scope.captures.append(i)
                scope = scopes[scope.parent]
