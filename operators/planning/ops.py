"""Operators of the physical plan: inputs, linear chains, unions, arrangements, joins, checks and views (see op.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.op import FedOp, KeyedOp, Op, PassingOp, exchange_facts
from vernier.operators.planning.stages import Stage, Words, call_facts, carry_all


@dataclass
class InputOp(Op):
    """The updates of a source."""

    source: str

    kind = "input"


@dataclass
class LinearOp(FedOp):
    """A fused chain of row-wise steps."""

    stages: tuple[Stage, ...]

    kind = "linear"
    takes_names = True
    named_by_kind = True

    @property
    def remembers_ns(self) -> int | None:
        parts = [stage.remembers_ns for stage in self.stages]
        return None if None in parts else sum(part or 0 for part in parts)

    @property
    def picks(self) -> Words | None:
        return self.stages[0].picks if len(self.stages) == 1 else None

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return carry_all(self.stages, ops[self.input].part)

    def facts(self) -> dict[str, Any]:
        return {"fused": len(self.stages), **call_facts(self.stages)}


@dataclass
class UnionOp(Op):
    """All updates of its inputs."""

    parts: Words

    kind = "union"
    takes_names = True
    named_by_kind = True

    @property
    def inputs(self) -> Words:
        return self.parts

    def placed(self, ops: Sequence[Op]) -> Words | None:
        places = {ops[i].part for i in self.parts}
        return places.pop() if len(places) == 1 else None

    def copies_input(self, ops: Sequence[Op]) -> bool:
        return self.output_copied(ops)


@dataclass
class ArrangeOp(KeyedOp):
    """Keeps its input in a trace, by key. Rows are key words, then val words. exchange: rows must be sent to the worker
    that owns their key. former: the trace in which earlier versions kept its rows with their words in another order,
    and where each word stands there."""

    key: Words
    val: Words
    trace: str
    exchange: bool = True
    former: tuple[str, Words] | None = field(default=None, init=False)

    kind = "arrange"
    adds_up: ClassVar[bool] = True
    """Whether updates of one row and time may be replaced by their sum."""

    @property
    def arrangement(self) -> str | None:
        return self.trace

    @property
    def key_width(self) -> int:
        return len(self.key)

    def copies_input(self, ops: Sequence[Op]) -> bool:
        return True

    def places(self, width: int) -> Words | None:
        """Where each of the `width` words of its input stands in its rows; None if it does not keep them all."""
        order = (*self.key, *self.val)
        return tuple(map(order.index, range(width))) if set(order) == set(range(width)) else None

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        self.exchange = ops[self.input].part != self.key

    @property
    def sums_first(self) -> bool:
        """Whether copies of a key at one time are added up before they are sent: only the key travels then."""
        return self.exchange and self.adds_up and not self.val

    def facts(self) -> dict[str, Any]:
        return exchange_facts(self.exchange, self.sums_first)


@dataclass
class UpsertOp(ArrangeOp):
    """An arrangement of the newest row of each key, from a source's upserts (operators/physical/upsert.py)."""

    kind = "upsert"
    adds_up = False


@dataclass
class GivenOp(InputOp):
    """Rows of an operator as a trace holds them, in place of the operator (operators/engine/fill.py). route: the words
    by whose hash they are placed on workers, None if they may be anywhere."""

    route: Words | None = None

    kind = "given"


@dataclass
class GivenArrangeOp(ArrangeOp):
    """Rows of an arranged operator as a trace holds them, in place of the operator: they arrive under the name `source`
    and are arranged as before. It has no input."""

    source: str = ""

    kind = "given"

    @property
    def inputs(self) -> Words:
        return ()


@dataclass
class JoinOp(Op):
    """Joins two arrangements with the same key, whose columns are `key`. columns: for each output word its (side,
    position), where side 0 is the key, 1 the left val and 2 the right val. stages: row-wise steps that run on the pairs
    in the same pass."""

    left: int
    right: int
    columns: tuple[tuple[int, int], ...]
    key: RowType
    stages: tuple[Stage, ...] = ()

    kind = "join"
    takes_names = True
    named_by_kind = True

    @property
    def inputs(self) -> Words:
        return (self.left, self.right)

    @property
    def rows_read(self) -> Words:
        return ()

    def placed(self, ops: Sequence[Op]) -> Words | None:
        wanted = [(0, i) for i in range(ops[self.left].key_width)]
        if not all(column in self.columns for column in wanted):
            return None
        return carry_all(self.stages, tuple(self.columns.index(column) for column in wanted))

    def facts(self) -> dict[str, Any]:
        return {"fused": 1 + len(self.stages), **call_facts(self.stages)} if self.stages else {}


@dataclass
class HalfJoinOp(Op):
    """A half join: pairs each change of the left side (key words `key`, other words `val`) with the rows that the right
    arrangement holds at the time of the change. columns: for each output word its position in key, left val and right
    val, laid side by side. exchange: left rows must be sent to the worker that owns their key; carried: the words of
    key and val at which a text begins; by: the columns of the key."""

    left: int
    right: int
    key: Words
    val: Words
    columns: Words
    by: RowType
    exchange: bool = True
    carried: Words = ()

    kind = "lookup"
    takes_names = True

    @property
    def inputs(self) -> Words:
        return (self.left, self.right)

    @property
    def rows_read(self) -> Words:
        return (self.left,)

    @property
    def remembers_ns(self) -> None:
        return None

    def placed(self, ops: Sequence[Op]) -> Words | None:
        places = range(len(self.key))
        return tuple(self.columns.index(at) for at in places) if set(places) <= set(self.columns) else None

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        self.exchange = ops[self.left].part != self.key

    def facts(self) -> dict[str, Any]:
        return {"exchange": self.exchange}


@dataclass
class ConsolidateOp(FedOp):
    """Adds up the changes of equal rows at the same time. exchange: equal rows may be on different workers."""

    exchange: bool = True

    kind = "consolidate"
    takes_names = True

    @property
    def consolidates(self) -> bool:
        return True

    def placed(self, ops: Sequence[Op]) -> Words | None:
        part = ops[self.input].part
        return tuple(range(self.width)) if part is None else part

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        # Rows placed by some of their words lie beside their equals.
        self.exchange = ops[self.input].part is None

    def facts(self) -> dict[str, Any]:
        return {"exchange": self.exchange}


@dataclass
class InspectOp(PassingOp):
    """Passes each change to a function of the program. where: the program's line."""

    schema: RowType
    function: Callable[..., Any]
    where: str

    kind = "inspect"

    def facts(self) -> dict[str, Any]:
        return {"calls": "change"}


@dataclass
class CheckOp(FedOp):
    """Raises an error when its input has a row. where: the program's line."""

    schema: RowType
    where: str
    exchange: bool = True

    kind = "check"

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        self.exchange = ops[self.input].part is None

    def facts(self) -> dict[str, Any]:
        return {"exchange": self.exchange}


@dataclass
class ViewOp(PassingOp):
    """The changes of a named view, in the word order of its schema. It reads what is consolidated in each slice.
    trace: the arrangement that keeps the view; empty if nothing does."""

    view: str
    trace: str

    kind = "view"
