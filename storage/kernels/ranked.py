"""Sum rows of few distinct keys by words that contain all of a row: its key's rank, its other columns, and its diff.

Such words are sorted digit by digit and added up without branches, and rows are made from them again. So no row is read
after it was packed. A place in a sorted order would be read all over memory, and whether the next row is equal is what
a processor cannot predict.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.packing import bits
from vernier.storage.kernels.sorting import DIGITS_TO, short, sort_digits

_FAR = 1 << 40
"""Diffs up to this are added up: DIGITS_TO of them stay far inside int64."""


@njit(cache=True)
def add_up_words(data, groups, ranks, two, width):  # type: ignore[no-untyped-def]
    """Sort and sum rows by the ranks of their groups and by two[n], words of `width` bits. Returns (for each distinct
    row the rank of its group, its word below it; its diff, not 0; how many there are), or -1 of them if they do not fit
    a word with their diffs. O(n) for each digit."""
    n, last = data.shape[0], data.shape[1] - 1
    joined = np.empty(n, np.int64)
    low = high = cell(data, 0, last)
    for i in range(n):
        diff = cell(data, i, last)
        low, high = min(low, diff), max(high, diff)
    if n > DIGITS_TO or low < -_FAR or high > _FAR:
        return joined, joined, -1
    beside = bits(np.uint64(high - low))
    wide = bits(np.uint64(ranks.shape[0] - 1)) + width
    if wide > 62 or not short((1 << wide) - 1, beside):
        return joined, joined, -1
    for i in range(n):
        left = (word(ranks, word(groups, i)) << width) | word(two, i)
        put_word(joined, i, (left << beside) | (cell(data, i, last) - low))
    words, totals = sort_digits(joined, (1 << wide) - 1, beside, np.empty(n, np.int64))
    mask, before = (1 << beside) - 1, word(words, 0) >> beside
    count = total = 0
    for i in range(n):
        left = word(words, i)
        row, diff = left >> beside, (left & mask) + low
        count += 1 if row != before and total != 0 else 0
        total = diff if row != before else total + diff
        before = row
        put_word(words, count, row)
        put_word(totals, count, total)
    return words, totals, count + (1 if total != 0 else 0)


@njit(cache=True)
def write_columns(words, count, least, sizes, places, out):  # type: ignore[no-untyped-def]
    """Write the columns that are packed into words (`packing.pack_known`) into places of the first rows of `out`."""
    for at in range(count):
        left = word(words, at)
        for c in range(sizes.shape[0] - 1, -1, -1):
            size = word(sizes, c)
            put(out, at, word(places, c), word(least, c) + (left & ((1 << size) - 1)))
            left >>= size
