"""Closing slices in a kernel: what a trace's slices leave becomes batches here, and Python learns of them later.

A slice ends in two parts, because it may still fail: `close` makes a batch of what it has sealed, and `commit` adds it
to the trace. The trace's table then describes the batch, so the next slice reads it, and a row of `closed` says who
owns its memory. Many small batches at the end unite here, and neighbours that are not large merge. Python makes objects
of the batches when it needs them (`Trace.batches`), and ATTENTION says when a trace's merges have to go on.
"""

from numba import njit

from vernier.storage.kernels.cells import cell, put
from vernier.storage.kernels.held import drop, hold, matrix, owned_vector, vector
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.running_traces import (
    AT_REST,
    ATTENTION,
    BATCH,
    BATCH_OWNER,
    BATCH_SIZE,
    BATCHES,
    BUSY,
    CAPACITY,
    CLOSED,
    CLOSED_ROWS,
    CLOSES,
    COLUMNS,
    COLUMNS_SIZE,
    FOLDED,
    HELD,
    KEPT,
    LARGE,
    LEFT,
    LOOSE,
    NEWS,
    NEXT_SINCE,
    OWED,
    RETAIN,
    ROW,
    ROW_OWNER,
    SEALED,
    SINCE,
    SMALL,
    SPENT,
    STEPS,
    TABLE,
    UNITES,
    D,
    K,
    V,
    field,
    mark_of,
    set_field,
)
from vernier.storage.kernels.separate import Callee
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import FIELDS, UPDATES

OWNER, AT, SIZE, COUNT, LOWER, UPPER, OF_SINCE, FOLLOWS, CLOSED_WORDS = range(9)
"""Words of a closed batch: its columns (owner, address, size), its number of updates, its times. FOLLOWS: 1 if it takes
the place of batches that Python has, the first of which knows where it begins."""
CLOSED_SIZE = 16
"""Batches that Python has not seen; when there are nearly as many, it has to look."""

SMALL_UPDATES = 1 << 9
"""A batch with fewer updates than this is small."""
SMALL_BATCHES = 8
"""How many small batches at the end are left alone."""
AT_ONCE, AT_ONCE_EACH, AT_ONCE_ALWAYS = 1 << 14, 10, 1 << 12
"""Two batches merge at once, in the close that finds them, if together they have at most the first many updates, and at
most the second many for each update that was added since merges went on, or if they have at most the third many."""
SORTING = 3
"""The fuel charged for each update that is sorted with small batches: at least this many updates could be merged in
that time."""
FEW_CLOSES, FEW_UPDATES = 128, 1 << 9
"""Running merges wait for up to this many closes while these have added few updates."""

CROWDED, MAY_MERGE, DUE, MANY = 1, 2, 4, 8
"""ATTENTION: small batches have to unite, but not here; the newest batch is to merge, but not here; running merges have
to go on; Python has not seen many of the batches."""

_LEAST_TIME = -(2**63) + 2

CLOSE = Callee(
    "Tuple((UniTuple(int64[::1], 2), int64, int64))(int64[:, ::1], int64, int64, int64, int64, int64, int64, "
    "int64[::1], boolean)"
)
_close_batches = CLOSE.intrinsic()


@borrowing
def advanced(traces, t, upper):  # type: ignore[no-untyped-def]
    """To which time a trace compacts when its slice ends at `upper`."""
    retain, since = field(traces, t, RETAIN), upper
    if retain >= 0:
        since = upper - retain if upper >= _LEAST_TIME + retain else _LEAST_TIME
    return max(field(traces, t, SINCE), min(since, field(traces, t, HELD)))


@njit(cache=True)
def _make(traces, t, callee, table, first, updates, alike):  # type: ignore[no-untyped-def]
    """Make LEFT updates of the table's batches and steps from number `first` on. Returns a status."""
    columns = vector(field(traces, t, COLUMNS), field(traces, t, COLUMNS_SIZE))
    (together, row), left, status = _close_batches(callee, (
        table, first, updates, field(traces, t, K), field(traces, t, V), field(traces, t, D),
        field(traces, t, NEXT_SINCE), columns, alike,
    ))  # fmt: skip
    if status != 0:
        return OVERFLOW
    set_field(traces, t, LEFT, left)
    if left > 0:
        set_field(traces, t, BATCH, together.ctypes.data)
        set_field(traces, t, BATCH_SIZE, together.shape[0])
        set_field(traces, t, BATCH_OWNER, hold(together))
        set_field(traces, t, ROW, row.ctypes.data)
        set_field(traces, t, ROW_OWNER, hold(row))
    return 0


@njit(cache=True)
def close(traces, t, callee, upper):  # type: ignore[no-untyped-def]
    """Make a batch of the slice's steps, which `commit` adds. `upper`: the end of the slice. Returns a status."""
    since = advanced(traces, t, upper)
    set_field(traces, t, NEXT_SINCE, since)
    steps, sealed = field(traces, t, STEPS), field(traces, t, SEALED)
    if steps == 0:
        return 0
    if sealed > FOLDED:
        return LARGE
    table = matrix(field(traces, t, TABLE), mark_of(traces, t), FIELDS)
    return _make(traces, t, callee, table, field(traces, t, BATCHES), sealed, steps > 1 and since >= upper)


@njit(cache=True)
def drop_batch(traces, t):  # type: ignore[no-untyped-def]
    """Drop the batch that `close` has made, if it has."""
    if field(traces, t, LEFT) > 0:
        drop(field(traces, t, BATCH_OWNER))
        drop(field(traces, t, ROW_OWNER))
        set_field(traces, t, LEFT, 0)


@njit(cache=True)
def _add(traces, t, lower, upper, follows):  # type: ignore[no-untyped-def]
    """Make what `_make` has left the newest batch."""
    count = field(traces, t, BATCHES)
    table = matrix(field(traces, t, TABLE), field(traces, t, CAPACITY), FIELDS)
    closed = matrix(field(traces, t, CLOSED_ROWS), CLOSED_SIZE, CLOSED_WORDS)
    for c in range(FIELDS):
        put(table, count, c, load(field(traces, t, ROW), c))
    drop(field(traces, t, ROW_OWNER))
    at, left = field(traces, t, CLOSED), field(traces, t, LEFT)
    put(closed, at, OWNER, field(traces, t, BATCH_OWNER))
    put(closed, at, AT, field(traces, t, BATCH))
    put(closed, at, SIZE, field(traces, t, BATCH_SIZE))
    put(closed, at, COUNT, left)
    put(closed, at, LOWER, lower)
    put(closed, at, UPPER, upper)
    put(closed, at, OF_SINCE, field(traces, t, NEXT_SINCE))
    put(closed, at, FOLLOWS, follows)
    set_field(traces, t, CLOSED, at + 1)
    set_field(traces, t, BATCHES, count + 1)
    set_field(traces, t, LEFT, 0)
    small = left < SMALL_UPDATES
    set_field(traces, t, SMALL, field(traces, t, SMALL) + 1 if small else 0)
    set_field(traces, t, LOOSE, field(traces, t, LOOSE) + left if small else 0)
    if at + 2 >= CLOSED_SIZE:
        set_field(traces, t, ATTENTION, field(traces, t, ATTENTION) | MANY)


@njit(cache=True)
def first_to_unite(table, first, stop, loose):  # type: ignore[no-untyped-def]
    """Which of the small batches [first, stop), of `loose` updates, is the first to unite with those after it: all if
    they are many updates together, else those that are less than twice as large as what follows. Returns (its number,
    how many updates it and those after it have)."""
    at = stop - 1
    total = cell(table, at, UPDATES)
    while at > first and (at == stop - 1 or loose >= 2 * SMALL_UPDATES or cell(table, at - 1, UPDATES) < 2 * total):
        at -= 1
        total += cell(table, at, UPDATES)
    return at, total


@njit(cache=True)
def _replace(traces, t, callee, table, first, total):  # type: ignore[no-untyped-def]
    """Make one batch of those from number `first` on, which have `total` updates; the last is closed here. Returns how
    many updates are left; -1 if Python has to do it, which raises the error."""
    if _make(traces, t, callee, table, first, total, False) != 0:
        set_field(traces, t, UNITES, 0)
        set_field(traces, t, ATTENTION, CROWDED | MAY_MERGE)
        return -1
    kept, count = field(traces, t, KEPT), field(traces, t, CLOSED)
    closed = matrix(field(traces, t, CLOSED_ROWS), CLOSED_SIZE, CLOSED_WORDS)
    begin, upper = max(first - kept, 0), cell(closed, count - 1, UPPER)
    lower, follows = cell(closed, begin, LOWER), cell(closed, begin, FOLLOWS)
    if first < kept:
        follows = 1
        set_field(traces, t, KEPT, first)
    for at in range(begin, count):
        drop(cell(closed, at, OWNER))
    set_field(traces, t, CLOSED, begin)
    set_field(traces, t, BATCHES, first)
    small = loose = 0
    while small < first and cell(table, first - 1 - small, UPDATES) < SMALL_UPDATES:
        loose += cell(table, first - 1 - small, UPDATES)
        small += 1
    set_field(traces, t, SMALL, small)
    set_field(traces, t, LOOSE, loose)
    left = field(traces, t, LEFT)
    if left > 0:
        _add(traces, t, lower, upper, follows)
    return left


@njit(cache=True)
def _unite(traces, t, callee):  # type: ignore[no-untyped-def]
    """Unite small batches at the end, the last of which is closed here. Returns (updates read, updates left)."""
    stop, small, loose = field(traces, t, BATCHES), field(traces, t, SMALL), field(traces, t, LOOSE)
    table = matrix(field(traces, t, TABLE), stop, FIELDS)
    first, total = first_to_unite(table, stop - small, stop, loose)
    left = _replace(traces, t, callee, table, first, total)
    if left < 0:
        return 0, 0
    set_field(traces, t, SPENT, field(traces, t, SPENT) + SORTING * total)
    return total, left


@njit(cache=True)
def _merge_neighbours(traces, t, callee):  # type: ignore[no-untyped-def]
    """Merge the newest batch, which is closed here and not small, with those before it while their sizes are within a
    factor of two. Returns (updates read, updates left)."""
    read = kept = 0
    while field(traces, t, CLOSED) > 0:
        stop = field(traces, t, BATCHES)
        table = matrix(field(traces, t, TABLE), stop, FIELDS)
        newer = cell(table, stop - 1, UPDATES)
        if stop < 2 or newer < SMALL_UPDATES or cell(table, stop - 2, UPDATES) >= 2 * newer:
            break
        total = newer + cell(table, stop - 2, UPDATES)
        most = max(AT_ONCE_ALWAYS, min(AT_ONCE, AT_ONCE_EACH * field(traces, t, OWED)))
        if field(traces, t, UNITES) == 0 or stop - 2 < field(traces, t, BUSY) or total > most:
            set_field(traces, t, ATTENTION, field(traces, t, ATTENTION) | MAY_MERGE)
            break
        left = _replace(traces, t, callee, table, stop - 2, total)
        if left < 0:
            break
        set_field(traces, t, SPENT, field(traces, t, SPENT) + total)
        read += total
        kept += left
    return read, kept


@njit(cache=True)
def commit(traces, t, callee, lower, upper):  # type: ignore[no-untyped-def]
    """End the slice [lower, upper) of a trace, which nothing can undo any more. Returns (updates read to unite small
    batches, updates left of them)."""
    left = field(traces, t, LEFT)
    set_field(traces, t, SINCE, field(traces, t, NEXT_SINCE))
    set_field(traces, t, CLOSES, field(traces, t, CLOSES) + 1)
    if field(traces, t, AT_REST) != 0:
        set_field(traces, t, OWED, 0)
        set_field(traces, t, SPENT, 0)
    set_field(traces, t, OWED, field(traces, t, OWED) + left)
    set_field(traces, t, NEWS, 1)
    read = kept = 0
    if left > 0:
        _add(traces, t, lower, upper, 0)
    small = field(traces, t, SMALL)
    if small > SMALL_BATCHES or (small > 1 and field(traces, t, LOOSE) >= 2 * SMALL_UPDATES):
        if left > 0 and field(traces, t, UNITES) != 0:
            read, kept = _unite(traces, t, callee)
        else:
            set_field(traces, t, ATTENTION, field(traces, t, ATTENTION) | CROWDED)
    if left > 0:
        more, still = _merge_neighbours(traces, t, callee)
        read += more
        kept += still
    if field(traces, t, AT_REST) == 0:
        if field(traces, t, CLOSES) >= FEW_CLOSES or field(traces, t, OWED) >= FEW_UPDATES:
            set_field(traces, t, ATTENTION, field(traces, t, ATTENTION) | DUE)
    return read, kept


@njit(cache=True)
def take_closed(rows, t, at):  # type: ignore[no-untyped-def]
    """The columns of a closed batch, as one array. rows: those of all traces. Each is taken once."""
    closed = matrix(field(rows.ctypes.data, t, CLOSED_ROWS), CLOSED_SIZE, CLOSED_WORDS)
    together = owned_vector(cell(closed, at, OWNER), cell(closed, at, AT), cell(closed, at, SIZE))
    drop(cell(closed, at, OWNER))
    return together


@njit(cache=True)
def drop_closed(rows, t):  # type: ignore[no-untyped-def]
    """Drop the closed batches of a trace, which will not be taken."""
    traces = rows.ctypes.data
    closed = matrix(field(traces, t, CLOSED_ROWS), CLOSED_SIZE, CLOSED_WORDS)
    for at in range(field(traces, t, CLOSED)):
        drop(cell(closed, at, OWNER))
    set_field(traces, t, CLOSED, 0)
