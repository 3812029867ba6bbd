"""Packs a row's columns into words that sort like the columns: as many columns of small range as fit go into one word.

Rows are compared by such words; the row itself is read only if the words do not contain all columns. A hash fills a
word alone; val, rounds and time of one slice mostly fit another.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put_word, word
from vernier.storage.kernels.separate import NUMBER, ROWS, WORDS, separate

_BLOCK = 1 << 10
"""Number of rows whose columns are packed at a time."""


@njit(cache=True, inline="always")
def row_less(data: np.ndarray, columns: np.ndarray, first: int, i: int, j: int) -> bool:
    """Whether row i sorts before row j by the columns from number `first` on."""
    for c in range(first, columns.shape[0]):
        column = columns[c]
        a = cell(data, i, column)
        b = cell(data, j, column)
        if a != b:
            return a < b
    return False


@njit(cache=True, inline="always")
def rows_equal(data: np.ndarray, columns: np.ndarray, first: int, i: int, j: int) -> bool:
    """Whether rows i and j agree in the columns from number `first` on."""
    for c in range(first, columns.shape[0]):
        if data[i, columns[c]] != data[j, columns[c]]:
            return False
    return True


@njit(cache=True, inline="always")
def bits(number: np.uint64) -> int:
    """The number of significant bits of a number."""
    count = 0
    while number > np.uint64(0):
        number >>= np.uint64(1)
        count += 1
    return count


@njit(cache=True)
def pack_columns(data: np.ndarray, n: int, columns: np.ndarray, first: int, words: np.ndarray) -> int:
    """Write into words[:n] one word per row that sorts like the columns from number `first` on, with as many columns as
    fit.

    If the word contains several columns, or one that fits 63 bits, words count from 0. Returns the number of the first
    column that is not included. O(n x columns).
    """
    m = columns.shape[0]
    return pack_known(data, n, columns, first, words, np.empty(m, np.int64), np.empty(m, np.int64))


@njit(cache=True)
def pack_known(data, n, columns, first, words, least, sizes):  # type: ignore[no-untyped-def]
    """Like `pack_columns`; fills least and sizes, from number `first` on, with the least value of each column that is
    included, and with its bits in the word, of which the last column has the lowest. Works on a block of rows at a
    time, because a row's columns share cache lines."""
    m = columns.shape[0]
    if n == 0 or first == m:
        words[:n] = 0
        return m
    most = np.empty(m, np.int64)
    for c in range(first, m):
        least[c] = most[c] = cell(data, 0, columns[c])
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        for c in range(first, m):
            column = columns[c]
            low, high = least[c], most[c]
            for i in range(start, end):
                low = min(low, cell(data, i, column))
                high = max(high, cell(data, i, column))
            least[c], most[c] = low, high
    stop, used = first, 0
    for c in range(first, m):
        sizes[c] = bits(np.uint64(most[c]) - np.uint64(least[c]))
        if used + sizes[c] > 63:
            break
        used += sizes[c]
        stop += 1
    if stop == first:
        least[first], sizes[first] = 0, 64
        for i in range(n):
            put_word(words, i, cell(data, i, columns[first]))
        return first + 1
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        column, low = columns[first], least[first]
        for i in range(start, end):
            put_word(words, i, cell(data, i, column) - low)
        for c in range(first + 1, stop):
            if sizes[c] > 0:
                column, low, shift = columns[c], least[c], sizes[c]
                for i in range(start, end):
                    put_word(words, i, (word(words, i) << shift) | (cell(data, i, column) - low))
    return stop


@separate(NUMBER, ROWS, WORDS, WORDS, WORDS)
@njit(cache=True)
def pack_words(data: np.ndarray, columns: np.ndarray, one: np.ndarray, two: np.ndarray) -> int:
    """Write into one[n] and two[n] two words per row that sort like the columns. The last column is in the second word
    if the others fit the first. Returns the number of the first column that is in neither. O(n x columns)."""
    n = data.shape[0]
    exact = pack_columns(data, n, columns[: max(1, columns.shape[0] - 1)], 0, one)
    return pack_columns(data, n, columns, exact, two)


@njit(cache=True)
def join_words(high, low, joined):  # type: ignore[no-untyped-def]
    """Join each row's two words into one in joined[n]; returns an upper bound of the results, or -1 if they do not fit
    or are negative."""
    n, most_high, most = low.shape[0], np.int64(0), np.int64(0)
    for i in range(n):
        if word(low, i) < 0 or word(high, i) < 0:
            return np.int64(-1)
        most_high = max(most_high, word(high, i))
        most = max(most, word(low, i))
    shift = bits(np.uint64(most))
    if shift + bits(np.uint64(most_high)) > 62:
        return np.int64(-1)
    for i in range(n):
        put_word(joined, i, (word(high, i) << shift) | word(low, i))
    return ((most_high + 1) << shift) - 1
