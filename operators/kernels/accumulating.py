"""Accumulating kernel: counts, sums and means of a key as one vector, which each update adds to.

A key's vector is the number of its rows and, for each aggregation, the number of its values (if they can be null) and
their sum: 128 bits for integers, 256 for decimals, and the digits of exact.py for doubles. The group exists while any
word of the vector is not 0; if the vector has a sum that is not emitted (OUT -1), while that sum is LIMIT. The vectors
are kept in a trace `[key | words]`. A change retracts the key's vector and
adds the new one, each once, so the vector of a key is the sum of its entries times their multiplicities, word by word
and modulo 2**64, in whatever batches they are. No row of the group is kept or read.

Sums of doubles are long and mostly 0. With them a vector is cut into pages, `[key | page | words]`, and a page of
zeros is not stored: page 0 has all other words, the following pages have the digits, each with the sign of the sum.

Outside loops only. Source: "Specializing differential dataflow", count_total: whatever is added up is the difference.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import (
    AVG,
    AVG_FLOAT,
    COUNT,
    FLAG,
    KIND,
    LIMIT,
    ONE_WORD,
    OUT,
    OUT_FLAG,
    SUM,
    SUM_FLOAT,
    WORD,
    absorb_number,
    count_rows_too,
    want_number,
)
from vernier.operators.kernels.corrections import same_val, write_correction
from vernier.operators.kernels.exact import DECIMAL_WORDS, FLOAT_DIGITS, FLOAT_WORDS, load_float, store_float
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import key_runs, locate_keys
from vernier.storage.kernels.inlining import allocating, borrowing, inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import DIFF_STRIDE, DIFFS, KEY_OFFSETS, VAL_OFFSETS, narrow, offset, val_word
from vernier.storage.kernels.wide import add_wide, fits, multiply_wide


@inlined
def _read(state, places, q, key, page, paged, vector):  # type: ignore[no-untyped-def]
    """Add up a key's entries in all batches; it is at places[batch * q + key]."""
    for c in range(vector.shape[0]):
        put_word(vector, c, 0)
    for batch in range(state.shape[0]):
        at = word(places, batch * q + key)
        if at < 0:
            continue
        first = offset(cell(state, batch, KEY_OFFSETS), at)
        end = offset(cell(state, batch, KEY_OFFSETS), at + 1)
        val_offsets = cell(state, batch, VAL_OFFSETS)
        for val in range(first, end):
            times = np.int64(0)
            start = offset(val_offsets, val)
            stop = offset(val_offsets, val + 1)
            for e in range(start, stop):
                times += narrow(cell(state, batch, DIFFS), e * cell(state, batch, DIFF_STRIDE))
            at = base = np.int64(0)
            if paged:
                base = page * val_word(state, batch, val, 0)
                at += 1
            for c in range(page):
                total = word(vector, base + c) + times * val_word(state, batch, val, at + c)
                put_word(vector, base + c, total)


@allocating
def _unpack(aggregations, slots, page, vector, sums, floats):  # type: ignore[no-untyped-def]
    """Copy the sums of a vector to sums[a] and floats[a]."""
    digits = page
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        at = slots[a] + (1 if aggregations[a, FLAG] >= 0 else 0)
        if kind == SUM_FLOAT or kind == AVG_FLOAT:
            load_float(floats, a, vector, digits)
            digits += FLOAT_DIGITS
        elif kind != COUNT:
            for c in range(2 if kind == SUM or kind == AVG else DECIMAL_WORDS):
                sums[a, c] = vector[at + c]


@borrowing
def _pack(aggregations, slots, page, sums, floats, vector):  # type: ignore[no-untyped-def]
    """Copy sums[a] and floats[a] to the vector. Returns whether the vector is not 0."""
    digits, some = page, np.int64(0)
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        at = slots[a] + (1 if aggregations[a, FLAG] >= 0 else 0)
        if kind == SUM_FLOAT or kind == AVG_FLOAT:
            store_float(floats, a, vector, digits)
            digits += FLOAT_DIGITS
        elif kind != COUNT:
            for c in range(2 if kind == SUM or kind == AVG else DECIMAL_WORDS):
                vector[at + c] = sums[a, c]
    for c in range(vector.shape[0]):
        some |= vector[c]
    return some != 0


@borrowing
def _complete(aggregations, sums):  # type: ignore[no-untyped-def]
    """Whether the sums that are not emitted are as large as they must be."""
    for a in range(aggregations.shape[0]):
        if aggregations[a, OUT] < 0 and (sums[a, 0] != 0 or sums[a, 1] != aggregations[a, LIMIT]):
            return False
    return True


@borrowing
def _absorb(aggregations, slots, counted, rows, i, diff, vector, sums, floats):  # type: ignore[no-untyped-def]
    """Add `diff` copies of row i. Returns whether a number overflowed."""
    if counted != 0:
        vector[0], wrapped = add_checked(vector[0], diff)
        if wrapped:
            return True
    for a in range(aggregations.shape[0]):
        kind, flag = aggregations[a, KIND], aggregations[a, FLAG]
        if flag >= 0:
            if rows[i, flag] == 0:
                continue
            vector[slots[a]], wrapped = add_checked(vector[slots[a]], diff)
            if wrapped:
                return True
        if kind == SUM or kind == AVG:
            hi, lo = multiply_wide(rows[i, aggregations[a, WORD]], diff)
            before = sums[a, 0]
            sums[a, 0], sums[a, 1] = add_wide(before, sums[a, 1], hi, lo)
            if (before < 0) == (hi < 0) and (sums[a, 0] < 0) != (before < 0):
                return True
        elif kind != COUNT and absorb_number(aggregations, a, rows, i, diff, sums, floats):
            return True
    return False


@borrowing
def _want(aggregations, slots, page, vector, sums, counts, floats, wanted):  # type: ignore[no-untyped-def]
    """Write the aggregates of a vector that is not 0 to wanted[0]. Returns its status."""
    digits = page
    for a in range(aggregations.shape[0]):
        kind, flag = aggregations[a, KIND], aggregations[a, FLAG]
        target, out_flag = aggregations[a, OUT], aggregations[a, OUT_FLAG]
        if target < 0:
            continue
        values = vector[slots[a] if flag >= 0 else 0]
        if kind == COUNT:
            wanted[0, target] = values
            continue
        at, words = slots[a] + 1, 2 if kind == SUM else DECIMAL_WORDS
        if kind == SUM_FLOAT or kind == AVG_FLOAT:
            at, words = digits, FLOAT_DIGITS
            digits += FLOAT_DIGITS
        # A sum is null if there are no values and they add up to nothing; a mean needs a number of values.
        has = values != 0 or (kind < AVG and flag < 0)
        for c in range(at, at + words if kind < AVG and flag >= 0 else at):
            has = has or vector[c] != 0
        if out_flag >= 0:
            wanted[0, out_flag] = 1 if has else 0
        if not has:
            wanted[0, target] = 0
            if aggregations[a, LIMIT] > ONE_WORD:
                wanted[0, target + 1] = 0
            continue
        counts[a, 0], counts[a, 1] = np.int64(-1) if values < 0 else np.int64(0), values
        if kind == SUM:
            if not fits(sums[a, 0], sums[a, 1]):
                return OVERFLOW
            wanted[0, target] = sums[a, 1]
        elif want_number(aggregations, a, sums, counts, floats, wanted) != 0:
            return OVERFLOW
    return 0


@inlined
def _put_page(changes, count, rows, base, k, vector, page, number, paged, time, diff):  # type: ignore[no-untyped-def]
    """Write `diff` copies of a page of a key's vector. Returns the number of changes with those before."""
    some = np.int64(0)
    for c in range(page):
        some |= word(vector, number * page + c)
    if some == 0:
        return count
    for c in range(1 + k):
        put(changes, count, c, cell(rows, base, c))
    at = 1 + k
    if paged:
        put(changes, count, at, number)
        at += 1
    for c in range(page):
        put(changes, count, at + c, word(vector, number * page + c))
    put(changes, count, at + page, time)
    put(changes, count, at + page + 1, diff)
    return count + 1


@inlined
def _put_vector(changes, count, rows, base, k, was, vector, page, paged, time):  # type: ignore[no-untyped-def]
    """Write the changes of a key from one vector to another, sorted; the caller has made sure that they fit. Returns
    the number of changes with those before."""
    for number in range(vector.shape[0] // page):
        order = 0
        for c in range(number * page, number * page + page):
            if word(was, c) != word(vector, c):
                order = -1 if word(was, c) < word(vector, c) else 1
                break
        if order < 0:
            count = _put_page(changes, count, rows, base, k, was, page, number, paged, time, -1)
        if order != 0:
            count = _put_page(changes, count, rows, base, k, vector, page, number, paged, time, 1)
        if order > 0:
            count = _put_page(changes, count, rows, base, k, was, page, number, paged, time, -1)
    return count


@njit(cache=True)
def accumulate_rows(state, rows, k, v, w, aggregations, slots, page, length):  # type: ignore[no-untyped-def]
    """Corrections of the keys that these rows touch, and the changes of their vectors.

    state: addresses of the settled batches of the vectors (kernels/tries.py); rows[n]: this slice's updates `[hash |
    key | val | time | diff]`, sorted by key; w: words of an output val; aggregations[a, 8]: COUNT, SUM … AVG_DECIMAL,
    whose WORD and FLAG are columns of the rows; slots, page, length: see `vector_layout` of
    group_functions/aggregations.py. Returns (corrections `[hash | key | out val | time | diff]`; changes `[hash | key |
    page | words | time | diff]`, sorted, without the page if there is only one; status; row at fault). O(updates log
    updates + keys x batches), however many other rows the keys have.
    """
    aggs = aggregations.shape[0]
    counted = 1 if count_rows_too(aggregations) else 0
    paged = length > page
    pages = length // page
    runs = key_runs(rows, k)
    q = runs.shape[0] - 1
    out = np.empty((2 * rows.shape[0] + 2, 3 + k + w), np.int64)
    changes = np.empty((2 * q * (3 if paged else 1) + 2 * pages, 3 + k + page + (1 if paged else 0)), np.int64)
    count, change_count = 0, 0
    places = np.empty(state.shape[0] * q, np.int64)
    for batch in range(state.shape[0]):
        locate_keys(state, batch, rows, runs, k, places[batch * q : (batch + 1) * q])
    most = 1
    for i in range(q):
        most = max(most, runs[i + 1] - runs[i])
    in_time, order = np.empty(most, np.int64), np.empty(most, np.int64)
    vector, was = np.zeros(length, np.int64), np.zeros(length, np.int64)
    sums, counts = np.zeros((aggs, DECIMAL_WORDS), np.int64), np.empty((aggs, 2), np.int64)
    floats = np.empty((aggs, FLOAT_WORDS if paged else 0), np.int64)
    had, wanted, never = np.empty((1, w), np.int64), np.empty((1, w), np.int64), np.empty(0, np.int64)
    for key in range(q):
        base, size = word(runs, key), word(runs, key + 1) - word(runs, key)
        _read(state, places, q, key, page, paged, vector)
        some = np.int64(0)
        for c in range(length):
            put_word(was, c, word(vector, c))
            some |= word(vector, c)
        _unpack(aggregations, slots, page, vector, sums, floats)
        existed = some != 0 and _complete(aggregations, sums)
        if existed and _want(aggregations, slots, page, vector, sums, counts, floats, had) != 0:
            return out[:0], changes[:0], OVERFLOW, base
        in_order = True
        for i in range(size):
            put_word(in_time, i, cell(rows, base + i, 1 + k + v))
            put_word(order, i, i)
            in_order &= i == 0 or word(in_time, i - 1) <= word(in_time, i)
        if not in_order:
            sorted_by_time(in_time, order, size)
        cursor, time = 0, np.int64(0)
        while cursor < size:
            time = word(in_time, word(order, cursor))
            while cursor < size and word(in_time, word(order, cursor)) == time:
                i = base + word(order, cursor)
                cursor += 1
                diff = cell(rows, i, 2 + k + v)
                if _absorb(aggregations, slots, counted, rows, i, diff, vector, sums, floats):
                    return out[:0], changes[:0], OVERFLOW, base
            exists = _pack(aggregations, slots, page, sums, floats, vector) and _complete(aggregations, sums)
            if exists and _want(aggregations, slots, page, vector, sums, counts, floats, wanted) != 0:
                return out[:0], changes[:0], OVERFLOW, base
            if exists == existed and (not exists or same_val(had, 0, wanted, 0, w)):
                continue
            if existed:
                write_correction(out, count, rows, base, k, had, 0, 0, w, time, never, -1)
                count += 1
            if exists:
                write_correction(out, count, rows, base, k, wanted, 0, 0, w, time, never, 1)
                count += 1
                for c in range(w):
                    put(had, 0, c, cell(wanted, 0, c))
            existed = exists
        if change_count + 2 * pages > changes.shape[0]:
            changes = more_rows(changes, change_count + 2 * pages)
        change_count = _put_vector(changes, change_count, rows, base, k, was, vector, page, paged, time)
    return out[:count], changes[:change_count], 0, -1
