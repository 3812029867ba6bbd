"""Reads the ends of groups: the first copies in the order of the vals, and the rows that a slice changes.

What a group's first n copies are at any time of a slice depends on the rows that the slice changes and on the first n
copies of all other rows, which are constant meanwhile. So instead of its history, a group is read from one end until n
copies are there that the slice does not change. The changed rows are looked up. A reduction of the first copies gives
the same corrections for what is read as for the whole group. Outside loops only, where time is total.

Source: "Specializing differential dataflow" (what a totally ordered time saves).
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.cursors import count_rows, key_runs, locate_keys
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import DIFF_STRIDE, DIFFS, KEY_OFFSETS, VAL_OFFSETS, narrow, offset, val_word


@inlined
def order_of_vals(table, one, i, two, j, words):  # type: ignore[no-untyped-def]
    """Compares the first words of val i of batch `one` and val j of batch `two`: -1, 0 or 1."""
    for c in range(words):
        here, there = val_word(table, one, i, c), val_word(table, two, j, c)
        if here != there:
            return -1 if here < there else 1
    return 0


@inlined
def order_of_row(table, batch, i, rows, row, first, words):  # type: ignore[no-untyped-def]
    """Compares val i of a batch and the words rows[row, first:]: -1, 0 or 1."""
    for c in range(words):
        here, there = val_word(table, batch, i, c), cell(rows, row, first + c)
        if here != there:
            return -1 if here < there else 1
    return 0


@inlined
def _first_alike(table, batch, low, top, words):  # type: ignore[no-untyped-def]
    """The first val of [low, top] that has the first words of val `top`, found from `top` in growing steps."""
    step, lo, hi = 1, low, top
    while hi - step >= low and order_of_vals(table, batch, hi - step, batch, top, words) == 0:
        hi -= step
        step *= 2
    lo = max(low, hi - step)
    while lo < hi:
        middle = (lo + hi) >> 1
        if order_of_vals(table, batch, middle, batch, top, words) < 0:
            lo = middle + 1
        else:
            hi = middle
    return hi


@inlined
def _begin_run(table, low, high, start, down):  # type: ignore[no-untyped-def]
    """Set where the last run of vals with equal first `down` words begins in each batch. Returns whether there is
    one."""
    best = -1
    for batch in range(table.shape[0]):
        if word(high, batch) > word(low, batch) and (
            best < 0 or order_of_vals(table, batch, word(high, batch) - 1, best, word(high, best) - 1, down) > 0
        ):
            best = batch
    if best < 0:
        return False
    for batch in range(table.shape[0]):
        top = word(high, batch) - 1
        put_word(start, batch, top + 1)
        if top >= word(low, batch) and order_of_vals(table, batch, top, best, word(high, best) - 1, down) == 0:
            put_word(start, batch, _first_alike(table, batch, word(low, batch), top, down))
    return True


@inlined
def is_changed(table, batch, val, rows, base, stop, first, v):  # type: ignore[no-untyped-def]
    """Whether one of the sorted rows [base, stop) has this val."""
    while base < stop:
        middle = (base + stop) >> 1
        order = order_of_row(table, batch, val, rows, middle, first, v)
        if order == 0:
            return True
        if order < 0:
            stop = middle
        else:
            base = middle + 1
    return False


@inlined
def add_copies(table, batch, val, copies):  # type: ignore[no-untyped-def]
    """The copies and those of a val of a batch. Returns (copies, wrapped)."""
    diffs, stride = cell(table, batch, DIFFS), cell(table, batch, DIFF_STRIDE)
    start = offset(cell(table, batch, VAL_OFFSETS), val)
    stop = offset(cell(table, batch, VAL_OFFSETS), val + 1)
    for e in range(start, stop):
        copies, wrapped = add_checked(copies, narrow(diffs, e * stride))
        if wrapped:
            return copies, True
    return copies, False


@inlined
def take_least(table, here, high, v):  # type: ignore[no-untyped-def]
    """Move past the least val at the places `here`. Returns (a batch that has it, its place there, copies, wrapped);
    the batch is -1 if no val is left."""
    best, place = -1, np.int64(0)
    for batch in range(table.shape[0]):
        at = word(here, batch)
        if at < word(high, batch) and (best < 0 or order_of_vals(table, batch, at, best, place, v) < 0):
            best, place = batch, at
    copies = np.int64(0)
    for batch in range(table.shape[0] if best >= 0 else 0):
        at = word(here, batch)
        # Without offsets each update has a val of its own, and equal vals are adjacent.
        while at < word(high, batch) and order_of_vals(table, batch, at, best, place, v) == 0:
            copies, wrapped = add_copies(table, batch, at, copies)
            if wrapped:
                return best, place, copies, True
            at += 1
        put_word(here, batch, at)
    return best, place, copies, False


@inlined
def put_rows(found, size, rows, before, base, stop, k, v, fold, entries, n):  # type: ignore[no-untyped-def]
    """Write a key's entries, sorted: those found, with the time `fold`, and those of the changed rows [base, stop).
    Returns the number of entries with those before; the caller has made sure that they fit."""
    i, row = 0, base
    while i < size or row < stop:
        order = 0
        if i < size and row < stop:
            for c in range(v):
                if cell(found, i, c) != cell(rows, row, 1 + k + c):
                    order = -1 if cell(found, i, c) < cell(rows, row, 1 + k + c) else 1
                    break
        if row == stop or order < 0:
            for c in range(v):
                put(entries, n, c, cell(found, i, c))
            put(entries, n, v, fold)
            put(entries, n, v + 1, cell(found, i, v))
            n += 1
            i += 1
            continue
        new = row == base
        for c in range(1 + k, 1 + k + v):
            if new or cell(rows, row, c) != cell(rows, row - 1, c):
                new = True
                break
        for c in range(v):
            put(entries, n, c, cell(rows, row, 1 + k + c))
        if new and word(before, row) != 0:
            put(entries, n, v, fold)
            put(entries, n, v + 1, word(before, row))
            n += 1
            for c in range(v):
                put(entries, n, c, cell(rows, row, 1 + k + c))
        put(entries, n, v, cell(rows, row, 1 + k + v))
        put(entries, n, v + 1, cell(rows, row, 2 + k + v))
        n += 1
        row += 1
    return n


@njit(cache=True)
def locate_runs(table, rows, runs, k):  # type: ignore[no-untyped-def]
    """The place of the key of each of q runs of rows in each batch, batch by batch: int64[batches * q], -1 if the batch
    lacks it."""
    q = runs.shape[0] - 1
    places = np.empty(table.shape[0] * q, np.int64)
    for batch in range(table.shape[0]):
        locate_keys(table, batch, rows, runs, k, places[batch * q : (batch + 1) * q])
    return places


@inlined
def open_group(table, rows, runs, places, key, k, keys, low, high):  # type: ignore[no-untyped-def]
    """Write a run's key into `keys`, and the vals [low, high) that each batch has of it. Returns the run's rows
    [base, stop)."""
    base, stop = word(runs, key), word(runs, key + 1)
    for c in range(1 + k):
        put(keys, key, c, cell(rows, base, c))
    for batch in range(table.shape[0]):
        at = word(places, batch * (runs.shape[0] - 1) + key)
        put_word(low, batch, offset(cell(table, batch, KEY_OFFSETS), at) if at >= 0 else 0)
        put_word(high, batch, offset(cell(table, batch, KEY_OFFSETS), at + 1) if at >= 0 else 0)
    return base, stop


@njit(cache=True)
def read_ends(table, rows, k, v, fold, down, whole, most, flag):  # type: ignore[no-untyped-def]
    """What the first `most` copies of each key that these rows touch depend on.

    table: addresses of the settled batches of an arrangement (kernels/tries.py); rows[n]: this slice's updates of it,
    `[hash | key | val | time | diff]`, sorted and consolidated; v: words of a val, at least one; down: groups are read
    from the end, and vals that differ in their first `down` words come in descending order, the others, and all if it
    is 0, in ascending order; whole: of the vals that have the first `whole` words of the last one read, all are read
    (v: no more than that one); flag: a word of the val that is 0 where a row does not count among the first, or -1.
    Returns (keys `[hash | key]`; spans[q, 2] and entries `[val | time | diff]` as those of a Selection, in which older
    updates have the time `fold`; status). O((batches + log rows of the key) x (rows + most)) if few vals are equal in
    the first `down` words.
    """
    runs = key_runs(rows, k)
    q, batches = runs.shape[0] - 1, table.shape[0]
    keys, spans = np.empty((q, 1 + k), np.int64), np.empty((q, 2), np.int64)
    before, status = count_rows(table, rows, runs, k, v)
    if status != 0:
        return keys[:0], spans[:0], np.empty((0, v + 2), np.int64), status
    places = locate_runs(table, rows, runs, k)
    low, high = np.empty(batches, np.int64), np.empty(batches, np.int64)
    begin, here = np.empty(batches, np.int64), np.empty(batches, np.int64)
    entries = np.empty((2 * rows.shape[0] + 2 * min(most, 8) * q, v + 2), np.int64)
    found, columns = np.empty((16, v + 1), np.int64), np.arange(v)
    n = 0
    for key in range(q):
        base, stop = open_group(table, rows, runs, places, key, k, keys, low, high)
        size, got, last, last_val = 0, np.int64(0), -1, np.int64(0)
        while got < most:
            if down > 0 and not _begin_run(table, low, high, begin, down):
                break
            for batch in range(batches):
                put_word(here, batch, word(begin, batch) if down > 0 else word(low, batch))
            while got < most or whole < v:
                batch, val, copies, wrapped = take_least(table, here, high, v)
                if wrapped:
                    return keys[:0], spans[:0], entries[:0], OVERFLOW
                if batch < 0 or (last >= 0 and order_of_vals(table, batch, val, last, last_val, whole) != 0):
                    break
                if copies == 0 or is_changed(table, batch, val, rows, base, stop, 1 + k, v):
                    continue
                if size == found.shape[0]:
                    found = more_rows(found, size)
                for c in range(v):
                    put(found, size, c, val_word(table, batch, val, c))
                put(found, size, v, copies)
                if copies > 0 and (flag < 0 or cell(found, size, max(flag, 0)) != 0):
                    got += min(copies, most - got)
                    if got == most:
                        last, last_val = batch, val
                size += 1
            if down == 0:
                break
            for batch in range(batches):
                put_word(high, batch, word(begin, batch))
        if down > 0 and size > 1:
            order = sort_order(found[:size], columns)
            ascending = np.empty((size, v + 1), np.int64)
            for i in range(size):
                for c in range(v + 1):
                    put(ascending, i, c, cell(found, word(order, i), c))
            found = ascending
        room = n + size + 2 * (stop - base)
        if room > entries.shape[0]:
            entries = more_rows(entries, room)
        put(spans, key, 0, n)
        n = put_rows(found, size, rows, before, base, stop, k, v, fold, entries, n)
        put(spans, key, 1, n)
    return keys, spans, entries[:n], 0
