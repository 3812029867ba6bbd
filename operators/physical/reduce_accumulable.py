"""Accumulable reduce: counts and sums of a key outside loops, without reading the key's other rows.

The input's arrangement tells how many copies a changed row had before. A state of a few numbers per key
(kernels/following.py) tells what the key's aggregates were. So a change costs the same in a group of a thousand rows
as in a group of a million. The general form, for loops, is operators/physical/reduce.py.

Source: "Specializing differential dataflow".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.failures import AggregateOverflow
from vernier.operators.kernels.aggregating import FIELDS
from vernier.operators.kernels.following import follow_rows
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import AccumulableReduceOp
from vernier.operators.runtime.chunking import parts
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.kernels.tries import FIELDS as OF_LAYER
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import together

_NO_LAYERS = np.empty((0, OF_LAYER), np.int64)


class AccumulableReduce(Reduction):
    """Aggregates that can be updated from their own numbers alone; time is total."""

    def __init__(self, op: AccumulableReduceOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.aggregations = np.array(op.aggregations, np.int64).reshape(-1, FIELDS)
        # Without val words a key has one output row, whose corrections alternate, so the order of times is the sort
        # order.
        self.in_order = self.val_width == 0
        self.state: Trace | None = None if op.state is None else scope.traces[op.state]

    def step(self, now: Round) -> None:
        """Update the numbers of the keys that changed. Raises AggregateOverflow."""
        self.fresh = self.out = None
        fresh = self.input.fresh
        if fresh is None:
            return
        slice_ = self.scope.slice
        given, changed = [], []
        for rows in parts(fresh):
            made, changes, status, fault = follow_rows(
                _NO_LAYERS if self.state is None else self.state.settled, self.input.trace.settled,
                np.ascontiguousarray(rows), self.key_width, self.input.val_width, self.val_width, self.aggregations,
            )  # fmt: skip
            if status != 0:
                raise AggregateOverflow(operator=self.op.name, key=self.key_of(rows, fault))
            given.append(made)
            changed.append(changes)
        if self.state is not None:
            self.state.seal(together(changed), slice_.lower, slice_.upper)
        self.give(together(given))


KINDS: dict[type[Op], Callable[..., Operator]] = {AccumulableReduceOp: AccumulableReduce}
