"""Hashes that order keys: a bijection for one word, a chain of mixes for more, and which worker owns a hash.

Source of the finaliser: Stafford's "mix13" as used in SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), which is
invertible.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, word

_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_I1 = np.uint64(0x96DE1B173F119089)
_I2 = np.uint64(0x319642B2D24D8EC3)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TOP = np.uint64(1 << 63)


@njit(cache=True, inline="always")
def mix(number: int) -> int:
    """A bijection of int64 that scatters neighbouring numbers over the whole range."""
    z = np.uint64(number) + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _M1
    z = (z ^ (z >> np.uint64(27))) * _M2
    return np.int64(z ^ (z >> np.uint64(31)))


@njit(cache=True, inline="always")
def unmix(hashed: int) -> int:
    """The inverse of `mix`."""
    z = np.uint64(hashed)
    z = (z ^ (z >> np.uint64(31)) ^ (z >> np.uint64(62))) * _I2
    z = (z ^ (z >> np.uint64(27)) ^ (z >> np.uint64(54))) * _I1
    z = z ^ (z >> np.uint64(30)) ^ (z >> np.uint64(60))
    return np.int64(z - _GOLDEN)


@njit(cache=True, inline="always")
def owner(hashed: int, workers: int) -> int:
    """The worker whose contiguous range of (signed) hashes contains `hashed`; workers < 2**31."""
    top = (np.uint64(hashed) ^ _TOP) >> np.uint64(32)
    return np.int64((top * np.uint64(workers)) >> np.uint64(32))


@njit(cache=True, inline="always")
def hash_row(data: np.ndarray, i: int, columns: np.ndarray) -> int:
    """The hash of the words `columns` of row i of a C-contiguous matrix, computed as in `key_rows`."""
    hashed = mix(cell(data, i, word(columns, 0))) if columns.shape[0] > 0 else np.int64(0)
    for c in range(1, columns.shape[0]):
        hashed = mix(hashed ^ cell(data, i, word(columns, c)))
    return hashed


@njit(cache=True)
def key_rows(data: np.ndarray, key_columns: np.ndarray, val_columns: np.ndarray, tail: int) -> np.ndarray:
    """Rows `[hash | key words | val words | tail]` of updates `data[n, w + tail]`.

    `tail` is the number of columns after the row's words (time, rounds, diff); they are copied unchanged. The hash of a
    key without words is 0; of one word `mix(word)`, so equal hashes are equal keys; of more words a chain of mixes.
    """
    n = data.shape[0]
    k = key_columns.shape[0]
    v = val_columns.shape[0]
    width = data.shape[1] - tail
    out = np.empty((n, 1 + k + v + tail), np.int64)
    for i in range(n):
        hashed = np.int64(0)
        for c in range(k):
            part = data[i, key_columns[c]]
            out[i, 1 + c] = part
            hashed = mix(part) if c == 0 else mix(hashed ^ part)
        out[i, 0] = hashed
        for c in range(v):
            out[i, 1 + k + c] = data[i, val_columns[c]]
        for c in range(tail):
            out[i, 1 + k + v + c] = data[i, width + c]
    return out


@njit(cache=True)
def partition_rows(keyed: np.ndarray, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Group keyed rows by owner: (rows in owner order, offsets[workers + 1]); stable within an owner."""
    n = keyed.shape[0]
    offsets = np.zeros(workers + 1, np.int64)
    for i in range(n):
        offsets[owner(keyed[i, 0], workers) + 1] += 1
    for w in range(workers):
        offsets[w + 1] += offsets[w]
    place = offsets[:-1].copy()
    out = np.empty_like(keyed)
    for i in range(n):
        w = owner(keyed[i, 0], workers)
        out[place[w]] = keyed[i]
        place[w] += 1
    return out, offsets
