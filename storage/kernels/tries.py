"""Build, flatten and merge tries.

A keyed row is `[hash | key words (k) | val words (v) | time | rounds (d) | diff]`. Sorted by (hash, key, val, rounds,
time) and free of duplicates, keyed rows and a trie are two forms of one thing: `pack` and `flatten` go between them.
"""

import numpy as np
from numba import njit

from storage.kernels.hashing import unmix
from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW

# Columns of a layer's row in the table of addresses that kernels walk.
HASHES, KEYS, KEY_WORDS, KEY_OFFSETS, VALS, VAL_COUNT, VAL_OFFSETS = 0, 1, 2, 3, 4, 5, 6
TIMES, TIME_STRIDE, ROUNDS, ROUND_STRIDE, DIFFS, DIFF_STRIDE, UPDATES = 7, 8, 9, 10, 11, 12, 13
FIELDS = 14


@njit(cache=True)
def pack(rows: np.ndarray, k: int, v: int, d: int):  # type: ignore[no-untyped-def]
    """The trie of sorted, consolidated keyed rows.

    Returns (hashes[K], key words[K, k], key offsets[K + 1], vals[V, v], val offsets[V + 1], times[n], rounds[n, d],
    diffs[n]).
    """
    n = rows.shape[0]
    hashes = np.empty(n, np.int64)
    keys = np.empty((n, k), np.int64)
    key_offsets = np.empty(n + 1, np.int64)
    vals = np.empty((n, v), np.int64)
    val_offsets = np.empty(n + 1, np.int64)
    times = np.empty(n, np.int64)
    rounds = np.empty((n, d), np.int64)
    diffs = np.empty(n, np.int64)
    nk = 0
    nv = 0
    for i in range(n):
        new_key = i == 0
        if not new_key:
            for c in range(1 + k):
                if rows[i, c] != rows[i - 1, c]:
                    new_key = True
                    break
        new_val = new_key
        if not new_val:
            for c in range(1 + k, 1 + k + v):
                if rows[i, c] != rows[i - 1, c]:
                    new_val = True
                    break
        if new_key:
            hashes[nk] = rows[i, 0]
            for c in range(k):
                keys[nk, c] = rows[i, 1 + c]
            key_offsets[nk] = nv
            nk += 1
        if new_val:
            for c in range(v):
                vals[nv, c] = rows[i, 1 + k + c]
            val_offsets[nv] = i
            nv += 1
        times[i] = rows[i, 1 + k + v]
        for c in range(d):
            rounds[i, c] = rows[i, 2 + k + v + c]
        diffs[i] = rows[i, 2 + k + v + d]
    key_offsets[nk] = nv
    val_offsets[nv] = n
    return (
        hashes[:nk],
        keys[:nk],
        key_offsets[: nk + 1],
        vals[:nv],
        val_offsets[: nv + 1],
        times,
        rounds,
        diffs,
    )


@njit(cache=True)
def flatten(table: np.ndarray, k: int, v: int, d: int, fold: int, ceiling: int) -> np.ndarray:
    """The keyed rows of the layer in `table` (one row of addresses), times raised to `fold` and lowered to
    `ceiling`."""
    n = table[UPDATES]
    out = np.empty((n, 3 + k + v + d), np.int64)
    for key in range(table[KEYS]):
        hashed = load(table[HASHES], key)
        v0 = key if table[KEY_OFFSETS] == 0 else load(table[KEY_OFFSETS], key)
        v1 = key + 1 if table[KEY_OFFSETS] == 0 else load(table[KEY_OFFSETS], key + 1)
        for val in range(v0, v1):
            h0 = val if table[VAL_OFFSETS] == 0 else load(table[VAL_OFFSETS], val)
            h1 = val + 1 if table[VAL_OFFSETS] == 0 else load(table[VAL_OFFSETS], val + 1)
            for h in range(h0, h1):
                out[h, 0] = hashed
                if k == 1:
                    out[h, 1] = unmix(hashed)
                else:
                    for c in range(k):
                        out[h, 1 + c] = load(table[KEY_WORDS], key * k + c)
                for c in range(v):
                    out[h, 1 + k + c] = load(table[VALS], val * v + c)
                time = load(table[TIMES], h * table[TIME_STRIDE])
                out[h, 1 + k + v] = min(max(time, fold), ceiling)
                for c in range(d):
                    out[h, 2 + k + v + c] = load(table[ROUNDS], h * table[ROUND_STRIDE] + c)
                out[h, 2 + k + v + d] = load(table[DIFFS], h * table[DIFF_STRIDE])
    return out


@njit(cache=True, inline="always")
def _compare(a: np.ndarray, i: int, b: np.ndarray, j: int, columns: np.ndarray) -> int:
    for c in range(columns.shape[0]):
        column = columns[c]
        x = a[i, column]
        y = b[j, column]
        if x != y:
            return -1 if x < y else 1
    return 0


@njit(cache=True)
def merge_rows(a: np.ndarray, b: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Merge two sorted matrices by `columns`; rows equal there become one with the sum of the last column, zeros
    dropped.

    Inputs may hold neighbours that are equal (times folded by compaction). O(n + m). Returns (rows, 0) or (none,
    OVERFLOW).
    """
    n, m, last = a.shape[0], b.shape[0], a.shape[1] - 1
    out = np.empty((n + m, a.shape[1]), np.int64)
    count, i, j = 0, 0, 0
    while i < n or j < m:
        if j >= m:
            from_a = True
        elif i >= n:
            from_a = False
        else:
            from_a = _compare(a, i, b, j, columns) <= 0
        if from_a:
            fresh = count == 0 or _compare(out, count - 1, a, i, columns) != 0
        else:
            fresh = count == 0 or _compare(out, count - 1, b, j, columns) != 0
        if fresh:
            if count > 0 and out[count - 1, last] == 0:
                count -= 1
            if from_a:
                out[count] = a[i]
            else:
                out[count] = b[j]
            count += 1
        else:
            diff = a[i, last] if from_a else b[j, last]
            total, wrapped = add_checked(out[count - 1, last], diff)
            if wrapped:
                return out[:0], OVERFLOW
            out[count - 1, last] = total
        if from_a:
            i += 1
        else:
            j += 1
    if count > 0 and out[count - 1, last] == 0:
        count -= 1
    return out[:count], 0
