"""Follows the sessions of groups change by change: which session each row is in, by the session's start.

The values that a slice changes cut the other rows of a group, which are constant meanwhile, into stretches. Of a
stretch only the first rows, up to the first gap, can get another start; which start its last value has before the slice
is in a trace of all starts. So a group is a chain of values and stretches, each of which passes on its last value and
that value's start. A change at a data time goes along the chain until what is passed on is as before, and reads only
the rows whose start it changes. Outside loops only.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.ends import is_changed, locate_runs, open_group, order_of_row, take_least
from vernier.operators.kernels.partial_sums import add_at, place_of, sum_before
from vernier.operators.kernels.stretches import seek_run
from vernier.operators.kernels.surroundings import append_val, take_greatest
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import val_word

LATE = 121
"""The status if a value is so late that its session would end beyond the type."""
VALUE, LAST, START, THERE, HEAD, TAIL, TURNS, INNER, STEADY, MANY, FIRST, ROWS, WAS_THERE, WAS_START = range(14)
"""Columns of the parts of a group: part 2i + 1 is changed value i, part 2i the stretch before it. VALUE, LAST: the
first and the last value of the part; START: the start of its first; THERE: whether it has rows. HEAD, TAIL: whether the
first value of a stretch can follow, and its last can be followed, in one session; TURNS: whether a session ends inside
the stretch, INNER is then the start of its last value. STEADY: whether rows that do not change have a changed value;
MANY: how many of its changed rows are present. FIRST, ROWS: where those of its other rows are that can get another
start, -1 if they were not read. WAS_THERE, WAS_START: before the slice."""
_FIELDS = 14


@inlined
def _near(low, high, gap):  # type: ignore[no-untyped-def]
    # Differences of int64 always fit unsigned numbers.
    return np.uint64(high) - np.uint64(low) <= np.uint64(gap)


@inlined
def _value(table, batch, val, on):  # type: ignore[no-untyped-def]
    return val_word(table, batch, val, on)


@borrowing
def _value_before(table, low, high, here, rows, row, k, v, on, gap, floor):  # type: ignore[no-untyped-def]
    """The nearest present value below that of a row, at most `gap` away and above that of row `floor` (-1: any).
    Returns (whether there is one, the value, wrapped)."""
    seek_run(table, low, high, here, rows, row, 1 + k, on + 1, False)
    while True:
        batch, val, copies, wrapped = take_greatest(table, low, here, v)
        if wrapped:
            return False, np.int64(0), True
        if batch < 0 or (on > 0 and _value(table, batch, val, 0) == 0):
            return False, np.int64(0), False
        found = _value(table, batch, val, on)
        if not _near(found, cell(rows, row, 1 + k + on), gap):
            return False, np.int64(0), False
        if floor >= 0 and found <= cell(rows, floor, 1 + k + on):
            return False, np.int64(0), False
        if copies > 0:
            return True, found, False


@borrowing
def _value_behind(table, low, high, here, rows, row, k, v, on, gap, top):  # type: ignore[no-untyped-def]
    """The nearest present value above that of a row, at most `gap` away and below that of row `top` (-1: any). Returns
    (whether there is one, the value, wrapped)."""
    seek_run(table, low, high, here, rows, row, 1 + k, on + 1, True)
    while True:
        batch, val, copies, wrapped = take_least(table, here, high, v)
        if wrapped:
            return False, np.int64(0), True
        if batch < 0:
            return False, np.int64(0), False
        found = _value(table, batch, val, on)
        if not _near(cell(rows, row, 1 + k + on), found, gap):
            return False, np.int64(0), False
        if top >= 0 and found >= cell(rows, top, 1 + k + on):
            return False, np.int64(0), False
        if copies > 0:
            return True, found, False


@borrowing
def _has_steady(table, low, high, here, rows, base, stop, row, k, v, on):  # type: ignore[no-untyped-def]
    """Whether a present row that does not change has the value of a row. Returns (whether, wrapped)."""
    seek_run(table, low, high, here, rows, row, 1 + k, on + 1, False)
    while True:
        batch, val, copies, wrapped = take_least(table, here, high, v)
        if wrapped:
            return False, True
        if batch < 0 or order_of_row(table, batch, val, rows, row, 1 + k, on + 1) != 0:
            return False, False
        if copies > 0 and not is_changed(table, batch, val, rows, base, stop, 1 + k, v):
            return True, False


@borrowing
def _start_before(starts, low, high, here, value):  # type: ignore[no-untyped-def]
    """The start of the session in which a value is before the slice: the greatest one up to it. Returns (start,
    wrapped)."""
    for batch in range(starts.shape[0]):
        lo, hi = word(low, batch), word(high, batch)
        while lo < hi:
            middle = (lo + hi) >> 1
            if _value(starts, batch, middle, 0) <= value:
                lo = middle + 1
            else:
                hi = middle
        put_word(here, batch, lo)
    while True:
        batch, val, copies, wrapped = take_greatest(starts, low, here, 1)
        if wrapped or batch < 0:
            return value, wrapped
        if copies > 0:
            return _value(starts, batch, val, 0), False


@njit(cache=True)
def _read_rows(table, low, high, here, rows, base, stop, row, top, k, v, on, gap, found, size):  # type: ignore[no-untyped-def]
    """Append the present rows `[val | copies]` that do not change and have the value of a row (gap < 0), or that
    follow it at most `gap` apart, up to row `top` (-1: the end). Returns (found, size, wrapped)."""
    seek_run(table, low, high, here, rows, row, 1 + k, on + 1, gap >= 0)
    last, some = cell(rows, row, 1 + k + on), False
    while True:
        batch, val, copies, wrapped = take_least(table, here, high, v)
        if wrapped or batch < 0:
            return found, size, wrapped
        value = _value(table, batch, val, on)
        if gap < 0:
            if value != last:
                return found, size, False
            if is_changed(table, batch, val, rows, base, stop, 1 + k, v):
                continue
        elif top >= 0 and value >= cell(rows, top, 1 + k + on):
            return found, size, False
        if copies <= 0:
            continue
        if gap >= 0 and some and not _near(last, value, gap):
            return found, size, False
        last, some = value, True
        if size == found.shape[0]:
            found = more_rows(found, size)
        append_val(table, batch, val, v, copies, found, size)
        size += 1


@inlined
def _number_rows(rows, base, stop, k, v, on, before, heads, copies, val_of, points, firsts):  # type: ignore[no-untyped-def]
    """Number a key's distinct changed rows, whose first updates are `heads`, and their distinct values: value i begins
    at update points[i], and its rows at number firsts[i]. val_of: the number of each update's row. Returns (rows,
    values)."""
    vals, values = 0, 0
    for i in range(base, stop):
        if i == base or cell(rows, i, 1 + k + on) != cell(rows, i - 1, 1 + k + on):
            put_word(points, values, i)
            put_word(firsts, values, vals)
            values += 1
        fresh = i == base
        for c in range(1 + k, 1 + k + v):
            fresh = fresh or cell(rows, i, c) != cell(rows, i - 1, c)
        if fresh:
            put_word(heads, vals, i)
            put_word(copies, vals, word(before, i))
            vals += 1
        put_word(val_of, i - base, vals - 1)
    put_word(points, values, stop)
    put_word(firsts, values, vals)
    return vals, values


@inlined
def _survey(  # type: ignore[no-untyped-def]
    table, low, high, here, starts, s_low, s_high, s_here, rows, base, stop, k, v, on, gap, points, firsts, copies,
    values, parts
):  # fmt: skip
    """Fill in what the parts of a group are besides their starts. Returns whether a sum left int64."""
    for part in range(2 * values + 1):
        for c in range(_FIELDS):
            put(parts, part, c, 0)
        put(parts, part, FIRST, -1)
        at = part >> 1
        if part & 1 == 1:
            row = word(points, at)
            put(parts, part, VALUE, cell(rows, row, 1 + k + on))
            steady, wrapped = _has_steady(table, low, high, here, rows, base, stop, row, k, v, on)
            if wrapped:
                return True
            many = 0
            for one in range(word(firsts, at), word(firsts, at + 1)):
                many += 1 if word(copies, one) > 0 else 0
            put(parts, part, STEADY, 1 if steady else 0)
            put(parts, part, MANY, many)
            put(parts, part, THERE, 1 if steady or many > 0 else 0)
            continue
        left, right = word(points, at - 1) if at > 0 else -1, word(points, at) if at < values else -1
        if left >= 0:
            some, value, wrapped = _value_behind(table, low, high, here, rows, left, k, v, on, gap, right)
            if wrapped:
                return True
            put(parts, part, HEAD, 1 if some else 0)
            put(parts, part, VALUE, value)
        if right >= 0:
            some, value, wrapped = _value_before(table, low, high, here, rows, right, k, v, on, gap, left)
            if wrapped:
                return True
            if some:
                start, wrapped = _start_before(starts, s_low, s_high, s_here, value)
                if wrapped:
                    return True
                put(parts, part, TAIL, 1)
                put(parts, part, LAST, value)
                put(parts, part, INNER, start)
                put(parts, part, TURNS, 1 if cell(parts, part, HEAD) == 0 or start > cell(parts, part, VALUE) else 0)
        put(parts, part, THERE, 1 if cell(parts, part, HEAD) + cell(parts, part, TAIL) > 0 else 0)
    return False


@inlined
def _passed_on(parts, part):  # type: ignore[no-untyped-def]
    """What a part passes on: (whether anything, its last value, that value's start)."""
    if part < 0:
        return False, np.int64(0), np.int64(0)
    if part & 1 == 1:
        return True, cell(parts, part, VALUE), cell(parts, part, START)
    start = cell(parts, part, INNER) if cell(parts, part, TURNS) == 1 else cell(parts, part, START)
    return cell(parts, part, TAIL) == 1, cell(parts, part, LAST), start


@inlined
def _start_after(parts, part, some, last, start, gap):  # type: ignore[no-untyped-def]
    """The start of a part's first value behind what was passed on."""
    value = cell(parts, part, VALUE)
    return start if some and _near(last, value, gap) else value


@inlined
def _begin(parts, count, gap, tree):  # type: ignore[no-untyped-def]
    """Set the starts before the slice, and the tree of the parts that are there."""
    some, last, start = False, np.int64(0), np.int64(0)
    for part in range(count):
        put_word(tree, part + 1, 0)
    for part in range(count):
        there = cell(parts, part, THERE) == 1
        if there:
            put(parts, part, START, _start_after(parts, part, some, last, start, gap))
            some, last, start = _passed_on(parts, part)
            add_at(tree, 0, count, part, 1)
        put(parts, part, WAS_THERE, 1 if there else 0)
        put(parts, part, WAS_START, cell(parts, part, START))


@inlined
def _begins(parts, part, there, start):  # type: ignore[no-untyped-def]
    """Whether a part's first value is a start that the changes of the slice decide on."""
    decided = part & 1 == 1 or cell(parts, part, HEAD) == 1
    return decided and cell(parts, part, there) == 1 and cell(parts, part, start) == cell(parts, part, VALUE)


@inlined
def _write(out, count, rows, base, k, source, at, first, v, order, start, time, diff):  # type: ignore[no-untyped-def]
    """Write a correction of the row source[at, first:] with a start."""
    for c in range(1 + k):
        put(out, count, c, cell(rows, base, c))
    for c in range(v + 1):
        one = word(order, c)
        put(out, count, 1 + k + c, start if one == v else cell(source, at, first + min(one, v - 1)))
    put(out, count, 2 + k + v, time)
    put(out, count, 3 + k + v, diff)


@njit(cache=True)
def follow_sessions(starts, table, rows, k, v, flag, gap, most, order):  # type: ignore[no-untyped-def]
    """Corrections of rows with their sessions' starts, outside loops, and the changes of the starts.

    starts, table: addresses of the settled batches of the starts `[key | start]` and of the arrangement
    (kernels/tries.py), whose vals begin with the value; rows[n]: this slice's updates of the arrangement, `[hash | key
    | val | time | diff]`, sorted and consolidated; flag: 1 if a word before the value is 0 where it is null, else 0;
    gap: how far apart values of a session may be; most: the greatest value that a session may have; order: the words of
    the output, v being the start. Returns (corrections `[hash | key | out val | time | diff]`, each once; changes of
    starts `[hash | key | start | time | diff]`, sorted; status; row at fault). O((changes + rows that change) x
    (batches x log rows of the key)).
    """
    runs, on = key_runs(rows, k), flag
    n, q, batches = rows.shape[0], runs.shape[0] - 1, table.shape[0]
    out, made = np.empty((2 * n + 16, 4 + k + v), np.int64), 0
    changes, changed = np.empty((2 * n + q, 4 + k), np.int64), 0
    before, status = count_rows(table, rows, runs, k, v)
    if status != 0:
        return out[:0], changes[:0], status, 0
    places, s_places = locate_runs(table, rows, runs, k), locate_runs(starts, rows, runs, k)
    low, high, here = np.empty(batches, np.int64), np.empty(batches, np.int64), np.empty(batches, np.int64)
    s_low, s_high = np.empty(starts.shape[0], np.int64), np.empty(starts.shape[0], np.int64)
    s_here, group_keys = np.empty(starts.shape[0], np.int64), np.empty((q, 1 + k), np.int64)
    longest = 0
    for key in range(q):
        longest = max(longest, word(runs, key + 1) - word(runs, key))
    times, in_time, val_of = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    heads, copies, had = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    point_of = np.empty(longest, np.int64)
    points, firsts = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int64)
    parts, tree = np.empty((2 * longest + 1, _FIELDS), np.int64), np.empty(2 * longest + 2, np.int64)
    found, size = np.empty((16, v + 1), np.int64), 0
    for key in range(q):
        open_group(starts, rows, runs, s_places, key, k, group_keys, s_low, s_high)
        base, stop = open_group(table, rows, runs, places, key, k, group_keys, low, high)
        while flag == 1 and base < stop and cell(rows, base, 1 + k) == 0:
            base += 1
        if base == stop:
            continue
        vals, values = _number_rows(rows, base, stop, k, v, on, before, heads, copies, val_of, points, firsts)
        if _survey(
            table, low, high, here, starts, s_low, s_high, s_here, rows, base, stop, k, v, on, gap, points, firsts,
            copies, values, parts,
        ):  # fmt: skip
            return out[:0], changes[:0], OVERFLOW, base
        count, size = 2 * values + 1, 0
        _begin(parts, count, gap, tree)
        for at in range(values):
            for one in range(word(firsts, at), word(firsts, at + 1)):
                put_word(point_of, one, at)
        for i in range(stop - base):
            put_word(times, i, cell(rows, base + i, 1 + k + v))
            put_word(in_time, i, i)
        for i in range(vals):
            put_word(had, i, word(copies, i))
        sorted_by_time(times, in_time, stop - base)
        first, time = 0, np.int64(0)
        while first < stop - base:
            time, last = word(times, word(in_time, first)), first
            while last < stop - base and word(times, word(in_time, last)) == time:
                i = word(in_time, last)
                one = word(val_of, i)
                now, wrapped = add_checked(word(copies, one), cell(rows, base + i, 2 + k + v))
                if wrapped:
                    return out[:0], changes[:0], OVERFLOW, base
                part = 2 * word(point_of, one) + 1
                if now > 0 and cell(parts, part, VALUE) > most:
                    return out[:0], changes[:0], LATE, base + i
                more = (1 if now > 0 else 0) - (1 if word(copies, one) > 0 else 0)
                put(parts, part, MANY, cell(parts, part, MANY) + more)
                put_word(copies, one, now)
                last += 1
            # Along the parts, from each changed value on until what is passed on is as before.
            part, goes_on, some, value, start = -1, False, False, np.int64(0), np.int64(0)
            while True:
                touched = 2 * word(point_of, word(val_of, word(in_time, first))) + 1 if first < last else count
                if part < 0:
                    if touched == count:
                        break
                    part, goes_on = touched, False
                    lower = sum_before(tree, 0, part)
                    some, value, start = _passed_on(parts, place_of(tree, 0, count, lower) if lower > 0 else -1)
                was, old = cell(parts, part, THERE) == 1, cell(parts, part, START)
                there, new = True, _start_after(parts, part, some, value, start, gap)
                if part & 1 == 1:
                    there = cell(parts, part, STEADY) == 1 or cell(parts, part, MANY) > 0
                else:
                    new = new if cell(parts, part, HEAD) == 1 else old
                put(parts, part, START, new)
                moved = was and there and old != new
                if moved and cell(parts, part, FIRST) < 0:
                    put(parts, part, FIRST, size)
                    at, wrapped = part >> 1, False
                    if part & 1 == 0:
                        top = word(points, at) if at < values else -1
                        found, size, wrapped = _read_rows(
                            table, low, high, here, rows, base, stop, word(points, at - 1), top, k, v, on, gap, found,
                            size,
                        )  # fmt: skip
                    elif cell(parts, part, STEADY) == 1:
                        found, size, wrapped = _read_rows(
                            table, low, high, here, rows, base, stop, word(points, at), -1, k, v, on, -1, found, size
                        )
                    if wrapped:
                        return out[:0], changes[:0], OVERFLOW, base
                    put(parts, part, ROWS, size - cell(parts, part, FIRST))
                if moved:
                    for at in range(cell(parts, part, FIRST), cell(parts, part, FIRST) + cell(parts, part, ROWS)):
                        if made + 2 > out.shape[0]:
                            out = more_rows(out, made)
                        _write(out, made, rows, base, k, found, at, 0, v, order, old, time, -cell(found, at, v))
                        _write(out, made + 1, rows, base, k, found, at, 0, v, order, new, time, cell(found, at, v))
                        made += 2
                if part & 1 == 1:
                    # All rows of the value if their start has changed, else those that change now.
                    one, end = word(firsts, part >> 1), word(firsts, (part >> 1) + 1)
                    while one < end if moved else touched == part:
                        number = one
                        if not moved:
                            number = word(val_of, word(in_time, first))
                            first += 1
                            more = first < last and word(point_of, word(val_of, word(in_time, first))) == part >> 1
                            touched = part if more else -1
                        one += 1
                        here_before, now = max(word(had, number), 0), max(word(copies, number), 0)
                        put_word(had, number, word(copies, number))
                        if made + 2 > out.shape[0]:
                            out = more_rows(out, made)
                        same = here_before > 0 and now > 0 and old == new
                        if here_before > 0 and not same:
                            _write(
                                out, made, rows, base, k, rows, word(heads, number), 1 + k, v, order, old, time,
                                -here_before,
                            )  # fmt: skip
                            made += 1
                        more = now - here_before if same else now
                        if more != 0:
                            _write(
                                out, made, rows, base, k, rows, word(heads, number), 1 + k, v, order, new, time, more
                            )
                            made += 1
                    while first < last and word(point_of, word(val_of, word(in_time, first))) == part >> 1:
                        first += 1
                    if was != there:
                        add_at(tree, 0, count, part, 1 if there else -1)
                        put(parts, part, THERE, 1 if there else 0)
                # A value that is not there passes on what was passed on to it.
                if not moved and was == there and (there or not goes_on):
                    part = -1
                    continue
                goes_on = True
                if there:
                    some, value, start = _passed_on(parts, part)
                lower = sum_before(tree, 0, part + 1) + 1
                part = place_of(tree, 0, count, lower)
                if first < last:
                    part = min(part, 2 * word(point_of, word(val_of, word(in_time, first))) + 1)
                if part == count:
                    part = -1
            first = last
        for part in range(count):
            was, now = _begins(parts, part, WAS_THERE, WAS_START), _begins(parts, part, THERE, START)
            if was != now:
                for c in range(1 + k):
                    put(changes, changed, c, cell(rows, base, c))
                put(changes, changed, 1 + k, cell(parts, part, VALUE))
                put(changes, changed, 2 + k, time)
                put(changes, changed, 3 + k, 1 if now else -1)
                changed += 1
    return out[:made], changes[:changed], 0, -1
