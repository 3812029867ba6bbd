"""The physical plan: operators in scopes, as data.

A plan is what `planner.compile_app` makes of a program and what every worker builds its operators from. Operators stand
in the topological order of their scope; a loop is one operator of its parent (`LoopOp`) whose inner scope runs to its
fixed point at each round of the parent. Rows are words here; columns are word positions.
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
    """Make new rows from expressions."""

    exprs: tuple[Expr, ...]
    schema: RowType
    width: int


@dataclass(frozen=True)
class Negated:
    """Multiply diffs by -1."""


@dataclass(frozen=True)
class Expand:
    """Make any number of rows of each, with factors for their diffs and times to wait for. schema: of its input."""

    table: TableFunction
    schema: RowType
    width: int


@dataclass(frozen=True)
class Move:
    """Put updates at a later time: rounded up to a multiple of `ns`, or, for a `delay`, by `ns`."""

    ns: int
    delay: bool


Stage = Take | Keep | Compute | Negated | Expand | Move


@dataclass
class Op:
    """An operator. id: its place in the plan; scope: where it runs; width: words of its rows; name: for people; part:
    the words by whose hash its rows are placed on workers, or None where that is not known; texts: at which words of
    its rows a text begins (storage/strings/string_heap.py); line: of the program, "file:line", for errors; titled:
    whether the program gave the name."""

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
    """Brings a collection of the parent scope in, at round 0."""

    input: int


@dataclass
class ArrangeOp(Op):
    """Keeps its input in a trace, by key; rows are key words then val words. exchange: rows must move to their key's
    owner."""

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
    """Pairs two arrangements with the same key, whose columns are `key`. columns: for each word of a pair (side,
    position): 0 key, 1 left val, 2 right val. stages: what becomes of the pairs, in the same pass."""

    left: int
    right: int
    columns: tuple[tuple[int, int], ...]
    key: RowType
    stages: tuple[Stage, ...] = ()


@dataclass
class LookupOp(Op):
    """Pairs changes of the left side, by key words `key` with the words `val`, with what the right arrangement holds at
    their time. columns: for each output word its place in key, val and the right side's val, side by side. exchange:
    left rows must move to their key's owner; carried: at which words of key and val a text begins; by: the columns of
    the key."""

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
    """Reads an arrangement by `key`; its rows are key words, then val words. total: what it has said follows from its
    input, so it does not look it up. trace: where its output is kept, by key, for itself or for who wants that
    arrangement; None when nobody does."""

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
    """Aggregates that follow each change; aggregations: rows of kernels/aggregating.py; compared: where in the val the
    texts begin of which a least or greatest one is wanted."""

    aggregations: tuple[Words, ...]
    compared: Words


@dataclass
class FollowOp(KeyedOp):
    """Counts and sums where time is total; aggregations: rows of kernels/aggregating.py; state: the trace of the
    numbers of each key, None where a key is one row and has no others."""

    aggregations: tuple[Words, ...]
    state: str | None


@dataclass
class WaveOp(KeyedOp):
    """What a logic makes of the rows of each key; val: the columns behind the key's in the arrangement."""

    val: RowType
    spec: LogicSpec


@dataclass
class HoldOp(Op):
    """Keeps updates that lie behind the running slice in a queue until they are due."""

    input: int
    queue: str


@dataclass
class DelayedOp(Op):
    """A delayed variable: what was set `ns` ago. max_steps: slices in a row that it may feed itself."""

    queue: str
    schema: RowType
    ns: int
    max_steps: int


@dataclass
class SetOp(Op):
    """Feeds its input to a delayed variable, `ns` later."""

    input: int
    variable: int
    ns: int


@dataclass
class ConsolidateOp(Op):
    """Equal rows as one change a time. exchange: equal rows may be on different workers."""

    input: int
    exchange: bool = True


@dataclass
class InspectOp(Op):
    """Shows each change to a function of the program; where: the program's line."""

    input: int
    schema: RowType
    function: Callable[..., Any]
    where: str


@dataclass
class CheckOp(Op):
    """An error when there is a row; where: the program's line."""

    input: int
    schema: RowType
    where: str
    exchange: bool = True


@dataclass
class VariableOp(Op):
    """A loop variable: X0 at round 0, -X0 at round 1, and the body's output one round later."""

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
    """A named answer, arranged by its key (words `key`); rows come back in the order of the view's schema."""

    input: int
    view: str
    trace: str


@dataclass
class Scope:
    """Operators that share rounds. ops: in topological order; captures: arrangements and loop inputs from outer
    scopes."""

    id: int
    parent: int | None
    depth: int
    ops: list[int] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ArrangementPlan:
    """A trace's shape. retained: a view's history is kept for the retention window; others follow the frontier. texts:
    at which of its rows' words (key, then val) a text begins."""

    trace: str
    label: str
    key_width: int
    val_width: int
    depth: int
    retained: bool
    texts: Words = ()


@dataclass(frozen=True)
class HoldPlan:
    """A queue's shape. cyclic: a delayed variable comes back to itself through it. texts: at which words of its rows a
    text begins."""

    queue: str
    label: str
    width: int
    depth: int
    cyclic: bool = False
    texts: Words = ()


@dataclass(frozen=True)
class ViewPlan:
    """A view: its schema, its key columns, the trace that holds it and how trace words map to row words."""

    name: str
    schema: RowType
    key: tuple[str, ...]
    trace: str
    words: Words


@dataclass(repr=False)
class Plan:
    """All that a worker needs to run a program."""

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
        """The plan as JSON: operators with inputs, scopes, arrangements and who shares them.

        `readers` of an arrangement are operators; `views` are all that follow from it.
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
    """Where texts are in rows of these words of other rows, which have them at `texts`."""
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
    """Whether somebody reads the rows that operator `of` puts out, not only the arrangement that they are kept in."""
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
    """Whether what an operator puts out goes to arrangements alone, so that nobody has it any more after the step."""
    readers = [op for op in plan.ops if of in inputs_of(op)]
    return all(isinstance(op, ArrangeOp) or (isinstance(op, UnionOp) and only_arranged(plan, op.id)) for op in readers)


def upstream(plan: Plan, ids: Iterable[int]) -> set[int]:
    """These operators and all that they follow from, with the loops that run them."""
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
