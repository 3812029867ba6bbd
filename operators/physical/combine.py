"""Pre-aggregation: a worker adds up the rows of one key and time before it sends them to the owner of the key.

So the rows of a key that has most of them are added up by all workers, and a few travel. Only what is added up at the
owner, too, may be replaced like this: the copies of keys, and groups whose aggregates are all counts, sums and means.
Floats and decimals of two words stay as they are, since an int64 does not hold their sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.operators.kernels.aggregating import (
    AVG,
    AVG_DECIMAL,
    COUNT,
    FLAG,
    KIND,
    SHIFT,
    SUM,
    SUM_DECIMAL,
    UNCOUNTED,
    WORD,
    WORDS,
)
from vernier.operators.kernels.combining import IS_FLAG, PLAIN, combine_rows
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
    """The combiner of rows `[key | val …]` for linear aggregates, whose words are columns of `[hash | key | val]`; None
    if the rows have to be sent as they are. texts: the words of `[key | val]` at which a text begins."""
    if any(at >= key for at in texts):
        return None
    flags, summed, first = set[int](), dict[int, int](), 1 + key
    for row in aggregations:
        if row[FLAG] >= 0:
            flags.add(row[FLAG] - first)
        if row[KIND] == COUNT:
            continue
        if row[KIND] not in (SUM, AVG) and (row[KIND] not in (SUM_DECIMAL, AVG_DECIMAL) or row[WORDS] > 1):
            return None
        gate = row[FLAG] - first if row[FLAG] >= 0 else PLAIN
        if summed.setdefault(row[WORD] - first, gate) != gate:
            return None
    if flags & summed.keys():
        return None
    gates = np.array([IS_FLAG if word in flags else summed[word] for word in range(vals)], np.int64)
    return Combiner(key, gates, all(row[SHIFT] != UNCOUNTED for row in aggregations))
