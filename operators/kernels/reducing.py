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
    SHIFT,
    SUM,
    UNCOUNTED,
    WORD,
    WORDS,
    absorb_number,
    are_linear,
    count_rows_too,
    has_sum,
    need_floats,
    need_ranks,
    rank_vals,
    want_number,
)
from vernier.operators.kernels.corrections import same_val, write_correction
from vernier.operators.kernels.exact import DECIMAL_WORDS, FLOAT_WORDS
from vernier.operators.kernels.rounds import agrees, below, finish_visits, schedule
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.wide import add_wide, fits, multiply_wide

VALS, MARK = 2, 3
"""Columns of counts[a], after the count: the vals with a value that have a non-zero multiplicity, and where the search
for the least or greatest val begins."""


@njit(cache=True)
def _longest(spans: np.ndarray) -> int:
    """The number of entries in the longest span, at least 1."""
    most = 1
    for i in range(spans.shape[0]):
        most = max(most, spans[i, 1] - spans[i, 0])
    return most


@inlined
def _clear(sums, counts, floats):  # type: ignore[no-untyped-def]
    """Reset what the aggregations have absorbed."""
    for a in range(sums.shape[0]):
        for c in range(DECIMAL_WORDS):
            put(sums, a, c, 0)
        for c in range(MARK):
            put(counts, a, c, 0)
        put(counts, a, MARK, -1)
        for c in range(floats.shape[1]):
            put(floats, a, c, 0)


@inlined
def _number(  # type: ignore[no-untyped-def]
    inputs, base, stop, v, now, fold, times, numbers, order, heads, copies, facts, visits, scheduled
):
    """Number the vals and facts of a key's entries, schedule its visits, and list the entries at most at `now`.

    numbers[i]: val and fact of entry i; heads, copies: first entry and copies (0) by val; facts: copies (0), and by
    level whether the fact's round agrees with `now`; order: the entries older than the slice, and, from the number of
    all entries on, the others. Returns (number of vals, older entries, end of the others, visits).
    """
    d = now.shape[0]
    first = scheduled
    val, fact, olds, end = -1, -1, 0, stop - base
    for e in range(base, stop):
        i = e - base
        new = i == 0 or not same_val(inputs, e, inputs, e - 1, v)
        reached = below(inputs, e, v + 1, now)
        if new:
            val += 1
            put_word(heads, val, e)
            put_word(copies, val, 0)
        else:
            for c in range(v + 1, v + 1 + d):
                if cell(inputs, e, c) != cell(inputs, e - 1, c):
                    new = True
                    break
        if new:
            fact += 1
            put(facts, fact, 0, 0)
            for c in range(d):
                put(facts, fact, 1 + c, 1 if cell(inputs, e, v + 1 + c) == word(now, c) else 0)
            if not reached:
                scheduled = schedule(visits, first, scheduled, inputs, e, v + 1, now)
        put(numbers, i, 0, val)
        put(numbers, i, 1, fact)
        put_word(times, i, cell(inputs, e, v))
        if reached and cell(inputs, e, v) > fold:
            put_word(order, end, i)
            end += 1
        elif reached:
            put_word(order, olds, i)
            olds += 1
    return val + 1, olds, end, scheduled


@borrowing
def _add_live(live, size, w, outputs, e, now):  # type: ignore[no-untyped-def]
    """Add an earlier output row to the live rows `[out val | copies | copies of this round]`. Returns (size,
    wrapped)."""
    exact = agrees(outputs, e, w + 1, now)
    diff = cell(outputs, e, w + 1 + now.shape[0])
    for p in range(size):
        if same_val(live, p, outputs, e, w):
            total, wrapped = add_checked(cell(live, p, w), diff)
            if wrapped:
                return size, True
            put(live, p, w, total)
            if exact:
                put(live, p, w + 1, cell(live, p, w + 1) + diff)
            if total == 0 and cell(live, p, w + 1) == 0:
                for c in range(w + 2):
                    put(live, p, c, cell(live, size - 1, c))
                return size - 1, False
            return size, False
    for c in range(w):
        put(live, size, c, cell(outputs, e, c))
    put(live, size, w, diff)
    put(live, size, w + 1, diff if exact else 0)
    return size + 1, False


@inlined
def _add_older(outputs, base, stop, w, now, fold, live, times, order):  # type: ignore[no-untyped-def]
    """Add the output older than the slice to the live rows, and put that of the slice in time order. Returns (live
    rows, outputs of the slice, wrapped)."""
    size, fresh = 0, 0
    for e in range(base, stop):
        put_word(times, e - base, cell(outputs, e, w))
        if not below(outputs, e, w + 1, now):
            continue
        if cell(outputs, e, w) > fold:
            put_word(order, fresh, e - base)
            fresh += 1
        else:
            size, wrapped = _add_live(live, size, w, outputs, e, now)
            if wrapped:
                return size, fresh, True
    sorted_by_time(times, order, fresh)
    return size, fresh, False


@inlined
def _absorb_number(aggregations, a, inputs, entry, diff, before, after, sums, counts, floats):  # type: ignore[no-untyped-def]
    """Add `diff` copies of the value in an entry to a count, a sum or a mean; its val had `before` copies and has
    `after`. Returns whether it wrapped."""
    kind = cell(aggregations, a, KIND)
    sign = np.int64(-1) if diff < 0 else np.int64(0)
    counts[a, 0], counts[a, 1] = add_wide(counts[a, 0], counts[a, 1], sign, diff)
    if kind == COUNT:
        return False
    if before == 0 and after != 0:
        counts[a, VALS] += 1
    elif before != 0 and after == 0:
        counts[a, VALS] -= 1
    if kind == SUM or kind == AVG:
        hi, lo = multiply_wide(inputs[entry, aggregations[a, WORD]], diff)
        sums[a, 0], sums[a, 1] = add_wide(sums[a, 0], sums[a, 1], hi, lo)
        return False
    return absorb_number(aggregations, a, inputs, entry, diff, sums, floats)


@inlined
def _absorb(  # type: ignore[no-untyped-def]
    aggregations,
    inputs,
    base,
    last,
    numbers,
    order,
    begin,
    end,
    heads,
    copies,
    facts,
    levels,
    sums,
    counts,
    floats,
    rank,
    linear,
    present,
):
    """Add the entries numbered order[begin:end], with their multiplicities in column `last`, to their vals and facts
    and to the aggregations. Returns (number of vals that have copies or, if the aggregations are linear, of copies;
    wrapped)."""
    for at in range(begin, end):
        i = word(order, at)
        diff = cell(inputs, base + i, last)
        val, fact = cell(numbers, i, 0), cell(numbers, i, 1)
        before = word(copies, val)
        after, wrapped = add_checked(before, diff)
        if wrapped:
            return present, True
        put_word(copies, val, after)
        if linear:
            present, wrapped = add_checked(present, diff)
            if wrapped:
                return present, True
        else:
            present += np.int64(after != 0) - np.int64(before != 0)
        was = cell(facts, fact, 0)
        put(facts, fact, 0, was + diff)
        turn = np.int64(was == 0) - np.int64(was + diff == 0)
        for c in range(levels.shape[0]):
            put_word(levels, c, word(levels, c) + turn * cell(facts, fact, 1 + c))
        entry = word(heads, val)
        for a in range(aggregations.shape[0]):
            kind, flag = cell(aggregations, a, KIND), cell(aggregations, a, FLAG)
            if kind == COPIES or (flag >= 0 and cell(inputs, entry, flag) == 0):
                continue
            if kind == MIN or kind == MAX or kind == PRESENT:
                # Vals below (for MAX: above) the mark are known not to be present, so they are not scanned again.
                if after > 0:
                    place = val
                    if rank.shape[1] > 0 and cell(rank, a, 0) >= 0:
                        place = cell(rank, a, val)
                    if (place > cell(counts, a, MARK)) == (kind == MAX):
                        put(counts, a, MARK, place)
            elif _absorb_number(aggregations, a, inputs, entry, diff, before, after, sums, counts, floats):
                return present, True
    return present, False


@inlined
def _idle(live, size, w, levels):  # type: ignore[no-untyped-def]
    """Whether no correction can be due: no output at this round, and some level of the loop has no input."""
    for p in range(size):
        if cell(live, p, w + 1) != 0:
            return False
    for c in range(levels.shape[0]):
        if word(levels, c) == 0:
            return True
    return False


@inlined
def _want_extreme(aggregations, a, inputs, heads, copies, size, counts, ranked, wanted):  # type: ignore[no-untyped-def]
    """Write the least or greatest of the `size` vals that are present. Returns whether the output row exists."""
    flag, out_flag, target = aggregations[a, FLAG], aggregations[a, OUT_FLAG], aggregations[a, OUT]
    own = ranked.shape[1] > 0 and ranked[a, 0] >= 0
    step = 1 if aggregations[a, KIND] == MIN else -1
    place = counts[a, MARK]
    val = place
    while 0 <= place < size:
        val = ranked[a, place] if own else place
        if copies[val] > 0 and (flag < 0 or inputs[heads[val], flag] != 0):
            break
        place += step
    counts[a, MARK] = place
    found = 0 <= place < size
    if not found and out_flag < 0:
        return False
    for c in range(aggregations[a, WORDS]):
        wanted[0, target + c] = inputs[heads[val], aggregations[a, WORD] + c] if found else 0
    if out_flag >= 0:
        wanted[0, out_flag] = 1 if found else 0
    return True


@inlined
def _want_number(aggregations, a, linear, sums, counts, floats, wanted):  # type: ignore[no-untyped-def]
    """Write a count, a sum or a mean. Returns its status."""
    kind, target, out_flag = aggregations[a, KIND], aggregations[a, OUT], aggregations[a, OUT_FLAG]
    if (kind == COUNT or kind >= AVG) and not fits(counts[a, 0], counts[a, 1]):
        return OVERFLOW
    if kind == COUNT:
        wanted[0, target] = counts[a, 1]
        return 0
    # Null if no value has a multiplicity (a sum of values that cancel is 0) or, where groups are vectors, if the number
    # of values and their sum are 0; a mean needs a count.
    has = counts[a, 1] != 0 if kind >= AVG else aggregations[a, FLAG] < 0 or counts[a, VALS] > 0
    if linear and kind < AVG and aggregations[a, FLAG] >= 0:
        has = counts[a, 0] != 0 or counts[a, 1] != 0 or has_sum(aggregations, a, sums, floats)
    if out_flag >= 0:
        wanted[0, out_flag] = 1 if has else 0
    if not has:
        wanted[0, target] = 0
        if aggregations[a, LIMIT] > ONE_WORD:
            wanted[0, target + 1] = 0
        return 0
    if kind == SUM:
        wanted[0, target] = sums[a, 1]
        return 0 if fits(sums[a, 0], sums[a, 1]) else OVERFLOW
    return want_number(aggregations, a, sums, counts, floats, wanted)


@inlined
def _weighs(aggregations, sums, counts, floats):  # type: ignore[no-untyped-def]
    """Whether a number of values or a sum is not 0."""
    for a in range(aggregations.shape[0]):
        # The values of a component of the program's own vector are not counted.
        if aggregations[a, SHIFT] != UNCOUNTED and (counts[a, 0] != 0 or counts[a, 1] != 0):
            return True
        if aggregations[a, KIND] != COUNT and has_sum(aggregations, a, sums, floats):
            return True
    return False


@inlined
def _want(aggregations, linear, inputs, heads, copies, size, sums, counts, floats, ranked, wanted):  # type: ignore[no-untyped-def]
    """Write the output row of a key that has `size` vals, some of them present. Returns (its copies, status)."""
    made = np.int64(1)
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        if kind == MIN or kind == MAX:
            if not _want_extreme(aggregations, a, inputs, heads, copies, size, counts, ranked, wanted):
                return np.int64(0), 0
        elif kind == PRESENT:
            val = counts[a, MARK]
            while val < size and copies[val] < aggregations[a, LIMIT]:
                val += 1
            counts[a, MARK] = val
            if val == size:
                return np.int64(0), 0
        elif kind == COPIES:
            made = max(np.int64(0), copies[0])
        else:
            status = _want_number(aggregations, a, linear, sums, counts, floats, wanted)
            if status != 0:
                return made, status
    return made, 0


@inlined
def _set_live(live, p, w, wanted, copies):  # type: ignore[no-untyped-def]
    """Make the wanted row live row p."""
    for c in range(w):
        put(live, p, c, cell(wanted, 0, c))
    put(live, p, w, copies)
    put(live, p, w + 1, copies)


@inlined
def _correct(  # type: ignore[no-untyped-def]
    live, size, w, wanted, copies, out, count, keyed, key, k, time, now
):
    """Write `wanted - had` at (time, now), and update the live rows. Returns (live rows, corrections, wrapped)."""
    p, matched = 0, False
    while p < size:
        goal = np.int64(0)
        if copies > 0 and not matched and same_val(live, p, wanted, 0, w):
            matched = True
            goal = copies
        owed, wrapped = add_checked(goal, -cell(live, p, w))
        if wrapped:
            return size, count, True
        if owed != 0:
            write_correction(out, count, keyed, key, k, live, p, 0, w, time, now, owed)
            count += 1
            put(live, p, w, goal)
            put(live, p, w + 1, cell(live, p, w + 1) + owed)
            if goal == 0 and cell(live, p, w + 1) == 0:
                size -= 1
                for c in range(w + 2):
                    put(live, p, c, cell(live, size, c))
                continue
        p += 1
    if copies > 0 and not matched:
        write_correction(out, count, keyed, key, k, wanted, 0, 0, w, time, now, copies)
        count += 1
        _set_live(live, size, w, wanted, copies)
        size += 1
    return size, count, False


@njit(cache=True)
def reduce_keys(  # type: ignore[no-untyped-def]
    keyed, k, in_spans, inputs, ordered, by_content, v, out_spans, outputs, w, now, fold, aggregations, total
):
    """Corrections and further visits of q keys at round `now`.

    keyed[q, >= 1 + k]; inputs and outputs: selections `[val | time | rounds | diff]` sorted by (val, rounds, time), in
    which times equal to `fold` are older than the slice; ordered: the same as inputs or, with `by_content`, inputs with
    words in the order of their values; w: words of an output val; aggregations[a, 8]: one PRESENT or COPIES row, or
    rows COUNT … MAX, or no row, which means the key while any val has copies. A key of counts, sums and means
    alone exists while one of these numbers, or that of its rows, is not 0. `total`: no output is kept; the earlier
    output is what the key's input at `fold` gives. Returns (corrections: keyed rows `[hash | key | out val | time | now
    | diff]`, visits `[rounds | hash | key]`, status, key at fault). O(history log history) per key, plus the vals
    scanned when a minimum or maximum leaves.
    """
    d = now.shape[0]
    q = keyed.shape[0]
    aggs = aggregations.shape[0]
    out = np.empty((4 * q + 16, 3 + k + w + d), np.int64)
    visits = np.empty((q + 16, d + 1 + k), np.int64)
    count, scheduled = 0, 0
    most_in, most_out = _longest(in_spans), _longest(out_spans)
    times, order = np.empty(most_in, np.int64), np.empty(2 * most_in, np.int64)
    numbers, facts = np.empty((most_in, 2), np.int64), np.empty((most_in, 1 + d), np.int64)
    heads, copies = np.empty(most_in, np.int64), np.empty(most_in, np.int64)
    levels = np.empty(d, np.int64)  # how many facts agree with `now`
    out_times, out_order = np.empty(most_out, np.int64), np.empty(most_out, np.int64)
    live = np.empty((most_in + most_out + 2, w + 2), np.int64)
    wanted = np.empty((1, w), np.int64)
    # Sums and counts are wider than 64 bits, because only emitted results have to fit.
    sums, counts = np.empty((aggs, DECIMAL_WORDS), np.int64), np.empty((aggs, 4), np.int64)
    floats = np.empty((aggs, FLOAT_WORDS if need_floats(aggregations) else 0), np.int64)
    ranks = most_in if need_ranks(aggregations, by_content) else 0
    rank, ranked = np.full((aggs, ranks), -1, np.int64), np.full((aggs, ranks), -1, np.int64)
    linear, counted = are_linear(aggregations), count_rows_too(aggregations)
    for key in range(q):
        base, stop = cell(in_spans, key, 0), cell(in_spans, key, 1)
        out_base, out_stop = cell(out_spans, key, 0), cell(out_spans, key, 1)
        if d > 0 and scheduled + stop - base > visits.shape[0]:
            visits = more_rows(visits, scheduled + stop - base)
        before = scheduled
        size, olds, last, scheduled = _number(
            inputs, base, stop, v, now, fold, times, numbers, order, heads, copies, facts, visits, scheduled
        )
        finish_visits(visits, before, scheduled, keyed, key, k, d)
        if last == stop - base:
            continue  # nothing has changed in this slice at rounds up to `now`
        if ranks > 0:
            rank_vals(aggregations, ordered, by_content, heads, size, rank, ranked)
        sorted_by_time(times, order[stop - base :], last - (stop - base))
        lives, out_last, wrapped = _add_older(outputs, out_base, out_stop, w, now, fold, live, out_times, out_order)
        if wrapped:
            return out[:0], visits[:0], OVERFLOW, key
        _clear(sums, counts, floats)
        for c in range(d):
            put_word(levels, c, 0)

        # Sweep: first all older entries, at `fold`, then every touched data time in order.
        time, cursor, end, out_cursor, present = fold, 0, olds, 0, 0
        while True:
            present, wrapped = _absorb(
                aggregations,
                inputs,
                base,
                v + 1 + d,
                numbers,
                order,
                cursor,
                end,
                heads,
                copies,
                facts,
                levels,
                sums,
                counts,
                floats,
                rank,
                linear,
                present,
            )
            if wrapped:
                return out[:0], visits[:0], OVERFLOW, key
            if time == fold:
                for a in range(aggs):
                    put(counts, a, MARK, size - 1 if cell(aggregations, a, KIND) == MAX else 0)
            while out_cursor < out_last and word(out_times, word(out_order, out_cursor)) <= time:
                lives, wrapped = _add_live(live, lives, w, outputs, out_base + word(out_order, out_cursor), now)
                if wrapped:
                    return out[:0], visits[:0], OVERFLOW, key
                out_cursor += 1
            if (time > fold or total) and not _idle(live, lives, w, levels):
                made = np.int64(0)
                exists = present != 0 and counted
                if linear and not exists:
                    exists = _weighs(aggregations, sums, counts, floats)
                if exists:
                    made, status = _want(
                        aggregations, linear, inputs, heads, copies, size, sums, counts, floats, ranked, wanted
                    )
                    if status != 0:
                        return out[:0], visits[:0], OVERFLOW, key
                if time > fold:
                    if count + lives + 1 > out.shape[0]:
                        out = more_rows(out, count + lives + 8)
                    lives, count, wrapped = _correct(live, lives, w, wanted, made, out, count, keyed, key, k, time, now)
                    if wrapped:
                        return out[:0], visits[:0], OVERFLOW, key
                elif made > 0:
                    _set_live(live, 0, w, wanted, made)
                    lives = 1
            cursor = end if time > fold else stop - base
            if cursor == last:
                break
            time = word(times, word(order, cursor))
            end = cursor + 1
            while end < last and word(times, word(order, end)) == time:
                end += 1
    return out[:count], visits[:scheduled], 0, -1
