"""Order rows of an int64 matrix by some of its columns, and sum equal rows.

Rows are ordered by their first column as numbers that lie side by side in memory, with the position of the row beside
each; the rows themselves are looked at where first columns are equal. Few rows: insertion. Many: one pass of a radix
sort by the top bits of the first column's range leaves each number within a few places of its own (the first column is
a hash, hence uniform); above `_WIDE` rows a coarser pass before it moves the rows too, so that all that follows is in
the cache. What is not uniform and crowds in few buckets is merge-sorted there: no input is worse than n log n.
"""

import numpy as np
from numba import njit

from storage.kernels.status import OVERFLOW

_FEW = 24
_CROWD = 32
"""Numbers in one bucket from which merging beats insertion."""
_WIDE = 1 << 16
_COARSE = 1 << 12
"""Rows that a bucket of the coarse pass should hold: they and their keys and positions fit the second-level cache."""


@njit(cache=True, inline="always")
def row_less(data: np.ndarray, columns: np.ndarray, first: int, i: int, j: int) -> bool:
    """Whether row i comes before row j by the columns from number `first` on, in their order."""
    for c in range(first, columns.shape[0]):
        column = columns[c]
        a = data[i, column]
        b = data[j, column]
        if a != b:
            return a < b
    return False


@njit(cache=True, inline="always")
def rows_equal(data: np.ndarray, columns: np.ndarray, i: int, j: int) -> bool:
    """Whether rows i and j agree in the columns."""
    for c in range(columns.shape[0]):
        if data[i, columns[c]] != data[j, columns[c]]:
            return False
    return True


@njit(cache=True, inline="always")
def add_checked(a: int, b: int) -> tuple[int, bool]:
    """(a + b, whether that left int64)."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


@njit(cache=True)
def _insertion_sort(data, columns, keys, order, lo, hi):  # type: ignore[no-untyped-def]
    """Sort keys[lo:hi] and order[lo:hi] together, stably."""
    for i in range(lo + 1, hi):
        key, item = keys[i], order[i]
        j = i
        while j > lo and (keys[j - 1] > key or (keys[j - 1] == key and row_less(data, columns, 1, item, order[j - 1]))):
            keys[j] = keys[j - 1]
            order[j] = order[j - 1]
            j -= 1
        keys[j] = key
        order[j] = item


@njit(cache=True)
def _merge_sort(data, columns, keys, order, lo, hi):  # type: ignore[no-untyped-def]
    """The same for any number of them: insertion in blocks, then merges bottom up."""
    block = _FEW // 2
    start = lo
    while start < hi:
        _insertion_sort(data, columns, keys, order, start, min(start + block, hi))
        start += block
    if hi - lo <= block:
        return
    spare_keys = np.empty(hi - lo, np.int64)
    spare = np.empty(hi - lo, np.int64)
    width = block
    while width < hi - lo:
        start = lo
        while start + width < hi:
            middle = start + width
            stop = min(middle + width, hi)
            left = middle - start
            for i in range(left):
                spare_keys[i] = keys[start + i]
                spare[i] = order[start + i]
            i, j, k = 0, middle, start
            while i < left and j < stop:
                if keys[j] < spare_keys[i] or (
                    keys[j] == spare_keys[i] and row_less(data, columns, 1, order[j], spare[i])
                ):
                    keys[k] = keys[j]
                    order[k] = order[j]
                    j += 1
                else:
                    keys[k] = spare_keys[i]
                    order[k] = spare[i]
                    i += 1
                k += 1
            while i < left:
                keys[k] = spare_keys[i]
                order[k] = spare[i]
                i += 1
                k += 1
            start = stop
        width *= 2


@njit(cache=True, inline="always")
def _bits(number: np.uint64) -> int:
    """How many bits a number has."""
    count = 0
    while number > np.uint64(0):
        number >>= np.uint64(1)
        count += 1
    return count


@njit(cache=True)
def _spread(keys, order, lo, hi, buckets, to_keys, to_order, starts):  # type: ignore[no-untyped-def]
    """Move keys[lo:hi] and order[lo:hi] to the same places of `to_keys` and `to_order`, stably, grouped in ascending
    buckets of equal width (a power of two of them).

    Fills starts[: used + 1] with where the groups begin; returns used.
    """
    least, most = keys[lo], keys[lo]
    for i in range(lo, hi):
        least = min(least, keys[i])
        most = max(most, keys[i])
    base = np.uint64(least)
    reach = np.uint64(most) - base
    shift = np.uint64(max(0, _bits(reach) - _bits(np.uint64(buckets - 1))))
    used = np.int64(reach >> shift) + 1
    for b in range(used + 1):
        starts[b] = 0
    for i in range(lo, hi):
        starts[np.int64((np.uint64(keys[i]) - base) >> shift) + 1] += 1
    starts[0] = lo
    for b in range(used):
        starts[b + 1] += starts[b]
    for i in range(lo, hi):
        bucket = np.int64((np.uint64(keys[i]) - base) >> shift)
        to = starts[bucket]
        starts[bucket] = to + 1
        to_keys[to] = keys[i]
        to_order[to] = order[i]
    for b in range(used, 0, -1):
        starts[b] = starts[b - 1]
    starts[0] = lo
    return used


@njit(cache=True)
def _sort_buckets(data, columns, keys, order, lo, hi, to_keys, to_order, starts):  # type: ignore[no-untyped-def]
    """Sort what lies in [lo, hi) into the same places of `to_keys` and `to_order`."""
    buckets = 16
    while buckets < hi - lo:
        buckets *= 2
    used = _spread(keys, order, lo, hi, buckets, to_keys, to_order, starts)
    for b in range(used):
        size = starts[b + 1] - starts[b]
        if size > _CROWD:
            _merge_sort(data, columns, to_keys, to_order, starts[b], starts[b + 1])
        elif size > 1:
            _insertion_sort(data, columns, to_keys, to_order, starts[b], starts[b + 1])


@njit(cache=True)
def _is_sorted(data: np.ndarray, columns: np.ndarray) -> bool:
    for i in range(1, data.shape[0]):
        if row_less(data, columns, 0, i, i - 1):
            return False
    return True


@njit(cache=True)
def _sort_wide(data: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order of many rows, in two steps: (rows moved to the buckets of a coarse pass, their order there, where each
    of them was).

    Comparing rows where they lie would miss the cache each time; after the move a bucket's rows lie side by side.
    """
    n = data.shape[0]
    keys = data[:, columns[0]].copy()
    to_keys, place = np.empty(n, np.int64), np.empty(n, np.int64)
    coarse = 2
    while coarse * _COARSE < n:
        coarse *= 2
    borders = np.empty(coarse + 1, np.int64)
    order = np.arange(n)
    used = _spread(keys, order, 0, n, coarse, to_keys, place, borders)
    moved = np.empty((n, data.shape[1]), np.int64)
    most = 0
    for i in range(n):
        for c in range(data.shape[1]):
            moved[i, c] = data[place[i], c]
    for b in range(used):
        most = max(most, borders[b + 1] - borders[b])
    here = np.arange(n)
    starts = np.empty(2 * most + 17, np.int64)
    for b in range(used):
        if borders[b + 1] > borders[b]:
            _sort_buckets(moved, columns, to_keys, here, borders[b], borders[b + 1], keys, order, starts)
    return moved, order, place


@njit(cache=True)
def _sort_narrow(data: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The order of rows that are few enough to be compared where they lie."""
    n = data.shape[0]
    order = np.arange(n)
    if columns.shape[0] == 0 or _is_sorted(data, columns):
        return order
    keys = data[:, columns[0]].copy()
    if n <= _FEW:
        _insertion_sort(data, columns, keys, order, 0, n)
        return order
    to_keys, to_order = np.empty(n, np.int64), np.empty(n, np.int64)
    _sort_buckets(data, columns, keys, order, 0, n, to_keys, to_order, np.empty(2 * n + 17, np.int64))
    return to_order


@njit(cache=True)
def sort_order(data: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The stable order of all rows by the columns. O(n log n), O(n) where the first column is uniform."""
    if data.shape[0] <= _WIDE or columns.shape[0] == 0 or _is_sorted(data, columns):
        return _sort_narrow(data, columns)
    _, order, place = _sort_wide(data, columns)
    for i in range(order.shape[0]):
        order[i] = place[order[i]]
    return order


@njit(cache=True)
def consolidate(data: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows in order of the columns, rows equal there made one with the sum of their last column; zeros dropped.

    Returns (rows, 0), or (no rows, OVERFLOW) when a sum leaves int64.
    """
    n, width = data.shape
    if n <= _WIDE or columns.shape[0] == 0 or _is_sorted(data, columns):
        rows, order = data, _sort_narrow(data, columns)
    else:
        rows, order, _ = _sort_wide(data, columns)
    last = width - 1
    out = np.empty((n, width), np.int64)
    count = 0
    i = 0
    while i < n:
        first = order[i]
        total = rows[first, last]
        i += 1
        while i < n and rows_equal(rows, columns, first, order[i]):
            total, wrapped = add_checked(total, rows[order[i], last])
            if wrapped:
                return out[:0], OVERFLOW
            i += 1
        if total != 0:
            for c in range(last):
                out[count, c] = rows[first, c]
            out[count, last] = total
            count += 1
    return out[:count], 0
