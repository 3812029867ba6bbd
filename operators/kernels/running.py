"""Sums along the ordered rows of groups."""

import numpy as np
from numba import njit

from storage.kernels.status import OK, OVERFLOW
from storage.kernels.wide import add_wide, fits


@njit(cache=True)
def running_sums(offsets: np.ndarray, counts: np.ndarray, values: np.ndarray, valid: np.ndarray):  # type: ignore[no-untyped-def]
    """Sums of the values up to and including each copy of each row.

    offsets: int64[g + 1] of groups in n rows; counts: int64[n] copies, above 0; values: int64[n]; valid: int64[n], 0
    where the value is null and adds nothing. Returns (sums int64[m], seen int64[m]: 1 once a value was not null,
    status, row at fault), m = copies of all rows. Sums are 128 bits wide inside: OVERFLOW when one that is given does
    not fit 64. O(n + m).
    """
    total = 0
    for row in range(counts.shape[0]):
        total += counts[row]
    sums = np.empty(total, np.int64)
    seen = np.empty(total, np.int64)
    place = 0
    for group in range(offsets.shape[0] - 1):
        hi, lo, some = 0, 0, 0
        for row in range(offsets[group], offsets[group + 1]):
            if valid[row] != 0:
                some = 1
            for _ in range(counts[row]):
                if valid[row] != 0:
                    hi, lo = add_wide(hi, lo, -1 if values[row] < 0 else 0, values[row])
                    if not fits(hi, lo):
                        return sums[:0], seen[:0], OVERFLOW, row
                sums[place] = lo
                seen[place] = some
                place += 1
    return sums, seen, OK, -1


@njit(cache=True)
def running_float_sums(offsets: np.ndarray, counts: np.ndarray, values: np.ndarray, valid: np.ndarray):  # type: ignore[no-untyped-def]
    """As `running_sums`, of float64 values: each sum is the one before it plus the value, rounded once more."""
    total = 0
    for row in range(counts.shape[0]):
        total += counts[row]
    sums = np.empty(total, np.float64)
    seen = np.empty(total, np.int64)
    place = 0
    for group in range(offsets.shape[0] - 1):
        running, some = 0.0, 0
        for row in range(offsets[group], offsets[group + 1]):
            if valid[row] != 0:
                some = 1
            for _ in range(counts[row]):
                if valid[row] != 0:
                    running += values[row]
                sums[place] = running
                seen[place] = some
                place += 1
    return sums, seen
