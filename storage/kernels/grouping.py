"""Groups of rows that have the same first word, for inputs with few distinct first words.

A hash table numbers the words. If the second words are sorted within each group, as in rows that arrive in time order,
rows can be moved directly to their final places.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.packing import row_less
from vernier.storage.kernels.separate import NUMBER, ROWS, WORDS, separate
from vernier.storage.kernels.sorting import DIGITS_FROM, FEW, sort_two

_GROUPS = 1 << 14
"""Up to this number of distinct first words, looking each row's word up in a table of them costs less than sorting."""
SORTED, MANY, SOME, GROUPED, SINGLE = 0, 1, 2, 3, 4
"""SORTED: the rows are in order. MANY: too many distinct first words. SOME: few. GROUPED: few, and the rows of each are
in order. SINGLE: also, no two rows are equal."""


_WORD, _NEWEST, _FIRST, _SIZE = 0, 1, 2, 3
"""What is known of a group, in one line of the cache: its word, the second word of its newest row, its first row, and
how many rows it has."""


@njit(cache=True)
def number_words(one, two, groups):  # type: ignore[no-untyped-def]
    """Write into groups[n] the number of each row's first word among the distinct ones, if there are few.

    Returns (the first row of each group, the number of rows of each, kind). kind is MANY (nothing is set), SOME,
    GROUPED (the second words in each group are sorted) or SINGLE (also, they are distinct). O(n).

    Words that lie close together are places in the table, others are hashed to one.
    """
    n = one.shape[0]
    limit = min(n >> 1, _GROUPS)
    least = most = word(one, 0)
    for i in range(n):
        least, most = min(least, word(one, i)), max(most, word(one, i))
    reach = np.uint64(most) - np.uint64(least)
    close, size = reach < np.uint64(n), 64
    if close:
        size = np.int64(reach) + 1
    else:
        while size < 4 * limit:
            size *= 2
    table = np.zeros(size, np.int64)
    known = np.empty((limit + 1, 4), np.int64)
    count, ordered, single = 0, True, True
    for i in range(n):
        wanted, second = word(one, i), word(two, i)
        at = wanted - least if close else (wanted ^ (wanted >> 29)) & (size - 1)
        while True:
            found = word(table, at) - 1
            if found < 0:
                if count == limit:
                    return table[:0], table[:0], MANY
                found = count
                count += 1
                put_word(table, at, count)
                put(known, found, _WORD, wanted)
                put(known, found, _FIRST, i)
                put(known, found, _SIZE, 1)
                break
            if close or cell(known, found, _WORD) == wanted:
                last = cell(known, found, _NEWEST)
                ordered &= second >= last
                single &= second > last
                put(known, found, _SIZE, cell(known, found, _SIZE) + 1)
                break
            at = (at + 1) & (size - 1)
        put(known, found, _NEWEST, second)
        put_word(groups, i, found)
    firsts, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    for group in range(count):
        put_word(firsts, group, cell(known, group, _FIRST))
        put_word(sizes, group, cell(known, group, _SIZE))
    return firsts, sizes, SINGLE if single else GROUPED if ordered else SOME


@njit(cache=True)
def place_groups(one, two, sizes):  # type: ignore[no-untyped-def]
    """Where the rows of each group begin if groups of these sizes are sorted by two words each, and the groups' ranks.
    Overwrites the words. O(groups log groups)."""
    count = sizes.shape[0]
    numbers, starts, ranks = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    sort_two(np.empty((0, 0), np.int64), np.empty(0, np.int64), 0, one, two, numbers)
    total = 0
    for rank in range(count):
        group = word(numbers, rank)
        put_word(ranks, group, rank)
        put_word(starts, group, total)
        total += word(sizes, group)
    return starts, ranks


@njit(cache=True)
def _in_order(data, columns, exact, one, two):  # type: ignore[no-untyped-def]
    """Whether rows are already sorted by their words and by the columns from number `exact` on."""
    rest = exact < columns.shape[0]
    for i in range(1, one.shape[0]):
        if word(one, i) <= word(one, i - 1) and (
            word(one, i) < word(one, i - 1)
            or word(two, i) < word(two, i - 1)
            or (rest and word(two, i) == word(two, i - 1) and row_less(data, columns, exact, i, i - 1))
        ):
            return False
    return True


@separate((WORDS, WORDS, WORDS, NUMBER), ROWS, WORDS, NUMBER, WORDS, WORDS, WORDS)
@njit(cache=True)
def group_rows(data, columns, exact, one, two, groups):  # type: ignore[no-untyped-def]
    """Group rows by their first word if there are few distinct ones: (the first row of each group, where each group's
    rows begin in the order of the words, the groups' ranks, kind: SORTED … SINGLE). Fills groups[n]. O(n)."""
    n, none = one.shape[0], np.empty(0, np.int64)
    if n > FEW and _in_order(data, columns, exact, one, two):
        return none, none, none, SORTED
    if n < DIGITS_FROM or exact < columns.shape[0]:
        return none, none, none, MANY
    firsts, sizes, kind = number_words(one, two, groups)
    if kind == MANY:
        return none, none, none, MANY
    words = np.empty(firsts.shape[0], np.int64)
    for group in range(firsts.shape[0]):
        put_word(words, group, word(one, word(firsts, group)))
    starts, ranks = place_groups(words, np.zeros(firsts.shape[0], np.int64), sizes)
    return firsts, starts, ranks, kind


@njit(cache=True)
def goes_at_once(data, kind):  # type: ignore[no-untyped-def]
    """Whether placing the rows of such groups consolidates them: no two are equal and no diff is zero."""
    if kind != SINGLE:
        return False
    last = data.shape[1] - 1
    for i in range(data.shape[0]):
        if cell(data, i, last) == 0:
            return False
    return True


@njit(cache=True, inline="always")
def take_place(groups, starts, i):  # type: ignore[no-untyped-def]
    """The place of row i, the next one of its group. starts: where the rest of each group goes; it is advanced."""
    group = word(groups, i)
    place = word(starts, group)
    put_word(starts, group, place + 1)
    return place
