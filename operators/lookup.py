"""Lookup: pairs each change of one side with what the other side holds at that time, and never looks back.

The half of a join that follows its left side: the right side is an arrangement, the left side is not kept at all, so
state and work do not grow with the left side's past. Outside loops alone, where times are totally ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from operators.arrange import exchange_updates
from operators.exchange import Round
from operators.failures import JoinOverflow
from operators.kernels.lookup import pair_at
from operators.kernels.rounds import touched_keys
from operators.operator import Arranged, Operator
from operators.planning.plan import LookupOp, Op
from operators.scope import ScopeRun
from storage.kernels.hashing import key_rows
from storage.layer import keyed_columns
from storage.updates import consolidate_rows


class Lookup(Operator):
    """Sends the left rows to the owners of their keys and pairs them there. O(n log n + what they find)."""

    def __init__(self, op: LookupOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.left = scope.operator(op.left)
        self.right = cast(Arranged, scope.operator(op.right))
        self.key, self.val = np.array(op.key, np.int64), np.array(op.val, np.int64)
        self.index = np.array(op.columns, np.int64)
        self.columns = keyed_columns(len(op.key), len(op.val), 0)
        words = (*op.key, *op.val)
        self.texts = tuple(words[at] for at in op.carried)
        self.exchanges = op.exchange and scope.exchange.workers > 1

    def step(self, now: Round) -> None:
        """Pair what is new on the left with the right side's rows, this slice's changes of them included."""
        data = self.left.out
        self.out = None
        if self.exchanges:
            data = exchange_updates(self.scope, data, self.key, self.left.op.width + 2, self.texts)
        if data is None:
            return
        rows = key_rows(np.ascontiguousarray(data), self.key, self.val, 2)
        rows = consolidate_rows(rows, self.columns)
        if len(rows) == 0:
            return
        keys, runs = touched_keys(rows, len(self.key))
        found = self.right.trace.select(keys, fold=self.scope.slice.fold)
        if len(found.entries) == 0:
            return
        out, status = pair_at(
            rows, runs, len(self.key), len(self.val), found.spans, found.entries, self.right.val_width, self.index
        )
        if status != 0:
            raise JoinOverflow(operator=self.op.name)
        self.out = out if len(out) else None


KINDS: dict[type[Op], Callable[..., Operator]] = {LookupOp: Lookup}
