"""Sort words, each with a second word and the position of its row.

Few words: insertion sort. Many: the highest bits of the first word and the row's position make one number, its tag, and
only tags are moved: one pass of a radix sort by their highest bits. If first words are uniform, as hashes are, this
leaves each within a few places of its own. Above `WIDE` rows a coarser pass comes first, so that everything after it
stays in the cache. A crowded bucket is merge-sorted. Then the words are fetched, and runs that their tags leave out of
order are sorted: distributed by their second words if they are many with a single first word. Short words are sorted
digit by digit.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.packing import bits, row_less
from vernier.storage.kernels.separate import NUMBER, ROWS, WORDS, separate

FEW = 24
"""Up to this number of rows, insertion sort is fastest."""
_CROWD = 40
"""From this number of rows in one bucket on, merge sort beats insertion sort."""
_DIGIT, _WIDE_DIGIT, _WIDE_FROM = 11, 13, 1 << 13
"""A digit has at most _DIGIT bits; from _WIDE_FROM rows on, when counting by it costs less than one more pass,
_WIDE_DIGIT."""
_MOST_BITS = 44
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
def _spread(one, two, order, lo, hi, buckets, to_one, to_two, to_order, starts):  # type: ignore[no-untyped-def]
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
    used = _spread(two, one, order, lo, hi, buckets, room_two, room_one, room_order, starts)
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
def short(most: int, beside: int) -> bool:
    """Whether numbers up to `most` have so few digits that sorting by digits pays, and leave enough bits for `beside`
    others."""
    width = bits(np.uint64(most))
    return most >= 0 and width <= _MOST_BITS and width + beside <= 62


@njit(cache=True)
def sort_digits(words, most, beside, spare):  # type: ignore[no-untyped-def]
    """Sort words stably by what is above their lowest `beside` bits, a number in 0 .. most, by its digits from the
    lowest up. Returns them, in the memory of `words` or of `spare`, and the other of the two. O(n) for each digit."""
    n, width = words.shape[0], bits(np.uint64(most))
    longest = _WIDE_DIGIT if n >= _WIDE_FROM else _DIGIT
    digits = max(1, (width + longest - 1) // longest)
    digit_bits = (width + digits - 1) // digits
    mask = (1 << digit_bits) - 1
    starts = np.zeros((digits, 1 << digit_bits), np.int64)
    for i in range(n):
        left = word(words, i) >> beside
        for digit in range(digits):
            at = left & mask
            put(starts, digit, at, cell(starts, digit, at) + 1)
            left >>= digit_bits
    here, there = words, spare
    for digit in range(digits):
        total = 0
        for at in range(mask + 1):
            count = cell(starts, digit, at)
            put(starts, digit, at, total)
            total += count
        shift = beside + digit * digit_bits
        for i in range(n):
            left = word(here, i)
            at = (left >> shift) & mask
            to = cell(starts, digit, at)
            put(starts, digit, at, to + 1)
            put_word(there, to, left)
        here, there = there, here
    return here, there


@njit(cache=True)
def _spread_tags(tags, to, lo, hi, shift, buckets, starts):  # type: ignore[no-untyped-def]
    """Move [lo, hi) of tags to the same range of `to`, grouped by the bits of `buckets - 1` from `shift` on; fills
    starts[: buckets + 1] with where the groups begin. Returns the size of the largest."""
    mask = buckets - 1
    for b in range(buckets + 1):
        put_word(starts, b, 0)
    for i in range(lo, hi):
        b = (word(tags, i) >> shift) & mask
        put_word(starts, b, word(starts, b) + 1)
    at, most = lo, 0
    for b in range(buckets):
        size = word(starts, b)
        most = max(most, size)
        put_word(starts, b, at)
        at += size
    for i in range(lo, hi):
        tag = word(tags, i)
        b = (tag >> shift) & mask
        place = word(starts, b)
        put_word(starts, b, place + 1)
        put_word(to, place, tag)
    for b in range(buckets, 0, -1):
        put_word(starts, b, word(starts, b - 1))
    put_word(starts, 0, lo)
    return most


@njit(cache=True)
def _insert_tags(tags, lo, hi):  # type: ignore[no-untyped-def]
    """Sort [lo, hi) of tags, each of which is near its place."""
    for i in range(lo + 1, hi):
        tag, j = word(tags, i), i
        while j > lo and word(tags, j - 1) > tag:
            put_word(tags, j, word(tags, j - 1))
            j -= 1
        put_word(tags, j, tag)


@njit(cache=True)
def _merge_tags(tags, spare, lo, hi):  # type: ignore[no-untyped-def]
    """Sort [lo, hi) of tags by merging; spare: scratch at the same range."""
    for start in range(lo, hi, FEW):
        _insert_tags(tags, start, min(start + FEW, hi))
    width = FEW
    while width < hi - lo:
        for start in range(lo, hi - width, 2 * width):
            middle = start + width
            stop = min(middle + width, hi)
            for i in range(start, middle):
                put_word(spare, i, word(tags, i))
            i, j, k = start, middle, start
            while i < middle:
                if j < stop and word(tags, j) < word(spare, i):
                    put_word(tags, k, word(tags, j))
                    j += 1
                else:
                    put_word(tags, k, word(spare, i))
                    i += 1
                k += 1
        width *= 2


@njit(cache=True)
def _sort_range(tags, to, lo, hi, width, starts):  # type: ignore[no-untyped-def]
    """Sort [lo, hi) of tags, which agree above their lowest `width` bits, into the same range of `to`."""
    digits = min(width, bits(np.uint64(hi - lo)))
    buckets = 1 << digits
    if _spread_tags(tags, to, lo, hi, width - digits, buckets, starts) <= _CROWD:
        _insert_tags(to, lo, hi)
        return
    for b in range(buckets):
        start, stop = word(starts, b), word(starts, b + 1)
        if stop - start > _CROWD:
            _merge_tags(to, tags, start, stop)
        elif stop - start > 1:
            _insert_tags(to, start, stop)


@njit(cache=True)
def _sort_tags(tags, spare, width):  # type: ignore[no-untyped-def]
    """Sort distinct numbers of at most `width` bits; returns where they are, `tags` or `spare`. O(n log n); O(n) if
    their highest bits are uniform."""
    n = tags.shape[0]
    if n <= WIDE:
        _sort_range(tags, spare, 0, n, width, np.empty((1 << bits(np.uint64(n))) + 1, np.int64))
        return spare
    digits = 1
    while COARSE << digits < n:
        digits += 1
    digits = min(digits, width)
    borders = np.empty((1 << digits) + 1, np.int64)
    most = _spread_tags(tags, spare, 0, n, width - digits, 1 << digits, borders)
    starts = np.empty((1 << bits(np.uint64(most))) + 1, np.int64)
    for b in range(1 << digits):
        if word(borders, b + 1) > word(borders, b):
            _sort_range(spare, tags, word(borders, b), word(borders, b + 1), width - digits, starts)
    return tags


@njit(cache=True)
def _tag_words(words, tags):  # type: ignore[no-untyped-def]
    """Write into tags[n] distinct numbers that sort like the words and, among equal ones, like their positions, which
    are their lowest bits. Returns (their bits, the least word, how many of the lowest bits of a word's distance from it
    they lack: rows that differ only in these are in the order of their positions)."""
    n = words.shape[0]
    least, most = word(words, 0), word(words, 0)
    for i in range(n):
        least = min(least, word(words, i))
        most = max(most, word(words, i))
    beside = bits(np.uint64(n - 1))
    reach = bits(np.uint64(most) - np.uint64(least))
    lost = max(0, reach + beside - 62)
    for i in range(n):
        put_word(tags, i, (_high(word(words, i), least, lost) << beside) | i)
    return reach - lost + beside, least, lost


@njit(cache=True, inline="always")
def _high(first, least, lost):  # type: ignore[no-untyped-def]
    return np.int64((np.uint64(first) - np.uint64(least)) >> np.uint64(lost))


@njit(cache=True)
def _mend_order(data, columns, exact, one, two, order, least, lost, room_one, room_two):  # type: ignore[no-untyped-def]
    """Sort rows that were sorted by their tags alone where their order is another. room_…: scratch. O(n) if none is."""
    n, rest, i = one.shape[0], exact < columns.shape[0], 1
    room_order = np.empty(0, np.int64)
    while i < n:
        a, b = word(one, i - 1), word(one, i)
        if a < b or (
            a == b
            and (
                word(two, i - 1) < word(two, i)
                or (
                    word(two, i - 1) == word(two, i)
                    and not (rest and row_less(data, columns, exact, word(order, i), word(order, i - 1)))
                )
            )
        ):
            i += 1
            continue
        start, stop, high, alike = i - 1, i, _high(a, least, lost), a == b
        while start > 0 and _high(word(one, start - 1), least, lost) == high:
            start -= 1
            alike &= word(one, start) == a
        while stop < n and _high(word(one, stop), least, lost) == high:
            alike &= word(one, stop) == a
            stop += 1
        if stop - start <= _CROWD:
            insertion_sort(data, columns, exact, one, two, order, i, start, stop)
        elif alike:
            if room_order.shape[0] == 0:
                room_order = np.empty(n, np.int64)
            _sort_alike(data, columns, exact, one, two, order, start, stop, room_one, room_two, room_order)
        else:
            merge_sort(data, columns, exact, one, two, order, start, stop)
        i = stop + 1


@separate((WORDS, WORDS), ROWS, WORDS, NUMBER, WORDS, WORDS, WORDS)
@njit(cache=True)
def sort_two(data, columns, exact, one, two, order):  # type: ignore[no-untyped-def]
    """Fill order[n] with the stable order of rows by two words each, and by the columns from number `exact` on; return
    the two words of each row in that order. Overwrites the words. O(n log n); O(n) if the first word is uniform."""
    n = one.shape[0]
    if n <= FEW:
        for i in range(n):
            put_word(order, i, i)
        insertion_sort(data, columns, exact, one, two, order, 1, 0, n)
        return one, two
    to_one, to_two = np.empty(n, np.int64), np.empty(n, np.int64)
    width, least, lost = _tag_words(one, to_one)
    tags = _sort_tags(to_one, to_two, width)
    place = (1 << bits(np.uint64(n - 1))) - 1
    for i in range(n):
        put_word(order, i, word(tags, i) & place)
    for i in range(n):
        put_word(to_one, i, word(one, word(order, i)))
        put_word(to_two, i, word(two, word(order, i)))
    _mend_order(data, columns, exact, to_one, to_two, order, least, lost, one, two)
    return to_one, to_two


@njit(cache=True)
def stable_order(words):  # type: ignore[no-untyped-def]
    """The stable sort order of int64 words, as positions. np.argsort would do the same, but it takes a second to
    compile in each kernel that calls it."""
    n = words.shape[0]
    order = np.empty(n, np.int64)
    sort_two(np.empty((0, 0), np.int64), np.empty(0, np.int64), 0, words.copy(), np.zeros(n, np.int64), order)
    return order
