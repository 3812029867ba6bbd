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
def _before(a: np.ndarray, i: int, b: np.ndarray, j: int, v: int, d: int) -> int:
    """Compare histories' rows [vals | time | rounds | diff] by (val, rounds, time)."""
    for c in range(v):
        if a[i, c] != b[j, c]:
            return -1 if a[i, c] < b[j, c] else 1
    for c in range(v + 1, v + 1 + d):
        if a[i, c] != b[j, c]:
            return -1 if a[i, c] < b[j, c] else 1
    if a[i, v] != b[j, v]:
        return -1 if a[i, v] < b[j, v] else 1
    return 0


@njit(cache=True)
def gather(table: np.ndarray, found: np.ndarray, v: int, d: int, settled: int, fold: int):  # type: ignore
    """The consolidated histories of q keys over l layers.

    Layers `0 .. settled-1` are older than the slice: their times read as `fold`. Returns (offsets[q + 1],
    entries[n, v + 1 + d + 1], status): rows `[val words | time | rounds | diff]` by key, sorted by (val, rounds, time).
    O(total history x log of layers) as layers are geometric.
    """
    q, layers = found.shape
    offsets = np.zeros(q + 1, np.int64)
    most = 0
    total = 0
    for i in range(q):
        here = 0
        for layer in range(layers):
            at = found[i, layer]
            if at < 0:
                continue
            row = table[layer]
            v0 = at if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at)
            v1 = at + 1 if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at + 1)
            h0 = v0 if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], v0)
            h1 = v1 if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], v1)
            here += h1 - h0
        most = max(most, here)
        total += here
    width = v + d + 2
    out = np.empty((total, width), np.int64)
    run = np.empty((most, width), np.int64)
    acc = np.empty((most, width), np.int64)
    spare = np.empty((most, width), np.int64)
    count = 0
    for i in range(q):
        held = 0
        for layer in range(layers - 1, -1, -1):
            at = found[i, layer]
            if at < 0:
                continue
            row = table[layer]
            v0 = at if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at)
            v1 = at + 1 if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at + 1)
            n = 0
            for val in range(v0, v1):
                h0 = val if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], val)
                h1 = val + 1 if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], val + 1)
                for h in range(h0, h1):
                    for c in range(v):
                        run[n, c] = load(row[VALS], val * v + c)
                    run[n, v] = fold if layer < settled else load(row[TIMES], h * row[TIME_STRIDE])
                    for c in range(d):
                        run[n, v + 1 + c] = load(row[ROUNDS], h * row[ROUND_STRIDE] + c)
                    run[n, width - 1] = load(row[DIFFS], h * row[DIFF_STRIDE])
                    n += 1
            # Merge this layer's run with what newer layers gave; equal rows become one.
            a, b, m = 0, 0, 0
            while a < held or b < n:
                if a < held and (b >= n or _before(acc, a, run, b, v, d) <= 0):
                    if m > 0 and _before(spare, m - 1, acc, a, v, d) == 0:
                        sum_, wrapped = add_checked(spare[m - 1, width - 1], acc[a, width - 1])
                        if wrapped:
                            return offsets, out[:0], OVERFLOW
                        spare[m - 1, width - 1] = sum_
                    else:
                        if m > 0 and spare[m - 1, width - 1] == 0:
                            m -= 1
                        spare[m] = acc[a]
                        m += 1
                    a += 1
                else:
                    if m > 0 and _before(spare, m - 1, run, b, v, d) == 0:
                        sum_, wrapped = add_checked(spare[m - 1, width - 1], run[b, width - 1])
                        if wrapped:
                            return offsets, out[:0], OVERFLOW
                        spare[m - 1, width - 1] = sum_
                    else:
                        if m > 0 and spare[m - 1, width - 1] == 0:
                            m -= 1
                        spare[m] = run[b]
                        m += 1
                    b += 1
            if m > 0 and spare[m - 1, width - 1] == 0:
                m -= 1
            held = m
            acc, spare = spare, acc
        for e in range(held):
            out[count] = acc[e]
            count += 1
        offsets[i + 1] = count
    return offsets, out[:count], 0
