"""Keeps what ranks choose from groups (quantiles, modes, least and greatest values, numbers of values) over the data
times of a slice, without looking at whole groups.

The values of a column that a group has in the slice have places in their order, and a tree over these places follows
their copies: partial sums for quantiles (of 0 and 1 where only presence counts), or the place with the most copies of
each half of the places, for modes. A change costs O(log values). Outside loops only.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.corrections import write_correction
from vernier.operators.kernels.partial_sums import add_at, place_of
from vernier.operators.kernels.time_order import sorted_by_time
from vernier.operators.kernels.tops import longest_span, number_vals
from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.inlining import allocating, inlined
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.wide import add_wide, fits, multiply_wide

COPIES, PRESENCE, BEST = range(3)
"""What the tree of a column follows: copies of values, whether they are present, or which has the most copies."""
QUANTILE, MODE, LEAST, GREATEST, DISTINCT, COUNT = range(6)
"""Kinds of items."""
TREE, FLAG, FIRST, WORDS = range(4)
"""Columns of a column: what its tree follows; its null flag in the val (-1: none), its first word and their number."""
KIND, COLUMN, OUT, OUT_FLAG, SHARE, OF = range(6)
"""Columns of an item: kind, the column that it reads (of a COUNT: its null flag in the val, -1: none), its first word
and null flag in the output, and the share of a quantile."""
ITEM, COLUMN_FIELDS = 6, 4
TOO_MANY = -2
"""The status for copies of a row that leave int64; OVERFLOW is for the sums of them."""


@allocating
def _number_values(entries, ordered, by_content, heads, vals, columns, j, n, value_of, value_head):  # type: ignore[no-untyped-def]
    """Number the values of a column in their order: value_of[j * n + val], -1 for null, and an entry of each. Returns
    how many there are."""
    flag, first, words = columns[j, FLAG], columns[j, FIRST], columns[j, WORDS]
    in_order = (flag if flag >= 0 else first) == 0 and not by_content
    values = 0
    if in_order:
        for val in range(vals):
            if flag >= 0 and entries[heads[val], flag] == 0:
                value_of[j * n + val] = -1
                continue
            new = values == 0
            if not new:
                before = value_head[j * n + values - 1]
                for c in range(first, first + words):
                    new = new or entries[heads[val], c] != entries[before, c]
            if new:
                value_head[j * n + values] = heads[val]
                values += 1
            value_of[j * n + val] = values - 1
        return values
    picked, there = np.empty((vals, words), np.int64), np.empty(vals, np.int64)
    size = 0
    for val in range(vals):
        value_of[j * n + val] = -1
        if flag < 0 or entries[heads[val], flag] != 0:
            for c in range(words):
                picked[size, c] = ordered[heads[val], first + c]
            there[size] = val
            size += 1
    order = sort_order(picked[:size], np.arange(words))
    for i in range(size):
        new = i == 0
        for c in range(words if i > 0 else 0):
            new = new or picked[order[i], c] != picked[order[i - 1], c]
        if new:
            value_head[j * n + values] = heads[there[order[i]]]
            values += 1
        value_of[j * n + there[order[i]]] = values - 1
    return values


@inlined
def _leaves(size):  # type: ignore[no-untyped-def]
    """The least power of two that is at least `size`, and at least 1."""
    leaves = 1
    while leaves < size:
        leaves *= 2
    return leaves


@inlined
def _lift(best, base, leaves, copies, first, place):  # type: ignore[no-untyped-def]
    """Find anew which place has the most copies (of several, the first) above a place whose copies changed."""
    node = (leaves + place) >> 1
    while node > 0:
        left, right = word(best, base + 2 * node), word(best, base + 2 * node + 1)
        better = left
        if left < 0 or (right >= 0 and word(copies, first + right) > word(copies, first + left)):
            better = right
        put_word(best, base + node, better)
        node >>= 1


@inlined
def _add_copies(columns, j, n, sizes, place, more, copies, tree, totals):  # type: ignore[no-untyped-def]
    """Add to the copies of a value of column j. Returns whether a sum left int64."""
    was = word(copies, j * n + place)
    now, wrapped = add_checked(was, more)
    if wrapped:
        return True
    put_word(copies, j * n + place, now)
    kind, base = cell(columns, j, TREE), 4 * j * n
    if kind == BEST:
        _lift(tree, base, _leaves(word(sizes, j)), copies, j * n, place)
        return False
    if kind == PRESENCE:
        more = np.int64(now > 0) - np.int64(was > 0)
        if more == 0:
            return False
    total, wrapped = add_checked(word(totals, j), more)
    if wrapped:
        return True
    put_word(totals, j, total)
    add_at(tree, base, word(sizes, j), place, more)
    return False


@inlined
def _at_share(tree, base, size, total, share, of):  # type: ignore[no-untyped-def]
    """The first place such that it and those before it have copies, and at least share / of of all `total`."""
    need_hi, need_lo = multiply_wide(total, share)
    step, found, below = 1, 0, np.int64(0)
    while 2 * step <= size:
        step *= 2
    while step > 0:
        if found + step <= size:
            here = below + word(tree, base + found + step)
            hi, lo = multiply_wide(here, of)
            if here == 0 or hi < need_hi or (hi == need_hi and np.uint64(lo) < np.uint64(need_lo)):
                found += step
                below = here
        step >>= 1
    return found


@inlined
def _choose(columns, items, a, n, sizes, copies, tree, totals, counts):  # type: ignore[no-untyped-def]
    """The place of the value that item a chooses, or its number; -1 where it chooses none (of a number: if it does not
    fit)."""
    kind, j = cell(items, a, KIND), cell(items, a, COLUMN)
    if kind == COUNT:
        return cell(counts, a, 1)
    if kind == DISTINCT:
        return word(totals, j)
    size = word(sizes, j)
    if size == 0:
        return np.int64(-1)
    if kind == MODE:
        place = word(tree, 4 * j * n + 1) if size > 1 else np.int64(0)
        return place if word(copies, j * n + place) > 0 else np.int64(-1)
    total = word(totals, j)
    if total == 0:
        return np.int64(-1)
    if kind == LEAST:
        return np.int64(place_of(tree, 4 * j * n, size, 1))
    if kind == GREATEST:
        return np.int64(place_of(tree, 4 * j * n, size, total))
    return np.int64(_at_share(tree, 4 * j * n, size, total, cell(items, a, SHARE), cell(items, a, OF)))


@inlined
def _write_choice(columns, items, entries, n, value_head, chosen, wanted):  # type: ignore[no-untyped-def]
    """Write the output row of the chosen places and numbers to wanted[0]."""
    for a in range(items.shape[0]):
        kind, j = cell(items, a, KIND), cell(items, a, COLUMN)
        out, flag = cell(items, a, OUT), cell(items, a, OUT_FLAG)
        if kind == COUNT or kind == DISTINCT:
            put(wanted, 0, out, word(chosen, a))
            continue
        there = word(chosen, a) >= 0
        if flag >= 0:
            put(wanted, 0, flag, 1 if there else 0)
        for c in range(cell(columns, j, WORDS)):
            value = np.int64(0)
            if there:
                value = cell(entries, word(value_head, j * n + word(chosen, a)), cell(columns, j, FIRST) + c)
            put(wanted, 0, out + c, value)


@inlined
def _change(  # type: ignore[no-untyped-def]
    columns, items, entries, heads, val, diff, n, sizes, value_of, held, copies, tree, totals, counts
):
    """Add `diff` copies of a val. Returns (change of the number of vals with copies, status)."""
    was = word(held, val)
    now, wrapped = add_checked(was, diff)
    if wrapped:
        return 0, TOO_MANY
    more = max(now, np.int64(0)) - max(was, np.int64(0))
    put_word(held, val, now)
    for a in range(items.shape[0]):
        if cell(items, a, KIND) == COUNT:
            flag = cell(items, a, COLUMN)
            if flag < 0 or cell(entries, word(heads, val), flag) != 0:
                sign = np.int64(-1) if diff < 0 else np.int64(0)
                hi, lo = add_wide(cell(counts, a, 0), cell(counts, a, 1), sign, diff)
                put(counts, a, 0, hi)
                put(counts, a, 1, lo)
    for j in range(columns.shape[0] if more != 0 else 0):
        place = word(value_of, j * n + val)
        if place >= 0 and _add_copies(columns, j, n, sizes, place, more, copies, tree, totals):
            return 0, OVERFLOW
    return int(now != 0) - int(was != 0), 0


@inlined
def _clear(columns, j, n, size, copies, tree, totals, sizes):  # type: ignore[no-untyped-def]
    """Begin the tree of a column with `size` values, none of which has copies."""
    put_word(sizes, j, size)
    put_word(totals, j, 0)
    base = 4 * j * n
    for i in range(size):
        put_word(copies, j * n + i, 0)
    if cell(columns, j, TREE) != BEST:
        for i in range(size + 1):
            put_word(tree, base + i, 0)
        return
    leaves = _leaves(size)
    for i in range(leaves):
        put_word(tree, base + leaves + i, i if i < size else -1)
    for i in range(leaves - 1, 0, -1):
        left = word(tree, base + 2 * i)
        put_word(tree, base + i, left if left >= 0 else word(tree, base + 2 * i + 1))


@inlined
def _all_fit(items, counts):  # type: ignore[no-untyped-def]
    for a in range(items.shape[0]):
        if cell(items, a, KIND) == COUNT and not fits(cell(counts, a, 0), cell(counts, a, 1)):
            return False
    return True


@inlined
def _exists(items, live, chosen):  # type: ignore[no-untyped-def]
    """Whether the output row exists: some row of the group does, and all values that cannot be null are there."""
    if live == 0:
        return False
    for a in range(items.shape[0]):
        kind = cell(items, a, KIND)
        if kind != COUNT and kind != DISTINCT and cell(items, a, OUT_FLAG) < 0 and word(chosen, a) < 0:
            return False
    return True


@njit(cache=True)
def choose_keys(keys, k, spans, entries, ordered, by_content, v, columns, items, w, fold):  # type: ignore[no-untyped-def]
    """Corrections `[hash | key | out val (w) | time | diff]` of what the items choose of each key.

    keys[q, 1 + k], spans, entries: a Selection, of which times up to `fold` are older than the slice; ordered: the
    entries with texts in words that sort as they do (by_content), or the same; columns[m, 4], items[a, 6]: see above.
    Returns (corrections, status, key at fault). O(entries x (columns + log values)).
    """
    n, aggs = longest_span(spans), items.shape[0]
    number, heads = np.empty(n, np.int64), np.empty(n, np.int64)
    times, order, held = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    m = columns.shape[0]
    value_of, value_head, copies = np.empty(m * n, np.int64), np.empty(m * n, np.int64), np.empty(m * n, np.int64)
    tree = np.empty(4 * m * n + 4, np.int64)
    sizes, totals = np.empty(m, np.int64), np.empty(m, np.int64)
    counts = np.empty((aggs, 2), np.int64)
    chosen, before = np.empty(aggs, np.int64), np.empty(aggs, np.int64)
    had, wanted, never = np.zeros((1, w), np.int64), np.zeros((1, w), np.int64), np.empty(0, np.int64)
    out = np.empty((2 * keys.shape[0] + 16, 3 + k + w), np.int64)
    count = 0
    for key in range(keys.shape[0]):
        base, stop = cell(spans, key, 0), cell(spans, key, 1)
        vals = number_vals(entries, base, stop, v, number, heads)
        for j in range(m):
            size = _number_values(entries, ordered, by_content, heads, vals, columns, j, n, value_of, value_head)
            _clear(columns, j, n, size, copies, tree, totals, sizes)
        for val in range(vals):
            put_word(held, val, 0)
        for a in range(aggs):
            put(counts, a, 0, 0)
            put(counts, a, 1, 0)
        live, existed, fresh = 0, False, 0
        for e in range(base, stop):
            if cell(entries, e, v) > fold:
                put_word(times, e - base, cell(entries, e, v))
                put_word(order, fresh, e - base)
                fresh += 1
        sorted_by_time(times, order, fresh)
        first, step = 0, -1
        while first < fresh or step < 0:
            # The first step is the group before the slice.
            time, last = np.int64(0), first
            if step >= 0:
                time = word(times, word(order, first))
                while last < fresh and word(times, word(order, last)) == time:
                    last += 1
            # What falls comes first, so that sums which fit at the end fit on the way.
            for rising in range(2):
                for i in range(first if step >= 0 else base, last if step >= 0 else stop):
                    e = base + word(order, i) if step >= 0 else i
                    if step < 0 and cell(entries, e, v) > fold:
                        continue
                    val, diff = word(number, e - base), cell(entries, e, v + 1)
                    if (diff > 0) != (rising == 1):
                        continue
                    change, status = _change(
                        columns, items, entries, heads, val, diff, n, sizes, value_of, held, copies, tree, totals,
                        counts,
                    )  # fmt: skip
                    if status != 0:
                        return out[:0], status, key
                    live += change
            if not _all_fit(items, counts):
                return out[:0], OVERFLOW, key
            for a in range(aggs):
                put_word(chosen, a, _choose(columns, items, a, n, sizes, copies, tree, totals, counts))
            exists, same = _exists(items, live, chosen), True
            for a in range(aggs):
                same = same and word(chosen, a) == word(before, a)
            if step >= 0 and (exists != existed or (exists and not same)):
                if count + 2 > out.shape[0]:
                    out = more_rows(out, count + 2)
                if existed:
                    write_correction(out, count, keys, key, k, had, 0, 0, w, time, never, -1)
                    count += 1
                if exists:
                    _write_choice(columns, items, entries, n, value_head, chosen, wanted)
                    write_correction(out, count, keys, key, k, wanted, 0, 0, w, time, never, 1)
                    count += 1
            if exists:
                _write_choice(columns, items, entries, n, value_head, chosen, had)
            existed, first, step = exists, last, 0
            for a in range(aggs):
                put_word(before, a, word(chosen, a))
    return out[:count], 0, -1
