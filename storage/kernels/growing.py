"""A trie built incrementally from pieces of its keys, in key order, so that memory grows only with what has been added.

Its arrays are allocated at full size at the start; pages that are never written take no memory. A column that is
constant, or offsets that count 0, 1, 2 …, are allocated once that is no longer true.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word
from vernier.storage.kernels.consolidating import consolidate
from vernier.storage.kernels.tries import describe

NK, NV, N, COUNTS = range(4)
"""The counts of a growing trie: keys, vals, updates, and the number of counts."""


@njit(cache=True)
def begin_trie(rows, k, v, d):  # type: ignore[no-untyped-def]
    """(counts, columns) of an empty trie with capacity for this many rows. Pages take no memory until they are
    written."""
    columns = (
        np.empty(rows, np.int64),
        np.empty((rows if k > 1 else 0, k), np.int64),
        np.empty(0, np.int64),
        np.empty((rows, v), np.int64),
        np.empty(0, np.int64),
        np.empty(1, np.int64),
        np.empty((1, d), np.int64),
        np.empty(1, np.int64),
    )
    return np.zeros(COUNTS, np.int64), columns


@njit(cache=True)
def _offsets(known, rows):  # type: ignore[no-untyped-def]
    """Capacity for the offsets of `rows` items, of which the first `known` count 0, 1, 2 …."""
    offsets = np.empty(rows + 1, np.int64)
    for i in range(known):
        put_word(offsets, i, i)
    return offsets


@njit(cache=True)
def _room(column, n, rows):  # type: ignore[no-untyped-def]
    """A column with capacity for `rows` words that begins with n copies of the constant in `column`."""
    wide = np.empty(rows, np.int64)
    wide[:n] = column[0]
    return wide


@njit(cache=True)
def _append_rows(left, k, v, d, counts, columns):  # type: ignore[no-untyped-def]
    """Append keyed rows, sorted and consolidated, whose keys follow those already there, to a growing trie. Returns its
    columns, some of which may have been reallocated. O(rows)."""
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = columns
    m, at_time, last = left.shape[0], 1 + k + v, 2 + k + v + d
    rows = hashes.shape[0]
    nk, nv, n = counts[NK], counts[NV], counts[N]
    if m == 0:
        return columns
    if n == 0:
        times[0], diffs[0] = cell(left, 0, at_time), cell(left, 0, last)
        for c in range(d):
            put(rounds, 0, c, cell(left, 0, at_time + 1 + c))
    begins = np.empty(m, np.int8)  # 2: a new key, 1: a new val of the same key, 0: neither
    more_vals, more_rows = False, False
    one_time, one_round, one_diff = times.shape[0] == 1, rounds.shape[0] == 1, diffs.shape[0] == 1
    for i in range(m):
        begin = 2 if i == 0 else 0
        if i > 0:
            for c in range(1 + k + v):
                if cell(left, i, c) != cell(left, i - 1, c):
                    begin = 2 if c <= k else 1
                    break
        begins[i] = begin
        more_vals |= begin == 1
        more_rows |= begin == 0
        one_time &= cell(left, i, at_time) == times[0]
        one_diff &= cell(left, i, last) == diffs[0]
        for c in range(d):
            one_round &= cell(left, i, at_time + 1 + c) == cell(rounds, 0, c)
    # Allocate outside the loops, so that the columns are fixed inside them.
    if key_offsets.shape[0] == 0 and more_vals:
        key_offsets = _offsets(nk, rows)
    if val_offsets.shape[0] == 0 and more_rows:
        val_offsets = _offsets(nv, rows)
    if times.shape[0] == 1 and not one_time:
        times = _room(times, n, rows)
    if diffs.shape[0] == 1 and not one_diff:
        diffs = _room(diffs, n, rows)
    if rounds.shape[0] == 1 and not one_round:
        alone = rounds
        rounds = np.empty((rows, d), np.int64)
        for e in range(n):
            for c in range(d):
                put(rounds, e, c, cell(alone, 0, c))
    has_keys, has_vals = key_offsets.shape[0] > 0, val_offsets.shape[0] > 0
    has_times, has_rounds, has_diffs = times.shape[0] > 1, rounds.shape[0] > 1, diffs.shape[0] > 1
    for i in range(m):
        if begins[i] == 2:
            put_word(hashes, nk, cell(left, i, 0))
            if k > 1:
                for c in range(k):
                    put(keys, nk, c, cell(left, i, 1 + c))
            if has_keys:
                put_word(key_offsets, nk, nv)
            nk += 1
        if begins[i] > 0:
            for c in range(v):
                put(vals, nv, c, cell(left, i, 1 + k + c))
            if has_vals:
                put_word(val_offsets, nv, n)
            nv += 1
        if has_times:
            put_word(times, n, cell(left, i, at_time))
        if has_rounds:
            for c in range(d):
                put(rounds, n, c, cell(left, i, at_time + 1 + c))
        if has_diffs:
            put_word(diffs, n, cell(left, i, last))
        n += 1
    counts[NK], counts[NV], counts[N] = nk, nv, n
    return hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs


@njit(cache=True)
def append_piece(rows, columns, k, v, d, counts, trie):  # type: ignore[no-untyped-def]
    """Sort and consolidate keyed rows whose keys follow those already there, and append them to a growing trie: (its
    columns, status). If a sum overflows, the trie is emptied. columns: those that sort keyed rows."""
    left, status = consolidate(rows, columns)
    if status != 0:
        counts[:] = 0
        return trie, status
    return _append_rows(left, k, v, d, counts, trie), status


@njit(cache=True)
def _fit(column, size):  # type: ignore[no-untyped-def]
    """The column without its unused tail. Copied if more than half is unused, because the tail may have been written to
    before."""
    return column[:size].copy() if 2 * size < column.shape[0] else column[:size]


@njit(cache=True)
def _fit_rows(column, size):  # type: ignore[no-untyped-def]
    """Like `_fit`, for a matrix."""
    return column[:size].copy() if 2 * size < column.shape[0] else column[:size]


@njit(cache=True)
def finish_trie(counts, columns):  # type: ignore[no-untyped-def]
    """The columns of a finished trie, in the order of a batch's, followed by their row of addresses. Each has an
    allocation of its own, so the copy that kernels.tries.pack makes is avoided."""
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = columns
    nk, nv, n = counts[NK], counts[NV], counts[N]
    hashes = _fit(hashes, nk)
    keys = _fit_rows(keys, nk if keys.shape[0] > 0 else 0)
    vals = _fit_rows(vals, nv)
    if key_offsets.shape[0] > 0:
        put_word(key_offsets, nk, nv)
        key_offsets = _fit(key_offsets, nk + 1)
    if val_offsets.shape[0] > 0:
        put_word(val_offsets, nv, n)
        val_offsets = _fit(val_offsets, nv + 1)
    times = _fit(times, n if times.shape[0] > 1 else min(n, 1))
    rounds = _fit_rows(rounds, n if rounds.shape[0] > 1 else min(n, 1))
    diffs = _fit(diffs, n if diffs.shape[0] > 1 else min(n, 1))
    address = describe(hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, n)
    return hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, address
