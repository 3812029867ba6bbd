"""Sums that do not look at the rows they are of: the aggregates of a key as numbers that each change moves on.

Counts and sums are linear, so a key needs no more than its totals, kept in a trace as lanes: `[key | lane]`, whose
multiplicity is the number. A sum is kept as digits of 16 bits at lanes of their own, so that lanes never have to carry
and add up in any order: integers and decimals by magnitude, doubles from 2**-1074 up (kernels/exact.py). There is room
for 2**47 copies of any values. What a change needs to know besides is how often its own row was there, since a group
exists while any of its rows does. Outside loops alone. Source: seed 001, count_total; the lanes are what differential
dataflow calls explode.
"""

import numpy as np
from numba import njit

from operators.kernels.aggregating import (
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
from operators.kernels.exact import DECIMAL_WORDS, FLOAT_WORDS, add_at, add_bits, add_odd
from operators.kernels.reducing import sorted_by_time
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW
from storage.kernels.wide import add_wide, fits, multiply_wide

_LANES = 160
"""Lanes of an aggregation; before them lane 0 counts the rows of the key that exist (are present, for PRESENT)."""
_FILLED, _COUNT, _DIGITS = 0, 1, 2
"""Among an aggregation's lanes: rows that exist and have a value, values, and where digits begin."""
_OF_DOUBLES = 134
"""Digits of doubles; then how often there are NaN, inf and -inf."""
_LEAST = np.int64(-(2**63))
_INFINITE = np.int64(0x7FF0_0000_0000_0000)
_FRACTION = np.int64(2**52 - 1)


@njit(cache=True)
def _width(kind: int) -> int:
    """How many lanes an aggregation has."""
    if kind == PRESENT:
        return 0
    if kind == COUNT:
        return _DIGITS
    if kind == SUM_FLOAT or kind == AVG_FLOAT:
        return _DIGITS + _OF_DOUBLES + 3
    if kind == SUM_DECIMAL or kind == AVG_DECIMAL:
        return _DIGITS + 8
    return _DIGITS + 4


@njit(cache=True, inline="always")
def _move(acc, delta, a, lane, by):  # type: ignore[no-untyped-def]
    """Add to a lane; returns whether that left int64."""
    acc[a, lane], wrapped = add_checked(acc[a, lane], by)
    delta[a, lane] += by
    return wrapped


@njit(cache=True)
def _add_magnitude(acc, delta, a, first, hi, lo, factor):  # type: ignore[no-untyped-def]
    """Add hi * 2**64 + lo (unsigned) times `factor` as digits from lane `first` on; returns whether one left int64."""
    lane = first
    while hi != 0 or lo != 0:
        digit = lo & 0xFFFF
        if digit != 0:
            above, moved = multiply_wide(digit, factor)
            if not fits(above, moved) or _move(acc, delta, a, lane, moved):
                return True
        lo = ((lo >> 16) & np.int64(0x0000_FFFF_FFFF_FFFF)) | ((hi & 0xFFFF) << 48)
        hi = (hi >> 16) & np.int64(0x0000_FFFF_FFFF_FFFF)
        lane += 1
    return False


@njit(cache=True)
def _add_value(aggregations, a, rows, i, first, diff, acc, delta):  # type: ignore[no-untyped-def]
    """Add `diff` copies of the value in rows[i, first …] to the digits of an aggregation; whether one left int64."""
    kind = aggregations[a, KIND]
    word = rows[i, first]
    if diff == _LEAST:
        return True
    if kind == SUM_FLOAT or kind == AVG_FLOAT:
        magnitude = word if word >= 0 else ~word
        if magnitude >= _INFINITE:
            which = 0 if magnitude > _INFINITE else 1 if word >= 0 else 2
            return _move(acc, delta, a, _DIGITS + _OF_DOUBLES + which, diff)
        exponent = magnitude >> 52
        fraction = magnitude & _FRACTION
        if exponent > 0:
            fraction |= _FRACTION + 1
            exponent -= 1
        factor = diff if word >= 0 else -diff
        # Shifted by less than a digit: 53 + 15 bits.
        shift = exponent & 15
        hi = fraction >> (64 - shift) if shift > 0 else np.int64(0)
        return _add_magnitude(acc, delta, a, _DIGITS + (exponent >> 4), hi, fraction << shift, factor)
    hi, lo = np.int64(-1) if word < 0 else np.int64(0), word
    if aggregations[a, WORDS] == 2:
        hi, lo = word, rows[i, first + 1] ^ _LEAST
    if hi < 0:
        hi, lo = add_wide(~hi, ~lo, 0, 1)
        diff = -diff
    return _add_magnitude(acc, delta, a, _DIGITS, hi, lo, diff)


@njit(cache=True)
def _totals(aggregations, exists, acc, sums, counts, floats, wanted):  # type: ignore[no-untyped-def]
    """Write the aggregates that the lanes say to wanted[0]; returns (copies of it, status)."""
    if exists == 0:
        return 0, 0
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        if kind == PRESENT:
            continue
        target, out_flag = aggregations[a, OUT], aggregations[a, OUT_FLAG]
        if kind == COUNT:
            wanted[0, target] = acc[a, _COUNT]
            continue
        has = aggregations[a, FLAG] < 0 or acc[a, _FILLED] > 0
        if kind != SUM and kind != SUM_FLOAT and kind != SUM_DECIMAL:
            has = acc[a, _COUNT] != 0
            counts[a, 0], counts[a, 1] = np.int64(-1) if acc[a, _COUNT] < 0 else np.int64(0), acc[a, _COUNT]
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
                value = acc[a, _DIGITS + digit]
                if value != 0:
                    add_bits(floats[a], 16 * digit, np.int64(0), abs(value), value < 0)
            for which in range(3):
                add_odd(floats[a], which, acc[a, _DIGITS + _OF_DOUBLES + which])
        else:
            sums[a] = 0
            for digit in range(_width(kind) - _DIGITS):
                value = acc[a, _DIGITS + digit]
                shift = 16 * (digit & 3)
                hi = value >> (64 - shift) if shift > 0 else np.int64(-1) if value < 0 else np.int64(0)
                add_at(sums[a], digit >> 2, hi, value << shift)
            if kind == SUM or kind == AVG:
                # Sums of integers are (hi, lo) to those who read them.
                sums[a, 0], sums[a, 1] = sums[a, 1], sums[a, 0]
        if kind == SUM:
            if not fits(sums[a, 0], sums[a, 1]):
                return 0, OVERFLOW
            wanted[0, target] = sums[a, 1]
        elif want_number(aggregations, a, sums, counts, floats, wanted) != 0:
            return 0, OVERFLOW
    return 1, 0


@njit(cache=True)
def follow_keys(keyed, k, s_spans, lanes, fresh, runs, before, v, w, fold, aggregations):  # type: ignore
    """Corrections of q keys outside loops, and what becomes of their lanes.

    keyed[q, >= 1 + k]; lanes: their state as a selection `[lane | time | number]`; fresh: this slice's updates
    `[hash | key | val | time | diff]`, sorted, with those of key i at runs[i : i + 2]; before[n]: how often each one's
    row was there before; w: words of an output val; aggregations[a, 8]: one PRESENT row, or COUNT, SUM … AVG_DECIMAL.
    Returns (corrections `[hash | key | out val | time | diff]`, changes of lanes `[hash | key | lane | time | number]`,
    sorted, status, key at fault). O(updates log updates + lanes), whatever the key has besides.
    """
    q, aggs = keyed.shape[0], aggregations.shape[0]
    out = np.empty((4 * q + 16, 3 + k + w), np.int64)
    count = 0
    changes = np.empty((4 * q + 16, 4 + k), np.int64)
    change_count = 0
    most = 1
    for i in range(q):
        most = max(most, runs[i + 1] - runs[i])
    in_time = np.empty(most, np.int64)
    order = np.empty(most, np.int64)
    val_of = np.empty(most, np.int64)
    val_acc = np.empty(most, np.int64)
    widths = np.empty(aggs, np.int64)
    least = np.int64(0)
    for a in range(aggs):
        widths[a] = _width(aggregations[a, KIND])
        if aggregations[a, KIND] == PRESENT:
            least = aggregations[a, LIMIT]
    acc = np.empty((aggs, _LANES), np.int64)
    delta = np.empty((aggs, _LANES), np.int64)
    sums = np.empty((aggs, DECIMAL_WORDS), np.int64)
    counts = np.empty((aggs, 2), np.int64)
    floats = np.empty((aggs, FLOAT_WORDS), np.int64)
    had = np.empty((1, w), np.int64)
    wanted = np.empty((1, w), np.int64)
    nothing = np.empty((0, 0), np.int64)
    for key in range(q):
        for a in range(aggs):
            for lane in range(widths[a]):
                acc[a, lane] = delta[a, lane] = 0
        exists = np.int64(0)
        for e in range(s_spans[key, 0], s_spans[key, 1]):
            lane = lanes[e, 0]
            if lane == 0:
                exists = lanes[e, 2]
            else:
                acc[(lane - 1) // _LANES, (lane - 1) % _LANES] = lanes[e, 2]
        existed = exists
        had_copies, status = _totals(aggregations, exists, acc, sums, counts, floats, had)
        if status != 0:
            return nothing, nothing, status, key
        base, stop = runs[key], runs[key + 1]
        vals = 0
        for i in range(base, stop):
            new = i == base
            if not new:
                for c in range(1 + k, 1 + k + v):
                    if fresh[i, c] != fresh[i - 1, c]:
                        new = True
                        break
            if new:
                val_acc[vals] = before[i]
                vals += 1
            val_of[i - base] = vals - 1
            in_time[i - base] = fresh[i, 1 + k + v]
            order[i - base] = i - base
        sorted_by_time(in_time, order, stop - base)
        cursor = 0
        time = fold
        while cursor < stop - base:
            time = in_time[order[cursor]]
            while cursor < stop - base and in_time[order[cursor]] == time:
                i = base + order[cursor]
                val = val_of[order[cursor]]
                cursor += 1
                diff = fresh[i, 2 + k + v]
                was = val_acc[val]
                now, wrapped = add_checked(was, diff)
                if wrapped:
                    return nothing, nothing, OVERFLOW, key
                val_acc[val] = now
                turn = (1 if now >= least else 0) - (1 if was >= least else 0)
                if least == 0:
                    turn = (1 if now != 0 else 0) - (1 if was != 0 else 0)
                exists += turn
                for a in range(aggs):
                    kind = aggregations[a, KIND]
                    if kind == PRESENT:
                        continue
                    if aggregations[a, FLAG] >= 0 and fresh[i, 1 + k + aggregations[a, FLAG]] == 0:
                        continue
                    wrapped = _move(acc, delta, a, _FILLED, turn) or _move(acc, delta, a, _COUNT, diff)
                    if kind != COUNT:
                        first = 1 + k + aggregations[a, WORD]
                        wrapped = wrapped or _add_value(aggregations, a, fresh, i, first, diff, acc, delta)
                    if wrapped:
                        return nothing, nothing, OVERFLOW, key
            copies, status = _totals(aggregations, exists, acc, sums, counts, floats, wanted)
            if status != 0:
                return nothing, nothing, status, key
            same = copies == had_copies
            if same and copies > 0:
                for c in range(w):
                    if had[0, c] != wanted[0, c]:
                        same = False
                        break
            if same:
                continue
            if count + 2 > out.shape[0]:
                more = np.empty((2 * count + 16, out.shape[1]), np.int64)
                more[:count] = out[:count]
                out = more
            for step in range(2):
                if (had_copies if step == 0 else copies) == 0:
                    continue
                for c in range(1 + k):
                    out[count, c] = keyed[key, c]
                for c in range(w):
                    out[count, 1 + k + c] = had[0, c] if step == 0 else wanted[0, c]
                out[count, 1 + k + w] = time
                out[count, 2 + k + w] = -1 if step == 0 else 1
                count += 1
            for c in range(w):
                had[0, c] = wanted[0, c]
            had_copies = copies
        for a in range(-1, aggs):
            for lane in range(1 if a < 0 else widths[a]):
                moved = exists - existed if a < 0 else delta[a, lane]
                if moved == 0:
                    continue
                if change_count == changes.shape[0]:
                    more = np.empty((2 * change_count, changes.shape[1]), np.int64)
                    more[:change_count] = changes
                    changes = more
                for c in range(1 + k):
                    changes[change_count, c] = keyed[key, c]
                changes[change_count, 1 + k] = 0 if a < 0 else 1 + a * _LANES + lane
                changes[change_count, 2 + k] = time
                changes[change_count, 3 + k] = moved
                change_count += 1
    return out[:count], changes[:change_count], 0, -1
