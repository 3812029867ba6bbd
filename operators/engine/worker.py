"""The worker: one worker's share of a dataflow, epoch by epoch.

An epoch [lower, upper) is cut into slices, at the same data times on all workers and never inside one time. Answers do
not depend on the cuts, and with slices the cost per update stays flat (operators/runtime/slice_sizing.py decides how
long they are). In each slice the root scope runs once and loops run to their end. Then every trace merges the slice's
batches into one and compacts to the next slice's lower bound (views: to the start of their history window). All of this
happens on a fork of the state, so a worker that fails in the middle has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from vernier.operators.engine.interpreter import MOST, Interpreter
from vernier.operators.failures import DelayedCycleDidNotSettle, EpochTooLarge, VisitLeft
from vernier.operators.language.types.schema import RowType
from vernier.operators.physical import (
    arrange,
    given,
    half_join,
    inspect,
    iterate,
    join,
    linear,
    reduce,
    reduce_accumulable,
    reduce_batched,
    reduce_chosen,
    reduce_extremes,
    reduce_in_order,
    reduce_sessions,
    reduce_top,
    temporal_buffer,
    upsert,
)
from vernier.operators.planning.constants import ConstantOp
from vernier.operators.planning.loop_ops import LoopOp
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import GivenArrangeOp, InputOp, ViewOp
from vernier.operators.planning.plan import Plan, Whole
from vernier.operators.planning.time_ops import DelayedOp
from vernier.operators.runtime import slices
from vernier.operators.runtime.budget import PIECE, Budget
from vernier.operators.runtime.exchange import Exchange, Single
from vernier.operators.runtime.key_sample import KeySample
from vernier.operators.runtime.operator import Operator, Slice
from vernier.operators.runtime.scope import ScopeRun
from vernier.operators.runtime.slice_sizing import SliceSizing
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace import spill
from vernier.storage.trace.spine import Trace
from vernier.storage.trace.time_queue import Queue
from vernier.storage.updates import MIN_TIME, Ints, Updates

LOAD = 1 << 17
"""A slice with more updates than this is a load if each source's updates have a single time. After a load the worker
frees memory."""
MANY = 1 << 19
"""A slice with more updates than this is treated as a load, whatever the times."""

_KINDS: dict[type[Op], Callable[..., Operator]] = {}
for _family in (
    linear.KINDS,
    given.KINDS,
    arrange.KINDS,
    upsert.KINDS,
    join.KINDS,
    half_join.KINDS,
    reduce.KINDS,
    reduce_accumulable.KINDS,
    reduce_batched.KINDS,
    reduce_chosen.KINDS,
    reduce_extremes.KINDS,
    reduce_in_order.KINDS,
    reduce_sessions.KINDS,
    reduce_top.KINDS,
    iterate.KINDS,
    temporal_buffer.KINDS,
    inspect.KINDS,
):
    _KINDS.update(_family)


@dataclass
class WorkerState:
    """The traces of one shard, by name, complete up to `upper`, and the queues of updates that wait for later times.

    pace: how long slices should be, as measured so far. Forks share it, because it affects only their cost.
    wholes: for traces that hold all rows of some operator, which one; a change of the program reads them. sources: the
    columns that the sources had.
    heap: the contents of long texts. Forks share it, because contents have no versions. The code that decodes input
    adds them, or attaches their dictionaries, before the epoch. After the epoch every batch has its own contents, and
    `heap.trim()` may release them.
    samples: of the keys that were sent to each trace, for people. Forks share them.
    """

    traces: dict[str, Trace]
    upper: int = MIN_TIME
    queues: dict[str, Queue] = field(default_factory=dict)
    heap: Heap = field(default_factory=Heap)
    pace: SliceSizing = field(default_factory=SliceSizing)
    wholes: Mapping[str, Whole] = field(default_factory=dict)
    sources: Mapping[str, RowType] = field(default_factory=dict)
    samples: dict[str, KeySample] = field(default_factory=dict)

    @staticmethod
    def empty(plan: Plan) -> WorkerState:
        """The state before any updates."""
        return WorkerState(
            {
                name: Trace(name, shape.key_width, shape.val_width, shape.depth)
                for name, shape in plan.arrangements.items()
            },
            queues={name: Queue(name, shape.width, shape.depth) for name, shape in plan.queues.items()},
            wholes=plan.wholes,
            sources=plan.sources,
        )

    @property
    def nbytes(self) -> int:
        """The size in bytes of all batches."""
        return sum(trace.nbytes for trace in self.traces.values())

    def fork(self) -> WorkerState:
        """A copy that can be changed independently; O(batches)."""
        return WorkerState(
            {name: trace.fork() for name, trace in self.traces.items()},
            self.upper,
            {name: queue.fork() for name, queue in self.queues.items()},
            self.heap,
            self.pace,
            self.wholes,
            self.sources,
            self.samples,
        )


@dataclass
class EpochResult:
    """What an epoch did on one worker. changes: the updates of each view, with rows in schema order, consolidated
    within each slice. gathered: whether worker 0 has those of all workers; the same on all."""

    changes: dict[str, Updates]
    gathered: bool = False


class Worker:
    """Runs a plan on one shard. `state` belongs to the worker and changes as epochs run; fork it first to be able to
    return to it. slice_updates: updates per slice; 0: adapt (operators/runtime/slice_sizing.py). only: the operators to
    run, if not all (operators/engine/migrate.py). budget: what the worker's process may hold; None for the default
    share of the machine's memory. gathers: whether worker 0 should have the changes of all workers, where they can
    travel with the rows of a slice."""

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange | None = None,
        state: WorkerState | None = None,
        *,
        slice_updates: int = 0,
        only: Collection[int] | None = None,
        budget: Budget | None = None,
        gathers: bool = False,
    ) -> None:
        self.plan = plan
        self.exchange: Exchange = Single() if exchange is None else exchange
        self.state = WorkerState.empty(plan) if state is None else state
        self.slice_updates = slice_updates
        self.pace = SliceSizing(slice_updates) if slice_updates else self.state.pace
        self.slice = Slice()
        self.budget = Budget() if budget is None else budget
        scopes: list[ScopeRun] = []
        for spec in plan.scopes:
            parent = None if spec.parent is None else scopes[spec.parent]
            scopes.append(ScopeRun(plan, spec.id, parent, self.exchange, self.state, self.slice, self.budget))
        self.root = scopes[0]
        self.operators: list[Operator] = []
        for op in plan.ops:
            operator = _KINDS[type(op)](op, scopes[op.scope])
            self.root.by_id[op.id] = operator
            self.operators.append(operator)
        for scope in scopes:
            scope.operators = [self.root.by_id[i] for i in scope.spec.ops if only is None or i in only]
        # The operators that prepare for a slice, and those that may hold back work.
        self.beginning = [one for one in self.operators if type(one).begin_slice is not Operator.begin_slice]
        self.holding = [one for one in self.operators if type(one).pending is not Operator.pending]
        self._counters = [
            (str(one.op.id), one.counters, [self.root.by_id[of].counters for of in one.op.inputs])
            for one in self.operators
        ]
        by_id = self.root.by_id
        self.inputs: dict[str, linear.Input] = {op.source: cast(linear.Input, by_id[op.id]) for op in plan.of(InputOp)}
        self.inputs |= {op.source: cast(given.GivenArrange, by_id[op.id]).rows for op in plan.of(GivenArrangeOp)}
        self.constants = {f"constant {op.id}": cast(linear.Constant, by_id[op.id]) for op in plan.of(ConstantOp)}
        self.inputs |= self.constants  # sources' names have no blanks
        self.loops = [cast(iterate.Loop, by_id[op.id]) for op in plan.of(LoopOp)]
        self.views = {op.view: cast(arrange.View, by_id[op.id]) for op in plan.of(ViewOp)}
        self._with_texts = [(name, shape.texts) for name, shape in plan.arrangements.items() if shape.texts]
        self._queues_with_texts = [(name, waits.texts) for name, waits in plan.queues.items() if waits.texts]
        self.interpreter = (
            Interpreter.of(plan, self.state.traces, self.exchange, self.root.by_id, gathers=gathers)
            if only is None
            else None
        )
        self.pace.kernel = 0 if self.interpreter is None else MOST
        self._merged_before = self._merged_and_kept()
        self._long_texts = True
        """Whether batches may have long texts. If the heap knew of none in the newest epoch, they have none."""

    def run_epoch(
        self, lower: int, upper: int, inputs: Mapping[str, Updates], total: int | None = None, *, leads: bool = False
    ) -> EpochResult:
        """Process updates with lower <= time < upper (any order, this worker's part) and bring every trace up to
        `upper`.

        Every worker must call it with the same interval and total. Answers do not depend on how updates are spread over
        workers. total: how many updates all workers have together, if the caller knows: if they are few, workers need
        not agree on slices. leads: whether the others learn of the epoch from this worker, which is worker 0, because
        they `follow_epoch`; total is at least 1 then, and at most MOST.
        """
        result = self._began()
        small = self._small(inputs, total)
        if small is None or not self._interpret(lower, upper, *small, leads=leads):
            interprets = small is None or (self.interpreter is not None and self.interpreter.refused)
            self._run_slices(lower, upper, inputs, result, interprets=interprets)
        return self._ended(upper, result)

    @property
    def leads(self) -> bool:
        """Whether the next epoch begins with what worker 0 tells the others, which wait for it in `follow_epoch`: the
        epoch, if worker 0 says `leads`, or else, by `lead_elsewhere`, that it comes another way. The same on all
        workers."""
        return self.interpreter is not None and self.interpreter.leads and self.state.upper != MIN_TIME

    def lead_elsewhere(self) -> None:
        """Tell the workers that `follow_epoch` that the epoch comes another way."""
        if self.interpreter is not None:
            self.interpreter.lead_elsewhere()

    def follow_epoch(self) -> EpochResult | None:
        """Wait, while this worker `leads`, until worker 0 tells of an epoch, and process it; this worker has no updates
        of its own. None if the epoch comes another way."""
        result = self._began()
        told = None if self.interpreter is None else self.interpreter.follow(self.pace.updates)
        if self.interpreter is None or told is None:
            return None
        lower, upper, self.pace.share, has_run = told
        if has_run:
            self._take_outputs(self.interpreter, self.pace.share)
        else:
            self._run_slices(lower, upper, {}, result, interprets=self.interpreter.refused)
        return self._ended(upper, result)

    def _began(self) -> EpochResult:
        """Begin an epoch; its result, to be filled."""
        if self._long_texts:
            self._attach_texts()
        for view in self.views.values():
            view.begin_epoch()
        return EpochResult({}, gathered=self.interpreter is not None and self.interpreter.gathers)

    def _ended(self, upper: int, result: EpochResult) -> EpochResult:
        """End the epoch."""
        self.state.upper = upper
        for probe in self.plan.probes:
            probe.frontier = upper
        self._long_texts = not self.state.heap.is_empty
        if self._long_texts:
            self.settle_texts()
        for name, view in self.views.items():
            result.changes[name] = Updates(view.taken(), view.op.width, 0)
        return result

    def _small(self, inputs: Mapping[str, Updates], total: int | None) -> tuple[dict[str, Ints], int, bool] | None:
        """This worker's updates by source, how many each worker has on average, and whether they should be one slice,
        if the interpreter could run them as one, for which it needs no order of times. Several workers have such an
        epoch alike, but not the same pace: it is one slice if all of them find it short enough."""
        if self.interpreter is None or self.state.upper == MIN_TIME:
            return None
        given = {name: updates.data for name, updates in inputs.items() if len(updates.data)}
        workers = self.exchange.workers
        taken = sum(map(len, given.values())) if workers == 1 else -(-(total or 0) // workers)
        self.pace.share = 0 if workers == 1 else taken
        short = taken <= self.pace.updates
        return (given, taken, short) if 0 < taken <= MOST and (short or workers > 1) else None

    def _run_slices(
        self, lower: int, upper: int, inputs: Mapping[str, Updates], result: EpochResult, *, interprets: bool
    ) -> None:
        """Run the epoch's slices. interprets: whether the interpreter may run them."""
        sources = {name: _by_time(updates) for name, updates in inputs.items() if len(updates)}
        if self.constants and self.state.upper == MIN_TIME and self.exchange.index == 0:
            # The first epoch of this state: constant rows were there before it.
            sources |= {name: one.updates(lower).data for name, one in self.constants.items() if one.rows}
        for number, (start, stop) in enumerate(self._cuts(sources, lower, upper)):
            if not self._run_slice(start, stop, sources, interprets):
                result.gathered = False
            if number > 0:
                self._check_changes()

    def _check_changes(self) -> None:
        """Check the memory budget: the changes of all views are held until the epoch ends."""
        view = max(self.views.values(), key=lambda one: one.emitted, default=None)
        if view is not None and view.emitted > PIECE:
            size = sum(one.emitted * 8 * (one.op.width + 2) for one in self.views.values())
            self.budget.check(size, view.op, lambda: f"it has {view.emitted:,} changes in an epoch")

    def totals(self) -> dict[str, tuple[float, int, int]]:
        """The seconds, updates in and updates out of each operator since this worker was made, by its number."""
        self._count_interpreted()
        return {
            name: (own.seconds, sum(one.updates_out for one in inputs), own.updates_out)
            for name, own, inputs in self._counters
        }

    def rounds(self) -> dict[str, int]:
        """The number of rounds of each loop since this worker was made, by the loop's name."""
        return {loop.loop.label: self._rounds(loop) for loop in self.loops}

    def merges(self) -> tuple[int, int]:
        """The number of updates that merges have read since this worker was made, and of those that they have kept."""
        merged, kept = self._merged_and_kept()
        return merged - self._merged_before[0], kept - self._merged_before[1]

    def _merged_and_kept(self) -> tuple[int, int]:
        """The number of updates that merges of all traces have read, and of those that they have kept."""
        merged, kept = (0, 0) if self.interpreter is None else self.interpreter.merged
        for trace in self.state.traces.values():
            merged += trace.merged
            kept += trace.kept
        return merged, kept

    def _cuts(self, sources: Mapping[str, Ints], lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """The epoch's slices, the same on all workers; the caller must run each before it takes the next."""
        plan = self.plan
        if not plan.queues:
            return slices.cut_by_count(self.exchange, sources, lower, upper, self.pace)
        delayed = plan.of(DelayedOp)
        held = slices.HeldSlices(
            self.exchange,
            self.state.queues,
            self.pace,
            delay=min((op.ns for op in delayed), default=None),
            cyclic=[name for name, shape in plan.queues.items() if shape.cyclic],
            max_steps=max((op.max_steps for op in delayed), default=0),
            unsettled=self._unsettled if delayed else None,
        )
        return held.cut(sources, lower, upper)

    def _unsettled(self, start: int, stop: int) -> DelayedCycleDidNotSettle:
        """The error for variables that have fed one another for too long, with examples of the rows they would feed
        next."""
        names, shown, steps = [], [], 0
        for op in self.plan.of(DelayedOp):
            if not self.plan.queues[op.queue].cyclic:
                continue
            names.append(op.name.removeprefix("variable "))
            steps = max(steps, op.max_steps)
            due = self.state.queues[op.queue].due(start, stop)[: iterate.SHOWN]
            rows = op.schema.decode_rows(np.ascontiguousarray(due[:, : op.width]), self.root.heap)
            shown += [f"{row} at {time}" for row, time in zip(rows, due[:, op.width].tolist(), strict=True)]
        sample = "; ".join(shown[: iterate.SHOWN]) or "rows of another worker"
        return DelayedCycleDidNotSettle(variables=", ".join(names), steps=steps, time=start, sample=sample)

    def _attach_texts(self) -> None:
        """Let the heap find the texts of earlier epochs' batches, and forget which texts were sent to other workers."""
        self.state.heap.forget_sent()
        for name, _ in self._with_texts:
            self.state.heap.attach(batch.texts for batch in self.state.traces[name].batches)
        for name, _ in self._queues_with_texts:
            self.state.heap.attach(run.texts for run in self.state.queues[name].runs)

    def settle_texts(self) -> None:
        """Keep the contents of long texts with the new batches. An epoch does so itself if there was a long text;
        before batches are stored, all need it."""
        for name, texts in self._with_texts:
            trace = self.state.traces[name]
            for batch in (*trace.batches, *trace.named):
                batch.settle(texts, self.state.heap)
        for name, texts in self._queues_with_texts:
            for run in self.state.queues[name].runs:
                run.settle(texts, self.state.heap)

    def _run_slice(self, start: int, stop: int, sources: Mapping[str, Ints], interprets: bool) -> bool:
        """Run a slice; returns whether the interpreter has."""
        self.slice.lower, self.slice.upper = start, stop
        taken, one_time = 0, True
        for name, data in sources.items():
            if start <= data[0, -2] and data[-1, -2] < stop:
                part = data  # all of a small epoch
            else:
                a, b = data[:, -2].searchsorted((start, stop)).tolist()
                part = data[a:b]
            self.inputs[name].waiting = part if len(part) else None
            taken += len(part)
            one_time = one_time and (len(part) == 0 or part[0, -2] == part[-1, -2])
        loads = self.slice.loads = taken > MANY or (taken > LOAD and one_time)
        # With several workers all must decide alike, so by their common measure of the slice.
        small = taken <= MOST if self.exchange.workers == 1 else self.pace.share <= MOST
        if interprets and small and self._interpret(start, stop, self._waiting(), taken):
            for source in self.inputs.values():
                source.waiting = None
            return True
        if loads:
            for trace in self.state.traces.values():
                trace.loads = True
        for operator in self.beginning:
            operator.begin_slice()
        try:
            self.root.run(())
        except EpochTooLarge as error:
            # A single time is never cut, however many updates it has.
            error.smaller = not one_time and self.pace.cuttable(taken)
            raise
        for operator in self.holding:
            rounds = operator.pending()
            if rounds:
                raise VisitLeft(operator=operator.op.name, rounds=str(sorted(rounds)[:5]))
        if loads:
            for operator in self.operators:
                operator.release()
            spill.return_memory()
        if self.pace.wants(taken):
            traces = self.state.traces.values()
            self.pace.learn(taken, sum(trace.sealed for trace in traces), sum(trace.updates for trace in traces))
        for name, shape in self.plan.arrangements.items():
            self.state.traces[name].close_slice(shape.since(stop))
        for queue in self.state.queues.values():
            queue.close_slice(stop)
        if loads:
            spill.return_memory()
        return False

    def _count_interpreted(self) -> None:
        """Add what the interpreter has counted to the operators' counters."""
        if self.interpreter is None:
            return
        stats, places = self.interpreter.stats, self.interpreter.program.places
        for operator in self.operators:
            steps, rows, nanoseconds, _ = stats[places[operator.op.id]].tolist()
            operator.counters.steps += steps
            operator.counters.updates_out += rows
            operator.counters.seconds += nanoseconds / 1e9
        for loop in self.loops:
            loop.rounds = self._rounds(loop)
        stats[:] = 0

    def _rounds(self, loop: iterate.Loop) -> int:
        """The number of rounds of a loop since this worker was made."""
        if self.interpreter is None:
            return loop.rounds
        return loop.rounds + self.interpreter.rounds(loop.op.id)

    def _waiting(self) -> dict[str, Ints]:
        """The updates that inputs will emit in this slice."""
        return {name: one.waiting for name, one in self.inputs.items() if one.waiting is not None}

    def _interpret(
        self, start: int, stop: int, given: Mapping[str, Ints], taken: int, willing: bool = True, *, leads: bool = False
    ) -> bool:
        """Run a small slice of these updates, `taken` in all, by the interpreter, if all workers are willing. Returns
        whether it has."""
        interpreter = self.interpreter
        if interpreter is None or not interpreter.run(start, stop, given, taken, willing=willing, leads=leads):
            return False
        self._take_outputs(interpreter, taken)
        return True

    def _take_outputs(self, interpreter: Interpreter, taken: int) -> None:
        """Take what the interpreter has made of a slice of which each worker read `taken` updates, and let merges go
        on."""
        for name, rows in interpreter.outputs().items():
            self.views[name].add(rows)
        if self.pace.wants(taken):
            state = sum(trace.updates for trace in self.state.traces.values())
            self.pace.learn(taken, interpreter.traces.sealed, state)
        interpreter.tend()


def _by_time(updates: Updates) -> Ints:
    """The updates' matrix sorted by time."""
    data = updates.data
    times = data[:, -2]
    if len(times) > 1 and bool((times[1:] < times[:-1]).any()):
        data = data[np.argsort(times, kind="stable")]
    return data
