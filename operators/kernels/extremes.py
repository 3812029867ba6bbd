"""Follows the least or greatest value so far along the ordered rows of groups, change by change.

This running extreme is constant between its records: the rows whose value is better than all before them. A trace of
all records tells the extreme at any row before the slice. The rows that a slice changes cut the others, which are
constant meanwhile, into stretches. So a group is a chain: a changed row, the stretch behind it, the next changed row, …
A change at a data time goes along the chain until the extreme is as before. In a stretch it reads rows until one of
their values is at least as good as the extreme before and after the change: all rows up to there get another extreme.
So a change costs the rows whose extreme it changes, however long the group is. Outside loops only.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.ends import locate_runs, open_group, order_of_row, take_least
from vernier.operators.kernels.partial_sums import add_at, place_of, sum_before
from vernier.operators.kernels.stretches import seek_run
from vernier.operators.kernels.surroundings import append_val, reverse_rows, take_greatest
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import val_word

VALUE, AHEAD, THROUGH, OUT, INTO, BEYOND = range(6)
"""What is known of changed row i and of the stretch behind it: its value; the extreme before the row and behind it,
both before the slice; the extreme behind the row now, if it is present; the extremes before and behind the stretch now,
if the stretch has rows. Each is `[1, or 0 for none | words of the value]` at row 6i + number of `extremes`."""
_FIELDS = 6
FIRST, LAST, DONE = range(3)
"""Of each stretch: the first and the last row that were read, -1 if none, and whether these are all."""


@inlined
def _better(one, i, two, j, greatest):  # type: ignore[no-untyped-def]
    """Whether extreme one[i] is better than two[j]; none is worse than any."""
    if cell(one, i, 0) == 0 or cell(two, j, 0) == 0:
        return cell(one, i, 0) > cell(two, j, 0)
    for c in range(1, one.shape[1]):
        if cell(one, i, c) != cell(two, j, c):
            return (cell(one, i, c) > cell(two, j, c)) == (greatest == 1)
    return False


@inlined
def _same(extremes, i, j):  # type: ignore[no-untyped-def]
    for c in range(extremes.shape[1]):
        if cell(extremes, i, c) != cell(extremes, j, c):
            return False
    return True


@inlined
def _copy(source, i, to, j):  # type: ignore[no-untyped-def]
    for c in range(to.shape[1]):
        put(to, j, c, cell(source, i, c))


@inlined
def _put_value(source, i, first, column, flag, to, j):  # type: ignore[no-untyped-def]
    """Write the value of the val source[i, first:] to to[j], zeros if it is null."""
    there = flag < 0 or cell(source, i, first + max(flag, 0)) != 0
    put(to, j, 0, 1 if there else 0)
    for c in range(1, to.shape[1]):
        put(to, j, c, cell(source, i, first + column + c - 1) if there else 0)


@borrowing
def _extreme_before(records, low, high, here, rows, row, k, v, down, column, extremes, to):  # type: ignore[no-untyped-def]
    """Write the extreme before a row, as it is before the slice, to extremes[to]. Returns whether a sum wrapped."""
    seek_run(records, low, high, here, rows, row, 1 + k, v, down == 1)
    while True:
        if down == 1:
            batch, val, copies, wrapped = take_least(records, here, high, v)
        else:
            batch, val, copies, wrapped = take_greatest(records, low, here, v)
        if wrapped or batch < 0:
            for c in range(extremes.shape[1]):
                put(extremes, to, c, 0)
            return wrapped
        if copies > 0:
            put(extremes, to, 0, 1)
            for c in range(1, extremes.shape[1]):
                put(extremes, to, c, val_word(records, batch, val, column + c - 1))
            return False


@njit(cache=True)
def _read_on(  # type: ignore[no-untyped-def]
    table, low, high, here, rows, top, k, v, down, column, flag, greatest, stretch, spots, bounds, found, upto, size
):
    """Append the next present row of a stretch, which ends before row `top` (-1: with the group), to found[size], as
    `[val | copies | the next one of the stretch, or -1]`, and the extreme of the stretch's rows up to there to
    upto[size]. Returns (found, upto, size, wrapped)."""
    batches = table.shape[0]
    for batch in range(batches):
        put_word(here, batch, word(spots, stretch * batches + batch))
    while True:
        if down == 1:
            batch, val, copies, wrapped = take_greatest(table, low, here, v)
        else:
            batch, val, copies, wrapped = take_least(table, here, high, v)
        if wrapped:
            return found, upto, size, True
        order = 0 if batch < 0 else -1 if top < 0 else order_of_row(table, batch, val, rows, top, 1 + k, v)
        if batch < 0 or order == 0 or (top >= 0 and (order < 0) == (down == 1)):
            put(bounds, stretch, DONE, 1)
            return found, upto, size, False
        if copies > 0:
            break
    for other in range(batches):
        put_word(spots, stretch * batches + other, word(here, other))
    if size == found.shape[0]:
        found, upto = more_rows(found, size), more_rows(upto, size)
    append_val(table, batch, val, v, copies, found, size)
    put(found, size, v + 1, -1)
    _put_value(found, size, 0, column, flag, upto, size)
    last = cell(bounds, stretch, LAST)
    if last < 0:
        put(bounds, stretch, FIRST, size)
    else:
        put(found, last, v + 1, size)
        if not _better(upto, size, upto, last, greatest):
            _copy(upto, last, upto, size)
    put(bounds, stretch, LAST, size)
    return found, upto, size + 1, False


@inlined
def _number_rows(rows, base, stop, k, v, down, before, heads, copies, val_of):  # type: ignore[no-untyped-def]
    """Number a key's distinct changed rows in their order: the first update of each, its copies, and the number of each
    update's row. Returns how many there are."""
    vals = 0
    for i in range(base, stop):
        fresh = i == base
        for c in range(1 + k, 1 + k + v):
            fresh = fresh or cell(rows, i, c) != cell(rows, i - 1, c)
        vals += 1 if fresh else 0
        put_word(val_of, i - base, vals - 1)
    for i in range(base, stop):
        one = word(val_of, i - base)
        at = vals - 1 - one if down == 1 else one
        if i == base or one != word(val_of, i - base - 1):
            put_word(heads, at, i)
            put_word(copies, at, word(before, i))
    for i in range(stop - base if down == 1 else 0):
        put_word(val_of, i, vals - 1 - word(val_of, i))
    return vals


@inlined
def _put_row(out, count, rows, base, k, source, at, first, v, order, new, i, skip, time, diff):  # type: ignore[no-untyped-def]
    """Write a correction of the val source[at, first:] with the extreme new[i], without its first `skip` words."""
    for c in range(1 + k):
        put(out, count, c, cell(rows, base, c))
    w = order.shape[0]
    for c in range(w):
        one = word(order, c)
        value = cell(source, at, first + min(one, v - 1)) if one < v else cell(new, i, max(one - v, 0) + skip)
        put(out, count, 1 + k + c, value)
    put(out, count, 1 + k + w, time)
    put(out, count, 2 + k + w, diff)


@inlined
def _put_record(changes, count, rows, base, k, source, at, first, v, time, diff):  # type: ignore[no-untyped-def]
    for c in range(1 + k):
        put(changes, count, c, cell(rows, base, c))
    for c in range(v):
        put(changes, count, 1 + k + c, cell(source, at, first + c))
    put(changes, count, 1 + k + v, time)
    put(changes, count, 2 + k + v, diff)


@njit(cache=True)
def _begin(  # type: ignore[no-untyped-def]
    records, r_low, r_high, r_here, table, low, high, here, rows, k, v, down, column, flag, greatest, heads, copies,
    vals, extremes, spots, bounds, tree, found, upto,
):  # fmt: skip
    """Find out what is known of the chain before the slice, with the first row of each stretch, and which parts have
    rows: changed row i is part 2i of the tree, the stretch behind it part 2i + 1. Returns (found, upto, size,
    wrapped)."""
    size, count = 0, 2 * vals
    for part in range(count):
        put_word(tree, part + 1, 0)
    for i in range(vals):
        at, row = _FIELDS * i, word(heads, i)
        _put_value(rows, row, 1 + k, column, flag, extremes, at + VALUE)
        if _extreme_before(records, r_low, r_high, r_here, rows, row, k, v, down, column, extremes, at + AHEAD):
            return found, upto, size, True
        better = word(copies, i) > 0 and _better(extremes, at + VALUE, extremes, at + AHEAD, greatest)
        for field in range(THROUGH, BEYOND):
            _copy(extremes, at + (VALUE if better else AHEAD), extremes, at + field)
        if i > 0:
            _copy(extremes, at + AHEAD, extremes, at - _FIELDS + BEYOND)
        if word(copies, i) > 0:
            add_at(tree, 0, count, 2 * i, 1)
        seek_run(table, low, high, here, rows, row, 1 + k, v, down == 0)
        for batch in range(table.shape[0]):
            put_word(spots, i * table.shape[0] + batch, word(here, batch))
        put(bounds, i, FIRST, -1)
        put(bounds, i, LAST, -1)
        put(bounds, i, DONE, 0)
        top = word(heads, i + 1) if i + 1 < vals else -1
        found, upto, size, wrapped = _read_on(
            table, low, high, here, rows, top, k, v, down, column, flag, greatest, i, spots, bounds, found, upto, size
        )
        if wrapped:
            return found, upto, size, True
        if cell(bounds, i, FIRST) >= 0:
            add_at(tree, 0, count, 2 * i + 1, 1)
    return found, upto, size, False


@njit(cache=True)
def _note_records(  # type: ignore[no-untyped-def]
    rows, base, k, v, down, greatest, heads, had, copies, vals, extremes, bounds, found, upto, time, changes, count
):
    """Append which records of a key the slice has made and unmade, in the order of vals. Returns (changes, count)."""
    begin, now = count, AHEAD
    for i in range(vals):
        at = _FIELDS * i
        was_one = word(had, i) > 0 and _better(extremes, at + VALUE, extremes, at + AHEAD, greatest)
        is_one = word(copies, i) > 0 and _better(extremes, at + VALUE, extremes, now, greatest)
        if count == changes.shape[0]:
            changes = more_rows(changes, count)
        if was_one != is_one:
            _put_record(changes, count, rows, base, k, rows, word(heads, i), 1 + k, v, time, 1 if is_one else -1)
            count += 1
        if word(copies, i) > 0:
            now = at + OUT
        one, last = cell(bounds, i, FIRST), -1
        while one >= 0:
            fresh = cell(upto, one, 0) == 1 if last < 0 else _better(upto, one, upto, last, greatest)
            was_one = fresh and _better(upto, one, extremes, at + THROUGH, greatest)
            is_one = fresh and _better(upto, one, extremes, at + INTO, greatest)
            if count == changes.shape[0]:
                changes = more_rows(changes, count)
            if was_one != is_one:
                _put_record(changes, count, rows, base, k, found, one, 0, v, time, 1 if is_one else -1)
                count += 1
            one, last = cell(found, one, v + 1), one
            now = at + BEYOND
    if down == 1:
        reverse_rows(changes, begin, count, changes.shape[1])
    return changes, count


@njit(cache=True)
def follow_extremes(records, table, rows, k, v, down, column, words, flag, greatest, order):  # type: ignore[no-untyped-def]
    """Corrections of rows with the extreme up to and including each, outside loops, and the changes of the records.

    records, table: addresses of the settled batches of the records and of the arrangement, both `[key | val]`
    (kernels/tries.py); rows[n]: this slice's updates of the arrangement, `[hash | key | val | time | diff]`, sorted and
    consolidated; down: 1 if the order of the rows is that of descending vals; column, words, flag: the first word of
    the value in a val, how many it has, and its null flag or -1; greatest: 1 for the greatest value, 0 for the least;
    order: the words of the output, the extreme being v, v + 1, … Returns (corrections `[hash | key | out val | time |
    diff]`, each once; changes of records `[hash | key | val | time | diff]`, sorted; status). O((changes + rows that
    change) x (batches x log rows of the key)).
    """
    runs, skip = key_runs(rows, k), 0 if flag >= 0 else 1
    n, q, batches = rows.shape[0], runs.shape[0] - 1, table.shape[0]
    out, made = np.empty((2 * n + 16, 3 + k + order.shape[0]), np.int64), 0
    changes, changed = np.empty((n + 16, 3 + k + v), np.int64), 0
    before, status = count_rows(table, rows, runs, k, v)
    if status != 0:
        return out[:0], changes[:0], status
    places, r_places = locate_runs(table, rows, runs, k), locate_runs(records, rows, runs, k)
    low, high, here = np.empty(batches, np.int64), np.empty(batches, np.int64), np.empty(batches, np.int64)
    r_low, r_high = np.empty(records.shape[0], np.int64), np.empty(records.shape[0], np.int64)
    r_here, group_keys = np.empty(records.shape[0], np.int64), np.empty((q, 1 + k), np.int64)
    longest = 0
    for key in range(q):
        longest = max(longest, word(runs, key + 1) - word(runs, key))
    times, in_time, val_of = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    heads, copies = np.empty(longest, np.int64), np.empty(longest, np.int64)
    had, first_had = np.empty(longest, np.int64), np.empty(longest, np.int64)
    extremes, tree = np.zeros((_FIELDS * longest + 2, 1 + words), np.int64), np.empty(2 * longest + 2, np.int64)
    old, new = _FIELDS * longest, _FIELDS * longest + 1
    spots, bounds = np.empty(longest * batches, np.int64), np.empty((longest, 3), np.int64)
    found, upto = np.empty((longest + 16, v + 2), np.int64), np.empty((longest + 16, 1 + words), np.int64)
    for key in range(q):
        open_group(records, rows, runs, r_places, key, k, group_keys, r_low, r_high)
        base, stop = open_group(table, rows, runs, places, key, k, group_keys, low, high)
        vals = _number_rows(rows, base, stop, k, v, down, before, heads, copies, val_of)
        count = 2 * vals
        found, upto, size, wrapped = _begin(
            records, r_low, r_high, r_here, table, low, high, here, rows, k, v, down, column, flag, greatest, heads,
            copies, vals, extremes, spots, bounds, tree, found, upto,
        )  # fmt: skip
        if wrapped:
            return out[:0], changes[:0], OVERFLOW
        for i in range(stop - base):
            put_word(times, i, cell(rows, base + i, 1 + k + v))
            put_word(in_time, i, i)
        for i in range(vals):
            put_word(had, i, word(copies, i))
            put_word(first_had, i, word(copies, i))
        sorted_by_time(times, in_time, stop - base)
        first, time = 0, np.int64(0)
        while first < stop - base:
            time, last = word(times, word(in_time, first)), first
            while last < stop - base and word(times, word(in_time, last)) == time:
                i = word(val_of, word(in_time, last))
                now, wrapped = add_checked(word(copies, i), cell(rows, base + word(in_time, last), 2 + k + v))
                if wrapped:
                    return out[:0], changes[:0], OVERFLOW
                more = (1 if now > 0 else 0) - (1 if word(copies, i) > 0 else 0)
                add_at(tree, 0, count, 2 * i, more)
                put_word(copies, i, now)
                last += 1
            # Along the parts, from each changed row on until the extreme is as before.
            at, end, step = (last - 1, first - 1, -1) if down == 1 else (first, last, 1)
            part = -1
            while True:
                touched = 2 * word(val_of, word(in_time, at)) if at != end else count
                if part < 0:
                    if touched == count:
                        break
                    part, lower, source = touched, sum_before(tree, 0, touched), AHEAD
                    if lower > 0:
                        ahead = place_of(tree, 0, count, lower)
                        source = _FIELDS * (ahead >> 1) + (BEYOND if ahead & 1 == 1 else OUT)
                    _copy(extremes, source, extremes, old)
                    _copy(extremes, source, extremes, new)
                if made + 2 > out.shape[0]:
                    out = more_rows(out, made)
                i, mine = part >> 1, _FIELDS * (part >> 1)
                if part & 1 == 0:
                    at += step if part == touched else 0
                    was, now = max(word(had, i), 0), max(word(copies, i), 0)
                    put_word(had, i, word(copies, i))
                    one = mine + VALUE if was > 0 and _better(extremes, mine, extremes, old, greatest) else old
                    two = mine + VALUE if now > 0 and _better(extremes, mine, extremes, new, greatest) else new
                    same = was > 0 and now > 0 and _same(extremes, one, two)
                    if was > 0 and not same:
                        _put_row(
                            out, made, rows, base, k, rows, word(heads, i), 1 + k, v, order, extremes, one, skip, time,
                            -was,
                        )  # fmt: skip
                        made += 1
                    more = now - was if same else now
                    if more != 0:
                        _put_row(
                            out, made, rows, base, k, rows, word(heads, i), 1 + k, v, order, extremes, two, skip, time,
                            more,
                        )  # fmt: skip
                        made += 1
                    if now > 0:
                        _copy(extremes, two, extremes, mine + OUT)
                    _copy(extremes, one, extremes, old)
                    _copy(extremes, two, extremes, new)
                else:
                    _copy(extremes, new, extremes, mine + INTO)
                    best = new if _better(extremes, new, extremes, old, greatest) else old
                    row = cell(bounds, i, FIRST)
                    while row >= 0 and _better(extremes, best, upto, row, greatest):
                        if made + 2 > out.shape[0]:
                            out = more_rows(out, made)
                        many = cell(found, row, v)
                        for diff in (-many, many):
                            one = old if diff < 0 else new
                            if _better(upto, row, extremes, one, greatest):
                                _put_row(out, made, rows, base, k, found, row, 0, v, order, upto, row, skip, time, diff)
                            else:
                                _put_row(
                                    out, made, rows, base, k, found, row, 0, v, order, extremes, one, skip, time, diff
                                )
                            made += 1
                        if cell(found, row, v + 1) < 0 and cell(bounds, i, DONE) == 0:
                            top = word(heads, i + 1) if i + 1 < vals else -1
                            found, upto, size, wrapped = _read_on(
                                table, low, high, here, rows, top, k, v, down, column, flag, greatest, i, spots, bounds,
                                found, upto, size,
                            )  # fmt: skip
                            if wrapped:
                                return out[:0], changes[:0], OVERFLOW
                        row = cell(found, row, v + 1)
                    if row >= 0:  # from this row on the extreme is as before
                        part = -1
                        continue
                    row = cell(bounds, i, LAST)
                    for one in (old, new):
                        if _better(upto, row, extremes, one, greatest):
                            _copy(upto, row, extremes, one)
                    _copy(extremes, new, extremes, mine + BEYOND)
                if _same(extremes, old, new):
                    part = -1
                    continue
                part = place_of(tree, 0, count, sum_before(tree, 0, part + 1) + 1)
                if at != end:
                    part = min(part, 2 * word(val_of, word(in_time, at)))
                if part == count:
                    part = -1
            first = last
        changes, changed = _note_records(
            rows, base, k, v, down, greatest, heads, first_had, copies, vals, extremes, bounds, found, upto, time,
            changes, changed,
        )  # fmt: skip
    return out[:made], changes[:changed], 0
