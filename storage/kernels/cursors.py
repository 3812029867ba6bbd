"""Walk many keys through many layers: one call finds, folds and consolidates the histories of all of them."""

import numpy as np
from numba import njit

from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    FLAT,
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
def _is_key(row: np.ndarray, at: int, keyed: np.ndarray, i: int, k: int) -> bool:
    """Whether the layer's key at `at`, whose hash is right, is key i."""
    if k > 1:
        for c in range(k):
            if load(row[KEY_WORDS], at * row[KEY_STRIDE] + c) != keyed[i, 1 + c]:
                return False
    return True


@njit(cache=True)
def _find_in_layer(row, keyed, k, number, hits, count):  # type: ignore[no-untyped-def]
    """Add `[key, layer number, first val, first entry, end of entries]` for each of q keys that the layer has.

    Goes through both in step: from one key to the next by single steps where the layer is not much longer than the
    list of keys, by interpolation where it is. Returns (hits, grown when full, and how many there are).
    """
    q = keyed.shape[0]
    size, address, stride = row[KEYS], row[HASHES], row[HASH_STRIDE]
    lo, i = 0, 0
    while i < q and lo < size:
        hashed = keyed[i, 0]
        here = load(address, lo * stride)
        if here < hashed:
            lo += 1
            if (size - lo) <= 4 * (q - i):
                while lo < size and load(address, lo * stride) < hashed:
                    lo += 1
            else:
                lo = seek(address, stride, lo, size, hashed)
            if lo == size:
                break
            here = load(address, lo * stride)
        if here > hashed:
            i += 1
            while i < q and keyed[i, 0] < here:
                i += 1
            continue
        at = lo
        while at < size and load(address, at * stride) == hashed and not _is_key(row, at, keyed, i, k):
            at += 1
        if at < size and load(address, at * stride) == hashed:
            if row[FLAT] == 1:
                val = start = at
                stop = at + 1
                while stop < size and load(address, stop * stride) == hashed and _is_key(row, stop, keyed, i, k):
                    stop += 1
            else:
                val = at if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at)
                end = at + 1 if row[KEY_OFFSETS] == 0 else load(row[KEY_OFFSETS], at + 1)
                start = val if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], val)
                stop = end if row[VAL_OFFSETS] == 0 else load(row[VAL_OFFSETS], end)
            if count == hits.shape[0]:
                more = np.empty((2 * count, 5), np.int64)
                more[:count] = hits
                hits = more
            hits[count, 0], hits[count, 1], hits[count, 2] = i, number, val
            hits[count, 3], hits[count, 4] = start, stop
            count += 1
        i += 1
    return hits, count


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
def select_keys(table, keyed, k, v, d, settled, fold):  # type: ignore[no-untyped-def]
    """The consolidated histories of q keys over l layers.

    table[l, FIELDS]; keyed[q, >= 1 + k] begins with hash and key words: distinct, sorted by hash. Layers
    `0 .. settled-1` are older than the slice: their times read as `fold`. Returns (offsets[q + 1],
    entries[n, v + 1 + d + 1], status): rows `[val words | time | rounds | diff]` by key, sorted by (val, rounds, time).
    O(history x log layers).
    """
    q, layers = keyed.shape[0], table.shape[0]
    hits, found = np.empty((2 * q + 16, 5), np.int64), 0
    for layer in range(layers):
        hits, found = _find_in_layer(table[layer], keyed, k, layer, hits, found)
    # Hits by key, in the order of layers.
    offsets = np.zeros(q + 1, np.int64)
    sizes = np.zeros(q, np.int64)
    total = 0
    for h in range(found):
        size = hits[h, 4] - hits[h, 3]
        offsets[hits[h, 0] + 1] += 1
        sizes[hits[h, 0]] += size
        total += size
    most = 0
    for i in range(q):
        offsets[i + 1] += offsets[i]
        most = max(most, sizes[i])
    by_key = np.empty(found, np.int64)
    for h in range(found):
        i = hits[h, 0]
        by_key[offsets[i]] = h
        offsets[i] += 1

    last = v + d + 1
    out = np.empty((total, last + 1), np.int64)
    rows = np.empty((most, last + 1), np.int64)
    order = np.empty(most, np.int64)
    spare = np.empty(most, np.int64)
    bounds = np.empty(layers + 1, np.int64)
    count, hit = 0, 0
    bounds[0] = 0
    for i in range(q):
        end = offsets[i]
        offsets[i] = count
        n, runs = 0, 0
        while hit < end:
            h = by_key[hit]
            hit += 1
            layer, val, start, stop = hits[h, 1], hits[h, 2], hits[h, 3], hits[h, 4]
            row = table[layer]
            vals, val_stride, val_offsets = row[VALS], row[VAL_STRIDE], row[VAL_OFFSETS]
            next_val = stop if val_offsets == 0 else load(val_offsets, val + 1)
            for e in range(start, stop):
                if val_offsets == 0:
                    val = e
                elif e == next_val:
                    val += 1
                    next_val = load(val_offsets, val + 1)
                for c in range(v):
                    rows[n, c] = load(vals, val * val_stride + c)
                rows[n, v] = fold if layer < settled else load(row[TIMES], e * row[TIME_STRIDE])
                for c in range(d):
                    rows[n, v + 1 + c] = load(row[ROUNDS], e * row[ROUND_STRIDE] + c)
                rows[n, last] = load(row[DIFFS], e * row[DIFF_STRIDE])
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
    offsets[q] = count
    return offsets, out[:count], 0
