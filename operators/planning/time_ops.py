"""Operators of the physical plan that keep rows until a later time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.op import FedOp, Op, PassingOp
from vernier.operators.planning.stages import Words


@dataclass
class TemporalBufferOp(PassingOp):
    """Temporal buffer: keeps updates whose time is after the running slice in a queue until they are due."""

    queue: str

    kind = "hold"
    takes_names = True

    @property
    def queues(self) -> tuple[str, ...]:
        return (self.queue,)

    def facts(self) -> dict[str, Any]:
        return {"queue": self.queue}


@dataclass
class DelayedOp(Op):
    """A delayed variable: the rows that were set `ns` ago. max_steps: the most consecutive slices in which the variable
    may be fed only by itself."""

    queue: str
    schema: RowType
    ns: int
    max_steps: int

    kind = "delayed"

    @property
    def queues(self) -> tuple[str, ...]:
        return (self.queue,)

    @property
    def remembers_ns(self) -> None:
        return None

    def companions(self, ops: Sequence[Op]) -> Words:
        return tuple(one.id for one in ops if one.feeds == self.id)

    def facts(self) -> dict[str, Any]:
        return {"queue": self.queue}


@dataclass
class SetOp(FedOp):
    """Feeds its input to a delayed variable, where it appears `ns` later."""

    variable: int
    ns: int

    kind = "set"

    @property
    def feeds(self) -> int | None:
        return self.variable

    @property
    def remembers_ns(self) -> None:
        return None

    def facts(self) -> dict[str, Any]:
        return {"delay_ns": self.ns, "feeds": self.variable}
