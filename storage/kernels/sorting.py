"""Sort words, each with a second word and the position of its row.

Few words: insertion sort. Many: one pass of a radix sort by the top bits of the first word's range. If first words are
uniform, as hashes are, this leaves each within a few places of its own. Above `WIDE` rows a coarser pass comes first,
so that everything after it stays in the cache. A crowded bucket is distributed by its second words if it has a single
first word; otherwise it is merge-sorted. Short words are sorted digit by digit.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.packing import bits, row_less

FEW = 24
"""Up to this number of rows, insertion sort is fastest."""
_CROWD = 40
"""From this number of rows in one bucket on, merge sort beats insertion sort."""
_DIGIT = 11
_DIGIT_MASK = (1 << _DIGIT) - 1
_MOST_DIGITS = 4
DIGITS_FROM = 1 << 9
DIGITS_TO = 1 << 20
"""From `DIGITS_FROM` up to `DIGITS_TO` rows, words of a few digits are sorted digit by digit."""
WIDE = 1 << 16
COARSE = 1 << 13
"""The number of rows that a bucket of the coarse pass should hold: their words and positions fit the second-level
cache."""


@njit(cache=True, inline="always")
def add_checked(a: int, b: int) -> tuple[int, bool]:
    """(a + b, whether the sum left int64)."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


@njit(cache=True)
def insertion_sort(data, columns, exact, one, two, order, start, lo, hi):  # type: ignore[no-untyped-def]
    """Sort [lo, hi) of the words and the order together, stably; [lo, start) is sorted already. Columns from number
    `exact` on are not contained in the words and are compared in the rows."""
    rest = exact < columns.shape[0]
    for i in range(start, hi):
        a, b, item = word(one, i), word(two, i), word(order, i)
        j = i
        while j > lo and (
            word(one, j - 1) > a
            or (
                word(one, j - 1) == a
                and (
                    word(two, j - 1) > b
                    or (rest and word(two, j - 1) == b and row_less(data, columns, exact, item, word(order, j - 1)))
                )
            )
        ):
            put_word(one, j, word(one, j - 1))
            put_word(two, j, word(two, j - 1))
            put_word(order, j, word(order, j - 1))
            j -= 1
        put_word(one, j, a)
        put_word(two, j, b)
        put_word(order, j, item)


@njit(cache=True)
def merge_sort(data, columns, exact, one, two, order, lo, hi):  # type: ignore[no-untyped-def]
    """Like `insertion_sort`, for any number of rows: insertion sort in blocks, then bottom-up merges."""
    block = FEW // 2
    start = lo
    while start < hi:
        insertion_sort(data, columns, exact, one, two, order, start + 1, start, min(start + block, hi))
        start += block
    if hi - lo <= block:
        return
    rest = exact < columns.shape[0]
    spare_one = np.empty(hi - lo, np.int64)
    spare_two = np.empty(hi - lo, np.int64)
    spare = np.empty(hi - lo, np.int64)
    width = block
    while width < hi - lo:
        start = lo
        while start + width < hi:
            middle = start + width
            stop = min(middle + width, hi)
            left = middle - start
            for i in range(left):
                put_word(spare_one, i, word(one, start + i))
                put_word(spare_two, i, word(two, start + i))
                put_word(spare, i, word(order, start + i))
            i, j, k = 0, middle, start
            while i < left and j < stop:
                if word(one, j) < word(spare_one, i) or (
                    word(one, j) == word(spare_one, i)
                    and (
                        word(two, j) < word(spare_two, i)
                        or (
                            rest
                            and word(two, j) == word(spare_two, i)
                            and row_less(data, columns, exact, word(order, j), word(spare, i))
                        )
                    )
                ):
                    put_word(one, k, word(one, j))
                    put_word(two, k, word(two, j))
                    put_word(order, k, word(order, j))
                    j += 1
                else:
                    put_word(one, k, word(spare_one, i))
                    put_word(two, k, word(spare_two, i))
                    put_word(order, k, word(spare, i))
                    i += 1
                k += 1
            while i < left:
                put_word(one, k, word(spare_one, i))
                put_word(two, k, word(spare_two, i))
                put_word(order, k, word(spare, i))
                i += 1
                k += 1
            start = stop
        width *= 2


@njit(cache=True)
def stable_order(words):  # type: ignore[no-untyped-def]
    """The stable sort order of int64 words, as positions. np.argsort would do the same, but it takes a second to
    compile in each kernel that calls it."""
    n = words.shape[0]
    one, two, order = words.copy(), np.zeros(n, np.int64), np.arange(n)
    merge_sort(np.empty((0, 0), np.int64), np.empty(0, np.int64), 0, one, two, order, 0, n)
    return order


@njit(cache=True)
def spread(one, two, order, lo, hi, buckets, to_one, to_two, to_order, starts):  # type: ignore[no-untyped-def]
    """Move [lo, hi) of words and order to the same range of `to_…`, stably, grouped into ascending buckets of the first
    word. The buckets are equally wide, and there are at most `buckets` of them (a power of two).

    Fills starts[: used + 1] with where the groups begin; returns used.
    """
    least, most = word(one, lo), word(one, lo)
    for i in range(lo, hi):
        least = min(least, word(one, i))
        most = max(most, word(one, i))
    base = np.uint64(least)
    reach = np.uint64(most) - base
    shift = np.uint64(max(0, bits(reach) - bits(np.uint64(buckets - 1))))
    used = np.int64(reach >> shift) + 1
    for b in range(used + 1):
        put_word(starts, b, 0)
    for i in range(lo, hi):
        starts[np.int64((np.uint64(word(one, i)) - base) >> shift) + 1] += 1
    put_word(starts, 0, lo)
    for b in range(used):
        starts[b + 1] += word(starts, b)
    for i in range(lo, hi):
        bucket = np.int64((np.uint64(word(one, i)) - base) >> shift)
        to = word(starts, bucket)
        put_word(starts, bucket, to + 1)
        put_word(to_one, to, word(one, i))
        put_word(to_two, to, word(two, i))
        put_word(to_order, to, word(order, i))
    for b in range(used, 0, -1):
        put_word(starts, b, word(starts, b - 1))
    put_word(starts, 0, lo)
    return used


@njit(cache=True)
def _sort_alike(data, columns, exact, one, two, order, lo, hi, room_one, room_two, room_order):  # type: ignore
    """Sort [lo, hi), whose first words are all equal, by their second ones; room_…: scratch at the same range."""
    buckets = 16
    while buckets < hi - lo:
        buckets *= 2
    starts = np.empty(2 * (hi - lo) + 17, np.int64)
    used = spread(two, one, order, lo, hi, buckets, room_two, room_one, room_order, starts)
    for b in range(used):
        start, stop = word(starts, b), word(starts, b + 1)
        if stop - start > _CROWD:
            merge_sort(data, columns, exact, room_one, room_two, room_order, start, stop)
        elif stop - start > 1:
            insertion_sort(data, columns, exact, room_one, room_two, room_order, start + 1, start, stop)
    for i in range(lo, hi):
        put_word(two, i, word(room_two, i))
        put_word(order, i, word(room_order, i))


@njit(cache=True)
def short(most: int, n: int) -> bool:
    """Whether numbers up to `most` have so few digits that sorting by digits pays, and leave enough bits for one of n
    positions."""
    width = bits(np.uint64(most))
    return most >= 0 and width <= _MOST_DIGITS * _DIGIT and width + bits(np.uint64(n)) <= 62


@njit(cache=True)
def sort_digits(words, most, order, spare):  # type: ignore[no-untyped-def]
    """Sort words in 0 .. most stably, by digits from the lowest up, with the positions packed into the same words;
    fills order. spare: scratch for n words. O(n) for each _DIGIT bits of `most`. The words must have enough free bits
    for a position."""
    n = words.shape[0]
    beside = bits(np.uint64(n - 1))
    digits = (bits(np.uint64(most)) + _DIGIT - 1) // _DIGIT
    starts = np.zeros((digits, 1 << _DIGIT), np.int64)
    for i in range(n):
        left = word(words, i)
        put_word(words, i, (left << beside) | i)
        for digit in range(digits):
            at = left & _DIGIT_MASK
            put(starts, digit, at, cell(starts, digit, at) + 1)
            left >>= _DIGIT
    here, there = words, spare
    for digit in range(digits):
        total = 0
        for at in range(1 << _DIGIT):
            count = cell(starts, digit, at)
            put(starts, digit, at, total)
            total += count
        shift = beside + digit * _DIGIT
        for i in range(n):
            left = word(here, i)
            at = (left >> shift) & _DIGIT_MASK
            to = cell(starts, digit, at)
            put(starts, digit, at, to + 1)
            put_word(there, to, left)
        here, there = there, here
    place = (1 << beside) - 1
    for i in range(n):
        left = word(here, i)
        put_word(order, i, left & place)
        put_word(words, i, left >> beside)


@njit(cache=True)
def sort_buckets(  # type: ignore[no-untyped-def]
    data, columns, exact, one, two, order, lo, hi, to_one, to_two, to_order, starts
):
    """Sort [lo, hi) into the same range of `to_…`."""
    buckets = 16
    while buckets < hi - lo:
        buckets *= 2
    used = spread(one, two, order, lo, hi, buckets, to_one, to_two, to_order, starts)
    for b in range(used):
        size = word(starts, b + 1) - word(starts, b)
        if size > _CROWD:
            start, stop = word(starts, b), word(starts, b + 1)
            alike = start
            while alike < stop and word(to_one, alike) == word(to_one, start):
                alike += 1
            if alike == stop:
                _sort_alike(data, columns, exact, to_one, to_two, to_order, start, stop, one, two, order)
            else:
                merge_sort(data, columns, exact, to_one, to_two, to_order, start, stop)
        elif size > 1:
            insertion_sort(
                data,
                columns,
                exact,
                to_one,
                to_two,
                to_order,
                word(starts, b) + 1,
                word(starts, b),
                word(starts, b + 1),
            )
