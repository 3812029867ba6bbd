"""Prefix index: what comes before a row in the order of its key's vals, without reading it.

Large batches have partial sums along their vals (kernels/prefix_sums.py), of copies and of a column. They are made at
the first question, O(updates) once, and a merge of such batches makes those of its result as it goes on, so no close
pays for them at once. They are not stored. Sums over all batches are those of the rows that are present only if no row
has negative copies, so it is also known which keys have such rows: at the first question, and then for each new batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels.prefix_sums import KNOWN, OWING, OWING_COUNT, PLACES, STEP, SUMS, extend_sums, owing_keys
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints

Column = tuple[int, int, int]
"""What is summed: the first word of a column in the val (-1: copies alone), how many it has, and its null flag (-1:
none)."""

_READ = 1 << 9
"""Batches with fewer updates than this are added up val by val."""
_NONE: Ints = np.empty(0, np.int64)


def owes(trace: Trace, hashes: Ints) -> bool:
    """Whether one of the keys with these hashes may have a row with negative copies before the running slice.
    O(batches) once the batches are known. Raises DiffOverflow."""
    found = False
    for at, batch in enumerate(trace.batches):
        if batch.owing is None:
            keys, status = owing_keys(trace.settled, at, trace.key_width, trace.val_width)
            if status != 0:
                raise DiffOverflow(operation=f"addition in {trace.name}")
            batch.owing = keys if len(keys) else _NONE
        if len(batch.owing) and not found:
            found = bool(np.isin(hashes, batch.owing).any())
    return found


def sums_of(trace: Trace, column: Column) -> Ints:
    """Where the partial sums of each batch are: int64[batches], 0 for small batches, which have none."""
    return np.array([_sums(trace, at, column) for at in range(len(trace.batches))], np.int64)


def _sums(trace: Trace, at: int, column: Column) -> int:
    batch = trace.batches[at]
    if batch.updates < _READ:
        return 0
    if column not in batch.sums:
        vals = len(batch.vals)
        batch.sums[column] = np.zeros((vals // STEP + 1, SUMS), np.int64)
        extend_sums(trace.settled, at, 0, vals, *column, batch.sums[column])
    return int(batch.sums[column].__array_interface__["data"][0])


class LentIndex:
    """A prefix index of a trace where a kernel finds it: `row` has the words of kernels/prefix_sums.py, PLACES and so
    on. The kernel itself finds out that new batches have no keys that owe copies, and gives up if one has."""

    def __init__(self, trace: Trace, column: Column, row: Ints) -> None:
        self.trace, self.column = trace, column
        words: Any = row
        self._row = memoryview(words)
        self._places: Ints = np.zeros(16, np.int64)
        self._count = self._known = 0
        self._replaced = -1
        self._owing = _NONE

    def lend(self) -> None:
        """Bring the row up to date with the trace's batches. O(batches that are new since the last call)."""
        trace, row = self.trace, self._row
        batches, count = trace.batches, len(trace.batches)
        if self._replaced != trace.replaced:
            self._replaced, self._count, self._known, self._owing = trace.replaced, 0, 0, _NONE
            if count > len(self._places):
                self._places = np.zeros(2 * count, np.int64)
            self._places.fill(0)
            row[KNOWN] = 0
            self._describe()
        elif count > len(self._places):
            self._places = np.concatenate((self._places, np.zeros(count, np.int64)))
            self._describe()
        for at in range(self._count, count):
            if batches[at].updates >= _READ:
                self._places[at] = _sums(trace, at, self.column)
        self._count = count
        for at in range(self._known, row[KNOWN]):
            batches[at].owing = _NONE
        known = row[KNOWN]
        while known < count and (owing := batches[known].owing) is not None:
            if len(owing):
                self._owing = np.concatenate((self._owing, owing))
                self._describe()
            known += 1
        row[KNOWN] = self._known = known

    def _describe(self) -> None:
        row = self._row
        row[PLACES] = self._places.__array_interface__["data"][0]
        row[OWING], row[OWING_COUNT] = self._owing.__array_interface__["data"][0], len(self._owing)
