"""Key many updates at once, straight into a trie.

Positions of rows are distributed by the top bits of their hashes. The rows with the same bits are then gathered, sorted
and consolidated inside the processor's caches, and appended to the trie. So the memory besides the updates and the trie
is four bytes per row.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, fetch, put, word
from vernier.storage.kernels.growing import N, append_piece, begin_trie, finish_trie
from vernier.storage.kernels.hashing import hash_row, unmix
from vernier.storage.kernels.keying import source_columns

MOST = 1 << 32
"""The number of rows that positions can distinguish."""
_PIECE = 1 << 13
"""Rows in a piece, roughly: with the memory to sort them they fit the second-level cache."""
_AHEAD = 12
"""How many rows ahead of the one that is read the memory of a row is fetched."""
_TOP = np.uint64(1 << 63)


@njit(cache=True)
def _spread(data, key):  # type: ignore[no-untyped-def]
    """(Where each piece of the rows begins, int64[pieces + 1]; the rows of each piece in their order). Pieces ascend by
    hash."""
    n, bits = data.shape[0], 1
    while n >> bits > _PIECE:
        bits += 1
    shift = np.uint64(64 - bits)
    begins = np.zeros((1 << bits) + 1, np.int64)
    for i in range(n):
        begins[np.int64((np.uint64(hash_row(data, i, key)) ^ _TOP) >> shift) + 1] += 1
    for piece in range(1 << bits):
        begins[piece + 1] += begins[piece]
    rest, places = begins.copy(), np.empty(n, np.uint32)
    for i in range(n):
        piece = np.int64((np.uint64(hash_row(data, i, key)) ^ _TOP) >> shift)
        places[rest[piece]] = i
        rest[piece] += 1
    return begins, places


@njit(cache=True)
def load_keyed(data, key, val, tail, columns):  # type: ignore[no-untyped-def]
    """The trie of updates by key: (columns and addresses as kernels.growing.finish_trie returns them, number of
    updates, status).

    data[n, …]: updates, fewer than MOST; the last `tail` columns are time, rounds and diff. key (at least one), val:
    columns of a row. columns: those that sort keyed rows. O(n log piece).
    """
    n, k, v, d = data.shape[0], key.shape[0], val.shape[0], tail - 2
    source = source_columns(data.shape[1], key, val, tail)
    begins, places = _spread(data, key)
    most = 0
    for number in range(begins.shape[0] - 1):
        most = max(most, begins[number + 1] - begins[number])
    piece = np.empty((most, 1 + k + v + tail), np.int64)
    counts, trie = begin_trie(n, k, v, d)
    status = 0
    for number in range(begins.shape[0] - 1):
        first, size = begins[number], begins[number + 1] - begins[number]
        for row in range(size):
            ahead = np.int64(places[first + min(row + _AHEAD, size - 1)])
            fetch(data, ahead, 0)
            fetch(data, ahead, data.shape[1] - 1)
            i = np.int64(places[first + row])
            put(piece, row, 0, hash_row(data, i, key))
            for c in range(source.shape[0]):
                put(piece, row, 1 + c, cell(data, i, word(source, c)))
        trie, status = append_piece(piece[:size], columns, k, v, d, counts, trie)
        if status != 0:
            break
    return finish_trie(counts, trie), counts[N], status


@njit(cache=True)
def unmix_words(hashes: np.ndarray) -> np.ndarray:
    """The one-word keys of hashes. O(keys)."""
    words = np.empty_like(hashes)
    for i in range(hashes.shape[0]):
        words[i] = unmix(hashes[i])
    return words
