"""Sort the rows of an int64 matrix by some of its columns, and sum equal rows.

Columns are packed into two words; while sorting, only these and the row's position are moved (kernels/packing.py). If
there are few distinct first words, rows are grouped by them (kernels/grouping.py), or ranks and second words are sorted
digit by digit. Otherwise the algorithm depends on the number of rows (kernels/sorting.py). No input is worse than n log
n.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.few import FEW, consolidate_few
from vernier.storage.kernels.grouping import GROUPED, SOME, SORTED, goes_at_once, group_rows, take_place
from vernier.storage.kernels.packing import bits, join_words, pack_words, rows_equal
from vernier.storage.kernels.separate import NUMBER, ROWS, WORDS, separate
from vernier.storage.kernels.sorting import (
    DIGITS_FROM,
    DIGITS_TO,
    add_checked,
    short,
    sort_digits,
    sort_two,
)
from vernier.storage.kernels.status import OVERFLOW


@separate((WORDS, WORDS, WORDS), ROWS, WORDS, WORDS, WORDS, NUMBER, WORDS, WORDS, WORDS, NUMBER)
@njit(cache=True)
def sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind):  # type: ignore[no-untyped-def]
    """The stable order of all rows by their words, and by the columns from number `exact` on. Returns (order[n], the
    two words of each row in that order); words are equal if the columns packed in them are.

    groups, starts, ranks, kind: the result of group_rows; words, groups and starts are overwritten. O(n log n); O(n) if
    the first word is uniform or has few values.
    """
    n = data.shape[0]
    if kind == SORTED:
        return np.arange(n), one, two
    if n < DIGITS_FROM:
        one, two = sort_two(data, columns, exact, one, two, groups)
        return groups, one, two
    to_one, to_two, to_order = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    if kind >= GROUPED:
        for i in range(n):
            to = take_place(groups, starts, i)
            put_word(to_one, to, word(one, i))
            put_word(to_two, to, word(two, i))
            put_word(to_order, to, i)
        return to_order, to_one, to_two
    beside = bits(np.uint64(n - 1))
    place = (1 << beside) - 1
    if exact == columns.shape[0] and n <= DIGITS_TO:
        if kind == SOME:
            for i in range(n):
                put_word(groups, i, word(ranks, word(groups, i)))
        most = join_words(groups if kind == SOME else one, two, to_one)
        if short(most, beside):
            for i in range(n):
                put_word(to_one, i, (word(to_one, i) << beside) | i)
            sorted_words, to_two = sort_digits(to_one, most, beside, to_two)
            for i in range(n):
                put_word(to_order, i, word(sorted_words, i) & place)
                put_word(sorted_words, i, word(sorted_words, i) >> beside)
                put_word(to_two, i, 0)
            return to_order, sorted_words, to_two
    one, two = sort_two(data, columns, exact, one, two, groups)
    return groups, one, two


@separate(WORDS, ROWS, WORDS)
@njit(cache=True)
def sort_order(data: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The stable order of all rows by the columns. O(n log n); O(n) if the first column is uniform or has few
    values."""
    n = data.shape[0]
    one, two, groups = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    exact = pack_words(data, columns, one, two)
    _, starts, ranks, kind = group_rows(data, columns, exact, one, two, groups)
    order, _, _ = sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind)
    return order


@njit(cache=True, inline="always")
def add_up(data, columns, exact, order, one, two, i):  # type: ignore[no-untyped-def]
    """Sum the last column of the rows equal to number i of the order: (number of the next different row, sum,
    wrapped)."""
    n, last = order.shape[0], data.shape[1] - 1
    rest = exact < columns.shape[0]
    start, first = i, word(order, i)
    total, wrapped = cell(data, first, last), False
    i += 1
    while (
        i < n
        and word(one, i) == word(one, start)
        and word(two, i) == word(two, start)
        and not (rest and not rows_equal(data, columns, exact, first, word(order, i)))
    ):
        total, left = add_checked(total, cell(data, word(order, i), last))
        wrapped |= left
        i += 1
    return i, total, wrapped


@njit(cache=True)
def consolidate(data: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Sort rows by the columns, sum the last column of rows that are equal in them, and drop zeros.

    Returns (rows, 0), or (no rows, OVERFLOW) if a sum leaves int64.
    """
    n = data.shape[0]
    if n <= FEW:
        out = np.empty((n + 1, data.shape[1]), np.int64)
        count, wrapped = consolidate_few(data, columns, out)
        return (out[:0], OVERFLOW) if wrapped else (out[:count], 0)
    one, two, groups = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    return consolidate_in(data, columns, one, two, groups, np.empty(data.shape, np.int64))


@separate((ROWS, NUMBER), ROWS, WORDS, WORDS, WORDS, WORDS, ROWS)
@njit(cache=True)
def consolidate_in(data, columns, one, two, groups, out):  # type: ignore[no-untyped-def]
    """Like `consolidate`, in memory that the caller provides: one[n], two[n], groups[n], and `out`, with the shape of
    `data`, for the rows."""
    n, width = data.shape
    exact = pack_words(data, columns, one, two)
    _, starts, ranks, kind = group_rows(data, columns, exact, one, two, groups)
    if goes_at_once(data, kind):
        for i in range(n):
            to = take_place(groups, starts, i)
            for c in range(width):
                put(out, to, c, cell(data, i, c))
        return out, 0
    order, one, two = sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind)
    last, count, i = width - 1, 0, 0
    while i < n:
        row = word(order, i)
        i, total, wrapped = add_up(data, columns, exact, order, one, two, i)
        if wrapped:
            return out[:0], OVERFLOW
        if total != 0:
            for c in range(last):
                put(out, count, c, cell(data, row, c))
            put(out, count, last, total)
            count += 1
    return out[:count], 0
