"""Combining kernel: the rows of one key and data time, replaced by fewer rows with the same sums.

It runs on a worker before its rows go to the owners of their keys. What reads them there adds them up: the number of
rows of a key and time, the number of values of each nullable word, and the sum of each word. So any rows with these
numbers will do. There are at most two of them if no word is nullable: one has all sums and is there once, one is zeros
and makes up the number of rows. The sums are negated if the number of rows is negative, and the one copy with them.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, copy_rows, put, put_word, word
from vernier.storage.kernels.hashing import hash_row
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.wide import fits, multiply_wide

PLAIN, IS_FLAG = -1, -2
"""Kinds of val words: one that is added up, a null flag. Other numbers: one that is added up where this flag is not
0."""
MOST = 1 << 32
"""Copies of rows of one key and time that are replaced. More are left alone, so the numbers of copies in the rows that
replace them are small against int64."""
_SLOTS = 1024
_LEAST = np.int64(-(2**63))
_ROWS, _COPIES, _COUNT, _WORDS = range(4)
"""Columns of a group's totals: its rows, their copies without signs (-1: its rows stay), its count, then a number for
each val word."""


@inlined
def _same(data, i, j, columns):  # type: ignore[no-untyped-def]
    """Whether two rows have the same words in these columns."""
    for c in range(columns.shape[0]):
        if cell(data, i, word(columns, c)) != cell(data, j, word(columns, c)):
            return False
    return True


@inlined
def _spread(hashes, groups, slots):  # type: ignore[no-untyped-def]
    """Put the groups into an empty table, whose size is a power of two."""
    for at in range(slots.shape[0]):
        put_word(slots, at, -1)
    for group in range(groups):
        slot = word(hashes, group) & (slots.shape[0] - 1)
        while word(slots, slot) >= 0:
            slot = (slot + 1) & (slots.shape[0] - 1)
        put_word(slots, slot, group)


@inlined
def _add(data, i, k, gates, totals, group):  # type: ignore[no-untyped-def]
    """Add a row to the totals of its group. Returns whether they fit."""
    diff = cell(data, i, data.shape[1] - 1)
    copies = cell(totals, group, _COPIES)
    put(totals, group, _ROWS, cell(totals, group, _ROWS) + 1)
    if copies < 0:
        return True
    if diff > MOST - copies or -diff > MOST - copies or diff < -MOST:
        return False
    put(totals, group, _COPIES, copies + abs(diff))
    put(totals, group, _COUNT, cell(totals, group, _COUNT) + diff)
    for c in range(gates.shape[0]):
        gate, value, before = word(gates, c), cell(data, i, k + c), cell(totals, group, _WORDS + c)
        if gate == IS_FLAG:
            if value != 0:
                put(totals, group, _WORDS + c, before + diff)
        elif gate == PLAIN or cell(data, i, k + gate) != 0:
            hi, lo = multiply_wide(value, diff)
            total, wrapped = add_checked(before, lo)
            if wrapped or total == _LEAST or not fits(hi, lo):
                return False
            put(totals, group, _WORDS + c, total)
    return True


@inlined
def _represent(data, first, k, gates, counted, totals, group, order, made):  # type: ignore[no-untyped-def]
    """Write rows with the totals of a group, whose first row is `first`, over those of `made`. Returns their number.
    order: space for a word of each val word."""
    v, last = gates.shape[0], data.shape[1] - 1
    some = False
    for c in range(v):
        some = some or (word(gates, c) != IS_FLAG and cell(totals, group, _WORDS + c) != 0)
    for m in range(v + 2):
        for c in range(last):
            put(made, m, c, 0 if k <= c < k + v else cell(data, first, c))
    count = 0
    left = cell(totals, group, _COUNT)
    # Copies have the sign of their number, so that they add up without leaving int64 on the way.
    sign = -1 if left < 0 else 1
    if some:
        # One copy has all sums, and therefore all values that have one.
        for c in range(v):
            total, gate = cell(totals, group, _WORDS + c), word(gates, c)
            if gate == IS_FLAG:
                if total != 0:
                    put(made, 0, k + c, 1)
            else:
                put(made, 0, k + c, sign * total)
                if total != 0 and gate >= 0:
                    put(made, 0, k + gate, 1)
        put(made, 0, last, sign)
        count, left = 1, left - sign
    flags = 0
    for c in range(v):
        if word(gates, c) == IS_FLAG:
            needed = cell(totals, group, _WORDS + c)
            if some:
                needed -= sign * cell(made, 0, k + c)
                put(totals, group, _WORDS + c, needed)
            at = flags
            while at > 0 and sign * cell(totals, group, _WORDS + word(order, at - 1)) > sign * needed:
                put_word(order, at, word(order, at - 1))
                at -= 1
            put_word(order, at, c)
            flags += 1
    # The other copies are zeros. In the order of how many values the nullable words still need, each row has values for
    # its word and for those after it.
    before = np.int64(0)
    for at in range(flags):
        needed = cell(totals, group, _WORDS + word(order, at))
        if needed != before:
            for other in range(at, flags):
                put(made, count, k + word(order, other), 1)
            put(made, count, last, needed - before)
            count += 1
            before = needed
    if counted and left != before:
        put(made, count, last, left - before)
        count += 1
    return count


@njit(cache=True)
def combine_rows(data, k, gates, counted):  # type: ignore[no-untyped-def]
    """Updates with the same sums as data[n, c], `[key | val | time | rounds | diff]`, and no more rows, in any order.

    k: words of the key; gates[v]: the kinds of the val words; a number says which val word is the flag; counted:
    whether the number of rows matters. Groups whose sums do not fit, or that would not become fewer rows, keep their
    rows. If an eighth of the rows shows that few have a key and a time in common, `data` itself is returned. O(n), or
    O(n / 8) in that case.
    """
    n, columns = data.shape
    v = gates.shape[0]
    same = np.empty(columns - 1 - v, np.int64)
    for c in range(same.shape[0]):
        same[c] = c if c < k else c + v
    slots = np.empty(_SLOTS, np.int64)
    group_of, firsts, hashes = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    totals = np.empty((n, _WORDS + v), np.int64)
    groups, trial = 0, max(n // 8, 1)
    _spread(hashes, groups, slots)
    for i in range(n):
        if i == trial and 8 * groups > 7 * trial and trial > 1:
            return data
        hashed = hash_row(data, i, same)
        slot = hashed & (slots.shape[0] - 1)
        group = word(slots, slot)
        while group >= 0 and (word(hashes, group) != hashed or not _same(data, i, word(firsts, group), same)):
            slot = (slot + 1) & (slots.shape[0] - 1)
            group = word(slots, slot)
        if group < 0:
            group = groups
            groups += 1
            put_word(slots, slot, group)
            put_word(firsts, group, i)
            put_word(hashes, group, hashed)
            for c in range(_WORDS + v):
                put(totals, group, c, 0)
            if 2 * groups > slots.shape[0]:
                slots = np.empty(4 * slots.shape[0], np.int64)
                _spread(hashes, groups, slots)
        put_word(group_of, i, group)
        if not _add(data, i, k, gates, totals, group):
            put(totals, group, _COPIES, -1)
    out = np.empty((n, columns), np.int64)
    made, order = np.empty((v + 2, columns), np.int64), np.empty(v, np.int64)
    count = 0
    for group in range(groups):
        rows = cell(totals, group, _ROWS)
        if rows == 1 or cell(totals, group, _COPIES) < 0:
            put(totals, group, _COPIES, -1)
            continue
        some = _represent(data, word(firsts, group), k, gates, counted, totals, group, order, made)
        if some >= rows:
            put(totals, group, _COPIES, -1)
            continue
        copy_rows(made, 0, some, out, count)
        count += some
    for i in range(n):
        if cell(totals, word(group_of, i), _COPIES) < 0:
            for c in range(columns):
                put(out, count, c, cell(data, i, c))
            count += 1
    return out[:count]
