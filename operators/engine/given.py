"""Given rows: those of an operator that a trace holds whole, in place of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from vernier.operators.planning.adapted import Adapt
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import GivenArrangeOp, GivenOp
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.stages import Words
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints


@dataclass(frozen=True)
class Given:
    """An operator's rows, as a trace holds them. words: the position of each of their words in the trace's rows; since:
    from this data time on the trace tells times apart. adapt: the words are those of rows that a source had before its
    columns changed, and this makes the operator's rows of them."""

    trace: str
    words: Words
    since: int
    adapt: Adapt | None = None

    def updates(self, keyed: Ints, heap: Heap) -> Ints:
        """The operator's updates, of updates `[hash | row | time | diff]` of the trace."""
        width = keyed.shape[1] - 3
        picked: Ints = keyed[:, [*(1 + word for word in self.words), width + 1, width + 2]]
        if self.adapt is None:
            return picked
        return np.hstack([self.adapt.rows(np.ascontiguousarray(picked[:, :-2]), heap), picked[:, -2:]])


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
