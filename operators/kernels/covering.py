"""Covering kernel: replays keys whose result is one val: the least present, the greatest present, or whether any is.

The kernel visits vals in order of preference, each as the intervals of time during which it is present. An interval
takes the part of time that no earlier val has taken (kernels/presence.py). So the wanted output of a key is a list of
intervals, and the corrections are where they begin and end, minus the earlier output. All corrections up to the slice
have been made already (operators/physical/reduce.py), so none are due there. The kernel needs no rule about which times
to look at, because a time at which nothing changes cancels out.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import KIND, LIMIT, MAX, PRESENT
from vernier.operators.kernels.corrections import same_val, write_correction
from vernier.operators.kernels.covers import cover_round
from vernier.operators.kernels.presence import NEVER, claim_all, work_space
from vernier.operators.kernels.rounds import below, finish_visits, schedule
from vernier.operators.kernels.time_order import sort_changes
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW

_ROOM = 64


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
        if half == 0 and cell(taken, 1, piece) != NEVER:
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
                if cell(taken, 1, place) != NEVER:
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


@njit(cache=True)
def _cover(  # type: ignore[no-untyped-def]
    keyed, k, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation, leading
):
    """What `cover_keys` does in nested loops: (corrections, visits, status, key at fault)."""
    d = now.shape[0]
    q = keyed.shape[0]
    limit = aggregation[LIMIT] if aggregation[KIND] == PRESENT else 1
    greatest = aggregation[KIND] == MAX
    out = np.empty((4 * q + 16, 3 + k + w + d), np.int64)
    visits = np.empty((q + 16, d + 1 + k), np.int64)
    count, scheduled = 0, 0
    # Work space, grown when needed: assigning arrays inside the loop would count references for every val.
    times, diffs = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
    stretch, free, taken = work_space(_ROOM)
    for key in range(q):
        base, stop = cell(in_spans, key, 0), cell(in_spans, key, 1)
        two, last = cell(out_spans, key, 0), cell(out_spans, key, 1)
        size = stop - base
        if 4 * size + 2 + last - two > times.shape[0]:
            times = np.empty(2 * (4 * size + 2 + last - two), np.int64)
            diffs = np.empty(times.shape[0], np.int64)
        if size >= stretch.shape[1]:
            stretch, free, taken = work_space(2 * size)
        if scheduled + size + last - two > visits.shape[0]:
            visits = more_rows(visits, scheduled + size + last - two)
        visited = scheduled
        for e in range(base, stop):
            if not below(inputs, e, v + 1, now):
                scheduled = schedule(visits, visited, scheduled, inputs, e, v + 1, now)
        if leading != 0:
            # What was not read has changed the output at these rounds.
            for e in range(two, last):
                if not below(outputs, e, w + 1, now):
                    scheduled = schedule(visits, visited, scheduled, outputs, e, w + 1, now)
        finish_visits(visits, visited, scheduled, keyed, key, k, d)
        put(free, 0, 0, fold)
        put(free, 1, 0, NEVER)
        takes, wrapped = claim_all(
            inputs, base, stop, stop - 1 if greatest else base, v, now, limit, greatest, stretch, times, diffs, free, 1,
            taken,
        )  # fmt: skip
        if wrapped:
            return out[:0], visits[:0], OVERFLOW, key
        if count + 2 * takes + last - two > out.shape[0]:
            out = more_rows(out, count + 2 * takes + last - two)
        count, wrapped = _correct(
            inputs, taken, takes, greatest, outputs, two, last, w, now, fold, times, diffs, out, count, keyed, key, k
        )
        if wrapped:
            return out[:0], visits[:0], OVERFLOW, key
    return out[:count], visits[:scheduled], 0, -1


@njit(cache=True)
def cover_keys(  # type: ignore[no-untyped-def]
    keyed, k, fresh, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation, heads, slots, index, leading
):
    """Corrections and further visits of q keys at round `now`.

    Like kernels.reducing.reduce_keys, for one aggregation: PRESENT, or MIN or MAX of the first words of a val; the w
    words of the output are the first words of the val. In nested loops, `outputs` is the selection of the earlier
    output. Otherwise no earlier output is read: covers of keys are kept from round to round (kernels/covers.py) in
    `outputs`, a matrix of the same width, which the call may replace by a larger one. heads, slots and index, which
    have space for all keys, say where they are; if heads is empty, no covers are kept. fresh: the keyed rows that the
    input has got in this step, if they are known, sorted by key and val. leading: 1 if the inputs are what
    storage/kernels/leading.py reads; in nested loops, visits are then scheduled for the rounds of the output, too.

    Returns (corrections `[hash | key | out val | time | now | diff]` in order, each once; visits `[rounds | hash |
    key]`; outputs; status; key at fault). O(entries of the vals up to the first val that is always present), plus
    sorting if their times are out of order; a key's first visit in a slice reads the rounds of all entries. Where
    covers are kept, the vals before the first one that has changed in this round are not read.
    """
    if now.shape[0] > 1:
        rows, visits, status, key = _cover(
            keyed, k, in_spans, inputs, v, out_spans, outputs, w, now, fold, aggregation, leading
        )
        return rows, visits, outputs, status, key
    if k == 1 and v == 1 and w == 1 and now.shape[0] == 1:
        # Single words in a loop that is not nested: constant widths let the compiler unroll the inner loops.
        return cover_round(
            keyed, 1, fresh, in_spans, inputs, 1, 1, outputs, now, fold, aggregation, heads, slots, index, leading
        )
    return cover_round(
        keyed, k, fresh, in_spans, inputs, v, w, outputs, now, fold, aggregation, heads, slots, index, leading
    )
