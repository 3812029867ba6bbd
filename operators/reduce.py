"""Reduce: one output row a key, corrected at every data time at which it changes.

At round r and data time t of a key: `wanted = logic(input accumulated at <= (t, r))`; emit `wanted − output
accumulated`.
*Which visits*: a key visited at r is scheduled at r ∨ r' for every round r' ≰ r in its input history, old and new, at
each visit.
*Which times*: at a visit, every data time of the slice at which the key was touched at any round <= r.
*What is skipped*: (t, r) owes nothing when the key has no output at exactly r by then and, for some level of the
loop, no input at rounds <= r that agree with r at that level. It needs logic(∅) = ∅.
For a fixed round the data times are totally ordered, so each key is a linear replay. Sources: seed 004; DESIGN,
"reduce".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from operators.exchange import Round
from operators.failures import AggregateOverflow
from operators.kernels.reducing import reduce_keys
from operators.kernels.rounds import key_runs, split_rounds
from operators.operator import Arranged, Buckets, Operator
from operators.planning.plan import Op, ReduceOp
from operators.scope import ScopeRun
from storage.layer import keyed_columns
from storage.trace import Trace
from storage.updates import Ints, order_rows


class Reduce(Operator):
    """Aggregates (or distinct) of an arrangement; its output is arranged by the same key."""

    def __init__(self, op: ReduceOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = cast(Arranged, scope.operator(op.input))
        self.key_width = op.key_width
        self.val_width = op.width - op.key_width
        self.aggregations = np.array(op.aggregations, np.int64).reshape(-1, 5)
        self.columns = keyed_columns(self.key_width, self.val_width, self.depth)
        self.key_columns = np.arange(1 + self.key_width, dtype=np.int64)
        self.trace: Trace = scope.traces[op.trace]
        self.fresh: Ints | None = None
        self.visits = Buckets()

    def pending(self) -> list[Round]:
        """Rounds with scheduled visits."""
        return list(self.visits.rows)

    def step(self, now: Round) -> None:
        """Visit the keys that changed and those scheduled for this round."""
        self.fresh = self.out = None
        keys = self._keys(now)
        if keys is None:
            return
        fold = self.scope.slice.fold
        inputs = self.input.trace.select(keys, fold=fold)
        outputs = self.trace.select(keys, fold=fold)
        rows, visits, status, fault = reduce_keys(
            keys, self.key_width, inputs.offsets, inputs.entries, self.input.val_width,
            outputs.offsets, outputs.entries, self.val_width, np.array(now, np.int64), fold, self.aggregations,
        )  # fmt: skip
        if status != 0:
            raise AggregateOverflow(operator=self.op.name, key=str(keys[fault, 1 : 1 + self.key_width].tolist()))
        if len(visits):
            self._schedule(visits)
        if len(rows):
            rows = rows[order_rows(rows, self.columns)]
            slice_ = self.scope.slice
            self.trace.seal(rows, slice_.lower, slice_.upper)
            self.fresh = rows
            self.out = rows[:, 1:]

    def _keys(self, now: Round) -> Ints | None:
        """The keys to visit, `[hash | key]` distinct and sorted, or None."""
        parts = self.visits.take(now)
        fresh = self.input.fresh
        if fresh is not None and not any(now[self.input.depth :]):
            runs = key_runs(fresh, self.key_width)
            touched = fresh[runs[:-1], : 1 + self.key_width]
            if not parts:
                return np.ascontiguousarray(touched)
            parts.append(touched)
        if not parts:
            return None
        keys = parts[0] if len(parts) == 1 else np.concatenate(parts)
        keys = np.ascontiguousarray(keys[order_rows(keys, self.key_columns)])
        unique: Ints = keys[key_runs(keys, self.key_width)[:-1]]
        return unique

    def _schedule(self, visits: Ints) -> None:
        """Keep visits `[rounds | hash | key]` for their rounds."""
        grouped, offsets, rounds = split_rounds(visits, 0, self.depth)
        for group, at in enumerate(map(tuple, rounds.tolist())):
            self.visits.put(at, np.ascontiguousarray(grouped[offsets[group] : offsets[group + 1], self.depth :]))
            self.scope.note(at)


KINDS: dict[type[Op], Callable[..., Operator]] = {ReduceOp: Reduce}
