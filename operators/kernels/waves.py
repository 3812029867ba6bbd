"""Wave kernels: the accumulated rows of many (key, time) groups for a logic, and the corrections from its results.

`visits_after` lists the rounds at which keys are visited later. `plan_waves` lists the data times at which each key is
examined. `gather_wave` lays out the rows of the groups. `settle_wave` compares what the logic wants with the earlier
output. The rules are those of operators/physical/reduce.py. Where a rule depends on what has cancelled out, these
kernels examine a group that could have been skipped.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.rounds import below
from vernier.storage.kernels.cells import more_rows
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.sorting import add_checked, stable_order
from vernier.storage.kernels.status import OVERFLOW


@njit(cache=True, inline="always")
def _agrees(entries: np.ndarray, e: int, first: int, now: np.ndarray) -> bool:
    """Whether the rounds entries[e, first:] are exactly `now`."""
    for c in range(now.shape[0]):
        if entries[e, first + c] != now[c]:
            return False
    return True


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
            known = False
            for p in range(count - 1, first - 1, -1):
                known = True
                for c in range(d):
                    if visits[p, c] != max(now[c], inputs[e, v + 1 + c]):
                        known = False
                        break
                if known:
                    break
            if known:
                continue
            if count == visits.shape[0]:
                visits = more_rows(visits, count)
            for c in range(d):
                visits[count, c] = max(now[c], inputs[e, v + 1 + c])
            for c in range(1 + k):
                visits[count, d + c] = keyed[key, c]
            count += 1
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
                if outputs[e, w] < begin and _agrees(outputs, e, w + 1, now):
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
    # All rows that a key has or will have, numbered in their order.
    size = made.shape[0] + kept.shape[0]
    for g in range(n):
        if g == 0 or groups[g, 0] != groups[g - 1, 0]:
            size += out_spans[groups[g, 0], 1] - out_spans[groups[g, 0], 0]
    rows = np.empty((size, 1 + w), np.int64)
    filled = 0
    for i in range(kept.shape[0]):
        rows[filled, 0] = groups[0, 0]
        for c in range(w):
            rows[filled, 1 + c] = kept[i, c]
        filled += 1
    first_output = filled
    for g in range(n):
        key = groups[g, 0]
        if g == 0 or key != groups[g - 1, 0]:
            for e in range(out_spans[key, 0], out_spans[key, 1]):
                rows[filled, 0] = key
                for c in range(w):
                    rows[filled, 1 + c] = outputs[e, c]
                filled += 1
    first_made = filled
    for g in range(n):
        if places[g] >= 0:
            for i in range(made_offsets[places[g]], made_offsets[places[g] + 1]):
                rows[first_made + i, 0] = groups[g, 0]
                for c in range(w):
                    rows[first_made + i, 1 + c] = made[i, c]
    order = sort_order(rows, np.arange(1 + w))
    number = np.empty(size, np.int64)
    head = np.empty(size, np.int64)
    known = 0
    for i in range(size):
        new = i == 0
        if not new:
            for c in range(1 + w):
                if rows[order[i], c] != rows[order[i - 1], c]:
                    new = True
                    break
        if new:
            head[known] = order[i]
            known += 1
        number[order[i]] = known - 1

    had = np.zeros(known, np.int64)
    wanted = np.zeros(known, np.int64)
    listed = np.zeros(known, np.bool_)
    live = np.empty(known, np.int64)
    lives = 0
    out = np.empty((size + 16, 3 + k + w + d), np.int64)
    count = 0
    output = first_output
    g = 0
    while g < n:
        key = groups[g, 0]
        for p in range(lives):
            listed[live[p]] = False
            had[live[p]] = 0
        lives = 0
        since = fold
        if g == 0 and kept_at >= fold:
            since = kept_at
            for i in range(kept.shape[0]):
                one = number[i]
                had[one] = kept_counts[i]
                listed[one] = True
                live[lives] = one
                lives += 1
        # Outputs of this slice, by time. Older ones, and those that an earlier wave has covered, are included already.
        base = out_spans[key, 0]
        entries = out_spans[key, 1] - base
        times = np.empty(entries, np.int64)
        fresh = np.empty(entries, np.int64)
        waiting = 0
        for i in range(entries):
            e = base + i
            if not below(outputs, e, w + 1, now):
                continue
            time = outputs[e, w]
            if time > since:
                times[waiting] = time
                fresh[waiting] = i
                waiting += 1
            elif g > 0 or kept_at < fold:
                one = number[output + i]
                had[one], wrapped = add_checked(had[one], outputs[e, diff])
                if wrapped:
                    return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
                if not listed[one]:
                    listed[one] = True
                    live[lives] = one
                    lives += 1
        in_time = stable_order(times[:waiting])
        cursor = 0
        while g < n and groups[g, 0] == key:
            time = groups[g, 1]
            while cursor < waiting and times[in_time[cursor]] <= time:
                i = fresh[in_time[cursor]]
                one = number[output + i]
                had[one], wrapped = add_checked(had[one], outputs[base + i, diff])
                if wrapped:
                    return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
                if not listed[one]:
                    listed[one] = True
                    live[lives] = one
                    lives += 1
                cursor += 1
            if places[g] >= 0:
                for i in range(made_offsets[places[g]], made_offsets[places[g] + 1]):
                    one = number[first_made + i]
                    wanted[one], wrapped = add_checked(wanted[one], made_counts[i])
                    if wrapped:
                        return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
                    if not listed[one]:
                        listed[one] = True
                        live[lives] = one
                        lives += 1
            if count + lives > out.shape[0]:
                out = more_rows(out, count + lives)
            p = 0
            while p < lives:
                one = live[p]
                owed, wrapped = add_checked(wanted[one], -had[one])
                if wrapped:
                    return out[:0], kept[:0], kept_counts[:0], OVERFLOW, key
                if owed != 0 and not (total and time == fold):
                    for c in range(1 + k):
                        out[count, c] = keyed[key, c]
                    for c in range(w):
                        out[count, 1 + k + c] = rows[head[one], 1 + c]
                    out[count, 1 + k + w] = time
                    for c in range(d):
                        out[count, 2 + k + w + c] = now[c]
                    out[count, 2 + k + w + d] = owed
                    count += 1
                had[one] = wanted[one]
                wanted[one] = 0
                if had[one] == 0:
                    listed[one] = False
                    lives -= 1
                    live[p] = live[lives]
                else:
                    p += 1
            g += 1
        output += entries
    left = np.empty((lives, w), np.int64)
    left_counts = np.empty(lives, np.int64)
    for p in range(lives):
        for c in range(w):
            left[p, c] = rows[head[live[p]], 1 + c]
        left_counts[p] = had[live[p]]
    return out[:count], left, left_counts, 0, -1
