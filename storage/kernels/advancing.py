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
    """Advance times before `since` to it, and sum rows at `since` that are equal, if few are distinct.

    data[n >= 1]: updates outside loops, `[row | time | diff]`, whose rows begin at column `first`. Returns (updates
    `[row | time | diff]` in any order, status). O(n).
    """
    n, last = data.shape[0], data.shape[1] - 1
    width = last - 1 - first
    one, groups = np.empty(n, np.int64), np.empty(n, np.int64)
    out = np.empty((n, width + 2), np.int64)
    firsts, kind = groups[:0], MANY
    if pack_columns(data, n, np.arange(first, last - 1), 0, one) == width:
        firsts, _, kind = number_words(one, one, groups)
    if kind == MANY:
        for i in range(n):
            _put_row(out, i, data, i, first, max(cell(data, i, last - 1), since), cell(data, i, last))
        return out, 0
    totals = np.zeros(firsts.shape[0], np.int64)
    count, wrapped = 0, False
    for i in range(n):
        time, diff = cell(data, i, last - 1), cell(data, i, last)
        if time > since:
            _put_row(out, count, data, i, first, time, diff)
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
            _put_row(out, count, data, word(firsts, group), first, since, word(totals, group))
            count += 1
    return out[:count], 0


@njit(cache=True, inline="always")
def _put_row(out, to, data, i, first, time, diff):  # type: ignore[no-untyped-def]
    """Write row i of `data`, from column `first` on, with this time and diff."""
    width = out.shape[1] - 2
    for c in range(width):
        put(out, to, c, cell(data, i, first + c))
    put(out, to, width, time)
    put(out, to, width + 1, diff)
