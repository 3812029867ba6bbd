"""Neighbours of copies along the ordered rows of groups."""

import numpy as np
from numba import njit


@njit(cache=True)
def shifted_copies(offsets, counts, step):  # type: ignore[no-untyped-def]
    """The row in which the copy `step` places before each copy is (after it, if negative).

    offsets: int64[g + 1], the bounds of the groups in n ordered rows; counts: int64[n] copies, above 0. Returns
    (parents: the row of the copies; sources: the row `step` places before, -1 if there is none; copies: how many of the
    parent's copies these are), parents ascending. Only copies near the end of a row look past it; the others see
    their own row and are one entry. O(n + entries).
    """
    distance, size = abs(step), 0
    for row in range(counts.shape[0]):
        alone = min(counts[row], distance)
        size += alone + (1 if counts[row] > alone else 0)
    parents, sources, copies = np.empty(size, np.int64), np.empty(size, np.int64), np.ones(size, np.int64)
    place = 0
    for group in range(offsets.shape[0] - 1):
        stop = offsets[group + 1]
        # Row `at` has the positions from `behind` on; `before` is the first of the present row.
        at, behind, before = offsets[group], np.int64(0), np.int64(0)
        for row in range(offsets[group], stop):
            alone = min(counts[row], distance)
            if counts[row] > alone:
                parents[place], sources[place], copies[place] = row, row, counts[row] - alone
                place += 1
            first = before - distance if step >= 0 else before + (counts[row] - alone) + distance
            for i in range(alone):
                while at < stop and behind + counts[at] <= first + i:
                    behind += counts[at]
                    at += 1
                parents[place] = row
                sources[place] = at if first + i >= 0 and at < stop else -1
                place += 1
            before += counts[row]
    return parents, sources, copies
