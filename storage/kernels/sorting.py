"""Order rows of an int64 matrix by some of its columns, and sum equal rows."""

import numpy as np
from numba import njit

from storage.kernels.status import OVERFLOW

_BLOCK = 12


@njit(cache=True, inline="always")
def row_less(data: np.ndarray, columns: np.ndarray, i: int, j: int) -> bool:
    """Whether row i comes before row j by the columns, in their order."""
    for c in range(columns.shape[0]):
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
def _merge_sort(data: np.ndarray, columns: np.ndarray, order: np.ndarray, lo: int, hi: int) -> None:
    """Sort order[lo:hi] stably: insertion sort in blocks, then merges bottom up."""
    start = lo
    while start < hi:
        stop = min(start + _BLOCK, hi)
        for i in range(start + 1, stop):
            item = order[i]
            j = i
            while j > start and row_less(data, columns, item, order[j - 1]):
                order[j] = order[j - 1]
                j -= 1
            order[j] = item
        start = stop
    if hi - lo <= _BLOCK:
        return
    spare = np.empty(hi - lo, np.int64)
    width = _BLOCK
    while width < hi - lo:
        start = lo
        while start + width < hi:
            middle = start + width
            stop = min(middle + width, hi)
            if row_less(data, columns, order[middle], order[middle - 1]):
                left = middle - start
                for i in range(left):
                    spare[i] = order[start + i]
                i, j, k = 0, middle, start
                while i < left and j < stop:
                    if row_less(data, columns, order[j], spare[i]):
                        order[k] = order[j]
                        j += 1
                    else:
                        order[k] = spare[i]
                        i += 1
                    k += 1
                while i < left:
                    order[k] = spare[i]
                    i += 1
                    k += 1
            start = stop
        width *= 2


@njit(cache=True)
def sort_order(data: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The stable order of all rows by the columns. O(n log n) comparisons of rows."""
    order = np.arange(data.shape[0])
    _merge_sort(data, columns, order, 0, data.shape[0])
    return order


@njit(cache=True)
def sort_ties(data: np.ndarray, columns: np.ndarray, order: np.ndarray) -> None:
    """Finish an order that is right by columns[0]: sort each run of equal first columns by the rest, in place."""
    n = order.shape[0]
    first = columns[0]
    rest = columns[1:]
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and data[order[stop], first] == data[order[start], first]:
            stop += 1
        if stop - start > 1:
            _merge_sort(data, rest, order, start, stop)
        start = stop


@njit(cache=True)
def sum_sorted(data: np.ndarray, columns: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows in `order`, rows equal in `columns` made one with the sum of their last column; zeros dropped.

    Returns (rows, 0), or (no rows, OVERFLOW) when a sum leaves int64.
    """
    n = order.shape[0]
    last = data.shape[1] - 1
    out = np.empty((n, data.shape[1]), np.int64)
    count = 0
    i = 0
    while i < n:
        total = data[order[i], last]
        j = i + 1
        while j < n and rows_equal(data, columns, order[i], order[j]):
            total, wrapped = add_checked(total, data[order[j], last])
            if wrapped:
                return out[:0], OVERFLOW
            j += 1
        if total != 0:
            out[count] = data[order[i]]
            out[count, last] = total
            count += 1
        i = j
    return out[:count], 0
