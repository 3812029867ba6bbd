"""Advance the times of updates that a trace will not tell apart, and sum rows that are then equal."""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.grouping import MANY, number_words
from vernier.storage.kernels.packing import pack_columns
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW


@njit(cache=True)
def advance_rows(data, first, since):  # type: ignore[no-untyped-def]
    """Advance times before `since` to it, and sum rows at `since` that are equal, if they are neighbours or few are
    distinct.

    data[n >= 1]: updates outside loops, `[row | time | diff]`, whose rows begin at column `first`. Returns (updates
    `[row | time | diff]` in any order, status). O(n).
    """
    rows, wrapped = _sum_neighbours(data, first, since)
    n, width = rows.shape[0], rows.shape[1] - 2
    if wrapped or n == 0:
        return rows[:0], OVERFLOW if wrapped else 0
    one, groups = np.empty(n, np.int64), np.empty(n, np.int64)
    firsts, kind = groups[:0], MANY
    if pack_columns(rows, n, np.arange(width), 0, one) == width:
        firsts, _, kind = number_words(one, one, groups)
    if kind == MANY:
        return rows, 0
    out = np.empty((n, width + 2), np.int64)
    totals = np.zeros(firsts.shape[0], np.int64)
    count = 0
    for i in range(n):
        time, diff = cell(rows, i, width), cell(rows, i, width + 1)
        if time > since:
            _put_row(out, count, rows, i, 0, time, diff)
            count += 1
        else:
            group = word(groups, i)
            total, left = add_checked(word(totals, group), diff)
            put_word(totals, group, total)
            wrapped |= left
    if wrapped:
        return out[:0], OVERFLOW
    for group in range(firsts.shape[0]):
        if word(totals, group) != 0:
            _put_row(out, count, rows, word(firsts, group), 0, since, word(totals, group))
            count += 1
    return out[:count], 0


@njit(cache=True)
def _sum_neighbours(data, first, since):  # type: ignore[no-untyped-def]
    """The rows with their times advanced, without those that cancel out: where a group's result changes often, a change
    inserts the row that the next one deletes. Returns (updates, whether a sum has wrapped)."""
    n, last = data.shape[0], data.shape[1] - 1
    width = last - 1 - first
    out, count, wrapped = np.empty((n, width + 2), np.int64), 0, False
    for i in range(n):
        time, diff = cell(data, i, last - 1), cell(data, i, last)
        same = time <= since and count > 0 and cell(out, count - 1, width) == since
        for c in range(width):
            same = same and cell(out, count - 1, c) == cell(data, i, first + c)
        if same:
            total, left = add_checked(cell(out, count - 1, width + 1), diff)
            put(out, count - 1, width + 1, total)
            wrapped |= left
            count -= total == 0
        else:
            _put_row(out, count, data, i, first, max(time, since), diff)
            count += 1
    return out[:count], wrapped


@njit(cache=True, inline="always")
def _put_row(out, to, data, i, first, time, diff):  # type: ignore[no-untyped-def]
    """Write row i of `data`, from column `first` on, with this time and diff."""
    width = out.shape[1] - 2
    for c in range(width):
        put(out, to, c, cell(data, i, first + c))
    put(out, to, width, time)
    put(out, to, width + 1, diff)
