"""Aggregates as kernels/reducing.py uses them: their codes, their own orders of vals, and the less common numbers.

The state of a key is a few arrays with a row for each aggregation: sums (128 bits for integers, 256 for decimals),
counts of values, and exact sums of doubles. Only results have to fit their type.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.exact import (
    add_decimal,
    add_float,
    divide_decimal,
    divide_wide,
    read_decimal,
    read_float,
)
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.inlining import allocating
from vernier.storage.kernels.status import OVERFLOW

PRESENT, COPIES, MIN, MAX, COUNT, SUM, SUM_FLOAT, SUM_DECIMAL, AVG, AVG_FLOAT, AVG_DECIMAL = range(11)
"""Kinds of aggregations. PRESENT: the key once, while any of its vals has enough copies. COPIES: the key as often as
its only val has copies, if that is positive. The others are the least, greatest, count, sum and (from AVG on) mean of
integers, doubles and decimals."""
KIND, WORD, WORDS, FLAG, OUT, OUT_FLAG, LIMIT, SHIFT = range(8)
"""Columns of an aggregation: kind; first word, number of words and null flag of its input in the val (-1: none); word
and null flag of its output; the copies that PRESENT requires, or the digits that a decimal may have; the additional
fractional digits of a mean of decimals, or UNCOUNTED."""
FIELDS = 8
UNCOUNTED = -100
"""The SHIFT of sums that are the components of a vector of the program: their group exists while one of them is not 0,
whatever its number of rows."""

ONE_WORD = 18
"""Digits of a decimal that fits one word."""
_LEAST = np.int64(-(2**63))


@njit(cache=True)
def rank_vals(aggregations, ordered, by_content, head, vals, rank, ranked):  # type: ignore[no-untyped-def]
    """Orders of the vals that begin at entries head[:vals]: rank[a, val], and the inverse ranked[a, rank].

    Vals are sorted by their words. An aggregation that reads later words, or words whose order differs from that of
    their values, has an order of its own. For the others ranked[a, 0] stays -1.
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
    """Whether any aggregation has an order of its own."""
    for a in range(aggregations.shape[0]):
        kind = aggregations[a, KIND]
        if kind == MIN or kind == MAX:
            first = aggregations[a, FLAG] if aggregations[a, FLAG] >= 0 else aggregations[a, WORD]
            if first > 0 or by_content:
                return True
    return False


@njit(cache=True)
def need_floats(aggregations: np.ndarray) -> bool:
    """Whether any aggregation sums doubles."""
    for a in range(aggregations.shape[0]):
        if aggregations[a, KIND] == SUM_FLOAT or aggregations[a, KIND] == AVG_FLOAT:
            return True
    return False


@njit(cache=True)
def are_linear(aggregations: np.ndarray) -> bool:
    """Whether all aggregations are counts, sums and means, so that the group exists while its vector is not 0."""
    for a in range(aggregations.shape[0]):
        if aggregations[a, KIND] < COUNT:
            return False
    return aggregations.shape[0] > 0


@njit(cache=True)
def count_rows_too(aggregations: np.ndarray) -> bool:
    """Whether the number of rows belongs to the vector: not if the vector is one of the program."""
    for a in range(aggregations.shape[0]):
        if aggregations[a, SHIFT] == UNCOUNTED:
            return False
    return True


@njit(cache=True)
def absorb_number(aggregations, a, inputs, entry, diff, sums, floats):  # type: ignore[no-untyped-def]
    """Add `diff` copies of a double or a decimal. Returns whether a count of infinities or NaNs overflowed int64."""
    kind = aggregations[a, KIND]
    word = aggregations[a, WORD]
    if kind == SUM_FLOAT or kind == AVG_FLOAT:
        return add_float(floats[a], inputs[entry, word], diff)
    if aggregations[a, WORDS] == 1:
        hi = np.int64(-1) if inputs[entry, word] < 0 else np.int64(0)
        add_decimal(sums[a], hi, inputs[entry, word], diff)
    else:
        add_decimal(sums[a], inputs[entry, word], inputs[entry, word + 1] ^ _LEAST, diff)
    return False


@allocating
def has_sum(aggregations, a, sums, floats):  # type: ignore[no-untyped-def]
    """Whether the sum of an aggregation is not 0."""
    if aggregations[a, KIND] == SUM_FLOAT or aggregations[a, KIND] == AVG_FLOAT:
        return read_float(floats[a], 1) != 0
    some = np.int64(0)
    for c in range(sums.shape[1]):
        some |= sums[a, c]
    return some != 0


@allocating
def want_number(aggregations, a, sums, counts, floats, wanted):  # type: ignore[no-untyped-def]
    """Write the result of a sum of doubles or decimals, or of a mean, that is not null. Returns its status."""
    kind = aggregations[a, KIND]
    target = aggregations[a, OUT]
    first, second, fit = np.int64(0), np.int64(0), True
    if kind == AVG:
        first = divide_wide(sums[a, 0], sums[a, 1], counts[a, 1])
    elif kind == SUM_FLOAT:
        first = read_float(floats[a], 1)
    elif kind == AVG_FLOAT:
        first = read_float(floats[a], counts[a, 1])
    elif kind == SUM_DECIMAL:
        first, second, fit = read_decimal(sums[a], aggregations[a, LIMIT])
    else:
        first, second, fit = divide_decimal(sums[a], aggregations[a, SHIFT], counts[a, 1], aggregations[a, LIMIT])
    if kind != SUM_DECIMAL and kind != AVG_DECIMAL:
        wanted[0, target] = first
    elif aggregations[a, LIMIT] <= ONE_WORD:
        wanted[0, target] = second
    else:
        wanted[0, target] = first
        wanted[0, target + 1] = second ^ _LEAST
    return 0 if fit else OVERFLOW
