"""Reads parts of groups in a run: what operators/physical/reduce_base.py does in `_visit_parts`. See steps.py."""

import numpy as np
from numba import njit

from vernier.operators.kernels.inputs import of, traces_of
from vernier.operators.kernels.programs import (
    ENDS,
    KEYS,
    OF_OWING_KEYS,
    OF_READ_ENDS,
    OF_READ_RANKS,
    OF_READ_STRETCHES,
    OF_READ_SURROUNDINGS,
    PART_WORDS,
    READS,
    STRETCHES,
    SURROUNDINGS,
    TRACE,
)
from vernier.operators.kernels.runs import (
    INDEXES,
    LOWER,
    NOT_HERE,
    OWING_KEYS,
    READ_ENDS,
    READ_RANKS,
    READ_STRETCHES,
    READ_SURROUNDINGS,
    pool_words,
    rows_of,
)
from vernier.storage.kernels.cells import cell, word
from vernier.storage.kernels.held import matrix, store, vector
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.prefix_sums import INDEX_WORDS, KNOWN, OWING, OWING_COUNT, PLACES, SUMS
from vernier.storage.kernels.running_traces import V, field, settled

_read_ends, _read_surroundings = OF_READ_ENDS.intrinsic(), OF_READ_SURROUNDINGS.intrinsic()
_owing_keys = OF_OWING_KEYS.intrinsic()
_read_stretches, _read_ranks = OF_READ_STRETCHES.intrinsic(), OF_READ_RANKS.intrinsic()
_MOST_COMPARED = 1 << 14
"""With more pairs of rows and keys that owe copies, Python looks."""


@njit(cache=True)
def _owes(run, index, table, rows, k, v):  # type: ignore[no-untyped-def]
    """Whether a key of these rows may have a row with negative copies before the slice, which few keys have; also if it
    is Python's to look at a batch that takes too many copies of some key."""
    for batch in range(load(index, KNOWN), table.shape[0]):
        owing, status = _owing_keys(load(run, OWING_KEYS), (table, batch, k, v))
        if status != 0 or owing.shape[0] > 0:
            return True
        store(index, KNOWN, batch + 1)
    keys = vector(load(index, OWING), load(index, OWING_COUNT))
    if rows.shape[0] * keys.shape[0] > _MOST_COMPARED:
        return True
    for i in range(rows.shape[0]):
        for j in range(keys.shape[0]):
            if cell(rows, i, 0) == word(keys, j):
                return True
    return False


@njit(cache=True)
def read_part(run, op, source):  # type: ignore[no-untyped-def]
    """The part that a reduction reads of each group that its input has changed: (keys, spans, entries, ahead, status),
    see `read_ends` and `read_stretches`."""
    ti, k, fold = of(run, source, TRACE), of(run, op, KEYS), load(run, LOWER) - 1
    table, rows = settled(traces_of(run), ti), rows_of(run, source)
    v, ask, none = field(traces_of(run), ti, V), pool_words(run, of(run, op, READS), PART_WORDS), matrix(0, 0, SUMS)
    index, a, b = load(run, INDEXES) + 8 * INDEX_WORDS * max(word(ask, 1), 0), word(ask, 2), word(ask, 3)
    c, d, e = word(ask, 4), word(ask, 5), word(ask, 6)
    if word(ask, 0) == ENDS:
        keys, spans, entries, status = _read_ends(load(run, READ_ENDS), (table, rows, k, v, fold, a, b, c, d))
        return keys, spans, entries, none, status
    if word(ask, 0) == SURROUNDINGS:
        keys, spans, entries, status = _read_surroundings(load(run, READ_SURROUNDINGS), (table, rows, k, v, fold, a, b))
        return keys, spans, entries, none, status
    if _owes(run, index, table, rows, k, v):
        return matrix(0, 0, 1 + k), matrix(0, 0, 2), matrix(0, 0, v + 2), none, NOT_HERE
    sums = vector(load(index, PLACES), table.shape[0])
    if word(ask, 0) == STRETCHES:
        keys, spans, entries, ahead, status = _read_stretches(load(run, READ_STRETCHES), (
            table, sums, rows, k, v, fold, a, b != 0, c, d, e
        ))  # fmt: skip
        return keys, spans, entries, ahead, status
    shares = pool_words(run, of(run, op, READS) + 4, b).view(np.float64)
    keys, spans, entries, status = _read_ranks(load(run, READ_RANKS), (table, sums, rows, k, v, fold, a, shares))
    return keys, spans, entries, none, status
