"""The index of a slice's steps: where the rows of a key are, and what is cached of its history.

A step is a matrix of sorted rows that the running slice has sealed. The index is a hash table: a head per hash names
the first slot of that hash, a slot belongs to one key, and a slot's links list the key's runs of rows in the steps.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, fetch, put, put_word, word
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.tries import FLAT, HASH_STRIDE, HASHES, KEY_STRIDE, KEY_WORDS, KEYS

HEAD = 2
"""Words per head: the hash; then the generation that wrote it (upper half) and the number of the first slot with this
hash (lower half)."""
GENERATIONS = 1 << 31
"""The number of generations that a head can distinguish, and of slots that it can name."""
NEXT, FIRST, LAST, WAITING, SEEN, AT, SIZE, ROOM, COVER_AT, COVER_SIZE, COVER_ROOM, COVER_LATER, WORDS = range(13)
"""Fields of a slot, which belongs to one key: the next slot + 1 of the same hash; its oldest and newest link + 1, and
the oldest link that is not merged into its block; how many steps its block has seen; where the block begins, its number
of entries (-1: no block) and its capacity; the same of a reduction's cover of the key, which has at least one row if
there is one, and bits for the later rounds of older entries (operators/kernels/covers.py). Then follow the key's words,
if there are several."""
LINK = 4
"""Words per link, which is a key's run of rows in a step: the next link + 1 of the key, the step, the first row, and
the row after the last."""
STEPS, LINKS, SLOTS, USED, ROWS, COUNTS = range(6)
"""What is in use: indexed steps, links, slots, rows of the arena; and the rows of the indexed steps."""
BASE, SHIFT, SCALE, TRIES, GENERATION, INDEX_WORDS = range(COUNTS, COUNTS + 6)
"""After the counts: where heads lie (`lay_out`). That is (((hash - base) >> shift) x scale) >> 32, the order in which
keys arrive, or the low bits of the hash if the scale is 0. Then the number of steps that are tries. Tries are not
indexed: they are read like batches, and while there are any, no history is cached. Then the number of the index's
generation: heads of others count as empty."""
ORDERED = 1 << 14
"""From this number of keys on, the index is laid out in hash order, the order in which keys arrive: it no longer fits
the processor's caches then."""

_LOW = (1 << 32) - 1
_HEADS_AHEAD, _SLOTS_AHEAD, _BLOCKS_AHEAD = 12, 8, 4
"""How many keys ahead a loop fetches heads, slots and blocks."""


@njit(cache=True, inline="always")
def _head(index, hashed):  # type: ignore[no-untyped-def]
    """The preferred position of a hash's head, before it is reduced modulo the number of heads, a power of two."""
    if word(index, SCALE) == 0:
        return hashed
    beyond = (np.uint64(hashed) - np.uint64(word(index, BASE))) >> np.uint64(word(index, SHIFT))
    return np.int64((beyond * np.uint64(word(index, SCALE))) >> np.uint64(32))


@njit(cache=True, inline="always")
def find_slot(heads, slots, generation, index, hashed, words, k):  # type: ignore[no-untyped-def]
    """(The slot of the key with this hash and these words or -1, where the hash's head is or would be, the last slot of
    the same hash or -1)."""
    mask = heads.shape[0] - 1
    at = _head(index, hashed) & mask
    while cell(heads, at, 1) >> 32 == generation and cell(heads, at, 0) != hashed:
        at = (at + 1) & mask
    found, chain = -1, -1
    if cell(heads, at, 1) >> 32 == generation:
        found = cell(heads, at, 1) & _LOW
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
    return found, at, chain


@njit(cache=True, inline="always")
def make_slot(heads, slots, generation, index, hashed, words, k):  # type: ignore[no-untyped-def]
    """The slot of the key with this hash and these words; a missing one is created without history."""
    found, at, chain = find_slot(heads, slots, generation, index, hashed, words, k)
    if found < 0:
        found = word(index, SLOTS)
        if chain >= 0:
            put(slots, chain, NEXT, found + 1)
        else:
            put(heads, at, 0, hashed)
            put(heads, at, 1, generation << 32 | found)
        for c in range(WORDS):
            put(slots, found, c, 0)
        put(slots, found, SIZE, -1)
        if k > 1:
            for c in range(k):
                put(slots, found, WORDS + c, load(words, c))
        put_word(index, SLOTS, found + 1)
    return found


@inlined
def look_ahead(heads, slots, generation, index, keyed, i, arena):  # type: ignore[no-untyped-def]
    """Fetch what a loop over keys will read of those after number i: first the head, then the slot, then the end of the
    block."""
    q, mask = keyed.shape[0], heads.shape[0] - 1
    if i + _HEADS_AHEAD < q:
        fetch(heads, _head(index, cell(keyed, i + _HEADS_AHEAD, 0)) & mask, 0)
    if i + _SLOTS_AHEAD < q:
        at = _head(index, cell(keyed, i + _SLOTS_AHEAD, 0)) & mask
        if cell(heads, at, 1) >> 32 == generation:
            fetch(slots, cell(heads, at, 1) & _LOW, 0)
    if i + _BLOCKS_AHEAD < q:
        at = _head(index, cell(keyed, i + _BLOCKS_AHEAD, 0)) & mask
        if cell(heads, at, 1) >> 32 == generation:
            slot = cell(heads, at, 1) & _LOW
            end = cell(slots, slot, AT) + cell(slots, slot, SIZE)
            fetch(arena, end - 1, 0)
            fetch(arena, end - 3, 0)


@njit(cache=True)
def _index_step(table, batch, k, step, heads, slots, links, generation, index):  # type: ignore[no-untyped-def]
    """Add the runs of keys of a step (a FLAT entry) to the index."""
    n, address, stride = table[batch, KEYS], table[batch, HASHES], table[batch, HASH_STRIDE]
    words = table[batch, KEY_WORDS]
    index[ROWS] += n
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
        slot = make_slot(heads, slots, generation, index, hashed, words + 8 * start * table[batch, KEY_STRIDE], k)
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


@njit(cache=True)
def count_runs(table, first, last, k):  # type: ignore[no-untyped-def]
    """(The number of runs of a key in the steps table[first:last] without tries, their lowest hash, their highest
    hash). O(rows)."""
    runs, least, most = 0, np.int64(2**63 - 1), np.int64(-(2**63))
    for batch in range(first, last):
        if table[batch, FLAT] == 0:
            continue
        address, stride, words = table[batch, HASHES], table[batch, HASH_STRIDE], table[batch, KEY_WORDS]
        if table[batch, KEYS] > 0:
            least = min(least, load(address, 0))
            most = max(most, load(address, (table[batch, KEYS] - 1) * stride))
        for i in range(table[batch, KEYS]):
            same = i > 0 and load(address, i * stride) == load(address, (i - 1) * stride)
            if same and k > 1:
                for c in range(k):
                    if load(words, i * stride + c) != load(words, (i - 1) * stride + c):
                        same = False
                        break
            runs += 0 if same else 1
    return runs, least, most


@njit(cache=True)
def lay_out(index, heads, least, most):  # type: ignore[no-untyped-def]
    """Lay out `heads` heads in the order of their hashes, which are uniform between `least` and `most` (others may
    occur, too); if `heads` is 0, by the hashes' low bits. O(1)."""
    if heads == 0 or least >= most:
        index[SCALE] = 0
        return
    reach = np.uint64(most) - np.uint64(least)
    shift = np.uint64(0)
    while (reach >> shift) >= np.uint64(1 << 32):
        shift += np.uint64(1)
    index[BASE], index[SHIFT] = least, np.int64(shift)
    index[SCALE] = max(1, np.int64((np.uint64(heads) << np.uint64(32)) // ((reach >> shift) + np.uint64(1))))


@njit(cache=True)
def spread_heads(heads, wider, generation, index):  # type: ignore[no-untyped-def]
    """Copy the heads of this generation to a larger table, int64[2**m, HEAD] of zeros."""
    mask = wider.shape[0] - 1
    for i in range(heads.shape[0]):
        if cell(heads, i, 1) >> 32 == generation:
            at = _head(index, cell(heads, i, 0)) & mask
            while cell(wider, at, 1) >> 32 == generation:
                at = (at + 1) & mask
            for c in range(HEAD):
                put(wider, at, c, cell(heads, i, c))


@njit(cache=True)
def index_steps(table, settled, before, k, heads, slots, links, generation, index):  # type: ignore[no-untyped-def]
    """Add the runs of all steps up to number `before` of the table to the index, which has capacity for them. O(new
    rows)."""
    while index[STEPS] < before - settled:
        if table[settled + index[STEPS], FLAT] != 0:
            _index_step(table, settled + index[STEPS], k, index[STEPS], heads, slots, links, generation, index)
        index[STEPS] += 1


@njit(cache=True)
def count_unknown(keyed, k, heads, slots, generation, index):  # type: ignore[no-untyped-def]
    """The number of keys that are not in the index. O(keys)."""
    unknown, words = 0, keyed.ctypes.data + 8
    for i in range(keyed.shape[0]):
        address = words + 8 * i * keyed.shape[1]
        found, _, _ = find_slot(heads, slots, generation, index, cell(keyed, i, 0), address, k)
        unknown += 1 if found < 0 else 0
    return unknown


@njit(cache=True)
def forget_blocks(slots, index):  # type: ignore[no-untyped-def]
    """Discard all blocks; the index of steps is kept. O(slots)."""
    for slot in range(index[SLOTS]):
        put(slots, slot, SEEN, 0)
        put(slots, slot, SIZE, -1)
        put(slots, slot, COVER_SIZE, 0)
    index[USED] = 0
