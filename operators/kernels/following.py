"""Accumulable reduce kernel: the aggregates of a key as numbers that each change updates, without reading other rows.

Counts and sums are linear, so a key needs only its totals. They are kept in a trace as lanes: rows `[key | lane]`,
whose multiplicity is the number. A sum is kept as digits of 16 bits, each in its own lane, so lanes never carry and add
up in any order: integers and decimals by magnitude, doubles from 2**-1074 up (kernels/exact.py). There is room for
2**47 copies of any values. To keep few lanes, a count stores only the excess over one for each row, and nulls are
counted instead of values: if each row occurs once and has a value, only the number of rows is stored. In addition, a
change needs the earlier multiplicity of its own row, because a group exists while any of its rows does; if the group is
one row, that is all it needs. Only outside loops.

Source: "Specializing differential dataflow", count_total; the lanes correspond to `explode` in differential dataflow.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import (
    AVG,
    AVG_DECIMAL,
    AVG_FLOAT,
    COUNT,
    FLAG,
    KIND,
    LIMIT,
    ONE_WORD,
    OUT,
    OUT_FLAG,
    PRESENT,
    SUM,
    SUM_DECIMAL,
    SUM_FLOAT,
    WORD,
    WORDS,
    want_number,
)
from vernier.operators.kernels.corrections import same_val, write_correction
from vernier.operators.kernels.counting import follow_copies, follow_counts
from vernier.operators.kernels.exact import DECIMAL_WORDS, FLOAT_WORDS, add_at, add_bits, add_odd
from vernier.operators.kernels.inlining import allocating, inlined
from vernier.operators.kernels.lanes import DIGITS, EMPTY, LANES, MORE, read_lanes
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs, locate_keys
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.wide import add_wide, fits, multiply_wide

_OF_DOUBLES = 134
"""Digits of doubles; the counts of NaN, inf and -inf follow them."""
_LEAST = np.int64(-(2**63))
_INFINITE = np.int64(0x7FF0_0000_0000_0000)
_FRACTION = np.int64(2**52 - 1)


@njit(cache=True)
def _width(kind: int) -> int:
    """The number of lanes of an aggregation."""
    if kind == PRESENT:
        return 0
    if kind == COUNT:
        return DIGITS
    if kind == SUM_FLOAT or kind == AVG_FLOAT:
        return DIGITS + _OF_DOUBLES + 3
    if kind == SUM_DECIMAL or kind == AVG_DECIMAL:
        return DIGITS + 8
    return DIGITS + 4


@njit(cache=True, inline="always")
def _move(acc, delta, lane, by):  # type: ignore[no-untyped-def]
    """Add to a lane. Returns whether it overflowed int64."""
    total, wrapped = add_checked(word(acc, lane), by)
    put_word(acc, lane, total)
    put_word(delta, lane, word(delta, lane) + by)
    return wrapped


@njit(cache=True)
def _add_magnitude(acc, delta, first, hi, lo, factor):  # type: ignore[no-untyped-def]
    """Add hi * 2**64 + lo (unsigned) times `factor` as digits from lane `first` on. Returns whether one overflowed
    int64."""
    lane = first
    while hi != 0 or lo != 0:
        digit = lo & 0xFFFF
        if digit != 0:
            above, moved = multiply_wide(digit, factor)
            if not fits(above, moved) or _move(acc, delta, lane, moved):
                return True
        lo = ((lo >> 16) & np.int64(0x0000_FFFF_FFFF_FFFF)) | ((hi & 0xFFFF) << 48)
        hi = (hi >> 16) & np.int64(0x0000_FFFF_FFFF_FFFF)
        lane += 1
    return False


@njit(cache=True)
def _add_value(aggregations, a, rows, i, first, diff, acc, delta):  # type: ignore[no-untyped-def]
    """Add `diff` copies of the value in rows[i, first …] to the digits of an aggregation. Returns whether one
    overflowed int64."""
    kind, digits = aggregations[a, KIND], 1 + a * LANES + DIGITS
    value = rows[i, first]
    if diff == _LEAST:
        return True
    if kind == SUM_FLOAT or kind == AVG_FLOAT:
        magnitude = value if value >= 0 else ~value
        if magnitude >= _INFINITE:
            which = 0 if magnitude > _INFINITE else 1 if value >= 0 else 2
            return _move(acc, delta, digits + _OF_DOUBLES + which, diff)
        exponent = magnitude >> 52
        fraction = magnitude & _FRACTION
        if exponent > 0:
            fraction |= _FRACTION + 1
            exponent -= 1
        factor = diff if value >= 0 else -diff
        # The shift is less than a digit: at most 53 + 15 bits.
        shift = exponent & 15
        hi = fraction >> (64 - shift) if shift > 0 else np.int64(0)
        return _add_magnitude(acc, delta, digits + (exponent >> 4), hi, fraction << shift, factor)
    hi, lo = np.int64(-1) if value < 0 else np.int64(0), value
    if aggregations[a, WORDS] == 2:
        hi, lo = value, rows[i, first + 1] ^ _LEAST
    if hi < 0:
        hi, lo = add_wide(~hi, ~lo, 0, 1)
        diff = -diff
    return _add_magnitude(acc, delta, digits, hi, lo, diff)


@njit(cache=True, inline="always")
def _there(copies: int, least: int) -> bool:
    """Whether a row with this many copies exists. least: the copies that PRESENT requires, 0 for any non-zero
    number."""
    return copies != 0 if least == 0 else copies >= least


@njit(cache=True, inline="always")
def _counted(aggregations, acc, wanted):  # type: ignore[no-untyped-def]
    """Does what _totals does, for plans that have only counts."""
    exists = word(acc, 0)
    copies, status = (1 if exists != 0 else 0), 0
    for a in range(aggregations.shape[0] if exists != 0 else 0):
        if cell(aggregations, a, KIND) == COUNT:
            lanes = 1 + a * LANES
            number, wrapped = add_checked(exists - word(acc, lanes + EMPTY), word(acc, lanes + MORE))
            put(wanted, 0, cell(aggregations, a, OUT), number)
            if wrapped:
                status = OVERFLOW
    return copies, status


@allocating
def _totals(aggregations, acc, sums, counts, floats, wanted):  # type: ignore[no-untyped-def]
    """Write the aggregates given by the lanes to wanted[0]. Returns (its copies: 1 or 0, status)."""
    exists = word(acc, 0)
    if exists == 0:
        return 0, 0
    for a in range(aggregations.shape[0]):
        kind, base = aggregations[a, KIND], 1 + a * LANES
        if kind == PRESENT:
            continue
        target, out_flag = aggregations[a, OUT], aggregations[a, OUT_FLAG]
        filled = exists - word(acc, base + EMPTY)
        copies, wrapped = add_checked(filled, word(acc, base + MORE))
        if wrapped:
            return 0, OVERFLOW
        if kind == COUNT:
            wanted[0, target] = copies
            continue
        has = filled > 0
        if kind != SUM and kind != SUM_FLOAT and kind != SUM_DECIMAL:
            has = copies != 0
            counts[a, 0], counts[a, 1] = np.int64(-1) if copies < 0 else np.int64(0), copies
        if out_flag >= 0:
            wanted[0, out_flag] = 1 if has else 0
        if not has:
            wanted[0, target] = 0
            if aggregations[a, LIMIT] > ONE_WORD:
                wanted[0, target + 1] = 0
            continue
        if kind == SUM_FLOAT or kind == AVG_FLOAT:
            floats[a] = 0
            for digit in range(_OF_DOUBLES):
                value = acc[base + DIGITS + digit]
                if value != 0:
                    add_bits(floats[a], 16 * digit, np.int64(0), abs(value), value < 0)
            for which in range(3):
                add_odd(floats[a], which, acc[base + DIGITS + _OF_DOUBLES + which])
        else:
            sums[a] = 0
            for digit in range(_width(kind) - DIGITS):
                value = acc[base + DIGITS + digit]
                shift = 16 * (digit & 3)
                hi = value >> (64 - shift) if shift > 0 else np.int64(-1) if value < 0 else np.int64(0)
                add_at(sums[a], digit >> 2, hi, value << shift)
            if kind == SUM or kind == AVG:
                # Readers of integer sums expect (hi, lo).
                sums[a, 0], sums[a, 1] = sums[a, 1], sums[a, 0]
        if kind == SUM:
            if not fits(sums[a, 0], sums[a, 1]):
                return 0, OVERFLOW
            wanted[0, target] = sums[a, 1]
        elif want_number(aggregations, a, sums, counts, floats, wanted) != 0:
            return 0, OVERFLOW
    return 1, 0


@inlined
def _aggregate(aggregations, counted, acc, sums, counts, floats, wanted):  # type: ignore[no-untyped-def]
    """Write the aggregates given by the lanes to wanted[0]; `counted`: they are all counts. Returns (its copies: 1 or
    0, status)."""
    if counted:
        return _counted(aggregations, acc, wanted)
    return _totals(aggregations, acc, sums, counts, floats, wanted)


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


@inlined
def _absorb(aggregations, rows, i, k, diff, turn, acc, delta):  # type: ignore[no-untyped-def]
    """Add `diff` copies of row i, which begins (1) or ceases (-1) to exist by them, to the lanes. Returns whether one
    overflowed int64."""
    put_word(acc, 0, word(acc, 0) + turn)
    put_word(delta, 0, word(delta, 0) + turn)
    more, wrapped = add_checked(diff, -turn)
    for a in range(aggregations.shape[0]):
        kind, lanes = cell(aggregations, a, KIND), 1 + a * LANES
        if kind == PRESENT:
            continue
        flag = cell(aggregations, a, FLAG)
        if flag >= 0 and cell(rows, i, 1 + k + flag) == 0:
            _move(acc, delta, lanes + EMPTY, turn)
            continue
        if more != 0:
            wrapped = _move(acc, delta, lanes + MORE, more) or wrapped
        if kind != COUNT:
            first = 1 + k + aggregations[a, WORD]
            wrapped = _add_value(aggregations, a, rows, i, first, diff, acc, delta) or wrapped
        if wrapped:
            return True
    return False


@inlined
def _replace(out, count, rows, base, k, w, had, had_copies, wanted, copies, time, never):  # type: ignore
    """Write the corrections from what a key had to what is wanted, which is had from then on. Returns their number
    with those before."""
    if copies == had_copies and (copies == 0 or same_val(had, 0, wanted, 0, w)):
        return count
    if had_copies != 0:
        write_correction(out, count, rows, base, k, had, 0, 0, w, time, never, -1)
        count += 1
    if copies != 0:
        write_correction(out, count, rows, base, k, wanted, 0, 0, w, time, never, 1)
        count += 1
    for c in range(w):
        put(had, 0, c, cell(wanted, 0, c))
    return count


@inlined
def _write_lanes(changes, count, rows, base, k, widths, delta, time):  # type: ignore[no-untyped-def]
    """Write how a key's lanes have changed; the caller has made sure that all lanes fit. Returns their number with
    those before."""
    for a in range(-1, widths.shape[0]):
        lanes = 0 if a < 0 else 1 + a * LANES
        for lane in range(lanes, lanes + (1 if a < 0 else word(widths, a))):
            moved = word(delta, lane)
            if moved == 0:
                continue
            for c in range(1 + k):
                put(changes, count, c, cell(rows, base, c))
            put(changes, count, 1 + k, lane)
            put(changes, count, 2 + k, time)
            put(changes, count, 3 + k, moved)
            count += 1
    return count


@njit(cache=True)
def follow_rows(state, source, rows, k, v, w, aggregations):  # type: ignore[no-untyped-def]
    """Corrections of the keys that these rows touch, outside loops, and the changes of their lanes.

    state, source: addresses of the settled batches of the lanes and of the arrangement (kernels/tries.py); rows[n]:
    this slice's updates of the arrangement, `[hash | key | val | time | diff]`, sorted and consolidated; w: words of an
    output val; aggregations[a, 8]: one PRESENT row, or COUNT, SUM … AVG_DECIMAL. Without val words there are no lanes.
    Returns (corrections `[hash | key | out val | time | diff]`, changes of lanes `[hash | key | lane | time | number]`,
    sorted, status, row at fault). O(updates log updates + lanes), however many other rows the key has.
    """
    aggs = aggregations.shape[0]
    runs = key_runs(rows, k)
    q = runs.shape[0] - 1
    out = np.empty((2 * rows.shape[0] + 2, 3 + k + w), np.int64)
    changes = np.empty((2 * q + 16 if v > 0 else 0, 4 + k), np.int64)
    count, change_count = 0, 0
    before, status = count_rows(source, rows, runs, k, v)
    if status != 0:
        return out[:0], changes[:0], status, 0
    if aggs == 1 and cell(aggregations, 0, KIND) == COUNT and cell(aggregations, 0, FLAG) < 0:
        if v > 0:
            return follow_counts(state, rows, runs, k, v, before, out, changes)
        made, status, fault = follow_copies(rows, runs, k, before, out)
        return made, changes[:0], status, fault
    places = np.empty(state.shape[0] * q, np.int64)
    for layer in range(state.shape[0]):
        locate_keys(state, layer, rows, runs, k, places[layer * q : (layer + 1) * q])
    most = 1
    for i in range(q):
        most = max(most, runs[i + 1] - runs[i])
    in_time, order = np.empty(most, np.int64), np.empty(most, np.int64)
    val_of, val_acc = np.empty(most, np.int64), np.empty(most, np.int64)
    widths = np.empty(aggs, np.int64)
    least, counted, lanes = np.int64(0), True, 1
    for a in range(aggs):
        kind = aggregations[a, KIND]
        widths[a] = _width(kind)
        lanes += widths[a]
        counted = counted and (kind == PRESENT or kind == COUNT)
        if kind == PRESENT:
            least = aggregations[a, LIMIT]
    acc, delta = np.zeros(1 + aggs * LANES, np.int64), np.zeros(1 + aggs * LANES, np.int64)
    sums, counts = np.empty((aggs, DECIMAL_WORDS), np.int64), np.empty((aggs, 2), np.int64)
    floats = np.empty((aggs, FLOAT_WORDS), np.int64)
    had, wanted, never = np.empty((1, w), np.int64), np.empty((1, w), np.int64), np.empty(0, np.int64)
    for key in range(q):
        base, stop = word(runs, key), word(runs, key + 1)
        acc[0] = delta[0] = 0
        for a in range(aggs):
            for lane in range(1 + a * LANES, 1 + a * LANES + widths[a]):
                acc[lane] = delta[lane] = 0
        if v > 0:
            if read_lanes(state, places, q, key, acc):
                return out[:0], changes[:0], OVERFLOW, base
        elif _there(word(before, base), least):
            acc[0] = 1
            for a in range(aggs):
                acc[1 + a * LANES + MORE] = word(before, base) - 1
        had_copies, status = _aggregate(aggregations, counted, acc, sums, counts, floats, had)
        if status != 0:
            return out[:0], changes[:0], status, base
        vals = _number_vals(rows, base, stop, k, v, before, val_of, val_acc, in_time, order)
        if vals > 1:
            sorted_by_time(in_time, order, stop - base)
        cursor, time = 0, word(in_time, 0)
        while cursor < stop - base:
            time = word(in_time, word(order, cursor))
            while cursor < stop - base and word(in_time, word(order, cursor)) == time:
                i, val = base + word(order, cursor), word(val_of, word(order, cursor))
                cursor += 1
                diff, was = cell(rows, i, 2 + k + v), word(val_acc, val)
                now, wrapped = add_checked(was, diff)
                if wrapped:
                    return out[:0], changes[:0], OVERFLOW, base
                put_word(val_acc, val, now)
                turn = (1 if _there(now, least) else 0) - (1 if _there(was, least) else 0)
                if _absorb(aggregations, rows, i, k, diff, turn, acc, delta):
                    return out[:0], changes[:0], OVERFLOW, base
            copies, status = _aggregate(aggregations, counted, acc, sums, counts, floats, wanted)
            if status != 0:
                return out[:0], changes[:0], status, base
            count = _replace(out, count, rows, base, k, w, had, had_copies, wanted, copies, time, never)
            had_copies = copies
        if v > 0:
            if change_count + lanes > changes.shape[0]:
                changes = more_rows(changes, change_count + lanes)
            change_count = _write_lanes(changes, change_count, rows, base, k, widths, delta, time)
    return out[:count], changes[:change_count], 0, -1
