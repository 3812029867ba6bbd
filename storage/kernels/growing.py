"""A trie built incrementally from pieces of its keys, in key order, so that memory grows only with what has been added.

Its arrays are allocated at full size at the start; pages that are never written take no memory. A column that is
constant, or offsets that count 0, 1, 2 …, are allocated once that is no longer true.

Rounds and diffs are small numbers, as vals often are, and a loop's arrangement has a round and a diff for each update.
So a number takes one, two, four or eight bytes, as the largest of its column needs, and an offset four
(kernels/tries.py): a batch of a load has a quarter of the memory. A column becomes wider when a number comes that does
not fit; that happens at most three times.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word
from vernier.storage.kernels.consolidating import consolidate
from vernier.storage.kernels.pointers import store_unaligned
from vernier.storage.kernels.separate import NUMBER, ROWS, WORDS, separate, types
from vernier.storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    FIELDS,
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
    UPDATES,
    VAL_COUNT,
    VAL_OFFSETS,
    VAL_STRIDE,
    VALS,
    narrow,
)

NK, NV, N, VAL_BYTES, ROUND_BYTES, DIFF_BYTES, VAL_WORDS, DEPTH, COUNTS = range(9)
"""The counts of a growing trie: keys, vals, updates; how many bytes a word of a val, a round and a diff have, 0 while
rounds or diffs are constant (then there is one, of eight bytes); words of a val, rounds of an update; and the number of
counts."""
_BYTES = types.uint8[::1]
_COLUMNS = (WORDS, ROWS, _BYTES, _BYTES, _BYTES, WORDS, _BYTES, _BYTES)
BEHIND = 8
"""Bytes behind the last entry of a narrow column, because entries are read and written eight bytes at a time."""


@njit(cache=True)
def begin_trie(rows, k, v, d):  # type: ignore[no-untyped-def]
    """(counts, columns) of an empty trie with capacity for this many rows. Pages take no memory until they are
    written."""
    columns = (
        np.empty(rows, np.int64),
        np.empty((rows if k > 1 else 0, k), np.int64),
        np.empty(0, np.uint8),
        np.empty(BEHIND, np.uint8),
        np.empty(0, np.uint8),
        np.empty(1, np.int64),
        np.empty(8 * d + BEHIND, np.uint8),
        np.empty(8 + BEHIND, np.uint8),
    )
    counts = np.zeros(COUNTS, np.int64)
    counts[VAL_WORDS], counts[DEPTH] = v, d
    return counts, columns


@njit(cache=True, inline="always")
def _tagged(column, size):  # type: ignore[no-untyped-def]
    """The address of a narrow column of `size` bytes an entry, as kernels.tries.narrow reads it."""
    return np.int64(column.ctypes.data) | (size & 7)


@njit(cache=True, inline="always")
def _put(column, size, index, value):  # type: ignore[no-untyped-def]
    """Write entry `index` of a narrow column; those behind it are to be written later."""
    store_unaligned(np.int64(column.ctypes.data) + size * index, value)


@njit(cache=True, inline="always")
def _bytes_of(least, most):  # type: ignore[no-untyped-def]
    """How many bytes numbers from `least` to `most` need."""
    if least >= -(1 << 7) and most < 1 << 7:
        return 1
    if least >= -(1 << 15) and most < 1 << 15:
        return 2
    return 4 if least >= -(1 << 31) and most < 1 << 31 else 8


@njit(cache=True, inline="always")
def _offset_bytes(rows):  # type: ignore[no-untyped-def]
    """How many bytes offsets of a trie of at most `rows` rows have."""
    return 4 if rows < 1 << 31 else 8


@njit(cache=True)
def _offsets(known, rows):  # type: ignore[no-untyped-def]
    """Capacity for the offsets of `rows` items, of which the first `known` count 0, 1, 2 …."""
    size = _offset_bytes(rows)
    offsets = np.empty(size * (rows + 1) + BEHIND, np.uint8)
    for i in range(known):
        _put(offsets, size, i, i)
    return offsets


@njit(cache=True)
def _room(column, n, rows):  # type: ignore[no-untyped-def]
    """A column with capacity for `rows` words that begins with n copies of the constant in `column`."""
    wide = np.empty(rows, np.int64)
    wide[:n] = column[0]
    return wide


@njit(cache=True)
def _widened(column, size, n, d, wider, rows):  # type: ignore[no-untyped-def]
    """A narrow column of n entries, each of d numbers of `size` bytes (0: they are all the same, and there is at most
    one), with `wider` bytes a number and capacity for `rows` entries."""
    wide = np.empty(wider * d * rows + BEHIND, np.uint8)
    source, stride = _tagged(column, size), d if size > 0 else 0
    for e in range(n):
        for c in range(d):
            _put(wide, wider, e * d + c, narrow(source, e * stride + c))
    return wide


@njit(cache=True, forceinline=True)
def _append(left, k, v, d, counts, columns):  # type: ignore[no-untyped-def]
    """The body of `append_rows`, compiled into it for known widths and once for any."""
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = columns
    m, at_time, last = left.shape[0], 1 + k + v, 2 + k + v + d
    rows = hashes.shape[0]
    nk, nv, n = counts[NK], counts[NV], counts[N]
    if m == 0:
        return columns
    if n == 0:
        times[0] = cell(left, 0, at_time)
        _put(diffs, 8, 0, cell(left, 0, last))
        for c in range(d):
            _put(rounds, 8, c, cell(left, 0, at_time + 1 + c))
    begins = np.empty(m, np.int8)  # 2: a new key, 1: a new val of the same key, 0: neither
    more_vals, more_rows = False, False
    one_time, one_round, one_diff = times.shape[0] == 1, counts[ROUND_BYTES] == 0, counts[DIFF_BYTES] == 0
    round_at, diff = _tagged(rounds, 0), narrow(_tagged(diffs, 0), 0)
    least_round = most_round = narrow(round_at, 0) if one_round and d > 0 else np.int64(0)
    least_diff = most_diff = diff if one_diff else np.int64(0)
    least_val = most_val = np.int64(0)
    for i in range(m):
        begin = 2 if i == 0 else 0
        if i > 0:
            for c in range(1 + k + v):
                if cell(left, i, c) != cell(left, i - 1, c):
                    begin = 2 if c <= k else 1
                    break
        begins[i] = begin
        for c in range(v if begin > 0 else 0):
            least_val, most_val = min(least_val, cell(left, i, 1 + k + c)), max(most_val, cell(left, i, 1 + k + c))
        more_vals |= begin == 1
        more_rows |= begin == 0
        one_time &= cell(left, i, at_time) == times[0]
        one_diff &= cell(left, i, last) == diff
        least_diff, most_diff = min(least_diff, cell(left, i, last)), max(most_diff, cell(left, i, last))
        for c in range(d):
            at = cell(left, i, at_time + 1 + c)
            if one_round and at != narrow(round_at, c):
                one_round = False
            least_round, most_round = min(least_round, at), max(most_round, at)
    # Allocate outside the loops, so that the columns are fixed inside them.
    if key_offsets.shape[0] == 0 and more_vals:
        key_offsets = _offsets(nk, rows)
    if val_offsets.shape[0] == 0 and more_rows:
        val_offsets = _offsets(nv, rows)
    if times.shape[0] == 1 and not one_time:
        times = _room(times, n, rows)
    if v > 0 and _bytes_of(least_val, most_val) > counts[VAL_BYTES]:
        wider = _bytes_of(least_val, most_val)
        vals = _widened(vals, counts[VAL_BYTES], nv, v, wider, rows)
        counts[VAL_BYTES] = wider
    if not one_diff and _bytes_of(least_diff, most_diff) > counts[DIFF_BYTES]:
        wider = _bytes_of(least_diff, most_diff)
        diffs = _widened(diffs, counts[DIFF_BYTES], n, 1, wider, rows)
        counts[DIFF_BYTES] = wider
    if not one_round:
        if counts[ROUND_BYTES] == 0:
            for c in range(d):
                least_round = min(least_round, narrow(round_at, c))
                most_round = max(most_round, narrow(round_at, c))
        wider = _bytes_of(least_round, most_round)
        if wider > counts[ROUND_BYTES]:
            rounds = _widened(rounds, counts[ROUND_BYTES], n, d, wider, rows)
            counts[ROUND_BYTES] = wider
    has_keys, has_vals, has_times = key_offsets.shape[0] > 0, val_offsets.shape[0] > 0, times.shape[0] > 1
    offset_bytes, val_bytes = _offset_bytes(rows), counts[VAL_BYTES]
    round_bytes, diff_bytes = counts[ROUND_BYTES], counts[DIFF_BYTES]
    for i in range(m):
        if begins[i] == 2:
            put_word(hashes, nk, cell(left, i, 0))
            if k > 1:
                for c in range(k):
                    put(keys, nk, c, cell(left, i, 1 + c))
            if has_keys:
                _put(key_offsets, offset_bytes, nk, nv)
            nk += 1
        if begins[i] > 0:
            for c in range(v):
                _put(vals, val_bytes, nv * v + c, cell(left, i, 1 + k + c))
            if has_vals:
                _put(val_offsets, offset_bytes, nv, n)
            nv += 1
        if has_times:
            put_word(times, n, cell(left, i, at_time))
        if round_bytes > 0:
            for c in range(d):
                _put(rounds, round_bytes, n * d + c, cell(left, i, at_time + 1 + c))
        if diff_bytes > 0:
            _put(diffs, diff_bytes, n, cell(left, i, last))
        n += 1
    counts[NK], counts[NV], counts[N] = nk, nv, n
    return hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs


@separate(_COLUMNS, ROWS, NUMBER, NUMBER, NUMBER, WORDS, types.Tuple(_COLUMNS))
@njit(cache=True)
def append_rows(left, k, v, d, counts, columns):  # type: ignore[no-untyped-def]
    """Append keyed rows, sorted and consolidated, whose keys follow those already there, to a growing trie. Returns its
    columns, some of which may have been reallocated. O(rows)."""
    if k == 1 and v == 1 and d == 1:
        # Constant widths of one word get a loop of their own, whose inner loops are unrolled.
        return _append(left, 1, 1, 1, counts, columns)
    if k == 1 and v == 1 and d == 2:
        return _append(left, 1, 1, 2, counts, columns)
    return _append(left, k, v, d, counts, columns)


@njit(cache=True)
def append_piece(rows, columns, k, v, d, counts, trie):  # type: ignore[no-untyped-def]
    """Sort and consolidate keyed rows whose keys follow those already there, and append them to a growing trie: (its
    columns, status). If a sum overflows, the trie is emptied. columns: those that sort keyed rows."""
    left, status = consolidate(rows, columns)
    if status != 0:
        counts[:] = 0
        return trie, status
    return append_rows(left, k, v, d, counts, trie), status


@njit(cache=True)
def _fit(column, size):  # type: ignore[no-untyped-def]
    """The column, or matrix, without its unused tail. Copied if more than half is unused, because the tail may have
    been written to before."""
    return column[:size].copy() if 2 * size < column.shape[0] else column[:size]


@njit(cache=True)
def finish_trie(counts, columns):  # type: ignore[no-untyped-def]
    """The columns of a finished trie, in the order of a batch's, followed by their row of addresses.

    Each has an allocation of its own, so the copy that kernels.tries.pack makes is avoided. Offsets, vals, rounds and
    diffs are bytes, of which the last BEHIND belong to no entry; the lowest bits of their addresses say how many a
    number has.
    """
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = columns
    nk, nv, n, size = counts[NK], counts[NV], counts[N], _offset_bytes(hashes.shape[0])
    row = np.zeros(FIELDS, np.int64)
    hashes = _fit(hashes, nk)
    keys = _fit(keys, nk if keys.shape[0] > 0 else 0)
    vals = _fit(vals, counts[VAL_BYTES] * counts[VAL_WORDS] * nv + BEHIND)
    if key_offsets.shape[0] > 0:
        _put(key_offsets, size, nk, nv)
        key_offsets = _fit(key_offsets, size * (nk + 1) + BEHIND)
        row[KEY_OFFSETS] = _tagged(key_offsets, size)
    if val_offsets.shape[0] > 0:
        _put(val_offsets, size, nv, n)
        val_offsets = _fit(val_offsets, size * (nv + 1) + BEHIND)
        row[VAL_OFFSETS] = _tagged(val_offsets, size)
    times = _fit(times, n if times.shape[0] > 1 else min(n, 1))
    if counts[ROUND_BYTES] > 0:
        rounds = _fit(rounds, counts[ROUND_BYTES] * counts[DEPTH] * n + BEHIND)
    if counts[DIFF_BYTES] > 0:
        diffs = _fit(diffs, counts[DIFF_BYTES] * n + BEHIND)
    row[HASHES], row[HASH_STRIDE], row[KEYS] = hashes.ctypes.data, 1, nk
    row[KEY_WORDS], row[KEY_STRIDE] = keys.ctypes.data, keys.shape[1]
    row[VALS], row[VAL_STRIDE], row[VAL_COUNT] = _tagged(vals, counts[VAL_BYTES]), counts[VAL_WORDS], nv
    row[TIMES], row[TIME_STRIDE] = times.ctypes.data, 1 if times.shape[0] > 1 else 0
    row[ROUNDS] = _tagged(rounds, counts[ROUND_BYTES])
    row[ROUND_STRIDE] = counts[DEPTH] if counts[ROUND_BYTES] > 0 else 0
    row[DIFFS], row[DIFF_STRIDE] = _tagged(diffs, counts[DIFF_BYTES]), 1 if counts[DIFF_BYTES] > 0 else 0
    row[UPDATES] = n
    return hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, row


@njit(cache=True)
def pack_many(rows, k, v, d):  # type: ignore[no-untyped-def]
    """The trie of many sorted, consolidated keyed rows, as `finish_trie` returns it. O(rows)."""
    counts, trie = begin_trie(rows.shape[0], k, v, d)
    return finish_trie(counts, append_rows(rows, k, v, d, counts, trie))
