"""Counts of all rows, the most frequent case of kernels/following.py, written for one lane and its exceptions.

The number of a key's existing rows is lane 0. Nearly all keys have no other lane, so there are no loops over lanes.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.lanes import LANES, MORE, read_lanes
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import locate_keys
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import DIFF_STRIDE, DIFFS, KEY_OFFSETS, VAL_OFFSETS, VAL_STRIDE, VALS, offset


@njit(cache=True)
def _read_numbers(state, rows, runs, k, places, numbers, more):  # type: ignore[no-untyped-def]
    """Find the keys in the batches of the lanes, and read lane 0, the only lane of most keys.

    Fills places[layer * q + key], numbers[q] with the sums of lane 0, and more[q] with 1 if a key has other lanes or
    several updates of a lane and must be read by read_lanes. Returns whether a sum overflowed int64.
    """
    q = runs.shape[0] - 1
    for layer in range(state.shape[0]):
        here = places[layer * q : (layer + 1) * q]
        locate_keys(state, layer, rows, runs, k, here)
        key_offsets, single = cell(state, layer, KEY_OFFSETS), cell(state, layer, VAL_OFFSETS) == 0
        vals, val_stride = cell(state, layer, VALS), cell(state, layer, VAL_STRIDE)
        diffs, diff_stride = cell(state, layer, DIFFS), cell(state, layer, DIFF_STRIDE)
        for key in range(q):
            at = word(here, key)
            if at < 0:
                continue
            first = offset(key_offsets, at)
            end = offset(key_offsets, at + 1)
            if end - first > 1 or not single or load(vals, first * val_stride) != 0:
                put_word(more, key, 1)
                continue
            total, wrapped = add_checked(word(numbers, key), load(diffs, first * diff_stride))
            if wrapped:
                return True
            put_word(numbers, key, total)
    return False


@njit(cache=True, inline="always")
def _put_count(out, count, rows, i, k, number, time, diff):  # type: ignore[no-untyped-def]
    """Write the correction `[hash | key | number | time | diff]` of the key of row i to out[count]."""
    for c in range(1 + k):
        put(out, count, c, cell(rows, i, c))
    put(out, count, 1 + k, number)
    put(out, count, 2 + k, time)
    put(out, count, 3 + k, diff)


@njit(cache=True)
def follow_copies(rows, runs, k, before, out):  # type: ignore[no-untyped-def]
    """`follow_rows` for a count by the whole row: without val words, the copies of a key are its count. Returns
    (corrections, status, row at fault). Each row of a key has its own time, in order."""
    count = 0
    for key in range(runs.shape[0] - 1):
        base = word(runs, key)
        number = word(before, base)
        for i in range(base, word(runs, key + 1)):
            time = cell(rows, i, 1 + k)
            # Both rows are always written, and overwritten if the group did not exist before, or does not exist after.
            _put_count(out, count, rows, base, k, number, time, -1)
            count += 1 if number != 0 else 0
            number, wrapped = add_checked(number, cell(rows, i, 2 + k))
            if wrapped:
                return out[:0], OVERFLOW, base
            _put_count(out, count, rows, base, k, number, time, 1)
            count += 1 if number != 0 else 0
    return out[:count], 0, -1


@njit(cache=True, inline="always")
def _move_count(exists, more, was, diff):  # type: ignore[no-untyped-def]
    """Apply `diff` further copies of a row that had `was` copies to the number of the key's existing rows and to the
    number of copies beyond one for each of them. Returns (exists, more, copies of the row, whether a number overflowed
    int64)."""
    now, wrapped = add_checked(was, diff)
    turn = (1 if now != 0 else 0) - (1 if was != 0 else 0)
    by, left = add_checked(diff, -turn)
    more, far = add_checked(more, by)
    return exists + turn, more, now, wrapped | left | far


@njit(cache=True)
def follow_counts(state, rows, runs, k, v, before, out, changes):  # type: ignore[no-untyped-def]
    """`follow_rows` for a single count of all rows. Returns (corrections, changes of lanes, status, row at fault)."""
    q = runs.shape[0] - 1
    at_time, at_diff, lane_more = 1 + k + v, 2 + k + v, 1 + MORE
    places = np.empty(state.shape[0] * q, np.int64)
    numbers, mixed = np.zeros(q, np.int64), np.zeros(q, np.int64)
    if _read_numbers(state, rows, runs, k, places, numbers, mixed):
        return out[:0], changes[:0], OVERFLOW, 0
    most = 1
    for i in range(q):
        most = max(most, word(runs, i + 1) - word(runs, i))
    in_time, order, val_of = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    val_acc = np.empty(most, np.int64)
    acc = np.zeros(1 + LANES, np.int64)
    count = change_count = 0
    for key in range(q):
        base, size = word(runs, key), word(runs, key + 1) - word(runs, key)
        exists, more = word(numbers, key), np.int64(0)
        if word(mixed, key) != 0:
            acc[0] = acc[lane_more] = 0
            if read_lanes(state, places, q, key, acc):
                return out[:0], changes[:0], OVERFLOW, base
            exists, more = acc[0], acc[lane_more]
        number, wrapped = add_checked(exists, more)
        exists_first, more_first = exists, more
        vals = 0
        for j in range(size if size > 1 else 0):
            new = j == 0
            for c in range(1 + k, 1 + k + v if not new else 0):
                if cell(rows, base + j, c) != cell(rows, base + j - 1, c):
                    new = True
                    break
            if new:
                put_word(val_acc, vals, word(before, base + j))
                vals += 1
            put_word(val_of, j, vals - 1)
            put_word(in_time, j, cell(rows, base + j, at_time))
            put_word(order, j, j)
        if vals > 1:
            sorted_by_time(in_time, order, size)
        cursor, time = 0, np.int64(0)
        while cursor < size:
            had, had_number = exists, number
            if size == 1:
                # The case of most keys of a slice.
                time, cursor = cell(rows, base, at_time), 1
                exists, more, _, left = _move_count(exists, more, word(before, base), cell(rows, base, at_diff))
                wrapped |= left
            else:
                time = word(in_time, word(order, cursor))
                while cursor < size and word(in_time, word(order, cursor)) == time:
                    j = word(order, cursor)
                    cursor += 1
                    val = word(val_of, j)
                    exists, more, now, left = _move_count(
                        exists, more, word(val_acc, val), cell(rows, base + j, at_diff)
                    )
                    put_word(val_acc, val, now)
                    wrapped |= left
            number, left = add_checked(exists, more)
            if wrapped or left:
                return out[:0], changes[:0], OVERFLOW, base
            if number == had_number and (exists != 0) == (had != 0):
                continue
            # Both rows are always written, and overwritten if the group did not exist before, or does not exist after.
            _put_count(out, count, rows, base, k, had_number, time, -1)
            count += 1 if had != 0 else 0
            _put_count(out, count, rows, base, k, number, time, 1)
            count += 1 if exists != 0 else 0
        if change_count + 2 > changes.shape[0]:
            changes = more_rows(changes, change_count)
        _put_count(changes, change_count, rows, base, k, 0, time, exists - exists_first)
        change_count += 1 if exists != exists_first else 0
        _put_count(changes, change_count, rows, base, k, lane_more, time, more - more_first)
        change_count += 1 if more != more_first else 0
    return out[:count], changes[:change_count], 0, -1
