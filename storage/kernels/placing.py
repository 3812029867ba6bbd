"""Split updates by the worker that owns them."""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.hashing import hash_row, mix, owner
from vernier.storage.kernels.inlining import borrowing


@borrowing
def find_owners(rows, placing, workers, owners):  # type: ignore[no-untyped-def]
    """Write the worker that owns each row to `owners`, by the words in the columns `placing`."""
    if placing.shape[0] == 1:  # then the hashes of several rows are computed at once
        column = word(placing, 0)
        for i in range(rows.shape[0]):
            put_word(owners, i, owner(mix(cell(rows, i, column)), workers))
        return
    for i in range(rows.shape[0]):
        put_word(owners, i, owner(hash_row(rows, i, placing), workers))


@njit(cache=True)
def split_rows(data, key, workers, note):  # type: ignore[no-untyped-def]
    """Group updates data[n, c] by the worker that owns the hash of their words `key` (`hashing.key_rows`): (rows,
    offsets[workers + 1]); stable within a group. The row note[c], unless it is empty, is added at the end of each
    group. O(n)."""
    n, columns = data.shape
    extra = 1 if note.shape[0] > 0 else 0
    owners = np.empty(n, np.int64)
    offsets = np.zeros(workers + 1, np.int64)
    find_owners(data, key, workers, owners)
    for i in range(n):
        at = word(owners, i)
        put_word(offsets, at + 1, word(offsets, at + 1) + 1)
    for w in range(workers):
        offsets[w + 1] += offsets[w] + extra
    place = offsets[:-1].copy()
    out = np.empty((n + extra * workers, columns), np.int64)
    for i in range(n):
        w = word(owners, i)
        at = word(place, w)
        for c in range(columns):
            put(out, at, c, cell(data, i, c))
        put_word(place, w, at + 1)
    if extra:
        for w in range(workers):
            for c in range(columns):
                put(out, word(offsets, w + 1) - 1, c, word(note, c))
    return out, offsets
