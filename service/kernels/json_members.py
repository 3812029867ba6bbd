"""Find members of objects in JSON messages: where the rows in an envelope are, and what stands beside them.

Everything but the rows is checked strictly; of a row only its end is found, and the kernel that scans it
(json_messages.py) checks it. A message that is not in its plainest spelling is left to the format's own reader.
"""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import (
    SPAN_START,
    scan_colon,
    scan_false,
    scan_instant,
    scan_integer,
    scan_name,
    scan_nested,
    scan_next,
    scan_null,
    scan_text,
    scan_true,
    skip_space,
)
from vernier.storage.kernels.pointers import load_byte

ANY, ROW, NUMBER, INSTANT, INSIDE = range(5)
"""The kinds of member. The cell of ANY, a legal value, and ROW, an object or array, is its span (json_values.py), that
of a NUMBER or INSTANT its value. INSIDE is an object with members that are looked for, too."""
ABSENT, THERE, NULL = 0, 1, 2

_MOST_DEPTH = 62
_QUOTE, _POINT, _MINUS, _PLUS, _ZERO, _NINE = 34, 46, 45, 43, 48, 57
_T, _F, _N = 116, 102, 110
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125


@njit(cache=True)
def _skip_digits(text: int, i: int, end: int) -> int:
    """The position after one digit or more; -1 if there is none."""
    first = i
    while i < end and _ZERO <= load_byte(text + i) <= _NINE:
        i += 1
    return i if i > first else -1


@njit(cache=True)
def _skip_number(text: int, i: int, end: int) -> int:
    """The position after a number; -1 if there is none."""
    if i < end and load_byte(text + i) == _MINUS:
        i += 1
    first = i
    i = _skip_digits(text, i, end)
    if i < 0 or (load_byte(text + first) == _ZERO and i - first > 1):
        return -1
    if i < end and load_byte(text + i) == _POINT:
        i = _skip_digits(text, i + 1, end)
    if 0 <= i < end and (load_byte(text + i) == 69 or load_byte(text + i) == 101):
        i += 1
        if i < end and (load_byte(text + i) == _MINUS or load_byte(text + i) == _PLUS):
            i += 1
        i = _skip_digits(text, i, end)
    return i


@njit(cache=True)
def _skip_plain(text: int, i: int, end: int) -> int:
    """The position after a string, number or word; -1 if there is none."""
    if i >= end:
        return -1
    if load_byte(text + i) == _QUOTE:
        return scan_text(text, i, end)[1]
    if load_byte(text + i) == _T:
        return scan_true(text, i, end)
    if load_byte(text + i) == _F:
        return scan_false(text, i, end)
    if load_byte(text + i) == _N:
        return scan_null(text, i, end)
    return _skip_number(text, i, end)


@njit(cache=True)
def _skip_name(text: int, i: int, end: int) -> int:
    """The position of the value behind a member's name; -1 if there is none."""
    at = scan_text(text, i, end)[1]
    return scan_colon(text, at, end) if at >= 0 else -1


@njit(cache=True)
def _skip_value(text: int, i: int, end: int) -> int:
    """The position after a value of any kind; -1 if it is not legal, or nested too deeply."""
    objects, depth = np.int64(0), 0  # a bit for each open object or list, 1 for an object
    while i >= 0:
        if i < end and (load_byte(text + i) == _OPEN_OBJECT or load_byte(text + i) == _OPEN_LIST):
            if depth == _MOST_DEPTH:
                return -1
            is_object = load_byte(text + i) == _OPEN_OBJECT
            close = _CLOSE_OBJECT if is_object else _CLOSE_LIST
            i = skip_space(text, i + 1, end)
            if i >= end or load_byte(text + i) != close:
                depth += 1
                objects = (objects << 1) | np.int64(is_object)
                if is_object:
                    i = _skip_name(text, i, end)
                continue
            i += 1
        else:
            i = _skip_plain(text, i, end)
        more = False
        while i >= 0 and not more:
            if depth == 0:
                return i
            more, i = scan_next(text, i, end, _CLOSE_OBJECT if objects & 1 else _CLOSE_LIST)
            if not more:
                depth -= 1
                objects >>= 1
        if i >= 0 and objects & 1:
            i = _skip_name(text, i, end)
    return -1


@njit(cache=True)
def _scan_member(text: int, i: int, end: int, kind: int) -> tuple[int, int]:
    """Scan a value that is neither null nor INSIDE: (its cell, position)."""
    if kind == ROW:
        return scan_nested(text, i, end)
    if kind == NUMBER:
        return scan_integer(text, i, end)
    if kind == INSTANT:
        return scan_instant(text, i, end)
    after = _skip_value(text, i, end)
    return (np.int64(i) << SPAN_START) | (after - i), after


@njit(cache=True)
def _find_in_object(
    text: int,
    i: int,
    end: int,
    pool: int,
    names: int,
    kinds: np.ndarray,
    outer: int,
    others: bool,
    cells: np.ndarray,
    there: np.ndarray,
    m: int,
) -> int:
    """Find the members of an object, and of the INSIDE one; the position after it."""
    if i >= end or load_byte(text + i) != _OPEN_OBJECT:
        return -1
    i = skip_space(text, i + 1, end)
    low, high = 0, outer
    while i >= 0:
        member, at = scan_name(text, i, end, pool, names, low, high)
        if at >= 0:
            i = scan_colon(text, at, end)
        elif others:
            i = _skip_name(text, i, end)
        else:
            return -1
        if i < 0 or i >= end or (member >= 0 and there[m, member] != ABSENT):
            return -1
        if member < 0:
            i = _skip_value(text, i, end)
        elif load_byte(text + i) == _N:
            there[m, member] = NULL
            i = scan_null(text, i, end)
        else:
            there[m, member] = THERE
            if kinds[member] == INSIDE:
                if load_byte(text + i) != _OPEN_OBJECT:
                    return -1
                i = skip_space(text, i + 1, end)
                low, high = outer, len(kinds)
                continue
            cells[m, member], i = _scan_member(text, i, end, kinds[member])
        more = False
        while i >= 0 and not more:
            more, i = scan_next(text, i, end, _CLOSE_OBJECT)
            if not more:
                if low == 0:
                    return i
                low, high = 0, outer
    return -1


@njit(cache=True)
def find_members(
    text: np.ndarray,
    starts: np.ndarray,
    pool: np.ndarray,
    names: np.ndarray,
    kinds: np.ndarray,
    outer: int,
    others: bool,
    wrapped: bool,
    cells: np.ndarray,
    there: np.ndarray,
) -> np.ndarray:
    """Find members of n messages: good[n], whether the message is one legal object and its members were found.

    text, starts: as json_messages.py has them; no object of a message has a name twice or with escapes. pool, names:
    the k names that are looked for; the first `outer` of them in the message, the others in its member of the kind
    INSIDE. kinds: int64[k]. others: whether members with other names are legal. wrapped: whether each message is a list
    with one element. cells: int64[n, k], unfilled; there: int8[n, k], zeros; whether the member is there. O(bytes).
    """
    good = np.zeros(len(starts) - 1, np.bool_)
    at, pool_at, names_at = (np.int64(text.ctypes.data), np.int64(pool.ctypes.data), np.int64(names.ctypes.data))
    for m in range(len(good)):
        end = starts[m + 1]
        i = skip_space(at, starts[m], end)
        if wrapped:
            i = skip_space(at, i + 1, end) if i < end and load_byte(at + i) == _OPEN_LIST else end
        i = _find_in_object(at, i, end, pool_at, names_at, kinds, outer, others, cells, there, m)
        if wrapped and i >= 0:
            i = skip_space(at, i, end)
            i = i + 1 if i < end and load_byte(at + i) == _CLOSE_LIST else -1
        good[m] = i >= 0 and skip_space(at, i, end) == end
    return good
