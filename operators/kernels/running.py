"""Running sums along the ordered rows of groups."""

import numpy as np
from numba import njit

from vernier.storage.kernels.prefix_sums import HIGH, LOW, VALUES
from vernier.storage.kernels.status import OK, OVERFLOW
from vernier.storage.kernels.wide import add_wide


@njit(cache=True, inline="always")
def _less(hi: int, lo: int, other_hi: int, other_lo: int) -> bool:
    return hi < other_hi or (hi == other_hi and np.uint64(lo) < np.uint64(other_lo))


@njit(cache=True)
def running_sums(offsets, counts, high, low, valid, limits, ahead):  # type: ignore[no-untyped-def]
    """The sum of the values up to and including each copy of each row.

    offsets: int64[g + 1], the bounds of the groups in n rows; counts: int64[n] copies, above 0; high, low: int64[n],
    128-bit values (see wide); valid: int64[n], 0 if the value is null and adds nothing; limits: int64[4], high and low
    of the least and the greatest allowed sum; ahead: int64[g, 4], what comes before the rows of each group (see
    storage/kernels/prefix_sums.py). Returns (high, low: int64[m]; seen: int64[m], 1 once a value was not
    null; status; row at fault), where m is the number of copies of all rows. The status is OVERFLOW at the first sum
    beyond the limits. O(n + m).
    """
    total = 0
    for row in range(counts.shape[0]):
        total += counts[row]
    sums = np.empty((2, total), np.int64)
    seen = np.empty(total, np.int64)
    place = 0
    for group in range(offsets.shape[0] - 1):
        hi, lo, some = ahead[group, HIGH], ahead[group, LOW], 1 if ahead[group, VALUES] > 0 else 0
        for row in range(offsets[group], offsets[group + 1]):
            if valid[row] != 0:
                some = 1
            for _ in range(counts[row]):
                if valid[row] != 0:
                    before = hi
                    hi, lo = add_wide(hi, lo, high[row], low[row])
                    wrapped = (before < 0) == (high[row] < 0) and (hi < 0) != (before < 0)
                    small = _less(hi, lo, limits[0], limits[1])
                    if wrapped or small or _less(limits[2], limits[3], hi, lo):
                        return sums[0, :0], sums[1, :0], seen[:0], OVERFLOW, row
                sums[0, place] = hi
                sums[1, place] = lo
                seen[place] = some
                place += 1
    return sums[0], sums[1], seen, OK, -1


@njit(cache=True)
def running_float_sums(offsets: np.ndarray, counts: np.ndarray, values: np.ndarray, valid: np.ndarray):  # type: ignore[no-untyped-def]
    """Like `running_sums`, for float64 values: each sum is the previous sum plus the value, rounded once more."""
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


@njit(cache=True)
def frame_sums(offsets, counts, high, low, first, last, limits):  # type: ignore[no-untyped-def]
    """The sum of the values of the copies that are `first` to `last` places behind each copy of each row (before it, if
    negative).

    Arguments, result and status as those of `running_sums`, without nulls. O(n + m).
    """
    total = 0
    for row in range(counts.shape[0]):
        total += counts[row]
    sums, until = np.empty((2, total), np.int64), np.zeros((2, total + 1), np.int64)
    done = 0
    for group in range(offsets.shape[0] - 1):
        size = 0
        for row in range(offsets[group], offsets[group + 1]):
            for _ in range(counts[row]):
                # These sums are modulo 2**128, as are their differences, which fit.
                until[0, size + 1], until[1, size + 1] = add_wide(until[0, size], until[1, size], high[row], low[row])
                size += 1
        place = 0
        for row in range(offsets[group], offsets[group + 1]):
            for _ in range(counts[row]):
                begin, end = min(max(place + first, 0), size), min(max(place + last + 1, 0), size)
                hi, lo = np.int64(0), np.int64(0)
                if begin < end:
                    # -x is ~x + 1
                    hi, lo = add_wide(until[0, end], until[1, end], ~until[0, begin], ~until[1, begin])
                    hi, lo = add_wide(hi, lo, np.int64(0), np.int64(1))
                if _less(hi, lo, limits[0], limits[1]) or _less(limits[2], limits[3], hi, lo):
                    return sums[0], sums[1], OVERFLOW, row
                sums[0, done], sums[1, done] = hi, lo
                done += 1
                place += 1
    return sums[0], sums[1], OK, -1
