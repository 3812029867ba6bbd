"""Reads stretches of groups: from a changed row on, until what comes before the next row is the same as before.

Running sums, ranks and places depend on all rows before a row in the order of the vals, but only by what these add up
to. The slice's changes shift that for the rows behind them, until they balance. So a stretch begins with the run of
vals that share their place in the order with a changed row, and ends where at each time of the slice as many copies (or
as large a sum) have come as have gone. What is before it is constant during the slice, and follows from the partial
sums of the batches (storage/kernels/prefix_sums.py). Each stretch is a group of its own for the reduction. The sums of
batches are those of the present rows only if no row of the key has negative copies before the slice, which the caller
checks. Outside loops only, where time is total.
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
from vernier.operators.kernels.surroundings import append_val, reverse_rows, take_greatest
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.prefix_sums import COPIES, HIGH, LOW, SUMS, VALUES, add_between, add_value
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW

FAR = 120
"""The status if more copies come before a stretch, or are in a group, than can be counted on from."""
_LEAST = np.int64(-(2**63))
_MOST = np.int64(2**62)


@inlined
def seek_run(table, low, high, here, rows, row, first, whole, down):  # type: ignore[no-untyped-def]
    """Set the places in all batches at which the run of a row begins; going down, where it ends."""
    for batch in range(table.shape[0]):
        lo, hi = word(low, batch), word(high, batch)
        while lo < hi:
            middle = (lo + hi) >> 1
            order = order_of_row(table, batch, middle, rows, row, first, whole)
            if order < 0 or (down and order == 0):
                lo = middle + 1
            else:
                hi = middle
        put_word(here, batch, lo)


@inlined
def _next(table, low, here, high, v, down):  # type: ignore[no-untyped-def]
    """The next val from the places `here` on, without moving: (batch, place), the batch -1 if no val is left."""
    best, place = -1, np.int64(0)
    for batch in range(table.shape[0]):
        at = word(here, batch) - (1 if down else 0)
        if at < word(low, batch) or at >= word(high, batch):
            continue
        order = -1 if best < 0 else order_of_vals(table, batch, at, best, place, v)
        if order != 0 and (best < 0 or (order > 0) == down):
            best, place = batch, at
    return best, place


@inlined
def _same_words(rows, one, two, first, words):  # type: ignore[no-untyped-def]
    for c in range(first, first + words):
        if cell(rows, one, c) != cell(rows, two, c):
            return False
    return True


@inlined
def _balanced(cells, at, summed):  # type: ignore[no-untyped-def]
    """Whether what has come and gone at a time is the same."""
    if not summed:
        return cell(cells, at, COPIES) == 0
    return cell(cells, at, HIGH) == 0 and cell(cells, at, LOW) == 0 and cell(cells, at, VALUES) == 0


@inlined
def _shift(rows, first, stop, base, had, k, v, column, words, flag, slot, cells):  # type: ignore[no-untyped-def]
    """Add what the changes [first, stop) of one val, in time order, shift at each time. Returns (change of the number
    of times that are out of balance, wrapped)."""
    tilted, at = 0, 1 + k + column
    counts = column >= 0 and (flag < 0 or cell(rows, first, 1 + k + max(flag, 0)) != 0)
    for i in range(first, stop):
        now, wrapped = add_checked(had, cell(rows, i, 2 + k + v))
        if wrapped:
            return tilted, True
        more = max(now, np.int64(0)) - max(had, np.int64(0))
        had = now
        here = word(slot, i - base)
        tilted += 1 if _balanced(cells, here, column >= 0) else 0
        put(cells, here, COPIES, cell(cells, here, COPIES) + more)
        if counts:
            if flag >= 0:
                put(cells, here, VALUES, cell(cells, here, VALUES) + more)
            one = cell(rows, i, at)
            if words == 2:
                add_value(cells, here, one, cell(rows, i, at + 1) ^ _LEAST, more)
            else:
                add_value(cells, here, one >> 63, one, more)
        tilted -= 1 if _balanced(cells, here, column >= 0) else 0
    return tilted, False


@njit(cache=True)
def read_stretches(table, sums, rows, k, v, fold, whole, down, column, words, flag):  # type: ignore[no-untyped-def]
    """The stretches of each key that these rows touch, and what comes before each.

    table, rows, k, v, fold: as for `read_ends` (kernels/ends.py); sums: where the partial sums of each batch are, 0 if
    it has none; whole: vals with the same first `whole` words are a run, of which all are read; down: the order is that
    of descending vals; column, words, flag: the column that is summed, see `add_vals`, or -1 if only copies count.
    Returns (keys `[hash | key]`, one for each stretch; spans and entries as `read_ends` does; ahead[stretches, SUMS]:
    what the rows before each add up to; status). O((batches + log rows of the key) x (rows + rows read)).
    """
    runs = key_runs(rows, k)
    n, q, batches = rows.shape[0], runs.shape[0] - 1, table.shape[0]
    keys, spans, ahead = np.empty((n, 1 + k), np.int64), np.empty((n, 2), np.int64), np.zeros((n, SUMS), np.int64)
    before, status = count_rows(table, rows, runs, k, v)
    if status != 0:
        return keys[:0], spans[:0], np.empty((0, v + 2), np.int64), ahead[:0], status
    places, group_keys = locate_runs(table, rows, runs, k), np.empty((q, 1 + k), np.int64)
    low, high, here = np.empty(batches, np.int64), np.empty(batches, np.int64), np.empty(batches, np.int64)
    times, order, slot = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    cells = np.empty((n, SUMS), np.int64)
    entries, found = np.empty((4 * n + 32, v + 2), np.int64), np.empty((32, v + 1), np.int64)
    step, stretches, used = -1 if down else 1, 0, 0
    for key in range(q):
        base, stop = open_group(table, rows, runs, places, key, k, group_keys, low, high)
        for i in range(stop - base):
            put_word(times, i, cell(rows, base + i, 1 + k + v))
            put_word(order, i, i)
        sorted_by_time(times, order, stop - base)
        at = -1
        for i in range(stop - base):
            if i == 0 or word(times, word(order, i)) != word(times, word(order, i - 1)):
                at += 1
                for c in range(SUMS):
                    put(cells, at, c, 0)
            put_word(slot, word(order, i), at)
        row = stop - 1 if down else base
        while base <= row < stop:
            first, size, tilted = row, 0, 0
            seek_run(table, low, high, here, rows, row, 1 + k, whole, down)
            for batch in range(batches):
                begin, end = word(low, batch), word(here, batch)
                if down:
                    begin, end = end, word(high, batch)
                add_between(table, batch, word(sums, batch), begin, end, column, words, flag, ahead, stretches)
            if not 0 <= cell(ahead, stretches, COPIES) < _MOST:
                return keys[:0], spans[:0], entries[:0], ahead[:0], FAR
            batch, val = _next(table, low, here, high, v, down)
            while True:
                some = base <= row < stop
                if not some and batch < 0:
                    break
                if row != first and tilted == 0:
                    break
                mine = some
                if some and batch >= 0:
                    compared = order_of_row(table, batch, val, rows, row, 1 + k, whole)
                    mine = compared <= 0 if down else compared >= 0
                head, head_val, head_row = batch, val, row
                while mine and base <= row < stop and _same_words(rows, row, head_row, 1 + k, whole):
                    # The changes of one val, in time order.
                    other = row
                    while base <= other < stop and _same_words(rows, other, row, 1 + k, v):
                        other += step
                    one, end = (other + 1, row + 1) if down else (row, other)
                    change, wrapped = _shift(
                        rows, one, end, base, word(before, one), k, v, column, words, flag, slot, cells
                    )
                    if wrapped:
                        return keys[:0], spans[:0], entries[:0], ahead[:0], OVERFLOW
                    tilted += change
                    row = other
                while batch >= 0:
                    if mine:
                        alike = order_of_row(table, batch, val, rows, head_row, 1 + k, whole) == 0
                    else:
                        alike = order_of_vals(table, batch, val, head, head_val, whole) == 0
                    if not alike:
                        break
                    if down:
                        _, _, copies, wrapped = take_greatest(table, low, here, v)
                    else:
                        _, _, copies, wrapped = take_least(table, here, high, v)
                    if wrapped:
                        return keys[:0], spans[:0], entries[:0], ahead[:0], OVERFLOW
                    if copies != 0 and not (mine and is_changed(table, batch, val, rows, base, stop, 1 + k, v)):
                        if size == found.shape[0]:
                            found = more_rows(found, size)
                        append_val(table, batch, val, v, copies, found, size)
                        size += 1
                    batch, val = _next(table, low, here, high, v, down)
            begin, end = (row + 1, first + 1) if down else (first, row)
            if down:
                reverse_rows(found, 0, size, v + 1)
            room = used + size + 2 * (end - begin)
            if room > entries.shape[0]:
                entries = more_rows(entries, room)
            for c in range(1 + k):
                put(keys, stretches, c, cell(group_keys, key, c))
            put(spans, stretches, 0, used)
            used = put_rows(found, size, rows, before, begin, end, k, v, fold, entries, used)
            put(spans, stretches, 1, used)
            stretches += 1
    return keys[:stretches], spans[:stretches], entries[:used], ahead[:stretches], 0
