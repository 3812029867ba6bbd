"""Exchange in a run: the rows that an operator has emitted on all workers go to the owners of their keys, or all
to worker 0.

See operators/physical/arrange.py for the same in Python steps, and lanes.py for how rows travel.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.inputs import emitted, key_updates, of
from vernier.operators.kernels.lanes import accept, agree, deliver, post, wanted
from vernier.operators.kernels.programs import DEPTH, KEYS, ROUTE, VALS, E
from vernier.operators.kernels.runs import (
    AGREED,
    FIRST,
    INDEX,
    KEY_UPDATES,
    NOT_HERE,
    WORKERS,
    emit,
    first_piece,
    next_piece,
    piece,
    pool_words,
    slot,
)
from vernier.storage.kernels.cells import cell, put_word, word
from vernier.storage.kernels.hashing import hash_row, mix, owner
from vernier.storage.kernels.held import drop, hold, matrix, owned, store
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import copy_bytes, fetch_word, load
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.texts import H0

ROUTE_WORDS, TO_ONE, LINE = 3, -1, 8
"""The sizes at the beginning of a route: of the words that place a row (TO_ONE if all rows go to worker 0), of the
columns that are sent, and of the columns at which a text begins. These columns of the sender's updates follow, and
then, where rows are sent as key and val, the columns of key and val as they are sent. LINE: how many words are copied
at once.
"""
_AHEAD = 64
"""How many words behind a row the memory is fetched for the rows that follow: it is in no cache near the core."""


@borrowing
def travels(run, route):  # type: ignore[no-untyped-def]
    """Whether rows go to other workers. route: where its constants are, or -1."""
    return route >= 0 and load(run, WORKERS) > 1


@borrowing
def chains(run, op):  # type: ignore[no-untyped-def]
    """Whether the rows of an operator may stay in several matrices, because an exchange copies them anyway."""
    return of(run, op, E) > 0 and load(run, WORKERS) > 1


@borrowing
def route_of(run, op):  # type: ignore[no-untyped-def]
    """The route of an operator's input."""
    return of(run, op, ROUTE)


@borrowing
def _part_rows(rows, first, columns, placing, workers, places):  # type: ignore[no-untyped-def]
    """Copy columns of all rows to the addresses `places`, one for each worker, by the owner of the words in the columns
    `placing`; advances the addresses. This worker's own rows are copied, too: to branch by owner would be to guess
    wrong at every other row. Behind the last row of each owner there has to be room for LINE words, which may be
    overwritten."""
    (n, width), c = rows.shape, columns.shape[0]
    begin, together = first + word(columns, 0), c <= LINE
    for j in range(1, c):
        together = together and first + word(columns, j) == begin + j
    # Adjacent columns are copied as a line, as long as that does not read beyond the last row.
    lines = max(0, (n * width - begin - LINE + width) // max(width, 1)) if together else 0
    source, one = rows.ctypes.data + 8 * begin, word(placing, 0) if placing.shape[0] == 1 else -1
    for i in range(n):
        # A key of one word needs no loop: 3.2 instead of 4.9 ns a row.
        to = 0 if workers == 1 else owner(mix(cell(rows, i, one)) if one >= 0 else hash_row(rows, i, placing), workers)
        place = word(places, to)
        put_word(places, to, place + 8 * c)
        fetch_word(place, _AHEAD)
        if i < lines:
            copy_bytes(place, source + 8 * width * i, 8 * LINE)
        else:
            for j in range(c):
                store(place, j, cell(rows, i, first + word(columns, j)))


@borrowing
def _has_far_text(rows, at, placing, workers, mine):  # type: ignore[no-untyped-def]
    """Whether a row of another worker has a long text at column `at`: its content would have to travel, too."""
    for i in range(rows.shape[0]):
        long = cell(rows, i, at + H0) != 0 or cell(rows, i, at + H0 + 1) != 0
        if long and owner(hash_row(rows, i, placing), workers) != mine:
            return True
    return False


@borrowing
def _place(slots, i, key, placing):  # type: ignore[no-untyped-def]
    """Write into `placing` where the words `key` of a piece's updates are. Returns how many columns precede them."""
    first = slot(slots, i, FIRST)
    for j in range(key.shape[0]):
        put_word(placing, j, first + word(key, j))
    return first


@njit(cache=True)
def exchanged(run, route, source):  # type: ignore[no-untyped-def]
    """The updates of operator `source` on all workers that this one owns, in any order: (rows, status). Every worker
    must call it, with rows or without. O(rows)."""
    sizes = pool_words(run, route, ROUTE_WORDS)
    k, c, t = max(0, word(sizes, 0)), word(sizes, 1), word(sizes, 2)
    route += ROUTE_WORDS
    key, columns, texts = pool_words(run, route, k), pool_words(run, route + k, c), pool_words(run, route + k + c, t)
    workers, mine = load(run, WORKERS), load(run, INDEX)
    n, placing, begins = emitted(run, source), np.empty(k, np.int64), np.empty(workers, np.int64)
    # If all rows go to worker 0, it owns them as if it were the only one.
    owners, others = (1, min(mine, 1)) if word(sizes, 0) == TO_ONE else (workers, workers - 1)
    # This worker's own rows, and room for those that come: often as many as are sent. Then what is sent: no worker gets
    # more than all rows, and memory that is not touched costs nothing.
    out = np.empty(2 * n * c + LINE + others * (n * c + LINE), np.int64)
    sent, begin = hold(out), out.ctypes.data  # until it is delivered
    there = begin + 8 * (2 * n * c + LINE)
    for to in range(workers):
        put_word(begins, to, begin if to == mine else there)
        there += 0 if to == mine else 8 * (n * c + LINE)
    places = begins.copy()
    slots, i = first_piece(run, source)
    while n > 0 and i >= 0:
        first = _place(slots, i, key, placing)
        for text in range(t):
            if _has_far_text(piece(slots, i), first + word(texts, text), placing, owners, mine):
                drop(sent)
                return matrix(0, 0, 0), NOT_HERE
        _part_rows(piece(slots, i), first, columns, placing, owners, places)
        i = next_piece(run, slots, i)
    own = (word(places, mine) - begin) // (8 * c)
    for to in range(workers):
        if to != mine:
            post(run, to, word(begins, to), (word(places, to) - word(begins, to)) // 8)
    status = deliver(run, False)
    if status != 0:
        drop(sent)
        return matrix(0, 0, 0), status
    store(run, AGREED, agree(run))
    come = 0
    for peer in range(workers):
        if peer != mine:
            come += wanted(run, peer) // c
    if come <= n:
        made = owned(sent, begin, own + come, c)
    else:
        made = np.empty((own + come, c), np.int64)
        copy_bytes(made.ctypes.data, begin, 8 * c * own)
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
    """Exchange the rows of `source` if they travel, and let the slot `spare`, which is empty, have them, in memory that
    nothing else reads. Returns (the slot that has the rows, status)."""
    if not travels(run, route):
        return source, 0
    rows, status = exchanged(run, route, source)
    if status == 0:
        emit(run, spare, rows, 0, 0)
    return spare, status
