"""Read a view's batch by time: sums up to a time, and the changes of an interval, without flattening the other updates.

The kernels release the interpreter lock, so the sidecar keeps answering while a thread reads a large history.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.hashing import unmix
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OK, OVERFLOW
from vernier.storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASHES,
    KEY_OFFSETS,
    KEY_WORDS,
    KEYS,
    TIME_STRIDE,
    TIMES,
    UPDATES,
    VAL_COUNT,
    VAL_OFFSETS,
    VALS,
    narrow,
    offset,
)


@njit(cache=True)
def _write_row(table: np.ndarray, k: int, v: int, key: int, val: int, out: np.ndarray, at: int) -> None:
    """Write the words of a row: of its key, then of its val. A one-word key is in its hash."""
    if k == 1:
        out[at, 0] = unmix(load(table[HASHES], key))
    else:
        for c in range(k):
            out[at, c] = load(table[KEY_WORDS], key * k + c)
    for c in range(v):
        out[at, k + c] = narrow(table[VALS], val * v + c)


@njit(cache=True, nogil=True)
def sum_until(table: np.ndarray, k: int, v: int, last: int) -> tuple[np.ndarray, int]:
    """Sum each row's diffs at times <= last. table: a batch's addresses, depth 0; k, v: words of key and val.

    Returns (rows[m, k + v + 1] `[row words | sum]`, without zero sums, status OK or OVERFLOW). O(updates).
    """
    out = np.empty((table[VAL_COUNT], k + v + 1), np.int64)
    count = 0
    for key in range(table[KEYS]):
        for val in range(offset(table[KEY_OFFSETS], key), offset(table[KEY_OFFSETS], key + 1)):
            total = 0
            for h in range(offset(table[VAL_OFFSETS], val), offset(table[VAL_OFFSETS], val + 1)):
                if load(table[TIMES], h * table[TIME_STRIDE]) <= last:
                    total, wrapped = add_checked(total, narrow(table[DIFFS], h * table[DIFF_STRIDE]))
                    if wrapped:
                        return out[:0], OVERFLOW
            if total != 0:
                _write_row(table, k, v, key, val, out, count)
                out[count, k + v] = total
                count += 1
    return out[:count], OK


@njit(cache=True, nogil=True)
def pick_between(table: np.ndarray, k: int, v: int, lower: int, upper: int) -> np.ndarray:
    """The changes with lower <= time < upper: rows[m, k + v + 2] `[row words | time | diff]` in the trie's order.

    table: a batch's addresses, depth 0; k, v: words of key and val. O(updates) time, O(m) memory.
    """
    count = 0
    for h in range(table[UPDATES]):
        time = load(table[TIMES], h * table[TIME_STRIDE])
        if lower <= time < upper:
            count += 1
    out = np.empty((count, k + v + 2), np.int64)
    at = 0
    for key in range(table[KEYS]):
        for val in range(offset(table[KEY_OFFSETS], key), offset(table[KEY_OFFSETS], key + 1)):
            for h in range(offset(table[VAL_OFFSETS], val), offset(table[VAL_OFFSETS], val + 1)):
                time = load(table[TIMES], h * table[TIME_STRIDE])
                if lower <= time < upper:
                    _write_row(table, k, v, key, val, out, at)
                    out[at, k + v] = time
                    out[at, k + v + 1] = narrow(table[DIFFS], h * table[DIFF_STRIDE])
                    at += 1
    return out
