"""Interpreter: runs small slices of a plan in one kernel call (operators/kernels/interpreting.py).

A slice runs here whole or not at all. If the kernel gives up, for example because a number overflows, a loop does not
settle or a step is large, nothing of the run remains, and the worker runs the slice step by step, with the same result
or the proper error. After slices that gave up, the interpreter pauses for a growing number of slices.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np

from vernier.operators.engine.program import Program, program_of
from vernier.operators.kernels import (
    accumulating,
    covering,
    following,
    interpreting,
    joining,
    passes,
    programs,
    reducing,
    rounds,
    runs,
)
from vernier.operators.kernels.runs import PARTS_FULL, ROUNDS, SLOT_WORDS, STAT_WORDS
from vernier.operators.planning.plan import Plan
from vernier.storage.kernels import consolidating, folding, histories, keying, running_traces
from vernier.storage.kernels.running_traces import FULL
from vernier.storage.trace.running import RunningTraces
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints

MOST = 1 << 12
"""Slices of more updates run step by step: the work in their steps outweighs what is between them."""
_STEPS, _PARTS, _KEPT = 1 << 7, 1 << 9, 1 << 13
"""Room at first: steps of a trace, parts that wait; sealed steps of all traces."""
_MOST_ROOM = 1 << 14
_MOST_PAUSE = 1 << 8

_CALLEES = {
    runs.SELECT_KEYS: (running_traces.SELECT, histories.select_keys),
    runs.CLOSE_BATCHES: (running_traces.CLOSE, folding.close_batches),
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
_addresses: dict[int, int] = {}


def _callees() -> dict[int, int]:
    """The addresses of the kernels that the interpreter calls, by their place in a run."""
    if not _addresses:
        clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0
        _addresses.update({place: callee.address(kernel) for place, (callee, kernel) in _CALLEES.items()})
        _addresses[runs.CLOCK], _addresses[runs.CLOCK_KIND] = clock, time.CLOCK_MONOTONIC
    return _addresses


class Interpreter:
    """Runs slices of one worker's plan. `stats`: what is counted for each operator (kernels/runs.py)."""

    def __init__(self, program: Program, traces: Mapping[str, Trace]) -> None:
        self.program = program
        self.traces = RunningTraces([traces[name] for name in program.traces])
        count = len(program.code)
        self.stats: Ints = np.zeros((count, STAT_WORDS), np.int64)
        self._outs = np.zeros((count + 1, SLOT_WORDS), np.int64)
        self._chains = np.zeros((max(1, program.buckets) * ROUNDS, 2), np.int64)
        self._noted, self._kept = np.zeros(ROUNDS, np.int64), np.zeros(_KEPT, np.int64)
        self._parts = np.zeros((_PARTS, SLOT_WORDS), np.int64)
        self._steps, self._pause, self._paused = _STEPS, 0, 0
        self._run = np.zeros(runs.RUN_WORDS, np.int64)
        # Reading and writing single words is faster than through numpy.
        run: Any = self._run
        outs: Any = self._outs.reshape(-1)
        self._words, self._slots = memoryview(run), memoryview(outs)
        for place, value in _callees().items():
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
        ):
            self._run[place] = array.ctypes.data
        self._run[[runs.OPS, runs.TRACE_COUNT]] = count, len(program.traces)
        self._run[[runs.PARTS_SIZE, runs.KEPT_SIZE]] = _PARTS, _KEPT

    @staticmethod
    def of(plan: Plan, traces: Mapping[str, Trace]) -> Interpreter | None:
        """The plan's interpreter; None if it needs steps in Python."""
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined,unused-ignore]
            return None
        program = program_of(plan)
        return None if program is None else Interpreter(program, traces)

    def run(self, lower: int, upper: int, given: Mapping[str, Ints], sinces: Sequence[int]) -> bool:
        """Run the slice [lower, upper) of these updates by source, up to the batches of its traces. sinces: the times
        to which traces compact. Returns whether it has run; `outputs` and `close` follow then."""
        if self._paused:
            self._paused -= 1
            return False
        words, slots, places = self._words, self._slots, self.program.sources
        kept = []
        while True:
            if not self.traces.lend(sinces, self._steps):
                return False
            words[runs.LOWER], words[runs.UPPER] = lower, upper
            for name, data in given.items():
                rows = np.ascontiguousarray(data)
                kept.append(rows)
                at = places[name] * SLOT_WORDS
                slots[at + runs.AT] = rows.__array_interface__["data"][0]
                slots[at + runs.ROWS], slots[at + runs.WIDTH] = rows.shape
            status = interpreting.run_slice(self._run, self.program.root)
            self.traces.take_arrays()
            if status == 0:
                self._pause = 0
                return True
            if status == FULL and self._steps < _MOST_ROOM:
                self._steps *= 2
            elif status == PARTS_FULL and len(self._parts) < _MOST_ROOM:
                self._parts = np.zeros((2 * len(self._parts), SLOT_WORDS), np.int64)
                words[runs.PARTS], words[runs.PARTS_SIZE] = self._parts.ctypes.data, len(self._parts)
            else:
                self._pause = self._paused = min(2 * self._pause + 1, _MOST_PAUSE)
                return False

    def outputs(self) -> dict[str, Ints]:
        """The updates that views have emitted in the slice, where there are any."""
        found = {}
        for name, place in self.program.views.items():
            at = place * SLOT_WORDS
            if self._slots[at + runs.ROWS]:
                first = self._slots[at + runs.FIRST]
                found[name] = interpreting.take_output(self._run, place)[:, first:]
        return found

    def close(self, lower: int, upper: int) -> None:
        """Close the slice of all traces. Raises DiffOverflow."""
        self.traces.take_back(lower, upper)
