"""Close a slice of a single step: its rows become a trie in one pass.

The step is sorted and consolidated already, and stays sorted when its times advance to `since`, because rounds come
before times. Rows that become equal are adjacent.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.fitting import fit, room, room_words
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import FIELDS, HASHES, KEYS, trie_words

_KEY, _VAL, _UPDATE, _SAME = range(4)
"""What is new in a row: its key, its val, its rounds or time, nothing."""


@njit(cache=True, inline="always")
def _differ(a: int, b: int, first: int, stop: int) -> bool:
    """Whether two rows differ in one of the words [first, stop)."""
    for c in range(first, stop):
        if load(a, c) != load(b, c):
            return True
    return False


@inlined
def _fill(address, n, k, v, d, since, columns):  # type: ignore[no-untyped-def]
    """Write the rows at an address into `columns`. The body of `close_step`, compiled into it once for the usual widths
    and once for any. Returns (keys, vals, updates, whether times, rounds, diffs are not constant, wrapped)."""
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = columns
    width, at_val, at_time = 3 + k + v + d, 1 + k, 1 + k + v
    nk = nv = m = 0
    first_val = first_update = 0  # of the open key and of the open val
    many_times = many_rounds = many_diffs = False
    before, time_before = address, since
    for i in range(n):
        row = address + 8 * width * i
        time, diff = max(load(row, at_time), since), load(row, width - 1)
        # The hash of a key of one word is a bijection.
        if i == 0 or load(row, 0) != load(before, 0) or (k > 1 and _differ(row, before, 1, 1 + k)):
            new = _KEY
        elif _differ(row, before, at_val, at_time):
            new = _VAL
        elif time != time_before or _differ(row, before, at_time + 1, width - 1):
            new = _UPDATE
        else:
            new = _SAME
        before, time_before = row, time
        if new == _SAME:
            total, wrapped = add_checked(word(diffs, m - 1), diff)
            if wrapped:
                return nk, nv, m, many_times, many_rounds, many_diffs, True
            put_word(diffs, m - 1, total)
            continue
        # What sums to zero goes, and with it a val or a key that has nothing else.
        if m > first_update and word(diffs, m - 1) == 0:
            m -= 1
        if new <= _VAL:
            if m == first_update and nv > first_val:
                nv -= 1
            if new == _KEY:
                if nv == first_val and nk > 0:
                    nk -= 1
                put_word(hashes, nk, load(row, 0))
                if k > 1:
                    for c in range(k):
                        put(keys, nk, c, load(row, 1 + c))
                if v > 0:
                    put_word(key_offsets, nk, nv)
                nk += 1
                first_val = nv
            for c in range(v):
                put(vals, nv, c, load(row, at_val + c))
            put_word(val_offsets, nv, m)
            nv += 1
            first_update = m
        put_word(times, m, time)
        put_word(diffs, m, diff)
        for c in range(d):
            put(rounds, m, c, load(row, at_time + 1 + c))
        m += 1
    if m > first_update and word(diffs, m - 1) == 0:
        m -= 1
    if m == first_update and nv > first_val:
        nv -= 1
    if nv == first_val and nk > 0:
        nk -= 1
    put_word(key_offsets, nk, nv)
    put_word(val_offsets, nv, m)
    for h in range(1, m):
        many_times |= word(times, h) != word(times, 0)
        many_diffs |= word(diffs, h) != word(diffs, 0)
        for c in range(d):
            many_rounds |= cell(rounds, h, c) != cell(rounds, 0, c)
    return nk, nv, m, many_times, many_rounds, many_diffs, False


@borrowing
def _fill_room(address, n, k, v, d, since, words):  # type: ignore[no-untyped-def]
    """Fill `room` in `words`; returns what `_fill` returns."""
    columns = room(words, k, v, d, n, n, n)
    # Constant widths get a loop of their own, whose inner loops are unrolled.
    if k == 1 and v == 0 and d == 0:
        return _fill(address, n, 1, 0, 0, since, columns)
    return _fill(address, n, k, v, d, since, columns)


@borrowing
def _fit_room(words, n, k, v, d, keys, vals, updates, times, rounds, diffs, together, address):  # type: ignore[no-untyped-def]
    """Copy what `_fill_room` has made to an array of its own."""
    fit(room(words, k, v, d, n, n, n), k, v, d, keys, vals, updates, times, rounds, diffs, together, address)


@njit(cache=True)
def close_step(step, k, v, d, since):  # type: ignore[no-untyped-def]
    """The trie of a step (its row of addresses), compacted to `since`: (columns and addresses as kernels.tries.pack
    returns them, number of updates, status). O(rows)."""
    n, rows = word(step, KEYS), word(step, HASHES)
    words, address = np.empty(room_words(k, v, d, n, n, n), np.int64), np.empty(FIELDS, np.int64)
    filled = _fill_room(rows, n, k, v, d, since, words)
    nk, nv, m, many_times, many_rounds, many_diffs, wrapped = filled
    alone = min(m, 1)
    times, rounds, diffs = m if many_times else alone, m if many_rounds else alone, m if many_diffs else alone
    together = np.empty(trie_words(k, v, d, nk, nv, m, times, rounds, diffs), np.int64)
    _fit_room(words, n, k, v, d, nk, nv, m, times, rounds, diffs, together, address)
    return (together, address), m, OVERFLOW if wrapped else 0
