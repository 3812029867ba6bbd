"""Reduce: corrects the output of each key at every data time at which it changes.

For a key at round r and data time t: `wanted = logic(input accumulated at <= (t, r))`; the operator emits `wanted −
output accumulated`.

- *Which visits*: a visit of a key at round r schedules further visits at r ∨ r' for every round r' ≰ r in the key's
  input history, old and new.
- *Which times*: a visit considers every data time of the slice at which the key was touched at any round <= r.
- *Where less is read*: where one val decides, a visit may read a key's leading vals only, and in a nested loop then
  schedules the rounds of the key's output, too (docs/decisions/0050-leading-vals-in-nested-loops.md).
- *What is skipped*: no correction is due at (t, r) if the key has no output at exactly r by then and, for some level of
  the loop, no input at rounds <= r that agree with r at that level. This needs logic(∅) = ∅.

For a fixed round the data times are totally ordered, so the work on each key is a linear replay of its history. Outside
loops, where time is total, the output is not kept: the replay begins with the key's result before the slice.
Sources: "Specializing differential dataflow" and "High resolution, high throughput".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.failures import AggregateOverflow
from vernier.operators.kernels.aggregating import FIELDS, KIND, LIMIT, MIN, PRESENT
from vernier.operators.kernels.covering import cover_keys
from vernier.operators.kernels.reducing import reduce_keys
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import ReduceOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.history_cache import HistoryCache
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints

LONG = 16
"""From this number of updates a key on, a reduction in a loop that is not nested reads the leading vals alone, in each
round anew. Loads, in which nothing is cached, do so from the beginning, also in nested loops."""
MOST_STEPS = 32
"""Up to this number of steps. A key costs all steps in which it is, in each round; what is cached, only new ones."""
_NO_ROWS, _NO_WORDS = np.empty((0, 1), np.int64), np.empty(0, np.int64)


class Reduce(Reduction):
    """Aggregates (or distinct, or threshold) that are updated change by change."""

    def __init__(self, op: ReduceOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.compared = op.compared
        self.aggregations = np.array(op.aggregations, np.int64).reshape(-1, FIELDS)
        self.in_order = op.of_one_val
        self.covers = HistoryCache(self.key_width, self.val_width, self.depth) if op.covers else None
        """Which val each key has at each time of the slice."""
        self.may_lead = self.in_order and self.depth == self.input.depth and not self.total
        self.may_lead = self.may_lead and op.aggregations[0][KIND] in (PRESENT, MIN)
        self.leads = False
        """Whether leading vals are read, in the running slice or, in nested loops, in the running step."""
        self.led: object = None
        """The slice for which that was decided."""

    def correct(self, keys: Ints, inputs: Selection, outputs: Selection, now: Ints, fold: int) -> tuple[Ints, Ints]:
        """Replay the histories of the keys. Raises AggregateOverflow."""
        entries = inputs.entries
        if self.in_order:
            return self._cover(keys, inputs, outputs, now, fold)
        inputs, ordered = self.by_content(inputs, self.compared)
        entries = inputs.entries
        rows, visits, status, fault = reduce_keys(
            keys, self.key_width, inputs.spans, entries, ordered, ordered is not entries, self.input.val_width,
            outputs.spans, outputs.entries, self.val_width, now, fold, self.aggregations, self.total,
        )  # fmt: skip
        return self._checked(keys, rows, visits, status, fault)

    def begin_slice(self) -> None:
        """Forget the covers of the slice before."""
        if self.covers is not None:
            self.covers.forget()

    def step(self, now: Round) -> None:
        """Visit the keys that changed and the keys scheduled for this round."""
        if self.may_lead and self.depth > 1:
            self.leads = self.input.trace.loading
        elif self.may_lead and self.led is not self.scope.slice:
            self.led = self.scope.slice
            self.leads = self.input.trace.entries_a_key >= LONG or self.input.trace.loading
        super().step(now)

    def select(self, keys: Ints, now: Ints, fold: int) -> Selection:
        """Histories, or the leading vals of long ones. Covers that were made from these do not go with histories."""
        trace = self.input.trace
        if not self.leads:
            return super().select(keys, now, fold)
        rule = self.aggregations[0]
        limit = int(rule[LIMIT]) if rule[KIND] == PRESENT else 1
        if self.covers is None:
            return trace.select_leading(keys, fold=fold, now=now, both=False, limit=limit)
        if len(trace.steps) > MOST_STEPS:
            self.leads = False
            self.covers.drop()
            return super().select(keys, now, fold)
        self.covers.covers(keys, fold)  # may clear those that there are
        both = trace.loading or self.covers.dropped
        return trace.select_leading(keys, fold=fold, now=now, both=both, limit=limit)

    def reserve(self, keys: Ints) -> None:
        """For covers, if they are kept."""
        super().reserve(keys)
        if self.covers is not None and not self.input.trace.loading:
            self.covers.covers(keys, self.scope.slice.fold)

    def _cover(self, keys: Ints, inputs: Selection, outputs: Selection, now: Ints, fold: int) -> tuple[Ints, Ints]:
        """What `correct` does where one val decides."""
        # In a load nothing is cached, and covers are not kept either.
        covers = None if self.input.trace.loading else self.covers
        heads, slots, index, arena = _NO_ROWS, _NO_ROWS, _NO_WORDS, outputs.entries
        fresh = self.input.fresh if isinstance(self.input.fresh, np.ndarray) and self.input.depth == 1 else _NO_ROWS
        if covers is not None:
            heads, slots, index, arena = covers.covers(keys, fold)
        rows, visits, arena, status, fault = cover_keys(
            keys, self.key_width, fresh, inputs.spans, inputs.entries, self.input.val_width, outputs.spans, arena,
            self.val_width, now, fold, self.aggregations[0], heads, slots, index, int(self.leads),
        )  # fmt: skip
        if covers is not None:
            covers.arena = arena
        return self._checked(keys, rows, visits, status, fault)

    def _checked(self, keys: Ints, rows: Ints, visits: Ints, status: int, fault: int) -> tuple[Ints, Ints]:
        if status != 0:
            raise AggregateOverflow(operator=self.op.name, key=self.key_of(keys, fault))
        return rows, visits


KINDS: dict[type[Op], Callable[..., Operator]] = {ReduceOp: Reduce}
