"""Find keys in batches, read their entries, and count rows."""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.pointers import equal_words, load
from vernier.storage.kernels.separate import NOTHING, NUMBER, ROWS, WORDS, separate
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import (
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
    VAL_COUNT,
    VAL_OFFSETS,
    VAL_STRIDE,
    VALS,
    narrow,
    offset,
    val_word,
)

_LINEAR = 16
_BLOCK = 8
_STEPS = 32
"""If a batch has at most this many keys per key searched for, they are scanned a block at a time."""


@njit(cache=True)
def seek(address: int, stride: int, lo: int, hi: int, hashed: int) -> int:
    """First position in [lo, hi) of the sorted words at `address`, `stride` apart, that is >= hashed, or hi.

    Hashes are uniform, so interpolation lands close: a few interpolation steps, then binary search.
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
def is_key(table: np.ndarray, batch: int, at: int, keyed: np.ndarray, i: int, k: int) -> bool:
    """Whether the batch's key at position `at`, whose hash matches already, is key i."""
    if k > 1:
        for c in range(k):
            if load(table[batch, KEY_WORDS], at * table[batch, KEY_STRIDE] + c) != keyed[i, 1 + c]:
                return False
    return True


@njit(cache=True, inline="always")
def _count_below(address: int, lo: int, hi: int, size: int, wanted: int) -> int:
    """How many of the sorted words [lo, hi) at `address` are below `wanted`, looking at the first _BLOCK of them at
    most. There are `size` words in total."""
    below = 0
    if size - lo >= _BLOCK:
        # Without branches, so it vectorizes: words behind `hi` are read but not counted.
        reach = hi - lo
        for j in range(_BLOCK):
            below += (1 if load(address, lo + j) < wanted else 0) & (1 if j < reach else 0)
        return below
    while lo + below < hi and load(address, lo + below) < wanted:
        below += 1
    return below


@njit(cache=True, inline="always")
def advance(address: int, size: int, lo: int, hashed: int, left: int) -> int:
    """The first position from `lo` on whose hash is not below `hashed`, among `size` hashes at `address`; `left` keys
    of the list are still to come.

    Scans a block at a time if there are not many more hashes than keys left, else interpolates.
    """
    if size - lo <= _STEPS * left:
        while lo + _BLOCK <= size and load(address, lo + _BLOCK - 1) < hashed:
            lo += _BLOCK
        return lo + _count_below(address, lo, size, size, hashed)
    if lo < size and load(address, lo) < hashed:
        return seek(address, 1, lo + 1, size, hashed)
    return lo


@njit(cache=True, inline="always")
def place(table: np.ndarray, batch: int, lo: int, keyed: np.ndarray, i: int, k: int) -> int:
    """The position of key i among the keys from `lo` on that have its hash, or -1."""
    size, address, stride = table[batch, KEYS], table[batch, HASHES], table[batch, HASH_STRIDE]
    while lo < size and load(address, lo * stride) == keyed[i, 0]:
        if is_key(table, batch, lo, keyed, i, k):
            return lo
        lo += 1
    return -1


@njit(cache=True, inline="always")
def read_entries(table, batch, val, start, stop, v, d, rows, n):  # type: ignore[no-untyped-def]
    """Copy entries [start, stop) of a batch, the first of which belongs to val `val`, behind rows[:n]; returns the new
    n."""
    vals, val_stride, val_offsets = table[batch, VALS], table[batch, VAL_STRIDE], table[batch, VAL_OFFSETS]
    times, time_stride = table[batch, TIMES], table[batch, TIME_STRIDE]
    rounds, round_stride = table[batch, ROUNDS], table[batch, ROUND_STRIDE]
    diffs, diff_stride = table[batch, DIFFS], table[batch, DIFF_STRIDE]
    next_val = stop if val_offsets == 0 else narrow(val_offsets, val + 1)
    for e in range(start, stop):
        if val_offsets == 0:
            val = e
        elif e == next_val:
            val += 1
            next_val = narrow(val_offsets, val + 1)
        for c in range(v):
            put(rows, n, c, narrow(vals, val * val_stride + c))
        put(rows, n, v, load(times, e * time_stride))
        for c in range(d):
            put(rows, n, v + 1 + c, narrow(rounds, e * round_stride + c))
        put(rows, n, v + 1 + d, narrow(diffs, e * diff_stride))
        n += 1
    return n


@njit(cache=True, inline="always")
def _compare_val(table, batch, val, rows, i, first, v):  # type: ignore[no-untyped-def]
    """Compares the batch's val with the words rows[i, first : first + v]: -1, 0 or 1."""
    for c in range(v):
        here, there = val_word(table, batch, val, c), cell(rows, i, first + c)
        if here != there:
            return -1 if here < there else 1
    return 0


@separate(WORDS, ROWS, NUMBER)
@njit(cache=True)
def key_runs(rows: np.ndarray, k: int) -> np.ndarray:
    """Offsets of the runs of equal keys in keyed rows `[hash | key (k) | …]` sorted by key: int64[keys + 1]."""
    n = rows.shape[0]
    offsets = np.empty(n + 1, np.int64)
    count = 0
    for i in range(n):
        fresh = i == 0
        if not fresh:
            for c in range(1 + k):
                if rows[i, c] != rows[i - 1, c]:
                    fresh = True
                    break
        if fresh:
            offsets[count] = i
            count += 1
    offsets[count] = n
    return offsets[: count + 1]


@separate(NOTHING, ROWS, NUMBER, ROWS, WORDS, NUMBER, WORDS)
@njit(cache=True)
def locate_keys(table, batch, rows, runs, k, places):  # type: ignore[no-untyped-def]
    """Write into places[q] the position of each run's key among the keys of a settled batch, -1 if it is not there.

    rows[n, >= 1 + k], runs[q + 1]: as key_runs returns them. O(q) probes of a long batch, O(q + keys) of a short one.
    """
    q = runs.shape[0] - 1
    size, address = cell(table, batch, KEYS), cell(table, batch, HASHES)
    lo = 0
    for i in range(q):
        row = word(runs, i)
        hashed = cell(rows, row, 0)
        lo = advance(address, size, lo, hashed, q - i)
        if k == 1:
            found = lo < size and load(address, min(lo, size - 1)) == hashed
            put_word(places, i, lo if found else -1)
        else:
            put_word(places, i, place(table, batch, lo, rows, row, k))


@njit(cache=True)
def _add_run(table, batch, at, rows, first, last, k, v, again, counts):  # type: ignore[no-untyped-def]
    """Add to counts[first:last] the multiplicities, in one batch, of the rows of the key at position `at`; returns
    whether a sum left int64. again[row]: 1 if the row equals the row before it."""
    key_offsets, val_offsets = cell(table, batch, KEY_OFFSETS), cell(table, batch, VAL_OFFSETS)
    vals, val_count = cell(table, batch, VALS), cell(table, batch, VAL_COUNT)
    diffs, diff_stride = cell(table, batch, DIFFS), cell(table, batch, DIFF_STRIDE)
    lo = offset(key_offsets, at)
    end = offset(key_offsets, at + 1)
    for row in range(first, last):
        if again[row] == 1:
            continue
        hi = end
        while hi - lo > _BLOCK:
            middle = (lo + hi) >> 1
            if _compare_val(table, batch, middle, rows, row, 1 + k, v) < 0:
                lo = middle + 1
            else:
                hi = middle
        order = 1
        if v == 1 and (vals & 7) == 0:
            lo += _count_below(vals, lo, hi, val_count, cell(rows, row, 1 + k))
            if lo < end:
                order = 0 if load(vals, lo) == cell(rows, row, 1 + k) else 1
        else:
            while lo < end:
                order = _compare_val(table, batch, lo, rows, row, 1 + k, v)
                if order >= 0:
                    break
                lo += 1
        if lo == end:
            break
        if order > 0:
            continue
        start = offset(val_offsets, lo)
        stop = offset(val_offsets, lo + 1)
        # Without offsets every update has a val of its own, and equal vals are adjacent.
        while stop < end and val_offsets == 0 and _compare_val(table, batch, stop, rows, row, 1 + k, v) == 0:
            stop += 1
        for e in range(start, stop):
            total, wrapped = add_checked(word(counts, row), narrow(diffs, e * diff_stride))
            if wrapped:
                return True
            put_word(counts, row, total)
    return False


@separate((WORDS, NUMBER), ROWS, ROWS, WORDS, NUMBER, NUMBER)
@njit(cache=True)
def count_rows(table, rows, runs, k, v):  # type: ignore[no-untyped-def]
    """The total multiplicity of each of n rows in all settled batches of a table: (int64[n], status).

    rows[n, >= 1 + k + v]: `[hash | key | val | …]`, sorted, so equal rows are adjacent; runs: as key_runs returns them.
    O(batches x log vals of the key) per row, so a key's other rows cost nothing.
    """
    n, q = rows.shape[0], runs.shape[0] - 1
    counts = np.zeros(n, np.int64)
    again = np.zeros(n, np.int8)  # 1: equals the row before
    for i in range(q):
        for row in range(word(runs, i) + 1, word(runs, i + 1)):
            same = 1
            for c in range(1 + k, 1 + k + v):
                if cell(rows, row, c) != cell(rows, row - 1, c):
                    same = 0
                    break
            again[row] = same
    places = np.empty(q, np.int64)
    for batch in range(table.shape[0]):
        locate_keys(table, batch, rows, runs, k, places)
        key_offsets, vals = cell(table, batch, KEY_OFFSETS), cell(table, batch, VALS)
        diffs, diff_stride = cell(table, batch, DIFFS), cell(table, batch, DIFF_STRIDE)
        plain = v == 1 and (vals & 7) == 0 and cell(table, batch, VAL_OFFSETS) == 0
        last = cell(table, batch, VAL_COUNT) - _BLOCK if plain else np.int64(-1)
        for i in range(q):
            at = word(places, i)
            if at < 0:
                continue
            lo = offset(key_offsets, at)
            end = offset(key_offsets, at + 1)
            if lo > last or end - lo > _BLOCK:
                if _add_run(table, batch, at, rows, word(runs, i), word(runs, i + 1), k, v, again, counts):
                    return counts[:0], OVERFLOW
                continue
            # A few vals of one word with one update each: compare all of them at once.
            for row in range(word(runs, i), word(runs, i + 1)):
                same = equal_words(vals, lo, cell(rows, row, 1 + k)) & ((1 << (end - lo)) - 1)
                if same != 0 and again[row] == 0:
                    for j in range(_BLOCK):
                        if (same >> j) & 1:
                            total, wrapped = add_checked(word(counts, row), narrow(diffs, (lo + j) * diff_stride))
                            if wrapped:
                                return counts[:0], OVERFLOW
                            put_word(counts, row, total)
    for row in range(1, n):
        if again[row] == 1:
            put_word(counts, row, word(counts, row - 1))
    return counts, 0
