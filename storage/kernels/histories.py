"""The histories of many keys, brought together from the layers and steps of a trace, and kept for the slice.

A key is asked for again in most rounds of a slice. So its history lies in a block of its own, in order and added up,
and the next call merges in what steps have brought since: a call costs what is new, not what is there.
"""

import numpy as np
from numba import njit

from storage.kernels.cells import cell, more_rows, put
from storage.kernels.cursors import advance, place, read_entries
from storage.kernels.pointers import load
from storage.kernels.sorting import add_checked, consolidate
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import HASH_STRIDE, HASHES, KEY_OFFSETS, KEY_STRIDE, KEY_WORDS, KEYS, VAL_OFFSETS

AS_STORED = -(2**63)
"""The fold that leaves times as they are."""

HEAD = 3
"""Words of a head: hash, number of the first slot with it, generation in which that was written."""
NEXT, FIRST, LAST, WAITING, SEEN, AT, SIZE, ROOM, WORDS = range(9)
"""Of a slot, which is a key's: the next slot + 1 of the same hash; its oldest and newest link + 1, and the oldest that
is not in its block; how many steps its block has seen; where the block begins, its entries (-1: no block) and what it
has room for; then the key's words, when there are several."""
LINK = 4
"""Words of a link, which is a key's run of rows in a step: the next link + 1 of the key, step, first row, behind the
last."""
STEPS, LINKS, SLOTS, USED = range(4)
"""What is in use: steps that are in the index, links, slots, rows of the arena."""

_FEW = 64
"""Entries up to which new ones are put in one by one, however many they are."""


@njit(cache=True, inline="always")
def _slot(heads, slots, generation, count, hashed, words, k):  # type: ignore[no-untyped-def]
    """The slot of a key with this hash and these words; `count`, if it was not there: it is then, without history."""
    mask = heads.shape[0] - 1
    at = hashed & mask
    while cell(heads, at, 2) == generation and cell(heads, at, 0) != hashed:
        at = (at + 1) & mask
    found, chain = -1, -1
    if cell(heads, at, 2) == generation:
        found = cell(heads, at, 1)
        if k > 1:
            while found >= 0:
                same = True
                for c in range(k):
                    if cell(slots, found, WORDS + c) != load(words, c):
                        same = False
                        break
                if same:
                    break
                chain = found
                found = cell(slots, found, NEXT) - 1
    if found < 0:
        found = count
        if chain >= 0:
            put(slots, chain, NEXT, found + 1)
        else:
            put(heads, at, 0, hashed)
            put(heads, at, 1, found)
            put(heads, at, 2, generation)
        for c in range(WORDS):
            put(slots, found, c, 0)
        put(slots, found, SIZE, -1)
        if k > 1:
            for c in range(k):
                put(slots, found, WORDS + c, load(words, c))
    return found


@njit(cache=True)
def _index_step(table, layer, k, step, heads, slots, links, generation, index):  # type: ignore[no-untyped-def]
    """Put the runs of keys of a step (a FLAT layer) into the index."""
    n, address, stride = table[layer, KEYS], table[layer, HASHES], table[layer, HASH_STRIDE]
    words = table[layer, KEY_WORDS]
    start = 0
    while start < n:
        hashed = load(address, start * stride)
        stop = start + 1
        while stop < n and load(address, stop * stride) == hashed:
            same = True
            if k > 1:
                for c in range(k):
                    if load(words, stop * stride + c) != load(words, start * stride + c):
                        same = False
                        break
            if not same:
                break
            stop += 1
        slot = _slot(heads, slots, generation, index[SLOTS], hashed, words + 8 * start * table[layer, KEY_STRIDE], k)
        if slot == index[SLOTS]:
            index[SLOTS] += 1
        link = index[LINKS]
        index[LINKS] += 1
        put(links, link, 0, 0)
        put(links, link, 1, step)
        put(links, link, 2, start)
        put(links, link, 3, stop)
        if cell(slots, slot, FIRST) == 0:
            put(slots, slot, FIRST, link + 1)
        else:
            links[cell(slots, slot, LAST) - 1, 0] = link + 1
        put(slots, slot, LAST, link + 1)
        if cell(slots, slot, WAITING) == 0:
            put(slots, slot, WAITING, link + 1)
        start = stop


@njit(cache=True, inline="always")
def _compare(rows, i, j, v, d):  # type: ignore[no-untyped-def]
    """How entries i and j compare by (val, rounds, time): below 0, 0 or above."""
    for c in range(v):
        if cell(rows, i, c) != cell(rows, j, c):
            return -1 if cell(rows, i, c) < cell(rows, j, c) else 1
    for c in range(v + 1, v + 1 + d):
        if cell(rows, i, c) != cell(rows, j, c):
            return -1 if cell(rows, i, c) < cell(rows, j, c) else 1
    if cell(rows, i, v) != cell(rows, j, v):
        return -1 if cell(rows, i, v) < cell(rows, j, v) else 1
    return 0


@njit(cache=True)
def _merge(arena, at, size, more, v, d, columns, spare):  # type: ignore[no-untyped-def]
    """Merge the `more` entries behind a block of `size` at `at` into it: (new size, wrapped). The block is in order and
    added up, so are the others among themselves, but for equal ones, which are neighbours."""
    last = v + 1 + d
    if size + more > _FEW and more > 8:
        rows, status = consolidate(arena[at : at + size + more], columns)
        for i in range(rows.shape[0]):
            for c in range(last + 1):
                put(arena, at + i, c, cell(rows, i, c))
        return rows.shape[0], status != 0
    end = at + size
    for row in range(end, end + more):
        where, order = end, -1
        while where > at:
            order = _compare(arena, where - 1, row, v, d)
            if order <= 0:
                break
            where -= 1
        if where > at and order == 0:
            total, wrapped = add_checked(cell(arena, where - 1, last), cell(arena, row, last))
            if wrapped:
                return 0, True
            put(arena, where - 1, last, total)
            if total == 0:
                for i in range(where, end):
                    for c in range(last + 1):
                        put(arena, i - 1, c, cell(arena, i, c))
                end -= 1
            continue
        if where < row:
            for c in range(last + 1):
                spare[c] = cell(arena, row, c)
            for i in range(end, where, -1):
                for c in range(last + 1):
                    put(arena, i, c, cell(arena, i - 1, c))
            for c in range(last + 1):
                put(arena, where, c, spare[c])
        end += 1
    return end - at, False


@njit(cache=True)
def select_keys(  # type: ignore[no-untyped-def]
    table, keyed, k, v, d, settled, before, fold, heads, slots, links, arena, generation, index
):
    """The consolidated histories of q keys over the first `before` of a trace's layers and steps.

    table[l, FIELDS]; keyed[q, >= 1 + k] begins with hash and key words: distinct, sorted by hash. Layers
    `0 .. settled-1` are older than the slice: their times read as `fold`. Those behind are the slice's steps, many and
    small, so that they are found by an index, which this call brings up to date: heads[2**m, HEAD] (open addressing),
    slots[n, WORDS + k] and links[n, LINK] have room for it, or heads has none, and nothing is remembered.
    Returns (spans[q, 2], arena, status): key i's history is arena[spans[i, 0] : spans[i, 1]], entries `[val words |
    time | rounds | diff]` sorted by (val, rounds, time), until the next call. The arena is the given or a larger one.
    O(1 + what is new, times what it passes in its block) a key that has been asked for, O(layers + history) another.
    """
    q = keyed.shape[0]
    older, limit = min(settled, before), before - settled
    kept = heads.shape[0] > 0 and limit >= 0
    if kept:
        while index[STEPS] < limit:
            _index_step(table, settled + index[STEPS], k, index[STEPS], heads, slots, links, generation, index)
            index[STEPS] += 1
    last = v + 1 + d
    columns = np.empty(v + d + 1, np.int64)
    for c in range(v):
        columns[c] = c
    for c in range(d):
        columns[v + c] = v + 1 + c
    columns[v + d] = v
    spare = np.empty(last + 1, np.int64)
    spans = np.empty((q, 2), np.int64)
    positions = np.zeros(older, np.int64)
    used = index[USED]
    words = keyed.ctypes.data + 8
    for i in range(q):
        slot, link = -1, 0
        at, size, room = used, -1, 0
        own = False  # whether the block is to stay the key's
        if kept:
            slot = _slot(heads, slots, generation, index[SLOTS], cell(keyed, i, 0), words + 8 * i * keyed.shape[1], k)
            if slot == index[SLOTS]:
                index[SLOTS] += 1
            # A block that has seen more than is asked for stays as it is.
            own = cell(slots, slot, SEEN) <= limit
            if own and cell(slots, slot, SIZE) >= 0:
                at, size, room = cell(slots, slot, AT), cell(slots, slot, SIZE), cell(slots, slot, ROOM)
                link = cell(slots, slot, WAITING)
            else:
                link = cell(slots, slot, FIRST)
        if size < 0:
            size = 0
            for layer in range(older):
                positions[layer] = advance(table, layer, positions[layer], cell(keyed, i, 0), q - i)
                key = place(table, layer, positions[layer], keyed, i, k)
                if key < 0:
                    continue
                val = key if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], key)
                end = key + 1 if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], key + 1)
                start = val if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], val)
                stop = end if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], end)
                more = stop - start
                if at + size + more > arena.shape[0]:
                    arena = more_rows(arena, at + size + more)
                read_entries(table, layer, val, start, stop, v, d, arena, at + size)
                if fold != AS_STORED:
                    for e in range(at + size, at + size + more):
                        put(arena, e, v, fold)
                size, wrapped = _merge(arena, at, size, more, v, d, columns, spare)
                if wrapped:
                    return spans, arena, OVERFLOW
            room = size
            used = at + size
        while link != 0 and cell(links, link - 1, 1) < limit:
            start, stop = cell(links, link - 1, 2), cell(links, link - 1, 3)
            step = settled + cell(links, link - 1, 1)
            more = stop - start
            if size + more > room:
                # Room for some more than that: at the end of the arena, where the block is or goes.
                wanted = 2 * (size + more) + 2
                begin = at if at + room == used else used
                if begin + wanted > arena.shape[0]:
                    arena = more_rows(arena, begin + wanted)
                if begin != at:
                    for e in range(size):
                        for c in range(last + 1):
                            put(arena, begin + e, c, cell(arena, at + e, c))
                at, room, used = begin, wanted, begin + wanted
            read_entries(table, step, start, start, stop, v, d, arena, at + size)
            size, wrapped = _merge(arena, at, size, more, v, d, columns, spare)
            if wrapped:
                return spans, arena, OVERFLOW
            if own:
                put(slots, slot, SEEN, cell(links, link - 1, 1) + 1)
            link = cell(links, link - 1, 0)
        if own:
            put(slots, slot, AT, at)
            put(slots, slot, SIZE, size)
            put(slots, slot, ROOM, room)
            put(slots, slot, WAITING, link)
        put(spans, i, 0, at)
        put(spans, i, 1, at + size)
    index[USED] = used
    return spans, arena, 0
