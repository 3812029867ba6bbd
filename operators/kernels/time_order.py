"""Sorting one key's changes by time."""

import numpy as np

from vernier.storage.kernels.inlining import allocating, inlined
from vernier.storage.kernels.separate import NOTHING, NUMBER, WORDS, separate
from vernier.storage.kernels.sorting import stable_order

_FEW = 48
"""Up to this many items, insertion sort is faster."""


@separate(NOTHING, WORDS, WORDS, NUMBER)
@allocating
def sorted_by_time(times: np.ndarray, picked: np.ndarray, count: int) -> None:
    """Sort picked[:count] (positions in `times`) by time, stably, in place."""
    if count > _FEW:
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


@allocating
def _sort_many(times: np.ndarray, diffs: np.ndarray, first: int, stop: int) -> None:
    """Sort the changes [first, stop) by time."""
    order = stable_order(times[first:stop])
    one, two = times[first:stop].copy(), diffs[first:stop].copy()
    for i in range(stop - first):
        times[first + i], diffs[first + i] = one[order[i]], two[order[i]]


@inlined
def sort_changes(times: np.ndarray, diffs: np.ndarray, start: int, first: int, stop: int) -> None:
    """Sort the changes [first, stop) by time, stably; [first, start) are sorted already."""
    if stop - start > _FEW:
        _sort_many(times, diffs, first, stop)
        return
    for i in range(start, stop):
        time, diff = times[i], diffs[i]
        j = i
        while j > first and times[j - 1] > time:
            times[j], diffs[j] = times[j - 1], diffs[j - 1]
            j -= 1
        times[j], diffs[j] = time, diff
