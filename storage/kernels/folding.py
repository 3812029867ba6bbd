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
from storage.kernels.tries import FLAT, HASHES, KEYS, flatten, pack_described


@njit(cache=True, forceinline=True)
def _fold(table, first, rows, k, v, d, time):  # type: ignore[no-untyped-def]
    """`fold_steps`, compiled into it for widths that are known and for others."""
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
def fold_steps(table, first, rows, k, v, d, time):  # type: ignore[no-untyped-def]
    """The rows of the steps table[first:] (FLAT layers with `rows` rows in all), with `time` as their time: each once,
    diffs added up, zeros left out, in no particular order: (rows, status). O(rows)."""
    if k == 1 and v == 1 and d == 1:
        # One word by one word, in a loop that is in no other: inner loops over so many words are unrolled.
        return _fold(table, first, rows, 1, 1, 1, time)
    return _fold(table, first, rows, k, v, d, time)


@njit(cache=True)
def compact_layers(table, first, rows, k, v, d, since, columns):  # type: ignore[no-untyped-def]
    """The rows of the layers and steps table[first:] (`rows` in all), times before `since` as `since`: in order of the
    columns, each once, diffs added up, zeros left out: (rows, status). O(rows log rows)."""
    out = np.empty((rows, 3 + k + v + d), np.int64)
    count = 0
    for layer in range(first, table.shape[0]):
        if cell(table, layer, FLAT) == 0:
            part = flatten(table[layer], k, v, d, 0, cell(table, layer, KEYS))
            out[count : count + part.shape[0]] = part
            count += part.shape[0]
            continue
        address = cell(table, layer, HASHES)
        for i in range(cell(table, layer, KEYS)):
            for c in range(out.shape[1]):
                put(out, count, c, load(address, i * out.shape[1] + c))
            count += 1
    at_time = 1 + k + v
    for i in range(count):
        if cell(out, i, at_time) < since:
            put(out, i, at_time, since)
    return consolidate(out, columns)


@njit(cache=True)
def compact_step(table, layer, k, v, d, since):  # type: ignore[no-untyped-def]
    """The same of one step, which is in order already: rounds come before times, so it stays so. O(rows)."""
    n, address, width = cell(table, layer, KEYS), cell(table, layer, HASHES), 3 + k + v + d
    at_time, last = 1 + k + v, width - 1
    out = np.empty((n, width), np.int64)
    count = 0
    for i in range(n):
        row = i * width
        time = max(load(address, row + at_time), since)
        same = count > 0
        if same:
            for c in range(last):
                if cell(out, count - 1, c) != (time if c == at_time else load(address, row + c)):
                    same = False
                    break
        if same:
            total, wrapped = add_checked(cell(out, count - 1, last), load(address, row + last))
            if wrapped:
                return out[:0], OVERFLOW
            put(out, count - 1, last, total)
            continue
        if count > 0 and cell(out, count - 1, last) == 0:
            count -= 1
        for c in range(width):
            put(out, count, c, load(address, row + c))
        put(out, count, at_time, time)
        count += 1
    if count > 0 and cell(out, count - 1, last) == 0:
        count -= 1
    return out[:count], 0


@njit(cache=True)
def close_layers(table, first, rows, k, v, d, since, columns, alike):  # type: ignore[no-untyped-def]
    """The trie of what the layers and steps table[first:] (`rows` in all) come to at `since`: (columns and addresses as
    kernels.tries.pack_described gives them, how many updates it has, status). columns: those that order keyed rows.
    alike: all are steps and none of their times is behind `since`."""
    if first == table.shape[0] - 1 and cell(table, first, FLAT) != 0:
        left, status = compact_step(table, first, k, v, d, since)
    elif alike:
        left, status = fold_steps(table, first, rows, k, v, d, since)
        if status == 0:
            left, status = consolidate(left, columns)
    else:
        left, status = compact_layers(table, first, rows, k, v, d, since, columns)
    return pack_described(left, k, v, d), left.shape[0], status
