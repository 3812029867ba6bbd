"""Wave kernels: the accumulated rows of many (key, time) groups for a logic, and the corrections from its results.

`visits_after` lists the rounds at which keys are visited later. `plan_waves` lists the data times at which each key is
examined. `gather_wave` lays out the rows of the groups. `settle_wave` compares what the logic wants with the earlier
output. The rules are those of operators/physical/reduce.py. Where a rule depends on what has cancelled out, these
kernels examine a group that could have been skipped.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.corrections import same_val, write_correction
from vernier.operators.kernels.rounds import agrees, below, finish_visits, schedule
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.sorting import add_checked, stable_order
from vernier.storage.kernels.status import OVERFLOW


@njit(cache=True)
def visits_after(keyed, k, in_spans, inputs, v, now):  # type: ignore[no-untyped-def]
    """Later visits of q keys visited at round `now`: `[rounds | hash | key]`, each once.

    They are at the least upper bound of `now` and every round of a key's input history that is not at most `now`.
    """
    d = now.shape[0]
    visits = np.empty((16, d + 1 + k), np.int64)
    count = 0
    for key in range(keyed.shape[0]):
        first = count
        for e in range(in_spans[key, 0], in_spans[key, 1]):
            if below(inputs, e, v + 1, now):
                continue
            if count == visits.shape[0]:
                visits = more_rows(visits, count)
            count = schedule(visits, first, count, inputs, e, v + 1, now)
        finish_visits(visits, first, count, keyed, key, k, d)
    return visits[:count]


@njit(cache=True)
def plan_waves(in_spans, inputs, v, out_spans, outputs, w, now, fold, total):  # type: ignore[no-untyped-def]
    """The groups to examine: int64[m, 2] of (key number, data time), ascending.

    inputs, outputs: selections `[val | time | rounds | diff]`, in which times equal to `fold` are older than the slice.
    `total`: the earlier output is not kept, so the groups of each examined key begin with one at time `fold`.
    """
    d = now.shape[0]
    q = in_spans.shape[0]
    entries = 0
    for key in range(q):
        entries += in_spans[key, 1] - in_spans[key, 0]
    groups = np.empty((entries + q, 2), np.int64)
    count = 0
    begins = np.empty(d, np.int64)
    never = np.iinfo(np.int64).max
    for key in range(q):
        first = count + 1 if total else count
        stop = first
        begins[:] = never
        for e in range(in_spans[key, 0], in_spans[key, 1]):
            if not below(inputs, e, v + 1, now):
                continue
            time = inputs[e, v]
            for c in range(d):
                if inputs[e, v + 1 + c] == now[c] and time < begins[c]:
                    begins[c] = time
            if time > fold:
                groups[stop, 0] = key
                groups[stop, 1] = time
                stop += 1
        if stop == first:
            continue
        # No correction is due before every level of the loop has input, unless there is output at exactly this round.
        begin = fold
        for c in range(d):
            begin = max(begin, begins[c])
        if begin > fold:
            for e in range(out_spans[key, 0], out_spans[key, 1]):
                if outputs[e, w] < begin and agrees(outputs, e, w + 1, now):
                    begin = outputs[e, w]
        times = np.sort(groups[first:stop, 1])
        stop = first
        for i in range(times.shape[0]):
            if times[i] >= begin and (i == 0 or times[i] != times[i - 1]):
                groups[stop, 0] = key
                groups[stop, 1] = times[i]
                stop += 1
        if stop == first:
            continue
        if total:
            groups[count, 0] = key
            groups[count, 1] = fold
        count = stop
    return groups[:count]


@njit(cache=True)
def gather_wave(in_spans, inputs, v, now, fold, groups, first, limit):  # type: ignore[no-untyped-def]
    """The accumulated rows of groups from number `first` on, until there are `limit` rows (at least one group).

    Returns (places[n] of the n groups: their number among the groups that have rows, or -1; offsets, vals and counts of
    the groups that have rows; status; key number at fault). O(history log history + rows).
    """
    most = 1
    for g in range(first, groups.shape[0]):
        key = groups[g, 0]
        most = max(most, in_spans[key, 1] - in_spans[key, 0])
    head = np.empty(most, np.int64)
    sums = np.empty(most, np.int64)
    val_of = np.empty(most, np.int64)
    fresh = np.empty(most, np.int64)
    diff = v + 1 + now.shape[0]
    places = np.empty(groups.shape[0] - first, np.int64)
    offsets = np.zeros(groups.shape[0] - first + 1, np.int64)
    vals = np.empty((64, v), np.int64)
    counts = np.empty(64, np.int64)
    rows, full = 0, 0
    g = first
    while g < groups.shape[0] and (rows < limit or g == first):
        key = groups[g, 0]
        base = in_spans[key, 0]
        known, waiting = 0, 0
        for e in range(base, in_spans[key, 1]):
            new = e == base
            if not new:
                for c in range(v):
                    if inputs[e, c] != inputs[e - 1, c]:
                        new = True
                        break
            if new:
                head[known] = e
                sums[known] = 0
                known += 1
            val_of[e - base] = known - 1
            if not below(inputs, e, v + 1, now):
                continue
            if inputs[e, v] > fold:
                fresh[waiting] = e
                waiting += 1
            else:
                sums[known - 1], wrapped = add_checked(sums[known - 1], inputs[e, diff])
                if wrapped:
                    return places, offsets[:1], vals[:0], counts[:0], OVERFLOW, key
        times = np.empty(waiting, np.int64)
        for i in range(waiting):
            times[i] = inputs[fresh[i], v]
        order = stable_order(times)
        cursor = 0
        while g < groups.shape[0] and groups[g, 0] == key and (rows < limit or g == first):
            while cursor < waiting and times[order[cursor]] <= groups[g, 1]:
                e = fresh[order[cursor]]
                val = val_of[e - base]
                sums[val], wrapped = add_checked(sums[val], inputs[e, diff])
                if wrapped:
                    return places, offsets[:1], vals[:0], counts[:0], OVERFLOW, key
                cursor += 1
            begin = rows
            if rows + known > counts.shape[0]:
                size = 2 * (rows + known)
                vals = more_rows(vals, rows + known)
                more_counts = np.empty(size, np.int64)
                for val in range(rows):
                    more_counts[val] = counts[val]
                counts = more_counts
            for val in range(known):
                if sums[val] != 0:
                    for c in range(v):
                        vals[rows, c] = inputs[head[val], c]
                    counts[rows] = sums[val]
                    rows += 1
            places[g - first] = -1
            if rows > begin:
                places[g - first] = full
                full += 1
                offsets[full] = rows
            g += 1
    return places[: g - first], offsets[: full + 1], vals[:rows].copy(), counts[:rows].copy(), 0, -1


@njit(cache=True)
def _all_rows(groups, places, made_offsets, made, kept, out_spans, outputs, w):  # type: ignore[no-untyped-def]
    """All rows `[key number | out val]` of a wave: those kept, the outputs of its keys, and the logic's results."""
    size = kept.shape[0] + made.shape[0]
    for g in range(groups.shape[0]):
        if g == 0 or groups[g, 0] != groups[g - 1, 0]:
            size += out_spans[groups[g, 0], 1] - out_spans[groups[g, 0], 0]
    rows = np.empty((size, 1 + w), np.int64)
    filled = 0
    for i in range(kept.shape[0]):
        filled = _put_row(rows, filled, groups[0, 0], kept, i, w)
    for g in range(groups.shape[0]):
        key = groups[g, 0]
        if g == 0 or key != groups[g - 1, 0]:
            for e in range(out_spans[key, 0], out_spans[key, 1]):
                filled = _put_row(rows, filled, key, outputs, e, w)
    for g in range(groups.shape[0]):
        if places[g] >= 0:
            for i in range(made_offsets[places[g]], made_offsets[places[g] + 1]):
                _put_row(rows, filled + i, groups[g, 0], made, i, w)
    return rows


@inlined
def _put_row(rows, filled, key, others, i, w):  # type: ignore[no-untyped-def]
    """Write row i of `others` as row number `filled`, for a key. Returns the number of rows."""
    put(rows, filled, 0, key)
    for c in range(w):
        put(rows, filled, 1 + c, cell(others, i, c))
    return filled + 1


@njit(cache=True)
def _number_rows(rows):  # type: ignore[no-untyped-def]
    """Number distinct rows in their order. Returns (the number of each row, the rows that have each number)."""
    width = rows.shape[1]
    order = sort_order(rows, np.arange(width))
    number, head = np.empty(rows.shape[0], np.int64), np.empty(rows.shape[0], np.int64)
    known = 0
    for i in range(rows.shape[0]):
        if i == 0 or not same_val(rows, order[i], rows, order[i - 1], width):
            head[known] = order[i]
            known += 1
        number[order[i]] = known - 1
    return number, head[:known].copy()


@inlined
def _add(copies, listed, live, lives, row, diff):  # type: ignore[no-untyped-def]
    """Add to a row's copies, and list it. Returns (length of the list, wrapped)."""
    copies[row], wrapped = add_checked(copies[row], diff)
    if not wrapped and not listed[row]:
        listed[row] = True
        live[lives] = row
        lives += 1
    return lives, wrapped


@borrowing
def _begin_key(outputs, base, stop, w, now, since, covered, number, had, listed, live, lives, times, order):  # type: ignore
    """Put a key's outputs [base, stop) that are later than `since` in time order, and add older ones to the listed
    rows, unless an earlier wave has `covered` them. Returns (later outputs, length of the list, wrapped)."""
    waiting = 0
    for e in range(base, stop):
        i = e - base
        times[i] = outputs[e, w]
        if not below(outputs, e, w + 1, now):
            continue
        if times[i] > since:
            order[waiting] = i
            waiting += 1
        elif not covered:
            diff = outputs[e, w + 1 + now.shape[0]]
            lives, wrapped = _add(had, listed, live, lives, number[i], diff)
            if wrapped:
                return waiting, lives, True
    sorted_by_time(times, order, waiting)
    return waiting, lives, False


@inlined
def _settle(  # type: ignore[no-untyped-def]
    had, wanted, listed, live, lives, rows, head, out, count, keyed, key, k, w, time, now, silent
):
    """Write `wanted - had` of the listed rows at (time, now), unless `silent`; what was wanted is had from then on.
    Returns (length of the list, corrections, wrapped)."""
    p = 0
    while p < lives:
        row = live[p]
        owed, wrapped = add_checked(wanted[row], -had[row])
        if wrapped:
            return lives, count, True
        if owed != 0 and not silent:
            write_correction(out, count, keyed, key, k, rows, head[row], 1, w, time, now, owed)
            count += 1
        had[row] = wanted[row]
        wanted[row] = 0
        if had[row] == 0:
            listed[row] = False
            lives -= 1
            live[p] = live[lives]
        else:
            p += 1
    return lives, count, False


@njit(cache=True)
def settle_wave(  # type: ignore[no-untyped-def]
    keyed, k, groups, places, made_offsets, made, made_counts, out_spans, outputs, w, now, fold, total, kept,
    kept_counts, kept_at
):  # fmt: skip
    """Corrections `[hash | key | out val | time | now | diff]` of the groups of one wave, in no particular order.

    groups[n, 2] and places[n]: as planned and gathered; made, made_counts by made_offsets: the logic's results for the
    groups that have rows (equal rows add up); outputs by out_spans: the earlier output, as a selection; kept,
    kept_counts: the output of the first group's key after the previous wave, which ended at that key's time `kept_at`;
    empty if `kept_at` is below `fold`. `total`: the group at time `fold` gives the earlier output of its key. Returns
    (corrections, the last key's rows, their counts, status, key number at fault). O(n log n) for all rows.
    """
    d = now.shape[0]
    n = groups.shape[0]
    diff = w + 1 + d
    rows = _all_rows(groups, places, made_offsets, made, kept, out_spans, outputs, w)
    size = rows.shape[0]
    number, head = _number_rows(rows)
    known = head.shape[0]
    had, wanted = np.zeros(known, np.int64), np.zeros(known, np.int64)
    # The rows of the present key that have copies or had some are listed, in no order.
    listed, live = np.zeros(known, np.bool_), np.empty(known, np.int64)
    times, order = np.empty(size, np.int64), np.empty(size, np.int64)
    out = np.empty((size + 16, 3 + k + w + d), np.int64)
    # The rows are numbered from here on: those of the present key's outputs, and those that the logic has made.
    output, made_from = kept.shape[0], size - made.shape[0]
    count, lives, g = 0, 0, 0
    while g < n:
        key = groups[g, 0]
        for p in range(lives):
            listed[live[p]] = False
            had[live[p]] = 0
        lives = 0
        covered = g == 0 and kept_at >= fold
        for i in range(kept.shape[0] if covered else 0):
            lives, _ = _add(had, listed, live, lives, number[i], kept_counts[i])
        base, stop = out_spans[key, 0], out_spans[key, 1]
        waiting, lives, wrapped = _begin_key(
            outputs,
            base,
            stop,
            w,
            now,
            kept_at if covered else fold,
            covered,
            number[output:],
            had,
            listed,
            live,
            lives,
            times,
            order,
        )
        if wrapped:
            return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
        cursor = 0
        while g < n and groups[g, 0] == key:
            time, place = groups[g, 1], places[g]
            while cursor < waiting and times[order[cursor]] <= time:
                i = order[cursor]
                lives, wrapped = _add(had, listed, live, lives, number[output + i], outputs[base + i, diff])
                if wrapped:
                    return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
                cursor += 1
            for i in range(made_offsets[place] if place >= 0 else 0, made_offsets[place + 1] if place >= 0 else 0):
                lives, wrapped = _add(wanted, listed, live, lives, number[made_from + i], made_counts[i])
                if wrapped:
                    return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
            if count + lives > out.shape[0]:
                out = more_rows(out, count + lives)
            lives, count, wrapped = _settle(
                had,
                wanted,
                listed,
                live,
                lives,
                rows,
                head,
                out,
                count,
                keyed,
                key,
                k,
                w,
                time,
                now,
                total and time == fold,
            )
            if wrapped:
                return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
            g += 1
        output += stop - base
    left, left_counts = np.empty((lives, w), np.int64), np.empty(lives, np.int64)
    for p in range(lives):
        row = live[p]
        for c in range(w):
            left[p, c] = rows[head[row], 1 + c]
        left_counts[p] = had[row]
    return out[:count], left, left_counts, 0, -1
