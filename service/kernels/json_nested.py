"""Take lists apart: the elements of arrays that were scanned as spans (json_values.py), each as a row of one column."""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import SPAN_LENGTH, SPAN_START, skip_space, skip_text

_QUOTE, _COMMA, _OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 34, 44, 91, 93, 123, 125


@njit(cache=True)
def split_lists(text: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The elements of n arrays as arrays of one element: (lists, offsets, data, good).

    text: uint8[.], the scanned bytes; spans: int64[n]. lists: int64[n + 1]; list v has the elements lists[v] to lists[v
    + 1]. Element e is data[offsets[e]:offsets[e + 1]], in brackets. good: bool[n]; false for a span that is no array,
    which has no elements. Elements are not checked. O(bytes).
    """
    n, address = spans.shape[0], np.int64(text.ctypes.data)
    room, commas = 0, 0
    for v in range(n):
        start = spans[v] >> SPAN_START
        length = spans[v] & SPAN_LENGTH
        room += length
        for i in range(start, start + length):
            commas += text[i] == _COMMA
    lists, good = np.zeros(n + 1, np.int64), np.zeros(n, np.bool_)
    # A comma between elements becomes two brackets; a list without commas has one element at most.
    offsets, data = np.zeros(commas + n + 1, np.int64), np.empty(room + commas, np.uint8)
    count, at = 0, 0
    for v in range(n):
        i = spans[v] >> SPAN_START
        end = i + (spans[v] & SPAN_LENGTH) - 1
        good[v] = end > i and text[i] == _OPEN_LIST and text[end] == _CLOSE_LIST
        if good[v] and skip_space(address, i + 1, end) < end:
            depth = 0
            i += 1
            data[at] = _OPEN_LIST
            at += 1
            while i < end:
                stop = i + 1
                byte = text[i]
                if byte == _QUOTE:
                    stop = min(skip_text(address, i, end) + 1, end)
                elif byte == _OPEN_LIST or byte == _OPEN_OBJECT:
                    depth += 1
                elif byte == _CLOSE_LIST or byte == _CLOSE_OBJECT:
                    depth -= 1
                if byte == _COMMA and depth == 0:
                    data[at] = _CLOSE_LIST
                    data[at + 1] = _OPEN_LIST
                    count += 1
                    offsets[count] = at + 1
                    at += 2
                else:
                    for k in range(i, stop):
                        data[at] = text[k]
                        at += 1
                i = stop
            data[at] = _CLOSE_LIST
            at += 1
            count += 1
            offsets[count] = at
        lists[v + 1] = count
    return lists, offsets[: count + 1].copy(), data[:at].copy(), good
