"""Sieve JSON messages: find those that must be read strictly before a fast parser may read them.

A fast parser takes the last of two members with the same name, does not check what it skips, and recurses as deep as
the process's stack allows. The sieve finds possible such messages in one pass. It may suspect a good message; the judge
(service/ingest/formats/judge.py) then accepts it.
"""

import numpy as np
from numba import njit

from vernier.service.kernels.json_values import scan_utf8

DEEPEST = 128
"""The maximum nesting depth of arrays and objects."""

_MOST_NAMES = 256
_BACKSLASH, _QUOTE, _COMMA = 92, 34, 44
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 91, 93, 123, 125


@njit(cache=True)
def _is_doubtful(
    text: np.ndarray, i: int, end: int, firsts: np.ndarray, begins: np.ndarray, lengths: np.ndarray
) -> bool:
    """Whether the message text[i:end] is doubtful. firsts: int64[DEEPEST + 1], begins, lengths: int64[_MOST_NAMES];
    work space.

    firsts[d] is the number of the first name of the object at depth d, or -1 for an array; the names of all open
    objects are text[begins[k] : begins[k] + lengths[k]].
    """
    depth, count, name_next, address = 0, 0, False, np.int64(text.ctypes.data)
    while i < end:
        byte = text[i]
        i += 1
        if byte == _QUOTE:
            begin = i
            while i < end and text[i] != _QUOTE:
                if text[i] == _BACKSLASH:
                    if name_next:
                        return True
                    i += 2
                elif text[i] < 32:
                    return True
                elif text[i] < 128:
                    i += 1
                else:
                    i = scan_utf8(address, i, end)
                    if i < 0:
                        return True
            if i >= end:
                return True
            if name_next:
                length = i - begin
                for k in range(firsts[depth], count):
                    if lengths[k] == length:
                        same = True
                        for at in range(length):
                            if text[begins[k] + at] != text[begin + at]:
                                same = False
                                break
                        if same:
                            return True
                if count == _MOST_NAMES:
                    return True
                begins[count], lengths[count] = begin, length
                count += 1
                name_next = False
            i += 1
        elif byte == _OPEN_OBJECT or byte == _OPEN_LIST:
            if depth == DEEPEST:
                return True
            depth += 1
            name_next = byte == _OPEN_OBJECT
            firsts[depth] = count if name_next else -1
        elif byte == _CLOSE_OBJECT or byte == _CLOSE_LIST:
            if depth == 0:
                return True
            if firsts[depth] >= 0:
                count = firsts[depth]
            depth -= 1
            name_next = False
        elif byte == _COMMA:
            name_next = depth > 0 and firsts[depth] >= 0
        elif byte >= 128:
            return True
    return depth != 0


@njit(cache=True)
def find_doubtful(text: np.ndarray, starts: np.ndarray, doubtful: np.ndarray) -> None:
    """Set doubtful[m] if message m, text[starts[m] : starts[m + 1]], must be read strictly. O(bytes), and O(names ** 2)
    in an object.

    A message is not doubtful if its brackets match, at most DEEPEST deep, its strings are UTF-8, and no object has a
    name twice, with all names spelt without escapes.
    """
    firsts = np.empty(DEEPEST + 1, np.int64)
    begins, lengths = np.empty(_MOST_NAMES, np.int64), np.empty(_MOST_NAMES, np.int64)
    for m in range(len(doubtful)):
        doubtful[m] = _is_doubtful(text, starts[m], starts[m + 1], firsts, begins, lengths)
