"""Pre-aggregation: a worker adds up the rows of one key and time before it sends them to the owner of the key.

So the rows of a key that has most of them are added up by all workers, and a few travel. Only what is added up at the
owner, too, may be replaced like this: the copies of keys, and groups whose aggregates are all counts, sums and means.
Floats and decimals of two words stay as they are, since an int64 does not hold their sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.operators.kernels.aggregating import SHIFT, UNCOUNTED
from vernier.operators.kernels.combining import combine_rows
from vernier.operators.planning.combined import gates_of
from vernier.operators.planning.stages import Words
from vernier.storage.updates import Ints

LEAST = 128
"""Fewer rows are sent as they are."""
_COPIES = np.empty(0, np.int64)


class Combiner:
    """Replaces updates `[key | val | time | rounds | diff]` by at most as many with the same sums, at each time. key:
    words of the key; gates: the kinds of the val words (kernels/combining.py); counted: whether the number of rows is
    one of the sums."""

    __slots__ = ("_counted", "_gates", "_key")

    def __init__(self, key: int, gates: Ints = _COPIES, counted: bool = True) -> None:
        self._key, self._gates, self._counted = key, gates, counted

    def combine(self, rows: Ints) -> Ints:
        """The updates to send; `rows` is C-contiguous. O(rows); an eighth of it if few have a key and a time in
        common."""
        if len(rows) < LEAST:
            return rows
        combined: Ints = combine_rows(rows, self._key, self._gates, self._counted)
        return combined


def combiner_of(aggregations: Sequence[Words], key: int, vals: int, texts: Words) -> Combiner | None:
    """The combiner of rows for linear aggregates (see `gates_of`); None if they have to be sent as they are."""
    gates = gates_of(aggregations, key, vals, texts)
    if gates is None:
        return None
    return Combiner(key, np.array(gates, np.int64), all(row[SHIFT] != UNCOUNTED for row in aggregations))
