"""Computes columns along ordered rows of groups at all data times of a slice: ranks, places, sums, neighbours.

What operators/group_functions/ordered.py, running.py and frames.py compute for many groups by numpy, this does for the
few rows that a change depends on, in one call. At each time the column is laid out anew along the rows that were read,
and where a row's part of it differs from before, that is a correction. Outside loops only.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.time_order import sorted_by_time
from vernier.operators.kernels.tops import list_fresh, longest_span, number_vals, place_vals
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.consolidating import consolidate
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.prefix_sums import COPIES, HIGH, LOW, VALUES
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.wide import add_wide

RANK, NUMBER, SUM, SHIFT, FRAME = range(5)
"""What is computed: 1 + the copies before the first row with the same place in the order; 1, 2, 3 …; the sum up to each
copy; the copy some places before; the sums over copies from some place to another."""
MOST = 1 << 16
"""The most copies of a group that get a value each; more are left to the functions of whole groups."""
_MANY = np.int64(1) << 40
"""The most copies of a row, for the same reason."""
_PLACE, _COPIES, _NEW = range(3)
"""Columns of what is laid out: the place of the row, copies, and the new words."""
_LEAST = np.int64(-(2**63))


@inlined
def _less(hi, lo, other_hi, other_lo):  # type: ignore[no-untyped-def]
    return hi < other_hi or (hi == other_hi and np.uint64(lo) < np.uint64(other_lo))


@inlined
def _halves(entries, at, column, words):  # type: ignore[no-untyped-def]
    """The halves of a number of one or two words."""
    one = cell(entries, at, column)
    if words == 2:
        return one, cell(entries, at, column + 1) ^ _LEAST
    return one >> 63, one


@inlined
def _put_sum(made, size, at, hi, lo, words, limits, number):  # type: ignore[no-untyped-def]
    """Write a sum from column `at` on. Returns whether it is beyond its limits."""
    if words == 2:
        put(made, size, at, hi)
        put(made, size, at + 1, lo ^ _LEAST)
    else:
        put(made, size, at, lo)
    small = _less(hi, lo, cell(limits, number, 0), cell(limits, number, 1))
    return small or _less(cell(limits, number, 2), cell(limits, number, 3), hi, lo)


@inlined
def _alike(entries, one, two, equal):  # type: ignore[no-untyped-def]
    """Whether two rows have the same values in the columns of the order."""
    for c in range(equal.shape[0]):
        if cell(entries, one, word(equal, c)) != cell(entries, two, word(equal, c)):
            return False
    return True


@njit(cache=True)
def _ranks(entries, at_place, copies, vals, equal, before, made):  # type: ignore[no-untyped-def]
    size, head, rank = 0, -1, before + 1
    for place in range(vals):
        if word(copies, place) <= 0:
            continue
        at = word(at_place, place)
        if head < 0 or not _alike(entries, head, at, equal):
            head, rank = at, before + 1
        before += word(copies, place)
        put(made, size, _PLACE, place)
        put(made, size, _COPIES, word(copies, place))
        put(made, size, _NEW, rank)
        size += 1
    return size


@njit(cache=True)
def _numbers(copies, vals, before, made):  # type: ignore[no-untyped-def]
    size = 0
    for place in range(vals):
        for _ in range(max(word(copies, place), 0)):
            before += 1
            put(made, size, _PLACE, place)
            put(made, size, _COPIES, 1)
            put(made, size, _NEW, before)
            size += 1
    return size


@njit(cache=True)
def _sums(entries, at_place, copies, vals, columns, limits, ahead, group, made):  # type: ignore[no-untyped-def]
    """Returns (size, whether a sum is beyond its limits)."""
    column, words, flag, wide = cell(columns, 0, 0), cell(columns, 0, 1), cell(columns, 0, 2), cell(columns, 0, 3)
    hi, lo, some = cell(ahead, group, HIGH), cell(ahead, group, LOW), cell(ahead, group, VALUES) > 0
    size, first, beyond = 0, _NEW + (1 if flag >= 0 else 0), False
    for place in range(vals):
        at = word(at_place, place)
        counts = flag < 0 or cell(entries, at, max(flag, 0)) != 0
        one, two = _halves(entries, at, column, words)
        for _ in range(max(word(copies, place), 0)):
            if counts:
                was = hi
                hi, lo = add_wide(hi, lo, one, two)
                some = True
                beyond = beyond or ((was < 0) == (one < 0) and (hi < 0) != (was < 0))
            put(made, size, _PLACE, place)
            put(made, size, _COPIES, 1)
            if flag >= 0:
                put(made, size, _NEW, 1 if some else 0)
            if _put_sum(made, size, first, hi, lo, wide, limits, 0) and counts:
                beyond = True
            if flag >= 0 and not some:
                for c in range(wide):
                    put(made, size, first + c, 0)
            size += 1
    return size, beyond


@njit(cache=True)
def _shifted(entries, at_place, copies, vals, columns, step, none, made):  # type: ignore[no-untyped-def]
    """none: the new words where there is no such copy. Only copies near the end of a row look past it; the others see
    their own row and are laid out together."""
    column, words, flagged = cell(columns, 0, 0), cell(columns, 0, 1), cell(columns, 0, 2)
    distance, size = abs(step), 0
    at, behind, before = 0, np.int64(0), np.int64(0)
    for place in range(vals):
        mine = max(word(copies, place), 0)
        alone = min(mine, distance)
        for i in range(alone + (1 if mine > alone else 0)):
            source, many = place, np.int64(1)
            if i == alone:
                many = mine - alone
            else:
                wanted = before - distance if step >= 0 else before + (mine - alone) + distance
                while at < vals and behind + max(word(copies, at), 0) <= wanted + i:
                    behind += max(word(copies, at), 0)
                    at += 1
                source = at if wanted + i >= 0 and at < vals else -1
            put(made, size, _PLACE, place)
            put(made, size, _COPIES, many)
            if source < 0:
                for c in range(none.shape[0]):
                    put(made, size, _NEW + c, word(none, c))
            else:
                if flagged == 1:
                    put(made, size, _NEW, 1)
                for c in range(words):
                    put(made, size, _NEW + flagged + c, cell(entries, word(at_place, source), column + c))
            size += 1
        before += mine
    return size


@njit(cache=True)
def _frames(entries, at_place, copies, vals, columns, limits, first, last, made):  # type: ignore[no-untyped-def]
    """Returns (size, whether a sum is beyond its limits)."""
    size = np.int64(0)
    for place in range(vals):
        for _ in range(max(word(copies, place), 0)):
            put(made, size, _PLACE, place)
            put(made, size, _COPIES, 1)
            size += 1
    until, to, beyond = np.zeros((size + 1, 2), np.int64), _NEW, False
    for number in range(columns.shape[0]):
        column, words, wide = cell(columns, number, 0), cell(columns, number, 1), cell(columns, number, 3)
        for i in range(size):
            one, two = _halves(entries, word(at_place, cell(made, i, _PLACE)), column, words)
            # These sums are modulo 2**128, as are their differences, which fit.
            hi, lo = add_wide(cell(until, i, 0), cell(until, i, 1), one, two)
            put(until, i + 1, 0, hi)
            put(until, i + 1, 1, lo)
        for i in range(size):
            begin, end = min(max(i + first, 0), size), min(max(i + last + 1, 0), size)
            hi, lo = np.int64(0), np.int64(0)
            if begin < end:
                # -x is ~x + 1
                hi, lo = add_wide(
                    cell(until, end, 0), cell(until, end, 1), ~cell(until, begin, 0), ~cell(until, begin, 1)
                )
                hi, lo = add_wide(hi, lo, np.int64(0), np.int64(1))
            beyond = _put_sum(made, i, to, hi, lo, wide, limits, number) or beyond
        to += wide
    return size, beyond


@inlined
def _same(one, i, two, j, width):  # type: ignore[no-untyped-def]
    for c in range(_COPIES, width):
        if cell(one, i, c) != cell(two, j, c):
            return False
    return True


@inlined
def _write(out, count, keys, key, k, entries, at, v, rows, i, words, time, diff):  # type: ignore[no-untyped-def]
    for c in range(1 + k):
        put(out, count, c, cell(keys, key, c))
    w = words.shape[0]
    for c in range(w):
        one = word(words, c)
        value = cell(entries, at, min(one, v - 1)) if one < v else cell(rows, i, _NEW + max(one - v, 0))
        put(out, count, 1 + k + c, value)
    put(out, count, 1 + k + w, time)
    put(out, count, 2 + k + w, diff)


@njit(cache=True)
def follow_order(  # type: ignore[no-untyped-def]
    keys, k, spans, entries, ordered, v, by, flips, equal, fold, ahead, kind, first, last, columns, limits, none, words
):
    """Corrections `[hash | key | words | time | diff]` of the rows with new columns, each once.

    keys[q, 1 + k], spans, entries: a Selection of the rows of each group that matter, of which times up to `fold` are
    older than the slice; ordered: the entries with texts in words that sort as they do; by, flips: the words of the
    order and, for descending ones, -1 (else 0), none if vals are in order; equal: the words of the order's columns;
    ahead[q, SUMS]: what comes before these rows; kind, first, last: what is computed, and between which places or how
    far; columns[c, 4]: the first word of each column that is read, how many it has, its null flag, -1 for none (of
    SHIFT: whether the new column gets one), and how many words its sum has; limits[c, 4]: the halves of the least and
    of the greatest sum; none: the words of a copy that is not there; words: those of the output, the new ones being v,
    v + 1, … Returns (corrections, status, key at fault). O(rows x times).
    """
    w, n = words.shape[0], longest_span(spans)
    number, heads = np.empty(n, np.int64), np.empty(n, np.int64)
    place, at_place, copies = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    times, order = np.empty(n, np.int64), np.empty(n, np.int64)
    fresh_words = np.int64(0)
    for c in range(w):
        fresh_words += 1 if word(words, c) >= v else 0
    width = _NEW + fresh_words
    had, made = np.empty((n + 16, width), np.int64), np.empty((n + 16, width), np.int64)
    out, count, many = np.empty((2 * entries.shape[0] + 16, 3 + k + w), np.int64), 0, False
    for key in range(keys.shape[0]):
        base, stop = cell(spans, key, 0), cell(spans, key, 1)
        vals = number_vals(entries, base, stop, v, number, heads)
        place_vals(ordered, heads, vals, by, flips, v, place, at_place, copies)
        fresh = list_fresh(entries, base, stop, v, fold, times, order)
        sorted_by_time(times, order, fresh)
        at, size, time = 0, np.int64(0), fold
        begun = False
        while not begun or at < fresh:
            if not begun:
                for e in range(base, stop):
                    if cell(entries, e, v) <= fold:
                        one = word(place, word(number, e - base))
                        total, wrapped = add_checked(word(copies, one), cell(entries, e, v + 1))
                        if wrapped:
                            return out[:0], OVERFLOW, key
                        put_word(copies, one, total)
            else:
                time = word(times, word(order, at))
                while at < fresh and word(times, word(order, at)) == time:
                    i = word(order, at)
                    one = word(place, word(number, i))
                    total, wrapped = add_checked(word(copies, one), cell(entries, base + i, v + 1))
                    if wrapped:
                        return out[:0], OVERFLOW, key
                    put_word(copies, one, total)
                    at += 1
            # Each copy has a place of its own in what is laid out, if values differ by copy.
            room = np.int64(vals)
            for i in range(vals):
                mine = max(word(copies, i), 0)
                if mine > _MANY:
                    return out[:0], OVERFLOW, key
                if kind != RANK:
                    room += min(mine, abs(first)) if kind == SHIFT else mine
                if room > MOST + vals:
                    return out[:0], OVERFLOW, key
            if room > made.shape[0]:
                made = np.empty((2 * room, width), np.int64)
            beyond, before = False, cell(ahead, key, COPIES)
            if kind == RANK:
                size_now = _ranks(entries, at_place, copies, vals, equal, before, made)
            elif kind == NUMBER:
                size_now = _numbers(copies, vals, before, made)
            elif kind == SUM:
                size_now, beyond = _sums(entries, at_place, copies, vals, columns, limits, ahead, key, made)
            elif kind == SHIFT:
                size_now = _shifted(entries, at_place, copies, vals, columns, first, none, made)
            else:
                size_now, beyond = _frames(entries, at_place, copies, vals, columns, limits, first, last, made)
            if beyond:
                return out[:0], OVERFLOW, key
            i, j = np.int64(0), np.int64(0)
            while begun and (i < size or j < size_now):
                here = cell(had, i, _PLACE) if i < size else vals
                if j < size_now:
                    here = min(here, cell(made, j, _PLACE))
                begin_i, begin_j = i, j
                while i < size and cell(had, i, _PLACE) == here:
                    i += 1
                while j < size_now and cell(made, j, _PLACE) == here:
                    j += 1
                same = i - begin_i == j - begin_j
                for c in range(i - begin_i if same else 0):
                    same = same and _same(had, begin_i + c, made, begin_j + c, width)
                if same:
                    continue
                single = i - begin_i == 1 and j - begin_j == 1
                many = many or i - begin_i > 1 or j - begin_j > 1
                if count + i - begin_i + j - begin_j > out.shape[0]:
                    out = more_rows(out, count + i - begin_i + j - begin_j)
                for c in range(_NEW, width):
                    single = single and cell(had, begin_i, c) == cell(made, begin_j, c)
                if single:
                    more = cell(made, begin_j, _COPIES) - cell(had, begin_i, _COPIES)
                    _write(out, count, keys, key, k, entries, word(at_place, here), v, made, begin_j, words, time, more)
                    count += 1
                    continue
                for c in range(begin_i, i):
                    less = -cell(had, c, _COPIES)
                    _write(out, count, keys, key, k, entries, word(at_place, here), v, had, c, words, time, less)
                    count += 1
                for c in range(begin_j, j):
                    more = cell(made, c, _COPIES)
                    _write(out, count, keys, key, k, entries, word(at_place, here), v, made, c, words, time, more)
                    count += 1
            had, made, size, begun = made, had, size_now, True
    if many:
        found, status = consolidate(out[:count], np.arange(2 + k + w))
        return found, status, 0
    return out[:count], 0, -1
