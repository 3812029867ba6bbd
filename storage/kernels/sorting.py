"""Order rows of an int64 matrix by some of its columns, and sum equal rows.

Columns of small range are packed, as many as fit, into two words beside which only the row's position is moved: order
and equality of words are those of the columns, and rows themselves are looked at only where two words did not hold all
columns. A hash fills the first word alone; val, rounds and time of one slice mostly fit the second.
Few rows: insertion. Many: one pass of a radix sort by the top bits of the first word's range leaves each within a few
places of its own, where it is uniform as hashes are; above `_WIDE` rows a coarser pass before it keeps all that follows
in the cache. What crowds in a bucket is spread by its second word, if it has one first word, or merge-sorted: no input
is worse than n log n. Where first words have few values they are ranked by a table: if the second ones come in order
for each of them, as those of rows that are in the order of their times do, rows go to their places at once; if not,
ranks and second words are sorted digit by digit, if they are short, as is a short word that is all there is.
"""

import numpy as np
from numba import njit

from storage.kernels.cells import cell, put, put_word, word
from storage.kernels.status import OVERFLOW

FEW = 24
"""Rows up to which insertion is the fastest."""
_CROWD = 40
"""Rows in one bucket from which merging beats insertion."""
_DIGIT = 11
_DIGIT_MASK = (1 << _DIGIT) - 1
_MOST_DIGITS = 4
DIGITS_FROM = 1 << 9
_DIGITS_TO = 1 << 20
"""Rows from which, and up to which, words of a few digits are sorted digit by digit."""
_GROUPS = 1 << 13
"""First words, if they are few, up to which a table of them stays in the cache."""
_SORTED, _MANY, _FEW, _GROUPED, _SINGLE = 0, 1, 2, 3, 4
"""Rows are in order; first words are too many; are few; and rows of each are in order; and no two rows are equal."""
_BLOCK = 1 << 10
"""Rows at a time whose columns are packed."""
_WIDE = 1 << 16
_COARSE = 1 << 13
"""Rows that a bucket of the coarse pass should hold: their words and positions fit the second-level cache."""


@njit(cache=True, inline="always")
def row_less(data: np.ndarray, columns: np.ndarray, first: int, i: int, j: int) -> bool:
    """Whether row i comes before row j by the columns from number `first` on, in their order."""
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
def add_checked(a: int, b: int) -> tuple[int, bool]:
    """(a + b, whether that left int64)."""
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


@njit(cache=True, inline="always")
def _bits(number: np.uint64) -> int:
    """How many bits a number has."""
    count = 0
    while number > np.uint64(0):
        number >>= np.uint64(1)
        count += 1
    return count


@njit(cache=True)
def pack_columns(data: np.ndarray, n: int, columns: np.ndarray, first: int, words: np.ndarray) -> int:
    """Write into words[:n] one word a row whose order is that of the columns from number `first` on, as many as fit.

    Where more than one is in it, or one that fits 63 bits, words count from 0. Returns the number of the first column
    that is not in it. O(n x columns), a block of rows at a time, since a row's columns share their cache lines.
    """
    m = columns.shape[0]
    if n == 0 or first == m:
        words[:n] = 0
        return m
    least = np.empty(m, np.int64)
    most = np.empty(m, np.int64)
    bits = np.empty(m, np.int64)
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
        bits[c] = _bits(np.uint64(most[c]) - np.uint64(least[c]))
        if used + bits[c] > 63:
            break
        used += bits[c]
        stop += 1
    if stop == first:
        for i in range(n):
            put_word(words, i, cell(data, i, columns[first]))
        return first + 1
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        column, low = columns[first], least[first]
        for i in range(start, end):
            put_word(words, i, cell(data, i, column) - low)
        for c in range(first + 1, stop):
            if bits[c] > 0:
                column, low, shift = columns[c], least[c], bits[c]
                for i in range(start, end):
                    put_word(words, i, (word(words, i) << shift) | (cell(data, i, column) - low))
    return stop


@njit(cache=True)
def insertion_sort(data, columns, exact, one, two, order, start, lo, hi):  # type: ignore[no-untyped-def]
    """Sort [lo, hi) of the words and the order together, stably; [lo, start) is sorted already. Columns from number
    `exact` on are not in the words."""
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
    """The same for any number of them: insertion in blocks, then merges bottom up."""
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
    """Move [lo, hi) of words and order to the same places of `to_…`, stably, grouped in ascending buckets of the first
    word that are equally wide (`buckets`, a power of two, at most).

    Fills starts[: used + 1] with where the groups begin; returns used.
    """
    least, most = word(one, lo), word(one, lo)
    for i in range(lo, hi):
        least = min(least, word(one, i))
        most = max(most, word(one, i))
    base = np.uint64(least)
    reach = np.uint64(most) - base
    shift = np.uint64(max(0, _bits(reach) - _bits(np.uint64(buckets - 1))))
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
    """Sort [lo, hi), whose first words are all the same, by their second ones; room_…: scratch at the same places."""
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
def _sort_digits(words, most, order, spare):  # type: ignore[no-untyped-def]
    """Sort words in 0 .. most stably, by digits from the lowest up, with their places beside them in the same words;
    fills order. spare: room for n. O(n) for each _DIGIT bits of `most`, which has room for a place above it."""
    n = words.shape[0]
    beside = _bits(np.uint64(n - 1))
    digits = (_bits(np.uint64(most)) + _DIGIT - 1) // _DIGIT
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
def number_words(one, two, groups):  # type: ignore[no-untyped-def]
    """Write into groups[n] the number of each first word among all of them, if they are few.

    Returns (the first row of each; how many rows each has; _MANY: nothing is set, _FEW, _GROUPED: the second words in
    each group are in order already, _SINGLE: and each is there once). O(n).
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
                    return firsts[:0], sizes[:0], _MANY
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
    return firsts[:count], sizes[:count], _SINGLE if single else _GROUPED if ordered else _FEW


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
def _sort_buckets(  # type: ignore[no-untyped-def]
    data, columns, exact, one, two, order, lo, hi, to_one, to_two, to_order, starts
):
    """Sort what lies in [lo, hi) into the same places of `to_…`."""
    buckets = 16
    while buckets < hi - lo:
        buckets *= 2
    used = _spread(one, two, order, lo, hi, buckets, to_one, to_two, to_order, starts)
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


@njit(cache=True)
def pack_words(data: np.ndarray, columns: np.ndarray, one: np.ndarray, two: np.ndarray) -> int:
    """Write into one[n] and two[n] two words of each row that order them by the columns, the last of which is in the
    second word if the others fit the first. Returns the number of the first column that is in neither. O(n x
    columns)."""
    n = data.shape[0]
    exact = pack_columns(data, n, columns[: max(1, columns.shape[0] - 1)], 0, one)
    return pack_columns(data, n, columns, exact, two)


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
    in the order of the words, the groups' ranks, _SORTED … _SINGLE). Fills groups[n]. O(n)."""
    n, none = one.shape[0], np.empty(0, np.int64)
    if n > FEW and _in_order(data, columns, exact, one, two):
        return none, none, _SORTED
    if n < DIGITS_FROM or exact < columns.shape[0]:
        return none, none, _MANY
    firsts, sizes, kind = number_words(one, two, groups)
    if kind == _MANY:
        return none, none, _MANY
    words = np.empty(firsts.shape[0], np.int64)
    for group in range(firsts.shape[0]):
        put_word(words, group, word(one, word(firsts, group)))
    starts, ranks = place_groups(words, np.zeros(firsts.shape[0], np.int64), sizes)
    return starts, ranks, kind


@njit(cache=True)
def goes_at_once(data, kind):  # type: ignore[no-untyped-def]
    """Whether rows of such groups are consolidated once they are at their places: no two are equal, none is nothing."""
    if kind != _SINGLE:
        return False
    last = data.shape[1] - 1
    for i in range(data.shape[0]):
        if cell(data, i, last) == 0:
            return False
    return True


@njit(cache=True)
def _short(most: int, n: int) -> bool:
    """Whether numbers up to `most` are so few digits that sorting by them pays, and have room for a place of n."""
    bits = _bits(np.uint64(most))
    return most >= 0 and bits <= _MOST_DIGITS * _DIGIT and bits + _bits(np.uint64(n)) <= 62


@njit(cache=True)
def _join_words(high, low, joined):  # type: ignore[no-untyped-def]
    """Write one word for the two of each row into joined[n] and return the most there can be, -1 where they do not fit
    or are negative."""
    n, most_high, most = low.shape[0], np.int64(0), np.int64(0)
    for i in range(n):
        if word(low, i) < 0 or word(high, i) < 0:
            return np.int64(-1)
        most_high = max(most_high, word(high, i))
        most = max(most, word(low, i))
    shift = _bits(np.uint64(most))
    if shift + _bits(np.uint64(most_high)) > 62:
        return np.int64(-1)
    for i in range(n):
        put_word(joined, i, (word(high, i) << shift) | word(low, i))
    return ((most_high + 1) << shift) - 1


@njit(cache=True)
def sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind):  # type: ignore[no-untyped-def]
    """The stable order of all rows by their words, and by the columns from number `exact` on: (order[n], two words of
    each in order, which are equal where the columns in them are).

    groups, starts, ranks, kind: what group_rows says; words, groups and starts are used up. O(n log n), O(n) where the
    first word is uniform or has few values.
    """
    n = data.shape[0]
    order = np.arange(n)
    if n <= FEW:
        insertion_sort(data, columns, exact, one, two, order, 1, 0, n)
        return order, one, two
    if kind == _SORTED:
        return order, one, two
    to_one, to_two, to_order = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    if kind >= _GROUPED:
        for i in range(n):
            group = word(groups, i)
            to = word(starts, group)
            put_word(starts, group, to + 1)
            put_word(to_one, to, word(one, i))
            put_word(to_two, to, word(two, i))
            put_word(to_order, to, i)
        return to_order, to_one, to_two
    if exact == columns.shape[0] and DIGITS_FROM <= n <= _DIGITS_TO:
        if kind == _FEW:
            for i in range(n):
                put_word(groups, i, word(ranks, word(groups, i)))
        most = _join_words(groups if kind == _FEW else one, two, to_one)
        if _short(most, n):
            _sort_digits(to_one, most, to_order, to_two)
            to_two[:] = 0
            return to_order, to_one, to_two
    if n <= _WIDE:
        borders = np.empty(2 * n + 17, np.int64)
        _sort_buckets(data, columns, exact, one, two, order, 0, n, to_one, to_two, to_order, borders)
        return to_order, to_one, to_two
    coarse = 2
    while coarse * _COARSE < n:
        coarse *= 2
    borders = np.empty(coarse + 1, np.int64)
    used = _spread(one, two, order, 0, n, coarse, to_one, to_two, to_order, borders)
    most = 0
    for b in range(used):
        most = max(most, borders[b + 1] - borders[b])
    inner = np.empty(2 * most + 17, np.int64)
    for b in range(used):
        lo, hi = borders[b], borders[b + 1]
        if hi > lo:
            _sort_buckets(data, columns, exact, to_one, to_two, to_order, lo, hi, one, two, order, inner)
    return order, one, two


@njit(cache=True)
def sort_order(data: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The stable order of all rows by the columns. O(n log n), O(n) where the first is uniform or few."""
    n = data.shape[0]
    one, two, groups = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    exact = pack_words(data, columns, one, two)
    starts, ranks, kind = group_rows(data, columns, exact, one, two, groups)
    order, _, _ = sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind)
    return order


@njit(cache=True)
def consolidate(data: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Rows in order of the columns, rows equal there made one with the sum of their last column; zeros dropped.

    Returns (rows, 0), or (no rows, OVERFLOW) when a sum leaves int64.
    """
    n = data.shape[0]
    one, two, groups = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    return consolidate_in(data, columns, one, two, groups, np.empty(data.shape, np.int64))


@njit(cache=True)
def consolidate_in(data, columns, one, two, groups, out):  # type: ignore[no-untyped-def]
    """The same in room that is given: one[n], two[n], groups[n], and out, of the shape of the data, for the rows."""
    n, width = data.shape
    exact = pack_words(data, columns, one, two)
    starts, ranks, kind = group_rows(data, columns, exact, one, two, groups)
    if goes_at_once(data, kind):
        for i in range(n):
            group = word(groups, i)
            to = word(starts, group)
            put_word(starts, group, to + 1)
            for c in range(width):
                put(out, to, c, cell(data, i, c))
        return out, 0
    order, one, two = sort_packed(data, columns, one, two, exact, groups, starts, ranks, kind)
    rest = exact < columns.shape[0]
    last = width - 1
    count = 0
    i = 0
    while i < n:
        start = i
        first = word(order, i)
        total = cell(data, first, last)
        i += 1
        while (
            i < n
            and word(one, i) == word(one, start)
            and word(two, i) == word(two, start)
            and not (rest and not rows_equal(data, columns, exact, first, word(order, i)))
        ):
            total, wrapped = add_checked(total, cell(data, word(order, i), last))
            if wrapped:
                return out[:0], OVERFLOW
            i += 1
        if total != 0:
            for c in range(last):
                put(out, count, c, cell(data, first, c))
            put(out, count, last, total)
            count += 1
    return out[:count], 0
