"""The first vals of many keys' histories, up to one that is present all the time: all that a least val depends on.

A key may have many more vals than the ones that decide its output: in a loop that spreads the least label, a node keeps
what all its neighbours said in all rounds. So the batches and steps are merged val by val, and a key is left as soon as
a val is present from the beginning of the slice on. Nothing is cached: what would be kept changes with the round.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, more_rows, put, word
from vernier.storage.kernels.cursors import advance, place
from vernier.storage.kernels.histories import AS_STORED, add_entries, read_whole
from vernier.storage.kernels.inlining import inlined
from vernier.storage.kernels.pointers import fetch_word, load
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.step_index import FIRST, TRIES, USED, find_slot, index_steps
from vernier.storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASHES,
    KEY_OFFSETS,
    KEYS,
    ROUND_STRIDE,
    ROUNDS,
    TIME_STRIDE,
    TIMES,
    VAL_OFFSETS,
    VAL_STRIDE,
    VALS,
    offset,
    place_of,
    val_word,
)

_HEAD, _ENTRY, _AT, _END, _TIME, _SOURCE = range(6)
"""What is left of a key in a batch or step: the first word of the next val (0 if vals have no words), the entry of the
table, the position of the next val and the end of the vals, and the time that its updates read with."""
_ROOM = 64
_FAR, _NEAR = 12, 6
"""How many keys ahead a loop fetches where vals begin, and then their entries."""


@inlined
def _fetch(address, index):  # type: ignore[no-untyped-def]
    """Fetch an entry of a column that may be narrow (kernels/tries.py)."""
    fetch_word(place_of(address, index), 0)


@inlined
def _look_ahead(table, whole, parts, vals, key):  # type: ignore[no-untyped-def]
    """Fetch what a loop over keys will read of those after number `key`."""
    q = vals.shape[0]
    for part in range(parts):
        batch = word(whole, part)
        if key + _FAR < q and cell(vals, key + _FAR, 2 * part) >= 0:
            val = cell(vals, key + _FAR, 2 * part)
            _fetch(cell(table, batch, VALS), val * cell(table, batch, VAL_STRIDE))
            if cell(table, batch, VAL_OFFSETS) != 0:
                _fetch(cell(table, batch, VAL_OFFSETS), val)
        if key + _NEAR < q and cell(vals, key + _NEAR, 2 * part) >= 0:
            entry = offset(cell(table, batch, VAL_OFFSETS), cell(vals, key + _NEAR, 2 * part))
            _fetch(cell(table, batch, ROUNDS), entry * cell(table, batch, ROUND_STRIDE))
            _fetch(cell(table, batch, DIFFS), entry * cell(table, batch, DIFF_STRIDE))
            fetch_word(cell(table, batch, TIMES), entry * cell(table, batch, TIME_STRIDE))


@inlined
def _order(table, sources, one, two, v):  # type: ignore[no-untyped-def]
    """Compares the next vals of two sources: -1, 0 or 1."""
    if cell(sources, one, _HEAD) != cell(sources, two, _HEAD):
        return -1 if cell(sources, one, _HEAD) < cell(sources, two, _HEAD) else 1
    if v > 1:
        here, there = cell(sources, one, _ENTRY), cell(sources, two, _ENTRY)
        i, j = cell(sources, one, _AT), cell(sources, two, _AT)
        for c in range(1, v):
            a, b = val_word(table, here, i, c), val_word(table, there, j, c)
            if a != b:
                return -1 if a < b else 1
    return 0


@inlined
def _put_source(table, sources, source, entry, at, end, time, v):  # type: ignore[no-untyped-def]
    """Write what is left of a key in an entry of the table."""
    put(sources, source, _ENTRY, entry)
    put(sources, source, _END, end)
    put(sources, source, _TIME, time)
    _move(table, sources, source, at, v)


@inlined
def _move(table, sources, source, at, v):  # type: ignore[no-untyped-def]
    """Let `at` be the position of the source's next val."""
    put(sources, source, _AT, at)
    head = np.int64(0)
    if v > 0 and at < cell(sources, source, _END):
        head = val_word(table, cell(sources, source, _ENTRY), at, 0)
    put(sources, source, _HEAD, head)


@inlined
def _end_of_val(table, sources, source, v):  # type: ignore[no-untyped-def]
    """The position after the source's next val. Without offsets, each update has a position, and equal vals are
    adjacent."""
    entry, at = cell(sources, source, _ENTRY), cell(sources, source, _AT)
    end = at + 1
    if cell(table, entry, VAL_OFFSETS) != 0:
        return end
    while end < cell(sources, source, _END):
        for c in range(v):
            if val_word(table, entry, end, c) != val_word(table, entry, at, c):
                return end
        end += 1
    return end


@inlined
def _lasts(arena, at, size, v, d, begin, now, ago, limit):  # type: ignore[no-untyped-def]
    """Whether a val surely has `limit` copies at all times from `begin` on, by its updates at rounds up to the one that
    is `ago` before `now`."""
    there, gone = np.int64(0), np.int64(0)
    wrapped = False
    for e in range(at, at + size):
        counts = True
        for c in range(d):
            if cell(arena, e, v + 1 + c) > word(now, c) - ago:
                counts = False
        if counts:
            diff, more = cell(arena, e, v + 1 + d), False
            if cell(arena, e, v) <= begin:
                there, more = add_checked(there, diff)
            elif diff < 0:
                gone, more = add_checked(gone, diff)
            wrapped = wrapped or more
    left, more = add_checked(there, gone)
    return not wrapped and not more and left >= limit


@inlined
def _beginning(table, sources, n, older, fold):  # type: ignore[no-untyped-def]
    """The time before which a key has no updates: that of all, if they are of this slice and have the same, else the
    fold."""
    if older:
        return fold
    first = cell(sources, 0, _ENTRY)
    for source in range(n):
        entry = cell(sources, source, _ENTRY)
        if cell(table, entry, TIME_STRIDE) != 0:
            return fold
        if load(cell(table, entry, TIMES), 0) != load(cell(table, first, TIMES), 0):
            return fold
    return load(cell(table, first, TIMES), 0)


@njit(cache=True, forceinline=True)
def _find_vals(table, whole, parts, keyed, k):  # type: ignore[no-untyped-def]
    """int64[q, 2 x parts]: where the vals of each key begin and end in each of the batches; -1: it is not there."""
    q = keyed.shape[0]
    vals = np.empty((q, 2 * parts), np.int64)
    for part in range(parts):
        batch, lo = word(whole, part), np.int64(0)
        hashes, size, offsets = cell(table, batch, HASHES), cell(table, batch, KEYS), cell(table, batch, KEY_OFFSETS)
        for i in range(q):
            lo = advance(hashes, size, lo, cell(keyed, i, 0), q - i)
            key = place(table, batch, lo, keyed, i, k)
            put(vals, i, 2 * part, offset(offsets, key) if key >= 0 else -1)
            put(vals, i, 2 * part + 1, offset(offsets, key + 1) if key >= 0 else -1)
    return vals


@njit(cache=True, forceinline=True)
def _select(  # type: ignore[no-untyped-def]
    table, keyed, k, v, d, settled, before, fold, now, both, limit, heads, slots, links, arena, generation, index
):
    """The body of `select_leading`, compiled into it once for known widths and once for any."""
    q, older = keyed.shape[0], min(settled, before)
    indexed = heads.shape[0] > 0 and before > settled
    if indexed:
        index_steps(table, settled, before, k, heads, slots, links, generation, index)
    whole, parts = read_whole(table, settled, before, index[TRIES])
    vals = _find_vals(table, whole, parts, keyed, k)
    least = parts + before - older
    sources = np.empty((least + 1, _SOURCE), np.int64)
    spans, spare = np.empty((q, 2), np.int64), np.empty((_ROOM, v + d + 2), np.int64)
    # Behind what is cached, which other callers read.
    used, words = index[USED], keyed.ctypes.data + 8
    for i in range(q):
        _look_ahead(table, whole, parts, vals, i)
        n, settles = 0, False
        for part in range(parts):
            if cell(vals, i, 2 * part) >= 0:
                settles = settles or part < older
                at, end = cell(vals, i, 2 * part), cell(vals, i, 2 * part + 1)
                _put_source(table, sources, n, word(whole, part), at, end, fold if part < older else AS_STORED, v)
                n += 1
        if indexed:
            slot, _, _ = find_slot(
                heads, slots, generation, index, cell(keyed, i, 0), words + 8 * i * keyed.shape[1], k
            )
            link = cell(slots, slot, FIRST) if slot >= 0 else 0
            while link != 0 and settled + cell(links, link - 1, 1) < before:
                at, end = cell(links, link - 1, 2), cell(links, link - 1, 3)
                _put_source(table, sources, n, settled + cell(links, link - 1, 1), at, end, AS_STORED, v)
                n += 1
                link = cell(links, link - 1, 0)
        at, end = used, used
        begin = _beginning(table, sources, n, settles, fold) if n > 0 else fold
        while n > 0:
            # The least of the next vals, of all sources that have it.
            for c in range(_SOURCE):
                put(sources, least, c, cell(sources, 0, c))
            for source in range(1, n):
                if _order(table, sources, source, least, v) < 0:
                    for c in range(_SOURCE):
                        put(sources, least, c, cell(sources, source, c))
            size = 0
            for source in range(n):
                if _order(table, sources, source, least, v) != 0:
                    continue
                entry, val = cell(sources, source, _ENTRY), cell(sources, source, _AT)
                after = _end_of_val(table, sources, source, v)
                start, stop = (
                    offset(cell(table, entry, VAL_OFFSETS), val),
                    offset(cell(table, entry, VAL_OFFSETS), after),
                )
                if end + size + stop - start > arena.shape[0]:
                    arena = more_rows(arena, end + size + stop - start)
                if stop - start > spare.shape[0]:
                    spare = np.empty((2 * (stop - start), v + d + 2), np.int64)
                size, wrapped = add_entries(
                    table, entry, val, start, stop, v, d, cell(sources, source, _TIME), arena, end, size, spare
                )
                if wrapped:
                    return spans, arena, OVERFLOW
                _move(table, sources, source, after, v)
            first = end
            end += size
            if _lasts(arena, first, size, v, d, begin, now, 0, limit):
                if not both or _lasts(arena, first, size, v, d, begin, now, 1, limit):
                    break
            left = 0
            for source in range(n):
                if cell(sources, source, _AT) < cell(sources, source, _END):
                    if left < source:
                        for c in range(_SOURCE):
                            put(sources, left, c, cell(sources, source, c))
                    left += 1
            n = left
        put(spans, i, 0, at)
        put(spans, i, 1, end)
        used = end
    return spans, arena, 0


@njit(cache=True)
def select_leading(  # type: ignore[no-untyped-def]
    table, keyed, k, v, settled, before, fold, now, both, limit, heads, slots, links, arena, generation, index
):
    """What `select_keys` returns of each key up to its first val that has `limit` copies at all times of the slice, by
    the updates at rounds up to `now`, and, if `both`, one that has them by those up to the round that is one less in
    every loop; all updates of these vals, also at later rounds. Nothing is cached.

    The parameters are those of `select_keys`; now[d]: a round. If all updates of a key are of this slice and have the
    same time, as in a load, times before it do not count. A key costs O(its entries in what is returned x the batches
    and steps in which it is); the arena is the given one or a larger one, and histories lie behind what is cached in
    it.
    """
    d = now.shape[0]
    if k == 1 and v == 1 and d == 1:
        return _select(
            table, keyed, 1, 1, 1, settled, before, fold, now, both, limit, heads, slots, links, arena, generation,
            index,
        )  # fmt: skip
    if k == 1 and v == 1 and d == 2:
        return _select(
            table, keyed, 1, 1, 2, settled, before, fold, now, both, limit, heads, slots, links, arena, generation,
            index,
        )  # fmt: skip
    return _select(
        table, keyed, k, v, d, settled, before, fold, now, both, limit, heads, slots, links, arena, generation, index
    )
