"""Key updates: hash, sort and consolidate them in one pass."""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, fetch, put, put_word, word
from vernier.storage.kernels.consolidating import add_up, consolidate, sort_packed
from vernier.storage.kernels.few import FEW
from vernier.storage.kernels.grouping import (
    GROUPED,
    SOME,
    goes_at_once,
    group_rows,
    number_words,
    place_groups,
    take_place,
)
from vernier.storage.kernels.hashing import hash_row, key_rows
from vernier.storage.kernels.packing import pack_columns, pack_known, pack_words
from vernier.storage.kernels.ranked import add_up_words, write_columns
from vernier.storage.kernels.sorting import DIGITS_FROM, add_checked
from vernier.storage.kernels.status import OVERFLOW

_SAMPLE = 64
"""Number of positions sampled to guess whether there are few distinct rows."""

_AHEAD = 16
"""How many rows ahead of the one that is read the memory of a row is fetched."""


@njit(cache=True)
def _come_together(data, columns):  # type: ignore[no-untyped-def]
    """Whether rows that differ only in their times are adjacent often enough for there to be few distinct rows; _SAMPLE
    probes."""
    n, m, alike = data.shape[0], columns.shape[0], 0
    for look in range(_SAMPLE):
        i = look * (n - 1) // _SAMPLE
        same = 1
        for c in range(m - 1):
            if cell(data, i, word(columns, c)) != cell(data, i + 1, word(columns, c)):
                same = 0
        alike += same
    return 8 * alike >= _SAMPLE


@njit(cache=True)
def _group_keyed(data, key, columns, one, two, groups):  # type: ignore[no-untyped-def]
    """Group rows that differ only in their times, if there are few groups and the rows of each are in order: (where the
    rows of each group begin, the hash of its key); both are empty if that is not so. Fills groups[n]. O(n).

    Only one row of each group is hashed. columns: those that sort rows, the last of which is the time.
    """
    n, m, none = data.shape[0], columns.shape[0], np.empty(0, np.int64)
    if n < DIGITS_FROM or not _come_together(data, columns):
        return none, none
    if pack_columns(data, n, columns[: m - 1], 0, one) < m - 1:
        return none, none
    pack_columns(data, n, columns[m - 1 :], 0, two)
    firsts, sizes, kind = number_words(one, two, groups)
    if not goes_at_once(data, kind):
        return none, none
    count = firsts.shape[0]
    hashes, words = np.empty(count, np.int64), np.empty(count, np.int64)
    for group in range(count):
        put_word(hashes, group, hash_row(data, word(firsts, group), key))
        put_word(words, group, word(one, word(firsts, group)))
    starts, _ = place_groups(hashes.copy(), words, sizes)
    return starts, hashes


@njit(cache=True, forceinline=True)
def source_columns(width, key, val, tail):  # type: ignore[no-untyped-def]
    """The columns of updates of `width` words that a keyed row consists of, after its hash: key, val, and the last
    `tail` columns."""
    k, v = key.shape[0], val.shape[0]
    source = np.empty(k + v + tail, np.int64)
    for c in range(k):
        source[c] = key[c]
    for c in range(v):
        source[k + c] = val[c]
    for c in range(tail):
        source[k + v + c] = width - tail + c
    return source


@njit(cache=True)
def _place_sums(data, source, k, one, two, groups, starts, out):  # type: ignore[no-untyped-def]
    """Write groups whose rows are in order to out, equal rows as one: (number of rows, whether a sum has wrapped).

    A row that equals the newest one of its group is added to that one. Then what sums to zero, and the places that
    nothing took, are left out. Advances `starts`. O(n).
    """
    n, last, wrapped = data.shape[0], source.shape[0], False
    newest = np.full(starts.shape[0], -1, np.int64)
    for i in range(n):
        put(out, i, last, 0)
    for i in range(n):
        group, diff = word(groups, i), cell(data, i, word(source, last - 1))
        before = word(newest, group)
        if before >= 0 and word(two, before) == word(two, i):
            at = word(starts, group) - 1
            total, left = add_checked(cell(out, at, last), diff)
            put(out, at, last, total)
            wrapped |= left
            continue
        put_word(newest, group, i)
        at = take_place(groups, starts, i)
        put(out, at, 0, word(one, i) if k > 0 else 0)
        for c in range(last):
            put(out, at, 1 + c, cell(data, i, word(source, c)))
    count = 0
    while count < n and cell(out, count, last) != 0:
        count += 1
    for i in range(count, n):
        if cell(out, i, last) != 0:
            for c in range(last + 1):
                put(out, count, c, cell(out, i, c))
            count += 1
    return count, wrapped


@njit(cache=True)
def consolidate_keyed(data, key, val, tail):  # type: ignore[no-untyped-def]
    """Equals `consolidate` of `hashing.key_rows`, without the intermediate rows.

    data: updates `[row | time | rounds | diff]`, with `tail` columns after the row; key, val: columns of the row.
    Returns (keyed rows `[hash | key | val | time | rounds | diff]`, sorted and distinct; status). O(n log n); O(n) if
    hashes are uniform.
    """
    n, k, v = data.shape[0], key.shape[0], val.shape[0]
    if n <= FEW:
        order = np.arange(k + v + tail)
        # Rounds sort before times, and come after them in a row.
        for c in range(1 + k + v, order.shape[0]):
            put_word(order, c, c + 1 if c + 1 < order.shape[0] else 1 + k + v)
        return consolidate(key_rows(data, key, val, tail), order)
    # Of the source columns, those that sort rows. A one-word key is omitted: its hash represents it.
    source = source_columns(data.shape[1], key, val, tail)
    first = 0 if k > 1 else k
    columns, places = np.empty(k + v + tail - 1 - first, np.int64), np.empty(k + v + tail - 1 - first, np.int64)
    for c in range(columns.shape[0] - 1):
        # Rounds sort before times, and come after them in a row.
        places[c] = 1 + first + c if first + c < k + v else 2 + first + c
    places[columns.shape[0] - 1] = 1 + k + v
    for c in range(columns.shape[0]):
        columns[c] = source[places[c] - 1]
    one, two, groups = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    out = np.empty((n, 1 + k + v + tail), np.int64)
    if k > 1:
        starts, hashes = _group_keyed(data, key, columns, one, two, groups)
        if starts.shape[0] > 0:
            for i in range(n):
                to = take_place(groups, starts, i)
                put(out, to, 0, word(hashes, word(groups, i)))
                for c in range(source.shape[0]):
                    put(out, to, 1 + c, cell(data, i, word(source, c)))
            return out, 0
    least, sizes = np.empty(columns.shape[0], np.int64), np.empty(columns.shape[0], np.int64)
    if k == 0:
        exact = pack_words(data, columns, one, two)
    else:
        for i in range(n):
            put_word(one, i, hash_row(data, i, key))
        exact = pack_known(data, n, columns, 0, two, least, sizes)
    firsts, starts, ranks, kind = group_rows(data, columns, exact, one, two, groups)
    if k > 0 and kind == SOME and exact == columns.shape[0]:
        width = 0
        for c in range(columns.shape[0]):
            width += word(sizes, c)
        words, totals, count = add_up_words(data, groups, ranks, two, width)
        if count >= 0:
            rows = np.empty(firsts.shape[0], np.int64)
            for group in range(firsts.shape[0]):
                put_word(rows, word(ranks, group), word(firsts, group))
            for at in range(count):
                row = word(rows, word(words, at) >> width)
                put(out, at, 0, word(one, row))
                put(out, at, 1, cell(data, row, word(key, 0)))
                put(out, at, source.shape[0], word(totals, at))
            write_columns(words, count, least, sizes, places, out)
            return out[:count], 0
    if goes_at_once(data, kind):
        for i in range(n):
            to = take_place(groups, starts, i)
            put(out, to, 0, word(one, i) if k > 0 else 0)
            for c in range(source.shape[0]):
                put(out, to, 1 + c, cell(data, i, word(source, c)))
        return out, 0
    if kind >= GROUPED:
        count, wrapped = _place_sums(data, source, k, one, two, groups, starts, out)
        return out[: 0 if wrapped else count], OVERFLOW if wrapped else 0
    order, one, two = sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind)
    count = i = 0
    while i < n:
        row = word(order, i)
        fetch(data, word(order, min(i + _AHEAD, n - 1)), 0)
        i, total, wrapped = add_up(data, columns, exact, order, one, two, i)
        if wrapped:
            return out[:0], OVERFLOW
        if total != 0:
            # Sorting may have replaced the words by others that compare alike, so the hash is computed again.
            put(out, count, 0, hash_row(data, row, key))
            for c in range(source.shape[0] - 1):
                put(out, count, 1 + c, cell(data, row, word(source, c)))
            put(out, count, source.shape[0], total)
            count += 1
    return out[:count], 0
