"""Find keys in layers, read what they have there, and count rows."""

import numpy as np
from numba import njit

from storage.kernels.cells import put
from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASH_STRIDE,
    HASHES,
    KEY_OFFSETS,
    KEY_STRIDE,
    KEY_WORDS,
    KEYS,
    ROUND_STRIDE,
    ROUNDS,
    TIME_STRIDE,
    TIMES,
    VAL_OFFSETS,
    VAL_STRIDE,
    VALS,
)

_LINEAR = 16


@njit(cache=True)
def seek(address: int, stride: int, lo: int, hi: int, hashed: int) -> int:
    """First position in [lo, hi) of the sorted words at `address`, `stride` apart, that is >= hashed, or hi.

    Hashes are uniform, so interpolation lands close: a few steps of it, then binary search.
    """
    for _ in range(3):
        if hi - lo <= _LINEAR:
            break
        first = load(address, lo * stride)
        last = load(address, (hi - 1) * stride)
        if hashed <= first:
            return lo
        if hashed > last:
            return hi
        share = (np.float64(hashed) - np.float64(first)) / (np.float64(last) - np.float64(first))
        guess = lo + np.int64(share * (hi - 1 - lo))
        guess = min(max(guess, lo + 1), hi - 2)
        slack = np.int64(np.sqrt(np.float64(hi - lo))) + 2
        if load(address, guess * stride) < hashed:
            far = min(guess + slack, hi - 1)
            if load(address, far * stride) < hashed:
                lo = far + 1
            else:
                lo = guess + 1
                hi = far + 1
        else:
            near = max(guess - slack, lo)
            if load(address, near * stride) >= hashed:
                hi = near + 1
            else:
                lo = near + 1
                hi = guess + 1
    while lo < hi:
        middle = (lo + hi) >> 1
        if load(address, middle * stride) < hashed:
            lo = middle + 1
        else:
            hi = middle
    return lo


@njit(cache=True, inline="always")
def is_key(table: np.ndarray, layer: int, at: int, keyed: np.ndarray, i: int, k: int) -> bool:
    """Whether the layer's key at `at`, whose hash is right, is key i."""
    if k > 1:
        for c in range(k):
            if load(table[layer, KEY_WORDS], at * table[layer, KEY_STRIDE] + c) != keyed[i, 1 + c]:
                return False
    return True


@njit(cache=True, inline="always")
def advance(table: np.ndarray, layer: int, lo: int, hashed: int, left: int) -> int:
    """The first position from `lo` on whose hash is not below `hashed`; `left` keys of the list are still to come.

    By single steps where the layer is not much longer than the list of keys, by interpolation where it is.
    """
    size, address, stride = table[layer, KEYS], table[layer, HASHES], table[layer, HASH_STRIDE]
    if size - lo <= 4 * left:
        while lo < size and load(address, lo * stride) < hashed:
            lo += 1
        return lo
    if lo < size and load(address, lo * stride) < hashed:
        return seek(address, stride, lo + 1, size, hashed)
    return lo


@njit(cache=True, inline="always")
def place(table: np.ndarray, layer: int, lo: int, keyed: np.ndarray, i: int, k: int) -> int:
    """Where key i is among the keys from `lo` on that have its hash, or -1."""
    size, address, stride = table[layer, KEYS], table[layer, HASHES], table[layer, HASH_STRIDE]
    while lo < size and load(address, lo * stride) == keyed[i, 0]:
        if is_key(table, layer, lo, keyed, i, k):
            return lo
        lo += 1
    return -1


@njit(cache=True, inline="always")
def read_entries(table, layer, val, start, stop, v, d, rows, n):  # type: ignore[no-untyped-def]
    """Copy entries [start, stop) of a layer, the first of them of val `val`, behind rows[:n]; returns the new n."""
    vals, val_stride, val_offsets = table[layer, VALS], table[layer, VAL_STRIDE], table[layer, VAL_OFFSETS]
    times, time_stride = table[layer, TIMES], table[layer, TIME_STRIDE]
    rounds, round_stride = table[layer, ROUNDS], table[layer, ROUND_STRIDE]
    diffs, diff_stride = table[layer, DIFFS], table[layer, DIFF_STRIDE]
    next_val = stop if val_offsets == 0 else load(val_offsets, val + 1)
    for e in range(start, stop):
        if val_offsets == 0:
            val = e
        elif e == next_val:
            val += 1
            next_val = load(val_offsets, val + 1)
        for c in range(v):
            put(rows, n, c, load(vals, val * val_stride + c))
        put(rows, n, v, load(times, e * time_stride))
        for c in range(d):
            put(rows, n, v + 1 + c, load(rounds, e * round_stride + c))
        put(rows, n, v + 1 + d, load(diffs, e * diff_stride))
        n += 1
    return n


@njit(cache=True, inline="always")
def _compare_val(table, layer, val, rows, i, first, v):  # type: ignore[no-untyped-def]
    """How the layer's val compares with the words rows[i, first : first + v]: -1, 0 or 1."""
    address, stride = table[layer, VALS], table[layer, VAL_STRIDE]
    for c in range(v):
        here, there = load(address, val * stride + c), rows[i, first + c]
        if here != there:
            return -1 if here < there else 1
    return 0


@njit(cache=True)
def count_rows(table, rows, k, v):  # type: ignore[no-untyped-def]
    """How often each of n rows is in all layers together: (int64[n], status).

    rows[n, >= 1 + k + v]: `[hash | key | val | …]`, sorted, equal ones side by side. O(layers x log vals of the key) a
    row, so the other rows of a key cost nothing.
    """
    n, layers = rows.shape[0], table.shape[0]
    counts = np.empty(n, np.int64)
    positions = np.zeros(layers, np.int64)
    places = np.empty(layers, np.int64)
    for i in range(n):
        new_key = i == 0
        new_val = new_key
        if not new_key:
            for c in range(1 + k + v):
                if rows[i, c] != rows[i - 1, c]:
                    new_val = True
                    new_key = c < 1 + k
                    break
        if not new_val:
            counts[i] = counts[i - 1]
            continue
        total = np.int64(0)
        for layer in range(layers):
            if new_key:
                positions[layer] = advance(table, layer, positions[layer], rows[i, 0], n - i)
                places[layer] = place(table, layer, positions[layer], rows, i, k)
            at = places[layer]
            if at < 0:
                continue
            lo = at if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], at)
            end = at + 1 if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], at + 1)
            hi = end
            while lo < hi:
                middle = (lo + hi) >> 1
                if _compare_val(table, layer, middle, rows, i, 1 + k, v) < 0:
                    lo = middle + 1
                else:
                    hi = middle
            if lo == end or _compare_val(table, layer, lo, rows, i, 1 + k, v) != 0:
                continue
            start = lo if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], lo)
            stop = lo + 1 if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], lo + 1)
            # Without offsets every update has a val of its own, equal ones side by side.
            while stop < end and table[layer, VAL_OFFSETS] == 0:
                if _compare_val(table, layer, stop, rows, i, 1 + k, v) != 0:
                    break
                stop += 1
            for e in range(start, stop):
                total, wrapped = add_checked(total, load(table[layer, DIFFS], e * table[layer, DIFF_STRIDE]))
                if wrapped:
                    return counts[:0], OVERFLOW
        counts[i] = total
    return counts, 0
