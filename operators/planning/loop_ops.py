"""Loops of the physical plan: what enters, the variables, the loop itself, and what leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.op import Op, PassingOp
from vernier.operators.planning.stages import Words


@dataclass
class EnterOp(PassingOp):
    """Brings a collection of the parent scope into the loop, at round 0."""

    kind = "enter"


@dataclass
class VariableOp(Op):
    """A loop variable: X0 at round 0, -X0 at round 1, and the body's output one round later. initial: the operator that
    supplies X0."""

    schema: RowType
    loop: int
    initial: int
    feedback: int = -1
    initial_exchange: Words | None = None
    feedback_exchange: Words | None = None

    kind = "variable"

    @property
    def inputs(self) -> Words:
        return (self.initial, self.feedback)

    def companions(self, ops: Sequence[Op]) -> Words:
        return (self.loop,)

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return self.part  # placement.py decides it, since the feedback comes later in the order

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        if ops[self.initial].part != self.part:
            self.initial_exchange = self.part
        if ops[self.feedback].part != self.part:
            self.feedback_exchange = self.part


@dataclass
class LoopOp(Op):
    """Runs an inner scope to its fixed point. leaves: the operators that have its results, one a variable; rounds:
    those that have the changes of a variable by round."""

    inner: int
    label: str
    max_rounds: int
    truncate: bool
    variables: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    kind = "loop"

    def companions(self, ops: Sequence[Op]) -> Words:
        return tuple(self.variables)

    def facts(self) -> dict[str, Any]:
        return {"inner_scope": self.inner, "max_rounds": self.max_rounds}


@dataclass
class LeaveOp(PassingOp):
    """The body's output over all rounds, as a collection of the parent scope."""

    loop: int

    kind = "leave"

    def companions(self, ops: Sequence[Op]) -> Words:
        return (self.loop,)


@dataclass
class LoopRoundsOp(Op):
    """The changes of a variable by round, as a collection of the parent scope: rows with their round behind them.
    initial: the operator that supplies X0; body: the body's output."""

    loop: int
    initial: int
    body: int

    kind = "rounds"

    @property
    def inputs(self) -> Words:
        return (self.initial, self.body)

    def companions(self, ops: Sequence[Op]) -> Words:
        return (self.loop,)

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return ops[self.initial].part if ops[self.initial].part == ops[self.body].part else None
