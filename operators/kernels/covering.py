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
from vernier.operators.kernels.rounds import below
from vernier.storage.kernels.cells import cell, more_rows, put
from vernier.storage.kernels.sorting import add_checked, stable_order
from vernier.storage.kernels.status import OVERFLOW

_NEVER = np.iinfo(np.int64).max
_LEAST = np.iinfo(np.int64).min
_FEW = 48
_ROOM = 64


@njit(cache=True)
def _grown(rows: np.ndarray, size: int) -> np.ndarray:
    """A copy of the rows with at least `size` columns."""
    more = np.empty((rows.shape[0], 2 * size), np.int64)
    for i in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            put(more, i, c, cell(rows, i, c))
    return more


@njit(cache=True, inline="always")
def _schedule(visits, first, count, rows, i, start, now):  # type: ignore[no-untyped-def]
    """Add the least upper bound of `now` and the rounds of row i to visits[first:count], unless it is there already.
    Returns the new count."""
    d = now.shape[0]
    for p in range(count - 1, first - 1, -1):
        known = True
        for c in range(d):
            if cell(visits, p, c) != max(now[c], cell(rows, i, start + c)):
                known = False
                break
        if known:
            return count
    for c in range(d):
        put(visits, count, c, max(now[c], cell(rows, i, start + c)))
    return count + 1


@njit(cache=True)
def _sort_many(times: np.ndarray, diffs: np.ndarray, first: int, stop: int) -> None:
    """Sort [first, stop) by time."""
    order = stable_order(times[first:stop])
    one, two = times[first:stop].copy(), diffs[first:stop].copy()
    for i in range(stop - first):
        times[first + i], diffs[first + i] = one[order[i]], two[order[i]]


@njit(cache=True, inline="always")
def _sort_times(times: np.ndarray, diffs: np.ndarray, start: int, first: int, stop: int) -> None:
    """Sort [first, stop) by time; [first, start) is sorted already."""
    if stop - start > _FEW:
        _sort_many(times, diffs, first, stop)
        return
    for i in range(start, stop):
        time, diff = times[i], diffs[i]
        j = i
        while j > first and times[j - 1] > time:
            times[j], diffs[j] = times[j - 1], diffs[j - 1]
            j -= 1
        times[j], diffs[j] = time, diff


@njit(cache=True, inline="always")
def _same(rows: np.ndarray, i: int, others: np.ndarray, j: int, width: int) -> bool:
    for c in range(width):
        if cell(rows, i, c) != cell(others, j, c):
            return False
    return True


@njit(cache=True, forceinline=True)
def _cover(  # type: ignore[no-untyped-def]
    keyed, k, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation
):
    """The body of `cover_keys`, inlined there both for known and for arbitrary widths."""
    d = now.shape[0]
    q = keyed.shape[0]
    limit = aggregation[LIMIT] if aggregation[KIND] == PRESENT else 1
    greatest = aggregation[KIND] == MAX
    diff_in, diff_out = v + 1 + d, w + 1 + d
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
        scheduled_before = scheduled
        old, new = 0, 2
        put(free, 0, 0, fold)
        put(free, 1, 0, _NEVER)
        frees, takes = 1, 0
        at = stop - 1 if greatest else base
        while frees > 0 and base <= at < stop:
            # The run of one val: when it is present, from its changes up to `now`, which are usually in time order.
            first = at
            if greatest:
                while first > base and _same(inputs, first - 1, inputs, at, v):
                    first -= 1
            stretches, here, inside = 0, np.int64(0), False
            ordered, previous = True, _LEAST
            e = first
            while e < stop and _same(inputs, e, inputs, first, v):
                if below(inputs, e, v + 1, now):
                    time = cell(inputs, e, v)
                    if time != previous:
                        # Overwritten until the slot is final: cheaper than a branch.
                        there = here >= limit
                        put(stretch, np.int64(inside), stretches, previous)
                        stretches += np.int64(inside and not there)
                        inside = there
                        if time < previous:
                            ordered = False
                            break
                        previous = time
                    here, wrapped = add_checked(here, cell(inputs, e, diff_in))
                    if wrapped:
                        # Possibly only because the changes are not in time order.
                        ordered = False
                        break
                else:
                    scheduled = _schedule(visits, scheduled_before, scheduled, inputs, e, v + 1, now)
                e += 1
            if not ordered:
                # Changes of several rounds: sort them and start over.
                n = 0
                e = first
                while e < stop and _same(inputs, e, inputs, first, v):
                    if below(inputs, e, v + 1, now):
                        times[n], diffs[n] = cell(inputs, e, v), cell(inputs, e, diff_in)
                        n += 1
                    else:
                        scheduled = _schedule(visits, scheduled_before, scheduled, inputs, e, v + 1, now)
                    e += 1
                _sort_times(times, diffs, 1, 0, n)
                stretches, here, inside = 0, np.int64(0), False
                i = 0
                while i < n:
                    previous = times[i]
                    while i < n and times[i] == previous:
                        here, wrapped = add_checked(here, diffs[i])
                        if wrapped:
                            return out[:0], visits[:0], OVERFLOW, key
                        i += 1
                    if inside != (here >= limit):
                        put(stretch, 1 if inside else 0, stretches, previous)
                        stretches += 1 if inside else 0
                        inside = not inside
            elif inside != (here >= limit):
                put(stretch, 1 if inside else 0, stretches, previous)
                stretches += 1 if inside else 0
                inside = not inside
            if inside:
                put(stretch, 1, stretches, _NEVER)
                stretches += 1
            at = first - 1 if greatest else e
            if stretches == 0:
                continue
            # The val takes the free part of its intervals.
            if frees + stretches > free.shape[1]:
                free = _grown(free, frees + stretches)
            if takes + frees + stretches > taken.shape[1]:
                taken = _grown(taken, takes + frees + stretches)
            lefts, s = 0, 0
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
                    put(taken, 2, takes, first)
                    takes += 1
                    start = upto
                    p += 1
                if start < end:
                    put(free, new, lefts, start)
                    put(free, new + 1, lefts, end)
                    lefts += 1
            old, new = new, old
            frees = lefts

        # Vals that were not read have visits, too.
        for e in range(base if greatest else at, at + 1 if greatest else stop):
            if not below(inputs, e, v + 1, now):
                scheduled = _schedule(visits, scheduled_before, scheduled, inputs, e, v + 1, now)
        for i in range(scheduled_before, scheduled):
            for c in range(1 + k):
                put(visits, i, d + c, cell(keyed, key, c))

        # Output rows in order: the intervals taken, minus the earlier output.
        one, two = 0, cell(out_spans, key, 0)
        last_out = cell(out_spans, key, 1)
        size = 2 * takes + last_out - two
        if count + size > out.shape[0]:
            out = more_rows(out, count + size)
        if size > times.shape[0]:
            times, diffs = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
        while one < takes or two < last_out:
            order = 0
            entry = cell(taken, 2, takes - 1 - one if greatest else one) if one < takes else 0
            if one == takes:
                order = 1
            elif two == last_out:
                order = -1
            else:
                for c in range(w):
                    if cell(inputs, entry, c) != cell(outputs, two, c):
                        order = -1 if cell(inputs, entry, c) < cell(outputs, two, c) else 1
                        break
            said = two
            if order == 0 and not greatest:
                # In most cases the earlier output is exactly the same.
                piece, half = one, 0
                while (
                    piece < takes
                    and two < last_out
                    and cell(outputs, two, w) == cell(taken, half, piece)
                    and cell(outputs, two, diff_out) == 1 - 2 * half
                    and below(outputs, two, w + 1, now)
                    and _same(outputs, two, outputs, said, w)
                    and _same(inputs, cell(taken, 2, piece), inputs, entry, w)
                ):
                    two += 1
                    if half == 0 and cell(taken, 1, piece) != _NEVER:
                        half = 1
                    else:
                        half = 0
                        piece += 1
                more_said = two < last_out and _same(outputs, two, outputs, said, w)
                more_taken = piece < takes and _same(inputs, cell(taken, 2, piece), inputs, entry, w)
                if half == 0 and not more_said and not more_taken:
                    one = piece
                    continue
                two = said
            n, ordered = 0, 0
            if order >= 0:
                while two < last_out and _same(outputs, two, outputs, said, w):
                    if below(outputs, two, w + 1, now):
                        times[n], diffs[n] = cell(outputs, two, w), -cell(outputs, two, diff_out)
                        if n == ordered and (n == 0 or times[n - 1] <= times[n]):
                            ordered += 1
                        n += 1
                    two += 1
            if order <= 0:
                while one < takes:
                    place = takes - 1 - one if greatest else one
                    if not _same(inputs, cell(taken, 2, place), inputs, entry, w):
                        break
                    times[n], diffs[n] = cell(taken, 0, place), 1
                    if n == ordered and (n == 0 or times[n - 1] <= times[n]):
                        ordered += 1
                    n += 1
                    if cell(taken, 1, place) != _NEVER:
                        times[n], diffs[n] = cell(taken, 1, place), -1
                        if n == ordered and times[n - 1] <= times[n]:
                            ordered += 1
                        n += 1
                    one += 1
            if ordered < n:
                _sort_times(times, diffs, ordered, 0, n)
            i = 0
            while i < n:
                time = times[i]
                owed = np.int64(0)
                while i < n and times[i] == time:
                    owed, wrapped = add_checked(owed, diffs[i])
                    if wrapped:
                        return out[:0], visits[:0], OVERFLOW, key
                    i += 1
                if owed != 0 and time > fold:
                    put(out, count, 0, cell(keyed, key, 0))
                    for c in range(k):
                        put(out, count, 1 + c, cell(keyed, key, 1 + c))
                    for c in range(w):
                        put(out, count, 1 + k + c, cell(inputs, entry, c) if order <= 0 else cell(outputs, said, c))
                    put(out, count, 1 + k + w, time)
                    for c in range(d):
                        put(out, count, 2 + k + w + c, now[c])
                    put(out, count, 2 + k + w + d, owed)
                    count += 1
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
