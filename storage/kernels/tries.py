"""Build and flatten tries, the column form of batches.

A keyed row is `[hash | key words (k) | val words (v) | time | rounds (d) | diff]`. Sorted by (hash, key, val, rounds,
time) and without duplicates, keyed rows contain the same as a trie; `pack` and `flatten` convert between the two.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put
from vernier.storage.kernels.hashing import unmix
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.pointers import load, load_unaligned

# Columns of a batch's row in the table of addresses that kernels read. Strides count words and are 0 for a constant
# column. An offsets address of 0 means that the offsets count 0, 1, 2 …. A FLAT entry is a sorted matrix of keyed rows:
# each row counts as a key of its own, and rows of the same key are adjacent.
#
# Offsets, vals, rounds and diffs may have fewer than eight bytes a number. The three lowest bits of the column's
# address, which are otherwise 0, then say how many: 1, 2 or 4. Behind such a column are eight bytes that may be read.
HASHES, HASH_STRIDE, KEYS, KEY_WORDS, KEY_STRIDE, KEY_OFFSETS = 0, 1, 2, 3, 4, 5
VALS, VAL_STRIDE, VAL_COUNT, VAL_OFFSETS = 6, 7, 8, 9
TIMES, TIME_STRIDE, ROUNDS, ROUND_STRIDE, DIFFS, DIFF_STRIDE, UPDATES, FLAT = 10, 11, 12, 13, 14, 15, 16, 17
FIELDS = 18
_FIRST = np.int64(-(2**63))


@njit(cache=True, inline="always")
def place_of(address: int, index: int) -> int:
    """The address of number `index` of a column of offsets, vals, rounds or diffs."""
    return (address & -8) + index * (((address - 1) & 7) + 1)


@njit(cache=True, inline="always")
def narrow(address: int, index: int) -> int:
    """Number `index` of a column of offsets, vals, rounds or diffs, however many bytes it has for one."""
    unused = 56 - 8 * ((address - 1) & 7)
    return (load_unaligned(place_of(address, index)) << unused) >> unused


@inlined
def val_word(table, batch, val, c):  # type: ignore[no-untyped-def]
    """Word c of a val of a batch."""
    return narrow(cell(table, batch, VALS), val * cell(table, batch, VAL_STRIDE) + c)


@njit(cache=True, inline="always")
def offset(address: int, index: int) -> int:
    """Where item `index` begins, from the offsets at an address."""
    return index if address == 0 else narrow(address, index)


@borrowing
def describe_in(row, hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, updates):  # type: ignore[no-untyped-def]
    """Write the addresses of a trie to `row`; the caller keeps the arrays alive. All are C-contiguous int64."""
    row[HASHES] = hashes.ctypes.data
    row[HASH_STRIDE] = 1
    row[KEYS] = hashes.shape[0]
    row[KEY_WORDS] = keys.ctypes.data
    row[KEY_STRIDE] = keys.shape[1]
    row[KEY_OFFSETS] = key_offsets.ctypes.data if key_offsets.shape[0] else 0
    row[VALS] = vals.ctypes.data
    row[VAL_STRIDE] = vals.shape[1]
    row[VAL_COUNT] = val_offsets.shape[0] - 1 if val_offsets.shape[0] else updates
    row[VAL_OFFSETS] = val_offsets.ctypes.data if val_offsets.shape[0] else 0
    row[TIMES] = times.ctypes.data
    row[TIME_STRIDE] = 1 if times.shape[0] > 1 else 0
    row[ROUNDS] = rounds.ctypes.data
    row[ROUND_STRIDE] = rounds.shape[1] if rounds.shape[0] > 1 else 0
    row[DIFFS] = diffs.ctypes.data
    row[DIFF_STRIDE] = 1 if diffs.shape[0] > 1 else 0
    row[UPDATES] = updates
    row[FLAT] = 0


@njit(cache=True)
def describe(hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, updates):  # type: ignore[no-untyped-def]
    """The row of addresses of a trie; the caller keeps the arrays alive. All are C-contiguous int64."""
    row = np.empty(FIELDS, np.int64)
    describe_in(row, hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, updates)
    return row


@njit(cache=True)
def describe_rows(rows: np.ndarray, k: int, v: int, table: np.ndarray, at: int) -> None:
    """Write the row of addresses of sorted, consolidated keyed rows into table[at]; the caller keeps the rows alive."""
    n, width = rows.shape
    address = rows.ctypes.data
    table[at, HASHES] = address
    table[at, KEY_WORDS] = address + 8
    table[at, VALS] = address + 8 * (1 + k)
    table[at, TIMES] = address + 8 * (1 + k + v)
    table[at, ROUNDS] = address + 8 * (2 + k + v)
    table[at, DIFFS] = address + 8 * (width - 1)
    for field in (HASH_STRIDE, KEY_STRIDE, VAL_STRIDE, TIME_STRIDE, ROUND_STRIDE, DIFF_STRIDE):
        table[at, field] = width
    table[at, KEYS] = table[at, VAL_COUNT] = table[at, UPDATES] = n
    table[at, KEY_OFFSETS] = table[at, VAL_OFFSETS] = 0
    table[at, FLAT] = 1


@borrowing
def trie_words(k, v, d, keys, vals, updates, times, rounds, diffs):  # type: ignore[no-untyped-def]
    """How many words the columns of a trie have; arguments as for `columns_of`."""
    key_offsets, val_offsets = keys + 1 if keys != vals else 0, vals + 1 if vals != updates else 0
    return keys + (keys * k if k > 1 else 0) + key_offsets + vals * v + val_offsets + times + rounds * d + diffs


@inlined
def columns_of(together, k, v, d, keys, vals, updates, times, rounds, diffs):  # type: ignore[no-untyped-def]
    """The columns of a trie, which lie one after the other in one array. keys, vals, updates: their numbers; times,
    rounds, diffs: how many there are, 1 for a constant column. Only for functions that count no references.

    The columns are hashes[K], key words[K, k] (none for k < 2), key offsets[K + 1 or 0], vals[V, v], val offsets[V + 1
    or 0], times[n or 1], rounds[n or 1, d], diffs[n or 1]. They share one array because each array that a kernel
    returns costs as much time as five that it receives.
    """
    own = keys if k > 1 else 0
    key_offsets, val_offsets = keys + 1 if keys != vals else 0, vals + 1 if vals != updates else 0
    at = keys + own * k
    after = at + key_offsets + vals * v
    last = after + val_offsets + times
    return (
        together[:keys],
        together[keys:at].reshape((own, k)),
        together[at : at + key_offsets],
        together[at + key_offsets : after].reshape((vals, v)),
        together[after : after + val_offsets],
        together[after + val_offsets : last],
        together[last : last + rounds * d].reshape((rounds, d)),
        together[last + rounds * d : last + rounds * d + diffs],
    )


@njit(cache=True)
def pack(rows: np.ndarray, k: int, v: int, d: int):  # type: ignore[no-untyped-def]
    """The trie of sorted, consolidated keyed rows; constant columns and offsets that count 0, 1, 2 … are elided.

    Returns its columns in one array (`columns_of`) and their row of addresses.
    """
    n = rows.shape[0]
    nk, nv = 0, 0
    same_time, same_round, same_diff = True, True, True
    starts = np.empty(n, np.int8)  # 2: a new key, 1: a new val of the same key, 0: neither
    for i in range(n):
        start = 0
        if i == 0:
            start = 2
        else:
            for c in range(1 + k + v):
                if cell(rows, i, c) != cell(rows, i - 1, c):
                    start = 2 if c <= k else 1
                    break
            same_time = same_time and cell(rows, i, 1 + k + v) == cell(rows, 0, 1 + k + v)
            same_diff = same_diff and cell(rows, i, 2 + k + v + d) == cell(rows, 0, 2 + k + v + d)
            for c in range(2 + k + v, 2 + k + v + d):
                same_round = same_round and cell(rows, i, c) == cell(rows, 0, c)
        starts[i] = start
        if start > 0:
            nv += 1
            if start == 2:
                nk += 1
    alone = min(n, 1)
    n_times, n_rounds, n_diffs = alone if same_time else n, alone if same_round else n, alone if same_diff else n
    together = np.empty(trie_words(k, v, d, nk, nv, n, n_times, n_rounds, n_diffs), np.int64)
    address = np.empty(FIELDS, np.int64)
    _pack(rows, starts, k, v, d, nk, nv, n_times, n_rounds, n_diffs, together, address)
    return together, address


@borrowing
def _pack(rows, starts, k, v, d, nk, nv, n_times, n_rounds, n_diffs, together, address):  # type: ignore[no-untyped-def]
    """Write the columns and the addresses of `pack`, which knows what is new in each row, and the numbers."""
    n = rows.shape[0]
    parts = columns_of(together, k, v, d, nk, nv, n, n_times, n_rounds, n_diffs)
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = parts
    nk, nv = 0, 0
    for i in range(n):
        if starts[i] == 2:
            hashes[nk] = cell(rows, i, 0)
            if k > 1:
                for c in range(k):
                    keys[nk, c] = cell(rows, i, 1 + c)
            if key_offsets.shape[0]:
                key_offsets[nk] = nv
            nk += 1
        if starts[i] > 0:
            for c in range(v):
                vals[nv, c] = cell(rows, i, 1 + k + c)
            if val_offsets.shape[0]:
                val_offsets[nv] = i
            nv += 1
        if i < times.shape[0]:
            times[i] = cell(rows, i, 1 + k + v)
        if i < rounds.shape[0]:
            for c in range(d):
                rounds[i, c] = cell(rows, i, 2 + k + v + c)
        if i < diffs.shape[0]:
            diffs[i] = cell(rows, i, 2 + k + v + d)
    if key_offsets.shape[0]:
        key_offsets[nk] = nv
    if val_offsets.shape[0]:
        val_offsets[nv] = n
    describe_in(address, hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, n)


@njit(cache=True, forceinline=True)
def _write(table, batch, k, v, d, first, stop, since, rows, at):  # type: ignore[no-untyped-def]
    """The body of `write_keys`, compiled into it for known widths and once for any."""
    hashes, key_words = cell(table, batch, HASHES), cell(table, batch, KEY_WORDS)
    key_offsets, val_offsets, vals = (
        cell(table, batch, KEY_OFFSETS),
        cell(table, batch, VAL_OFFSETS),
        cell(table, batch, VALS),
    )
    times, rounds, diffs = cell(table, batch, TIMES), cell(table, batch, ROUNDS), cell(table, batch, DIFFS)
    time_stride, round_stride, diff_stride = (
        cell(table, batch, TIME_STRIDE), cell(table, batch, ROUND_STRIDE), cell(table, batch, DIFF_STRIDE),
    )  # fmt: skip
    v0 = offset(key_offsets, first)
    h0 = offset(val_offsets, v0)
    for key in range(first, stop):
        hashed, v1 = load(hashes, key), offset(key_offsets, key + 1)
        word = unmix(hashed) if k == 1 else np.int64(0)
        for val in range(v0, v1):
            h1 = offset(val_offsets, val + 1)
            for h in range(h0, h1):
                put(rows, at, 0, hashed)
                if k == 1:
                    put(rows, at, 1, word)
                else:
                    for c in range(k):
                        put(rows, at, 1 + c, load(key_words, key * k + c))
                for c in range(v):
                    put(rows, at, 1 + k + c, narrow(vals, val * v + c))
                put(rows, at, 1 + k + v, max(since, load(times, h * time_stride)))
                for c in range(d):
                    put(rows, at, 2 + k + v + c, narrow(rounds, h * round_stride + c))
                put(rows, at, 2 + k + v + d, narrow(diffs, h * diff_stride))
                at += 1
            h0 = h1
        v0 = v1
    return at


@njit(cache=True)
def write_keys(table, batch, k, v, d, first, stop, since, rows, at):  # type: ignore[no-untyped-def]
    """Write the updates of the keys [first, stop) of a trie of the table into
    rows[at:] as keyed rows, with times advanced to `since`; returns where they end. O(updates)."""
    if k == 1 and v == 1 and d == 1:
        # Constant widths of one word get a loop of their own, whose inner loops are unrolled.
        return _write(table, batch, 1, 1, 1, first, stop, since, rows, at)
    if k == 1 and v == 1 and d == 2:
        return _write(table, batch, 1, 1, 2, first, stop, since, rows, at)
    return _write(table, batch, k, v, d, first, stop, since, rows, at)


@njit(cache=True)
def flatten(table: np.ndarray, k: int, v: int, d: int, first: int, stop: int) -> np.ndarray:
    """The keyed rows of the keys [first, stop) of the trie in `table` (one row of addresses)."""
    begin, end = offset(table[KEY_OFFSETS], first), offset(table[KEY_OFFSETS], stop)
    count = offset(table[VAL_OFFSETS], end) - offset(table[VAL_OFFSETS], begin)
    out = np.empty((count, 3 + k + v + d), np.int64)
    write_keys(table.reshape(1, -1), 0, k, v, d, first, stop, _FIRST, out, 0)
    return out
