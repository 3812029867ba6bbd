"""Reduce to running least and greatest values, where time is total.

Each row gets the best value up to and including it. A trace of the records, the rows whose value is better than all
before them, tells the extreme at any row (kernels/extremes.py), so a change costs the rows whose extreme it changes.
Orders that the words of rows do not have, values that are texts, and groups inside loops are a logic of
operators/physical/reduce_batched.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.kernels.extremes import follow_extremes
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import ExtremesOp
from vernier.operators.runtime.chunking import parts
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.errors import DiffOverflow
from vernier.storage.updates import together


class FollowExtremes(Reduction):
    """Rows with running extremes. O((changes of the input and of the output) x log rows) a step."""

    def __init__(self, op: ExtremesOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.how = int(op.down), op.column, op.words, op.flag, int(op.greatest)
        self.order = np.array(op.order, np.int64)
        self.records = scope.traces[op.state]

    def step(self, now: Round) -> None:
        """Follow the extremes of the keys that changed. Raises DiffOverflow."""
        self.fresh = self.keyed = self.out = None
        fresh = self.input.fresh
        if fresh is None:
            return
        slice_, source, v = self.scope.slice, self.input.trace, self.input.val_width
        given, changed = [], []
        for rows in parts(fresh):
            made, changes, status = follow_extremes(
                self.records.settled, source.settled, np.ascontiguousarray(rows), self.key_width, v, *self.how,
                self.order,
            )  # fmt: skip
            if status != 0:
                raise DiffOverflow(operation=f"addition in {source.name}")
            given.append(made)
            changed.append(changes)
        self.records.seal(together(changed), slice_.lower, slice_.upper)
        self.give(together(given))


KINDS: dict[type[Op], Callable[..., Operator]] = {ExtremesOp: FollowExtremes}
