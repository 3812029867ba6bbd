"""Aggregates of one key: what each change adds to them, and what they are.

The state of a key is a few arrays with a row for each aggregation: sums (128 bits of integers, 256 of decimals), counts
of values, exact sums of doubles, how many vals with a value have a multiplicity, and marks: which vals are known not to
be present. Multiplicities by val are the caller's. Only what is read has to fit its type.
"""

import numpy as np
from numba import njit

from operators.kernels.exact import (
    DECIMAL_WORDS,
    FLOAT_WORDS,
    add_decimal,
    add_float,
    divide_decimal,
    divide_wide,
    read_decimal,
    read_float,
)
from storage.kernels.sorting import sort_order
from storage.kernels.status import OVERFLOW
from storage.kernels.wide import add_wide, fits, multiply_wide

PRESENT, COPIES, COUNT, SUM, SUM_FLOAT, SUM_DECIMAL, AVG, AVG_FLOAT, AVG_DECIMAL, MIN, MAX = range(11)
"""Kinds of aggregations: the key once while any of its vals has so many copies; the key as often as its one val has
copies, when it has any; and the columns count, sum and mean of integers, doubles and decimals, least and greatest."""
KIND, WORD, WORDS, FLAG, OUT, OUT_FLAG, LIMIT, SHIFT = range(8)
"""Columns of an aggregation: kind; first word, number of words and null flag of its input in the val (-1: none); word
and flag of its output; copies that PRESENT asks for, or digits that a decimal may have; digits that the mean of
decimals has more behind the point."""
FIELDS = 8

ONE_WORD = 18
"""Digits of a decimal that one word holds."""
_LEAST = np.int64(-(2**63))


@njit(cache=True)
def rank_vals(aggregations, ordered, by_content, head, vals, rank, ranked):  # type: ignore[no-untyped-def]
    """Orders of the vals that begin at entries head[:vals]: rank[a, val], and ranked[a, rank] the other way.

    Vals are in order of their words; an aggregation that looks at later ones, or at words whose order is not that of
    their values, has an order of its own. ranked[a, 0] stays -1 for the others.
    """
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        if kind != MIN and kind != MAX:
            continue
        flag = aggregations[a, FLAG]
        first = flag if flag >= 0 else aggregations[a, WORD]
        if first == 0 and not by_content:
            continue
        words = aggregations[a, WORDS] + (1 if flag >= 0 else 0)
        rows = np.empty((vals, words), np.int64)
        for val in range(vals):
            for c in range(words):
                rows[val, c] = ordered[head[val], first + c]
        order = sort_order(rows, np.arange(words))
        for place in range(vals):
            ranked[a, place] = order[place]
            rank[a, order[place]] = place


@njit(cache=True)
def need_ranks(aggregations: np.ndarray, by_content: bool) -> bool:
    """Whether an aggregation has an order of its own."""
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        if kind == MIN or kind == MAX:
            first = aggregations[a, FLAG] if aggregations[a, FLAG] >= 0 else aggregations[a, WORD]
            if first > 0 or by_content:
                return True
    return False


@njit(cache=True)
def need_floats(aggregations: np.ndarray) -> bool:
    """Whether an aggregation sums doubles."""
    for a in range(aggregations.shape[0]):
        if aggregations[a, KIND] == SUM_FLOAT or aggregations[a, KIND] == AVG_FLOAT:
            return True
    return False


@njit(cache=True)
def absorb(  # type: ignore[no-untyped-def]
    aggregations, inputs, entry, val, before, after, diff, sums, counts, floats, nonnull, marks, rank, ranked
):
    """Add `diff` copies of a val, whose words are those of an entry and whose copies go from `before` to `after`.

    Returns whether a count of infinities or NaNs has left int64.
    """
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        flag = aggregations[a, FLAG]
        if flag >= 0 and inputs[entry, flag] == 0:
            continue
        if kind == MIN or kind == MAX or kind == PRESENT:
            # Vals below (above) the mark are known not to be present, so they need not be scanned again.
            if after > 0:
                place = rank[a, val] if rank.shape[1] > 0 and ranked[a, 0] >= 0 else val
                marks[a] = max(marks[a], place) if kind == MAX else min(marks[a], place)
            continue
        if kind == COPIES:
            continue
        if kind != SUM and kind != SUM_FLOAT and kind != SUM_DECIMAL:
            sign = np.int64(-1) if diff < 0 else np.int64(0)
            counts[a, 0], counts[a, 1] = add_wide(counts[a, 0], counts[a, 1], sign, diff)
            if kind == COUNT:
                continue
        if before == 0 and after != 0:
            nonnull[a] += 1
        elif before != 0 and after == 0:
            nonnull[a] -= 1
        word = aggregations[a, WORD]
        if kind == SUM or kind == AVG:
            hi, lo = multiply_wide(inputs[entry, word], diff)
            sums[a, 0], sums[a, 1] = add_wide(sums[a, 0], sums[a, 1], hi, lo)
        elif kind == SUM_FLOAT or kind == AVG_FLOAT:
            if add_float(floats[a], inputs[entry, word], diff):
                return True
        elif aggregations[a, WORDS] == 1:
            hi = np.int64(-1) if inputs[entry, word] < 0 else np.int64(0)
            add_decimal(sums[a], hi, inputs[entry, word], diff)
        else:
            add_decimal(sums[a], inputs[entry, word], inputs[entry, word + 1] ^ _LEAST, diff)
    return False


@njit(cache=True)
def want(  # type: ignore[no-untyped-def]
    aggregations, inputs, head, vals, val_acc, sums, counts, floats, nonnull, marks, ranked, wanted
):
    """Write what the aggregates of a key are to the row `wanted`; returns (copies of it, status)."""
    copies = np.int64(1)
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        flag = aggregations[a, FLAG]
        target = aggregations[a, OUT]
        out_flag = aggregations[a, OUT_FLAG]
        if kind == PRESENT:
            val = marks[a]
            while val < vals and val_acc[val] < aggregations[a, LIMIT]:
                val += 1
            marks[a] = val
            if val == vals:
                return 0, 0
        elif kind == COPIES:
            copies = max(np.int64(0), val_acc[0])
        elif kind == COUNT:
            if not fits(counts[a, 0], counts[a, 1]):
                return 0, OVERFLOW
            wanted[target] = counts[a, 1]
        elif kind == MIN or kind == MAX:
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
                return 0, 0
            for c in range(aggregations[a, WORDS]):
                wanted[target + c] = inputs[head[val], aggregations[a, WORD] + c] if found else 0
            if out_flag >= 0:
                wanted[out_flag] = 1 if found else 0
        else:
            # Null when no value weighs in; a sum of values that cancel is 0. A mean needs a count that is not 0.
            has = flag < 0 or nonnull[a] > 0
            if kind == AVG or kind == AVG_FLOAT or kind == AVG_DECIMAL:
                if not fits(counts[a, 0], counts[a, 1]):
                    return 0, OVERFLOW
                has = counts[a, 1] != 0
            if out_flag >= 0:
                wanted[out_flag] = 1 if has else 0
            first, second, fit = np.int64(0), np.int64(0), True
            if has:
                if kind == SUM:
                    first, fit = sums[a, 1], fits(sums[a, 0], sums[a, 1])
                elif kind == AVG:
                    first = divide_wide(sums[a, 0], sums[a, 1], counts[a, 1])
                elif kind == SUM_FLOAT:
                    first = read_float(floats[a], 1)
                elif kind == AVG_FLOAT:
                    first = read_float(floats[a], counts[a, 1])
                elif kind == SUM_DECIMAL:
                    first, second, fit = read_decimal(sums[a], aggregations[a, LIMIT])
                else:
                    first, second, fit = divide_decimal(
                        sums[a], aggregations[a, SHIFT], counts[a, 1], aggregations[a, LIMIT]
                    )
                if not fit:
                    return 0, OVERFLOW
            if kind != SUM_DECIMAL and kind != AVG_DECIMAL:
                wanted[target] = first
            elif aggregations[a, LIMIT] <= ONE_WORD:
                wanted[target] = second
            else:
                wanted[target] = first
                wanted[target + 1] = second ^ _LEAST if has else 0
    return copies, 0


@njit(cache=True)
def aggregate_groups(offsets, vals, ordered, by_content, multiplicities, aggregations, w):  # type: ignore
    """The aggregates of whole groups: rows vals[offsets[g] : offsets[g + 1]], sorted, with multiplicities that are not
    0; ordered, by_content: as in reduce_keys.

    Returns (int64[g, w] rows of output words, copies int64[g] of each, 0 where a group has none; status; group at
    fault).
    """
    g = offsets.shape[0] - 1
    out = np.zeros((g, w), np.int64)
    copies = np.zeros(g, np.int64)
    most = 1
    for group in range(g):
        most = max(most, offsets[group + 1] - offsets[group])
    aggs = aggregations.shape[0]
    orders = most if need_ranks(aggregations, by_content) else 0
    rank = np.empty((aggs, orders), np.int64)
    ranked = np.full((aggs, orders), -1, np.int64)
    sums = np.empty((aggs, DECIMAL_WORDS), np.int64)
    counts = np.empty((aggs, 2), np.int64)
    floats = np.empty((aggs, FLOAT_WORDS if need_floats(aggregations) else 0), np.int64)
    nonnull = np.empty(aggs, np.int64)
    marks = np.empty(aggs, np.int64)
    for group in range(g):
        first, stop = offsets[group], offsets[group + 1]
        if first == stop:
            continue
        head = np.arange(first, stop)
        sums[:] = 0
        counts[:] = 0
        floats[:] = 0
        nonnull[:] = 0
        if orders > 0:
            rank_vals(aggregations, ordered, by_content, head, stop - first, rank, ranked)
        for entry in range(first, stop):
            if absorb(
                aggregations, vals, entry, entry - first, 0, multiplicities[entry], multiplicities[entry], sums,
                counts, floats, nonnull, marks, rank, ranked,
            ):  # fmt: skip
                return out, copies, OVERFLOW, group
        for a in range(aggs):
            marks[a] = stop - first - 1 if aggregations[a, KIND] == MAX else 0
        copies[group], status = want(
            aggregations, vals, head, stop - first, multiplicities[first:stop], sums, counts, floats, nonnull, marks,
            ranked, out[group],
        )  # fmt: skip
        if status != 0:
            return out, copies, status, group
    return out, copies, 0, -1
