"""Reduce kernel: replays keys over the data times of a slice and computes the corrections of a reduction at one round.

For every visited key the kernel walks its input and output histories in time order and writes `wanted - had` at each
data time that was touched at a round <= the current one. operators/physical/reduce.py has the rules: which keys, which
times, and what may be skipped. The kernel's state consists of accumulations per val, per fact (val, round), and per
live output row.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import (
    AVG,
    COPIES,
    COUNT,
    FLAG,
    KIND,
    LIMIT,
    MAX,
    MIN,
    ONE_WORD,
    OUT,
    OUT_FLAG,
    PRESENT,
    SUM,
    WORD,
    WORDS,
    absorb_number,
    need_floats,
    need_ranks,
    rank_vals,
    want_number,
)
from vernier.operators.kernels.exact import DECIMAL_WORDS, FLOAT_WORDS
from vernier.storage.kernels.cells import more_rows
from vernier.storage.kernels.sorting import add_checked, stable_order
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.wide import add_wide, fits, multiply_wide


@njit(cache=True)
def sorted_by_time(times: np.ndarray, picked: np.ndarray, count: int) -> None:
    """Sort picked[:count] (positions in `times`) by time, stably, in place."""
    if count > 48:
        chosen = np.empty(count, np.int64)
        for i in range(count):
            chosen[i] = times[picked[i]]
        order = stable_order(chosen)
        copy = picked[:count].copy()
        for i in range(count):
            picked[i] = copy[order[i]]
        return
    for i in range(1, count):
        item = picked[i]
        time = times[item]
        j = i
        while j > 0 and times[picked[j - 1]] > time:
            picked[j] = picked[j - 1]
            j -= 1
        picked[j] = item


@njit(cache=True, inline="always")
def _same_words(a: np.ndarray, i: int, b: np.ndarray, j: int, width: int) -> bool:
    for c in range(width):
        if a[i, c] != b[j, c]:
            return False
    return True


@njit(cache=True)
def _add_live(live, acc, exact, size, words, row, width, diff, at_round):  # type: ignore[no-untyped-def]
    """Add `diff` copies of an output row to the live rows. Returns (size, wrapped)."""
    for p in range(size):
        if _same_words(live, p, words, row, width):
            acc[p], wrapped = add_checked(acc[p], diff)
            if wrapped:
                return size, True
            if at_round:
                exact[p] += diff
            if acc[p] == 0 and exact[p] == 0:
                last = size - 1
                for c in range(width):
                    live[p, c] = live[last, c]
                acc[p] = acc[last]
                exact[p] = exact[last]
                return last, False
            return size, False
    for c in range(width):
        live[size, c] = words[row, c]
    acc[size] = diff
    exact[size] = diff if at_round else 0
    return size + 1, False


@njit(cache=True)
def reduce_keys(  # type: ignore[no-untyped-def]
    keyed, k, in_spans, inputs, ordered, by_content, v, out_spans, outputs, w, now, fold, aggregations, total
):
    """Corrections and further visits of q keys at round `now`.

    keyed[q, >= 1 + k]; inputs and outputs: selections `[val | time | rounds | diff]` sorted by (val, rounds, time), in
    which times equal to `fold` are older than the slice; ordered: the same as inputs or, with `by_content`, inputs with
    words in the order of their values; w: words of an output val; aggregations[a, 8]: one PRESENT or COPIES row, or
    rows COUNT … MAX, or no row, which means the key while any val is present. `total`: no output is kept; the earlier
    output is what the key's input at `fold` gives. Returns (corrections: keyed rows `[hash | key | out val | time | now
    | diff]`, visits `[rounds | hash | key]`, status, key at fault). O(history log history) per key, plus the vals
    scanned when a minimum or maximum leaves.
    """
    d = now.shape[0]
    q = keyed.shape[0]
    out = np.empty((4 * q + 16, 3 + k + w + d), np.int64)
    count = 0
    visits = np.empty((q + 16, d + 1 + k), np.int64)
    visit_count = 0
    most_in, most_out = 1, 1
    for i in range(q):
        most_in = max(most_in, in_spans[i, 1] - in_spans[i, 0])
        most_out = max(most_out, out_spans[i, 1] - out_spans[i, 0])
    val_of = np.empty(most_in, np.int64)
    fact_of = np.empty(most_in, np.int64)
    head = np.empty(most_in, np.int64)  # first entry of each val
    levels = np.empty((most_in, d), np.int64)  # of each fact: 1 where its round agrees with `now`
    in_time = np.empty(most_in, np.int64)
    in_fresh = np.empty(most_in, np.int64)
    out_time = np.empty(most_out, np.int64)
    out_fresh = np.empty(most_out, np.int64)
    val_acc = np.empty(most_in, np.int64)
    fact_acc = np.empty(most_in, np.int64)
    seen = np.empty((most_in, d), np.int64)
    level_facts = np.empty(d, np.int64)
    live = np.empty((most_in + most_out + 2, w), np.int64)
    live_acc = np.empty(most_in + most_out + 2, np.int64)
    live_exact = np.empty(most_in + most_out + 2, np.int64)
    wanted = np.empty((1, w), np.int64)
    aggs = aggregations.shape[0]
    # Sums and counts are wider than 64 bits, because only emitted results have to fit.
    sums = np.empty((aggs, DECIMAL_WORDS), np.int64)
    counts = np.empty((aggs, 2), np.int64)
    nonnull = np.empty(aggs, np.int64)  # vals with a value that have a non-zero multiplicity
    marks = np.empty(aggs, np.int64)
    orders = most_in if need_ranks(aggregations, by_content) else 0
    rank = np.empty((aggs, orders), np.int64)
    ranked = np.full((aggs, orders), -1, np.int64)
    floats = np.empty((aggs, FLOAT_WORDS if need_floats(aggregations) else 0), np.int64)
    time_in, time_out = v, w
    diff_in, diff_out = v + 1 + d, w + 1 + d

    for key in range(q):
        base, stop = in_spans[key, 0], in_spans[key, 1]
        obase, ostop = out_spans[key, 0], out_spans[key, 1]
        vals, facts, fresh, seen_count = 0, 0, 0, 0
        size, live_now = 0, 0
        present = 0
        for c in range(d):
            level_facts[c] = 0
        for a in range(aggs):
            for c in range(DECIMAL_WORDS):
                sums[a, c] = 0
            counts[a, 0] = counts[a, 1] = 0
            nonnull[a] = 0
            marks[a] = -1
            for c in range(floats.shape[1]):
                floats[a, c] = 0

        # Histories: number the vals and facts, schedule visits, and find the entries of this slice.
        for e in range(base, stop):
            i = e - base
            new_val = i == 0 or not _same_words(inputs, e, inputs, e - 1, v)
            new_fact = new_val
            if not new_fact:
                for c in range(v + 1, v + 1 + d):
                    if inputs[e, c] != inputs[e - 1, c]:
                        new_fact = True
                        break
            if new_val:
                head[vals] = e
                val_acc[vals] = 0
                vals += 1
            below = True
            for c in range(d):
                if inputs[e, v + 1 + c] > now[c]:
                    below = False
                    break
            if new_fact:
                fact_acc[facts] = 0
                for c in range(d):
                    levels[facts, c] = 1 if inputs[e, v + 1 + c] == now[c] else 0
                facts += 1
                if not below:
                    # Schedule a visit at the least upper bound, once.
                    known = False
                    for p in range(seen_count - 1, -1, -1):
                        known = True
                        for c in range(d):
                            if seen[p, c] != max(now[c], inputs[e, v + 1 + c]):
                                known = False
                                break
                        if known:
                            break
                    if not known:
                        if visit_count == visits.shape[0]:
                            visits = more_rows(visits, visit_count)
                        for c in range(d):
                            seen[seen_count, c] = max(now[c], inputs[e, v + 1 + c])
                            visits[visit_count, c] = seen[seen_count, c]
                        for c in range(1 + k):
                            visits[visit_count, d + c] = keyed[key, c]
                        seen_count += 1
                        visit_count += 1
            val_of[i] = vals - 1
            fact_of[i] = facts - 1 if below else -1
            in_time[i] = inputs[e, time_in]
            if below and in_time[i] > fold:
                in_fresh[fresh] = i
                fresh += 1
        if fresh == 0:
            continue
        if orders > 0:
            rank_vals(aggregations, ordered, by_content, head, vals, rank, ranked)
        sorted_by_time(in_time, in_fresh, fresh)
        out_fresh_count = 0
        for e in range(obase, ostop):
            i = e - obase
            below, exact = True, True
            for c in range(d):
                coordinate = outputs[e, w + 1 + c]
                if coordinate != now[c]:
                    exact = False
                    if coordinate > now[c]:
                        below = False
            out_time[i] = outputs[e, time_out]
            if not below:
                continue
            if out_time[i] > fold:
                out_fresh[out_fresh_count] = i
                out_fresh_count += 1
            else:
                size, wrapped = _add_live(live, live_acc, live_exact, size, outputs, e, w, outputs[e, diff_out], exact)
                if wrapped:
                    return out[:0], visits[:0], OVERFLOW, key
        sorted_by_time(out_time, out_fresh, out_fresh_count)

        # Sweep: first all old entries, then every touched data time in order.
        cursor, out_cursor = 0, 0
        old, entries = 0, stop - base
        settled = False
        while not settled or cursor < fresh:
            time = fold
            if settled:
                time = in_time[in_fresh[cursor]]
            while True:
                if not settled:
                    while old < entries and (fact_of[old] < 0 or in_time[old] > fold):
                        old += 1
                    if old == entries:
                        break
                    i = old
                    old += 1
                else:
                    if cursor == fresh or in_time[in_fresh[cursor]] != time:
                        break
                    i = in_fresh[cursor]
                    cursor += 1
                diff = inputs[base + i, diff_in]
                val = val_of[i]
                before = val_acc[val]
                after, wrapped = add_checked(before, diff)
                if wrapped:
                    return out[:0], visits[:0], OVERFLOW, key
                val_acc[val] = after
                if before == 0 and after != 0:
                    present += 1
                elif before != 0 and after == 0:
                    present -= 1
                fact = fact_of[i]
                fact_before = fact_acc[fact]
                fact_acc[fact] = fact_before + diff
                if fact_before == 0:
                    for c in range(d):
                        level_facts[c] += levels[fact, c]
                elif fact_acc[fact] == 0:
                    for c in range(d):
                        level_facts[c] -= levels[fact, c]
                entry = head[val]
                for a in range(aggs):
                    kind = aggregations[a, KIND]
                    flag = aggregations[a, FLAG]
                    if flag >= 0 and inputs[entry, flag] == 0:
                        continue
                    if kind == MIN or kind == MAX or kind == PRESENT:
                        # Vals below (for MAX: above) the mark are known not to be present, so they are not scanned
                        # again.
                        if after > 0:
                            place = val
                            if rank.shape[1] > 0 and ranked[a, 0] >= 0:
                                place = rank[a, val]
                            if (place > marks[a]) == (kind == MAX):
                                marks[a] = place
                    elif kind != COPIES:
                        if kind == COUNT or kind >= AVG:
                            sign = np.int64(-1) if diff < 0 else np.int64(0)
                            counts[a, 0], counts[a, 1] = add_wide(counts[a, 0], counts[a, 1], sign, diff)
                        if kind != COUNT:
                            if before == 0 and after != 0:
                                nonnull[a] += 1
                            elif before != 0 and after == 0:
                                nonnull[a] -= 1
                            if kind == SUM or kind == AVG:
                                hi, lo = multiply_wide(inputs[entry, aggregations[a, WORD]], diff)
                                sums[a, 0], sums[a, 1] = add_wide(sums[a, 0], sums[a, 1], hi, lo)
                            elif absorb_number(aggregations, a, inputs, entry, diff, sums, floats):
                                return out[:0], visits[:0], OVERFLOW, key
            before_slice = not settled
            if before_slice:
                settled = True
                for a in range(aggs):
                    marks[a] = vals - 1 if aggregations[a, KIND] == MAX else 0
                if not total:
                    continue

            while out_cursor < out_fresh_count and out_time[out_fresh[out_cursor]] <= time:
                e = obase + out_fresh[out_cursor]
                out_cursor += 1
                exact = True
                for c in range(d):
                    if outputs[e, w + 1 + c] != now[c]:
                        exact = False
                        break
                size, wrapped = _add_live(live, live_acc, live_exact, size, outputs, e, w, outputs[e, diff_out], exact)
                if wrapped:
                    return out[:0], visits[:0], OVERFLOW, key

            # Skip if no correction can be due: no output at this round, and some level of the loop has no input.
            if d > 0:
                live_now = 0
                for p in range(size):
                    if live_exact[p] != 0:
                        live_now += 1
                if live_now == 0:
                    idle = False
                    for c in range(d):
                        if level_facts[c] == 0:
                            idle = True
                            break
                    if idle:
                        continue

            copies = np.int64(0)
            if present > 0:
                copies = np.int64(1)
                for a in range(aggs):
                    kind = aggregations[a, KIND]
                    flag = aggregations[a, FLAG]
                    target = aggregations[a, OUT]
                    out_flag = aggregations[a, OUT_FLAG]
                    if kind == MIN or kind == MAX:
                        own = ranked.shape[1] > 0 and ranked[a, 0] >= 0
                        step = 1 if kind == MIN else -1
                        place = marks[a]
                        val = place
                        while 0 <= place < vals:
                            val = ranked[a, place] if own else place
                            if val_acc[val] > 0 and (flag < 0 or inputs[head[val], flag] != 0):
                                break
                            place += step
                        marks[a] = place
                        found = 0 <= place < vals
                        if not found and out_flag < 0:
                            copies = np.int64(0)
                            break
                        for c in range(aggregations[a, WORDS]):
                            wanted[0, target + c] = inputs[head[val], aggregations[a, WORD] + c] if found else 0
                        if out_flag >= 0:
                            wanted[0, out_flag] = 1 if found else 0
                    elif kind == PRESENT:
                        val = marks[a]
                        while val < vals and val_acc[val] < aggregations[a, LIMIT]:
                            val += 1
                        marks[a] = val
                        if val == vals:
                            copies = np.int64(0)
                            break
                    elif kind == COPIES:
                        copies = max(np.int64(0), val_acc[0])
                    elif kind == COUNT:
                        if not fits(counts[a, 0], counts[a, 1]):
                            return out[:0], visits[:0], OVERFLOW, key
                        wanted[0, target] = counts[a, 1]
                    else:
                        # Null if no value has a multiplicity (a sum of values that cancel is 0); a mean needs a count.
                        has = flag < 0 or nonnull[a] > 0
                        if kind >= AVG:
                            if not fits(counts[a, 0], counts[a, 1]):
                                return out[:0], visits[:0], OVERFLOW, key
                            has = counts[a, 1] != 0
                        if out_flag >= 0:
                            wanted[0, out_flag] = 1 if has else 0
                        if not has:
                            wanted[0, target] = 0
                            if aggregations[a, LIMIT] > ONE_WORD:
                                wanted[0, target + 1] = 0
                        elif kind == SUM:
                            if not fits(sums[a, 0], sums[a, 1]):
                                return out[:0], visits[:0], OVERFLOW, key
                            wanted[0, target] = sums[a, 1]
                        elif want_number(aggregations, a, sums, counts, floats, wanted) != 0:
                            return out[:0], visits[:0], OVERFLOW, key
            if before_slice:
                if copies > 0:
                    live[0] = wanted[0]
                    live_acc[0] = live_exact[0] = copies
                    size = 1
                continue

            # wanted - had, at (time, now).
            p = 0
            matched = False
            if count + size + 1 > out.shape[0]:
                out = more_rows(out, count + size + 8)
            while p < size:
                goal = 0
                if copies > 0 and not matched and _same_words(live, p, wanted, 0, w):
                    matched = True
                    goal = copies
                owed, wrapped = add_checked(goal, -live_acc[p])
                if wrapped:
                    return out[:0], visits[:0], OVERFLOW, key
                if owed != 0:
                    out[count, 0] = keyed[key, 0]
                    for c in range(k):
                        out[count, 1 + c] = keyed[key, 1 + c]
                    for c in range(w):
                        out[count, 1 + k + c] = live[p, c]
                    out[count, 1 + k + w] = time
                    for c in range(d):
                        out[count, 2 + k + w + c] = now[c]
                    out[count, 2 + k + w + d] = owed
                    count += 1
                    live_acc[p] = goal
                    live_exact[p] += owed
                    if goal == 0 and live_exact[p] == 0:
                        size -= 1
                        for c in range(w):
                            live[p, c] = live[size, c]
                        live_acc[p] = live_acc[size]
                        live_exact[p] = live_exact[size]
                        continue
                p += 1
            if copies > 0 and not matched:
                out[count, 0] = keyed[key, 0]
                for c in range(k):
                    out[count, 1 + c] = keyed[key, 1 + c]
                for c in range(w):
                    out[count, 1 + k + c] = wanted[0, c]
                    live[size, c] = wanted[0, c]
                out[count, 1 + k + w] = time
                for c in range(d):
                    out[count, 2 + k + w + c] = now[c]
                out[count, 2 + k + w + d] = copies
                count += 1
                live_acc[size] = copies
                live_exact[size] = copies
                size += 1
    return out[:count], visits[:visit_count], 0, -1
