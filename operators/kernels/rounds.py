"""Round coordinates: which rows belong to which round, and which keys stand where."""

import numpy as np
from numba import njit

from storage.kernels.cells import cell
from storage.kernels.consolidating import sort_order
from storage.kernels.cursors import key_runs


@njit(cache=True, inline="always")
def below(entries: np.ndarray, e: int, first: int, now: np.ndarray) -> bool:
    """Whether the rounds of entry e, from column `first` on, are at most `now` in every loop."""
    for c in range(now.shape[0]):
        if cell(entries, e, first + c) > now[c]:
            return False
    return True


@njit(cache=True)
def touched_keys(rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The keys `[hash | key (k)]` of keyed rows sorted by key, each once, and the offsets of their runs."""
    runs = key_runs(rows, k)
    keys = np.empty((runs.shape[0] - 1, 1 + k), np.int64)
    for i in range(keys.shape[0]):
        for c in range(1 + k):
            keys[i, c] = rows[runs[i], c]
    return keys, runs


@njit(cache=True)
def visited_keys(rows: np.ndarray, scheduled: np.ndarray, k: int) -> np.ndarray:
    """The keys `[hash | key (k)]` of keyed rows sorted by key and of `scheduled[n, 1 + k]`, in any order: each once,
    sorted. O(rows + n log n)."""
    found, _ = touched_keys(rows, k)
    touched, n = found.shape[0], scheduled.shape[0]
    if n == 0:
        return found
    keys = np.empty((touched + n, 1 + k), np.int64)
    keys[:touched] = found
    keys[touched:] = scheduled
    # The hash of one word is the key.
    order = sort_order(keys, np.arange(1 + k if k > 1 else 1))
    out = np.empty_like(keys)
    count = 0
    for i in range(touched + n):
        new = count == 0
        for c in range(1 + k):
            out[count, c] = keys[order[i], c]
            if not new and out[count, c] != out[count - 1, c]:
                new = True
        if new:
            count += 1
    return out[:count]


@njit(cache=True)
def split_rounds(data: np.ndarray, first: int, depth: int):  # type: ignore[no-untyped-def]
    """Group rows by their round coordinates `data[:, first : first + depth]`.

    Returns (rows grouped, offsets[groups + 1], rounds[groups, depth]); groups ascend lexicographically, stable
    within. Rows that share one round already are returned as they are.
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
        out[i] = data[order[i]]
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
    """Group visits `[rounds (depth) | hash | key]`: (keys `[hash | key]` by round, offsets, rounds), as `split_rounds`
    has it."""
    grouped, offsets, rounds = split_rounds(visits, 0, depth)
    keys = np.empty((grouped.shape[0], grouped.shape[1] - depth), np.int64)
    for i in range(keys.shape[0]):
        for c in range(keys.shape[1]):
            keys[i, c] = grouped[i, depth + c]
    return keys, offsets, rounds


@njit(cache=True)
def relocate(data: np.ndarray, width: int, depth: int, coordinates: np.ndarray, sign: int) -> np.ndarray:
    """Updates `[row (width) | time | rounds (depth) | diff]` with the rounds replaced by `coordinates` and diffs
    times `sign`."""
    n, target = data.shape[0], coordinates.shape[0]
    out = np.empty((n, width + target + 2), np.int64)
    for i in range(n):
        for c in range(width + 1):
            out[i, c] = data[i, c]
        for c in range(target):
            out[i, width + 1 + c] = coordinates[c]
        out[i, width + 1 + target] = data[i, width + 1 + depth] * sign
    return out
