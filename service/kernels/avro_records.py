"""Scan records in Avro's binary encoding into a matrix of cells, one row for each record.

A record that is not in the plainest encoding, or has a value that may not be legal, is left to Avro's own reader
(service/ingest/formats/avro.py). So nothing here may accept what that reader refuses, or read it differently. `text` is
an array for `scan_records`, and its address for the others, as in json_values.py.
"""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import FIRST_DAY, LAST_DAY, SPAN_START, TEXT_BYTES, scan_utf8
from vernier.storage.kernels.pointers import load, load_byte, store_byte, store_unaligned

LONG, DATE, BOOLEAN, FLOAT, DOUBLE, STRING, BYTES, ENUM, DECIMAL = range(9)
"""The kinds of field that the scanner knows. The cell of a STRING or BYTES is its span (json_values.py), that of a
FLOAT or DOUBLE the bits of a double, that of an ENUM its symbol's number, that of a DECIMAL its unscaled number."""

FIELD_KIND, NULL_AT, SIZE = 0, 1, 2
"""The facts about a field: its kind, the place of null in its union (-1: it is no union), and the bytes of each value
(-1: a length precedes it), for an ENUM the number of its symbols."""

_FACTS_BYTES = 24
"""The bytes of the facts about one field."""
_MORE, _BITS = 0x80, 0x7F


@njit(cache=True)
def scan_long(text: int, i: int, end: int) -> tuple[int, int]:
    """Scan a zigzag integer of at most 64 bits: (value, position), position -1 for others."""
    value, shift = np.uint64(0), np.uint64(0)
    while i < end:
        byte = np.uint64(load_byte(text + i))
        i += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & np.uint64(_BITS)) << shift
        if byte < _MORE:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), i
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True)
def _scan_bytes(text: int, i: int, end: int, size: int) -> tuple[int, int]:
    """Find the bytes of a value: (where they begin, position after them); size: see SIZE."""
    if size < 0:
        size, i = scan_long(text, i, end)
    if i < 0 or size < 0 or size > end - i or size > TEXT_BYTES:
        return 0, -1
    return i, i + size


@njit(cache=True)
def _scan_double(text: int, i: int, size: int) -> int:
    """The bits of the double that `size` bytes are."""
    bits = np.uint64(0)
    for at in range(size):
        bits |= np.uint64(load_byte(text + i + at)) << np.uint64(8 * at)
    if size == 8:
        return np.int64(bits)
    return np.float64(np.uint32(bits).view(np.float32)).view(np.int64)


@njit(cache=True)
def _scan_value(text: int, i: int, end: int, kind: int, size: int) -> tuple[int, int]:
    """Scan a value that is neither a LONG nor null: (its cell, position)."""
    cell = np.int64(0)
    if kind == DATE or kind == ENUM:
        cell, i = scan_long(text, i, end)
        if (kind == DATE and (cell < FIRST_DAY or cell > LAST_DAY)) or (kind == ENUM and (cell < 0 or cell >= size)):
            return 0, -1
        return cell, i
    if kind == BOOLEAN:
        if i >= end or load_byte(text + i) > 1:
            return 0, -1
        return load_byte(text + i), i + 1
    begin, i = _scan_bytes(text, i, end, size)
    if i < 0:
        return 0, -1
    if kind == FLOAT or kind == DOUBLE:
        return _scan_double(text, begin, size), i
    if kind == DECIMAL:
        if begin == i:
            return 0, i
        cell = np.int64(-1) if load_byte(text + begin) >= _MORE else np.int64(0)
        sign = cell
        for at in range(begin, i):
            # What is shifted out has to repeat the sign, and the number has to keep it.
            if (cell >> 55) != sign:
                return 0, -1
            cell = (cell << 8) | load_byte(text + at)
        return cell, i
    if kind == STRING:
        at = begin
        while at < i:
            at = at + 1 if load_byte(text + at) < _MORE else scan_utf8(text, at, i)
            if at < 0:
                return 0, -1
    return (np.int64(begin) << SPAN_START) | (i - begin), i


@njit(cache=True)
def scan_records(
    text: np.ndarray, begins: np.ndarray, ends: np.ndarray, fields: np.ndarray, cells: np.ndarray, nulls: np.ndarray
) -> np.ndarray:
    """Scan n records: good[n], whether cells[:, r] and nulls[:, r] are the record r.

    text: uint8[.], less than 2 ** 31 of them; record r is text[begins[r] : ends[r]], both int64[n]. fields: int64[f,
    3], FIELD_KIND to SIZE of each. cells: int64[f, n]; nulls: bool[f, n]. O(bytes).
    """
    good = np.zeros(len(begins), np.bool_)
    address, facts, count = np.int64(text.ctypes.data), np.int64(fields.ctypes.data), len(fields)
    n, cell, null = len(begins), np.int64(cells.ctypes.data), np.int64(nulls.ctypes.data)
    for r in range(n):
        i, end = begins[r], ends[r]
        for c in range(count):
            fact = facts + _FACTS_BYTES * c
            null_at, kind, value, is_null = load(fact, NULL_AT), load(fact, FIELD_KIND), np.int64(0), False
            if null_at >= 0:
                branch, i = scan_long(address, i, end)
                if i < 0 or branch < 0 or branch > 1:
                    i = -1
                    break
                is_null = branch == null_at
            if not is_null and kind == LONG:
                value, i = scan_long(address, i, end)
            elif not is_null:
                value, i = _scan_value(address, i, end, kind, load(fact, SIZE))
            if i < 0:
                break
            store_unaligned(cell + 8 * (c * n + r), value)
            store_byte(null + c * n + r, np.int64(is_null))
        good[r] = i == end
    return good
