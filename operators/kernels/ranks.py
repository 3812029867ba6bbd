"""Reads what quantiles of groups depend on: the rows around the chosen ranks, and the rows that a slice changes.

Which copy a quantile chooses depends on how many copies there are, and how many come before it. During a slice both
move by no more copies than the slice changes. So of the rows that do not change only those matter whose rank is as
near to a chosen one; they are found by the partial sums of the batches (storage/kernels/prefix_sums.py). The row before
them and the row behind them stand for all further rows, with the copies of these. Sums over batches are those of the
present rows only if no row of the key has negative copies before the slice, which the caller checks. Outside loops
only.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.ends import (
    is_changed,
    locate_runs,
    open_group,
    order_of_row,
    order_of_vals,
    put_rows,
    take_least,
)
from vernier.operators.kernels.stretches import FAR
from vernier.operators.kernels.surroundings import append_val, take_greatest
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.prefix_sums import COPIES, SUMS, add_between
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import val_word

_MOST = np.int64(1) << 40
"""Up to this number of copies, ranks as doubles are off by less than one."""


@inlined
def _is_null(table, batch, val, flag):  # type: ignore[no-untyped-def]
    return flag >= 0 and val_word(table, batch, val, flag) == 0


@borrowing
def _seek_values(table, low, high, flag, here):  # type: ignore[no-untyped-def]
    """Set the first val of each batch that is not null."""
    for batch in range(table.shape[0]):
        lo, hi = word(low, batch), word(high, batch)
        while flag >= 0 and lo < hi:
            middle = (lo + hi) >> 1
            if _is_null(table, batch, middle, flag):
                lo = middle + 1
            else:
                hi = middle
        put_word(here, batch, lo)


@borrowing
def _copies_between(table, sums, first, stop, totals):  # type: ignore[no-untyped-def]
    """The copies of the vals from the places `first` to the places `stop`."""
    put(totals, 0, COPIES, 0)
    for batch in range(table.shape[0]):
        add_between(table, batch, word(sums, batch), word(first, batch), word(stop, batch), -1, 1, -1, totals, 0)
    return cell(totals, 0, COPIES)


@borrowing
def _seek_rank(table, sums, begin, high, v, wanted, low, top, here, totals):  # type: ignore[no-untyped-def]
    """Set the places `here` before which there are fewer than `wanted` copies, while with the next val there are that
    many. O(log vals x batches x log vals)."""
    for batch in range(table.shape[0]):
        put_word(low, batch, word(begin, batch))
        put_word(top, batch, word(high, batch))
    below = np.int64(0)
    while True:
        widest, most = -1, np.int64(0)
        for batch in range(table.shape[0]):
            size = word(top, batch) - word(low, batch)
            if size > most:
                widest, most = batch, size
        if widest < 0:
            for batch in range(table.shape[0]):
                put_word(here, batch, word(low, batch))
            return
        middle = (word(low, widest) + word(top, widest)) >> 1
        # The places behind all vals up to the middle one.
        for batch in range(table.shape[0]):
            lo, hi = word(low, batch), word(top, batch)
            while lo < hi:
                half = (lo + hi) >> 1
                if order_of_vals(table, batch, half, widest, middle, v) <= 0:
                    lo = half + 1
                else:
                    hi = half
            put_word(here, batch, lo)
        copies = below + _copies_between(table, sums, low, here, totals)
        if copies < wanted:
            below = copies
            for batch in range(table.shape[0]):
                put_word(low, batch, word(here, batch))
            continue
        # Before that val.
        for batch in range(table.shape[0]):
            at = word(here, batch)
            while at > word(low, batch) and order_of_vals(table, batch, at - 1, widest, middle, v) == 0:
                at -= 1
            put_word(top, batch, at)


@inlined
def _pass_rows(table, batch, val, rows, row, stop, before, k, v):  # type: ignore[no-untyped-def]
    """Go past the changed rows up to a val. Returns (the next row, the copies that those had)."""
    copies, fresh = np.int64(0), True
    while row < stop and order_of_row(table, batch, val, rows, row, 1 + k, v) >= 0:
        copies += word(before, row) if fresh else np.int64(0)
        fresh = row + 1 < stop and not _same_val(rows, row, row + 1, k, v)
        row += 1
    return row, copies


@inlined
def _same_val(rows, one, two, k, v):  # type: ignore[no-untyped-def]
    for c in range(1 + k, 1 + k + v):
        if cell(rows, one, c) != cell(rows, two, c):
            return False
    return True


@inlined
def _copies_of(rows, row, stop, before, k, v):  # type: ignore[no-untyped-def]
    """The copies that the changed rows from `row` on had before the slice."""
    copies = np.int64(0)
    for one in range(row, stop):
        if one == row or not _same_val(rows, one - 1, one, k, v):
            copies += word(before, one)
    return copies


@njit(cache=True)
def read_ranks(table, sums, rows, k, v, fold, flag, shares):  # type: ignore[no-untyped-def]
    """What quantiles of each key that these rows touch depend on.

    table, rows, k, v, fold: as for `read_ends` (kernels/ends.py), with vals that begin with the value; sums: where the
    partial sums of copies of each batch are, 0 if it has none; flag: 0 if vals begin with a word that is 0 where the
    value is null, or -1; shares: those of the quantiles, ascending. Returns (keys, spans, entries, status) as
    `read_ends` does. O((batches x log rows of the key)^2 + batches x rows read) a key.
    """
    runs = key_runs(rows, k)
    q, batches = runs.shape[0] - 1, table.shape[0]
    keys, spans = np.empty((q, 1 + k), np.int64), np.empty((q, 2), np.int64)
    before, status = count_rows(table, rows, runs, k, v)
    if status != 0:
        return keys[:0], spans[:0], np.empty((0, v + 2), np.int64), status
    places = locate_runs(table, rows, runs, k)
    low, high, begin = np.empty(batches, np.int64), np.empty(batches, np.int64), np.empty(batches, np.int64)
    pos, here, there = np.empty(batches, np.int64), np.empty(batches, np.int64), np.empty(batches, np.int64)
    one, two, totals = np.empty(batches, np.int64), np.empty(batches, np.int64), np.zeros((1, SUMS), np.int64)
    entries, found = np.empty((4 * rows.shape[0] + 16 * q, v + 2), np.int64), np.empty((16, v + 1), np.int64)
    n = 0
    for key in range(q):
        base, stop = open_group(table, rows, runs, places, key, k, keys, low, high)
        _seek_values(table, low, high, flag, begin)
        size, row, moves = 0, base, np.int64(0)
        while flag >= 0 and row < stop and cell(rows, row, 1 + k + flag) == 0:
            row += 1
        nulls = _copies_between(table, sums, low, begin, totals) - _copies_of(rows, base, row, before, k, v)
        for batch in range(batches):
            put_word(pos, batch, word(low, batch))
        while nulls > 0:
            batch, val, copies, wrapped = take_least(table, pos, begin, v)
            if wrapped or batch < 0:
                return keys[:0], spans[:0], entries[:0], OVERFLOW
            if copies > 0 and not is_changed(table, batch, val, rows, base, stop, 1 + k, v):
                append_val(table, batch, val, v, nulls, found, size)
                size += 1
                break
        for i in range(row, stop):
            diff = cell(rows, i, 2 + k + v)
            if not -_MOST < diff < _MOST:
                return keys[:0], spans[:0], entries[:0], FAR
            moves += abs(diff)
        count = _copies_between(table, sums, begin, high, totals)
        if not (0 <= count < _MOST and moves < _MOST):
            return keys[:0], spans[:0], entries[:0], FAR
        for batch in range(batches):
            put_word(pos, batch, word(begin, batch))
        passed, ended = np.int64(0), False
        for share in shares:
            least = max(np.int64(np.floor(share * (count - moves))) - 2 - moves, np.int64(1))
            most = np.int64(np.ceil(share * (count + moves))) + 2 + moves
            if passed < least - 1:
                # The row before the first that can be chosen has all copies up to there.
                _seek_rank(table, sums, pos, high, v, least - passed, one, two, here, totals)
                for batch in range(batches):
                    put_word(there, batch, word(here, batch))
                batch, val = -1, np.int64(0)
                while True:
                    for other in range(batches):
                        put_word(one, other, word(there, other))
                    batch, val, copies, wrapped = take_greatest(table, pos, there, v)
                    if wrapped:
                        return keys[:0], spans[:0], entries[:0], OVERFLOW
                    if batch < 0 or (copies > 0 and not is_changed(table, batch, val, rows, base, stop, 1 + k, v)):
                        break
                if batch >= 0:
                    copies = _copies_between(table, sums, pos, one, totals)
                    passed += copies
                    row, gone = _pass_rows(table, batch, val, rows, row, stop, before, k, v)
                    if size == found.shape[0]:
                        found = more_rows(found, size)
                    append_val(table, batch, val, v, copies - gone, found, size)
                    size += 1
                    for other in range(batches):
                        put_word(pos, other, word(one, other))
            while passed < most:
                batch, val, copies, wrapped = take_least(table, pos, high, v)
                if wrapped:
                    return keys[:0], spans[:0], entries[:0], OVERFLOW
                if batch < 0:
                    ended = True
                    break
                passed += copies
                row, _ = _pass_rows(table, batch, val, rows, row, stop, before, k, v)
                if copies > 0 and not is_changed(table, batch, val, rows, base, stop, 1 + k, v):
                    if size == found.shape[0]:
                        found = more_rows(found, size)
                    append_val(table, batch, val, v, copies, found, size)
                    size += 1
        rest = np.int64(0) if ended else count - passed - _copies_of(rows, row, stop, before, k, v)
        while rest > 0:
            batch, val, copies, wrapped = take_least(table, pos, high, v)
            if wrapped or batch < 0:
                return keys[:0], spans[:0], entries[:0], OVERFLOW
            if copies > 0 and not is_changed(table, batch, val, rows, base, stop, 1 + k, v):
                if size == found.shape[0]:
                    found = more_rows(found, size)
                append_val(table, batch, val, v, rest, found, size)
                size += 1
                break
        room = n + size + 2 * (stop - base)
        if room > entries.shape[0]:
            entries = more_rows(entries, room)
        put(spans, key, 0, n)
        n = put_rows(found, size, rows, before, base, stop, k, v, fold, entries, n)
        put(spans, key, 1, n)
    return keys, spans, entries[:n], 0
