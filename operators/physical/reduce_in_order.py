"""Reduce to columns along ordered rows, where time is total: ranks, places, sums, neighbours.

If a part of each group is read, one kernel computes the column at all data times (kernels/in_order.py); a call of numpy
takes longer than the whole part. Whole groups go to the function in waves, as in operators/physical/reduce_batched.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.failures import AggregateOverflow
from vernier.operators.kernels.in_order import follow_order
from vernier.operators.physical.reduce_batched import BatchedReduce
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import OrderedReduceOp
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.kernels.prefix_sums import SUMS
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints


class OrderedReduce(BatchedReduce):
    """A column along ordered rows."""

    def __init__(self, op: OrderedReduceOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        along = op.along
        self.by, self.flips, self.equal = (np.array(words, np.int64) for words in (along.by, along.flips, along.equal))
        self.asked = (
            along.kind, along.first, along.last, np.array(along.columns, np.int64).reshape(-1, 4),
            np.array(along.limits, np.int64).reshape(-1, 4), np.array(along.none, np.int64),
            np.array(op.order, np.int64),
        )  # fmt: skip

    def correct_parts(self, keys: Ints, inputs: Selection, now: Ints, fold: int) -> Ints:
        """Compute the column of the parts. Raises AggregateOverflow, also where whole groups may have a result."""
        inputs, ordered = self.by_content(inputs, self.texts)
        ahead = np.zeros((len(keys), SUMS), np.int64) if self.ahead is None else self.ahead
        rows: Ints
        rows, status, fault = follow_order(
            keys, self.key_width, inputs.spans, inputs.entries, ordered, self.input.val_width, self.by, self.flips,
            self.equal, fold, ahead, *self.asked,
        )  # fmt: skip
        if status != 0:
            raise AggregateOverflow(operator=self.op.name, key=self.key_of(keys, fault))
        return rows


KINDS: dict[type[Op], Callable[..., Operator]] = {OrderedReduceOp: OrderedReduce}
