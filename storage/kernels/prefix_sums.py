"""Partial sums along the vals of a batch, and rows whose copies a batch makes negative.

The vals of a key are sorted, so what comes before a val in that order is a difference of two partial sums: of copies,
and of a column's values times copies. A large batch has partial sums at every STEP-th val; from there on vals are
added up. Batches are immutable, so their sums are, too, and what several batches have adds up.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASHES,
    KEY_OFFSETS,
    KEY_STRIDE,
    KEY_WORDS,
    KEYS,
    VAL_COUNT,
    VAL_OFFSETS,
    narrow,
    offset,
    val_word,
)
from vernier.storage.kernels.wide import add_wide, multiply_wide

STEP = 64
"""How many vals apart the partial sums are."""
COPIES, HIGH, LOW, VALUES, SUMS = range(5)
"""Words of a partial sum: copies; the sum of a column's values times copies, modulo 2**128; copies of values that are
not null. Their number."""
PLACES, OWING, OWING_COUNT, KNOWN, INDEX_WORDS = range(5)
"""Words by which another kernel finds what a prefix index knows (storage/trace/prefix_index.py): where the places of
the partial sums of each batch are; the hashes of keys that owe copies, with their number; of how many batches, from the
first on, these are known."""
_LEAST = np.int64(-(2**63))


@inlined
def copies_of_val(table, batch, val):  # type: ignore[no-untyped-def]
    """The copies of a val of a batch, modulo 2**64."""
    diffs, stride = cell(table, batch, DIFFS), cell(table, batch, DIFF_STRIDE)
    copies, val_offsets = np.int64(0), cell(table, batch, VAL_OFFSETS)
    for e in range(offset(val_offsets, val), offset(val_offsets, val + 1)):
        copies += narrow(diffs, e * stride)
    return copies


@inlined
def add_value(totals, at, high, low, copies):  # type: ignore[no-untyped-def]
    """Add copies of a 128-bit value to the sum in totals[at], modulo 2**128."""
    hi, lo = multiply_wide(low, copies)
    # The low half of the value is unsigned.
    hi += high * copies + (copies if low < 0 else np.int64(0))
    hi, lo = add_wide(cell(totals, at, HIGH), cell(totals, at, LOW), hi, lo)
    put(totals, at, HIGH, hi)
    put(totals, at, LOW, lo)


@inlined
def add_vals(table, batch, first, stop, column, words, flag, sign, totals, at):  # type: ignore[no-untyped-def]
    """Add the vals [first, stop) of a batch to totals[at], `sign` times.

    column: the first word of the column that is summed, -1 for none; words: how many it has, 1 or 2; flag: the word
    that is 0 where it is null, or -1.
    """
    copied = cell(totals, at, COPIES)
    for val in range(first, stop):
        copies = sign * copies_of_val(table, batch, val)
        copied += copies
        if column < 0:
            continue
        if flag >= 0 and val_word(table, batch, val, flag) == 0:
            continue
        put(totals, at, VALUES, cell(totals, at, VALUES) + copies)
        one = val_word(table, batch, val, column)
        if words == 2:
            add_value(totals, at, one, val_word(table, batch, val, column + 1) ^ _LEAST, copies)
        else:
            add_value(totals, at, one >> 63, one, copies)
    put(totals, at, COPIES, copied)


@inlined
def add_before(table, batch, sums, val, column, words, flag, sign, totals, at):  # type: ignore[no-untyped-def]
    """Add what comes before a val in the whole batch to totals[at], `sign` times. sums: where the batch's partial sums
    are."""
    block = val // STEP
    if block > 0:
        base = 8 * block * SUMS
        put(totals, at, COPIES, cell(totals, at, COPIES) + sign * load(sums + base, COPIES))
        put(totals, at, VALUES, cell(totals, at, VALUES) + sign * load(sums + base, VALUES))
        hi, lo = load(sums + base, HIGH), load(sums + base, LOW)
        if sign < 0:
            # -x is ~x + 1
            hi, lo = add_wide(~hi, ~lo, np.int64(0), np.int64(1))
        hi, lo = add_wide(cell(totals, at, HIGH), cell(totals, at, LOW), hi, lo)
        put(totals, at, HIGH, hi)
        put(totals, at, LOW, lo)
    add_vals(table, batch, block * STEP, val, column, words, flag, sign, totals, at)


@inlined
def add_between(table, batch, sums, first, stop, column, words, flag, totals, at):  # type: ignore[no-untyped-def]
    """Add the vals [first, stop) of a batch to totals[at]. sums: where its partial sums are, 0 if it has none."""
    if sums == 0 or stop - first <= STEP:
        add_vals(table, batch, first, stop, column, words, flag, np.int64(1), totals, at)
        return
    add_before(table, batch, sums, stop, column, words, flag, np.int64(1), totals, at)
    add_before(table, batch, sums, first, column, words, flag, np.int64(-1), totals, at)


@njit(cache=True)
def extend_sums(table, batch, first, stop, column, words, flag, sums):  # type: ignore[no-untyped-def]
    """Continue the partial sums of a batch from val `first` to val `stop`.

    sums[blocks + 1, SUMS]: of block b (from 1 on), the sum of all vals before number b * STEP; of block 0, of all vals
    so far. column, words, flag: see `add_vals`. O(vals).
    """
    while first < stop:
        last = min(stop, (first // STEP + 1) * STEP)
        add_vals(table, batch, first, last, column, words, flag, np.int64(1), sums, 0)
        if last % STEP == 0:
            for c in range(SUMS):
                put(sums, last // STEP, c, cell(sums, 0, c))
        first = last


@inlined
def _alike(table, batch, one, two, v):  # type: ignore[no-untyped-def]
    """Whether two vals of a batch are equal."""
    for c in range(v):
        if val_word(table, batch, one, c) != val_word(table, batch, two, c):
            return False
    return True


@njit(cache=True)
def owing_keys(table, batch, k, v):  # type: ignore[no-untyped-def]
    """The hashes of the keys with rows of which this batch takes more copies than it and the batches before it have.

    If no batch of a trace has such keys, no row has negative copies. table: addresses of the batches
    (kernels/tries.py), oldest first. Returns (hashes, sorted, with repetitions; status). O(vals + vals that lose copies
    x (batches + log rows)).
    """
    none = np.empty(0, np.int64)
    diffs, stride = cell(table, batch, DIFFS), cell(table, batch, DIFF_STRIDE)
    if cell(table, batch, VAL_COUNT) == 0 or (stride == 0 and narrow(diffs, 0) > 0):
        return none, 0
    rows, taken, n = np.empty((16, 1 + k + v), np.int64), np.empty((16, 1), np.int64), 0
    for key in range(cell(table, batch, KEYS)):
        val = offset(cell(table, batch, KEY_OFFSETS), key)
        end = offset(cell(table, batch, KEY_OFFSETS), key + 1)
        while val < end:
            # Without offsets each update has a val of its own, and equal vals are adjacent.
            head, copies = val, np.int64(0)
            while val < end and (val == head or _alike(table, batch, head, val, v)):
                copies += copies_of_val(table, batch, val)
                val += 1
            if copies >= 0:
                continue
            if n == rows.shape[0]:
                rows, taken = more_rows(rows, n), more_rows(taken, n)
            put(rows, n, 0, load(cell(table, batch, HASHES), key))
            for c in range(k):
                at = key * cell(table, batch, KEY_STRIDE) + c
                put(rows, n, 1 + c, load(cell(table, batch, KEY_WORDS), at) if k > 1 else np.int64(0))
            for c in range(v):
                put(rows, n, 1 + k + c, val_word(table, batch, head, c))
            put(taken, n, 0, copies)
            n += 1
    if n == 0:
        return none, 0
    rows = rows[:n]
    counts, status = count_rows(table[:batch], rows, key_runs(rows, k), k, v)
    if status != 0:
        return none, status
    found, m = np.empty(n, np.int64), 0
    for i in range(n):
        left, wrapped = add_checked(word(counts, i), cell(taken, i, 0))
        if wrapped:
            return none, OVERFLOW
        if left < 0:
            put_word(found, m, cell(rows, i, 0))
            m += 1
    return found[:m], 0
