"""Programs: plans as words, for the kernel that runs whole slices (operators/kernels/interpreting.py).

An operator becomes a row of words, and what it needs besides becomes words of a common pool. A plan has a program if
the kernel knows all of its operators: those of the root scope, and of loops that are not nested. Functions of the
program, texts that are compared, queues and delays are not among them; such plans run step by step, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vernier.operators.kernels import programs as layout
from vernier.operators.kernels.joining import FRESH, KEY, OTHER
from vernier.operators.kernels.programs import COVERS, IN_ORDER, TOTAL
from vernier.operators.physical.reduce import of_one_val
from vernier.operators.physical.stage_compiler import Pass, passes
from vernier.operators.planning.constants import ConstantOp
from vernier.operators.planning.loop_ops import EnterOp, LeaveOp, LoopOp, VariableOp
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import (
    ArrangeOp,
    CheckOp,
    ConsolidateOp,
    InputOp,
    JoinOp,
    LinearOp,
    UnionOp,
    ViewOp,
)
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.reduction_ops import AccumulableReduceOp, AccumulateOp, ReduceOp, ReductionOp
from vernier.operators.planning.stages import Stage, Take
from vernier.storage.trace.batch import keyed_columns
from vernier.storage.updates import Ints, sort_columns


class Unfit(Exception):
    """A plan that the kernel cannot run."""


@dataclass
class Program:
    """code: int64[ops, CODE_WORDS]; pool: constants; root: how many operators the root scope has, which come first;
    traces: their names, by number; places: the row of each operator; sources, views, loops: rows by name or operator;
    buckets: how many there are."""

    code: Ints
    pool: Ints
    root: int
    traces: list[str]
    places: dict[int, int]
    buckets: int
    sources: dict[str, int] = field(default_factory=dict)
    views: dict[str, int] = field(default_factory=dict)


def program_of(plan: Plan) -> Program | None:
    """The plan's program; None if it has none."""
    if plan.program is None:
        try:
            plan.program = _Writer(plan).write()
        except Unfit:
            plan.program = False
    return plan.program or None


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        if plan.queues or any(scope.depth > 1 or scope.parent not in (None, 0) for scope in plan.scopes):
            raise Unfit
        order = [op for scope in plan.scopes for op in scope.ops]
        self.places = {op: place for place, op in enumerate(order)}
        self.first = np.cumsum([0, *(len(scope.ops) for scope in plan.scopes)]).tolist()
        self.traces = list(plan.arrangements)
        self.numbers = {name: number for number, name in enumerate(self.traces)}
        self.pool: list[int] = []
        self.buckets = 0
        self.ops = {op.id: op for op in plan.ops}
        self.order = [self.ops[op] for op in order]

    def write(self) -> Program:
        """The program. Raises Unfit."""
        rows = np.full((len(self.order), layout.CODE_WORDS), -1, np.int64)
        for place, op in enumerate(self.order):
            write = _WRITERS.get(type(op))
            if write is None:
                raise Unfit
            words = {layout.DEPTH: self.plan.scopes[op.scope].depth, layout.WIDE: op.width, **write(self, op)}
            rows[place, list(words)] = list(words.values())
        pool = np.array(self.pool or [0], np.int64)
        program = Program(rows, pool, len(self.plan.scopes[0].ops), self.traces, self.places, self.buckets)
        for op in self.order:
            if isinstance(op, ConstantOp):
                program.sources[f"constant {op.id}"] = self.places[op.id]
            elif isinstance(op, InputOp):
                program.sources[op.source] = self.places[op.id]
            elif isinstance(op, ViewOp):
                program.views[op.view] = self.places[op.id]
        return program

    def put(self, *parts: Iterable[int]) -> int:
        """Add constants; where they begin."""
        at = len(self.pool)
        for part in parts:
            self.pool += [int(word) for word in part]
        return at

    def bucket(self) -> int:
        """A new bucket."""
        self.buckets += 1
        return self.buckets - 1

    def stages(self, stages: Sequence[Stage], width: int, tail: int) -> tuple[int, int]:
        """Where the constants of a chain of stages begin, and how many stages there are. Raises Unfit."""
        at, count = len(self.pool), 0
        for one in passes(stages, width):
            if isinstance(one, Take):
                self.put((layout.TAKE, tail, len(one.words)), one.words)
            elif isinstance(one, Pass):
                code, constants, registers, words = one.program
                head = (layout.PASS, tail, len(code), len(constants), registers, len(words))
                self.put(head, code.ravel(), constants, words)
            else:
                raise Unfit
            count += 1
        self.put((0,) * 6)  # the kernel reads six words of each stage
        return at, count

    def input(self, op: Any) -> dict[int, int]:
        """An operator's input."""
        return {layout.INPUT: self.places[op.input]}

    # --- operators ----------------------------------------------------------------------------------------------------

    def source(self, op: InputOp) -> dict[int, int]:
        return {layout.KIND: layout.SOURCE}

    def linear(self, op: LinearOp) -> dict[int, int]:
        at, count = self.stages(op.stages, self.ops[op.input].width, self._tail(op))
        return {layout.KIND: layout.LINEAR, layout.A: at, layout.SIZE: count, **self.input(op)}

    def union(self, op: UnionOp) -> dict[int, int]:
        inputs = [self.places[one] for one in op.inputs]
        return {layout.KIND: layout.UNION, layout.A: self.put(inputs), layout.SIZE: len(inputs)}

    def enter(self, op: EnterOp) -> dict[int, int]:
        return {layout.KIND: layout.ENTER, **self.input(op)}

    def arrange(self, op: ArrangeOp) -> dict[int, int]:
        return {
            layout.KIND: layout.ARRANGE,
            layout.TRACE: self.numbers[op.trace],
            **self.keys(op.key, op.val, self.ops[op.input].width),
            **self.input(op),
        }

    def keys(self, key: Sequence[int], val: Sequence[int], width: int) -> dict[int, int]:
        """How rows of `width` words are keyed."""
        words = [*key, *val]
        return {
            layout.KEYS: len(key),
            layout.VALS: len(val),
            layout.A: self.put(words, (1 + word for word in words)),
            layout.FLAG: int(words == list(range(width))),
        }

    def view(self, op: ViewOp) -> dict[int, int]:
        return {layout.KIND: layout.VIEW, **self.input(op)}

    def join(self, op: JoinOp) -> dict[int, int]:
        left = [{1: FRESH, 2: OTHER}.get(side, KEY) for side, _ in op.columns]
        right = [{1: OTHER, 2: FRESH}.get(side, KEY) for side, _ in op.columns]
        at, count = self.stages(op.stages, len(op.columns), self._tail(op))
        return {
            layout.KIND: layout.JOIN,
            layout.INPUT: self.places[op.left],
            layout.OTHER: self.places[op.right],
            layout.BUCKET: self.bucket(),
            layout.A: self.put(left, right),
            layout.B: self.put(index for _, index in op.columns),
            layout.C: len(op.columns),
            layout.D: at,
            layout.SIZE: count,
        }

    def reduction(self, op: ReductionOp) -> dict[int, int]:
        """What all reductions have."""
        depth, k = self.plan.scopes[op.scope].depth, op.key.width
        columns = keyed_columns(k, op.width - k, depth)
        return {
            layout.TRACE: -1 if op.trace is None else self.numbers[op.trace],
            layout.BUCKET: self.bucket(),
            layout.B: self.put(columns),
            layout.SIZE: len(columns),
            layout.KEYS: k,
            layout.VALS: op.width - k,
            **self.input(op),
        }

    def reduce(self, op: ReduceOp) -> dict[int, int]:
        if op.compared or op.reads is not None:
            raise Unfit  # texts, and groups of which only a part is read
        covers = of_one_val(op.aggregations)
        return {
            layout.KIND: layout.REDUCE,
            **self.reduction(op),
            layout.C: self.put(*op.aggregations),
            layout.D: len(op.aggregations),
            layout.FLAG: (COVERS | IN_ORDER if covers else 0) | (TOTAL if op.total else 0),
        }

    def accumulate(self, op: AccumulateOp) -> dict[int, int]:
        return {
            layout.KIND: layout.ACCUMULATE,
            **self.reduction(op),
            **self.keys(op.words, op.val, self.ops[op.input].width),
            layout.OTHER: op.width - op.key.width,
            layout.STATE: self.numbers[op.state],
            layout.C: self.put(*op.aggregations),
            layout.D: len(op.aggregations),
            layout.E: self.put((op.page, op.length), op.slots),
            layout.F: len(op.slots),
        }

    def follow(self, op: AccumulableReduceOp) -> dict[int, int]:
        return {
            layout.KIND: layout.FOLLOW,
            **self.reduction(op),
            layout.STATE: -1 if op.state is None else self.numbers[op.state],
            layout.C: self.put(*op.aggregations),
            layout.D: len(op.aggregations),
            layout.FLAG: IN_ORDER if op.width == op.key.width else 0,
        }

    def consolidate(self, op: ConsolidateOp | CheckOp) -> dict[int, int]:
        columns = sort_columns(0, op.width, self.plan.scopes[op.scope].depth)
        return {
            layout.KIND: layout.CONSOLIDATED,
            layout.A: self.put(columns),
            layout.SIZE: len(columns),
            layout.FLAG: int(isinstance(op, CheckOp)),
            **self.input(op),
        }

    def variable(self, op: VariableOp) -> dict[int, int]:
        columns = sort_columns(0, op.width, 1)
        return {
            layout.KIND: layout.VARIABLE,
            layout.INPUT: self.places[op.feedback],
            layout.OTHER: self.places[op.initial],
            layout.BUCKET: self.bucket(),
            layout.A: self.put(columns),
            layout.SIZE: len(columns),
        }

    def loop(self, op: LoopOp) -> dict[int, int]:
        if op.rounds:
            raise Unfit
        captures = self.plan.scopes[op.inner].captures
        lists = (op.variables, op.leaves, captures)
        return {
            layout.KIND: layout.LOOP,
            layout.INPUT: self.first[op.inner],
            layout.OTHER: self.first[op.inner + 1],
            layout.A: self.put(*([self.places[one] for one in some] for some in lists)),
            layout.B: len(op.variables),
            layout.C: len(op.leaves),
            layout.D: len(captures),
            layout.E: op.max_rounds,
            layout.F: int(op.truncate),
        }

    def leave(self, op: LeaveOp) -> dict[int, int]:
        return {layout.KIND: layout.LEAVE, layout.BUCKET: self.bucket(), **self.input(op)}

    def _tail(self, op: Op) -> int:
        return self.plan.scopes[op.scope].depth + 2


_WRITERS: Mapping[type[Op], Callable[[_Writer, Any], dict[int, int]]] = {
    InputOp: _Writer.source,
    ConstantOp: _Writer.source,
    LinearOp: _Writer.linear,
    UnionOp: _Writer.union,
    EnterOp: _Writer.enter,
    ArrangeOp: _Writer.arrange,
    ViewOp: _Writer.view,
    JoinOp: _Writer.join,
    ReduceOp: _Writer.reduce,
    AccumulateOp: _Writer.accumulate,
    AccumulableReduceOp: _Writer.follow,
    ConsolidateOp: _Writer.consolidate,
    CheckOp: _Writer.consolidate,
    VariableOp: _Writer.variable,
    LoopOp: _Writer.loop,
    LeaveOp: _Writer.leave,
}
"""Operators that the kernel knows, each with the method that writes its row."""
