"""The histories of many keys, gathered from the batches and steps of a trace, and cached for the slice.

A key is read again in most rounds of a slice. Its history is therefore kept in a block of its own, sorted and
consolidated, and the next call merges in what steps have added since. A call costs what is new, not what is there.

A step is a matrix of sorted rows that the running slice has sealed. Steps are found through an index, a hash table: a
head per hash names the first slot of that hash, a slot belongs to one key, and a slot's links list the key's runs of
rows in the steps. All blocks lie in one matrix, the arena.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import advance, place, read_entries
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import (
    FLAT,
    HASH_STRIDE,
    HASHES,
    KEY_OFFSETS,
    KEY_STRIDE,
    KEY_WORDS,
    KEYS,
    VAL_OFFSETS,
    VAL_STRIDE,
    VALS,
    offset,
)

AS_STORED = -(2**63)
"""The fold that leaves times unchanged."""

HEAD = 2
"""Words per head: the hash; then the generation that wrote it (upper half) and the number of the first slot with this
hash (lower half)."""
GENERATIONS = 1 << 31
"""The number of generations that a head can distinguish, and of slots that it can name."""
NEXT, FIRST, LAST, WAITING, SEEN, AT, SIZE, ROOM, WORDS = range(9)
"""Fields of a slot, which belongs to one key: the next slot + 1 of the same hash; its oldest and newest link + 1, and
the oldest link that is not merged into its block; how many steps its block has seen; where the block begins, its number
of entries (-1: no block) and its capacity. Then follow the key's words, if there are several."""
LINK = 4
"""Words per link, which is a key's run of rows in a step: the next link + 1 of the key, the step, the first row, and
the row after the last."""
STEPS, LINKS, SLOTS, USED, ROWS, COUNTS = range(6)
"""What is in use: indexed steps, links, slots, rows of the arena; and the rows of the indexed steps."""
BASE, SHIFT, SCALE, TRIES, INDEX_WORDS = range(COUNTS, COUNTS + 5)
"""After the counts: where heads lie (`lay_out`). That is (((hash - base) >> shift) x scale) >> 32, the order in which
keys arrive, or the low bits of the hash if the scale is 0. Then the number of steps that are tries. Tries are not
indexed: they are read like batches, and while there are any, no history is cached."""

_ROOM = 64
_LOW = (1 << 32) - 1


@njit(cache=True, inline="always")
def _head(index, hashed):  # type: ignore[no-untyped-def]
    """The preferred position of a hash's head, before it is reduced modulo the number of heads, a power of two."""
    if word(index, SCALE) == 0:
        return hashed
    beyond = (np.uint64(hashed) - np.uint64(word(index, BASE))) >> np.uint64(word(index, SHIFT))
    return np.int64((beyond * np.uint64(word(index, SCALE))) >> np.uint64(32))


@njit(cache=True, inline="always")
def _find(heads, slots, generation, index, hashed, words, k):  # type: ignore[no-untyped-def]
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
def _slot(heads, slots, generation, index, hashed, words, k):  # type: ignore[no-untyped-def]
    """The slot of the key with this hash and these words; a missing one is created without history."""
    found, at, chain = _find(heads, slots, generation, index, hashed, words, k)
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
        slot = _slot(heads, slots, generation, index, hashed, words + 8 * start * table[batch, KEY_STRIDE], k)
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
        found, _, _ = _find(heads, slots, generation, index, cell(keyed, i, 0), address, k)
        unknown += 1 if found < 0 else 0
    return unknown


@njit(cache=True)
def forget_blocks(slots, index):  # type: ignore[no-untyped-def]
    """Discard all blocks; the index of steps is kept. O(slots)."""
    for slot in range(index[SLOTS]):
        put(slots, slot, SEEN, 0)
        put(slots, slot, SIZE, -1)
    index[USED] = 0


@njit(cache=True, inline="always")
def _compare(rows, i, others, j, v, d):  # type: ignore[no-untyped-def]
    """Compares entry i with entry j of `others` by (val, rounds, time): -1, 0 or 1."""
    for c in range(v):
        if cell(rows, i, c) != cell(others, j, c):
            return -1 if cell(rows, i, c) < cell(others, j, c) else 1
    for c in range(v + 1, v + 1 + d):
        if cell(rows, i, c) != cell(others, j, c):
            return -1 if cell(rows, i, c) < cell(others, j, c) else 1
    if cell(rows, i, v) != cell(others, j, v):
        return -1 if cell(rows, i, v) < cell(others, j, v) else 1
    return 0


@njit(cache=True, inline="always")
def _copy(rows, i, others, j, width):  # type: ignore[no-untyped-def]
    """Copy entry i over entry j of `others`."""
    for c in range(width):
        put(others, j, c, cell(rows, i, c))


@inlined
def _add_up(arena, first, count, v, d):  # type: ignore[no-untyped-def]
    """Sum equal entries among the `count` sorted ones from `first` on: (number left, wrapped)."""
    last = v + 1 + d
    end = first
    for row in range(first, first + count):
        if end > first and _compare(arena, end - 1, arena, row, v, d) == 0:
            total, wrapped = add_checked(cell(arena, end - 1, last), cell(arena, row, last))
            if wrapped:
                return 0, True
            put(arena, end - 1, last, total)
            continue
        if end > first and cell(arena, end - 1, last) == 0:
            end -= 1
        if end < row:
            _copy(arena, row, arena, end, last + 1)
        end += 1
    if end > first and cell(arena, end - 1, last) == 0:
        end -= 1
    return end - first, False


@njit(cache=True, inline="always")
def _order(rows, i, address, v, d):  # type: ignore[no-untyped-def]
    """Compares entry i with the one at `address` by (val, rounds, time): -1, 0 or 1."""
    for c in range(v):
        if cell(rows, i, c) != load(address, c):
            return -1 if cell(rows, i, c) < load(address, c) else 1
    for c in range(v + 1, v + 1 + d):
        if cell(rows, i, c) != load(address, c):
            return -1 if cell(rows, i, c) < load(address, c) else 1
    if cell(rows, i, v) != load(address, v):
        return -1 if cell(rows, i, v) < load(address, v) else 1
    return 0


@inlined
def _merge(arena, at, size, address, stride, more, v, d):  # type: ignore[no-untyped-def]
    """Merge `more` entries, which are `stride` bytes apart from `address` on, into the block of `size` entries at `at`,
    which has capacity for them: (new size, wrapped). Both are sorted and distinct. O(more + the entries of the block
    that sort after them)."""
    last = v + 1 + d
    # From the end backwards, so that writes never overtake reads.
    old, end = at + size - 1, at + size + more - 1
    to, new = end, address + (more - 1) * stride
    while new >= address:
        order = _order(arena, old, new, v, d) if old >= at else -1
        if order > 0:
            _copy(arena, old, arena, to, last + 1)
            old -= 1
            to -= 1
            continue
        diff = load(new, last)
        if order == 0:
            diff, wrapped = add_checked(cell(arena, old, last), diff)
            if wrapped:
                return 0, True
            old -= 1
        if diff != 0:
            for c in range(last):
                put(arena, to, c, load(new, c))
            put(arena, to, last, diff)
            to -= 1
        new -= stride
    # Summed entries have left a gap.
    if to > old:
        for row in range(to + 1, end + 1):
            _copy(arena, row, arena, old + row - to, last + 1)
    return old - at + 1 + end - to, False


@njit(cache=True, inline="always")
def _read(table, batch, val, start, stop, v, d, fold, rows, first):  # type: ignore[no-untyped-def]
    """Write entries [start, stop) of a batch, which begin with val `val`, to rows[first:], with `fold` as their time,
    and sum equal ones: (number written, wrapped)."""
    read_entries(table, batch, val, start, stop, v, d, rows, first)
    if fold == AS_STORED:
        return stop - start, False
    for e in range(first, first + stop - start):
        put(rows, e, v, fold)
    return _add_up(rows, first, stop - start, v, d)


@inlined
def _cached(keyed, i, address, k, heads, slots, generation, index, adds, remembers, limit):  # type: ignore[no-untyped-def]
    """What is cached of key i, whose words are at `address`: (its slot or -1, whether the block belongs to the key,
    where the block begins, its size or -1, its capacity, the oldest link to merge). adds: create a missing slot."""
    if adds:
        slot = _slot(heads, slots, generation, index, cell(keyed, i, 0), address, k)
    else:
        slot, _, _ = _find(heads, slots, generation, index, cell(keyed, i, 0), address, k)
    if slot < 0:
        return slot, False, 0, -1, 0, 0
    # A block that has seen more steps than the call asks for is left alone.
    own = remembers and cell(slots, slot, SEEN) <= limit
    if own and cell(slots, slot, SIZE) >= 0:
        return (
            slot, own, cell(slots, slot, AT), cell(slots, slot, SIZE), cell(slots, slot, ROOM),
            cell(slots, slot, WAITING),
        )  # fmt: skip
    return slot, own, 0, -1, 0, cell(slots, slot, FIRST)


@inlined
def _entries_of(table, batch, keyed, i, k, lo, ahead):  # type: ignore[no-untyped-def]
    """Find key i in a batch, from its key number `lo` on: (where to go on for the next key, the key's first val or -1,
    its first entry, the end of its entries). ahead: how many keys are still to be found, this one included."""
    lo = advance(cell(table, batch, HASHES), cell(table, batch, KEYS), lo, cell(keyed, i, 0), ahead)
    key = place(table, batch, lo, keyed, i, k)
    if key < 0:
        return lo, -1, 0, 0
    val = offset(cell(table, batch, KEY_OFFSETS), key)
    end = offset(cell(table, batch, KEY_OFFSETS), key + 1)
    val_offsets = cell(table, batch, VAL_OFFSETS)
    return lo, val, offset(val_offsets, val), offset(val_offsets, end)


@inlined
def _add_entries(table, batch, val, start, stop, v, d, fold, arena, at, size, spare):  # type: ignore[no-untyped-def]
    """Add entries [start, stop) of a batch, as `_read` writes them, to the block of `size` entries at `at`, which has
    capacity for them, as the spare rows have: (new size, wrapped)."""
    if size == 0:
        return _read(table, batch, val, start, stop, v, d, fold, arena, at)
    more, wrapped = _read(table, batch, val, start, stop, v, d, fold, spare, 0)
    if wrapped:
        return 0, True
    return _merge(arena, at, size, np.int64(spare.ctypes.data), 8 * (v + d + 2), more, v, d)


@inlined
def _count_waiting(links, link, limit):  # type: ignore[no-untyped-def]
    """(The number of rows of a key in steps before number `limit`, the number of those steps), from a link on."""
    rows, steps = 0, 0
    while link != 0 and cell(links, link - 1, 1) < limit:
        rows += cell(links, link - 1, 3) - cell(links, link - 1, 2)
        link = cell(links, link - 1, 0)
        steps += 1
    return rows, steps


@inlined
def _add_step(table, settled, links, link, arena, at, size, v, d):  # type: ignore[no-untyped-def]
    """Merge a key's run of rows in a step into its block of `size` entries at `at`, which has capacity for them: (new
    size, wrapped). A step is a matrix of sorted, distinct rows, so they are merged from where they are."""
    step, start = settled + cell(links, link - 1, 1), cell(links, link - 1, 2)
    stride = 8 * cell(table, step, VAL_STRIDE)
    rows = cell(table, step, VALS) + start * stride
    return _merge(arena, at, size, rows, stride, cell(links, link - 1, 3) - start, v, d)


@inlined
def _put_slot(slots, slot, at, size, room, waiting):  # type: ignore[no-untyped-def]
    """Store where a key's block is."""
    put(slots, slot, AT, at)
    put(slots, slot, SIZE, size)
    put(slots, slot, ROOM, room)
    put(slots, slot, WAITING, waiting)


@njit(cache=True, forceinline=True)
def _read_whole(table, settled, before, tries):  # type: ignore[no-untyped-def]
    """The numbers of the table's entries that are read like a batch: the batches of earlier slices, then those of the
    slice's steps that are tries, of which there are `tries`."""
    older = min(settled, before)
    whole = np.empty(older + tries, np.int64)
    parts = older
    for batch in range(older):
        put_word(whole, batch, batch)
    if tries > 0:
        for step in range(settled, before):
            if cell(table, step, FLAT) == 0:
                put_word(whole, parts, step)
                parts += 1
    return whole, parts


@njit(cache=True, forceinline=True)
def _select(  # type: ignore[no-untyped-def]
    table, keyed, k, v, d, settled, before, fold, heads, slots, links, arena, generation, index
):
    """The body of `select_keys`, compiled into it once for known widths and once for any."""
    q = keyed.shape[0]
    older, limit = min(settled, before), before - settled
    kept = heads.shape[0] > 0 and limit >= 0
    if kept and index[STEPS] < limit:
        index_steps(table, settled, before, k, heads, slots, links, generation, index)
    width = v + d + 2
    spare = np.empty((_ROOM, width), np.int64)
    spans = np.empty((q, 2), np.int64)
    whole, parts = _read_whole(table, settled, before, index[TRIES])
    remembers = kept and index[TRIES] == 0
    positions = np.zeros(parts, np.int64)
    used = index[USED] if index[TRIES] == 0 else 0
    if used == 0 and arena.shape[0] < index[ROWS]:
        # Allocate for everything that may be read in total, while nothing has to be moved: pages that are never written
        # take no memory.
        arena = np.empty((index[ROWS], width), np.int64)
    words = keyed.ctypes.data + 8
    for i in range(q):
        slot, own, at, size, room, link = -1, False, 0, -1, 0, 0
        if kept:
            address, adds = words + 8 * i * keyed.shape[1], remembers and older > 0
            slot, own, at, size, room, link = _cached(
                keyed, i, address, k, heads, slots, generation, index, adds, remembers, limit
            )
            if slot < 0 and parts == 0:
                # In no batch and in no step: there is nothing to cache for this key.
                put(spans, i, 0, 0)
                put(spans, i, 1, 0)
                continue
        if size < 0:
            at, size = used, 0
            for part in range(parts):
                batch = word(whole, part)
                lo, val, start, stop = _entries_of(table, batch, keyed, i, k, word(positions, part), q - i)
                put_word(positions, part, lo)
                if val < 0:
                    continue
                more, as_time = stop - start, fold if part < older else AS_STORED
                if at + size + more > arena.shape[0]:
                    arena = more_rows(arena, at + size + more)
                if size > 0 and more > spare.shape[0]:
                    spare = np.empty((2 * more, width), np.int64)
                size, wrapped = _add_entries(table, batch, val, start, stop, v, d, as_time, arena, at, size, spare)
                if wrapped:
                    return spans, arena, OVERFLOW
            # Capacity for everything that the steps hold for this key. If the block is kept and spans several steps,
            # add some more, so that it need not move while it is read.
            more, steps = _count_waiting(links, link, limit)
            room = size + more
            if own and parts + steps > 1 and room > 0:
                room += room // 2 + 4
            if at + room > arena.shape[0]:
                arena = more_rows(arena, at + room)
            used = at + room
        while link != 0 and cell(links, link - 1, 1) < limit:
            more = cell(links, link - 1, 3) - cell(links, link - 1, 2)
            if size + more > room:
                # Grow beyond that, at the end of the arena: the block is there already or moves there.
                wanted = 2 * (size + more) + 2
                begin = at if at + room == used else used
                if begin + wanted > arena.shape[0]:
                    arena = more_rows(arena, begin + wanted)
                if begin != at:
                    for e in range(size):
                        _copy(arena, at + e, arena, begin + e, width)
                at, room, used = begin, wanted, begin + wanted
            size, wrapped = _add_step(table, settled, links, link, arena, at, size, v, d)
            if wrapped:
                return spans, arena, OVERFLOW
            if own:
                put(slots, slot, SEEN, cell(links, link - 1, 1) + 1)
            link = cell(links, link - 1, 0)
        if own:
            _put_slot(slots, slot, at, size, room, link)
        put(spans, i, 0, at)
        put(spans, i, 1, at + size)
    index[USED] = used
    return spans, arena, 0


@njit(cache=True)
def select_keys(  # type: ignore[no-untyped-def]
    table, keyed, k, v, d, settled, before, fold, heads, slots, links, arena, generation, index
):
    """The consolidated histories of q keys over the first `before` of a trace's batches and steps.

    table[l, FIELDS]; keyed[q, >= 1 + k] begins with the hash and the key words: distinct, sorted by hash. Entries `0 ..
    settled-1` of the table are batches older than the slice: their times read as `fold`. The entries after them are the
    slice's steps. Steps are tries, or many small matrices, which are found through an index. This call updates the
    index: heads[2**m, HEAD] (open addressing), slots[n, WORDS + k] and links[n, LINK] must have capacity for it. If
    heads is empty, there is no index and nothing is cached.

    Returns (spans[q, 2], arena, status). Key i's history is arena[spans[i, 0] : spans[i, 1]]: entries `[val words |
    time | rounds | diff]` sorted by (val, rounds, time), valid until the next call. The arena is the given one or a
    larger one. A key that has been read before costs O(1 + new entries x the entries of its block that they pass);
    another key costs O(batches + history).
    """
    if k == 1 and v == 1 and d == 1:
        # Constant widths of one word get a loop of their own, whose inner loops are unrolled.
        return _select(table, keyed, 1, 1, 1, settled, before, fold, heads, slots, links, arena, generation, index)
    return _select(table, keyed, k, v, d, settled, before, fold, heads, slots, links, arena, generation, index)
