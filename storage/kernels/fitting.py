"""Columns of a trie that is written in one pass, before it is known how many keys, vals and updates it has.

`room` has capacity for the most there can be; `fitted` copies what is there into one array without the rest.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import copy_rows, put_word, word
from vernier.storage.kernels.tries import describe, lay_out


@njit(cache=True)
def room(k, v, d, keys, vals, updates):  # type: ignore[no-untyped-def]
    """Columns with capacity for these numbers of keys, vals and updates: hashes, key words, key offsets, vals, val
    offsets, times, rounds, diffs."""
    return (
        np.empty(keys + 1, np.int64),
        np.empty((keys if k > 1 else 0, k), np.int64),
        np.empty(keys + 1, np.int64),
        np.empty((vals + 1, v), np.int64),
        np.empty(vals + 1, np.int64),
        np.empty(updates, np.int64),
        np.empty((updates, d), np.int64),
        np.empty(updates, np.int64),
    )


@njit(cache=True)
def _copy_words(words, to):  # type: ignore[no-untyped-def]
    """Fill `to` with the first words."""
    for i in range(to.shape[0]):
        put_word(to, i, word(words, i))


@njit(cache=True)
def fitted(columns, k, v, d, keys, vals, updates, many_times, many_rounds, many_diffs):  # type: ignore[no-untyped-def]
    """The trie of the first keys, vals and updates in `room`: columns and addresses as kernels.tries.pack returns them.
    many_times, many_rounds, many_diffs: whether these are not constant. O(updates)."""
    alone = min(updates, 1)
    together, parts = lay_out(
        k, v, d, keys, vals, updates,
        updates if many_times else alone, updates if many_rounds else alone, updates if many_diffs else alone,
    )  # fmt: skip
    hashes, own, key_offsets, words, val_offsets, times, rounds, diffs = parts
    _copy_words(columns[0], hashes)
    copy_rows(columns[1], 0, own.shape[0], own, 0)
    _copy_words(columns[2], key_offsets)
    copy_rows(columns[3], 0, words.shape[0], words, 0)
    _copy_words(columns[4], val_offsets)
    _copy_words(columns[5], times)
    copy_rows(columns[6], 0, rounds.shape[0], rounds, 0)
    _copy_words(columns[7], diffs)
    return together, describe(hashes, own, key_offsets, words, val_offsets, times, rounds, diffs, updates)
