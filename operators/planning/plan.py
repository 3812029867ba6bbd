"""The physical plan: operators in scopes, as data.

`planner.compile_app` turns a program into a plan, and every worker builds its operators from that plan. Operators are
listed in the topological order of their scope. A loop is one operator of its parent scope (`LoopOp`); its inner scope
runs to its fixed point at each round of the parent. Rows are words (int64) here, and columns are word positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.language.collection.structure import Probe
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.tables import TableFunction
from vernier.operators.language.types.schema import RowType

Words = tuple[int, ...]


@dataclass(frozen=True)
class Take:
    """Keep the words at these positions, in this order."""

    words: Words


@dataclass(frozen=True)
class Keep:
    """Keep the rows for which the predicate is true (not false, not null)."""

    predicate: Expr
    schema: RowType


@dataclass(frozen=True)
class Compute:
    """Build new rows from expressions."""

    exprs: tuple[Expr, ...]
    schema: RowType
    width: int


@dataclass(frozen=True)
class Negated:
    """Multiply diffs by -1."""


@dataclass(frozen=True)
class Expand:
    """Turn each row into any number of rows, each with a factor for its diff and a time at which it becomes valid.
    schema: the type of the input rows."""

    table: TableFunction
    schema: RowType
    width: int


@dataclass(frozen=True)
class Move:
    """Move updates to a later time: rounded up to a multiple of `ns` or, if `delay` is set, later by `ns`."""

    ns: int
    delay: bool


Stage = Take | Keep | Compute | Negated | Expand | Move


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


@dataclass
class InputOp(Op):
    """The updates of a source."""

    source: str


@dataclass
class LinearOp(Op):
    """A fused chain of row-wise steps."""

    input: int
    stages: tuple[Stage, ...]


@dataclass
class UnionOp(Op):
    """All updates of its inputs."""

    inputs: Words


@dataclass
class EnterOp(Op):
    """Brings a collection of the parent scope into the loop, at round 0."""

    input: int


@dataclass
class ArrangeOp(Op):
    """Keeps its input in a trace, by key. Rows are key words, then val words. exchange: rows must be sent to the worker
    that owns their key."""

    input: int
    key: Words
    val: Words
    trace: str
    exchange: bool = True


@dataclass
class UpsertOp(ArrangeOp):
    """An arrangement of the newest row of each key, from a source's upserts (operators/physical/upsert.py)."""


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


@dataclass
class LookupOp(Op):
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


@dataclass
class KeyedOp(Op):
    """A reduction: reads an arrangement by `key` and emits key words, then val words. total: its earlier output follows
    from its input, so the operator need not look it up. trace: where its output is kept, by key, either for the
    operator itself or for readers of that arrangement; None if neither needs it."""

    input: int
    key: RowType
    total: bool
    trace: str | None

    @property
    def key_width(self) -> int:
        """Words of the key."""
        return self.key.width


@dataclass
class ReduceOp(KeyedOp):
    """Aggregates that the kernel updates change by change. aggregations: rows of kernels/aggregating.py; compared: the
    positions in the val of the texts whose least or greatest value is wanted."""

    aggregations: tuple[Words, ...]
    compared: Words


@dataclass
class FollowOp(KeyedOp):
    """Accumulable reduce: counts and sums where time is total. aggregations: rows of kernels/aggregating.py; state: the
    trace that holds the accumulated numbers of each key; None if the key is the whole row, because such a key needs no
    numbers of its own."""

    aggregations: tuple[Words, ...]
    state: str | None


@dataclass
class WaveOp(KeyedOp):
    """Reduce with a logic: applies a `LogicSpec` to the rows of each key. val: the arrangement's columns after the
    key's."""

    val: RowType
    spec: LogicSpec


@dataclass
class HoldOp(Op):
    """Temporal buffer: keeps updates whose time is after the running slice in a queue until they are due."""

    input: int
    queue: str


@dataclass
class DelayedOp(Op):
    """A delayed variable: the rows that were set `ns` ago. max_steps: the most consecutive slices in which the variable
    may be fed only by itself."""

    queue: str
    schema: RowType
    ns: int
    max_steps: int


@dataclass
class SetOp(Op):
    """Feeds its input to a delayed variable, where it appears `ns` later."""

    input: int
    variable: int
    ns: int


@dataclass
class ConsolidateOp(Op):
    """Adds up the changes of equal rows at the same time. exchange: equal rows may be on different workers."""

    input: int
    exchange: bool = True


@dataclass
class InspectOp(Op):
    """Passes each change to a function of the program. where: the program's line."""

    input: int
    schema: RowType
    function: Callable[..., Any]
    where: str


@dataclass
class CheckOp(Op):
    """Raises an error when its input has a row. where: the program's line."""

    input: int
    schema: RowType
    where: str
    exchange: bool = True


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


@dataclass
class LoopOp(Op):
    """Runs an inner scope to its fixed point."""

    inner: int
    label: str
    max_rounds: int
    truncate: bool
    variables: list[int] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)


@dataclass
class LeaveOp(Op):
    """The body's output over all rounds, as a collection of the parent scope."""

    loop: int
    input: int


@dataclass
class ViewOp(Op):
    """A named view, arranged by its key (words `key`). Readers get rows in the word order of the view's schema."""

    input: int
    view: str
    trace: str


@dataclass
class Scope:
    """Operators that share rounds. ops: in topological order; captures: arrangements and loop inputs that come from
    outer scopes."""

    id: int
    parent: int | None
    depth: int
    ops: list[int] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ArrangementPlan:
    """The shape of a trace. retained: the trace keeps a view's history for the retention window; other traces compact
    up to the frontier. texts: the words of its rows (key, then val) at which a text begins."""

    trace: str
    label: str
    key_width: int
    val_width: int
    depth: int
    retained: bool
    texts: Words = ()


@dataclass(frozen=True)
class HoldPlan:
    """The shape of a queue of held updates. cyclic: a delayed variable feeds itself through it. texts: the words of its
    rows at which a text begins."""

    queue: str
    label: str
    width: int
    depth: int
    cyclic: bool = False
    texts: Words = ()


@dataclass(frozen=True)
class ViewPlan:
    """A view: its schema, its key columns, the trace that holds it, and how the trace's words map to the row's
    words."""

    name: str
    schema: RowType
    key: tuple[str, ...]
    trace: str
    words: Words


@dataclass(repr=False)
class Plan:
    """Everything a worker needs to run a program."""

    app: str
    retain_ns: int
    fingerprint: str
    sources: dict[str, RowType]
    views: dict[str, ViewPlan]
    ops: list[Op]
    scopes: list[Scope]
    arrangements: dict[str, ArrangementPlan]
    holds: dict[str, HoldPlan] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"Plan({self.app!r}, sources: {', '.join(self.sources)}, views: {', '.join(self.views)}, "
            f"{len(self.ops)} operators, {len(self.arrangements)} arrangements)"
        )

    def explain(self) -> dict[str, Any]:
        """The plan as JSON: operators with their inputs, scopes, and arrangements with their readers.

        `readers` of an arrangement are operators; `views` are all views that depend on it.
        """
        follows = {op.view: upstream(self, [op.id]) for op in self.ops if isinstance(op, ViewOp)}
        keeps: dict[str, set[int]] = {}
        for op in self.ops:
            for trace in (self.trace_of(op.id), op.state if isinstance(op, FollowOp) else None):
                if trace is not None:
                    keeps.setdefault(trace, set()).add(op.id)
        return {
            "app": self.app,
            "fingerprint": self.fingerprint,
            "sources": {name: schema.to_json() for name, schema in self.sources.items()},
            "views": {
                name: {"schema": view.schema.to_json(), "key": list(view.key), "trace": view.trace}
                for name, view in self.views.items()
            },
            "operators": [self._describe(op) for op in self.ops],
            "arrangements": [
                {
                    "trace": name,
                    "label": shape.label,
                    "key_words": shape.key_width,
                    "val_words": shape.val_width,
                    "depth": shape.depth,
                    "retained": shape.retained,
                    "readers": [op.id for op in self.ops if self._reads(op, name)],
                    "views": [view for view, ops in follows.items() if ops & keeps.get(name, set())],
                }
                for name, shape in self.arrangements.items()
            ],
            "holds": [
                {"queue": name, "label": shape.label, "words": shape.width, "depth": shape.depth}
                for name, shape in self.holds.items()
            ],
        }

    def _reads(self, op: Op, trace: str) -> bool:
        own = isinstance(op, FollowOp) and op.state == trace
        return own or any(self.trace_of(i) == trace for i in inputs_of(op))

    def trace_of(self, op_id: int) -> str | None:
        """The trace that an operator keeps, if any."""
        op = self.ops[op_id]
        return op.trace if isinstance(op, (ArrangeOp, KeyedOp)) else None

    def _describe(self, op: Op) -> dict[str, Any]:
        scope = self.scopes[op.scope]
        about: dict[str, Any] = {
            "id": op.id,
            "kind": "reduce" if isinstance(op, KeyedOp) else type(op).__name__.removesuffix("Op").lower(),
            "name": op.name,
            "line": op.line,
            "scope": op.scope,
            "depth": scope.depth,
            "inputs": list(inputs_of(op)),
            "time": "total" if scope.depth == 0 else "product",
            "partitioned_by": None if op.part is None else list(op.part),
        }
        if (trace := self.trace_of(op.id)) is not None:
            about["trace"] = trace
        if isinstance(op, LinearOp):
            about["fused"] = len(op.stages)
        if isinstance(op, JoinOp) and op.stages:
            about["fused"] = 1 + len(op.stages)
        if isinstance(op, (ArrangeOp, LookupOp, ConsolidateOp, CheckOp)):
            about["exchange"] = op.exchange
        if isinstance(op, KeyedOp):
            about["form"] = "total" if op.total else "general"
            about["keeps_output"] = op.trace is not None
        if isinstance(op, FollowOp) and op.state is not None:
            about["state"] = op.state
        if isinstance(op, (DelayedOp, HoldOp)):
            about["queue"] = op.queue
        if isinstance(op, SetOp):
            about["delay_ns"], about["feeds"] = op.ns, op.variable
        if isinstance(op, LoopOp):
            about["inner_scope"] = op.inner
            about["max_rounds"] = op.max_rounds
        return about


def texts_among(words: Words, texts: Words) -> Words:
    """The positions of texts in rows that pick `words` from other rows, whose texts begin at `texts`."""
    return tuple(i for i, word in enumerate(words) if word in texts)


def inputs_of(op: Op) -> Words:
    """The ids of the operators that feed `op`."""
    match op:
        case LinearOp() | HoldOp() | SetOp() | ConsolidateOp() | InspectOp() | CheckOp() | EnterOp():
            return (op.input,)
        case ArrangeOp() | KeyedOp() | LeaveOp() | ViewOp():
            return (op.input,)
        case UnionOp():
            return op.inputs
        case JoinOp() | LookupOp():
            return (op.left, op.right)
        case VariableOp():
            return (op.initial, op.feedback)
        case _:
            return ()


def rows_wanted(plan: Plan, of: int) -> bool:
    """Whether an operator reads the output rows of operator `of` itself, rather than the arrangement that keeps
    them."""
    for op in plan.ops:
        match op:
            case JoinOp() | KeyedOp():
                continue
            case LookupOp():
                found = op.left == of
            case _:
                found = of in inputs_of(op)
        if found:
            return True
    return False


def only_arranged(plan: Plan, of: int) -> bool:
    """Whether an operator's output goes to arrangements only, so that nothing refers to it after the step."""
    readers = [op for op in plan.ops if of in inputs_of(op)]
    return all(isinstance(op, ArrangeOp) or (isinstance(op, UnionOp) and only_arranged(plan, op.id)) for op in readers)


def upstream(plan: Plan, ids: Iterable[int]) -> set[int]:
    """These operators and everything they depend on, including the loops that run them."""
    found: set[int] = set()
    stack = list(ids)
    while stack:
        op = plan.ops[stack.pop()]
        if op.id in found:
            continue
        found.add(op.id)
        stack += inputs_of(op)
        if isinstance(op, (LeaveOp, VariableOp)):
            stack.append(op.loop)
        if isinstance(op, LoopOp):
            stack += op.variables
        if isinstance(op, DelayedOp):
            stack += [one.id for one in plan.ops if isinstance(one, SetOp) and one.variable == op.id]
    return found
