"""Upserts: turns a source of newest rows by key into a collection, retracting the old row of a key when a new one
arrives.

The arrangement of the collection by the key remembers the old rows, so it is durable, resharded and shared like any
other. Time is total here. A step replays each key's upserts in time order, starting from the one row that the key had
before the slice. The diff of an input row says what the upsert does: a positive diff sets the key's row, and a negative
one deletes it (only the key's words matter then). The absolute value tells the upsert's position in its log: of two
upserts at the same time, the one with the greater value is the later one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.kernels.rounds import touched_keys
from vernier.operators.physical.arrange import Arrange
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import UpsertOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.updates import Ints, consolidate_rows


class Upsert(Arrange):
    """The arrangement by `op.key` of the newest rows. O(n log n) a step for n upserts, plus one lookup per key."""

    def step(self, now: Round) -> None:
        """Seal the changes that the upserts cause."""
        data = self._exchanged() if self.exchanges else self.input.out
        self.fresh = self.out = None
        if data is None:
            return
        rows = key_rows(np.ascontiguousarray(data), self.key, self.val, 2)
        if len(rows) == 0:
            return
        changes = consolidate_rows(self._changes(rows), self.columns)
        if len(changes) == 0:
            return
        slice_ = self.scope.slice
        self.trace.seal(changes, slice_.lower, slice_.upper)
        self.fresh = changes
        self.out = changes[:, 1:]

    def _changes(self, rows: Ints) -> Ints:
        """The changes `[hash | key | val | time | diff]`, not consolidated, of upserts `[hash | key | val | time |
        code]`."""
        rows = self._newest(rows)
        keys, runs = touched_keys(rows, self.key_width)
        first = runs[:-1]
        known = self.trace.select(keys, fold=self.scope.slice.fold)
        begins, ends = known.spans.T
        had = ends > begins
        before = np.zeros((len(rows), rows.shape[1]), np.int64)
        # An upsert replaces the previous upsert of its key or, if it is the first, the row in the trace.
        before[1:] = rows[:-1]
        before[:, : 1 + self.key_width] = rows[:, : 1 + self.key_width]
        is_set = rows[:, -1] > 0
        replaces = np.zeros(len(rows), np.bool_)
        replaces[1:] = is_set[:-1]
        replaces[first] = had
        value = slice(1 + self.key_width, 1 + self.key_width + self.val_width)
        before[first[had], value] = known.entries[begins[had], : self.val_width]
        before[:, -2] = rows[:, -2]
        before[:, -1] = -1
        after = rows[is_set].copy()
        after[:, -1] = 1
        return np.concatenate((before[replaces], after))

    def _newest(self, rows: Ints) -> Ints:
        """The last upsert of each key and time, ordered by key, then by time."""
        columns = [*range(1 + self.key_width), rows.shape[1] - 2]
        order = np.lexsort((np.abs(rows[:, -1]), *(rows[:, c] for c in reversed(columns))))
        rows = rows[order]
        last = np.ones(len(rows), np.bool_)
        last[:-1] = (rows[1:, columns] != rows[:-1, columns]).any(axis=1)
        return np.ascontiguousarray(rows[last])


KINDS: dict[type[Op], Callable[..., Operator]] = {UpsertOp: Upsert}
