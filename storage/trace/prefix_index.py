"""Prefix index: what comes before a row in the order of its key's vals, without reading it.

Large batches have partial sums along their vals (kernels/prefix_sums.py), of copies and of a column. They are made at
the first question, O(updates) once, and a merge of such batches makes those of its result as it goes on, so no close
pays for them at once. They are not stored. Sums over all batches are those of the rows that are present only if no row
has negative copies, so it is also known which keys have such rows: at the first question, and then for each new batch.
"""

from __future__ import annotations

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels.prefix_sums import STEP, SUMS, extend_sums, owing_keys
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
    batches = trace.batches
    found: Ints = np.zeros(len(batches), np.int64)
    for at, batch in enumerate(batches):
        if batch.updates >= _READ:
            if column not in batch.sums:
                vals = len(batch.vals)
                batch.sums[column] = np.zeros((vals // STEP + 1, SUMS), np.int64)
                extend_sums(trace.settled, at, 0, vals, *column, batch.sums[column])
            found[at] = batch.sums[column].__array_interface__["data"][0]
    return found
