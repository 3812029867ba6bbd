"""Physical operators as data: what each reads, keeps and says of itself, and how its rows are placed on workers.

The planner makes them from logical nodes (`operators/language/plan`), a Plan holds them, and every worker builds what
runs from them. Names tell the three apart: `JoinNode` is logical, `JoinOp` is planned, and `Join` (in
`operators/physical`) runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.stages import Move, Stage, Words, carry_all


@dataclass
class Op:
    """An operator. id: its position in the plan; scope: where it runs; width: number of words of its rows; name: for
    display; part: the words whose hash places its rows on workers, or None if that is not known; texts: the words of
    its rows at which a text begins (storage/strings/string_heap.py); line: the program's line, "file:line", for errors;
    titled: whether the program chose the name."""

    id: int
    scope: int
    width: int
    name: str
    part: Words | None = field(default=None, init=False)
    texts: Words = field(default=(), init=False)
    line: str = field(default="", init=False)
    titled: bool = field(default=False, init=False)

    kind: ClassVar[str] = "op"
    """What explanations call operators of this class."""
    takes_names: ClassVar[bool] = False
    """Whether it takes the name that a program gives its rows; sources, variables, loops and views have their own."""
    named_by_kind: ClassVar[bool] = False
    """Whether a name that the program did not give says no more than the kind."""

    @property
    def inputs(self) -> Words:
        """The ids of the operators that feed this one."""
        return ()

    @property
    def rows_read(self) -> Words:
        """Of its inputs, those whose rows it reads; of the others it reads the arrangement alone."""
        return self.inputs

    @property
    def arrangement(self) -> str | None:
        """The trace of its output by key, which other operators may share; None if it keeps none."""
        return None

    @property
    def traces(self) -> tuple[str, ...]:
        """All traces that it keeps."""
        return () if self.arrangement is None else (self.arrangement,)

    @property
    def trace_texts(self) -> dict[str, Words]:
        """For each trace that it keeps, the words of its rows at which a text begins."""
        return {} if self.arrangement is None else {self.arrangement: self.texts}

    @property
    def key_width(self) -> int:
        """How many of its first words are the key by which its output is arranged."""
        return 0

    @property
    def feeds(self) -> int | None:
        """The delayed variable that it sets."""
        return None

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of held updates that it keeps."""
        return ()

    @property
    def depends_on_arrival(self) -> bool:
        """Whether its output depends on when rows came, so that it cannot be computed from today's rows alone."""
        return False

    def companions(self, ops: Sequence[Op]) -> Words:
        """Operators besides its inputs that must run for it to run."""
        return ()

    def arranged_by(self, key: Words, val: Words) -> bool:
        """Whether its output is arranged by the words `key`, with the words `val` behind them."""
        return False

    def copies_input(self, ops: Sequence[Op]) -> bool:
        """Whether nothing refers to the rows of its input after the step."""
        return False

    def output_copied(self, ops: Sequence[Op]) -> bool:
        """Whether nothing refers to its own output after the step, since all readers copy it."""
        return all(reader.copies_input(ops) for reader in ops if self.id in reader.inputs)

    def placed(self, ops: Sequence[Op]) -> Words | None:
        """The words by whose hash its rows are placed on workers, once that of its inputs is known; None: unknown."""
        return None

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        """Drop the exchange of an input whose rows are where they must be already."""

    def facts(self) -> dict[str, Any]:
        """What explanations say of it besides what they say of every operator; JSON."""
        return {}


@dataclass
class FedOp(Op):
    """An operator with one input."""

    input: int

    @property
    def inputs(self) -> Words:
        return (self.input,)


@dataclass
class PassingOp(FedOp):
    """An operator that leaves rows where they are."""

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return ops[self.input].part


@dataclass
class KeyedOp(FedOp):
    """An operator whose output is arranged: rows are key words, then val words."""

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return tuple(range(self.key_width))

    def arranged_by(self, key: Words, val: Words) -> bool:
        width = self.key_width
        return key == tuple(range(width)) and val == tuple(range(width, self.width))


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
    def depends_on_arrival(self) -> bool:
        return any(isinstance(stage, Move) for stage in self.stages)

    def placed(self, ops: Sequence[Op]) -> Words | None:
        return carry_all(self.stages, ops[self.input].part)

    def facts(self) -> dict[str, Any]:
        return {"fused": len(self.stages)}


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
class EnterOp(PassingOp):
    """Brings a collection of the parent scope into the loop, at round 0."""

    kind = "enter"


@dataclass
class ArrangeOp(KeyedOp):
    """Keeps its input in a trace, by key. Rows are key words, then val words. exchange: rows must be sent to the worker
    that owns their key."""

    key: Words
    val: Words
    trace: str
    exchange: bool = True

    kind = "arrange"

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

    def facts(self) -> dict[str, Any]:
        return {"exchange": self.exchange}


@dataclass
class UpsertOp(ArrangeOp):
    """An arrangement of the newest row of each key, from a source's upserts (operators/physical/upsert.py)."""

    kind = "upsert"


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
        return {"fused": 1 + len(self.stages)} if self.stages else {}


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
    def depends_on_arrival(self) -> bool:
        return True

    def placed(self, ops: Sequence[Op]) -> Words | None:
        places = range(len(self.key))
        return tuple(self.columns.index(at) for at in places) if set(places) <= set(self.columns) else None

    def settle_exchange(self, ops: Sequence[Op]) -> None:
        self.exchange = ops[self.left].part != self.key

    def facts(self) -> dict[str, Any]:
        return {"exchange": self.exchange}


@dataclass
class ReductionOp(KeyedOp):
    """A reduction: reads an arrangement by `key` and emits key words, then val words. total: its earlier output follows
    from its input, so the operator need not look it up. trace: where its output is kept, by key, either for the
    operator itself or for readers of that arrangement; None if neither needs it."""

    key: RowType
    total: bool
    trace: str | None

    kind = "reduce"
    takes_names = True
    named_by_kind = True

    @property
    def rows_read(self) -> Words:
        return ()

    @property
    def arrangement(self) -> str | None:
        return self.trace

    @property
    def key_width(self) -> int:
        return self.key.width

    def facts(self) -> dict[str, Any]:
        return {"form": "total" if self.total else "general", "keeps_output": self.trace is not None}


@dataclass
class ReduceOp(ReductionOp):
    """Aggregates that the kernel updates change by change. aggregations: rows of kernels/aggregating.py; compared: the
    positions in the val of the texts whose least or greatest value is wanted."""

    aggregations: tuple[Words, ...]
    compared: Words


@dataclass
class AccumulableReduceOp(ReductionOp):
    """Accumulable reduce: counts and sums where time is total. aggregations: rows of kernels/aggregating.py; state: the
    trace that holds the accumulated numbers of each key; None if the key is the whole row, because such a key needs no
    numbers of its own."""

    aggregations: tuple[Words, ...]
    state: str | None

    @property
    def traces(self) -> tuple[str, ...]:
        return tuple(name for name in (self.trace, self.state) if name is not None)

    @property
    def trace_texts(self) -> dict[str, Words]:
        return super().trace_texts | ({} if self.state is None else {self.state: self.key.text_words})

    def facts(self) -> dict[str, Any]:
        return super().facts() | ({} if self.state is None else {"state": self.state})


@dataclass
class BatchedReduceOp(ReductionOp):
    """Reduce with a logic: applies a `LogicSpec` to the rows of each key. val: the arrangement's columns after the
    key's."""

    val: RowType
    spec: LogicSpec


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
    def depends_on_arrival(self) -> bool:
        return True

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
    def depends_on_arrival(self) -> bool:
        return True

    def facts(self) -> dict[str, Any]:
        return {"delay_ns": self.ns, "feeds": self.variable}


@dataclass
class ConsolidateOp(FedOp):
    """Adds up the changes of equal rows at the same time. exchange: equal rows may be on different workers."""

    exchange: bool = True

    kind = "consolidate"
    takes_names = True

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
    """Runs an inner scope to its fixed point."""

    inner: int
    label: str
    max_rounds: int
    truncate: bool
    variables: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)

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
class ViewOp(PassingOp):
    """A named view, arranged by its key (words `key`). Readers get rows in the word order of the view's schema."""

    view: str
    trace: str

    kind = "view"
