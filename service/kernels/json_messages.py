"""Scan whole messages of the native and the json format into a matrix of updates.

Both kernels read the messages of one topic in order and set good[m] if message m was accepted as a whole. A message
that is not in its plainest spelling leaves nothing behind and goes to the judge. Arguments of both kernels:

text: uint8[bytes]; the messages, message m from starts[m] to starts[m + 1]. pool, names: the bytes of all names and
where each begins; first the names of the envelope's four members, then of the sources, then of the columns of all
sources. first: int64[sources + 1]; where the columns of each source begin. columns: int64[c, 4]; KIND to FRACTION of
the columns of all sources. out: int64[capacity, CELLS + .], nulls: bool[capacity, .]; the updates, one per row.

The functions that they call take the addresses of these arrays, like those of json_values.py.
"""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import (
    CELLS,
    DIFF,
    FACTS_BYTES,
    GREATEST_TIME,
    MESSAGE,
    SOURCE,
    TIME,
    scan_colon,
    scan_column,
    scan_instant,
    scan_integer,
    scan_name,
    scan_next,
    scan_row,
    skip_space,
)
from vernier.storage.kernels.pointers import load, load_byte, store_byte, store_unaligned

NATIVE_NAMES = (b"u", b"t", b"v", b"input")
LINE_NAMES = (b"data", b"time", b"diff", b"input")
"""The members of the envelopes, which are the first names of the pool."""

_ENVELOPE = 4
_IS_BATCH, _IS_LEAST, _IS_VERSION = 0, 1, 2
_IS_DATA, _IS_TIME, _IS_DIFF, _IS_INPUT = 0, 1, 2, 3
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125
_NO_TIME = -(2**63)


@njit(cache=True)
def _scan_batch(
    text: int,
    i: int,
    end: int,
    pool: int,
    names: int,
    base: int,
    facts: int,
    columns: int,
    row: int,
    stride: int,
    nulls: int,
    step: int,
    room: int,
    source: int,
    message: int,
) -> tuple[int, int, int]:
    """Scan `[[row, time, diff], ...]` of a source with these columns into at most `room` rows, `stride` bytes each,
    from address `row` on: (their number, the least of their times, position). nulls: where the row's `step` nulls
    are."""
    least, count = np.int64(GREATEST_TIME), 0
    if i >= end or load_byte(text + i) != _OPEN_LIST:
        return count, least, -1
    i = skip_space(text, i + 1, end)
    if i < end and load_byte(text + i) == _CLOSE_LIST:
        return count, least, i + 1
    more = True
    while more:
        if i >= end or load_byte(text + i) != _OPEN_LIST or count >= room:
            return count, least, -1
        i = skip_space(text, i + 1, end)
        i = scan_row(text, i, end, pool, names, base, facts, columns, row + 8 * CELLS, nulls)
        if i < 0:
            return count, least, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if not follows:
            return count, least, -1
        time, i = scan_instant(text, i, end)
        if i < 0:
            return count, least, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if not follows:
            return count, least, -1
        diff, i = scan_integer(text, i, end)
        if i < 0 or diff == 0:
            return count, least, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if follows or i < 0:
            return count, least, -1
        store_unaligned(row + 8 * SOURCE, source)
        store_unaligned(row + 8 * MESSAGE, message)
        store_unaligned(row + 8 * TIME, time)
        store_unaligned(row + 8 * DIFF, diff)
        least = min(least, time)
        count, row, nulls = count + 1, row + stride, nulls + step
        more, i = scan_next(text, i, end, _CLOSE_LIST)
        if i < 0:
            return count, least, -1
    return count, least, i


@njit(cache=True)
def _scan_envelope(
    text: int,
    i: int,
    end: int,
    pool: int,
    names: int,
    sources: int,
    first: int,
    facts: int,
    row: int,
    stride: int,
    nulls: int,
    step: int,
    room: int,
    message: int,
) -> tuple[int, int]:
    """Scan a native message, its updates into at most `room` rows from address `row` on: (their number, position)."""
    count, found = 0, np.int64(GREATEST_TIME)
    least = np.int64(_NO_TIME)
    seen, source = 0, (0 if sources == 1 else -1)
    more = i < end and load_byte(text + i) == _OPEN_OBJECT
    i = skip_space(text, i + 1, end) if more else -1
    while more:
        member, i = scan_name(text, i, end, pool, names, 0, _ENVELOPE)
        if i < 0 or seen & (1 << member):
            return count, -1
        i = scan_colon(text, i, end)
        if i < 0:
            return count, -1
        if member == _IS_VERSION:
            version, i = scan_integer(text, i, end)
            if version != 1:
                return count, -1
        elif member == _IS_LEAST:
            least, i = scan_instant(text, i, end)
        elif member == _IS_BATCH:
            if source < 0:
                return count, -1
            low = load(first, source)
            columns, base = load(first, source + 1) - low, _ENVELOPE + sources + low
            own = facts + FACTS_BYTES * low
            count, found, i = _scan_batch(
                text, i, end, pool, names, base, own, columns, row, stride, nulls, step, room, source, message
            )
        elif seen & (1 << _IS_BATCH) and sources > 1:
            return count, -1
        else:
            name, i = scan_name(text, i, end, pool, names, _ENVELOPE, _ENVELOPE + sources)
            source = name - _ENVELOPE
        if i < 0:
            return count, -1
        seen |= 1 << member
        more, i = scan_next(text, i, end, _CLOSE_OBJECT)
        if i < 0:
            return count, -1
    if seen & 7 != 7 or found < least:
        return count, -1
    return count, i


@njit(cache=True)
def scan_native(
    text: np.ndarray,
    starts: np.ndarray,
    pool: np.ndarray,
    names: np.ndarray,
    first: np.ndarray,
    columns: np.ndarray,
    out: np.ndarray,
    nulls: np.ndarray,
    good: np.ndarray,
) -> int:
    """Scan `{"v":1,"t":time,"u":[[row,time,diff],...],"input":source}`, with members in any order, except that `input`
    comes before `u` if it is needed.

    Returns the number of updates.
    """
    at, pool_at, names_at = np.int64(text.ctypes.data), np.int64(pool.ctypes.data), np.int64(names.ctypes.data)
    first_at, facts, sources = np.int64(first.ctypes.data), np.int64(columns.ctypes.data), len(first) - 1
    row, null = np.int64(out.ctypes.data), np.int64(nulls.ctypes.data)
    stride, step, room, count = 8 * out.shape[1], nulls.shape[1], len(out), 0
    for m in range(len(good)):
        end = starts[m + 1]
        i = skip_space(at, starts[m], end)
        added, i = _scan_envelope(
            at, i, end, pool_at, names_at, sources, first_at, facts, row + count * stride, stride, null + count * step,
            step, room - count, m,
        )  # fmt: skip
        good[m] = i >= 0 and skip_space(at, i, end) == end
        if good[m]:
            count += added
    return count


@njit(cache=True)
def _scan_object(
    text: int,
    i: int,
    end: int,
    pool: int,
    names: int,
    sources: int,
    first: int,
    facts: int,
    bare: bool,
    row: int,
    nulls: int,
) -> int:
    """Scan `{"input":source,"data":row,"time":time,"diff":diff}` or a bare row into the row at address `row`; returns
    the position after it. nulls: where the row's nulls are."""
    base = _ENVELOPE + sources
    last = base + load(first, 1)
    seen, given, source = 0, np.int64(0), (0 if sources == 1 else -1)
    i = skip_space(text, i + 1, end)
    more, following = True, base
    while more:
        member, at = -1, -1
        if bare and following < last:
            # As in scan_row, the next column in order is tried first.
            member, at = scan_name(text, i, end, pool, names, following, following + 1)
        if at < 0:
            member, at = scan_name(text, i, end, pool, names, 0, _ENVELOPE)
        if at < 0 and bare:
            member, at = scan_name(text, i, end, pool, names, base, last)
        if at < 0:
            return -1
        i = scan_colon(text, at, end)
        if i < 0:
            return -1
        if member >= base:
            column, following = member - base, member + 1
            if given & (np.int64(1) << column):
                return -1
            given |= np.int64(1) << column
            cell, null, i = scan_column(text, i, end, facts + FACTS_BYTES * column)
            store_unaligned(row + 8 * (CELLS + column), cell)
            store_byte(nulls + column, np.int64(null))
        elif seen & (1 << member):
            return -1
        elif member == _IS_DATA:
            if source < 0:
                return -1
            low = load(first, source)
            columns, own = load(first, source + 1) - low, facts + FACTS_BYTES * low
            i = scan_row(text, i, end, pool, names, base + low, own, columns, row + 8 * CELLS, nulls)
        elif member == _IS_TIME:
            time, i = scan_instant(text, i, end)
            store_unaligned(row + 8 * TIME, time)
        elif member == _IS_DIFF:
            diff, i = scan_integer(text, i, end)
            store_unaligned(row + 8 * DIFF, diff)
            if diff == 0:
                return -1
        elif seen & (1 << _IS_DATA) and sources > 1:
            return -1
        else:
            name, i = scan_name(text, i, end, pool, names, _ENVELOPE, base)
            source = name - _ENVELOPE
        if i < 0:
            return -1
        if member < _ENVELOPE:
            seen |= 1 << member
        more, i = scan_next(text, i, end, _CLOSE_OBJECT)
        if i < 0:
            return -1
    store_unaligned(row + 8 * SOURCE, source)
    if seen & (1 << _IS_DATA):
        return i if given == 0 else -1
    whole = given == (np.int64(1) << load(first, 1)) - 1 and not seen & (1 << _IS_INPUT)
    return i if bare and whole else -1


@njit(cache=True)
def scan_lines(
    text: np.ndarray,
    starts: np.ndarray,
    pool: np.ndarray,
    names: np.ndarray,
    first: np.ndarray,
    columns: np.ndarray,
    bare: bool,
    out: np.ndarray,
    nulls: np.ndarray,
    good: np.ndarray,
) -> int:
    """Scan one update per message: an envelope or, when the topic has one source, a bare row; `bare`: it may be an
    object.

    Times that are not sent are NO_TIME, diffs 1. Returns the number of updates.
    """
    at, pool_at, names_at = np.int64(text.ctypes.data), np.int64(pool.ctypes.data), np.int64(names.ctypes.data)
    first_at, facts, sources = np.int64(first.ctypes.data), np.int64(columns.ctypes.data), len(first) - 1
    row, null, count = np.int64(out.ctypes.data), np.int64(nulls.ctypes.data), 0
    for m in range(len(good)):
        end = starts[m + 1]
        i = skip_space(at, starts[m], end)
        out[count, SOURCE], out[count, MESSAGE], out[count, TIME], out[count, DIFF] = 0, m, _NO_TIME, 1
        if i < end and load_byte(at + i) == _OPEN_LIST and sources == 1:
            base, cells = _ENVELOPE + sources, row + 8 * CELLS
            i = scan_row(at, i, end, pool_at, names_at, base, facts, first[1], cells, null)
        elif i < end and load_byte(at + i) == _OPEN_OBJECT:
            i = _scan_object(at, i, end, pool_at, names_at, sources, first_at, facts, bare, row, null)
        else:
            i = -1
        good[m] = i >= 0 and skip_space(at, i, end) == end
        if good[m]:
            count, row, null = count + 1, row + 8 * out.shape[1], null + nulls.shape[1]
    return count
