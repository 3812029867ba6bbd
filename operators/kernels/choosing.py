"""Choices among the distinct values of groups, which are given in order with their copies."""

import numpy as np
from numba import njit

from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.wide import multiply_wide


@njit(cache=True)
def value_runs(rows: np.ndarray, order: np.ndarray, counts: np.ndarray):  # type: ignore[no-untyped-def]
    """Runs of equal rows in an order. rows[n, >= 1] begin with their group; counts[n]: copies.

    Returns (first[r]: a row of each run, copies[r], status, group at fault).
    """
    n = order.shape[0]
    first = np.empty(n, np.int64)
    copies = np.empty(n, np.int64)
    runs = 0
    for i in range(n):
        fresh = i == 0
        if not fresh:
            for c in range(rows.shape[1]):
                if rows[order[i], c] != rows[order[i - 1], c]:
                    fresh = True
                    break
        if fresh:
            first[runs] = order[i]
            copies[runs] = counts[order[i]]
            runs += 1
        else:
            copies[runs - 1], wrapped = add_checked(copies[runs - 1], counts[order[i]])
            if wrapped:
                return first[:0], copies[:0], OVERFLOW, rows[order[i], 0]
    return first[:runs], copies[:runs], 0, -1


@njit(cache=True)
def most_copies(offsets: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """The first run of each group with the most copies; -1 for a group without runs."""
    found = np.full(offsets.shape[0] - 1, -1, np.int64)
    for g in range(found.shape[0]):
        for run in range(offsets[g], offsets[g + 1]):
            if found[g] < 0 or copies[run] > copies[found[g]]:
                found[g] = run
    return found


@njit(cache=True)
def at_share(offsets: np.ndarray, copies: np.ndarray, share: int, of: int):  # type: ignore[no-untyped-def]
    """For each group, the first run such that it and the runs before it have at least share / of of the group's copies;
    -1 for a group without runs.

    Returns (runs, status, group at fault).
    """
    found = np.full(offsets.shape[0] - 1, -1, np.int64)
    for g in range(found.shape[0]):
        total = np.int64(0)
        for run in range(offsets[g], offsets[g + 1]):
            total, wrapped = add_checked(total, copies[run])
            if wrapped:
                return found, OVERFLOW, g
        need_hi, need_lo = multiply_wide(total, share)
        below = np.int64(0)
        for run in range(offsets[g], offsets[g + 1]):
            below += copies[run]
            hi, lo = multiply_wide(below, of)
            if hi > need_hi or (hi == need_hi and np.uint64(lo) >= np.uint64(need_lo)):
                found[g] = run
                break
    return found, 0, -1
