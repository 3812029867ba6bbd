"""Columns of a trie that is written in one pass, before it is known how many keys, vals and updates it has.

`room` has capacity for the most there can be, in one array of `room_words` words; `fit` copies what is there into an
array of the trie's own. Small slices close thousands of times a second, so these functions neither allocate nor count
references: what they return may be used only in functions that count none either.
"""

from vernier.storage.kernels.cells import copy_rows, put_word, word
from vernier.storage.kernels.inlining import borrowing, inlined
from vernier.storage.kernels.tries import columns_of, describe_in


@borrowing
def room_words(k, v, d, keys, vals, updates):  # type: ignore[no-untyped-def]
    """How many words `room` needs."""
    return (2 + (k if k > 1 else 0)) * keys + (1 + v) * (vals + 1) + (2 + d) * updates + 2


@inlined
def room(words, k, v, d, keys, vals, updates):  # type: ignore[no-untyped-def]
    """Columns with capacity for these numbers of keys, vals and updates: hashes, key words, key offsets, vals, val
    offsets, times, rounds, diffs."""
    own = keys if k > 1 else 0
    at = keys + 1
    offsets = at + own * k
    val = offsets + keys + 1
    val_offsets = val + (vals + 1) * v
    times = val_offsets + vals + 1
    rounds = times + updates
    diffs = rounds + updates * d
    return (
        words[:at],
        words[at:offsets].reshape((own, k)),
        words[offsets:val],
        words[val:val_offsets].reshape((vals + 1, v)),
        words[val_offsets:times],
        words[times:rounds],
        words[rounds:diffs].reshape((updates, d)),
        words[diffs : diffs + updates],
    )


@borrowing
def _copy_words(words, to):  # type: ignore[no-untyped-def]
    """Fill `to` with the first words."""
    for i in range(to.shape[0]):
        put_word(to, i, word(words, i))


@borrowing
def fit(columns, k, v, d, keys, vals, updates, times, rounds, diffs, together, address):  # type: ignore[no-untyped-def]
    """Write the trie of the first keys, vals and updates in `room` to `together`, and its row of addresses to
    `address`; times, rounds, diffs: how many there are, 1 for a constant column. O(updates)."""
    parts = columns_of(together, k, v, d, keys, vals, updates, times, rounds, diffs)
    _copy_words(columns[0], parts[0])
    copy_rows(columns[1], 0, parts[1].shape[0], parts[1], 0)
    _copy_words(columns[2], parts[2])
    copy_rows(columns[3], 0, parts[3].shape[0], parts[3], 0)
    _copy_words(columns[4], parts[4])
    _copy_words(columns[5], parts[5])
    copy_rows(columns[6], 0, parts[6].shape[0], parts[6], 0)
    _copy_words(columns[7], parts[7])
    describe_in(address, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], updates)
