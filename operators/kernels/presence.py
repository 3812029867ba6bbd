"""Presence: during which stretches of time a val is present, and which part of free time it takes.

Vals take time in order of preference, each the part that no earlier one has taken. Once none is left, the remaining
vals need not be read.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.corrections import same_val
from vernier.operators.kernels.rounds import below
from vernier.operators.kernels.time_order import sort_changes
from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.sorting import add_checked

NEVER = np.iinfo(np.int64).max
"""The end of a stretch that has none."""
_LEAST = np.iinfo(np.int64).min


@njit(cache=True)
def work_space(size):  # type: ignore[no-untyped-def]
    """(stretch, free, taken) for `claim_time`, for keys of up to `size` entries and as many free intervals."""
    return np.empty((2, size + 1), np.int64), np.empty((4, 2 * size), np.int64), np.empty((3, 3 * size), np.int64)


@inlined
def _stretches(inputs, first, stop, v, now, limit, stretch):  # type: ignore[no-untyped-def]
    """When the val of entry `first` is present, if its changes up to `now` are in time order, which they usually are.

    Returns (finished stretches, whether the last one has no end, the entry after the val, in order).
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
                    return 0, False, e, False
                previous = time
            here, wrapped = add_checked(here, cell(inputs, e, v + 1 + now.shape[0]))
            if wrapped:
                # Possibly only because the changes are not in time order.
                return 0, False, e, False
        e += 1
    if inside != (here >= limit):
        put(stretch, 1 if inside else 0, stretches, previous)
        stretches += 1 if inside else 0
        inside = not inside
    return stretches, inside, e, True


@inlined
def _sorted_stretches(inputs, first, stop, v, now, limit, stretch, times, diffs):  # type: ignore[no-untyped-def]
    """The same for a val whose changes, of several rounds, have to be sorted first. Returns `wrapped` last."""
    n, e = 0, first
    while e < stop and same_val(inputs, e, inputs, first, v):
        if below(inputs, e, v + 1, now):
            put_word(times, n, cell(inputs, e, v))
            put_word(diffs, n, cell(inputs, e, v + 1 + now.shape[0]))
            n += 1
        e += 1
    sort_changes(times, diffs, 1, 0, n)
    stretches, here, inside, i = 0, np.int64(0), False, 0
    while i < n:
        previous = word(times, i)
        while i < n and word(times, i) == previous:
            here, wrapped = add_checked(here, word(diffs, i))
            if wrapped:
                return 0, False, e, True
            i += 1
        if inside != (here >= limit):
            put(stretch, 1 if inside else 0, stretches, previous)
            stretches += 1 if inside else 0
            inside = not inside
    return stretches, inside, e, False


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
def claim_time(  # type: ignore[no-untyped-def]
    inputs, base, stop, at, v, now, limit, greatest, stretch, times, diffs, free, frees, taken
):
    """Let vals take free time, from the one that entry `at` belongs to on: upwards from its first entry or, if the
    greatest are preferred, downwards from its last one. [base, stop) are the key's entries, of which those at rounds up
    to `now` count; a val is present while it has `limit` copies.

    free[:2, :frees]: begins and ends of free intervals, in time order; free[2:] is work space, as are times, diffs and
    stretch[2]. Writes taken[3]: begins, ends, and an entry of the val, val after val. With n entries, there must be
    space for n stretches, n + frees free intervals and 2n + frees taken ones. Returns (intervals taken, wrapped).
    """
    old, takes = 0, 0
    while frees > 0 and base <= at < stop:
        first = at
        if greatest:
            while first > base and same_val(inputs, first - 1, inputs, at, v):
                first -= 1
        stretches, inside, after, ordered = _stretches(inputs, first, stop, v, now, limit, stretch)
        if not ordered:
            stretches, inside, after, wrapped = _sorted_stretches(
                inputs, first, stop, v, now, limit, stretch, times, diffs
            )
            if wrapped:
                return takes, True
        if inside:
            put(stretch, 1, stretches, NEVER)
            stretches += 1
        at = first - 1 if greatest else after
        if stretches == 0:
            continue
        frees, takes = _take(free, old, frees, stretch, stretches, taken, takes, first)
        old = 2 - old
    return takes, False


claim_all = borrowing(getattr(claim_time, "py_func", claim_time))
"""The same as a function of its own, for callers that are not in a hurry: inlining takes the compiler seconds. Where
kernels are interpreted, `claim_time` is the plain function."""
