"""Covers: which val a key's output has at each time of the slice, kept from round to round.

A cover is a step function of time, from the slice's fold on. Where times are (data time, round) alone, the output up to
the round before is what the input up to that round gives. So the corrections of a round are where the cover changes,
and the earlier output need not be read. The changes of a round touch neither vals that come before all vals that have
changes at this round, nor the times that such vals cover. For the rest of the time, and from the first changed val on,
vals claim time as in kernels/presence.py.

The cover of a key lies in the arena of the output's history cache, and the cache's slot of the key says where
(storage/kernels/step_index.py). Without a slot, and when the cache has been cleared, the cover before the round is
computed from the input.
"""

import numpy as np
from numba import njit

from vernier.operators.kernels.aggregating import KIND, LIMIT, MAX, PRESENT
from vernier.operators.kernels.corrections import write_correction
from vernier.operators.kernels.presence import NEVER, claim_all, claim_time, work_space
from vernier.operators.kernels.rounds import below, finish_visits, schedule
from vernier.storage.kernels.cells import cell, fetch, more_rows, put, put_word, word
from vernier.storage.kernels.consolidating import sort_order
from vernier.storage.kernels.inlining import allocating, inlined
from vernier.storage.kernels.pointers import copy_bytes
from vernier.storage.kernels.sorting import stable_order
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.step_index import (
    COVER_AT,
    COVER_LATER,
    COVER_ROOM,
    COVER_SIZE,
    GENERATION,
    USED,
    make_slot,
)

_BEGIN, _HAS, _VAL = range(3)
"""Columns of a piece of a cover: when it begins, whether there is a val, and the first word of the val. A piece ends
where the next one begins."""
_NONE = -1
"""No val. Vals are named by an entry of the input, or by -2 - the number of a piece of the earlier cover."""
_ROOM = 8
"""How many entries of a key the work arrays have room for at first. In a step of a few rows memory of some kilobytes
costs more than what is done with it."""
_AHEAD = 8
"""How many keys ahead memory is fetched."""
_FEW = 32
"""Up to this many items, insertion sort is used."""


@inlined
def _word(inputs, arena, at, val, c):  # type: ignore[no-untyped-def]
    """Word c of a named val; `at` is where the earlier cover begins."""
    if val >= 0:
        return cell(inputs, val, c)
    return cell(arena, at - 2 - val, _VAL + c)


@inlined
def _bit(at):  # type: ignore[no-untyped-def]
    """The bit of a round among those of later rounds; all rounds from number 63 on share the last one."""
    return np.int64(1) << min(at, 63)


@inlined
def _reclaimed(arena, piece, bound, w, greatest):  # type: ignore[no-untyped-def]
    """Whether the time of a piece is claimed anew: it has no val, or none that comes before `bound`."""
    none = cell(arena, piece, _HAS) == 0
    if w == 1:
        a, b = cell(arena, piece, _VAL), word(bound, 0)
        return none | (a == b) | ((a < b) == greatest)
    for c in range(w):
        a, b = cell(arena, piece, _VAL + c), word(bound, c)
        if a != b:
            return none or (a < b) == greatest
    return True


@allocating
def _sort_many(taken: np.ndarray, takes: int) -> None:
    """Sort intervals by where they begin."""
    begins = np.empty(takes, np.int64)
    for i in range(takes):
        begins[i] = taken[0, i]
    order, rows = stable_order(begins), taken.copy()
    for i in range(takes):
        for c in range(3):
            taken[c, i] = rows[c, order[i]]


@inlined
def _sort_taken(taken, takes):  # type: ignore[no-untyped-def]
    """The same; usually they are in order already."""
    i = 1
    while i < takes and cell(taken, 0, i - 1) < cell(taken, 0, i):
        i += 1
    if takes - i > _FEW:
        _sort_many(taken, takes)
        return
    while i < takes:
        begin, end, entry = cell(taken, 0, i), cell(taken, 1, i), cell(taken, 2, i)
        j = i
        while j > 0 and cell(taken, 0, j - 1) > begin:
            for c in range(3):
                put(taken, c, j, cell(taken, c, j - 1))
            j -= 1
        put(taken, 0, j, begin)
        put(taken, 1, j, end)
        put(taken, 2, j, entry)
        i += 1


@inlined
def _push(pieces, made, begin, inputs, arena, at, val, w):  # type: ignore[no-untyped-def]
    """Add a piece behind the first `made` ones, unless it continues the last one. Returns how many there are."""
    has = np.int64(val != _NONE)
    if made > 0 and cell(pieces, made - 1, _HAS) == has:
        same = True
        if has:
            for c in range(w):
                same = same and cell(pieces, made - 1, _VAL + c) == _word(inputs, arena, at, val, c)
        if same:
            return made
    put(pieces, made, _BEGIN, begin)
    put(pieces, made, _HAS, has)
    for c in range(w):
        put(pieces, made, _VAL + c, _word(inputs, arena, at, val, c) if has else 0)
    return made + 1


@inlined
def _first_word(inputs, arena, at, val, w):  # type: ignore[no-untyped-def]
    """The first word of a named val, 0 if vals have none."""
    return _word(inputs, arena, at, val, 0) if w > 0 else np.int64(0)


@inlined
def _order_rest(inputs, arena, at, one, two, w):  # type: ignore[no-untyped-def]
    """Compares two named vals that begin with the same word: -1, 0 or 1."""
    for c in range(1, w):
        a, b = _word(inputs, arena, at, one, c), _word(inputs, arena, at, two, c)
        if a != b:
            return -1 if a < b else 1
    return 0


@inlined
def _add(changes, start, n, inputs, arena, at, val, time, diff, w):  # type: ignore[no-untyped-def]
    """Add a change of a val to changes[:n]; those from `start` on are at this time, too. Returns how many there are."""
    if val == _NONE:
        return n
    first = _first_word(inputs, arena, at, val, w)
    for i in range(start, n):
        if cell(changes, i, 3) == first and _order_rest(inputs, arena, at, cell(changes, i, 0), val, w) == 0:
            total = cell(changes, i, 2) + diff
            put(changes, i, 2, total)
            if total == 0:
                for c in range(4):
                    put(changes, i, c, cell(changes, n - 1, c))
                return n - 1
            return n
    put(changes, n, 0, val)
    put(changes, n, 1, time)
    put(changes, n, 2, diff)
    put(changes, n, 3, first)
    return n + 1


@inlined
def _add_turn(changes, n, inputs, arena, at, old, new, was, wanted, time, w):  # type: ignore[no-untyped-def]
    """Add the changes at a time at which the cover turns from `old` to `was` and should turn from `new` to `wanted`.
    Returns how many changes there are."""
    start = n
    for which in range(4):
        # One place for the compiler instead of four.
        val, other, diff = new, old, -1
        if which == 1:
            val, other, diff = old, new, 1
        elif which == 2:
            val, other, diff = wanted, was, 1
        elif which == 3:
            val, other, diff = was, wanted, -1
        if val != other:
            n = _add(changes, start, n, inputs, arena, at, val, time, diff, w)
    return n


@inlined
def _before(changes, i, j, inputs, arena, at, w):  # type: ignore[no-untyped-def]
    """Whether change i sorts before change j: by val, then time."""
    if cell(changes, i, 3) != cell(changes, j, 3):
        return cell(changes, i, 3) < cell(changes, j, 3)
    order = _order_rest(inputs, arena, at, cell(changes, i, 0), cell(changes, j, 0), w)
    return order < 0 or (order == 0 and cell(changes, i, 1) < cell(changes, j, 1))


@allocating
def _sort_all(changes: np.ndarray, n: int, inputs: np.ndarray, arena: np.ndarray, at: int, w: int) -> None:
    """Sort changes by val, then time."""
    rows = np.empty((n, w + 1), np.int64)
    for i in range(n):
        for c in range(w):
            rows[i, c] = _word(inputs, arena, at, changes[i, 0], c)
        rows[i, w] = changes[i, 1]
    order, copy = sort_order(rows, np.arange(w + 1)), changes[:n].copy()
    for i in range(n):
        for c in range(4):
            changes[i, c] = copy[order[i], c]


@inlined
def _sort_changes(changes, i, n, inputs, arena, at, w):  # type: ignore[no-untyped-def]
    """The same; the first i are in order already."""
    if n - i > _FEW:
        _sort_all(changes, n, inputs, arena, at, w)
        return
    while i < n:
        j = i
        while j > 0 and _before(changes, j, j - 1, inputs, arena, at, w):
            for c in range(4):
                kept = cell(changes, j, c)
                put(changes, j, c, cell(changes, j - 1, c))
                put(changes, j - 1, c, kept)
            j -= 1
        i += 1


@inlined
def _write_changes(out, count, keyed, key, k, inputs, arena, at, changes, n, w, now):  # type: ignore[no-untyped-def]
    """Write changes, which are in time order, as corrections by val and time. Returns the number of corrections."""
    i = 1
    while i < n and _before(changes, i - 1, i, inputs, arena, at, w):
        i += 1
    if i < n and (w > 1 or n > _FEW):
        _sort_changes(changes, i, n, inputs, arena, at, w)
        i = n
    stop, least = count + n, cell(changes, 0, 3)
    for j in range(i, n):
        least = min(least, cell(changes, j, 3))
    while count < stop:
        # All of them if they are in order; otherwise, val after val, those of one val.
        following = NEVER
        for j in range(n):
            first = cell(changes, j, 3)
            if i < n and first != least:
                following = min(following, first) if first > least else following
                continue
            val, time, diff = cell(changes, j, 0), cell(changes, j, 1), cell(changes, j, 2)
            if val >= 0:
                write_correction(out, count, keyed, key, k, inputs, val, 0, w, time, now, diff)
            else:
                write_correction(out, count, keyed, key, k, arena, at - 2 - val, _VAL, w, time, now, diff)
            count += 1
        least = following
    return count


@inlined
def _find_free(arena, at, size, bound, w, greatest, free, runs):  # type: ignore[no-untyped-def]
    """Write the time of the pieces that are claimed anew to free[:2], and which pieces these are to runs[:2]. Returns
    the number of intervals."""
    frees, inside = 0, np.int64(0)
    for piece in range(size):
        there = np.int64(_reclaimed(arena, at + piece, bound, w, greatest))
        # Overwritten until the slot is final: cheaper than a branch.
        put(free, inside, frees, cell(arena, at + piece, _BEGIN))
        put(runs, inside, frees, piece)
        frees += inside & ~there
        inside = there
    if inside != 0:
        put(free, 1, frees, NEVER)
        put(runs, 1, frees, size)
        frees += 1
    return frees


@inlined
def _write_pieces(pieces, inputs, taken, takes, fold, w):  # type: ignore[no-untyped-def]
    """Make a cover of intervals taken of all time from `fold` on. Returns the number of its pieces."""
    made, until = 0, fold
    for i in range(takes):
        if cell(taken, 0, i) > until:
            made = _push(pieces, made, until, inputs, pieces, 0, _NONE, w)
        made = _push(pieces, made, cell(taken, 0, i), inputs, pieces, 0, cell(taken, 2, i), w)
        until = cell(taken, 1, i)
    if until != NEVER:
        made = _push(pieces, made, until, inputs, pieces, 0, _NONE, w)
    return made


@inlined
def _turn(  # type: ignore[no-untyped-def]
    arena, at, size, inputs, w, runs, frees, taken, takes, fold, pieces, changes
):
    """Replace the reclaimed time of the cover, which is that of the pieces runs[:2, :frees], by the intervals taken,
    which are in time order: writes the new cover to `pieces` and the corrections to `changes`: named val, time, diff,
    first word of the val. Returns the numbers of both."""
    made, n, one, piece = 0, 0, 0, 0
    for run in range(frees + 1):
        # Pieces that stay have another val than their new neighbours, whose vals come after theirs.
        stop = cell(runs, 0, run) if run < frees else size
        while piece < stop:
            for c in range(_VAL + w):
                put(pieces, made, c, cell(arena, at + piece, c))
            made += 1
            piece += 1
        if run == frees:
            break
        stop = cell(runs, 1, run)
        old, new = _NONE, _NONE
        time = cell(arena, at + piece, _BEGIN)
        while piece < stop:
            following = cell(arena, at + piece + 1, _BEGIN) if piece + 1 < size else NEVER
            was = -2 - piece if cell(arena, at + piece, _HAS) != 0 else _NONE
            wanted = cell(taken, 2, one) if one < takes and cell(taken, 0, one) <= time else _NONE
            turns = was != old or wanted != new
            if turns and time > fold:
                n = _add_turn(changes, n, inputs, arena, at, old, new, was, wanted, time, w)
            made = _push(pieces, made, time, inputs, arena, at, wanted, w)
            old, new = was, wanted
            until = following
            if one < takes:
                until = min(until, cell(taken, 1 if wanted != _NONE else 0, one))
                if wanted != _NONE and cell(taken, 1, one) == until:
                    one += 1
            time = until
            if until == following:
                piece += 1
        if piece < size:
            n = _add_turn(changes, n, inputs, arena, at, old, new, _NONE, _NONE, time, w)
    return made, n


@inlined
def _first_of(inputs, base, stop, bound, w, greatest):  # type: ignore[no-untyped-def]
    """The first entry whose val begins with `bound` or more; the last one with that or less, if the greatest are
    preferred. Entries are sorted by val."""
    low, high, step = base, stop, 1
    # From the end, in longer and longer steps: what has just been merged into a block has touched its end.
    while low < high:
        middle = max(low, high - step) if step > 0 else (low + high) >> 1
        before = greatest
        for c in range(w):
            a, b = cell(inputs, middle, c), word(bound, c)
            if a != b:
                before = a < b
                break
        if before:
            low, step = middle + 1, 0
        else:
            high, step = middle, 2 * step
    return low - 1 if greatest else low


@inlined
def _first_row(fresh, keyed):  # type: ignore[no-untyped-def]
    """The first of the fresh rows, which are sorted by hash, that may belong to one of the keys, or to a later one."""
    low, high = 0, fresh.shape[0] if keyed.shape[0] > 0 else 0
    while low < high:
        middle = (low + high) >> 1
        if cell(fresh, middle, 0) < cell(keyed, 0, 0):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _run_of(fresh, at, keyed, key, k):  # type: ignore[no-untyped-def]
    """Find a key in the fresh rows, from row `at` on: (its first row, the row after its last one)."""
    one = 1 if k == 1 else 1 + k
    n = fresh.shape[0]
    while at < n and cell(fresh, at, 0) < cell(keyed, key, 0):
        at += 1
    while at < n and cell(fresh, at, 0) == cell(keyed, key, 0) and not _same_key(fresh, at, keyed, key, one):
        at += 1
    end = at
    while end < n and _same_key(fresh, end, keyed, key, one):
        end += 1
    return at, end


@inlined
def _same_key(fresh, i, keyed, key, width):  # type: ignore[no-untyped-def]
    """Whether row i has this key; the hash of a one-word key determines it."""
    for c in range(width):
        if cell(fresh, i, c) != cell(keyed, key, c):
            return False
    return True


@inlined
def _copy_pieces(pieces, n, arena, at):  # type: ignore[no-untyped-def]
    """Copy a cover of n pieces to where it is kept."""
    row = 8 * pieces.shape[1]
    copy_bytes(arena.ctypes.data + row * at, pieces.ctypes.data, row * n)


@njit(cache=True, forceinline=True)
def cover_round(  # type: ignore[no-untyped-def]
    keyed, k, fresh, in_spans, inputs, v, w, arena, now, fold, aggregation, heads, slots, index, leading
):
    """What `cover_keys` does outside nested loops: (corrections, visits, arena, status, key at fault). Inlined there
    both for known and for arbitrary widths."""
    d = now.shape[0]
    q = keyed.shape[0]
    limit = aggregation[LIMIT] if aggregation[KIND] == PRESENT else 1
    greatest = aggregation[KIND] == MAX
    keeps = heads.shape[0] > 0
    used = index[USED] if keeps else 0
    earlier = now.copy()
    for c in range(d):
        earlier[c] -= 1
    out = np.empty((4 * q + 16, 3 + k + w + d), np.int64)
    visits = np.empty((q + 16, d + 1 + k), np.int64)
    count, scheduled = 0, 0
    # Work space, grown when needed: assigning arrays inside the loop would count references for every val.
    times, diffs = np.empty(_ROOM, np.int64), np.empty(_ROOM, np.int64)
    stretch, free, taken = work_space(_ROOM)
    pieces, changes = np.empty((4 * _ROOM, arena.shape[1]), np.int64), np.empty((8 * _ROOM, 4), np.int64)
    runs = np.empty((2, _ROOM), np.int64)
    bound, places, row = np.empty(w, np.int64), np.empty(q if keeps else 0, np.int64), _first_row(fresh, keyed)
    if keeps:
        # Looked up before the loop below, so that the processor waits for the memory of many keys at once.
        for key in range(q):
            address = keyed.ctypes.data + 8 * (key * keyed.shape[1] + 1)
            slot = make_slot(heads, slots, index[GENERATION], index, cell(keyed, key, 0), address, k)
            put_word(places, key, slot)
    for key in range(q):
        base, stop = cell(in_spans, key, 0), cell(in_spans, key, 1)
        slot, at, size, room = -1, used, 0, 0
        if key + _AHEAD < q:
            if keeps:
                fetch(slots, word(places, key + _AHEAD), COVER_AT)
            last = cell(in_spans, key + _AHEAD, 1) - 1
            for step in range(6):
                fetch(inputs, last - (1 << step) + 1, 0)  # where `_first_of` will look
        if keeps and key + _AHEAD // 2 < q:
            fetch(arena, cell(slots, word(places, key + _AHEAD // 2), COVER_AT), 0)
        if keeps:
            slot = word(places, key)
            size = cell(slots, slot, COVER_SIZE)
            if size > 0:
                at, room = cell(slots, slot, COVER_AT), cell(slots, slot, COVER_ROOM)
        entries = stop - base
        if max(entries, size) >= stretch.shape[1]:
            times, diffs = np.empty(2 * max(entries, size), np.int64), np.empty(2 * max(entries, size), np.int64)
            stretch, free, taken = work_space(2 * max(entries, size))
        known, moved, later = size > 0, False, np.int64(0)
        row, end = _run_of(fresh, row, keyed, key, k)
        if d == 1 and (not known or leading != 0):
            # The first visit in this slice, or what it has left is gone; or this visit may read vals that no visit has
            # read before, which may change at later rounds, too.
            if known:
                later = cell(slots, slot, COVER_LATER)
            if scheduled + entries > visits.shape[0]:
                visits = more_rows(visits, scheduled + entries)
            visited = scheduled
            for e in range(base, stop):
                bit = _bit(cell(inputs, e, v + 1))
                if not below(inputs, e, v + 1, now):
                    if later & bit == 0 or bit < 0:
                        scheduled = schedule(visits, visited, scheduled, inputs, e, v + 1, now)
                        later |= bit
                elif cell(inputs, e, v) > fold and cell(inputs, e, v + 1) != word(now, 0):
                    moved = True
            finish_visits(visits, visited, scheduled, keyed, key, k, d)
            if keeps:
                put(slots, slot, COVER_LATER, later)
        if known and end > row and cell(slots, slot, COVER_LATER) & _bit(word(now, 0)) == 0:
            # No older entry is of this round, so the fresh rows say which vals change.
            for c in range(w):
                put_word(bound, c, cell(fresh, end - 1 if greatest else row, 1 + k + c))
        else:
            # The entry of this round whose val comes first.
            first, step = stop - 1 if greatest else base, -1 if greatest else 1
            if d == 1:
                while base <= first < stop and cell(inputs, first, v + 1) != word(now, 0):
                    first += step
            if not known and d == 1 and not moved:
                # Nothing has changed at earlier rounds, so the earlier cover is one piece, whatever it is.
                first = stop - 1 if greatest else base
            if not base <= first < stop:
                continue
            if not known:
                size = 1
                if used >= arena.shape[0]:
                    arena = more_rows(arena, used + 1)
                put(arena, used, _BEGIN, fold)
                put(arena, used, _HAS, 0)
                if moved:
                    put(free, 0, 0, fold)
                    put(free, 1, 0, NEVER)
                    takes, wrapped = claim_all(
                        inputs, base, stop, stop - 1 if greatest else base, v, earlier, limit, greatest, stretch, times,
                        diffs, free, 1, taken,
                    )  # fmt: skip
                    if wrapped:
                        return out[:0], visits[:0], arena, OVERFLOW, key
                    _sort_taken(taken, takes)
                    if 2 * takes >= pieces.shape[0]:
                        pieces = np.empty((4 * takes, arena.shape[1]), np.int64)
                    size = _write_pieces(pieces, inputs, taken, takes, fold, w)
                    if used + size > arena.shape[0]:
                        arena = more_rows(arena, used + size)
                    _copy_pieces(pieces, size, arena, used)
                    if size >= stretch.shape[1]:
                        times, diffs = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
                        stretch, free, taken = work_space(2 * size)
            for c in range(w):
                put_word(bound, c, cell(inputs, first, c))
        if size > runs.shape[1]:
            runs = np.empty((2, 2 * size), np.int64)
        frees = _find_free(arena, at, size, bound, w, greatest, free, runs)
        if frees == 0:
            continue
        first = _first_of(inputs, base, stop, bound, w, greatest)
        takes, wrapped = claim_time(
            inputs, base, stop, first, v, now, limit, greatest, stretch, times, diffs, free, frees, taken
        )
        if wrapped:
            return out[:0], visits[:0], arena, OVERFLOW, key
        _sort_taken(taken, takes)
        if size + 2 * takes >= pieces.shape[0]:
            pieces = np.empty((2 * (size + 2 * takes), arena.shape[1]), np.int64)
        if 4 * (size + 2 * takes + frees) >= changes.shape[0]:
            changes = np.empty((8 * (size + 2 * takes + frees), 4), np.int64)
        made, n = _turn(arena, at, size, inputs, w, runs, frees, taken, takes, fold, pieces, changes)
        if count + n > out.shape[0]:
            out = more_rows(out, count + n)
        if n > 0:
            count = _write_changes(out, count, keyed, key, k, inputs, arena, at, changes, n, w, now)
        if not keeps:
            continue
        if made > room:
            at, room = used, made + made // 2 + 1
            used += room
            if used > arena.shape[0]:
                arena = more_rows(arena, used)
            put(slots, slot, COVER_AT, at)
            put(slots, slot, COVER_ROOM, room)
        put(slots, slot, COVER_SIZE, made)
        _copy_pieces(pieces, made, arena, at)
    if keeps:
        put_word(index, USED, used)
    return out[:count], visits[:scheduled], arena, 0, -1
