"""Merge two tries into one, a bounded piece at a time.

All that a merge in progress knows is in its `state` and in the output arrays, so a call may stop after any val and the
next goes on from there. Folding old times to `since` may make entries of a val equal; they are summed, and what comes
to nothing is left out with its val and its key.
"""

import numpy as np
from numba import njit

from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASHES,
    KEY_OFFSETS,
    KEY_WORDS,
    KEYS,
    ROUND_STRIDE,
    ROUNDS,
    TIME_STRIDE,
    TIMES,
    VAL_OFFSETS,
    VALS,
)

KEY_A, KEY_B, VAL_A, END_A, VAL_B, END_B = 0, 1, 2, 3, 4, 5
"""State: the keys that come next; inside a key the vals that come next and where they end."""
OUT_KEYS, OUT_VALS, OUT_UPDATES, OUT_KEY_START = 6, 7, 8, 9
"""State: how much has been written, and where the vals of the open key begin."""
OPEN, DONE, MANY_TIMES, MANY_ROUNDS, MANY_DIFFS = 10, 11, 12, 13, 14
"""State: whether a key is open, all is done, and times, rounds and diffs are not constant."""
READ = 15
"""State: how many updates of the two have been read."""
STATE_WORDS = 16


@njit(cache=True, inline="always")
def _offset(address: int, index: int) -> int:
    return index if address == 0 else load(address, index)


@njit(cache=True, inline="always")
def _compare_keys(a: np.ndarray, i: int, b: np.ndarray, j: int, k: int) -> int:
    x, y = load(a[HASHES], i), load(b[HASHES], j)
    if x != y:
        return -1 if x < y else 1
    if k > 1:
        for c in range(k):
            x, y = load(a[KEY_WORDS], i * k + c), load(b[KEY_WORDS], j * k + c)
            if x != y:
                return -1 if x < y else 1
    return 0


@njit(cache=True, inline="always")
def _compare_vals(a: np.ndarray, i: int, b: np.ndarray, j: int, v: int) -> int:
    for c in range(v):
        x, y = load(a[VALS], i * v + c), load(b[VALS], j * v + c)
        if x != y:
            return -1 if x < y else 1
    return 0


@njit(cache=True, inline="always")
def _compare_entries(a: np.ndarray, i: int, b: np.ndarray, j: int, d: int, since: int) -> int:
    for c in range(d):
        x, y = load(a[ROUNDS], i * a[ROUND_STRIDE] + c), load(b[ROUNDS], j * b[ROUND_STRIDE] + c)
        if x != y:
            return -1 if x < y else 1
    x = max(load(a[TIMES], i * a[TIME_STRIDE]), since)
    y = max(load(b[TIMES], j * b[TIME_STRIDE]), since)
    return 0 if x == y else -1 if x < y else 1


@njit(cache=True)
def merge_piece(  # type: ignore[no-untyped-def]
    a, b, k, v, d, since, fuel, state, hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs
):
    """Go on merging the tries `a` and `b` (rows of addresses) for about `fuel` updates of them.

    The output arrays have room for both. state: int64[STATE_WORDS], zeros at first; state[DONE] is set at the end, when
    key_offsets and val_offsets are closed. Returns OK or OVERFLOW. O(fuel), more only by the history of a single val.
    """
    keys_a, keys_b = a[KEYS], b[KEYS]
    key_a, key_b = state[KEY_A], state[KEY_B]
    va, end_a, vb, end_b = state[VAL_A], state[END_A], state[VAL_B], state[END_B]
    nk, nv, n, key_start = state[OUT_KEYS], state[OUT_VALS], state[OUT_UPDATES], state[OUT_KEY_START]
    is_open = state[OPEN] == 1
    many_times, many_rounds, many_diffs = state[MANY_TIMES] == 1, state[MANY_ROUNDS] == 1, state[MANY_DIFFS] == 1
    while fuel > 0:
        if not is_open:
            if key_a < keys_a and key_b < keys_b:
                order = _compare_keys(a, key_a, b, key_b, k)
            elif key_a < keys_a:
                order = -1
            elif key_b < keys_b:
                order = 1
            else:
                key_offsets[nk] = nv
                val_offsets[nv] = n
                state[DONE] = 1
                break
            va = end_a = vb = end_b = 0
            if order <= 0:
                hashes[nk] = load(a[HASHES], key_a)
                if k > 1:
                    for c in range(k):
                        keys[nk, c] = load(a[KEY_WORDS], key_a * k + c)
                va, end_a = _offset(a[KEY_OFFSETS], key_a), _offset(a[KEY_OFFSETS], key_a + 1)
                key_a += 1
            if order >= 0:
                hashes[nk] = load(b[HASHES], key_b)
                if k > 1:
                    for c in range(k):
                        keys[nk, c] = load(b[KEY_WORDS], key_b * k + c)
                vb, end_b = _offset(b[KEY_OFFSETS], key_b), _offset(b[KEY_OFFSETS], key_b + 1)
                key_b += 1
            key_start = nv
            is_open = True
        while fuel > 0 and (va < end_a or vb < end_b):
            if va < end_a and vb < end_b:
                order = _compare_vals(a, va, b, vb, v)
            else:
                order = -1 if va < end_a else 1
            ha = stop_a = hb = stop_b = 0
            if order <= 0:
                ha, stop_a = _offset(a[VAL_OFFSETS], va), _offset(a[VAL_OFFSETS], va + 1)
                for c in range(v):
                    vals[nv, c] = load(a[VALS], va * v + c)
                va += 1
            if order >= 0:
                hb, stop_b = _offset(b[VAL_OFFSETS], vb), _offset(b[VAL_OFFSETS], vb + 1)
                for c in range(v):
                    vals[nv, c] = load(b[VALS], vb * v + c)
                vb += 1
            fuel -= stop_a - ha + stop_b - hb
            state[READ] += stop_a - ha + stop_b - hb
            first = n
            while ha < stop_a or hb < stop_b:
                if ha < stop_a and hb < stop_b:
                    from_a = _compare_entries(a, ha, b, hb, d, since) <= 0
                else:
                    from_a = ha < stop_a
                if from_a:
                    time = max(load(a[TIMES], ha * a[TIME_STRIDE]), since)
                    diff = load(a[DIFFS], ha * a[DIFF_STRIDE])
                    for c in range(d):
                        rounds[n, c] = load(a[ROUNDS], ha * a[ROUND_STRIDE] + c)
                    ha += 1
                else:
                    time = max(load(b[TIMES], hb * b[TIME_STRIDE]), since)
                    diff = load(b[DIFFS], hb * b[DIFF_STRIDE])
                    for c in range(d):
                        rounds[n, c] = load(b[ROUNDS], hb * b[ROUND_STRIDE] + c)
                    hb += 1
                equal = n > first and times[n - 1] == time
                if equal:
                    for c in range(d):
                        if rounds[n, c] != rounds[n - 1, c]:
                            equal = False
                            break
                if equal:
                    diffs[n - 1], wrapped = add_checked(diffs[n - 1], diff)
                    if wrapped:
                        return OVERFLOW
                else:
                    if n > first and diffs[n - 1] == 0:
                        times[n - 1] = time
                        diffs[n - 1] = diff
                        for c in range(d):
                            rounds[n - 1, c] = rounds[n, c]
                    else:
                        times[n] = time
                        diffs[n] = diff
                        n += 1
            if n > first and diffs[n - 1] == 0:
                n -= 1
            if n > first:
                for h in range(first, n):
                    many_times = many_times or times[h] != times[0]
                    many_diffs = many_diffs or diffs[h] != diffs[0]
                    for c in range(d):
                        many_rounds = many_rounds or rounds[h, c] != rounds[0, c]
                val_offsets[nv] = first
                nv += 1
        if va == end_a and vb == end_b:
            if nv > key_start:
                key_offsets[nk] = key_start
                nk += 1
            is_open = False
    state[KEY_A], state[KEY_B] = key_a, key_b
    state[VAL_A], state[END_A], state[VAL_B], state[END_B] = va, end_a, vb, end_b
    state[OUT_KEYS], state[OUT_VALS], state[OUT_UPDATES], state[OUT_KEY_START] = nk, nv, n, key_start
    state[OPEN] = 1 if is_open else 0
    state[MANY_TIMES] = 1 if many_times else 0
    state[MANY_ROUNDS] = 1 if many_rounds else 0
    state[MANY_DIFFS] = 1 if many_diffs else 0
    return 0
