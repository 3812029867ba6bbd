"""Variances of whole groups, in two passes: the mean first, then the squares of the distances from it.

A sum of squares less the square of a sum would be a few sums, which follow each change alone. But it loses all digits
where the values are far from 0: no digit of the variance of 1e9 + x is left in doubles. So a change costs the distinct
values of its group, as a quantile does. The result is a function of the sorted values, never of their arrival.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vernier.storage.updates import Ints

Doubles = np.ndarray[Any, np.dtype[np.float64]]

VARIANCES = frozenset({"var_pop", "var_samp"})
"""The kinds of these aggregates."""


class Variances(NamedTuple):
    """float64[g], and bool[g]: whether the group has enough values."""

    data: Doubles
    there: np.ndarray[Any, np.dtype[np.bool_]]


def variances(values: Doubles, copies: Ints, offsets: Ints, sample: bool) -> Variances:
    """The variance of each of g groups: distinct values float64[n] in order, group after group, with copies int64[n],
    split by offsets int64[g + 1]. sample: divided by one less than the number of values, so it needs two."""
    sizes = np.diff(offsets)
    data, there = np.zeros(len(sizes)), sizes > 0
    if not there.any():
        return Variances(data, there)
    starts, group = offsets[:-1][there], np.repeat(np.arange(int(there.sum())), sizes[there])
    weights, wide = copies.astype(np.longdouble), values.astype(np.longdouble)
    with np.errstate(all="ignore"):  # infinities give NaN, as in Spark
        count = np.add.reduceat(weights, starts)
        mean = np.add.reduceat(weights * wide, starts) / count
        apart = wide - mean[group]
        # What rounding left in the mean is taken off again.
        rest = np.add.reduceat(weights * apart, starts)
        squares = np.add.reduceat(weights * apart * apart, starts) - rest * rest / count
        found = np.maximum(squares, 0) / (count - 1 if sample else count)
    data[there] = found.astype(np.float64)
    if sample:
        there[there] = count > 1
        data[~there] = 0.0
    return Variances(data, there)
