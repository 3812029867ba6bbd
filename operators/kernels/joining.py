"""Join kernel: pairs the new rows of one side of a join with the histories of the other side.

A fact is a row's val, on the other side together with its rounds; its history is its changes over time.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, fetch, more_rows, put, word
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked, stable_order
from vernier.storage.kernels.status import OVERFLOW

KEY, FRESH, OTHER = 0, 1, 2
"""The source of an output column: the key, the new side's val, or the other side's val."""

_REPLAY = 64
"""Above this many pairs per row, a key's two histories are replayed in time order instead of paired fact by fact."""

_AHEAD = 4
"""How many keys ahead histories are fetched."""
_FETCHED = 32
"""How many entries of a history are fetched, at most; the processor fetches those that follow by itself."""
_HALF = 1 << 31
_NEVER = np.iinfo(np.int64).max


@njit(cache=True, inline="always")
def multiply(a: int, b: int) -> tuple[int, bool]:
    """(a * b, whether the product exceeds int64). It never computes a product that could wrap: the compiler assumes
    that none does, and would remove a check after the multiplication."""
    if -_HALF <= a < _HALF and -_HALF <= b < _HALF:
        return a * b, False
    if a == 0 or b == 0:
        return 0, False
    most = np.uint64(2**63 - 1)
    if (a < 0) != (b < 0):
        most += np.uint64(1)
    left = np.uint64(a) if a > 0 else np.uint64(-(a + 1)) + np.uint64(1)
    right = np.uint64(b) if b > 0 else np.uint64(-(b + 1)) + np.uint64(1)
    if left > most // right:
        return 0, True
    return a * b, False


class _Layout(NamedTuple):
    """Where the columns of both sides are, and what the output rows consist of."""

    k: int
    time_f: int
    diff_f: int
    time_e: int
    diff_e: int
    origin: np.ndarray
    index: np.ndarray
    now: np.ndarray


@inlined
def _emit(out, count, fresh, f, entries, e, layout, time, diff):  # type: ignore[no-untyped-def]
    """Write output row number `count`; the caller has made sure that it fits."""
    width, k = layout.origin.shape[0], layout.k
    for c in range(width):
        source, at = word(layout.origin, c), word(layout.index, c)
        if source == OTHER:
            put(out, count, c, cell(entries, e, at))
        else:
            put(out, count, c, cell(fresh, f, 1 + at if source == KEY else 1 + k + at))
    put(out, count, width, time)
    rounds, depth = layout.time_e + 1, layout.diff_e - layout.time_e - 1
    for c in range(layout.now.shape[0]):
        coordinate = word(layout.now, c)
        if c < depth:
            coordinate = max(coordinate, cell(entries, e, rounds + c))
        put(out, count, width + 1 + c, coordinate)
    put(out, count, width + 1 + layout.now.shape[0], diff)


@inlined
def _same_fact(rows, i, start, stop, time):  # type: ignore[no-untyped-def]
    """Whether rows i and i - 1 agree in columns [start, stop), except `time`."""
    for c in range(start, stop):
        if c != time and cell(rows, i, c) != cell(rows, i - 1, c):
            return False
    return True


@inlined
def _gone(rows, first, stop, time, last):  # type: ignore[no-untyped-def]
    """When the fact of rows [first, stop) is gone; the greatest time if copies remain."""
    copies = np.int64(0)
    for i in range(first, stop):
        copies, wrapped = add_checked(copies, cell(rows, i, last))
        if wrapped:
            # An overflow, which `_pair_two` finds.
            return _NEVER
    return cell(rows, stop - 1, time) if copies == 0 else _NEVER


@inlined
def _find_facts(rows, first, stop, time, last, facts):  # type: ignore[no-untyped-def]
    """Find the facts in rows [first, stop): the runs of rows that agree in columns [0, last), except `time`. Writes
    where each ends and when it is gone, and returns their number."""
    count, begin = 0, first
    for end in range(first + 1, stop + 1):
        if end == stop or not _same_fact(rows, end, 0, last, time):
            put(facts, count, 0, end)
            put(facts, count, 1, _gone(rows, begin, end, time, last))
            count += 1
            begin = end
    return count


@inlined
def _pair_each(fresh, f0, f1, entries, e0, e1, layout, out, count):  # type: ignore[no-untyped-def]
    """Pair each of the rows [f0, f1) with each of the entries [e0, e1), of which one side is a single change. Returns
    (rows written, wrapped)."""
    for f in range(f0, f1):
        for e in range(e0, e1):
            diff, wrapped = multiply(cell(fresh, f, layout.diff_f), cell(entries, e, layout.diff_e))
            if wrapped:
                return count, True
            time = max(cell(fresh, f, layout.time_f), cell(entries, e, layout.time_e))
            _emit(out, count, fresh, f, entries, e, layout, time, diff)
            count += 1
    return count, False


@inlined
def _repeat(out, count, layout, time, diff):  # type: ignore[no-untyped-def]
    """Write output row number `count`, which differs from the one before in its time and its diff."""
    width = layout.origin.shape[0]
    for c in range(out.shape[1] - 1):
        put(out, count, c, cell(out, count - 1, c))
    put(out, count, width, time)
    put(out, count, out.shape[1] - 1, diff)


@inlined
def _skip(at, stop, row, diff, until):  # type: ignore[no-untyped-def]
    """Add up the changes of a fact that are before the time `until`. Times lie `row` bytes apart from address `at` on,
    and a diff is `diff` words behind its time. Returns (where the first other change is, copies by then, wrapped)."""
    copies, beyond = np.int64(0), False
    while at < stop and load(at, 0) < until:
        copies, wrapped = add_checked(copies, load(at, diff))
        beyond = beyond or wrapped
        at += row
    return at, copies, beyond


@inlined
def _pair_two(fresh, first, last, entries, start, stop, layout, out, count):  # type: ignore[no-untyped-def]
    """Walk two facts, which are step functions of time, and write the changes of their product. Returns (rows written,
    wrapped)."""
    # By the addresses of their times: this is the loop that most of a join's time goes into.
    row_f, row_e = 8 * fresh.shape[1], 8 * entries.shape[1]
    diff_f, diff_e = layout.diff_f - layout.time_f, layout.diff_e - layout.time_e
    f, e = fresh.ctypes.data + 8 * layout.time_f, entries.ctypes.data + 8 * layout.time_e
    f, end_f, e, end_e = f + row_f * first, f + row_f * last, e + row_e * start, e + row_e * stop
    # Before both are there, the product is 0: a change of one of them is not looked at beside those of the other.
    begin, written, product = max(load(f, 0), load(e, 0)), count, np.int64(0)
    f, have_f, wrapped = _skip(f, end_f, row_f, diff_f, begin)
    e, have_e, beyond = _skip(e, end_e, row_e, diff_e, begin)
    if wrapped or beyond:
        return count, True
    while f < end_f or e < end_e:
        time = load(f, 0) if e == end_e or (f < end_f and load(f, 0) <= load(e, 0)) else load(e, 0)
        while f < end_f and load(f, 0) == time:
            have_f, wrapped = add_checked(have_f, load(f, diff_f))
            if wrapped:
                return count, True
            f += row_f
        while e < end_e and load(e, 0) == time:
            have_e, wrapped = add_checked(have_e, load(e, diff_e))
            if wrapped:
                return count, True
            e += row_e
        after, wrapped = multiply(have_f, have_e)
        change, beyond = add_checked(after, -product)
        if wrapped or beyond:
            return count, True
        if change != 0:
            if count == written:
                _emit(out, count, fresh, first, entries, start, layout, time, change)
            else:
                _repeat(out, count, layout, time, change)
            count += 1
            product = after
        if (f == end_f and have_f == 0) or (e == end_e and have_e == 0):
            break
    return count, False


@inlined
def _pair_facts(fresh, f0, f1, entries, e0, e1, layout, facts, out, count):  # type: ignore[no-untyped-def]
    """Pair each fact of the rows [f0, f1) with each of the entries [e0, e1) that is there at the same time. Returns
    (rows written, wrapped)."""
    found = _find_facts(entries, e0, e1, layout.time_e, layout.diff_e, facts)
    first = f0
    while first < f1:
        last = first + 1
        while last < f1 and _same_fact(fresh, last, 1 + layout.k, layout.time_f, layout.time_f):
            last += 1
        begin, gone = cell(fresh, first, layout.time_f), _gone(fresh, first, last, layout.time_f, layout.diff_f)
        start = e0
        for fact in range(found):
            stop = cell(facts, fact, 0)
            if cell(entries, start, layout.time_e) < gone and begin < cell(facts, fact, 1):
                count, wrapped = _pair_two(fresh, first, last, entries, start, stop, layout, out, count)
                if wrapped:
                    return count, True
            start = stop
        first = last
    return count, False


@njit(cache=True)
def _side(rows, first, stop, start, last, time):  # type: ignore[no-untyped-def]
    """One side of a replay: rows [first, stop), whose facts agree in columns [start, last), except `time`.

    Returns (the rows in time order, the fact of each row; by fact: its first row, its copies, its place in the list of
    facts that have copies, or -1; space for that list).
    """
    n = stop - first
    fact, head = np.empty(n, np.int64), np.empty(n, np.int64)
    facts = 0
    for i in range(n):
        if i == 0 or not _same_fact(rows, first + i, start, last, time):
            head[facts] = first + i
            facts += 1
        fact[i] = facts - 1
    order = stable_order(rows[first:stop, time].copy())
    place = np.full(facts, -1, np.int64)
    return order, fact, head, np.zeros(facts, np.int64), place, np.empty(facts, np.int64)


@inlined
def _accumulate(copies, place, listed, live, fact, change):  # type: ignore[no-untyped-def]
    """Add `change` to a fact and update the list of facts that have copies. Returns (length of the list, wrapped)."""
    copies[fact], wrapped = add_checked(copies[fact], change)
    if copies[fact] != 0 and place[fact] < 0:
        listed[live] = fact
        place[fact] = live
        live += 1
    elif copies[fact] == 0 and place[fact] >= 0:
        live -= 1
        moved = listed[live]
        listed[place[fact]] = moved
        place[moved] = place[fact]
        place[fact] = -1
    return live, wrapped


@njit(cache=True)
def _replay(fresh, f0, f1, entries, e0, e1, layout, done, most, out, count):  # type: ignore[no-untyped-def]
    """Replay the rows [f0, f1) and the entries [e0, e1) in time order: each change meets the facts of the other side
    that have copies by then. Pairs of the first `done` changes are not written. It stops at `most` rows. Returns (out,
    rows written, changes replayed, wrapped)."""
    n, m = f1 - f0, e1 - e0
    order_f, fact_f, head_f, copies_f, place_f, listed_f = _side(
        fresh, f0, f1, 1 + layout.k, layout.time_f, layout.time_f
    )
    order_e, fact_e, head_e, copies_e, place_e, listed_e = _side(entries, e0, e1, 0, layout.diff_e, layout.time_e)
    live_f, live_e, i, j = 0, 0, 0, 0
    while i < n or j < m:
        if count >= most:
            return out, count, i + j, False
        due = i + j >= done
        f = f0 + order_f[i] if i < n else -1
        e = e0 + order_e[j] if j < m else -1
        if j >= m or (i < n and cell(fresh, f, layout.time_f) <= cell(entries, e, layout.time_e)):
            change = cell(fresh, f, layout.diff_f)
            if due and count + live_e > out.shape[0]:
                out = more_rows(out, count + live_e)
            for p in range(live_e if due else 0):
                fact = listed_e[p]
                diff, wrapped = multiply(change, copies_e[fact])
                if wrapped:
                    return out, count, i + j, True
                time = cell(fresh, f, layout.time_f)
                _emit(out, count, fresh, f, entries, head_e[fact], layout, time, diff)
                count += 1
            live_f, wrapped = _accumulate(copies_f, place_f, listed_f, live_f, fact_f[order_f[i]], change)
            i += 1
        else:
            change = cell(entries, e, layout.diff_e)
            if due and count + live_f > out.shape[0]:
                out = more_rows(out, count + live_f)
            for p in range(live_f if due else 0):
                fact = listed_f[p]
                diff, wrapped = multiply(copies_f[fact], change)
                if wrapped:
                    return out, count, i + j, True
                time = cell(entries, e, layout.time_e)
                _emit(out, count, fresh, head_f[fact], entries, e, layout, time, diff)
                count += 1
            live_e, wrapped = _accumulate(copies_e, place_e, listed_e, live_e, fact_e[order_e[j]], change)
            j += 1
        if wrapped:
            return out, count, i + j, True
    return out, count, n + m, False


@njit(cache=True)
def pair_rows(  # type: ignore[no-untyped-def]
    fresh, runs, k, vf, fresh_depth, spans, entries, vo, entry_depth, origin, index, now, key, done, most
):
    """Join new keyed rows, all at round `now`, with the other side's histories.

    fresh: keyed rows `[hash | key (k) | val (vf) | time | rounds | diff]` in key order, keys at `runs`; spans,
    entries: the other side's selection for those keys, `[val (vo) | time | rounds (entry_depth) | diff]`. Output rows
    are `[origin/index columns | lub of times | lub of now and the entry's rounds | product of diffs]`, not
    consolidated. A pair of facts gives one row for each time at which the product of their multiplicities changes. Keys
    with long histories on both sides are replayed in time order against accumulated values, so the cost follows the
    output.

    The call begins at the key number `key`. Earlier calls have paired `done` of that key's new rows (in a replay:
    changes of both sides). It stops after about `most` rows and returns (rows, status, key, done): the next call
    continues there, and `key` is the number of keys at the end. On overflow, `key` is the key at fault. A key that is
    replayed reads its histories again in each call.
    """
    guess = 0
    for q in range(key, runs.shape[0] - 1):
        if guess >= 1 << 16:
            break
        guess += (runs[q + 1] - runs[q]) * (cell(spans, q, 1) - cell(spans, q, 0))
    out = np.empty((min(guess, 1 << 16), origin.shape[0] + now.shape[0] + 2), np.int64)
    facts = np.empty((64, 2), np.int64)
    time_f = 1 + k + vf
    layout = _Layout(k, time_f, time_f + 1 + fresh_depth, vo, vo + 1 + entry_depth, origin, index, now)
    count = 0
    for q in range(key, runs.shape[0] - 1):
        f0, f1, e0, e1 = word(runs, q), word(runs, q + 1), cell(spans, q, 0), cell(spans, q, 1)
        n, m = f1 - f0, e1 - e0
        if q + _AHEAD < runs.shape[0] - 1:
            ahead = cell(spans, q + _AHEAD, 0)
            for e in range(ahead, min(ahead + _FETCHED, cell(spans, q + _AHEAD, 1)), 2):
                fetch(entries, e, 0)
        if n == 0 or m == 0:
            continue
        if count >= most:
            return out[:count], 0, q, 0
        before = done if q == key else 0
        if n * m > _REPLAY * (n + m) and n >= 8 and m >= 8:
            out, count, replayed, wrapped = _replay(fresh, f0, f1, entries, e0, e1, layout, before, most, out, count)
            if wrapped:
                return out[:0], OVERFLOW, q, 0
            if replayed < n + m:
                return out[:count], 0, q, replayed
            continue
        # A pair of facts gives at most one row for each change of either. If a key gives more than a piece, only some
        # of its new rows are paired in this call. Space is reserved here, so that the loops need not check for it.
        f0 += before
        f2 = f1
        if 2 * (f1 - f0) * m > most:
            f2 = min(f1, f0 + max(1, most // (2 * m)))
        if count + 2 * (f2 - f0) * m > out.shape[0]:
            out = more_rows(out, count + 2 * (f2 - f0) * m)
        if n == 1 or m == 1:
            count, wrapped = _pair_each(fresh, f0, f2, entries, e0, e1, layout, out, count)
        else:
            if m > facts.shape[0]:
                facts = np.empty((2 * m, 2), np.int64)
            count, wrapped = _pair_facts(fresh, f0, f2, entries, e0, e1, layout, facts, out, count)
        if wrapped:
            return out[:0], OVERFLOW, q, 0
        if f2 < f1:
            return out[:count], 0, q, f2 - word(runs, q)
    return out[:count], 0, runs.shape[0] - 1, 0
