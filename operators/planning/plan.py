"""The physical plan: operators in scopes, as data.

`planner.compile_app` turns a program into a plan, and every worker builds its operators from that plan. Operators are
listed in the topological order of their scope. A loop is one operator of its parent scope (`LoopOp`); its inner scope
runs to its fixed point at each round of the parent. Rows are words (int64) here, and columns are word positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from vernier.operators.language.collection.structure import Probe
from vernier.operators.language.types.schema import RowType
from vernier.operators.planning.adapted import NONE, Evolution
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ViewOp
from vernier.operators.planning.stages import Words
from vernier.storage.updates import MIN_TIME

O = TypeVar("O", bound=Op)  # noqa: E741


@dataclass
class ScopePlan:
    """Operators that share rounds. ops: in topological order; captures: arrangements and loop inputs that come from
    outer scopes."""

    id: int
    parent: int | None
    depth: int
    ops: list[int] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Whole:
    """What a trace holds completely. of: the fingerprint of the operator whose rows these are, equal in every program
    that has this operator; words: the position of each of their words in the trace's rows."""

    of: str
    words: Words


@dataclass(frozen=True)
class ArrangementPlan:
    """The shape of a trace. retain_ns: how much history it keeps, as views do; other traces compact up to the frontier
    (None). texts: the words of its rows (key, then val) at which a text begins. whole: which
    operator's rows it holds completely; None if it holds only some of their columns, or rows of a loop."""

    trace: str
    label: str
    key_width: int
    val_width: int
    depth: int
    retain_ns: int | None = None
    texts: Words = ()
    whole: Whole | None = None

    @property
    def retained(self) -> bool:
        """Whether it keeps history."""
        return self.retain_ns is not None

    def since(self, upper: int) -> int:
        """From which time on it tells times apart, once it is complete up to `upper`."""
        return upper if self.retain_ns is None else max(MIN_TIME, upper - self.retain_ns)


@dataclass(frozen=True)
class QueuePlan:
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
    """A view: its schema, its key columns, the trace that holds it (empty if none does: `compile_app`'s keep_views),
    and how the words that it reads map to the row's words."""

    name: str
    schema: RowType
    key: tuple[str, ...]
    trace: str
    words: Words


@dataclass(frozen=True)
class FormerTrace:
    """A trace in which earlier versions kept the rows of a group of counts and sums. lanes: the trace of its numbers;
    whole: whose rows, if they are whole; key_width: words of its key; flags: the words of its rows that say whether a
    summed column has a value."""

    trace: str
    lanes: str
    whole: Whole | None
    key_width: int
    flags: Words


@dataclass(repr=False)
class Plan:
    """Everything a worker needs to run a program."""

    app: str
    fingerprint: str
    sources: dict[str, RowType]
    views: dict[str, ViewPlan]
    ops: list[Op]
    scopes: list[ScopePlan]
    arrangements: dict[str, ArrangementPlan]
    queues: dict[str, QueuePlan] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)
    """What each operator computes, as a fingerprint that is equal in every program."""
    former: Sequence[FormerTrace] = ()
    """What states of earlier versions have instead of vectors and counts."""
    pushes: bool = False
    """Whether temporal filters or table functions have been moved below joins."""
    evolve: Callable[[Mapping[str, RowType]], Evolution] = field(default=lambda former: NONE, compare=False)
    """What a state is good for whose sources had these columns (evolution.py)."""
    program: Any = field(default=None, init=False, compare=False)
    """The plan as operators/engine/program.py has written it, if it has: False if it cannot be written."""
    passes: dict[int, Any] = field(default_factory=dict, init=False, compare=False)
    """What operators/physical/stage_compiler.py has made of the stages of operators, by their ids."""

    def __repr__(self) -> str:
        return (
            f"Plan({self.app!r}, sources: {', '.join(self.sources)}, views: {', '.join(self.views)}, "
            f"{len(self.ops)} operators, {len(self.arrangements)} arrangements)"
        )

    def explain(self) -> dict[str, Any]:
        """The plan as JSON: operators with their inputs, scopes, and arrangements with their readers.

        `readers` of an arrangement are operators; `views` are all views that depend on it.
        """
        follows = {op.view: upstream(self, [op.id]) for op in self.of(ViewOp)}
        keeps: dict[str, set[int]] = {}
        for op in self.ops:
            for trace in op.traces:
                keeps.setdefault(trace, set()).add(op.id)
        return {
            "app": self.app,
            "fingerprint": self.fingerprint,
            "sources": {name: schema.to_json() for name, schema in self.sources.items()},
            **self._described_options(),
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
                    "readers": [op.id for op in self.readers[name]],
                    "views": [view for view, ops in follows.items() if ops & keeps.get(name, set())],
                }
                for name, shape in self.arrangements.items()
            ],
            "holds": [
                {"queue": name, "label": shape.label, "words": shape.width, "depth": shape.depth}
                for name, shape in self.queues.items()
            ],
        }

    def _described_options(self) -> dict[str, Any]:
        """What schemas say about columns besides their types, if they do."""
        said = {name: schema.options_json() for name, schema in self.sources.items() if schema.options}
        return {"column_options": said} if said else {}

    @property
    def wholes(self) -> dict[str, Whole]:
        """The traces that hold all rows of some operator, and which one."""
        return {name: shape.whole for name, shape in self.arrangements.items() if shape.whole is not None}

    def of(self, kind: type[O]) -> list[O]:
        """The operators of one kind."""
        return [op for op in self.ops if isinstance(op, kind)]

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Op]]:
        """The operators that read each trace, which another one keeps. Workers are made for each epoch, so this and the
        next two are found once; ask when the plan is complete."""
        found: dict[str, list[Op]] = {name: [] for name in self.arrangements}
        for op in self.ops:
            kept = {name for name in op.traces if name != op.arrangement}
            for trace in kept | {self.ops[i].arrangement for i in op.inputs}:
                if trace is not None:
                    found[trace].append(op)
        return found

    @cached_property
    def rows_read(self) -> frozenset[int]:
        """The operators whose output rows another one reads, rather than the arrangement that keeps them."""
        return frozenset(i for op in self.ops for i in op.rows_read)

    @cached_property
    def copied(self) -> frozenset[int]:
        """The operators to whose output nothing refers after a step."""
        return frozenset(op.id for op in self.ops if op.output_copied(self.ops))

    def _describe(self, op: Op) -> dict[str, Any]:
        scope = self.scopes[op.scope]
        about: dict[str, Any] = {
            "id": op.id,
            "kind": op.kind,
            "name": op.name,
            "line": op.line,
            "scope": op.scope,
            "depth": scope.depth,
            "inputs": list(op.inputs),
            "time": "total" if scope.depth == 0 else "product",
            "partitioned_by": None if op.part is None else list(op.part),
        }
        if op.arrangement is not None:
            about["trace"] = op.arrangement
        return about | op.facts()


def upstream(plan: Plan, ids: Iterable[int]) -> set[int]:
    """These operators and everything they depend on, including the loops that run them."""
    found: set[int] = set()
    stack = list(ids)
    while stack:
        op = plan.ops[stack.pop()]
        if op.id not in found:
            found.add(op.id)
            stack += (*op.inputs, *op.companions(plan.ops))
    return found
