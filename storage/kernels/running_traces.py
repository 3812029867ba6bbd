"""Traces in a kernel: read histories, seal steps and close a slice without returning to Python.

A trace is a row of words here: where its table of batches and its history cache (storage/trace/history_cache.py) are,
and what the running slice has sealed. Python writes the row before a slice and takes what the slice has made from it.
A slice that does not fit, for example because it needs a larger table, stops with a status; Python then drops what it
has sealed and runs it step by step.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, copy_rows, put, word
from vernier.storage.kernels.held import drop, hold, matrix, owned, store, vector
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.separate import Callee
from vernier.storage.kernels.step_index import (
    COUNTS,
    GENERATION,
    GENERATIONS,
    HEAD,
    INDEX_WORDS,
    LINK,
    LINKS,
    ORDERED,
    ROWS,
    SLOTS,
    TRIES,
    USED,
    WORDS,
    count_runs,
    count_unknown,
    index_steps,
    lay_out,
    spread_heads,
)
from vernier.storage.kernels.step_index import STEPS as STEPS_INDEXED
from vernier.storage.kernels.tries import FIELDS, describe_rows

# A trace's row. Arrays are an address and their size; an owner of 0 is Python.
(K, V, D, SINCE, TABLE, CAPACITY, BATCHES, STEPS, SEALED, INDEX) = range(10)
(HEADS, HEADS_SIZE, HEADS_OWNER, SLOT_ROWS, SLOTS_SIZE, SLOTS_OWNER) = range(10, 16)
(LINK_ROWS, LINKS_SIZE, LINKS_OWNER, ARENA, ARENA_SIZE, ARENA_OWNER) = range(16, 22)
(COLUMNS, COLUMNS_SIZE, LEFT, BATCH, BATCH_SIZE, BATCH_OWNER, ROW, ROW_OWNER) = range(22, 30)
# For closing (closing.py): how much history the trace keeps (-1: none) and what its readers hold; how many of its
# batches Python knows and what it does not; its small batches at the end; what its merges wait for, and the fuel that
# is spent; how many of the oldest batches are not merged here.
(RETAIN, HELD, NEXT_SINCE, KEPT, CLOSED, CLOSED_ROWS, NEWS, ATTENTION) = range(30, 38)
(SMALL, LOOSE, UNITES, AT_REST, CLOSES, OWED, SPENT, BUSY) = range(38, 46)
TRACE_WORDS = 46

FULL, LARGE, KEPT_FULL = 101, 102, 103
"""Statuses beside OVERFLOW: a table is full, a slice or an index is too large, the list of sealed steps is full."""

_ROOM = 1 << 10
"""The least capacity of an index, in keys."""
_MOST_KEYS = 1 << 18
"""An index of more keys is Python's."""
_MOST_CACHED = 1 << 23
"""Words of cached histories from which on Python decides whether to clear them."""
FOLDED = 1 << 20
"""Up to this number of rows, the steps of a slice are closed here. That is also how many are summed by hash
(storage/trace/spine.py)."""

SELECT = Callee(
    "Tuple((int64[:, ::1], int64[:, ::1], int64))(int64[:, ::1], int64[:, ::1], int64, int64, int64, int64, int64, "
    "int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[::1])"
)
_select_keys = SELECT.intrinsic()


@njit(cache=True)
def describe_trace(row, table, index, heads, slots, links, arena, columns):  # type: ignore[no-untyped-def]
    """Write where a trace's arrays are, which Python keeps alive."""
    row[TABLE], row[CAPACITY] = table.ctypes.data, table.shape[0]
    row[INDEX] = index.ctypes.data
    row[HEADS], row[HEADS_SIZE] = heads.ctypes.data, heads.shape[0]
    row[SLOT_ROWS], row[SLOTS_SIZE] = slots.ctypes.data, slots.shape[0]
    row[LINK_ROWS], row[LINKS_SIZE] = links.ctypes.data, links.shape[0]
    row[ARENA], row[ARENA_SIZE] = arena.ctypes.data, arena.shape[0]
    row[COLUMNS], row[COLUMNS_SIZE] = columns.ctypes.data, columns.shape[0]


@borrowing
def field(traces, t, which):  # type: ignore[no-untyped-def]
    """A word of trace number t; `traces` is where the rows begin."""
    return load(traces, t * TRACE_WORDS + which)


@borrowing
def set_field(traces, t, which, value):  # type: ignore[no-untyped-def]
    """Write a word of a trace."""
    store(traces, t * TRACE_WORDS + which, value)


@borrowing
def mark_of(traces, t):  # type: ignore[no-untyped-def]
    """The number of the trace's batches and steps."""
    return field(traces, t, BATCHES) + field(traces, t, STEPS)


@njit(cache=True)
def _keep(traces, t, at, rows):  # type: ignore[no-untyped-def]
    """Make `rows` the array whose address is in column `at`; its size and its owner follow."""
    owner = hold(rows)
    if field(traces, t, at + 2) != 0:
        drop(field(traces, t, at + 2))
    set_field(traces, t, at, rows.ctypes.data)
    set_field(traces, t, at + 1, rows.shape[0])
    set_field(traces, t, at + 2, owner)


@njit(cache=True)
def index_of(traces, t):  # type: ignore[no-untyped-def]
    """(heads, slots, index) of a trace's history cache."""
    width = WORDS + (field(traces, t, K) if field(traces, t, K) > 1 else 0)
    return (
        matrix(field(traces, t, HEADS), field(traces, t, HEADS_SIZE), HEAD),
        matrix(field(traces, t, SLOT_ROWS), field(traces, t, SLOTS_SIZE), width),
        vector(field(traces, t, INDEX), INDEX_WORDS),
    )


@njit(cache=True)
def _grow_links(traces, t, wanted):  # type: ignore[no-untyped-def]
    """Make room for this many links in the index of steps."""
    used, size = load(field(traces, t, INDEX), LINKS), max(_ROOM, field(traces, t, LINKS_SIZE))
    if wanted <= field(traces, t, LINKS_SIZE):
        return
    while size < wanted:
        size *= 2
    links = np.empty((size, LINK), np.int64)
    copy_rows(matrix(field(traces, t, LINK_ROWS), used, LINK), 0, used, links, 0)
    _keep(traces, t, LINK_ROWS, links)


@njit(cache=True)
def _grow_slots(traces, t, wanted, least, most):  # type: ignore[no-untyped-def]
    """Make room for this many keys in the index of steps. least, most: the hashes between which they are."""
    size, k = max(_ROOM, field(traces, t, SLOTS_SIZE)), field(traces, t, K)
    if wanted <= field(traces, t, SLOTS_SIZE):
        return
    while size < wanted:
        size *= 2
    index = vector(field(traces, t, INDEX), INDEX_WORDS)
    used, width = word(index, SLOTS), WORDS + (k if k > 1 else 0)
    slots, heads = np.empty((size, width), np.int64), np.zeros((2 * size, HEAD), np.int64)
    copy_rows(matrix(field(traces, t, SLOT_ROWS), used, width), 0, used, slots, 0)
    lay_out(index, heads.shape[0] if size >= ORDERED else 0, least, most)
    old = matrix(field(traces, t, HEADS), field(traces, t, HEADS_SIZE), HEAD)
    spread_heads(old, heads, word(index, GENERATION), index)
    _keep(traces, t, SLOT_ROWS, slots)
    _keep(traces, t, HEADS, heads)


@njit(cache=True)
def _reserve_keys(traces, t, keys):  # type: ignore[no-untyped-def]
    """Make room for these keys, of which the index may know some. Returns a status. O(keys)."""
    used, q = load(field(traces, t, INDEX), SLOTS), keys.shape[0]
    if used + q > field(traces, t, SLOTS_SIZE):
        unknown = q
        if field(traces, t, SLOTS_SIZE) > 0:
            heads, slots, index = index_of(traces, t)
            unknown = count_unknown(keys, field(traces, t, K), heads, slots, word(index, GENERATION), index)
        if used + unknown > _MOST_KEYS:
            return LARGE
        _grow_slots(traces, t, used + unknown, cell(keys, 0, 0), cell(keys, q - 1, 0))
    return 0


@njit(cache=True)
def _widen(traces, t, keys, before):  # type: ignore[no-untyped-def]
    """Like `HistoryCache._widen`: enlarge the index for the keys of all steps up to number `before` and for these keys.
    They are counted, because most rows of many have the same keys. Returns a status. O(new rows + keys)."""
    k, settled, row = field(traces, t, K), field(traces, t, BATCHES), field(traces, t, INDEX)
    table = matrix(field(traces, t, TABLE), field(traces, t, CAPACITY), FIELDS)
    runs, least, most = count_runs(table, settled + load(row, STEPS_INDEXED), before, k)
    if load(row, SLOTS) + runs > _MOST_KEYS:
        return LARGE
    _grow_links(traces, t, load(row, LINKS) + runs)
    _grow_slots(traces, t, load(row, SLOTS) + runs, least, most)
    heads, slots, index = index_of(traces, t)
    links = matrix(field(traces, t, LINK_ROWS), field(traces, t, LINKS_SIZE), LINK)
    index_steps(table, settled, before, k, heads, slots, links, word(index, GENERATION), index)
    return _reserve_keys(traces, t, keys) if settled > 0 and keys.shape[0] > 0 else 0


@njit(cache=True)
def keep_arena(traces, t, arena):  # type: ignore[no-untyped-def]
    """Use an arena that a kernel has made, if it is another one."""
    if arena.ctypes.data != field(traces, t, ARENA):
        _keep(traces, t, ARENA, arena)


@njit(cache=True)
def entries_of(traces, t):  # type: ignore[no-untyped-def]
    """The entries of the newest selection."""
    width = field(traces, t, V) + field(traces, t, D) + 2
    return matrix(field(traces, t, ARENA), field(traces, t, ARENA_SIZE), width)


@njit(cache=True)
def select(traces, t, callee, keys, fold, before):  # type: ignore[no-untyped-def]
    """Like `HistoryCache.select`: (spans, status); the entries are in `entries_of` until the trace's next call."""
    k, v, d = field(traces, t, K), field(traces, t, V), field(traces, t, D)
    index = field(traces, t, INDEX)
    settled = field(traces, t, BATCHES)
    fresh = field(traces, t, SEALED) - load(index, ROWS)
    slots_wanted = load(index, SLOTS) + fresh + (keys.shape[0] if settled > 0 else 0)
    links_wanted = load(index, LINKS) + fresh
    if load(index, USED) * (v + d + 2) > _MOST_CACHED:
        return matrix(0, 0, 2), LARGE
    if slots_wanted > field(traces, t, SLOTS_SIZE) or links_wanted > field(traces, t, LINKS_SIZE):
        status = _widen(traces, t, keys, before)
        if status != 0:
            return matrix(0, 0, 2), status
    heads, slots, counts = index_of(traces, t)
    spans, arena, status = _select_keys(callee, (
        matrix(field(traces, t, TABLE), field(traces, t, CAPACITY), FIELDS), keys, k, v, d, settled, before, fold,
        heads, slots, matrix(field(traces, t, LINK_ROWS), field(traces, t, LINKS_SIZE), LINK), entries_of(traces, t),
        load(index, GENERATION), counts,
    ))  # fmt: skip
    keep_arena(traces, t, arena)
    return spans, status


@njit(cache=True)
def reserve(traces, t, keys):  # type: ignore[no-untyped-def]
    """Like `HistoryCache.covers`: space in the index for these keys. Returns a status."""
    width = field(traces, t, V) + field(traces, t, D) + 2
    return LARGE if load(field(traces, t, INDEX), USED) * width > _MOST_CACHED else _reserve_keys(traces, t, keys)


@njit(cache=True)
def settled(traces, t):  # type: ignore[no-untyped-def]
    """The table of the batches of earlier slices."""
    return matrix(field(traces, t, TABLE), field(traces, t, BATCHES), FIELDS)


@njit(cache=True)
def seal(traces, t, rows):  # type: ignore[no-untyped-def]
    """Add a step of keyed rows, at least one, whose owner the caller keeps. Returns a status."""
    count = mark_of(traces, t)
    if count >= field(traces, t, CAPACITY):
        return FULL
    table = matrix(field(traces, t, TABLE), field(traces, t, CAPACITY), FIELDS)
    describe_rows(rows, field(traces, t, K), field(traces, t, V), table, count)
    set_field(traces, t, STEPS, field(traces, t, STEPS) + 1)
    set_field(traces, t, SEALED, field(traces, t, SEALED) + rows.shape[0])
    return 0


@borrowing
def begin(traces, count):  # type: ignore[no-untyped-def]
    """Begin a slice: nothing is sealed, and nothing is cached."""
    for t in range(count):
        set_field(traces, t, STEPS, 0)
        set_field(traces, t, SEALED, 0)
        set_field(traces, t, LEFT, 0)
        forget(traces, t)


@borrowing
def forget(traces, t):  # type: ignore[no-untyped-def]
    """Like `HistoryCache.forget`; the memory is kept."""
    index = field(traces, t, INDEX)
    store(index, GENERATION, load(index, GENERATION) + 1)
    if load(index, GENERATION) >= GENERATIONS:
        heads = matrix(field(traces, t, HEADS), field(traces, t, HEADS_SIZE), HEAD)
        for head in range(heads.shape[0]):
            put(heads, head, 1, 0)
        store(index, GENERATION, 1)
    for count in range(COUNTS):
        store(index, count, 0)
    store(index, TRIES, 0)


@njit(cache=True)
def take_array(rows, t, at, width):  # type: ignore[no-untyped-def]
    """The array whose address is in column `at`, which this kernel has made. The caller keeps it alive from now on."""
    traces = rows.ctypes.data
    owner = field(traces, t, at + 2)
    taken = owned(owner, field(traces, t, at), field(traces, t, at + 1), width)
    drop(owner)
    set_field(traces, t, at + 2, 0)
    return taken
