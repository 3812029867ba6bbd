"""Reads the surroundings of rows: the rows that a slice changes, with those around them in the order of the vals.

Where a row of the output depends on a few copies on either side (neighbours), a change reaches no further. So a group
is read from each changed row to both sides until enough copies are there that the slice does not change. Between such
stretches rows are missing, but at the ends of each stretch are rows that do not change, and neither does what a
reduction makes of them: the corrections are those of the whole group. Outside loops only, where time is total.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.ends import (
    add_copies,
    locate_runs,
    open_group,
    order_of_row,
    order_of_vals,
    put_rows,
    take_least,
)
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import val_word


@inlined
def take_greatest(table, low, here, v):  # type: ignore[no-untyped-def]
    """Move before the greatest val below the places `here`. Returns (a batch that has it, its place there, copies,
    wrapped); the batch is -1 if no val from `low` on is left."""
    best, place = -1, np.int64(0)
    for batch in range(table.shape[0]):
        at = word(here, batch) - 1
        if at >= word(low, batch) and (best < 0 or order_of_vals(table, batch, at, best, place, v) > 0):
            best, place = batch, at
    copies, wrapped = np.int64(0), False
    for batch in range(table.shape[0] if best >= 0 else 0):
        at = word(here, batch) - 1
        # Without offsets each update has a val of its own, and equal vals are adjacent.
        while at >= word(low, batch) and order_of_vals(table, batch, at, best, place, v) == 0:
            copies, wrapped = add_copies(table, batch, at, copies)
            if wrapped:
                return best, place, copies, True
            at -= 1
        put_word(here, batch, at + 1)
    return best, place, copies, False


@inlined
def _seek(table, low, high, pos, rows, row, first, v):  # type: ignore[no-untyped-def]
    """Set the first place in each batch whose val is not below that of a row."""
    for batch in range(table.shape[0]):
        lo, hi = word(low, batch), word(high, batch)
        while lo < hi:
            middle = (lo + hi) >> 1
            if order_of_row(table, batch, middle, rows, row, first, v) < 0:
                lo = middle + 1
            else:
                hi = middle
        put_word(pos, batch, lo)


@inlined
def append_val(table, batch, val, v, copies, found, size):  # type: ignore[no-untyped-def]
    for c in range(v):
        put(found, size, c, val_word(table, batch, val, c))
    put(found, size, v, copies)


@inlined
def reverse_rows(found, first, stop, columns):  # type: ignore[no-untyped-def]
    """Reverse the order of the rows [first, stop)."""
    i, j = first, stop - 1
    while i < j:
        for c in range(columns):
            other = cell(found, i, c)
            put(found, i, c, cell(found, j, c))
            put(found, j, c, other)
        i += 1
        j -= 1


@njit(cache=True)
def read_surroundings(table, rows, k, v, fold, whole, reach):  # type: ignore[no-untyped-def]
    """What the output depends on for rows that can depend on the rows of this slice, of each key that these touch.

    table, rows, k, v, fold: as for `read_ends` (kernels/ends.py). `reach` copies on either side are read, and of the
    vals with the first `whole` words of the last one all (v: no more than that one); vals that share these words with
    the changed row do not count. Returns (keys, spans, entries, status) as `read_ends` does. O((batches + log rows of
    the key) x rows + batches x rows read).
    """
    runs = key_runs(rows, k)
    q, batches = runs.shape[0] - 1, table.shape[0]
    keys, spans = np.empty((q, 1 + k), np.int64), np.empty((q, 2), np.int64)
    before, status = count_rows(table, rows, runs, k, v)
    if status != 0:
        return keys[:0], spans[:0], np.empty((0, v + 2), np.int64), status
    places = locate_runs(table, rows, runs, k)
    low, high = np.empty(batches, np.int64), np.empty(batches, np.int64)
    pos, here = np.empty(batches, np.int64), np.empty(batches, np.int64)
    entries = np.empty((4 * rows.shape[0] + 8 * q, v + 2), np.int64)
    found = np.empty((16, v + 1), np.int64)
    n = 0
    for key in range(q):
        base, stop = open_group(table, rows, runs, places, key, k, keys, low, high)
        size, row = 0, base
        while row < stop:
            _seek(table, low, high, pos, rows, row, 1 + k, v)
            for forward in range(2):
                for batch in range(batches):
                    put_word(here, batch, word(pos, batch))
                    if forward == 1:
                        put_word(low, batch, word(pos, batch))
                changed, begin = row, size
                got, last, last_val = np.int64(0), -1, np.int64(0)
                while True:
                    if forward == 1:
                        batch, val, copies, wrapped = take_least(table, here, high, v)
                    else:
                        batch, val, copies, wrapped = take_greatest(table, low, here, v)
                    if wrapped:
                        return keys[:0], spans[:0], entries[:0], OVERFLOW
                    if batch < 0:
                        break
                    mine = False
                    while forward == 1 and row < stop:
                        order = order_of_row(table, batch, val, rows, row, 1 + k, v)
                        if order < 0:
                            break
                        # A changed row lies before this val or has it: what was counted lies before that row.
                        mine = order == 0
                        changed, got, last = row, np.int64(0), -1
                        row += 1
                    if not mine:
                        if got >= reach and order_of_vals(table, batch, val, last, last_val, whole) != 0:
                            break
                        if copies != 0:
                            if size == found.shape[0]:
                                found = more_rows(found, size)
                            append_val(table, batch, val, v, copies, found, size)
                            size += 1
                        alike = whole < v and order_of_row(table, batch, val, rows, changed, 1 + k, whole) == 0
                        if copies > 0 and not alike:
                            got += min(copies, max(reach - got, 0))
                            last, last_val = batch, val
                    if forward == 1:
                        for other in range(batches):
                            put_word(low, other, word(here, other))
                if forward == 0:
                    reverse_rows(found, begin, size, v + 1)
                elif batch < 0:
                    row = stop
        room = n + size + 2 * (stop - base)
        if room > entries.shape[0]:
            entries = more_rows(entries, room)
        put(spans, key, 0, n)
        n = put_rows(found, size, rows, before, base, stop, k, v, fold, entries, n)
        put(spans, key, 1, n)
    return keys, spans, entries[:n], 0
