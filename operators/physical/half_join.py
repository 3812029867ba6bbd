"""Half join: pairs each change of one side with the rows that the other side holds at that time, and never revisits it.

It is the half of a join that responds to changes of its left side. The right side is an arrangement and the left side
is not kept, so state and work do not grow with the left side's past. Only outside loops, where times are totally
ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from vernier.operators.failures import JoinOverflow
from vernier.operators.kernels.lookup import pair_at
from vernier.operators.kernels.rounds import touched_keys
from vernier.operators.physical.arrange import exchange_updates
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import HalfJoinOp
from vernier.operators.runtime.budget import PIECE, Yield
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Arranged, Operator, shown_key
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.trace.batch import keyed_columns
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints, consolidate_rows, sort_columns, together


class HalfJoin(Operator):
    """Sends the left rows to the owners of their keys and pairs them there. O(n log n + history entries found)."""

    def __init__(self, op: HalfJoinOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.half_join = op
        self.given: Yield = Yield(scope.budget, sort_columns(0, op.width, 0), op)
        self.left = scope.operator(op.left)
        self.right = cast(Arranged, scope.operator(op.right))
        self.key, self.val = np.array(op.key, np.int64), np.array(op.val, np.int64)
        self.index = np.array(op.columns, np.int64)
        self.columns = keyed_columns(len(op.key), len(op.val), 0)
        words = (*op.key, *op.val)
        self.texts = tuple(words[at] for at in op.carried)
        self.exchanges = op.exchange and scope.exchange.workers > 1

    def step(self, now: Round) -> None:
        """Pair new left rows with the right side's rows, including the right side's changes in this slice."""
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
        given: list[Ints] = []
        self.given.begin()
        done = 0
        while done < len(rows):
            out, status, done = pair_at(
                rows, runs, len(self.key), len(self.val), found.spans, found.entries, self.right.val_width, self.index,
                done, PIECE,
            )  # fmt: skip
            if status != 0:
                raise JoinOverflow(operator=self.op.name)
            if len(out):
                given.append(out)
                self.given.add(out, given, self._sizes, keys, runs, found)
        self.out = together(given) if given else None

    def _sizes(self, keys: Ints, runs: Ints, found: Selection) -> str:
        """For messages: the key that finds the most rows, how many rows look it up, and how many changes it has."""
        left, right = np.diff(runs), np.diff(found.spans[:, :2], axis=1)[:, 0]
        worst = int(np.argmax(left.astype(np.float64) * right))
        named = shown_key(self.half_join.by, keys[worst : worst + 1], self.scope.heap)
        return f"{left[worst]:,} rows of the key {named} look at {right[worst]:,} changes"


KINDS: dict[type[Op], Callable[..., Operator]] = {HalfJoinOp: HalfJoin}
