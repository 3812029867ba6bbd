"""Accumulable reduce: what a key's own numbers determine, outside loops, without reading the key's other rows.

Counts, sums and means are one vector a key (kernels/accumulating.py), to which each update adds; the rows themselves
are not kept. Copies of rows, and whether a key has any row, follow from the input's arrangement, which tells how many
copies a changed row had before (kernels/following.py). So a change costs the same in a group of a thousand rows as in a
group of a million. The general form, for loops, is operators/physical/reduce.py.

Source: "Specializing differential dataflow".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.failures import AggregateOverflow
from vernier.operators.kernels.accumulating import accumulate_rows
from vernier.operators.kernels.aggregating import FIELDS
from vernier.operators.kernels.following import follow_rows
from vernier.operators.physical.arrange import exchange_updates
from vernier.operators.physical.combine import combiner_of
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import AccumulableReduceOp, AccumulateOp
from vernier.operators.planning.stages import texts_among
from vernier.operators.runtime.chunking import parts
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.kernels.tries import FIELDS as OF_BATCH
from vernier.storage.trace.batch import key_updates
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints, together

_NO_BATCHES = np.empty((0, OF_BATCH), np.int64)


class Accumulate(Reduction):
    """Counts, sums and means as one vector a key; time is total. O(n log n) a step for n updates."""

    def __init__(self, op: AccumulateOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.rows = scope.operator(op.input)
        self.words, self.vals = np.array(op.words, np.int64), np.array(op.val, np.int64)
        self.texts = texts_among((*op.words, *op.val), self.rows.op.texts)
        self.exchanges = op.exchange and scope.exchange.workers > 1
        self.sample = scope.sample(op.state, self.key_width) if self.exchanges else None
        self.combiner = combiner_of(op.aggregations, len(op.words), len(op.val), self.texts)
        self.aggregations = np.array(op.aggregations, np.int64).reshape(-1, FIELDS)
        self.layout = np.array(op.slots, np.int64), op.page, op.length
        self.keyed_already = (*op.words, *op.val) == tuple(range(self.rows.op.width))
        self.state = scope.traces[op.state]

    def step(self, now: Round) -> None:
        """Add the updates to the vectors of their keys. Raises AggregateOverflow."""
        self.fresh = self.keyed = self.out = None
        if self.rows.out is None and not self.exchanges:
            return
        rows = self._keyed_rows()
        if len(rows) == 0:
            return
        made, changes, status, fault = accumulate_rows(
            self.state.settled, rows, self.key_width, len(self.vals), self.val_width, self.aggregations, *self.layout
        )
        if status != 0:
            raise AggregateOverflow(operator=self.op.name, key=self.key_of(rows, fault))
        slice_ = self.scope.slice
        self.state.seal(changes, slice_.lower, slice_.upper)
        self.give(made)

    def _keyed_rows(self) -> Ints:
        """The input's output in this step as keyed rows that this worker owns, sorted and consolidated."""
        if not self.exchanges:
            given, keyed = self.rows.out, self.rows.keyed
            if keyed is not None and self.keyed_already and self.rows.keyed_by == self.key_width:
                return np.ascontiguousarray(keyed)
            data = given if given is not None else np.empty((0, self.rows.op.width + 2), np.int64)
            return key_updates(data, self.words, self.vals, 0)
        # Only the words that are read travel, added up as far as they can be.
        width = len(self.words) + len(self.vals)
        out, at = self.rows.out, self.rows.op.width
        sent = None if out is None else out[:, [*self.words.tolist(), *self.vals.tolist(), at, at + 1]]
        key = np.arange(self.key_width)
        data = exchange_updates(
            self.scope, sent, key, width + 2, self.texts, sample=self.sample, combiner=self.combiner
        )
        return key_updates(data, key, np.arange(self.key_width, width), 0)


class AccumulableReduce(Reduction):
    """Copies of whole rows, and keys with a row; time is total."""

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
                _NO_BATCHES if self.state is None else self.state.settled, self.input.trace.settled,
                np.ascontiguousarray(rows), self.key_width, self.input.val_width, self.val_width, self.aggregations,
            )  # fmt: skip
            if status != 0:
                raise AggregateOverflow(operator=self.op.name, key=self.key_of(rows, fault))
            given.append(made)
            changed.append(changes)
        if self.state is not None:
            self.state.seal(together(changed), slice_.lower, slice_.upper)
        self.give(together(given))


KINDS: dict[type[Op], Callable[..., Operator]] = {AccumulableReduceOp: AccumulableReduce, AccumulateOp: Accumulate}
