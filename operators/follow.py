"""Counts and sums of a key outside loops, without looking at the key's other rows.

The input's arrangement says how often a changed row was there, and a state of a few numbers a key
(kernels/following.py) what the key's aggregates were. So a change costs the same in a group of a thousand rows and of
a million. The general form, in loops, is operators/reduce.py. Source: seed 001.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from operators.exchange import Round
from operators.failures import AggregateOverflow
from operators.kernels.aggregating import FIELDS
from operators.kernels.following import follow_keys
from operators.kernels.rounds import touched_keys
from operators.keyed import Keyed
from operators.operator import Operator
from operators.planning.plan import FollowOp, Op
from operators.scope import ScopeRun
from storage.trace import Trace


class Follow(Keyed):
    """Aggregates that need no more than their own numbers; time is total."""

    def __init__(self, op: FollowOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.aggregations = np.array(op.aggregations, np.int64).reshape(-1, FIELDS)
        self.state: Trace = scope.traces[op.state]

    def step(self, now: Round) -> None:
        """Move the numbers of the keys that changed. Raises AggregateOverflow."""
        self.fresh = self.out = None
        rows = self.input.fresh
        if rows is None:
            return
        keys, runs = touched_keys(rows, self.key_width)
        fold = self.scope.slice.fold
        numbers = self.state.select(keys, fold=fold)
        before = self.input.trace.count_rows(rows)
        made, changes, status, fault = follow_keys(
            keys, self.key_width, numbers.spans, numbers.entries, np.ascontiguousarray(rows), runs, before,
            self.input.val_width, self.val_width, fold, self.aggregations,
        )  # fmt: skip
        if status != 0:
            raise AggregateOverflow(operator=self.op.name, key=self.key_of(keys, fault))
        slice_ = self.scope.slice
        self.state.seal(changes, slice_.lower, slice_.upper)
        self.give(made)


KINDS: dict[type[Op], Callable[..., Operator]] = {FollowOp: Follow}
