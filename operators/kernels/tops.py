"""Keeps the first copies of groups over the data times of a slice, without looking at whole groups.

The rows of a group that a slice can meet have places in the group's order, and partial sums over these places tell how
many copies come before a row. A change moves the last row that is among the first; only the changed rows and those
between the old and the new last one can change. Outside loops only.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.corrections import same_val
from vernier.operators.kernels.partial_sums import add_at, build_sums, place_of, sum_before
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.inlining import allocating, inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW


@njit(cache=True)
def longest_span(spans: np.ndarray) -> int:
    """The number of entries in the longest span, at least 1."""
    most = 1
    for i in range(spans.shape[0]):
        most = max(most, spans[i, 1] - spans[i, 0])
    return most


@inlined
def number_vals(entries, base, stop, v, number, heads):  # type: ignore[no-untyped-def]
    """Number the vals of a key's sorted entries: number[i] of entry base + i, and the first entry of each. Returns how
    many there are."""
    vals = 0
    for e in range(base, stop):
        if e == base or not same_val(entries, e, entries, e - 1, v):
            put_word(heads, vals, e)
            vals += 1
        put_word(number, e - base, vals - 1)
    return vals


@allocating
def place_vals(ordered, heads, vals, by, flips, v, place, at_place, copies):  # type: ignore[no-untyped-def]
    """Set the place of each of a key's vals in the order, the entry of the val at each place, and its copies to 0. by,
    flips: see `top_keys`; without words, vals are in order already."""
    for i in range(vals):
        put_word(copies, i, 0)
    if by.shape[0] == 0:
        for i in range(vals):
            put_word(at_place, i, word(heads, i))
            put_word(place, i, i)
        return
    sorted_as = np.empty((vals, by.shape[0] + v), np.int64)
    for i in range(vals):
        for c in range(by.shape[0]):
            put(sorted_as, i, c, cell(ordered, word(heads, i), word(by, c)) ^ word(flips, c))
        for c in range(v):
            put(sorted_as, i, by.shape[0] + c, cell(ordered, word(heads, i), c))
    ranked = sort_order(sorted_as, np.arange(by.shape[0] + v))
    for i in range(vals):
        put_word(at_place, i, word(heads, word(ranked, i)))
        put_word(place, word(ranked, i), i)


@inlined
def list_fresh(entries, base, stop, v, fold, times, order):  # type: ignore[no-untyped-def]
    """List the entries [base, stop) of the slice, with their times. Returns how many there are."""
    fresh = 0
    for e in range(base, stop):
        if cell(entries, e, v) > fold:
            put_word(times, e - base, cell(entries, e, v))
            put_word(order, fresh, e - base)
            fresh += 1
    return fresh


@inlined
def _settle(place, tree, capped, taken, most):  # type: ignore[no-untyped-def]
    """How many more copies of a row are among the first than before."""
    had = word(taken, place)
    wanted = min(max(most - sum_before(tree, 0, place), 0), word(capped, place))
    put_word(taken, place, wanted)
    return wanted - had


@njit(cache=True)
def top_keys(keys, k, spans, entries, ordered, v, by, flips, most, words, fold):  # type: ignore[no-untyped-def]
    """Corrections of the first `most` copies of each key, `[hash | key | val words | time | diff]`.

    keys[q, 1 + k], spans, entries: a Selection, of which times up to `fold` are older than the slice; ordered: the
    entries with texts in words that sort as they do; by, flips: the words of the order and, for descending ones, -1
    (else 0); ties are ordered by all words; words: those of the val that are emitted, in their order. Returns
    (corrections, status, key at fault). O((entries + changes of the output) x log entries).
    """
    w, n = words.shape[0], longest_span(spans)
    number, heads = np.empty(n, np.int64), np.empty(n, np.int64)
    place, at_place = np.empty(n, np.int64), np.empty(n, np.int64)
    copies, capped, taken = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    times, order, tree = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n + 1, np.int64)
    out = np.empty((2 * entries.shape[0] + 16, 3 + k + w), np.int64)
    count = 0
    for key in range(keys.shape[0]):
        base, stop = cell(spans, key, 0), cell(spans, key, 1)
        vals = number_vals(entries, base, stop, v, number, heads)
        place_vals(ordered, heads, vals, by, flips, v, place, at_place, copies)
        fresh = list_fresh(entries, base, stop, v, fold, times, order)
        for e in range(base, stop):
            if cell(entries, e, v) > fold:
                continue
            at = word(place, word(number, e - base))
            total, wrapped = add_checked(word(copies, at), cell(entries, e, v + 1))
            if wrapped:
                return out[:0], OVERFLOW, key
            put_word(copies, at, total)
        all_, bound = np.int64(0), vals
        for i in range(vals):
            put_word(capped, i, min(max(word(copies, i), 0), most))
            put_word(tree, i + 1, word(capped, i))
            put_word(taken, i, min(max(most - all_, 0), word(capped, i)))
            all_ += word(capped, i)
            if bound == vals and all_ >= most:
                bound = i
        build_sums(tree, 0, vals)
        sorted_by_time(times, order, fresh)
        first = 0
        while first < fresh:
            time, last = word(times, word(order, first)), first
            while last < fresh and word(times, word(order, last)) == time:
                i = word(order, last)
                at = word(place, word(number, i))
                total, wrapped = add_checked(word(copies, at), cell(entries, base + i, v + 1))
                if wrapped:
                    return out[:0], OVERFLOW, key
                put_word(copies, at, total)
                more = min(max(total, 0), most) - word(capped, at)
                if more != 0:
                    put_word(capped, at, word(capped, at) + more)
                    add_at(tree, 0, vals, at, more)
                    all_ += more
                last += 1
            now = vals if all_ < most else place_of(tree, 0, vals, most)
            here, until, i = min(bound, now), max(bound, now), first
            bound = now
            # First the changed rows, then those from the lower of both bounds to the upper.
            while i < last or (here <= until and here < vals):
                at = here
                if i < last:
                    at = word(place, word(number, word(order, i)))
                    i += 1
                else:
                    beyond = sum_before(tree, 0, here + 1) + 1
                    here = vals if beyond > all_ else place_of(tree, 0, vals, beyond)
                owed = _settle(at, tree, capped, taken, most)
                if owed == 0:
                    continue
                if count == out.shape[0]:
                    out = more_rows(out, count)
                for c in range(1 + k):
                    put(out, count, c, cell(keys, key, c))
                for c in range(w):
                    put(out, count, 1 + k + c, cell(entries, word(at_place, at), word(words, c)))
                put(out, count, 1 + k + w, time)
                put(out, count, 2 + k + w, owed)
                count += 1
            first = last
    return out[:count], 0, -1
