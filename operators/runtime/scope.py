"""A scope of a running dataflow: its operators in order, and the rounds that have work.

A round is the iteration of each loop around the scope, outermost first; the root scope has the empty round `()`.
"""

from __future__ import annotations

import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from vernier.operators.planning.loop_ops import LoopOp
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import DOWNSTREAM, PIECE, Budget
from vernier.operators.runtime.exchange import Exchange, Round
from vernier.operators.runtime.key_sample import KeySample
from vernier.operators.runtime.operator import Slice
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.spine import Trace
from vernier.storage.trace.time_queue import Queue

if TYPE_CHECKING:
    from vernier.operators.runtime.operator import Operator


class State(Protocol):
    """The state that operators keep from slice to slice, by name."""

    traces: dict[str, Trace]
    queues: dict[str, Queue]
    heap: Heap
    samples: dict[str, KeySample]


class ScopeRun:
    """Runs the operators of one scope, round by round.

    `pending` holds the rounds with work on this worker. A round noted here is also noted in all outer scopes, so that
    they visit the outer rounds that lead to it.
    """

    def __init__(
        self,
        plan: Plan,
        index: int,
        parent: ScopeRun | None,
        exchange: Exchange,
        state: State,
        slice_: Slice,
        budget: Budget,
    ) -> None:
        spec = plan.scopes[index]
        self.plan, self.spec, self.parent = plan, spec, parent
        self.depth = spec.depth
        self.exchange, self.traces, self.queues, self.slice = exchange, state.traces, state.queues, slice_
        self.heap: Heap = state.heap
        self._samples = state.samples
        self.budget = budget
        self.operators: list[Operator] = []
        self.by_id: dict[int, Operator] = {} if parent is None else parent.by_id
        self.scopes: dict[int, ScopeRun] = {} if parent is None else parent.scopes
        self.scopes[index] = self
        self.pending: set[Round] = set()
        self.proposed: Round | None = None
        self.agreed: Round | None = None

    def sample(self, trace: str, width: int) -> KeySample | None:
        """The sample of the rows that travel to a trace, by key words; None if all rows have the same key."""
        return self._samples.setdefault(trace, KeySample(width)) if width else None

    def operator(self, op_id: int) -> Operator:
        """The running operator for an operator of the plan."""
        return self.by_id[op_id]

    def inner(self, index: int) -> ScopeRun:
        """The scope with this index, of a loop inside this scope."""
        return self.scopes[index]

    def note(self, at: Round) -> None:
        """Record that a round of this scope has work."""
        if at not in self.pending:
            self.pending.add(at)
            if self.parent is not None and self.parent.depth > 0:
                self.parent.note(at[:-1])

    def next_round(self, outer: Round) -> Round | None:
        """The least pending round inside the parent's round `outer`; None if there is none."""
        return min((at for at in self.pending if at[:-1] == outer), default=None)

    def woken(self, outer: Round) -> bool:
        """Whether a collection captured from an outer scope changed in its current step; the change is new at (outer,
        0)."""
        for op_id in self.spec.captures:
            operator = self.by_id[op_id]
            if operator.active() and not any(outer[operator.depth :]):
                return True
        return False

    @cached_property
    def _read_by(self) -> dict[int, list[Operator]]:
        """For operators of the root scope, by their number in the plan: the operators of this scope that nothing reads
        after it. A loop reads what the operators inside of it read."""
        loops = {op.inner: op for op in self.plan.ops if isinstance(op, LoopOp)}
        places = {operator.op.id: place for place, operator in enumerate(self.operators)}
        last: dict[int, int] = {}
        for op in self.plan.ops:
            outermost = op
            while outermost.scope != self.spec.id:
                outermost = loops[outermost.scope]
            for read in (*op.inputs, *op.companions(self.plan.ops)):
                if read in places:
                    last[read] = max(last.get(read, 0), places[outermost.id])
        found: dict[int, list[Operator]] = {operator.op.id: [] for operator in self.operators}
        for read, place in last.items():
            found[self.operators[place].op.id].append(self.by_id[read])
        return found

    def release_read(self, reader: Operator) -> None:
        """In a load, release what nothing reads after this operator of the root scope. A loop calls it after its first
        round, since only that one reads what is outside."""
        if self.slice.loads and self.parent is None:
            for read in self._read_by[reader.op.id]:
                read.release()

    def run(self, now: Round, first: int = 0, last: int | None = None) -> None:
        """Run one step at round `now`: operators `first` to `last` (default: all) in topological order, on every worker
        alike."""
        clock = time.perf_counter
        started = clock()
        for operator in self.operators[first:last]:
            try:
                operator.step(now)
            except MemoryError as error:
                raise self.budget.refused(operator.op) from error
            out, counters = operator.out, operator.counters
            if out is not None:
                rows = len(out)
                counters.updates_out += rows
                if rows > PIECE:
                    self.budget.check(DOWNSTREAM * out.nbytes, operator.op, partial(operator.sizes_of, rows))
            counters.steps += 1
            ended = clock()
            counters.seconds += ended - started
            started = ended
            self.release_read(operator)
        # Not earlier: an inner loop that runs in this step also notes this round, and that work has been done by now.
        if last is None:
            self.pending.discard(now)
