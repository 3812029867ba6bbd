"""Scan whole messages of the native and the json format into columns of updates.

Both kernels read the messages of one topic in order and set good[m] where message m was taken whole; a message that is
not in its plainest spelling leaves nothing behind and goes to the judge. text: uint8[bytes], starts: int64[messages +
1]; the messages' bytes. good: bool[messages]. Both return the number of updates in the room.
"""

import numpy as np
from numba import njit

from service.kernels.json_values import (
    Names,
    Room,
    scan_cell,
    scan_colon,
    scan_instant,
    scan_integer,
    scan_name,
    scan_next,
    scan_row,
    skip_space,
)

NATIVE_NAMES = (b"u", b"t", b"v", b"input")
LINE_NAMES = (b"data", b"time", b"diff", b"input")
"""The members of the envelopes, the first names of the pool."""

_ENVELOPE = 4
_BATCH, _LEAST, _VERSION = 0, 1, 2
_DATA, _TIME, _DIFF, _INPUT = 0, 1, 2, 3
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125
_NO_TIME = -(2**63)


@njit(cache=True)
def _scan_input(text: np.ndarray, i: int, end: int, names: Names) -> tuple[int, int]:
    """A source's name as a value: (its number among the sources, position)."""
    name, at = scan_name(text, i, end, names, _ENVELOPE, _ENVELOPE + len(names.first) - 1)
    return name - _ENVELOPE, at


@njit(cache=True)
def _scan_batch(
    text: np.ndarray, i: int, end: int, names: Names, source: int, room: Room, count: int
) -> tuple[int, int]:
    """`[[row, time, diff], ...]` of one source from row `count` of the room on: (the new count, position)."""
    if i >= end or text[i] != _OPEN_LIST:
        return count, -1
    i = skip_space(text, i + 1, end)
    if i < end and text[i] == _CLOSE_LIST:
        return count, i + 1
    more = True
    while more:
        if i >= end or text[i] != _OPEN_LIST or count >= len(room.time):
            return count, -1
        i = scan_row(text, skip_space(text, i + 1, end), end, names, source, room, count)
        if i < 0:
            return count, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if not follows:
            return count, -1
        room.time[count], i = scan_instant(text, i, end)
        if i < 0:
            return count, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if not follows:
            return count, -1
        room.diff[count], i = scan_integer(text, i, end)
        if i < 0 or room.diff[count] == 0:
            return count, -1
        follows, i = scan_next(text, i, end, _CLOSE_LIST)
        if follows or i < 0:
            return count, -1
        room.source[count] = source
        count += 1
        more, i = scan_next(text, i, end, _CLOSE_LIST)
        if i < 0:
            return count, -1
    return count, i


@njit(cache=True)
def _scan_envelope(text: np.ndarray, i: int, end: int, names: Names, room: Room, count: int) -> tuple[int, int]:
    """A native message: (the new count, position)."""
    sources = len(names.first) - 1
    mark = count
    least = np.int64(_NO_TIME)
    seen, source = 0, (0 if sources == 1 else -1)
    more = i < end and text[i] == _OPEN_OBJECT
    i = skip_space(text, i + 1, end) if more else -1
    while more:
        member, i = scan_name(text, i, end, names, 0, _ENVELOPE)
        if i < 0 or seen & (1 << member):
            return count, -1
        i = scan_colon(text, i, end)
        if i < 0:
            return count, -1
        if member == _VERSION:
            version, i = scan_integer(text, i, end)
            if version != 1:
                return count, -1
        elif member == _LEAST:
            least, i = scan_instant(text, i, end)
        elif member == _BATCH:
            if source < 0:
                return count, -1
            count, i = _scan_batch(text, i, end, names, source, room, count)
        elif seen & (1 << _BATCH) and sources > 1:
            return count, -1
        else:
            source, i = _scan_input(text, i, end, names)
        if i < 0:
            return count, -1
        seen |= 1 << member
        more, i = scan_next(text, i, end, _CLOSE_OBJECT)
        if i < 0:
            return count, -1
    if seen & 7 != 7:
        return count, -1
    for k in range(mark, count):
        if room.time[k] < least:
            return count, -1
    return count, i


@njit(cache=True)
def scan_native(text: np.ndarray, starts: np.ndarray, names: Names, room: Room, good: np.ndarray) -> int:
    """`{"v":1,"t":time,"u":[[row,time,diff],...],"input":source}`, members in any order, input before u if it is
    needed."""
    count = 0
    for m in range(len(good)):
        end = starts[m + 1]
        reached, i = _scan_envelope(text, skip_space(text, starts[m], end), end, names, room, count)
        good[m] = i >= 0 and skip_space(text, i, end) == end
        if good[m]:
            room.message[count:reached] = m
            count = reached
    return count


@njit(cache=True)
def _scan_object(text: np.ndarray, i: int, end: int, names: Names, bare: bool, room: Room, count: int) -> int:
    """`{"input":source,"data":row,"time":time,"diff":diff}` or a bare row; the position behind it."""
    sources = len(names.first) - 1
    base = _ENVELOPE + sources
    seen, columns, source = 0, np.int64(0), (0 if sources == 1 else -1)
    i = skip_space(text, i + 1, end)
    more = True
    while more:
        member, at = scan_name(text, i, end, names, 0, _ENVELOPE)
        if at < 0 and bare:
            member, at = scan_name(text, i, end, names, base, base + names.first[1])
        if at < 0:
            return -1
        i = scan_colon(text, at, end)
        if i < 0:
            return -1
        if member >= base:
            column = member - base
            if columns & (np.int64(1) << column):
                return -1
            columns |= np.int64(1) << column
            i = scan_cell(text, i, end, names, column, room, count, column)
        elif seen & (1 << member):
            return -1
        elif member == _DATA:
            if source < 0:
                return -1
            i = scan_row(text, i, end, names, source, room, count)
        elif member == _TIME:
            room.time[count], i = scan_instant(text, i, end)
        elif member == _DIFF:
            room.diff[count], i = scan_integer(text, i, end)
            if room.diff[count] == 0:
                return -1
        elif seen & (1 << _DATA) and sources > 1:
            return -1
        else:
            source, i = _scan_input(text, i, end, names)
        if i < 0:
            return -1
        if member < _ENVELOPE:
            seen |= 1 << member
        more, i = scan_next(text, i, end, _CLOSE_OBJECT)
        if i < 0:
            return -1
    room.source[count] = source
    if seen & (1 << _DATA):
        return i if columns == 0 else -1
    whole = columns == (np.int64(1) << names.first[1]) - 1 and not seen & (1 << _INPUT)
    return i if bare and whole else -1


@njit(cache=True)
def scan_lines(text: np.ndarray, starts: np.ndarray, names: Names, bare: bool, room: Room, good: np.ndarray) -> int:
    """One update a message: an envelope or, when the topic has one source, a bare row.

    `bare` allows a bare row that is an object. Times that are not sent are NO_TIME, diffs 1.
    """
    sources = len(names.first) - 1
    count = 0
    for m in range(len(good)):
        end = starts[m + 1]
        i = skip_space(text, starts[m], end)
        room.time[count], room.diff[count], room.message[count] = _NO_TIME, 1, m
        if i < end and text[i] == _OPEN_LIST and sources == 1:
            room.source[count] = 0
            i = scan_row(text, i, end, names, 0, room, count)
        elif i < end and text[i] == _OPEN_OBJECT:
            i = _scan_object(text, i, end, names, bare, room, count)
        else:
            i = -1
        good[m] = i >= 0 and skip_space(text, i, end) == end
        count += good[m]
    return count
