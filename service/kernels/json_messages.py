"""Scan whole messages of the native and the json format into a matrix of updates.

Both kernels read the messages of one topic in order and set good[m] if message m was accepted as a whole. A message
that is not in its plainest spelling leaves nothing behind and goes to the judge. Arguments of all functions here:

text: uint8[bytes]; the messages, message m from starts[m] to starts[m + 1]. pool, names: see scan_name; first the names
of the envelope's four members, then of the sources, then of the columns of all sources. first: int64[sources + 1];
where the columns of each source begin. columns: see scan_row. out: int64[capacity, CELLS + .], nulls: bool[capacity,
.]; the updates, one per row.
"""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import (
    CELLS,
    DIFF,
    FRACTION,
    KIND,
    MESSAGE,
    NULLABLE,
    SOURCE,
    TIME,
    WHOLE,
    scan_colon,
    scan_column,
    scan_instant,
    scan_integer,
    scan_name,
    scan_next,
    scan_row,
    skip_space,
)

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
    text: np.ndarray,
    i: int,
    end: int,
    pool: np.ndarray,
    names: np.ndarray,
    columns: np.ndarray,
    low: int,
    high: int,
    out: np.ndarray,
    nulls: np.ndarray,
    count: int,
) -> tuple[int, int]:
    """Scan `[[row, time, diff], ...]` of the source with the columns low .. high-1, into rows from `count` on: (new
    count, position)."""
    if i >= end or text[i] != _OPEN_LIST:
        return count, -1
    i = skip_space(text, i + 1, end)
    if i < end and text[i] == _CLOSE_LIST:
        return count, i + 1
    more = True
    while more:
        if i >= end or text[i] != _OPEN_LIST or count >= len(out):
            return count, -1
        i = skip_space(text, i + 1, end)
        i = scan_row(text, i, end, pool, names, columns, low, high, out, nulls, count)
        if i < 0:
            return count, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if not follows:
            return count, -1
        out[count, TIME], i = scan_instant(text, i, end)
        if i < 0:
            return count, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if not follows:
            return count, -1
        out[count, DIFF], i = scan_integer(text, i, end)
        if i < 0 or out[count, DIFF] == 0:
            return count, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if follows or i < 0:
            return count, -1
        count += 1
        more, i = scan_next(text, i, end, _CLOSE_LIST)
        if i < 0:
            return count, -1
    return count, i


@njit(cache=True)
def _scan_envelope(
    text: np.ndarray,
    i: int,
    end: int,
    pool: np.ndarray,
    names: np.ndarray,
    first: np.ndarray,
    columns: np.ndarray,
    out: np.ndarray,
    nulls: np.ndarray,
    count: int,
) -> tuple[int, int]:
    """Scan a native message, its updates into rows from `count` on: (the new count, position)."""
    sources = len(first) - 1
    mark = count
    least = np.int64(_NO_TIME)
    seen, source = 0, (0 if sources == 1 else -1)
    more = i < end and text[i] == _OPEN_OBJECT
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
            low, high = first[source], first[source + 1]
            count, i = _scan_batch(text, i, end, pool, names, columns, low, high, out, nulls, count)
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
    if seen & 7 != 7:
        return count, -1
    for k in range(mark, count):
        if out[k, TIME] < least:
            return count, -1
        out[k, SOURCE] = source
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
    count = 0
    for m in range(len(good)):
        end = starts[m + 1]
        i = skip_space(text, starts[m], end)
        reached, i = _scan_envelope(text, i, end, pool, names, first, columns, out, nulls, count)
        good[m] = i >= 0 and skip_space(text, i, end) == end
        if good[m]:
            for k in range(count, reached):
                out[k, MESSAGE] = m
            count = reached
    return count


@njit(cache=True)
def _scan_object(
    text: np.ndarray,
    i: int,
    end: int,
    pool: np.ndarray,
    names: np.ndarray,
    first: np.ndarray,
    columns: np.ndarray,
    bare: bool,
    out: np.ndarray,
    nulls: np.ndarray,
    count: int,
) -> int:
    """Scan `{"input":source,"data":row,"time":time,"diff":diff}` or a bare row into row `count`; returns the position
    after it."""
    sources = len(first) - 1
    base = _ENVELOPE + sources
    seen, given, source = 0, np.int64(0), (0 if sources == 1 else -1)
    i = skip_space(text, i + 1, end)
    more, following = True, base
    while more:
        member, at = -1, -1
        if bare and following < base + first[1]:
            # As in scan_row, the next column in order is tried first.
            member, at = scan_name(text, i, end, pool, names, following, following + 1)
        if at < 0:
            member, at = scan_name(text, i, end, pool, names, 0, _ENVELOPE)
        if at < 0 and bare:
            member, at = scan_name(text, i, end, pool, names, base, base + first[1])
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
            out[count, CELLS + column], nulls[count, column], i = scan_column(
                text,
                i,
                end,
                columns[column, KIND],
                columns[column, NULLABLE],
                columns[column, WHOLE],
                columns[column, FRACTION],
            )
        elif seen & (1 << member):
            return -1
        elif member == _IS_DATA:
            if source < 0:
                return -1
            low, high = first[source], first[source + 1]
            i = scan_row(text, i, end, pool, names, columns, low, high, out, nulls, count)
        elif member == _IS_TIME:
            out[count, TIME], i = scan_instant(text, i, end)
        elif member == _IS_DIFF:
            out[count, DIFF], i = scan_integer(text, i, end)
            if out[count, DIFF] == 0:
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
    out[count, SOURCE] = source
    if seen & (1 << _IS_DATA):
        return i if given == 0 else -1
    whole = given == (np.int64(1) << first[1]) - 1 and not seen & (1 << _IS_INPUT)
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
    single = len(first) == 2
    count = 0
    for m in range(len(good)):
        end = starts[m + 1]
        i = skip_space(text, starts[m], end)
        out[count, SOURCE], out[count, MESSAGE], out[count, TIME], out[count, DIFF] = 0, m, _NO_TIME, 1
        if i < end and text[i] == _OPEN_LIST and single:
            i = scan_row(text, i, end, pool, names, columns, 0, first[1], out, nulls, count)
        elif i < end and text[i] == _OPEN_OBJECT:
            i = _scan_object(text, i, end, pool, names, first, columns, bare, out, nulls, count)
        else:
            i = -1
        good[m] = i >= 0 and skip_space(text, i, end) == end
        count += good[m]
    return count
