"""What the steps of a slice come to when their times no longer tell them apart.

Most of it cancels: a loop corrects itself at one time after another. So rows are added up where a hash finds them, and
only what is left has to be sorted. Many rows, a load's, go into their trie by pieces of the keys, each sorted inside
the caches: beside the steps and the trie there is never more than a piece.
"""

import numpy as np
from numba import njit

from storage.kernels.cells import cell, put, put_word, word
from storage.kernels.consolidating import consolidate
from storage.kernels.cursors import seek
from storage.kernels.hashing import mix
from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import FLAT, HASH_STRIDE, HASHES, KEYS, describe, flatten, pack

_PIECE = 1 << 15
"""Rows of a piece, about: with what sorts them they fit the second-level cache."""
_PIECES = 4
"""Pieces from which rows are taken piece by piece."""
_MOST = np.int64(2**63 - 1)


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
def _next_piece(table, first, done, ends):  # type: ignore[no-untyped-def]
    """Find the next about _PIECE rows of the steps table[first:], all those of some hashes: done[s] rows of step s have
    been taken, ends[s] is set to how many will be. Returns how many rows the piece has."""
    left, most, longest = 0, 0, 0
    for step in range(done.shape[0]):
        size = cell(table, first + step, KEYS) - done[step]
        left += size
        if size > most:
            most, longest = size, step
    # The longest of them goes on by its share.
    share = max(1, np.int64(_PIECE * (most / left)))
    stop = min(done[longest] + share, cell(table, first + longest, KEYS))
    stride = cell(table, first + longest, HASH_STRIDE)
    last = load(cell(table, first + longest, HASHES), (stop - 1) * stride)
    count = 0
    for step in range(done.shape[0]):
        size = cell(table, first + step, KEYS)
        if last == _MOST:
            ends[step] = size
        else:
            ends[step] = seek(cell(table, first + step, HASHES), stride, done[step], size, last + 1)
        count += ends[step] - done[step]
    return count


@njit(cache=True)
def _room(column, n, count):  # type: ignore[no-untyped-def]
    """Room for `count` words that begins with n words of `column`, or n times its only one."""
    wide = np.empty(count, np.int64)
    if column.shape[0] == 1:
        wide[:n] = column[0]
    else:
        wide[:n] = column[:n]
    return wide


@njit(cache=True)
def _offsets(known, rows):  # type: ignore[no-untyped-def]
    """Room for offsets of `rows` items, the first of which count 0, 1, 2 … up to `known`."""
    offsets = np.empty(rows + 1, np.int64)
    for i in range(known):
        offsets[i] = i
    return offsets


@njit(cache=True)
def _moved(column, together, at):  # type: ignore[no-untyped-def]
    """A column's words where they are copied to, together[at:], and where they end there."""
    there = together[at : at + column.shape[0]]
    there[:] = column
    return there, at + column.shape[0]


@njit(cache=True)
def close_steps(table, first, rows, k, v, d, since, columns):  # type: ignore[no-untyped-def]
    """`close_layers` for many rows of steps, a piece of the keys after the other. O(rows log piece), and only a piece's
    rows at once."""
    steps = table.shape[0] - first
    done, ends = np.zeros(steps, np.int64), np.empty(steps, np.int64)
    width, at_time = 3 + k + v + d, 1 + k + v
    piece = np.empty((_PIECE + (_PIECE >> 1), width), np.int64)
    # Room for all; pages that are never written take none. What is constant or counts 0, 1, 2 … has no room until it
    # no longer is.
    hashes = np.empty(rows, np.int64)
    keys = np.empty((rows if k > 1 else 0, k), np.int64)
    vals = np.empty((rows, v), np.int64)
    key_offsets, val_offsets = np.empty(0, np.int64), np.empty(0, np.int64)
    times, diffs, rounds = np.empty(1, np.int64), np.empty(1, np.int64), np.empty((1, d), np.int64)
    nk, nv, n, taken = 0, 0, 0, 0
    while taken < rows:
        size = _next_piece(table, first, done, ends)
        taken += size
        if size > piece.shape[0]:
            piece = np.empty((size, width), np.int64)
        count = 0
        for step in range(steps):
            row = cell(table, first + step, HASHES) + 8 * width * done[step]
            for _ in range(done[step], ends[step]):
                for c in range(width):
                    put(piece, count, c, load(row, c))
                put(piece, count, at_time, max(load(row, at_time), since))
                count += 1
                row += 8 * width
            done[step] = ends[step]
        left, status = consolidate(piece[:count], columns)
        if status != 0:
            break
        for i in range(left.shape[0]):
            begins = 2 if i == 0 else 0  # 2: a key, 1: a val of the same key
            if i > 0:
                for c in range(1 + k + v):
                    if cell(left, i, c) != cell(left, i - 1, c):
                        begins = 2 if c <= k else 1
                        break
            if begins == 2:
                put_word(hashes, nk, cell(left, i, 0))
                if k > 1:
                    for c in range(k):
                        put(keys, nk, c, cell(left, i, 1 + c))
                if key_offsets.shape[0]:
                    put_word(key_offsets, nk, nv)
                nk += 1
            elif begins == 1 and key_offsets.shape[0] == 0:
                key_offsets = _offsets(nk, rows)
            if begins > 0:
                for c in range(v):
                    put(vals, nv, c, cell(left, i, 1 + k + c))
                if val_offsets.shape[0]:
                    put_word(val_offsets, nv, n)
                nv += 1
            elif val_offsets.shape[0] == 0:
                val_offsets = _offsets(nv, rows)
            time, diff = cell(left, i, at_time), cell(left, i, width - 1)
            if n == 0:
                times[0], diffs[0] = time, diff
                for c in range(d):
                    rounds[0, c] = cell(left, i, at_time + 1 + c)
            if times.shape[0] == 1 and time != times[0]:
                times = _room(times, n, rows)
            if times.shape[0] > 1:
                put_word(times, n, time)
            if diffs.shape[0] == 1 and diff != diffs[0]:
                diffs = _room(diffs, n, rows)
            if diffs.shape[0] > 1:
                put_word(diffs, n, diff)
            if rounds.shape[0] == 1:
                for c in range(d):
                    if cell(left, i, at_time + 1 + c) != rounds[0, c]:
                        alone = rounds
                        rounds = np.empty((rows, d), np.int64)
                        for e in range(n):
                            for other in range(d):
                                put(rounds, e, other, cell(alone, 0, other))
                        break
            if rounds.shape[0] > 1:
                for c in range(d):
                    put(rounds, n, c, cell(left, i, at_time + 1 + c))
            n += 1
    if status != 0:
        nk, nv, n = 0, 0, 0
    # Copied one after the other, what was written only, and let go of.
    if key_offsets.shape[0]:
        put_word(key_offsets, nk, nv)
    if val_offsets.shape[0]:
        put_word(val_offsets, nv, n)
    own = nk if k > 1 else 0
    n_key_offsets, n_val_offsets = min(key_offsets.shape[0], nk + 1), min(val_offsets.shape[0], nv + 1)
    n_times, n_rounds, n_diffs = min(times.shape[0], n), min(rounds.shape[0], n), min(diffs.shape[0], n)
    size = nk + own * k + n_key_offsets + nv * v + n_val_offsets + n_times + n_rounds * d + n_diffs
    together = np.empty(size, np.int64)
    hashes, at = _moved(hashes[:nk], together, 0)
    flat, at = _moved(keys[:own].reshape(own * k), together, at)
    keys = flat.reshape((own, k))
    key_offsets, at = _moved(key_offsets[:n_key_offsets], together, at)
    flat, at = _moved(vals[:nv].reshape(nv * v), together, at)
    vals = flat.reshape((nv, v))
    val_offsets, at = _moved(val_offsets[:n_val_offsets], together, at)
    times, at = _moved(times[:n_times], together, at)
    flat, at = _moved(rounds[:n_rounds].reshape(n_rounds * d), together, at)
    rounds = flat.reshape((n_rounds, d))
    diffs, at = _moved(diffs[:n_diffs], together, at)
    address = describe(hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, n)
    return (together, address), n, status


@njit(cache=True)
def _all_steps(table, first):  # type: ignore[no-untyped-def]
    """Whether all of table[first:] are steps."""
    for layer in range(first, table.shape[0]):
        if cell(table, layer, FLAT) == 0:
            return False
    return True


@njit(cache=True)
def close_layers(table, first, rows, k, v, d, since, columns, alike):  # type: ignore[no-untyped-def]
    """The trie of what the layers and steps table[first:] (`rows` in all) come to at `since`: (columns and addresses as
    kernels.tries.pack gives them, how many updates it has, status). columns: those that order keyed rows.
    alike: all are steps and none of their times is behind `since`."""
    if not alike and rows > _PIECES * _PIECE and k > 0 and _all_steps(table, first):
        return close_steps(table, first, rows, k, v, d, since, columns)
    if first == table.shape[0] - 1 and cell(table, first, FLAT) != 0:
        left, status = compact_step(table, first, k, v, d, since)
    elif alike:
        left, status = fold_steps(table, first, rows, k, v, d, since)
        if status == 0:
            left, status = consolidate(left, columns)
    else:
        left, status = compact_layers(table, first, rows, k, v, d, since, columns)
    return pack(left, k, v, d), left.shape[0], status
