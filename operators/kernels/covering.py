"""Covering kernel: replays keys whose result is one val: the least present, the greatest present, or whether any is.

The kernel visits vals in order of preference, each as the intervals of time during which it is present. An interval
takes the part of time that no earlier val has taken. Once no time is left, the remaining vals need not be read. So the
wanted output of a key is a list of intervals, and the corrections are where they begin and end, minus the earlier
output. All corrections up to the slice have been made already (operators/physical/reduce.py), so none are due there.
The kernel needs no rule about which times to look at, because a time at which nothing changes cancels out.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import KIND, LIMIT, MAX, PRESENT
from vernier.operators.kernels.corrections import same_val, write_correction
from vernier.operators.kernels.rounds import below, finish_visits, schedule
from vernier.operators.kernels.time_order import sort_changes
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW

_NEVER = np.iinfo(np.int64).max
_LEAST = np.iinfo(np.int64).min
_ROOM = 64


@njit(cache=True)
def _grown(rows: np.ndarray, size: int) -> np.ndarray:
    """A copy of the rows with at least `size` columns."""
    more = np.empty((rows.shape[0], 2 * size), np.int64)
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            put(more, i, c, cell(rows, i, c))
    return more


@inlined
def _stretches(inputs, first, stop, v, now, limit, stretch, visits, visited, scheduled):  # type: ignore[no-untyped-def]
    """When the val of entry `first` is present, if its changes up to `now` are in time order, which they usually are.

    Returns (finished stretches, whether the last one has no end, the entry after the val, visits, in order).
    """
    stretches, here, inside, previous = 0, np.int64(0), False, _LEAST
    e = first
    while e < stop and same_val(inputs, e, inputs, first, v):
        if below(inputs, e, v + 1, now):
            time = cell(inputs, e, v)
            if time != previous:
                # Overwritten until the slot is final: cheaper than a branch.
                there = here >= limit
                put(stretch, np.int64(inside), stretches, previous)
                stretches += np.int64(inside and not there)
                inside = there
                if time < previous:
                    return 0, False, e, scheduled, False
                previous = time
            here, wrapped = add_checked(here, cell(inputs, e, v + 1 + now.shape[0]))
            if wrapped:
                # Possibly only because the changes are not in time order.
                return 0, False, e, scheduled, False
        else:
            scheduled = schedule(visits, visited, scheduled, inputs, e, v + 1, now)
        e += 1
    if inside != (here >= limit):
        put(stretch, 1 if inside else 0, stretches, previous)
        stretches += 1 if inside else 0
        inside = not inside
    return stretches, inside, e, scheduled, True


@inlined
def _sorted_stretches(  # type: ignore[no-untyped-def]
    inputs, first, stop, v, now, limit, stretch, times, diffs, visits, visited, scheduled
):
    """The same for a val whose changes, of several rounds, have to be sorted first. Returns `wrapped` last."""
    n, e = 0, first
    while e < stop and same_val(inputs, e, inputs, first, v):
        if below(inputs, e, v + 1, now):
            put_word(times, n, cell(inputs, e, v))
            put_word(diffs, n, cell(inputs, e, v + 1 + now.shape[0]))
            n += 1
        else:
            scheduled = schedule(visits, visited, scheduled, inputs, e, v + 1, now)
        e += 1
    sort_changes(times, diffs, 1, 0, n)
    stretches, here, inside, i = 0, np.int64(0), False, 0
    while i < n:
        previous = word(times, i)
        while i < n and word(times, i) == previous:
            here, wrapped = add_checked(here, word(diffs, i))
            if wrapped:
                return 0, False, e, scheduled, True
            i += 1
        if inside != (here >= limit):
            put(stretch, 1 if inside else 0, stretches, previous)
            stretches += 1 if inside else 0
            inside = not inside
    return stretches, inside, e, scheduled, False


@inlined
def _take(free, old, frees, stretch, stretches, taken, takes, entry):  # type: ignore[no-untyped-def]
    """The val of `entry` takes the part of its stretches that is free in rows `old` of `free`; what is left is written
    to the other rows. Returns (intervals left, intervals taken)."""
    lefts, s, new = 0, 0, 2 - old
    for f in range(frees):
        start, end = cell(free, old, f), cell(free, old + 1, f)
        while s < stretches and cell(stretch, 1, s) <= start:
            s += 1
        p = s
        while p < stretches and cell(stretch, 0, p) < end:
            if cell(stretch, 0, p) > start:
                put(free, new, lefts, start)
                put(free, new + 1, lefts, cell(stretch, 0, p))
                lefts += 1
                start = cell(stretch, 0, p)
            upto = min(end, cell(stretch, 1, p))
            put(taken, 0, takes, start)
            put(taken, 1, takes, upto)
            put(taken, 2, takes, entry)
            takes += 1
            start = upto
            p += 1
        if start < end:
            put(free, new, lefts, start)
            put(free, new + 1, lefts, end)
            lefts += 1
    return lefts, takes


@inlined
def _order(rows, i, others, j, width):  # type: ignore[no-untyped-def]
    """Compares the vals of row i and of row j of `others`: -1, 0 or 1."""
    for c in range(width):
        if cell(rows, i, c) != cell(others, j, c):
            return -1 if cell(rows, i, c) < cell(others, j, c) else 1
    return 0


@inlined
def _unchanged(inputs, taken, takes, one, outputs, two, last, w, now):  # type: ignore[no-untyped-def]
    """Whether the intervals of the val that takes interval `one` are exactly its earlier output, from row `two` on.
    Returns (the interval and the output row after the val, whether they are)."""
    entry, said = cell(taken, 2, one), two
    piece, half = one, 0
    while (
        piece < takes
        and two < last
        and cell(outputs, two, w) == cell(taken, half, piece)
        and cell(outputs, two, w + 1 + now.shape[0]) == 1 - 2 * half
        and below(outputs, two, w + 1, now)
        and same_val(outputs, two, outputs, said, w)
        and same_val(inputs, cell(taken, 2, piece), inputs, entry, w)
    ):
        two += 1
        if half == 0 and cell(taken, 1, piece) != _NEVER:
            half = 1
        else:
            half = 0
            piece += 1
    more_said = two < last and same_val(outputs, two, outputs, said, w)
    more_taken = piece < takes and same_val(inputs, cell(taken, 2, piece), inputs, entry, w)
    return piece, two, half == 0 and not more_said and not more_taken


@inlined
def _owe(times, diffs, n, ordered, time, diff):  # type: ignore[no-untyped-def]
    """Add a change to times[:n], of which the first `ordered` are in order. Returns (n, ordered)."""
    put_word(times, n, time)
    put_word(diffs, n, diff)
    if n == ordered and (n == 0 or word(times, n - 1) <= time):
        ordered += 1
    return n + 1, ordered


@inlined
def _write_owed(  # type: ignore[no-untyped-def]
    times, diffs, n, fold, out, count, keyed, key, k, inputs, entry, outputs, said, mine, w, now
):
    """Write the sums of sorted changes by time as corrections of one val: of an input entry (`mine`) or an output row.
    Returns (number of corrections, wrapped)."""
    i = 0
    while i < n:
        time, owed = word(times, i), np.int64(0)
        while i < n and word(times, i) == time:
            owed, wrapped = add_checked(owed, word(diffs, i))
            if wrapped:
                return count, True
            i += 1
        if owed != 0 and time > fold:
            rows, row = (inputs, entry) if mine else (outputs, said)
            write_correction(out, count, keyed, key, k, rows, row, 0, w, time, now, owed)
            count += 1
    return count, False


@inlined
def _correct(  # type: ignore[no-untyped-def]
    inputs, taken, takes, greatest, outputs, two, last, w, now, fold, times, diffs, out, count, keyed, key, k
):
    """Write the intervals taken, minus the earlier output [two, last), val by val. Returns (number of corrections,
    wrapped)."""
    one = 0
    while one < takes or two < last:
        entry = cell(taken, 2, takes - 1 - one if greatest else one) if one < takes else 0
        order = 0
        if one == takes:
            order = 1
        elif two == last:
            order = -1
        else:
            order = _order(inputs, entry, outputs, two, w)
        if order == 0 and not greatest:
            piece, after, unchanged = _unchanged(inputs, taken, takes, one, outputs, two, last, w, now)
            if unchanged:
                one, two = piece, after
                continue
        said, n, ordered = two, 0, 0
        if order >= 0:
            while two < last and same_val(outputs, two, outputs, said, w):
                if below(outputs, two, w + 1, now):
                    diff = -cell(outputs, two, w + 1 + now.shape[0])
                    n, ordered = _owe(times, diffs, n, ordered, cell(outputs, two, w), diff)
                two += 1
        if order <= 0:
            while one < takes:
                place = takes - 1 - one if greatest else one
                if not same_val(inputs, cell(taken, 2, place), inputs, entry, w):
                    break
                n, ordered = _owe(times, diffs, n, ordered, cell(taken, 0, place), 1)
                if cell(taken, 1, place) != _NEVER:
                    n, ordered = _owe(times, diffs, n, ordered, cell(taken, 1, place), -1)
                one += 1
        if ordered < n:
            sort_changes(times, diffs, ordered, 0, n)
        count, wrapped = _write_owed(
            times, diffs, n, fold, out, count, keyed, key, k, inputs, entry, outputs, said, order <= 0, w, now
        )
        if wrapped:
            return count, True
    return count, False


@njit(cache=True, forceinline=True)
def _cover(  # type: ignore[no-untyped-def]
    keyed, k, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation
):
    """The body of `cover_keys`, inlined there both for known and for arbitrary widths."""
    d = now.shape[0]
    q = keyed.shape[0]
    limit = aggregation[LIMIT] if aggregation[KIND] == PRESENT else 1
    greatest = aggregation[KIND] == MAX
    out = np.empty((4 * q + 16, 3 + k + w + d), np.int64)
    visits = np.empty((q + 16, d + 1 + k), np.int64)
    count, scheduled = 0, 0
    # Work space, grown when needed: assigning arrays inside the loop would count references for every val.
    times, diffs = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
    stretch = np.empty((2, _ROOM), np.int64)  # when a val is present: begins and ends
    free = np.empty((4, _ROOM), np.int64)  # time that no val has taken, old and new: begins and ends
    taken = np.empty((3, _ROOM), np.int64)  # time that vals have taken: begins, ends and the vals' entries
    for key in range(q):
        base, stop = cell(in_spans, key, 0), cell(in_spans, key, 1)
        size = stop - base
        if size > times.shape[0]:
            times, diffs = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
            stretch = np.empty((2, 2 * size), np.int64)
        if scheduled + size > visits.shape[0]:
            visits = more_rows(visits, scheduled + size)
        visited = scheduled
        old = 0
        put(free, 0, 0, fold)
        put(free, 1, 0, _NEVER)
        frees, takes = 1, 0
        at = stop - 1 if greatest else base
        while frees > 0 and base <= at < stop:
            first = at
            if greatest:
                while first > base and same_val(inputs, first - 1, inputs, at, v):
                    first -= 1
            stretches, inside, after, scheduled, ordered = _stretches(
                inputs, first, stop, v, now, limit, stretch, visits, visited, scheduled
            )
            if not ordered:
                stretches, inside, after, scheduled, wrapped = _sorted_stretches(
                    inputs, first, stop, v, now, limit, stretch, times, diffs, visits, visited, scheduled
                )
                if wrapped:
                    return out[:0], visits[:0], OVERFLOW, key
            if inside:
                put(stretch, 1, stretches, _NEVER)
                stretches += 1
            at = first - 1 if greatest else after
            if stretches == 0:
                continue
            if frees + stretches > free.shape[1]:
                free = _grown(free, frees + stretches)
            if takes + frees + stretches > taken.shape[1]:
                taken = _grown(taken, takes + frees + stretches)
            frees, takes = _take(free, old, frees, stretch, stretches, taken, takes, first)
            old = 2 - old
        # Vals that were not read have visits, too.
        for e in range(base if greatest else at, at + 1 if greatest else stop):
            if not below(inputs, e, v + 1, now):
                scheduled = schedule(visits, visited, scheduled, inputs, e, v + 1, now)
        finish_visits(visits, visited, scheduled, keyed, key, k, d)
        two, last = cell(out_spans, key, 0), cell(out_spans, key, 1)
        size = 2 * takes + last - two
        if count + size > out.shape[0]:
            out = more_rows(out, count + size)
        if size > times.shape[0]:
            times, diffs = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
        count, wrapped = _correct(
            inputs, taken, takes, greatest, outputs, two, last, w, now, fold, times, diffs, out, count, keyed, key, k
        )
        if wrapped:
            return out[:0], visits[:0], OVERFLOW, key
    return out[:count], visits[:scheduled], 0, -1


@njit(cache=True)
def cover_keys(  # type: ignore[no-untyped-def]
    keyed, k, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation
):
    """Corrections and further visits of q keys at round `now`.

    Like kernels.reducing.reduce_keys, for one aggregation: PRESENT, or MIN or MAX of the first words of a val; the w
    words of the output are the first words of the val. Returns (corrections `[hash | key | out val | time | now |
    diff]` in order, each once; visits `[rounds | hash | key]`; status; key at fault). O(entries of the vals up to the
    first val that is always present), plus sorting if their times are out of order; computing visits reads the rounds
    of all entries.
    """
    if k == 1 and v == 1 and w == 1 and now.shape[0] == 1:
        # Single words in a loop that is not nested: constant widths let the compiler unroll the inner loops.
        return _cover(keyed, 1, in_spans, inputs, 1, out_spans, outputs, 1, now, fold, aggregation)
    return _cover(keyed, k, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation)
