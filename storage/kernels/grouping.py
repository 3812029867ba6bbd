"""Groups of rows that have the same first word, where such words are few.

A table numbers the words. If second words come in order for each of them, as those of rows that are in the order of
their times do, rows go to their places at once.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put_word, word
from vernier.storage.kernels.packing import row_less
from vernier.storage.kernels.sorting import DIGITS_FROM, FEW, merge_sort

_GROUPS = 1 << 13
"""First words, if they are few, up to which a table of them stays in the cache."""
SORTED, MANY, SOME, GROUPED, SINGLE = 0, 1, 2, 3, 4
"""Rows are in order; first words are too many; are few; and rows of each are in order; and no two rows are equal."""


@njit(cache=True)
def number_words(one, two, groups):  # type: ignore[no-untyped-def]
    """Write into groups[n] the number of each first word among all of them, if they are few.

    Returns (the first row of each; how many rows each has; MANY: nothing is set, SOME, GROUPED: the second words in
    each group are in order already, SINGLE: and each is there once). O(n).
    """
    n = one.shape[0]
    limit = min(n >> 3, _GROUPS)
    size = 64
    while size < 4 * limit:
        size *= 2
    table = np.zeros(size, np.int64)
    distinct = np.empty(limit + 1, np.int64)
    newest = np.empty(limit + 1, np.int64)
    firsts = np.empty(limit + 1, np.int64)
    sizes = np.zeros(limit + 1, np.int64)
    count, ordered, single = 0, True, True
    for i in range(n):
        wanted, second = word(one, i), word(two, i)
        at = (wanted ^ (wanted >> 29)) & (size - 1)
        while True:
            found = word(table, at)
            if found == 0:
                if count == limit:
                    return firsts[:0], sizes[:0], MANY
                put_word(distinct, count, wanted)
                put_word(newest, count, second)
                put_word(firsts, count, i)
                count += 1
                put_word(table, at, count)
                found = count
                break
            if word(distinct, found - 1) == wanted:
                last = word(newest, found - 1)
                ordered &= second >= last
                single &= second > last
                put_word(newest, found - 1, second)
                break
            at = (at + 1) & (size - 1)
        put_word(groups, i, found - 1)
        put_word(sizes, found - 1, word(sizes, found - 1) + 1)
    return firsts[:count], sizes[:count], SINGLE if single else GROUPED if ordered else SOME


@njit(cache=True)
def place_groups(one, two, sizes):  # type: ignore[no-untyped-def]
    """Where the rows of each group begin when groups of these sizes are put in order of two words each, which are used
    up, and the groups' ranks. O(groups log groups)."""
    count = sizes.shape[0]
    numbers, starts, ranks = np.arange(count), np.empty(count, np.int64), np.empty(count, np.int64)
    merge_sort(np.empty((0, 0), np.int64), np.empty(0, np.int64), 0, one, two, numbers, 0, count)
    total = 0
    for rank in range(count):
        group = word(numbers, rank)
        put_word(ranks, group, rank)
        put_word(starts, group, total)
        total += word(sizes, group)
    return starts, ranks


@njit(cache=True)
def _in_order(data, columns, exact, one, two):  # type: ignore[no-untyped-def]
    """Whether rows are in the order of their words, and of the columns from number `exact` on, already."""
    rest = exact < columns.shape[0]
    for i in range(1, one.shape[0]):
        if word(one, i) <= word(one, i - 1) and (
            word(one, i) < word(one, i - 1)
            or word(two, i) < word(two, i - 1)
            or (rest and word(two, i) == word(two, i - 1) and row_less(data, columns, exact, i, i - 1))
        ):
            return False
    return True


@njit(cache=True)
def group_rows(data, columns, exact, one, two, groups):  # type: ignore[no-untyped-def]
    """Put rows of the same first word into a group where there are few such words: (where the rows of each group begin
    in the order of the words, the groups' ranks, SORTED … SINGLE). Fills groups[n]. O(n)."""
    n, none = one.shape[0], np.empty(0, np.int64)
    if n > FEW and _in_order(data, columns, exact, one, two):
        return none, none, SORTED
    if n < DIGITS_FROM or exact < columns.shape[0]:
        return none, none, MANY
    firsts, sizes, kind = number_words(one, two, groups)
    if kind == MANY:
        return none, none, MANY
    words = np.empty(firsts.shape[0], np.int64)
    for group in range(firsts.shape[0]):
        put_word(words, group, word(one, word(firsts, group)))
    starts, ranks = place_groups(words, np.zeros(firsts.shape[0], np.int64), sizes)
    return starts, ranks, kind


@njit(cache=True)
def goes_at_once(data, kind):  # type: ignore[no-untyped-def]
    """Whether rows of such groups are consolidated once they are at their places: no two are equal, none is nothing."""
    if kind != SINGLE:
        return False
    last = data.shape[1] - 1
    for i in range(data.shape[0]):
        if cell(data, i, last) == 0:
            return False
    return True


@njit(cache=True, inline="always")
def take_place(groups, starts, i):  # type: ignore[no-untyped-def]
    """The place of row i, the next one of its group; starts: where the rest of each group goes, which moves on."""
    group = word(groups, i)
    place = word(starts, group)
    put_word(starts, group, place + 1)
    return place
