"""Exchange in a run: the rows that an operator has emitted on all workers go to the owners of their keys, or all
to worker 0.

See operators/physical/arrange.py for the same in Python steps, and lanes.py for how rows travel.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.inputs import emitted, key_updates, of
from vernier.operators.kernels.lanes import accept, agree, deliver, post, wanted
from vernier.operators.kernels.programs import DEPTH, KEYS, ROUTE, VALS
from vernier.operators.kernels.runs import (
    AGREED,
    FIRST,
    INDEX,
    KEY_UPDATES,
    NOT_HERE,
    WORKERS,
    emit,
    outs_of,
    pool_words,
    rows_of,
    slot,
)
from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.held import drop, hold, matrix, store
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.placing import find_owners
from vernier.storage.kernels.pointers import copy_bytes, load
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.texts import H0

ROUTE_WORDS, TO_ONE = 3, -1
"""The sizes at the beginning of a route: of the words that place a row (TO_ONE if all rows go to worker 0), of the
columns that are sent, and of the columns at which a text begins. These columns of the sender's updates follow, and
then, where rows are sent as key and val, the columns of key and val as they are sent."""


@borrowing
def travels(run, route):  # type: ignore[no-untyped-def]
    """Whether rows go to other workers. route: where its constants are, or -1."""
    return route >= 0 and load(run, WORKERS) > 1


@borrowing
def route_of(run, op):  # type: ignore[no-untyped-def]
    """The route of an operator's input."""
    return of(run, op, ROUTE)


@borrowing
def _part_rows(rows, first, columns, owners, place, out):  # type: ignore[no-untyped-def]
    """Copy columns of all rows to `out`, by owner, this worker's own rows, too: to branch by owner would be to guess
    wrong at every other row. place: where the rows of each owner begin; changed."""
    c = columns.shape[0]
    begin, together = first + word(columns, 0), True
    for j in range(1, c):
        together = together and first + word(columns, j) == begin + j
    for i in range(rows.shape[0]):
        to = word(owners, i)
        at = word(place, to)
        put_word(place, to, at + 1)
        if together:  # columns need not be looked up
            for j in range(c):
                put(out, at, j, cell(rows, i, begin + j))
        else:
            for j in range(c):
                put(out, at, j, cell(rows, i, first + word(columns, j)))


@njit(cache=True)
def exchanged(run, route, source):  # type: ignore[no-untyped-def]
    """The updates of operator `source` on all workers that this one owns, in any order: (rows, status). Every worker
    must call it, with rows or without. O(rows)."""
    sizes = pool_words(run, route, ROUTE_WORDS)
    k, c, t = max(0, word(sizes, 0)), word(sizes, 1), word(sizes, 2)
    route += ROUTE_WORDS
    key, columns, texts = pool_words(run, route, k), pool_words(run, route + k, c), pool_words(run, route + k + c, t)
    workers, mine = load(run, WORKERS), load(run, INDEX)
    n, first = emitted(run, source), slot(outs_of(run), source, FIRST)
    rows = rows_of(run, source) if n > 0 else matrix(0, 0, 0)
    owners, placing = np.zeros(n, np.int64), np.empty(k, np.int64)
    counts, begins = np.zeros(workers, np.int64), np.empty(workers, np.int64)
    for j in range(k):
        put_word(placing, j, first + word(key, j))
    if word(sizes, 0) != TO_ONE:
        find_owners(rows, placing, workers, owners)
    for i in range(n):
        to = word(owners, i)
        put_word(counts, to, word(counts, to) + 1)
    own, begin = word(counts, mine), 0
    for to in range(workers):
        put_word(begins, to, begin)
        begin += 0 if to == mine else word(counts, to)
    put_word(begins, mine, begin)
    for text in range(t):
        at = first + word(texts, text) + H0
        for i in range(n):
            if word(owners, i) != mine and (cell(rows, i, at) != 0 or cell(rows, i, at + 1) != 0):
                return rows, NOT_HERE  # its content would have to travel, too
    # What is sent, then this worker's own rows, then room for those that come: often as many as are sent.
    out = np.empty((2 * n, c), np.int64)
    _part_rows(rows, first, columns, owners, begins.copy(), out)
    sent = hold(out)  # until it is delivered
    for to in range(workers):
        if to != mine:
            post(run, to, out.ctypes.data + 8 * c * word(begins, to), c * word(counts, to))
    status = deliver(run, False)
    if status != 0:
        drop(sent)
        return out, status
    store(run, AGREED, agree(run))
    come = 0
    for peer in range(workers):
        if peer != mine:
            come += wanted(run, peer) // c
    if come <= n:
        made = out[begin : n + come]
    else:
        made = np.empty((own + come, c), np.int64)
        copy_bytes(made.ctypes.data, out.ctypes.data + 8 * c * begin, 8 * c * own)
    come = own
    for peer in range(workers):
        if peer != mine:
            accept(run, peer, made.ctypes.data + 8 * c * come)
            come += wanted(run, peer) // c
    status = deliver(run, True)
    drop(sent)
    return made, status


@njit(cache=True)
def exchanged_keyed(run, op, source):  # type: ignore[no-untyped-def]
    """The same by key, sorted and consolidated: (keyed rows, status)."""
    route, k, v = route_of(run, op), of(run, op, KEYS), of(run, op, VALS)
    rows, status = exchanged(run, route, source)
    if status != 0 or rows.shape[0] == 0:
        return rows, status
    sizes = pool_words(run, route, ROUTE_WORDS)
    at = route + ROUTE_WORDS + word(sizes, 0) + word(sizes, 1) + word(sizes, 2)
    rows, status = key_updates(load(run, KEY_UPDATES), (
        rows, pool_words(run, at, k), pool_words(run, at + k, v), of(run, op, DEPTH) + 2
    ))  # fmt: skip
    return rows, OVERFLOW if status != 0 else 0


@njit(cache=True)
def exchanged_into(run, route, source, spare):  # type: ignore[no-untyped-def]
    """Exchange the rows of `source` if they travel, and let the slot `spare`, which is empty, have them. Returns (the
    slot that has the rows, status)."""
    if not travels(run, route):
        return source, 0
    rows, status = exchanged(run, route, source)
    if status == 0:
        emit(run, spare, rows, 0, 0)
    return spare, status
