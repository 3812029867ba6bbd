"""Programs: plans as words, for the kernel that runs whole slices (operators/kernels/interpreting.py).

An operator becomes a row of words, and what it needs besides becomes words of a common pool. A plan has a program if
the kernel knows all of its operators: those of the root scope, and of loops that are not nested. It calls Python for
row-wise stages that it does not know, such as functions of the program and what is computed from texts. Queues, delays
and the least and greatest texts of groups are not among them; plans with those run step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vernier.operators.kernels import programs as layout
from vernier.operators.kernels import runs
from vernier.operators.kernels.exchanging import TO_ONE
from vernier.operators.kernels.joining import FRESH, KEY, OTHER
from vernier.operators.kernels.passes import LOAD
from vernier.operators.kernels.programs import COVERS, IN_ORDER, TOTAL
from vernier.operators.physical.stage_compiler import Pass, passes_of
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
from vernier.operators.planning.reduction_ops import (
    AccumulableReduceOp,
    AccumulateOp,
    ChosenOp,
    Ends,
    ExtremesOp,
    OrderedReduceOp,
    ReduceOp,
    ReductionOp,
    SessionsOp,
    Stretches,
    Surroundings,
    TopOp,
)
from vernier.operators.planning.stages import Stage, Take, Words
from vernier.storage.trace.batch import keyed_columns
from vernier.storage.trace.prefix_index import Column
from vernier.storage.updates import Ints, sort_columns


class Unfit(Exception):
    """A plan that the kernel cannot run."""


@dataclass
class Program:
    """code: int64[ops, CODE_WORDS]; pool: constants; root: how many operators the root scope has, which come first;
    traces: their names, by number; caches: the reductions that keep covers; these have the numbers after those of
    traces; indexes: the prefix indexes that it needs, by number, each of a trace; calls: the
    kernels that it needs beside those of all programs, by their place in a run; called: the stages that are Python's,
    by number, each with its operator; places: the row of each operator;
    sources: rows by name; views: rows by name, and how many words their updates have; buckets: how many there are;
    together: whether it can also run on several workers; gathers: whether one of them can then have the rows of all
    views: it cannot if there are texts among them, because the contents of long ones would have to travel; parted: the
    sources whose updates all travel to the owners of their keys before anything is computed from them, so that it makes
    no difference which worker has them."""

    code: Ints
    pool: Ints
    root: int
    traces: list[str]
    places: dict[int, int]
    buckets: int
    caches: list[int]
    indexes: list[tuple[int, Column]]
    calls: set[int]
    called: list[tuple[int, Stage]]
    together: bool
    gathers: bool
    parted: frozenset[str]
    sources: dict[str, int] = field(default_factory=dict)
    views: dict[str, tuple[int, int]] = field(default_factory=dict)


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
        self.caches: list[int] = []
        self.indexes: list[tuple[int, Column]] = []
        self.calls = set[int]()
        self.called: list[tuple[int, Stage]] = []
        self.ops = {op.id: op for op in plan.ops}
        self.order = [self.ops[op] for op in order]
        self.routes: set[int] = set()  # the operators whose routes are written

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
        together = all(op.id in self.routes or not getattr(op, "exchange", False) for op in self.order)
        root = len(self.plan.scopes[0].ops)
        more = self.caches, self.indexes, self.calls, self.called
        gathers = not any(view.schema.text_words for view in self.plan.views.values())
        parted = frozenset(op.source for op in self.order if isinstance(op, InputOp) and self.is_parted(op))
        program = Program(rows, pool, root, self.traces, self.places, self.buckets, *more, together, gathers, parted)
        for op in self.order:
            if isinstance(op, ConstantOp):
                program.sources[f"constant {op.id}"] = self.places[op.id]
            elif isinstance(op, InputOp):
                program.sources[op.source] = self.places[op.id]
            elif isinstance(op, ViewOp):
                program.views[op.view] = self.places[op.id], len(self.plan.views[op.view].words) + 2
        return program

    def is_parted(self, op: InputOp) -> bool:
        """Whether all who read a source part its updates by owner, in kernels: contents of long texts do not travel
        there."""
        readers = self.readers(op)
        return not self.plan.sources[op.source].text_words and all(getattr(one, "exchange", False) for one in readers)

    def is_sent(self, op: Op) -> bool:
        """Whether all rows that an operator emits go to their owners next, and nothing else reads them."""
        readers = self.readers(op)
        if len(readers) != 1:
            return False
        return self.is_sent(readers[0]) if isinstance(readers[0], UnionOp) else getattr(readers[0], "exchange", False)

    def readers(self, op: Op) -> list[Op]:
        """The operators that an operator feeds."""
        return [one for one in self.order if op.id in one.inputs]

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

    def stages(self, op: LinearOp | JoinOp, width: int, read: Words | None = None) -> tuple[int, int]:
        """Where the constants of an operator's stages begin, and how many stages there are. read: which words of its
        rows the first stage gets; None: all."""
        at, count, tail = len(self.pool), 0, self._tail(op)
        for one in passes_of(self.plan, op, width):
            if isinstance(one, Take):
                taken = one.words if read is None else [read.index(word) for word in one.words]
                self.put((layout.TAKE, tail, len(taken)), taken)
            elif isinstance(one, Pass):
                code, constants, registers, words = one.program
                if read is not None:
                    code = _moved(code, read)
                head = (layout.PASS, tail, len(code), len(constants), registers, len(words))
                self.put(head, code.ravel(), constants, words)
            else:
                self.put((layout.CALL, tail, len(self.called)))
                self.called.append((op.id, one))
            count, read = count + 1, None
        self.put((0,) * 6)  # the kernel reads six words of each stage
        return at, count

    def input(self, op: Any) -> dict[int, int]:
        """An operator's input."""
        return {layout.INPUT: self.places[op.input]}

    def route(
        self, op: Any, key: Words | None, sent: Words, depth: int, width: int, texts: Words, keyed: int = 0
    ) -> int:
        """How updates of `width` words travel to the owners of their words `key`, or to worker 0: only the words `sent`
        of each row do, the first `keyed` of which are key and val where they arrive. texts: the words at which a text
        begins."""
        self.routes.add(op.id)
        columns = [*sent, *range(width, width + depth + 2)]
        size = TO_ONE if key is None else len(key)
        return self.put((size, len(columns), len(texts)), key or (), columns, texts, range(keyed))

    # --- operators ----------------------------------------------------------------------------------------------------

    def source(self, op: InputOp) -> dict[int, int]:
        return {layout.KIND: layout.SOURCE}

    def linear(self, op: LinearOp) -> dict[int, int]:
        at, count = self.stages(op, self.ops[op.input].width)
        return {layout.KIND: layout.LINEAR, layout.A: at, layout.SIZE: count, **self.input(op)}

    def union(self, op: UnionOp) -> dict[int, int]:
        inputs = [self.places[one] for one in op.inputs]
        return {layout.KIND: layout.UNION, layout.A: self.put(inputs), layout.SIZE: len(inputs)}

    def enter(self, op: EnterOp) -> dict[int, int]:
        return {layout.KIND: layout.ENTER, **self.input(op)}

    def arrange(self, op: ArrangeOp) -> dict[int, int]:
        words, read = (*op.key, *op.val), self.ops[op.input]
        texts = tuple(words[at] for at in op.texts)
        depth = self.plan.scopes[op.scope].depth
        return {
            layout.ROUTE: self.route(op, op.key, words, depth, read.width, texts, len(words)) if op.exchange else -1,
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
        words = self.plan.views[op.view].words
        at, size = self.put(words, (op.width, op.width + 1)), len(words) + 2
        return {
            layout.ROUTE: self.route(op, None, words, 0, op.width, ()),
            layout.KIND: layout.VIEW,
            layout.A: at,
            layout.SIZE: size,
            **self.input(op),
        }

    def join(self, op: JoinOp) -> dict[int, int]:
        read = self.words_read(op)
        columns = [op.columns[word] for word in read]
        left = [{1: FRESH, 2: OTHER}.get(side, KEY) for side, _ in columns]
        right = [{1: OTHER, 2: FRESH}.get(side, KEY) for side, _ in columns]
        at, count = self.stages(op, len(op.columns), read)
        return {
            layout.KIND: layout.JOIN,
            layout.INPUT: self.places[op.left],
            layout.OTHER: self.places[op.right],
            layout.BUCKET: self.bucket(),
            layout.A: self.put(left, right),
            layout.B: self.put(index for _, index in columns),
            layout.C: len(columns),
            layout.D: at,
            layout.SIZE: count,
            layout.E: int(self.is_sent(op)),
        }

    def words_read(self, op: JoinOp) -> Words:
        """The words of its pairs that a join's first stage reads."""
        first = next(iter(passes_of(self.plan, op, len(op.columns))), None)
        if isinstance(first, Take):
            return tuple(sorted(set(first.words)))
        if isinstance(first, Pass):
            code = first.program[0]
            return tuple(np.unique(code[code[:, 0] == LOAD, 2]).tolist())
        return tuple(range(len(op.columns)))

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
            layout.READS: self.part(op),
            layout.FLAG: 0,
            **self.input(op),
        }

    def part(self, op: ReductionOp) -> int:
        """Where the constants begin that say which part of a group a reduction reads; -1 for all of it."""
        reads = op.reads
        if reads is None:
            return -1
        index, more, asked = -1, list[int](), tuple[int, ...]()
        if isinstance(reads, Ends):
            call, kind, asked = runs.READ_ENDS, layout.ENDS, (reads.down, reads.whole, reads.most, reads.flag)
        elif isinstance(reads, Surroundings):
            call, kind, asked = runs.READ_SURROUNDINGS, layout.SURROUNDINGS, (reads.whole, reads.reach)
        else:
            number = self.numbers[str(self.ops[op.input].arrangement)], reads.summed
            if number not in self.indexes:
                self.indexes.append(number)
            index = self.indexes.index(number)
            self.calls.add(runs.OWING_KEYS)
            if isinstance(reads, Stretches):
                call, kind = runs.READ_STRETCHES, layout.STRETCHES
                asked = (reads.whole, reads.down, reads.column, reads.words, reads.flag)
            else:
                call, kind, asked = runs.READ_RANKS, layout.RANKS, (reads.flag, len(reads.shares))
                more = np.array(reads.shares, np.float64).view(np.int64).tolist()
        self.calls.add(call)
        at = self.put((kind, index), asked, more)
        self.put((0,) * (layout.PART_WORDS - 2 - len(asked)))  # the kernel reads that many words
        return at

    def reduce(self, op: ReduceOp) -> dict[int, int]:
        if op.compared:
            raise Unfit  # texts
        cache = -1
        if op.covers:
            cache = len(self.traces) + len(self.caches)
            self.caches.append(op.id)
        return {
            layout.KIND: layout.REDUCE,
            **self.reduction(op),
            layout.C: self.put(*op.aggregations),
            layout.D: len(op.aggregations),
            layout.STATE: cache,
            layout.FLAG: (COVERS | IN_ORDER if op.of_one_val else 0) | (TOTAL if op.total else 0),
        }

    def accumulate(self, op: AccumulateOp) -> dict[int, int]:
        words, read = (*op.words, *op.val), self.ops[op.input]
        texts = tuple(word for word in words if word in read.texts)
        return {
            layout.ROUTE: self.route(op, op.words, words, 0, read.width, texts, len(words)) if op.exchange else -1,
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

    def top(self, op: TopOp) -> dict[int, int]:
        if op.compared:
            raise Unfit
        self.calls.add(runs.TOP_KEYS)
        at = self.put((op.most, len(op.by), len(op.words)), op.by, op.flips, op.words)
        return {layout.KIND: layout.TOP, **self.reduction(op), layout.C: at}

    def choose(self, op: ChosenOp) -> dict[int, int]:
        if op.compared:
            raise Unfit
        self.calls.add(runs.CHOOSE_KEYS)
        at = self.put((len(op.columns), len(op.items)), *op.columns, *op.items)
        return {layout.KIND: layout.CHOSEN, **self.reduction(op), layout.C: at}

    def along(self, op: OrderedReduceOp) -> dict[int, int]:
        if op.reads is None or op.val.text_words:
            raise Unfit  # whole groups, and texts
        self.calls.add(runs.FOLLOW_ORDER)
        of = op.along
        sizes = map(len, (of.by, of.equal, of.columns, of.limits, of.none, op.order))
        words = self.put(
            (of.kind, of.first, of.last), sizes, of.by, of.flips, of.equal, *of.columns, *of.limits, of.none, op.order
        )
        return {layout.KIND: layout.ALONG, **self.reduction(op), layout.C: words}

    def sessions(self, op: SessionsOp) -> dict[int, int]:
        self.calls.add(runs.FOLLOW_SESSIONS)
        at = self.put((op.flag, op.gap, op.most, len(op.words)), op.words, (0, 0))
        return {
            layout.KIND: layout.SESSIONS,
            **self.reduction(op),
            layout.STATE: self.numbers[op.state],
            layout.C: at,
        }

    def extremes(self, op: ExtremesOp) -> dict[int, int]:
        self.calls.add(runs.FOLLOW_EXTREMES)
        at = self.put((op.down, op.column, op.words, op.flag, op.greatest, len(op.order)), op.order)
        return {
            layout.KIND: layout.EXTREMES,
            **self.reduction(op),
            layout.STATE: self.numbers[op.state],
            layout.C: at,
        }

    def consolidate(self, op: ConsolidateOp | CheckOp) -> dict[int, int]:
        depth = self.plan.scopes[op.scope].depth
        columns, words = sort_columns(0, op.width, depth), tuple(range(op.width))
        return {
            layout.ROUTE: self.route(op, words, words, depth, op.width, op.texts) if op.exchange else -1,
            layout.KIND: layout.CONSOLIDATED,
            layout.A: self.put(columns),
            layout.SIZE: len(columns),
            layout.FLAG: int(isinstance(op, CheckOp)),
            **self.input(op),
        }

    def variable(self, op: VariableOp) -> dict[int, int]:
        columns, words = sort_columns(0, op.width, 1), tuple(range(op.width))
        initial, feedback = (
            -1 if key is None else self.route(op, key, words, depth, op.width, op.texts)
            for key, depth in (
                (op.initial_exchange, self.plan.scopes[self.ops[op.initial].scope].depth),
                (op.feedback_exchange, 1),
            )
        )
        return {
            layout.ROUTE: initial,
            layout.C: feedback,
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
        body = self.plan.scopes[op.inner].ops
        leader = next((self.places[one] for one in body if getattr(self.ops[one], "exchange", False)), -1)
        fed = any(getattr(self.ops[one], "feedback_exchange", None) is not None for one in body)
        return {
            layout.SIZE: leader,
            layout.FLAG: int(fed or leader >= 0),
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
        chains = int(self.is_sent(op))
        return {layout.KIND: layout.LEAVE, layout.BUCKET: self.bucket(), layout.E: chains, **self.input(op)}

    def _tail(self, op: Op) -> int:
        return self.plan.scopes[op.scope].depth + 2


def _moved(code: Ints, read: Words) -> Ints:
    """A pass's instructions for rows that have only the words `read`."""
    moved, loads = code.copy(), code[:, 0] == LOAD
    moved[loads, 2] = np.searchsorted(read, code[loads, 2])
    return moved


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
    TopOp: _Writer.top,
    ChosenOp: _Writer.choose,
    OrderedReduceOp: _Writer.along,
    SessionsOp: _Writer.sessions,
    ExtremesOp: _Writer.extremes,
    ConsolidateOp: _Writer.consolidate,
    CheckOp: _Writer.consolidate,
    VariableOp: _Writer.variable,
    LoopOp: _Writer.loop,
    LeaveOp: _Writer.leave,
}
"""Operators that the kernel knows, each with the method that writes its row."""
