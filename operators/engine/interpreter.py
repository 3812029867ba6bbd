"""Interpreter: runs slices of a plan in one kernel call (operators/kernels/interpreting.py).

With several workers each runs its own kernel call, and the kernels exchange rows with one another
(operators/kernels/lanes.py). A slice runs here whole or not at all, on all workers alike. If the kernel gives up, for
example because a number overflows, a loop does not settle or a step is large, nothing of the run remains, and the
worker runs the slice step by step, with the same result or the proper error. After slices that gave up, the interpreter
pauses for a growing number of slices.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numba
import numpy as np

from vernier.operators.engine.called_stages import CalledStages
from vernier.operators.engine.program import Program, program_of
from vernier.operators.kernels import (
    accumulating,
    chosen,
    covering,
    ends,
    extremes,
    following,
    in_order,
    interpreting,
    joining,
    passes,
    programs,
    ranks,
    reducing,
    rounds,
    runs,
    sessions,
    stretches,
    surroundings,
    tops,
)
from vernier.operators.kernels.lanes import ABORTED, PEER, REFUSED
from vernier.operators.kernels.runs import (
    ANSWER_WORDS,
    BY_CALLER,
    ELSEWHERE,
    FOLLOWS,
    LEADS,
    LOOP_ROUNDS,
    NOT_HERE,
    PARTS_FULL,
    ROUNDS,
    SLOT_WORDS,
    STAT_WORDS,
)
from vernier.operators.physical.reduce import Reduce
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.exchange import Exchange
from vernier.operators.runtime.lanes import Lanes
from vernier.operators.runtime.operator import Operator
from vernier.storage.kernels import closing, consolidating, folding, histories, keying, prefix_sums, running_traces
from vernier.storage.kernels.prefix_sums import INDEX_WORDS
from vernier.storage.kernels.running_traces import FULL
from vernier.storage.trace.prefix_index import LentIndex
from vernier.storage.trace.running import RunningTraces
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints

MOST = 1 << 15
"""Slices of more updates run step by step: longer ones cost no less an update, and steps read keys in pieces, which
takes less memory."""
_STEPS, _PARTS, _KEPT = 1 << 7, 1 << 9, 1 << 13
"""Room at first: steps of a trace, parts that wait; sealed steps of all traces."""
_MOST_ROOM = 1 << 14
_MOST_PAUSE = 1 << 8
_TIMED, _MANY = 1 << 4, 1 << 8
"""Of slices of fewer than `_MANY` updates, one in `_TIMED` is timed: in the others, reading the clock would be a large
part of the time."""

_CALLEES = {
    runs.SELECT_KEYS: (running_traces.SELECT, histories.select_keys),
    runs.CLOSE_BATCHES: (closing.CLOSE, folding.close_batches),
    runs.KEY_UPDATES: (programs.OF_KEY_UPDATES, keying.consolidate_keyed),
    runs.CONSOLIDATE: (programs.OF_CONSOLIDATE, consolidating.consolidate),
    runs.SORT_ORDER: (programs.OF_SORT_ORDER, consolidating.sort_order),
    runs.RUN_PASS: (programs.OF_RUN_PASS, passes.run_pass),
    runs.TOUCHED_KEYS: (programs.OF_TOUCHED_KEYS, rounds.touched_keys),
    runs.VISITED_KEYS: (programs.OF_VISITED_KEYS, rounds.visited_keys),
    runs.SPLIT_ROUNDS: (programs.OF_SPLIT_ROUNDS, rounds.split_rounds),
    runs.SPLIT_VISITS: (programs.OF_SPLIT_VISITS, rounds.split_visits),
    runs.PAIR_ROWS: (programs.OF_PAIR_ROWS, joining.pair_rows),
    runs.COVER_KEYS: (programs.OF_COVER_KEYS, covering.cover_keys),
    runs.REDUCE_KEYS: (programs.OF_REDUCE_KEYS, reducing.reduce_keys),
    runs.ACCUMULATE_ROWS: (programs.OF_ACCUMULATE_ROWS, accumulating.accumulate_rows),
    runs.FOLLOW_ROWS: (programs.OF_FOLLOW_ROWS, following.follow_rows),
}
_SOME = {
    runs.READ_ENDS: (programs.OF_READ_ENDS, ends.read_ends),
    runs.READ_SURROUNDINGS: (programs.OF_READ_SURROUNDINGS, surroundings.read_surroundings),
    runs.OWING_KEYS: (programs.OF_OWING_KEYS, prefix_sums.owing_keys),
    runs.READ_STRETCHES: (programs.OF_READ_STRETCHES, stretches.read_stretches),
    runs.READ_RANKS: (programs.OF_READ_RANKS, ranks.read_ranks),
    runs.TOP_KEYS: (programs.OF_TOP_KEYS, tops.top_keys),
    runs.CHOOSE_KEYS: (programs.OF_CHOOSE_KEYS, chosen.choose_keys),
    runs.FOLLOW_ORDER: (programs.OF_FOLLOW_ORDER, in_order.follow_order),
    runs.FOLLOW_SESSIONS: (programs.OF_FOLLOW_SESSIONS, sessions.follow_sessions),
    runs.FOLLOW_EXTREMES: (programs.OF_FOLLOW_EXTREMES, extremes.follow_extremes),
}
_addresses: dict[int, int] = {}


def _callees(more: Iterable[int]) -> dict[int, int]:
    """The addresses of the kernels that the interpreter calls, by their place in a run; also those of `_SOME` that a
    program needs. Each is loaded once."""
    if not _addresses:
        clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        _addresses.update({place: callee.address(kernel) for place, (callee, kernel) in _CALLEES.items()})
        _addresses[runs.CLOCK], _addresses[runs.CLOCK_KIND] = clock, time.CLOCK_MONOTONIC
    for place in more:
        if place not in _addresses:
            callee, kernel = _SOME[place]
            _addresses[place] = callee.address(kernel)
    return _addresses


class Interpreter:
    """Runs slices of one worker's plan. `stats`: what is counted for each operator (kernels/runs.py). gathers: whether
    worker 0 has the outputs of all workers. refused: whether the newest slice did not run because a worker was not
    willing or able to begin; the same on all."""

    def __init__(
        self,
        plan: Plan,
        program: Program,
        traces: Mapping[str, Trace],
        lanes: Lanes | None,
        operators: Mapping[int, Operator],
        gathers: bool,
    ) -> None:
        self.program, self.lanes = program, lanes
        self.gathers = gathers and program.gathers and lanes is not None
        shapes = plan.arrangements
        self.traces = RunningTraces(
            {name: traces[name] for name in program.traces},
            {name: shapes[name].retain_ns for name in program.traces},
            {name: bool(shapes[name].texts) for name in program.traces},
            {trace for trace, _ in program.indexes},
            [covers for op in program.caches if (covers := cast(Reduce, operators[op]).covers) is not None],
        )
        count = len(program.code)
        self.stats: Ints = np.zeros((count, STAT_WORDS), np.int64)
        indexes: Ints = np.zeros((len(program.indexes) + 1, INDEX_WORDS), np.int64)
        self._index_rows = indexes
        self._indexes = [
            LentIndex(traces[program.traces[trace]], column, row)
            for (trace, column), row in zip(program.indexes, indexes, strict=False)
        ]
        self._outs = np.zeros((count + 1, SLOT_WORDS), np.int64)
        self._chains = np.zeros((max(1, program.buckets) * ROUNDS, 2), np.int64)
        self._noted, self._kept = np.zeros(ROUNDS, np.int64), np.zeros(_KEPT, np.int64)
        self._parts = np.zeros((_PARTS, SLOT_WORDS), np.int64)
        self._steps, self._pause, self._paused, self._slices = _STEPS, 0, 0, 0
        self.refused = False
        self._answers, self._nothing = np.zeros(ANSWER_WORDS, np.int64), np.empty((0, 1), np.int64)
        self._run = np.zeros(runs.RUN_WORDS, np.int64)
        # Reading and writing single words is faster than through numpy.
        run: Any = self._run
        outs: Any = self._outs.reshape(-1)
        stats: Any = self.stats.reshape(-1)
        self._words, self._slots, self._counts = memoryview(run), memoryview(outs), memoryview(stats)
        for place, value in _callees(program.calls).items():
            self._run[place] = value
        for place, array in (
            (runs.CODE, program.code),
            (runs.POOL, program.pool),
            (runs.TRACES, self.traces.rows),
            (runs.OUTS, self._outs),
            (runs.PARTS, self._parts),
            (runs.CHAINS, self._chains),
            (runs.KEPT, self._kept),
            (runs.NOTED, self._noted),
            (runs.STATS, self.stats),
            (runs.INDEXES, self._index_rows),
            (runs.ANSWERS, self._answers),
        ):
            self._run[place] = array.ctypes.data
        self._run[[runs.OPS, runs.TRACE_COUNT, runs.TABLE_COUNT]] = count, len(program.traces), len(self.traces.rows)
        self._run[[runs.PARTS_SIZE, runs.KEPT_SIZE]] = _PARTS, _KEPT
        self._run[runs.WORKERS], self._run[runs.GATHERS] = 1, self.gathers
        if lanes is not None:
            lanes.describe(self._run)
        self._called = CalledStages(program.called, operators, self._run) if program.called else None

    @staticmethod
    def of(
        plan: Plan,
        traces: Mapping[str, Trace],
        exchange: Exchange,
        operators: Mapping[int, Operator],
        *,
        gathers: bool = False,
    ) -> Interpreter | None:
        """The plan's interpreter; None if it has operators that only Python runs. operators: those of the worker, by
        their number in the plan. gathers: whether worker 0 should have the outputs of all workers, if it can."""
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]
            return None
        program = program_of(plan)
        if program is None or (exchange.workers > 1 and (exchange.lanes is None or not program.together)):
            return None
        return Interpreter(plan, program, traces, exchange.lanes, operators, gathers)

    @property
    def leads(self) -> bool:
        """Whether worker 0 can tell the others which slice is next: whether all of them can `follow`. The same on all
        workers."""
        return self.lanes is not None and self.lanes.agreed and not self._paused

    def run(
        self,
        lower: int,
        upper: int,
        given: Mapping[str, Ints],
        taken: int,
        *,
        willing: bool = True,
        leads: bool = False,
    ) -> bool:
        """Run and close the slice [lower, upper) of these updates by source, `taken` in all, if all workers are
        willing. Returns whether it has run; `outputs` and `tend` follow then. Several workers must all call it, and all
        get the same answer; with `leads`, which only worker 0 may say, the others `follow`."""
        self.refused = False
        if self.lanes is not None and not self.lanes.agreed:
            return False
        if self._paused:
            self._paused -= 1
            return False
        words = self._words
        self._slices += 1
        words[runs.TIMED] = 1 if taken >= _MANY else 0 if self._slices % _TIMED else _TIMED
        words[runs.LOWER], words[runs.UPPER], words[runs.TAKEN] = lower, upper, taken
        words[runs.BEGINS] = LEADS if leads else BY_CALLER
        return self._run_slice(given, willing) == 0

    def follow(self, most: int) -> tuple[int, int, int, bool] | None:
        """Wait for what worker 0 tells, while `leads`, and run that slice, if each worker has at most `most` updates:
        (lower, upper, how many updates each worker has on average, whether it has run). None if the slice comes another
        way."""
        self.refused = False
        words = self._words
        words[runs.BEGINS], words[runs.MOST_TAKEN] = FOLLOWS, most
        status = self._run_slice({}, True)
        if status == ELSEWHERE:
            return None
        return words[runs.LOWER], words[runs.UPPER], words[runs.TAKEN], status == 0

    def lead_elsewhere(self) -> None:
        """Tell the workers that `follow` that the slice comes another way."""
        if self.lanes is not None:
            self.lanes.began = time.monotonic()
            interpreting.lead_elsewhere(self._run)
            self.lanes.fail()

    def _run_slice(self, given: Mapping[str, Ints], willing: bool) -> int:
        """Run the slice that `run` or `follow` has described. Returns 0 if it has run, else another status."""
        words, traces = self._words, self.traces
        for index in self._indexes:
            index.lend()
        while True:
            able = willing
            if able and (not traces.lent or words[runs.ROOM] < self._steps):
                words[runs.ROOM] = 0
                able = self._steps <= _MOST_ROOM >= len(self._parts) and traces.lend(self._steps)
                if not able and self.lanes is None:
                    return NOT_HERE
            source, rows, kept = self._place(given)
            if self.lanes is not None:
                self.lanes.began = time.monotonic()
                words[runs.SENT_WORDS] = words[runs.WAITED] = 0
            status: int = interpreting.run_slice(self._run, self.program.root if able else 0, source, rows)
            kept.clear()
            words[runs.BEGINS] = BY_CALLER
            if words[runs.ENLARGED]:
                words[runs.ENLARGED] = 0
                traces.take_arrays()
            if self.lanes is not None:
                self.lanes.count(words[runs.SENT_WORDS], words[runs.WAITED])
                self.lanes.fail()
            if self._called is not None:
                self._called.fail()
            if status == ABORTED:
                raise KeyboardInterrupt  # something else has taken the error
            if status == 0:
                self._pause = 0
            if status in (0, ELSEWHERE):
                return status
            statuses = {status} if self.lanes is None else self.lanes.statuses(status)
            if REFUSED in statuses:
                self.refused = True
                return REFUSED
            if not statuses <= {FULL, PARTS_FULL, PEER}:
                self._pause = self._paused = min(2 * self._pause + 1, _MOST_PAUSE)
                return NOT_HERE
            if status == FULL:
                self._steps *= 2
            elif status == PARTS_FULL:
                self._parts = np.zeros((2 * len(self._parts), SLOT_WORDS), np.int64)
                words[runs.PARTS], words[runs.PARTS_SIZE] = self._parts.ctypes.data, len(self._parts)

    def _place(self, given: Mapping[str, Ints]) -> tuple[int, Ints, list[Ints]]:
        """Put the updates of all sources but one into their slots: (the row of the other source, its updates, what has
        to live until the kernel returns). The one costs less as an argument of the kernel."""
        last, rows, kept, places = 0, self._nothing, list[Ints](), self.program.sources
        for name, data in given.items():
            if rows is not self._nothing:
                at = last * SLOT_WORDS
                kept.append(rows)
                self._slots[at + runs.AT] = rows.__array_interface__["data"][0]
                self._slots[at + runs.ROWS], self._slots[at + runs.WIDTH] = rows.shape
            last, rows = places[name], np.ascontiguousarray(data)
        # A kernel would be compiled anew for an array that is not writable.
        return last, rows if rows.flags.writeable else rows.copy(), kept

    def outputs(self) -> dict[str, Ints]:
        """The updates that views have emitted in the slice, where there are any, with words in the order of their
        schemas."""
        found, slots = {}, self._slots
        for name, (place, width) in self.program.views.items():
            at = place * SLOT_WORDS
            count = slots[at + runs.ROWS]
            if count and slots[at + runs.AT]:
                found[name] = interpreting.take_output(self._run, place)
            elif count:
                slots[at + runs.ROWS], first = 0, slots[at + runs.FIRST]
                found[name] = self._answers[first : first + count * width].reshape(count, width).copy()
        return found

    def rounds(self, loop: int) -> int:
        """The number of rounds that the loop with this number in the plan had here, since `stats` was cleared."""
        return self._counts[self.program.places[loop] * STAT_WORDS + LOOP_ROUNDS]

    def tend(self) -> None:
        """Let the traces that need it go on merging. Raises DiffOverflow."""
        if self._words[runs.TENDS]:
            self._words[runs.TENDS] = 0
            self.traces.tend()

    @property
    def merged(self) -> tuple[int, int]:
        """The number of updates that small batches had that united here, and how many were left."""
        return self._words[runs.MERGED], self._words[runs.MERGED_LEFT]
