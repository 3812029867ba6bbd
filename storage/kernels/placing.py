"""Split updates by the worker that owns them."""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.hashing import hash_row, owner


@njit(cache=True)
def split_rows(data, key, workers, note):  # type: ignore[no-untyped-def]
    """Group updates data[n, c] by the worker that owns the hash of their words `key` (`hashing.key_rows`): (rows,
    offsets[workers + 1]); stable within a group. The row note[c], unless it is empty, is added at the end of each
    group. O(n)."""
    n, columns = data.shape
    extra = 1 if note.shape[0] > 0 else 0
    owners = np.empty(n, np.int64)
    offsets = np.zeros(workers + 1, np.int64)
    for i in range(n):
        at = owner(hash_row(data, i, key), workers)
        put_word(owners, i, at)
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
