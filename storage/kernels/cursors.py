"""Walk many keys through many layers: one call finds, folds and consolidates the histories of all of them."""

import numpy as np
from numba import njit

from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASHES,
    KEY_OFFSETS,
    KEY_WORDS,
    KEYS,
    ROUND_STRIDE,
    ROUNDS,
    TIME_STRIDE,
    TIMES,
    VAL_OFFSETS,
    VALS,
)

_LINEAR = 16


@njit(cache=True)
def seek(address: int, lo: int, hi: int, hashed: int) -> int:
    """First position in [lo, hi) of the sorted words at `address` that is >= hashed, or hi.

    Hashes are uniform, so interpolation lands close: a few steps of it, then binary search.
    """
    for _ in range(3):
        if hi - lo <= _LINEAR:
            break
        first = load(address, lo)
        last = load(address, hi - 1)
        if hashed <= first:
            return lo
        if hashed > last:
            return hi
        share = (np.float64(hashed) - np.float64(first)) / (np.float64(last) - np.float64(first))
        guess = lo + np.int64(share * (hi - 1 - lo))
        guess = min(max(guess, lo + 1), hi - 2)
        slack = np.int64(np.sqrt(np.float64(hi - lo))) + 2
        if load(address, guess) < hashed:
            far = min(guess + slack, hi - 1)
            if load(address, far) < hashed:
                lo = far + 1
            else:
                lo = guess + 1
                hi = far + 1
        else:
            near = max(guess - slack, lo)
            if load(address, near) >= hashed:
                hi = near + 1
            else:
                lo = near + 1
                hi = guess + 1
    while lo < hi:
        middle = (lo + hi) >> 1
        if load(address, middle) < hashed:
            lo = middle + 1
        else:
            hi = middle
    return lo


@njit(cache=True)
def find_keys(table: np.ndarray, keyed: np.ndarray, k: int) -> np.ndarray:
    """Where each of q keys stands in each of l layers: int64[q, l], -1 where it is absent.

    table[l, FIELDS]; keyed[q, >= 1 + k] begins with hash and key words, sorted by hash.
    """
    layers = table.shape[0]
    q = keyed.shape[0]
    found = np.full((q, layers), -1, np.int64)
    for layer in range(layers):
        count = table[layer, KEYS]
        address = table[layer, HASHES]
        lo = 0
        for i in range(q):
            hashed = keyed[i, 0]
            lo = seek(address, lo, count, hashed)
            if k <= 1:
                if lo < count and load(address, lo) == hashed:
                    found[i, layer] = lo
            else:
                at = lo
                while at < count and load(address, at) == hashed:
                    same = True
                    for c in range(k):
                        if load(table[layer, KEY_WORDS], at * k + c) != keyed[i, 1 + c]:
                            same = False
                            break
                    if same:
                        found[i, layer] = at
                        break
                    at += 1
    return found


@njit(cache=True, inline="always")
def _before(rows: np.ndarray, i: int, j: int, v: int, d: int) -> int:
    """Compare histories' rows [vals | time | rounds | diff] by (val, rounds, time)."""
    for c in range(v):
        if rows[i, c] != rows[j, c]:
            return -1 if rows[i, c] < rows[j, c] else 1
    for c in range(v + 1, v + 1 + d):
        if rows[i, c] != rows[j, c]:
            return -1 if rows[i, c] < rows[j, c] else 1
    if rows[i, v] != rows[j, v]:
        return -1 if rows[i, v] < rows[j, v] else 1
    return 0


@njit(cache=True, inline="always")
def _spans(row: np.ndarray, at: int) -> tuple[int, int, int, int]:
    """The vals [v0, v1) and the histories [h0, h1) of the key at position `at` of a layer."""
    v0 = at if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at)
    v1 = at + 1 if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at + 1)
    h0 = v0 if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], v0)
    h1 = v1 if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], v1)
    return v0, v1, h0, h1


@njit(cache=True)
def _merge_runs(rows, bounds, runs, order, spare, v, d):  # type: ignore[no-untyped-def]
    """Order rows whose `runs` consecutive runs (at bounds[: runs + 1]) are sorted, by merging neighbours."""
    while runs > 1:
        kept = 0
        for r in range(0, runs - 1, 2):
            lo, middle, hi = bounds[r], bounds[r + 1], bounds[r + 2]
            if _before(rows, order[middle], order[middle - 1], v, d) < 0:
                i, j, k = lo, middle, lo
                while i < middle and j < hi:
                    if _before(rows, order[j], order[i], v, d) < 0:
                        spare[k] = order[j]
                        j += 1
                    else:
                        spare[k] = order[i]
                        i += 1
                    k += 1
                while i < middle:
                    spare[k] = order[i]
                    i += 1
                    k += 1
                for c in range(lo, k):
                    order[c] = spare[c]
            kept += 1
            bounds[kept] = hi
        if runs % 2:
            kept += 1
            bounds[kept] = bounds[runs]
        runs = kept


@njit(cache=True)
def gather(table: np.ndarray, found: np.ndarray, v: int, d: int, settled: int, fold: int):  # type: ignore
    """The consolidated histories of q keys over l layers.

    Layers `0 .. settled-1` are older than the slice: their times read as `fold`. Returns (offsets[q + 1],
    entries[n, v + 1 + d + 1], status): rows `[val words | time | rounds | diff]` by key, sorted by (val, rounds, time).
    O(history x log layers).
    """
    q, layers = found.shape
    offsets = np.zeros(q + 1, np.int64)
    most = 0
    total = 0
    for i in range(q):
        here = 0
        for layer in range(layers):
            if found[i, layer] >= 0:
                _, _, h0, h1 = _spans(table[layer], found[i, layer])
                here += h1 - h0
        most = max(most, here)
        total += here
    last = v + d + 1
    out = np.empty((total, last + 1), np.int64)
    rows = np.empty((most, last + 1), np.int64)
    order = np.empty(most, np.int64)
    spare = np.empty(most, np.int64)
    bounds = np.empty(layers + 1, np.int64)
    count = 0
    for i in range(q):
        n = 0
        runs = 0
        bounds[0] = 0
        for layer in range(layers):
            at = found[i, layer]
            if at < 0:
                continue
            row = table[layer]
            val, _, h0, h1 = _spans(row, at)
            stop = h1
            for h in range(h0, h1):
                if h == h0 or h == stop:
                    if h != h0:
                        val += 1
                    stop = val + 1 if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], val + 1)
                for c in range(v):
                    rows[n, c] = load(row[VALS], val * v + c)
                rows[n, v] = fold if layer < settled else load(row[TIMES], h * row[TIME_STRIDE])
                for c in range(d):
                    rows[n, v + 1 + c] = load(row[ROUNDS], h * row[ROUND_STRIDE] + c)
                rows[n, last] = load(row[DIFFS], h * row[DIFF_STRIDE])
                order[n] = n
                n += 1
            runs += 1
            bounds[runs] = n
        if runs > 1:
            _merge_runs(rows, bounds, runs, order, spare, v, d)
        e = 0
        while e < n:
            first = order[e]
            sum_ = rows[first, last]
            e += 1
            while e < n and _before(rows, first, order[e], v, d) == 0:
                sum_, wrapped = add_checked(sum_, rows[order[e], last])
                if wrapped:
                    return offsets, out[:0], OVERFLOW
                e += 1
            if sum_ != 0:
                for c in range(last):
                    out[count, c] = rows[first, c]
                out[count, last] = sum_
                count += 1
        offsets[i + 1] = count
    return offsets, out[:count], 0
