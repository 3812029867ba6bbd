"""Batched reduce: reductions by a logic, a function from the rows of a group to its output rows.

Visits, times and what may be skipped follow operators/physical/reduce.py. The groups of a step go to the logic in waves
of bounded size, and the corrections are computed in time order. Outside loops, where time is total, the earlier output
of a key is the logic's result for the key's rows before the slice, so the output is not kept and no round is visited
twice. Sources: "Specializing differential dataflow" and "High resolution, high throughput".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from vernier.operators.failures import MultiplicityOverflow
from vernier.operators.group_functions.logic import Groups, Produced
from vernier.operators.kernels.waves import gather_wave, plan_waves, settle_wave, visits_after
from vernier.operators.language.plan.tables import TooManyRows, allow
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import BatchedReduceOp
from vernier.operators.runtime.budget import DOWNSTREAM, PIECE
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints, together

WAVE_ROWS = 1 << 16
"""About how many rows of groups a logic receives at once."""
_NO_VISITS = np.empty((0, 1), np.int64)


class BatchedReduce(Reduction):
    """A reduction by a logic."""

    def __init__(self, op: BatchedReduceOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.logic = op.spec.compile(op.key, op.val)
        self.texts = op.val.text_words
        self.order = np.array(op.order, np.int64) if op.order else None

    def correct(self, keys: Ints, inputs: Selection, outputs: Selection, now: Ints, fold: int) -> tuple[Ints, Ints]:
        """Call the logic for all groups that may have changed, and compare its results with the earlier output."""
        total = self.total
        v, w = self.input.val_width, self.val_width
        groups = plan_waves(inputs.spans, inputs.entries, v, outputs.spans, outputs.entries, w, now, fold, total)
        visits = _NO_VISITS
        if len(now):
            visits = visits_after(keys, self.key_width, inputs.spans, inputs.entries, v, now)
        parts: list[Ints] = []
        kept, kept_counts = np.empty((0, w), np.int64), np.empty(0, np.int64)
        first, most = 0, WAVE_ROWS
        while first < len(groups):
            places, offsets, vals, counts, status, fault = gather_wave(
                inputs.spans, inputs.entries, v, now, fold, groups, first, most
            )
            self._check(status, keys, fault)
            wave = groups[first : first + len(places)]
            numbers = wave[places >= 0, 0]
            asked = keys.take(numbers, axis=0)[:, 1 : 1 + self.key_width]
            ahead = None if self.ahead is None else self.ahead[numbers]
            wanted = Groups(asked, offsets, vals, counts, self.scope.heap, self.texts, ahead)
            try:
                made = self.logic(wanted)
            except TooManyRows as error:
                if len(places) > 1:
                    most = max(1, len(vals) // 8)
                    continue
                made = self._alone(wanted, error.rows, partial(self._sizes, keys, wave, parts))
            rows = made.rows if self.order is None else made.rows.take(self.order, axis=1)
            goes_on = first > 0 and wave[0, 0] == groups[first - 1, 0]
            rows, kept, kept_counts, status, fault = settle_wave(
                keys, self.key_width, wave, places, made.offsets, np.ascontiguousarray(rows), made.counts,
                outputs.spans, outputs.entries, w, now, fold, total, kept if goes_on else kept[:0], kept_counts,
                groups[first - 1, 1] if goes_on else fold - 1,
            )  # fmt: skip
            self._check(status, keys, fault)
            if len(rows):
                parts.append(rows)
            if first or len(rows) > PIECE:
                # The logic may produce rows of any number and size, long texts included.
                size = 8 * sum(part.size for part in parts)
                self.scope.budget.check(DOWNSTREAM * size, self.op, partial(self._sizes, keys, wave, parts))
            first += len(places)
        if not parts:
            return np.empty((0, 0), np.int64), visits
        return together(parts), visits

    def _alone(self, wanted: Groups, rows: int, sizes: Callable[[], str]) -> Produced:
        """The logic's result for a single group that makes more than a piece of rows, if the memory budget allows
        it."""
        while True:
            self.scope.budget.check((1 + DOWNSTREAM) * 8 * (self.val_width + 2) * rows, self.op, sizes)
            try:
                with allow(rows):
                    return self.logic(wanted)
            except TooManyRows as error:
                rows = 2 * error.rows

    def _sizes(self, keys: Ints, wave: Ints, parts: list[Ints]) -> str:
        rows, key = sum(map(len, parts)), self.key_of(keys, wave[-1, 0])
        return f"the groups of a step have emitted {rows:,} rows so far; the next group is {key}"

    def _check(self, status: int, keys: Ints, fault: int) -> None:
        if status != 0:
            raise MultiplicityOverflow(operator=self.op.name, key=self.key_of(keys, fault))


KINDS: dict[type[Op], Callable[..., Operator]] = {BatchedReduceOp: BatchedReduce}
