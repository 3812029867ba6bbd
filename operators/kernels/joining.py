"""Join kernel: pairs the new rows of one side of a join with the histories of the other side.

A fact is a row's val, on the other side together with its rounds; its history is its changes over time.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, more_rows, put, word
from vernier.storage.kernels.sorting import add_checked, stable_order
from vernier.storage.kernels.status import OVERFLOW

KEY, FRESH, OTHER = 0, 1, 2
"""The source of an output column: the key, the new side's val, or the other side's val."""

_REPLAY = 64
"""Above this many pairs per row, a key's two histories are replayed in time order instead of paired fact by fact."""

_HALF = 1 << 31


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


@njit(cache=True, inline="always")
def _accumulate(acc, listed, place, live, fact, change):  # type: ignore[no-untyped-def]
    """Add `change` to a fact and update the dense list of non-zero facts. Returns (length of the list, wrapped)."""
    acc[fact], wrapped = add_checked(acc[fact], change)
    if acc[fact] != 0 and place[fact] < 0:
        listed[live] = fact
        place[fact] = live
        live += 1
    elif acc[fact] == 0 and place[fact] >= 0:
        live -= 1
        moved = listed[live]
        listed[place[fact]] = moved
        place[moved] = place[fact]
        place[fact] = -1
    return live, wrapped


@njit(cache=True, inline="always")
def _emit(  # type: ignore[no-untyped-def]
    out, count, fresh, f, k, vf, entries, e, origin, index, time, now, rounds_from, entry_depth, diff
):
    """Write output row number `count`; the caller has made sure that it fits."""
    width = origin.shape[0]
    for c in range(width):
        source, at = word(origin, c), word(index, c)
        if source == OTHER:
            put(out, count, c, cell(entries, e, at))
        else:
            put(out, count, c, cell(fresh, f, 1 + at if source == KEY else 1 + k + at))
    put(out, count, width, time)
    for c in range(now.shape[0]):
        coordinate = word(now, c)
        if c < entry_depth:
            coordinate = max(coordinate, cell(entries, e, rounds_from + c))
        put(out, count, width + 1 + c, coordinate)
    put(out, count, width + 1 + now.shape[0], diff)


@njit(cache=True, inline="always")
def _same_val(rows: np.ndarray, i: int, first: int, width: int) -> bool:
    """Whether rows i and i - 1 agree in the `width` columns from `first` on."""
    for c in range(first, first + width):
        if cell(rows, i, c) != cell(rows, i - 1, c):
            return False
    return True


@njit(cache=True, inline="always")
def _fact_ends(rows, first, stop, start, last, time, ends):  # type: ignore[no-untyped-def]
    """Find the facts in rows [first, stop): the runs of rows that agree in columns [start, last), except `time`.
    Writes their ends and returns their number."""
    facts = 0
    for i in range(first + 1, stop):
        for c in range(start, last):
            if c != time and cell(rows, i, c) != cell(rows, i - 1, c):
                ends[facts] = i
                facts += 1
                break
    ends[facts] = stop
    return facts + 1


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
    width = origin.shape[0]
    depth = now.shape[0]
    guess = 0
    for q in range(key, runs.shape[0] - 1):
        if guess >= 1 << 16:
            break
        guess += (runs[q + 1] - runs[q]) * (cell(spans, q, 1) - cell(spans, q, 0))
    out = np.empty((min(guess, 1 << 16), width + depth + 2), np.int64)
    ends_e = np.empty(64, np.int64)
    count = 0
    time_f = 1 + k + vf
    diff_f = time_f + 1 + fresh_depth
    diff_e = vo + 1 + entry_depth
    for q in range(key, runs.shape[0] - 1):
        f0, f1, e0, e1 = runs[q], runs[q + 1], cell(spans, q, 0), cell(spans, q, 1)
        n, m = f1 - f0, e1 - e0
        if n == 0 or m == 0:
            continue
        if count >= most:
            return out[:count], 0, q, 0
        before = done if q == key else 0
        paired = n * m <= _REPLAY * (n + m) or n < 8 or m < 8
        f2 = f1
        if paired:
            # A pair of facts gives at most one row for each change of either. If a key gives more than a piece, only
            # some of its new rows are paired in this call. Space is reserved here, so that the loops below need not
            # check for it.
            f0 += before
            if 2 * (f1 - f0) * m > most:
                f2 = min(f1, f0 + max(1, most // (2 * m)))
            if count + 2 * (f2 - f0) * m > out.shape[0]:
                out = more_rows(out, count + 2 * (f2 - f0) * m)
        if n == 1 or m == 1:
            for f in range(f0, f2):
                for e in range(e0, e1):
                    diff, wrapped = multiply(cell(fresh, f, diff_f), cell(entries, e, diff_e))
                    if wrapped:
                        return out[:0], OVERFLOW, q, 0
                    time = max(cell(fresh, f, time_f), cell(entries, e, vo))
                    _emit(out, count, fresh, f, k, vf, entries, e, origin, index, time, now, vo + 1, entry_depth, diff)
                    count += 1
            if f2 < f1:
                return out[:count], 0, q, f2 - runs[q]
            continue
        if paired:
            if m > ends_e.shape[0]:
                ends_e = np.empty(2 * m, np.int64)
            facts_e = _fact_ends(entries, e0, e1, 0, diff_e, vo, ends_e)
            first = f0
            while first < f2:
                last = first + 1
                while last < f2 and _same_val(fresh, last, 1 + k, vf):
                    last += 1
                start = e0
                for fact in range(facts_e):
                    stop = ends_e[fact]
                    # Two step functions of time: walk both, and emit the changes of their product.
                    i, j = first, start
                    have_f, have_e, product = np.int64(0), np.int64(0), np.int64(0)
                    while i < last or j < stop:
                        if j == stop or (i < last and cell(fresh, i, time_f) <= cell(entries, j, vo)):
                            time = cell(fresh, i, time_f)
                        else:
                            time = cell(entries, j, vo)
                        while i < last and cell(fresh, i, time_f) == time:
                            have_f, wrapped = add_checked(have_f, cell(fresh, i, diff_f))
                            if wrapped:
                                return out[:0], OVERFLOW, q, 0
                            i += 1
                        while j < stop and cell(entries, j, vo) == time:
                            have_e, wrapped = add_checked(have_e, cell(entries, j, diff_e))
                            if wrapped:
                                return out[:0], OVERFLOW, q, 0
                            j += 1
                        after, wrapped = multiply(have_f, have_e)
                        change, beyond = add_checked(after, -product)
                        if wrapped or beyond:
                            return out[:0], OVERFLOW, q, 0
                        if change != 0:
                            _emit(
                                out, count, fresh, first, k, vf, entries, start, origin, index,
                                time, now, vo + 1, entry_depth, change,
                            )  # fmt: skip
                            count += 1
                            product = after
                        if (i == last and have_f == 0) or (j == stop and have_e == 0):
                            break
                    start = stop
                first = last
            if f2 < f1:
                return out[:count], 0, q, f2 - runs[q]
            continue
        # Replay: facts are runs of equal (val) on the new side and equal (val, rounds) on the other; each event meets
        # the facts of the other side that are non-zero by then.
        fact_f = np.empty(n, np.int64)
        head_f = np.empty(n, np.int64)
        facts_f = 0
        for i in range(n):
            new = i == 0
            for c in range(1 + k, 1 + k + vf):
                if not new and cell(fresh, f0 + i, c) != cell(fresh, f0 + i - 1, c):
                    new = True
            if new:
                head_f[facts_f] = f0 + i
                facts_f += 1
            fact_f[i] = facts_f - 1
        fact_e = np.empty(m, np.int64)
        head_e = np.empty(m, np.int64)
        facts_e = 0
        for i in range(m):
            new = i == 0
            for c in range(diff_e):
                if c != vo and not new and cell(entries, e0 + i, c) != cell(entries, e0 + i - 1, c):
                    new = True
            if new:
                head_e[facts_e] = e0 + i
                facts_e += 1
            fact_e[i] = facts_e - 1
        acc_f = np.zeros(facts_f, np.int64)
        acc_e = np.zeros(facts_e, np.int64)
        # The non-zero facts of each side as a dense list: list[position] = fact, place[fact] = position or -1.
        list_f = np.empty(facts_f, np.int64)
        place_f = np.full(facts_f, -1, np.int64)
        live_f = 0
        list_e = np.empty(facts_e, np.int64)
        place_e = np.full(facts_e, -1, np.int64)
        live_e = 0
        order_f = stable_order(fresh[f0:f1, time_f].copy())
        order_e = stable_order(entries[e0:e1, vo].copy())
        i, j = 0, 0
        while i < n or j < m:
            if count >= most:
                return out[:count], 0, q, i + j
            told = i + j >= before
            take_f = j >= m or (i < n and fresh[f0 + order_f[i], time_f] <= entries[e0 + order_e[j], vo])
            if take_f:
                f = f0 + order_f[i]
                fact = fact_f[order_f[i]]
                i += 1
                change = cell(fresh, f, diff_f)
                if told and count + live_e > out.shape[0]:
                    out = more_rows(out, count + live_e)
                for p in range(live_e if told else 0):
                    diff, wrapped = multiply(change, acc_e[list_e[p]])
                    if wrapped:
                        return out[:0], OVERFLOW, q, 0
                    _emit(
                        out, count, fresh, f, k, vf, entries, head_e[list_e[p]], origin, index,
                        cell(fresh, f, time_f), now, vo + 1, entry_depth, diff,
                    )  # fmt: skip
                    count += 1
                live_f, wrapped = _accumulate(acc_f, list_f, place_f, live_f, fact, change)
                if wrapped:
                    return out[:0], OVERFLOW, q, 0
            else:
                e = e0 + order_e[j]
                fact = fact_e[order_e[j]]
                j += 1
                change = cell(entries, e, diff_e)
                if told and count + live_f > out.shape[0]:
                    out = more_rows(out, count + live_f)
                for p in range(live_f if told else 0):
                    diff, wrapped = multiply(acc_f[list_f[p]], change)
                    if wrapped:
                        return out[:0], OVERFLOW, q, 0
                    _emit(
                        out, count, fresh, head_f[list_f[p]], k, vf, entries, e, origin, index,
                        cell(entries, e, vo), now, vo + 1, entry_depth, diff,
                    )  # fmt: skip
                    count += 1
                live_e, wrapped = _accumulate(acc_e, list_e, place_e, live_e, fact, change)
                if wrapped:
                    return out[:0], OVERFLOW, q, 0
    return out[:count], 0, runs.shape[0] - 1, 0
