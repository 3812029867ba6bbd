"""The histories of many keys, gathered from the batches and steps of a trace, and cached for the slice.

A key is read again in most rounds of a slice. Its history is therefore kept in a block of its own, sorted and
consolidated, and the next call merges in what steps have added since. A call costs what is new, not what is there. All
blocks lie in one matrix, the arena; the index of the steps (step_index.py) knows where each key's block is.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, more_rows, put, put_word, word
from vernier.storage.kernels.cursors import advance, place, read_entries
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.step_index import (
    AT,
    FIRST,
    ROOM,
    ROWS,
    SEEN,
    SIZE,
    STEPS,
    TRIES,
    USED,
    WAITING,
    find_slot,
    index_steps,
    look_ahead,
    make_slot,
)
from vernier.storage.kernels.tries import FLAT, HASHES, KEY_OFFSETS, KEYS, VAL_OFFSETS, VAL_STRIDE, VALS, offset

AS_STORED = -(2**63)
"""The fold that leaves times unchanged."""

_ROOM = 24
"""How many entries of a batch the work array has room for at first."""


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
        slot = make_slot(heads, slots, generation, index, cell(keyed, i, 0), address, k)
    else:
        slot, _, _ = find_slot(heads, slots, generation, index, cell(keyed, i, 0), address, k)
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
def add_entries(table, batch, val, start, stop, v, d, fold, arena, at, size, spare):  # type: ignore[no-untyped-def]
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
def read_whole(table, settled, before, tries):  # type: ignore[no-untyped-def]
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
    whole, parts = read_whole(table, settled, before, index[TRIES])
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
            look_ahead(heads, slots, generation, index, keyed, i, arena)
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
                size, wrapped = add_entries(table, batch, val, start, stop, v, d, as_time, arena, at, size, spare)
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
