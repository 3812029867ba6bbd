"""Compact the steps of a slice when the slice closes and their times no longer need to be distinguished.

Most of the updates cancel, because a loop corrects itself at one time after another. They are neighbours in their step,
which has rows of one round and is sorted by time last. So each step is summed on its own, and only what is left is
sorted. Many rows, as in a load, are built into a trie by pieces of the keys, each sorted inside the processor's caches:
besides the steps and the trie, only one piece is in memory.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put
from vernier.storage.kernels.consolidating import consolidate
from vernier.storage.kernels.cursors import seek
from vernier.storage.kernels.growing import N, append_piece, begin_trie, finish_trie
from vernier.storage.kernels.merging import merge_tries
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.single_step import close_step
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import (
    FLAT,
    HASH_STRIDE,
    HASHES,
    KEY_OFFSETS,
    KEYS,
    UPDATES,
    VAL_OFFSETS,
    offset,
    pack,
    write_keys,
)

_PIECE = 1 << 14
"""Rows in a piece, roughly: with the memory to sort them they fit the second-level cache."""
MANY = 8 * _PIECE
"""Above this number of rows, they are processed piece by piece."""
_MOST = np.int64(2**63 - 1)


@njit(cache=True, forceinline=True)
def _fold(table, first, rows, k, v, d, time):  # type: ignore[no-untyped-def]
    """The body of `fold_steps`, compiled into it once for known widths and once for any."""
    width = 3 + k + v + d
    at_time, last = 1 + k + v, width - 1
    out = np.empty((rows, width), np.int64)
    count, wrapped = 0, False
    for batch in range(first, table.shape[0]):
        row, total = cell(table, batch, HASHES), np.int64(0)
        before = row
        for _ in range(cell(table, batch, KEYS)):
            # The newest row is overwritten until one comes that differs, unless it sums to zero: cheaper than a branch.
            differs = np.int64(0)
            for c in range(last):
                if c != at_time:
                    differs |= load(row, c) ^ load(before, c)
            if differs != 0:
                count += np.int64(total != 0)
                total = np.int64(0)
            total, left = add_checked(total, load(row, last))
            wrapped |= left
            for c in range(last):
                put(out, count, c, load(row, c))
            put(out, count, at_time, time)
            put(out, count, last, total)
            before = row
            row += 8 * width
        count += np.int64(total != 0)
    return out[: 0 if wrapped else count], OVERFLOW if wrapped else 0


@njit(cache=True)
def fold_steps(table, first, rows, k, v, d, time):  # type: ignore[no-untyped-def]
    """The rows of the steps table[first:] (FLAT entries with `rows` rows in all), with `time` as their time: sums of
    those that differ only in times and are neighbours, as in a sorted step, step by step: (rows, status). O(rows)."""
    if k == 1 and v == 1 and d == 1:
        # Constant widths of one word get a loop of their own, whose inner loops are unrolled.
        return _fold(table, first, rows, 1, 1, 1, time)
    return _fold(table, first, rows, k, v, d, time)


@njit(cache=True)
def compact_batches(table, first, rows, k, v, d, since, columns):  # type: ignore[no-untyped-def]
    """The rows of the batches and steps table[first:] (`rows` in all), with times before `since` advanced to it, sorted
    by the columns and consolidated: (rows, status). O(rows log rows)."""
    out = np.empty((rows, 3 + k + v + d), np.int64)
    count = 0
    for batch in range(first, table.shape[0]):
        keys = cell(table, batch, KEYS)
        if cell(table, batch, FLAT) == 0:
            count = write_keys(table, batch, k, v, d, 0, keys, since, out, count)
        else:
            count = _put_behind(cell(table, batch, HASHES), keys, 1 + k + v, since, out, count)
    return consolidate(out, columns)


@njit(cache=True, inline="always")
def _before(table, batch, key):  # type: ignore[no-untyped-def]
    """The number of updates that a batch or step has before its key at position `key`; each row of a step counts as a
    key."""
    if cell(table, batch, FLAT) != 0:
        return key
    return offset(cell(table, batch, VAL_OFFSETS), offset(cell(table, batch, KEY_OFFSETS), key))


@njit(cache=True)
def _next_piece(table, first, done, ends):  # type: ignore[no-untyped-def]
    """Find the next piece of about _PIECE updates of table[first:], which contains all updates of its hashes. done[s]:
    keys of entry s already processed; ends[s] is set to where the piece ends. Returns the piece's number of updates."""
    left, most, longest = 0, 0, 0
    for part in range(done.shape[0]):
        size = cell(table, first + part, UPDATES) - _before(table, first + part, done[part])
        left += size
        if size > most:
            most, longest = size, part
    # The entry with most updates left advances by its share.
    keys = cell(table, first + longest, KEYS) - done[longest]
    stop = done[longest] + max(1, min(keys, np.int64(keys * (_PIECE / left))))
    last = load(cell(table, first + longest, HASHES), (stop - 1) * cell(table, first + longest, HASH_STRIDE))
    count = 0
    for part in range(done.shape[0]):
        size, stride = cell(table, first + part, KEYS), cell(table, first + part, HASH_STRIDE)
        if last == _MOST:
            ends[part] = size
        else:
            ends[part] = seek(cell(table, first + part, HASHES), stride, done[part], size, last + 1)
        count += _before(table, first + part, ends[part]) - _before(table, first + part, done[part])
    return count


@njit(cache=True)
def _put_behind(row, more, at_time, since, piece, count):  # type: ignore[no-untyped-def]
    """Copy `more` keyed rows from address `row` behind piece[:count], with times advanced to `since`; returns the new
    count."""
    width = piece.shape[1]
    for _ in range(more):
        for c in range(width):
            put(piece, count, c, load(row, c))
        put(piece, count, at_time, max(load(row, at_time), since))
        count += 1
        row += 8 * width
    return count


@njit(cache=True)
def close_steps(table, first, rows, k, v, d, since, columns):  # type: ignore[no-untyped-def]
    """`close_batches` for more than MANY rows, one piece of the keys after the other. Returns columns and addresses as
    kernels.growing.finish_trie does. O(rows log piece), with only one piece's rows in memory at once."""
    parts = table.shape[0] - first
    done, ends = np.zeros(parts, np.int64), np.empty(parts, np.int64)
    width, at_time = 3 + k + v + d, 1 + k + v
    piece = np.empty((_PIECE + (_PIECE >> 1), width), np.int64)
    counts, trie = begin_trie(rows, k, v, d)
    taken, status = 0, 0
    while taken < rows:
        size = _next_piece(table, first, done, ends)
        taken += size
        if size > piece.shape[0]:
            piece = np.empty((size, width), np.int64)
        count = 0
        for part in range(parts):
            if done[part] == ends[part]:
                continue
            if cell(table, first + part, FLAT) == 0:
                count = write_keys(table, first + part, k, v, d, done[part], ends[part], since, piece, count)
            else:
                row = cell(table, first + part, HASHES) + 8 * width * done[part]
                count = _put_behind(row, ends[part] - done[part], at_time, since, piece, count)
            done[part] = ends[part]
        trie, status = append_piece(piece[:count], columns, k, v, d, counts, trie)
        if status != 0:
            break
    return finish_trie(counts, trie), counts[N], status


@njit(cache=True)
def close_batches(table, first, rows, k, v, d, since, columns, alike):  # type: ignore[no-untyped-def]
    """The trie of the batches and steps table[first:] (`rows` in all), compacted to `since`: (columns and addresses as
    kernels.tries.pack returns them, number of updates, status). columns: those that sort keyed rows. alike: all entries
    are matrices and none of their times is after `since`. For at most MANY rows."""
    last = table.shape[0] - 1
    if first == last - 1 and cell(table, first, FLAT) == 0 and cell(table, last, FLAT) == 0:
        return merge_tries(table[first], table[last], k, v, d, since)
    if first == last and cell(table, first, FLAT) != 0:
        return close_step(table[first], k, v, d, since)
    if alike:
        left, status = fold_steps(table, first, rows, k, v, d, since)
        if status == 0:
            left, status = consolidate(left, columns)
    else:
        left, status = compact_batches(table, first, rows, k, v, d, since, columns)
    return pack(left, k, v, d), left.shape[0], status
