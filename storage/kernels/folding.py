"""What the steps of a slice come to when their times no longer tell them apart.

Most of it cancels: a loop corrects itself at one time after another. So rows are added up where a hash finds them, and
only what is left has to be sorted.
"""

import numpy as np
from numba import njit

from storage.kernels.cells import cell, put, put_word, word
from storage.kernels.hashing import mix
from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked, consolidate
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import HASHES, KEYS, pack


@njit(cache=True)
def fold_steps(table, first, rows, k, v, d, time):  # type: ignore[no-untyped-def]
    """The rows of the steps table[first:] (FLAT layers with `rows` rows in all), with `time` as their time: each once,
    diffs added up, zeros left out, in no particular order: (rows, status). O(rows)."""
    width = 3 + k + v + d
    at_time, last = 1 + k + v, width - 1
    size = 16
    while size < 2 * rows:
        size *= 2
    places = np.zeros(size, np.int64)
    out = np.empty((rows, width), np.int64)
    count = 0
    for layer in range(first, table.shape[0]):
        row = cell(table, layer, HASHES)
        for _ in range(cell(table, layer, KEYS)):
            mixed = load(row, 0)
            for c in range(1 + k, last):
                if c != at_time:
                    mixed = mix(mixed ^ load(row, c))
            place = mixed & (size - 1)
            while True:
                found = word(places, place)
                if found == 0:
                    for c in range(width):
                        put(out, count, c, load(row, c))
                    put(out, count, at_time, time)
                    count += 1
                    put_word(places, place, count)
                    break
                same = True
                for c in range(last):
                    if c != at_time and cell(out, found - 1, c) != load(row, c):
                        same = False
                        break
                if same:
                    total, wrapped = add_checked(cell(out, found - 1, last), load(row, last))
                    if wrapped:
                        return out[:0], OVERFLOW
                    put(out, found - 1, last, total)
                    break
                place = (place + 1) & (size - 1)
            row += 8 * width
    left = 0
    for i in range(count):
        if cell(out, i, last) != 0:
            if left < i:
                for c in range(width):
                    put(out, left, c, cell(out, i, c))
            left += 1
    return out[:left], 0


@njit(cache=True)
def close_steps(table, first, rows, k, v, d, since, columns):  # type: ignore[no-untyped-def]
    """The trie of what the steps table[first:] come to at `since`, which none of their times is behind: its columns as
    kernels.tries.pack gives them, how many updates it has, status. columns: those that order keyed rows."""
    folded, status = fold_steps(table, first, rows, k, v, d, since)
    if status == 0:
        folded, status = consolidate(folded, columns)
    return pack(folded, k, v, d), folded.shape[0], status


@njit(cache=True)
def close_step(rows, k, v, d, since):  # type: ignore[no-untyped-def]
    """The same of the one step of a slice, sorted and consolidated keyed rows, some of whose times `since` may be
    behind: rounds come before times, so that rows stay in order. O(rows)."""
    n, width = rows.shape
    at_time, last = 1 + k + v, width - 1
    behind = 0
    for i in range(n):
        behind += 1 if cell(rows, i, at_time) < since else 0
    if behind == 0:
        return pack(rows, k, v, d), n, 0
    out = np.empty((n, width), np.int64)
    count = 0
    for i in range(n):
        time = max(cell(rows, i, at_time), since)
        same = count > 0
        if same:
            for c in range(last):
                if cell(out, count - 1, c) != (time if c == at_time else cell(rows, i, c)):
                    same = False
                    break
        if same:
            total, wrapped = add_checked(cell(out, count - 1, last), cell(rows, i, last))
            if wrapped:
                return pack(out[:0], k, v, d), 0, OVERFLOW
            put(out, count - 1, last, total)
            continue
        if count > 0 and cell(out, count - 1, last) == 0:
            count -= 1
        for c in range(width):
            put(out, count, c, cell(rows, i, c))
        put(out, count, at_time, time)
        count += 1
    if count > 0 and cell(out, count - 1, last) == 0:
        count -= 1
    return pack(out[:count], k, v, d), count, 0
