"""Copy strings out of the bytes in which they were scanned and resolve their escapes."""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import SPAN_ESCAPED, SPAN_LENGTH, SPAN_START, scan_hex
from vernier.storage.kernels.pointers import copy_bytes

_BACKSLASH = 92
_SHORT = np.zeros(128, np.uint8)
for _letter, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t'):
    _SHORT[_letter] = _meant


@njit(cache=True)
def _unescape(text: np.ndarray, i: int, end: int, out: np.ndarray, at: int) -> int:
    """Write the string text[i:end] into `out` from `at` on; returns the end position. It was scanned before, so all
    escapes are legal."""
    address = np.int64(text.ctypes.data)
    while i < end:
        if text[i] != _BACKSLASH:
            out[at] = text[i]
            i, at = i + 1, at + 1
        elif text[i + 1] != 117:
            out[at] = _SHORT[text[i + 1]]
            i, at = i + 2, at + 1
        else:
            point = scan_hex(address, i + 2, end)
            i += 6
            if point < 0x80:
                out[at] = point
                at += 1
            elif point < 0x800:
                out[at] = 0xC0 | (point >> 6)
                out[at + 1] = 0x80 | (point & 0x3F)
                at += 2
            else:
                out[at] = 0xE0 | (point >> 12)
                out[at + 1] = 0x80 | ((point >> 6) & 0x3F)
                out[at + 2] = 0x80 | (point & 0x3F)
                at += 3
    return at


@njit(cache=True)
def copy_spans(text: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The strings of spans (json_values.py) as offsets[n + 1] and bytes: string k is data[offsets[k]:offsets[k + 1]].

    text: uint8[.], the scanned bytes; spans: int64[n], 0 for no string, which is copied as an empty one. O(bytes).
    """
    n = spans.shape[0]
    offsets = np.zeros(n + 1, np.int64)
    room = 0
    for k in range(n):
        room += spans[k] & SPAN_LENGTH
    data = np.empty(room, np.uint8)
    address, to, at = np.int64(text.ctypes.data), np.int64(data.ctypes.data), 0
    for k in range(n):
        first, length = spans[k] >> SPAN_START, spans[k] & SPAN_LENGTH
        if spans[k] & SPAN_ESCAPED:
            at = _unescape(text, first, first + length, data, at)
        else:
            copy_bytes(to + at, address + first, length)
            at += length
        offsets[k + 1] = at
    return offsets, data[:at]
