"""Round coordinates: which rows belong to which round, and where each key's rows are."""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, copy_rows, put, word
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.cursors import key_runs
from vernier.storage.kernels.inlining import inlined


@njit(cache=True, inline="always")
def below(entries: np.ndarray, e: int, first: int, now: np.ndarray) -> bool:
    """Whether the rounds of entry e, from column `first` on, are at most `now` in every loop."""
    for c in range(now.shape[0]):
        if cell(entries, e, first + c) > now[c]:
            return False
    return True


@inlined
def agrees(entries, e, first, now):  # type: ignore[no-untyped-def]
    """Whether the rounds of entry e, from column `first` on, are exactly `now`."""
    for c in range(now.shape[0]):
        if cell(entries, e, first + c) != word(now, c):
            return False
    return True


@inlined
def schedule(visits, first, count, rows, i, start, now):  # type: ignore[no-untyped-def]
    """Add the least upper bound of `now` and the rounds of row i to visits[first:count], unless it is there already.
    Returns the new count."""
    d = now.shape[0]
    for p in range(count - 1, first - 1, -1):
        known = True
        for c in range(d):
            if cell(visits, p, c) != max(word(now, c), cell(rows, i, start + c)):
                known = False
                break
        if known:
            return count
    for c in range(d):
        put(visits, count, c, max(word(now, c), cell(rows, i, start + c)))
    return count + 1


@inlined
def finish_visits(visits, first, stop, keyed, key, k, d):  # type: ignore[no-untyped-def]
    """Write the key of visits[first:stop] behind their d rounds."""
    for i in range(first, stop):
        for c in range(1 + k):
            put(visits, i, d + c, cell(keyed, key, c))


@njit(cache=True)
def touched_keys(rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys `[hash | key (k)]` of keyed rows sorted by key, and the offsets of their runs."""
    runs = key_runs(rows, k)
    keys = np.empty((runs.shape[0] - 1, 1 + k), np.int64)
    for i in range(keys.shape[0]):
        for c in range(1 + k):
            keys[i, c] = rows[runs[i], c]
    return keys, runs


@njit(cache=True, inline="always")
def _order(keys, i, others, j, k):  # type: ignore[no-untyped-def]
    """Compare key i with key j of `others`: negative, 0 or positive. The hash of a one-word key determines the key."""
    for c in range(1 + k if k > 1 else 1):
        if cell(keys, i, c) != cell(others, j, c):
            return -1 if cell(keys, i, c) < cell(others, j, c) else 1
    return 0


@njit(cache=True)
def _merge_runs(keys, starts, k):  # type: ignore[no-untyped-def]
    """Merge sorted runs of keys in pairs of neighbours. Returns (keys, starts of the remaining runs and the end). Each
    run has a key once. O(keys)."""
    out, begins = np.empty_like(keys), np.empty(starts.shape[0] // 2 + 1, np.int64)
    runs, made, count = starts.shape[0] - 1, 0, 0
    for first in range(0, runs, 2):
        i, end = starts[first], starts[first + 1]
        j, stop = end, starts[min(first + 2, runs)]
        begins[made] = count
        while i < end or j < stop:
            if j == stop or (i < end and _order(keys, i, keys, j, k) <= 0):
                at = i
                i += 1
            else:
                at = j
                j += 1
            if count == begins[made] or _order(keys, at, out, count - 1, k) != 0:
                for c in range(1 + k):
                    put(out, count, c, cell(keys, at, c))
                count += 1
        made += 1
    begins[made] = count
    return out, begins


@njit(cache=True)
def visited_keys(rows: np.ndarray, scheduled: np.ndarray, k: int) -> np.ndarray:
    """The keys `[hash | key (k)]` of keyed rows sorted by key and of `scheduled[n, 1 + k]`, distinct and sorted.

    `scheduled` consists of sorted runs: one for each piece of each step that scheduled visits, one after the other.
    O(n log runs).
    """
    found, _ = touched_keys(rows, k)
    touched, n = found.shape[0], scheduled.shape[0]
    if n == 0:
        return found
    keys = np.empty((touched + n, 1 + k), np.int64)
    copy_rows(found, 0, touched, keys, 0)
    copy_rows(scheduled, 0, n, keys, touched)
    starts = np.empty(touched + n + 1, np.int64)
    runs = 0
    for i in range(touched + n):
        if i == 0 or _order(keys, i - 1, keys, i, k) > 0:
            starts[runs] = i
            runs += 1
    starts[runs] = touched + n
    starts = starts[: runs + 1]
    while True:
        keys, starts = _merge_runs(keys, starts, k)
        if starts.shape[0] == 2:
            return keys[: starts[1]]


@njit(cache=True)
def split_rounds(data: np.ndarray, first: int, depth: int):  # type: ignore[no-untyped-def]
    """Group rows by their round coordinates `data[:, first : first + depth]`.

    Returns (rows grouped, offsets[groups + 1], rounds[groups, depth]). Groups are in lexicographic order, and rows keep
    their order within a group. If all rows share one round, they are returned as they are.
    """
    n = data.shape[0]
    same = True
    for i in range(1, n):
        for c in range(first, first + depth):
            if data[i, c] != data[0, c]:
                same = False
                break
        if not same:
            break
    if same:
        rounds = np.empty((1, depth), np.int64)
        for c in range(depth):
            rounds[0, c] = data[0, first + c]
        return data, np.array([0, n]), rounds
    order = sort_order(data, np.arange(first, first + depth))
    out = np.empty_like(data)
    offsets = np.empty(n + 1, np.int64)
    rounds = np.empty((n, depth), np.int64)
    groups = 0
    for i in range(n):
        for c in range(data.shape[1]):
            put(out, i, c, cell(data, order[i], c))
        fresh = i == 0
        if not fresh:
            for c in range(first, first + depth):
                if out[i, c] != out[i - 1, c]:
                    fresh = True
                    break
        if fresh:
            offsets[groups] = i
            for c in range(depth):
                rounds[groups, c] = out[i, first + c]
            groups += 1
    offsets[groups] = n
    return out, offsets[: groups + 1], rounds[:groups]


@njit(cache=True)
def split_visits(visits: np.ndarray, depth: int):  # type: ignore[no-untyped-def]
    """Group visits `[rounds (depth) | hash | key]` by round. Returns (keys `[hash | key]`, offsets, rounds), as
    `split_rounds` does."""
    grouped, offsets, rounds = split_rounds(visits, 0, depth)
    keys = np.empty((grouped.shape[0], grouped.shape[1] - depth), np.int64)
    for i in range(keys.shape[0]):
        for c in range(keys.shape[1]):
            keys[i, c] = grouped[i, depth + c]
    return keys, offsets, rounds


@njit(cache=True)
def relocate(data: np.ndarray, width: int, depth: int, coordinates: np.ndarray, sign: int) -> np.ndarray:
    """Updates `[row (width) | time | rounds (depth) | diff]` with the rounds replaced by `coordinates` and the diffs
    multiplied by `sign`."""
    n, target = data.shape[0], coordinates.shape[0]
    out = np.empty((n, width + target + 2), np.int64)
    for i in range(n):
        for c in range(width + 1):
            out[i, c] = data[i, c]
        for c in range(target):
            out[i, width + 1 + c] = coordinates[c]
        out[i, width + 1 + target] = data[i, width + 1 + depth] * sign
    return out
