"""How many rows a view has of each of some keys, from its trace: a sink with one row per key must know.

A step says what a key lost and got, not what it has. Two rows of a key that come at different times look like one row
that replaces another, and when one of them goes, the key seems to be gone. So a step that ends where the newest epoch
ends carries a `HeldRows`, and what the step says of its keys is compared with it (service/sinks/outgoing.py). Cost:
O(log log n) for each key that changed and batch of the trace, and each file of the trace is read once, to verify it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vernier.operators.language.types.schema import RowType
from vernier.storage.kernels.hashing import key_rows
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.cursor import Cursor
from vernier.storage.trace.history_cache import Selection
from vernier.storage.updates import Ints, order_rows


@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """The rows of keys as of a data time. stored: the view's columns, its key first; open: gives the batches of its
    trace, or None if the trace no longer distinguishes that time."""

    stored: RowType
    as_of: int
    open: Callable[[], Sequence[Batch] | None]

    def count(self, keys: Ints) -> Ints | None:
        """The number of rows of each key: int64[n]. keys: int64[n, key words], distinct. None if it cannot be known.
        Raises StorageErrors."""
        batches = self.open()
        if batches is None:
            return None
        words = keys.shape[1]
        listed = key_rows(np.ascontiguousarray(keys), np.arange(words), np.empty(0, np.int64), 0)
        order = order_rows(listed, np.arange(words + 1))
        cursor = Cursor(batches, words, self.stored.width - words, 0)
        found = cursor.look_up(np.ascontiguousarray(listed[order])).dense()
        counts = np.zeros(len(keys), np.int64)
        counts[order] = _rows(found, self.as_of)
        return counts


def _rows(found: Selection, as_of: int) -> Ints:
    """The number of rows of each key: int64[n]. found: histories `[val words | time | diff]`, key after key, each
    ordered by val."""
    sizes = found.spans[:, 1] - found.spans[:, 0]
    past = np.column_stack((np.repeat(np.arange(len(sizes)), sizes), found.entries))
    past = past[past[:, -2] <= as_of]
    counts = np.zeros(len(sizes), np.int64)
    if len(past):
        fresh = np.ones(len(past), np.bool_)
        fresh[1:] = (past[1:, :-2] != past[:-1, :-2]).any(axis=1)
        first = np.flatnonzero(fresh)
        sums = np.add.reduceat(past[:, -1], first)
        np.add.at(counts, past[first, 0], np.maximum(sums, 0))
    return counts
