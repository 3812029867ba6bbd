"""Given rows: those of an operator that a trace holds whole, in place of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import GivenArrangeOp, GivenOp
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.stages import Words


@dataclass(frozen=True)
class Given:
    """An operator's rows, as a trace holds them. words: the position of each of their words in the trace's rows; since:
    from this data time on the trace tells times apart."""

    trace: str
    words: Words
    since: int


def given_plan(plan: Plan, given: Mapping[int, Given]) -> Plan:
    """The plan, with the given operators replaced by their rows; these arrive as sources named `name_of(operator)`."""
    ops = [_given(op) if op.id in given else op for op in plan.ops]
    return replace(plan, ops=ops)


def name_of(op: int) -> str:
    """The name under which the rows of an operator arrive."""
    return f"given {op}"


def _given(op: Op) -> Op:
    made: Op
    if op.arrangement is not None:
        key, val = tuple(range(op.key_width)), tuple(range(op.key_width, op.width))
        made = GivenArrangeOp(op.id, op.scope, op.width, op.name, op.id, key, val, op.arrangement)
        made.source = name_of(op.id)
    else:
        made = GivenOp(op.id, op.scope, op.width, op.name, name_of(op.id), op.part)
    made.part, made.texts, made.line = copy(op.part), op.texts, op.line
    return made
