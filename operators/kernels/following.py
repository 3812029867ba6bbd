"""Accumulable reduce kernel: copies of rows, and whether a key has rows, without reading the key's other rows.

A change needs the earlier multiplicity of its own row, which the input's arrangement tells. Whether the key has a row
follows from the number of its rows that exist, kept in a trace as lane 0: a row `[key | 0]` whose multiplicity is the
number. Where it also matters whether a row of the key is present, lane 0 counts the present rows and lane 1 those with
negative copies. If the group is one row, that row is all it needs. Only outside loops.

Source: "Specializing differential dataflow", count_total.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import COUNT, KIND, LIMIT
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs, locate_keys
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import DIFF_STRIDE, DIFFS, KEY_OFFSETS, VAL_OFFSETS, narrow, offset, val_word


@njit(cache=True, inline="always")
def _there(copies: int, least: int) -> bool:
    """Whether a row with this many copies exists. least: the copies that PRESENT requires, 0 for any non-zero
    number."""
    return copies != 0 if least == 0 else copies >= least


@inlined
def _write(out, count, rows, i, k, more, number, time, diff):  # type: ignore[no-untyped-def]
    """Write `[hash | key | number | time | diff]` for the key of row i to out[count]; `more`: 1 if there is a number,
    else 0."""
    for c in range(1 + k):
        put(out, count, c, cell(rows, i, c))
    if more == 1:
        put(out, count, 1 + k, number)
    put(out, count, 1 + k + more, time)
    put(out, count, 2 + k + more, diff)


@inlined
def _number_vals(rows, base, stop, k, v, before, val_of, val_acc, in_time, order):  # type: ignore[no-untyped-def]
    """Number the vals of a key's rows, with the copies that they had `before`, and list the rows' times. Returns the
    number of vals."""
    vals = 0
    for i in range(base, stop):
        new = i == base
        if not new:
            for c in range(1 + k, 1 + k + v):
                if cell(rows, i, c) != cell(rows, i - 1, c):
                    new = True
                    break
        if new:
            put_word(val_acc, vals, word(before, i))
            vals += 1
        put_word(val_of, i - base, vals - 1)
        put_word(in_time, i - base, cell(rows, i, 1 + k + v))
        put_word(order, i - base, i - base)
    return vals


@njit(cache=True)
def _read_numbers(state, rows, runs, k, lanes, numbers):  # type: ignore[no-untyped-def]
    """Add up the first `lanes` lanes of the keys into numbers[q, 2]. Returns whether a sum overflowed int64."""
    q = runs.shape[0] - 1
    here = np.empty(q, np.int64)
    for batch in range(state.shape[0]):
        locate_keys(state, batch, rows, runs, k, here)
        for key in range(q):
            at = word(here, key)
            if at < 0:
                continue
            first = offset(cell(state, batch, KEY_OFFSETS), at)
            end = offset(cell(state, batch, KEY_OFFSETS), at + 1)
            for val in range(first, end):
                lane = val_word(state, batch, val, 0)
                if lane >= lanes:
                    break  # states of earlier versions have further lanes
                start = offset(cell(state, batch, VAL_OFFSETS), val)
                stop = offset(cell(state, batch, VAL_OFFSETS), val + 1)
                for e in range(start, stop):
                    diff = narrow(cell(state, batch, DIFFS), e * cell(state, batch, DIFF_STRIDE))
                    total, wrapped = add_checked(cell(numbers, key, lane), diff)
                    if wrapped:
                        return True
                    put(numbers, key, lane, total)
    return False


@njit(cache=True)
def _count_keys(table, rows, runs, k):  # type: ignore[no-untyped-def]
    """Like `count_rows` for rows that are only a key, each of which has one val in a batch; only the count at the first
    row of each key is set. O(keys x batches)."""
    counts, q = np.zeros(rows.shape[0], np.int64), runs.shape[0] - 1
    places = np.empty(q, np.int64)
    for batch in range(table.shape[0]):
        locate_keys(table, batch, rows, runs, k, places)
        val_offsets = cell(table, batch, VAL_OFFSETS)
        diffs, diff_stride = cell(table, batch, DIFFS), cell(table, batch, DIFF_STRIDE)
        for i in range(q):
            at = word(places, i)
            if at < 0:
                continue
            total = word(counts, word(runs, i))
            for e in range(offset(val_offsets, at), offset(val_offsets, at + 1)):
                total, wrapped = add_checked(total, narrow(diffs, e * diff_stride))
                if wrapped:
                    return counts[:0], OVERFLOW
            put_word(counts, word(runs, i), total)
    return counts, 0


@njit(cache=True)
def _follow_copies(rows, runs, k, before, out):  # type: ignore[no-untyped-def]
    """Corrections of counts by the whole row: the copies of a key are its count. Returns (corrections, status, row at
    fault). Each row of a key has its own time, in order."""
    count = 0
    for key in range(runs.shape[0] - 1):
        base = word(runs, key)
        number = word(before, base)
        for i in range(base, word(runs, key + 1)):
            time = cell(rows, i, 1 + k)
            # Both rows are always written, and overwritten if the group did not exist before, or does not exist after.
            _write(out, count, rows, base, k, 1, number, time, -1)
            count += 1 if number != 0 else 0
            number, wrapped = add_checked(number, cell(rows, i, 2 + k))
            if wrapped:
                return out[:0], OVERFLOW, base
            _write(out, count, rows, base, k, 1, number, time, 1)
            count += 1 if number != 0 else 0
    return out[:count], 0, -1


@njit(cache=True)
def follow_rows(state, source, rows, k, v, w, aggregations):  # type: ignore[no-untyped-def]
    """Corrections of the keys that these rows touch, outside loops, and the changes of their numbers.

    state, source: addresses of the settled batches of the lanes and of the arrangement (kernels/tries.py); rows[n]:
    this slice's updates of the arrangement, `[hash | key | val | time | diff]`, sorted and consolidated; w: words of an
    output val; aggregations[a, 8]: one COUNT row and no val, or one PRESENT row, or none, which means the key while any
    row has copies, and if w is 1 whether a row is present. Without val words there are no lanes. Returns (corrections
    `[hash | key | out val | time | diff]`, changes of lanes `[hash | key | lane | time | number]`, sorted, status, row
    at fault). O(updates log updates), however many other rows the key has.
    """
    runs = key_runs(rows, k)
    q = runs.shape[0] - 1
    out = np.empty((2 * rows.shape[0] + 2, 3 + k + w), np.int64)
    lanes = 1 + w
    changes = np.empty((q * lanes if v > 0 else 0, 4 + k), np.int64)
    before, status = count_rows(source, rows, runs, k, v) if v > 0 else _count_keys(source, rows, runs, k)
    if status != 0:
        return out[:0], changes[:0], status, 0
    if aggregations.shape[0] == 1 and cell(aggregations, 0, KIND) == COUNT:
        made, status, fault = _follow_copies(rows, runs, k, before, out)
        return made, changes[:0], status, fault
    least = np.int64(w)
    if aggregations.shape[0] == 1:
        least = cell(aggregations, 0, LIMIT)
    numbers = np.zeros((q, 2), np.int64)
    if v > 0 and _read_numbers(state, rows, runs, k, lanes, numbers):
        return out[:0], changes[:0], OVERFLOW, 0
    most = 1
    for i in range(q):
        most = max(most, word(runs, i + 1) - word(runs, i))
    in_time, order = np.empty(most, np.int64), np.empty(most, np.int64)
    val_of, val_acc = np.empty(most, np.int64), np.empty(most, np.int64)
    count, change_count = 0, 0
    for key in range(q):
        base, stop = word(runs, key), word(runs, key + 1)
        number, negative = cell(numbers, key, 0), cell(numbers, key, 1)
        if v == 0:
            number = np.int64(1) if _there(word(before, base), least) else np.int64(0)
            negative = np.int64(w) if word(before, base) < 0 else np.int64(0)
        first, first_negative = number, negative
        vals = _number_vals(rows, base, stop, k, v, before, val_of, val_acc, in_time, order)
        if vals > 1:
            sorted_by_time(in_time, order, stop - base)
        cursor, time = 0, np.int64(0)
        while cursor < stop - base:
            time, had, had_negative = word(in_time, word(order, cursor)), number, negative
            while cursor < stop - base and word(in_time, word(order, cursor)) == time:
                i, val = base + word(order, cursor), word(val_of, word(order, cursor))
                cursor += 1
                was = word(val_acc, val)
                now, wrapped = add_checked(was, cell(rows, i, 2 + k + v))
                if wrapped:
                    return out[:0], changes[:0], OVERFLOW, base
                put_word(val_acc, val, now)
                number += (1 if _there(now, least) else 0) - (1 if _there(was, least) else 0)
                if w == 1:
                    negative += (1 if now < 0 else 0) - (1 if was < 0 else 0)
            if (number != 0) == (had != 0) and (number != 0 or (negative != 0) == (had_negative != 0)):
                continue
            if had != 0 or had_negative != 0:
                _write(out, count, rows, base, k, w, 1 if had != 0 else 0, time, -1)
                count += 1
            if number != 0 or negative != 0:
                _write(out, count, rows, base, k, w, 1 if number != 0 else 0, time, 1)
                count += 1
        if v > 0 and number != first:
            _write(changes, change_count, rows, base, k, 1, 0, time, number - first)
            change_count += 1
        if v > 0 and negative != first_negative:
            _write(changes, change_count, rows, base, k, 1, 1, time, negative - first_negative)
            change_count += 1
    return out[:count], changes[:change_count], 0, -1
