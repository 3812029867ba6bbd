"""Encoding of lists as bytes whose order is the order of the lists, and its inverse.

The bytes of a list are those of its elements in turn, and an element's bytes are those of its parts. A word is eight
bytes, big-endian with the top bit flipped. A null word is one byte, 0 or 1; after a 0 the parts that it makes null are
left out. A text is its bytes, with a zero written as `00 FF`, then `00 00`. No element's encoding is a prefix of
another's, so comparing bytes compares elements in turn, and a list sorts before its own extensions. Source of the
escape: the tuple layer of FoundationDB.

kinds: int64[p, 2], `[kind, span]` of each part as in operators/language/types/parts.py.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.pointers import load_byte

WORD, FLAG, TEXT = 0, 1, 2
_TOP = np.int64(-(2**63))


@njit(cache=True)
def write_lists(kinds, numbers, addresses, offsets, lists):  # type: ignore[no-untyped-def]
    """The bytes of n lists, (offsets int64[n + 1], data).

    numbers: int64[p, m], the words and flags of all m elements. Text part p of element e is the bytes from
    addresses[p] + offsets[p, e] to addresses[p] + offsets[p, e + 1]. lists: int64[n + 1], the bounds of the lists.
    """
    parts = kinds.shape[0]
    out = np.zeros(lists.shape[0], np.int64)
    for i in range(lists.shape[0] - 1):
        size = 0
        for e in range(lists[i], lists[i + 1]):
            p = 0
            while p < parts:
                if kinds[p, 0] == WORD:
                    size += 8
                elif kinds[p, 0] == FLAG:
                    size += 1
                    if numbers[p, e] == 0:
                        p += kinds[p, 1]
                else:
                    size += offsets[p, e + 1] - offsets[p, e] + 2
                    for b in range(offsets[p, e], offsets[p, e + 1]):
                        if load_byte(addresses[p] + b) == 0:
                            size += 1
                p += 1
        out[i + 1] = out[i] + size
    data = np.empty(out[-1], np.uint8)
    at = 0
    for e in range(lists[0], lists[-1]):
        p = 0
        while p < parts:
            if kinds[p, 0] == WORD:
                word = numbers[p, e] ^ _TOP
                for b in range(8):
                    data[at + b] = (word >> (56 - 8 * b)) & 0xFF
                at += 8
            elif kinds[p, 0] == FLAG:
                data[at] = numbers[p, e]
                at += 1
                if numbers[p, e] == 0:
                    p += kinds[p, 1]
            else:
                for b in range(offsets[p, e], offsets[p, e + 1]):
                    byte = load_byte(addresses[p] + b)
                    data[at] = byte
                    at += 1
                    if byte == 0:
                        data[at] = 0xFF
                        at += 1
                data[at] = data[at + 1] = 0
                at += 2
            p += 1
    return out, data


@njit(cache=True)
def read_lists(kinds, data, starts):  # type: ignore[no-untyped-def]
    """The inverse: (lists int64[n + 1], numbers int64[p, m], text offsets int64[p, m + 1], text bytes).

    data[starts[i] : starts[i + 1]] are the bytes of list i. The bytes of all text parts are in one array, part after
    part, and the offsets count from its beginning.
    """
    parts, n = kinds.shape[0], starts.shape[0] - 1
    lists = np.zeros(n + 1, np.int64)
    sizes = np.zeros(parts + 1, np.int64)
    for i in range(n):
        at, count = starts[i], 0
        while at < starts[i + 1]:
            count += 1
            p = 0
            while p < parts:
                if kinds[p, 0] == WORD:
                    at += 8
                elif kinds[p, 0] == FLAG:
                    at += 1
                    if data[at - 1] == 0:
                        p += kinds[p, 1]
                else:
                    while data[at] != 0 or data[at + 1] != 0:
                        at += 2 if data[at] == 0 else 1
                        sizes[p + 1] += 1
                    at += 2
                p += 1
        lists[i + 1] = lists[i] + count
    m = lists[n]
    for p in range(parts):
        sizes[p + 1] += sizes[p]
    numbers = np.zeros((parts, m), np.int64)
    offsets = np.zeros((parts, m + 1), np.int64)
    for p in range(parts):
        offsets[p, 0] = sizes[p]
    texts = np.empty(sizes[parts], np.uint8)
    e = 0
    for i in range(n):
        at = starts[i]
        while at < starts[i + 1]:
            for p in range(parts):
                offsets[p, e + 1] = offsets[p, e]
            p = 0
            while p < parts:
                if kinds[p, 0] == WORD:
                    word = np.int64(0)
                    for b in range(8):
                        word = (word << 8) | np.int64(data[at + b])
                    numbers[p, e] = word ^ _TOP
                    at += 8
                elif kinds[p, 0] == FLAG:
                    numbers[p, e] = data[at]
                    at += 1
                    if numbers[p, e] == 0:
                        p += kinds[p, 1]
                else:
                    to = offsets[p, e]
                    while data[at] != 0 or data[at + 1] != 0:
                        texts[to] = data[at]
                        at += 2 if data[at] == 0 else 1
                        to += 1
                    offsets[p, e + 1] = to
                    at += 2
                p += 1
            e += 1
    return lists, numbers, offsets, texts
