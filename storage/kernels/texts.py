"""Kernels for texts: their words, a table of contents by hash, dictionaries, and order by content.

A text is a range of bytes at an address. Its four words are `[p0, p1, h0, h1]`. The prefix p0, p1 is bytes 0 to 7, then
bytes 8 to 14 and the length (16 for every length above 15). Both are big-endian with the top bit flipped, so that
comparing words compares bytes. h0, h1 is the 128-bit hash of the content of a longer text; for other texts, whose
content is in the prefix, it is (0, 0). Source of the hash: MurmurHash3_x64_128 (Austin Appleby, public domain), with
seed 0.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import more_rows
from vernier.storage.kernels.pointers import copy_bytes, load, load_byte, load_unaligned

SHORT = 15
"""Bytes that the prefix can contain; longer texts have a hash."""
WORDS = 4
H0 = 2
"""The position of the hash among the words of a text."""
MISSING = -2

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_M1 = np.uint64(0xFF51AFD7ED558CCD)
_M2 = np.uint64(0xC4CEB9FE1A85EC53)
_ADD1, _ADD2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_TOP = np.int64(-(2**63))


@njit(cache=True, inline="always")
def _rotate(x: int, by: int) -> int:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@njit(cache=True, inline="always")
def _finish(h: int) -> int:
    h = (h ^ (h >> np.uint64(33))) * _M1
    h = (h ^ (h >> np.uint64(33))) * _M2
    return h ^ (h >> np.uint64(33))


@njit(cache=True)
def murmur(address: int, length: int) -> tuple[int, int]:
    """MurmurHash3_x64_128 of `length` bytes at `address`, seed 0, as two int64."""
    h1, h2 = np.uint64(0), np.uint64(0)
    blocks = length // 16
    for i in range(blocks):
        k1 = np.uint64(load_unaligned(address + 16 * i))
        k2 = np.uint64(load_unaligned(address + 16 * i + 8))
        h1 ^= _rotate(k1 * _C1, 31) * _C2
        h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + _ADD1
        h2 ^= _rotate(k2 * _C2, 33) * _C1
        h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + _ADD2
    k1, k2 = np.uint64(0), np.uint64(0)
    for i in range(length - 1, 16 * blocks - 1, -1):
        place = i - 16 * blocks
        byte = np.uint64(load_byte(address + i))
        if place >= 8:
            k2 ^= byte << np.uint64(8 * (place - 8))
        else:
            k1 ^= byte << np.uint64(8 * place)
    h2 ^= _rotate(k2 * _C2, 33) * _C1
    h1 ^= _rotate(k1 * _C1, 31) * _C2
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    h1, h2 = _finish(h1), _finish(h2)
    h1 += h2
    h2 += h1
    return np.int64(h1), np.int64(h2)


@njit(cache=True)
def encode(address: int, offsets: np.ndarray) -> np.ndarray:
    """The words, int64[n, 4], of n texts: text i is the bytes from address + offsets[i] to address + offsets[i + 1]."""
    n = offsets.shape[0] - 1
    out = np.empty((n, WORDS), np.int64)
    for i in range(n):
        start = address + offsets[i]
        length = offsets[i + 1] - offsets[i]
        first, second = np.int64(0), np.int64(0)
        for b in range(8):
            first = (first << 8) | (load_byte(start + b) if b < length else 0)
        for b in range(8, SHORT):
            second = (second << 8) | (load_byte(start + b) if b < length else 0)
        out[i, 0] = first ^ _TOP
        out[i, 1] = ((second << 8) | min(length, SHORT + 1)) ^ _TOP
        out[i, 2] = out[i, 3] = 0
        if length > SHORT:
            h0, h1 = murmur(start, length)
            if h0 == 0 and h1 == 0:
                h1 = 1
            out[i, 2], out[i, 3] = h0, h1
    return out


@njit(cache=True)
def find(pairs: np.ndarray, table: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """The entry of each hash of int64[n, 2]: -1 for (0, 0), which is a short text's; MISSING if there is none."""
    n, mask = pairs.shape[0], table.shape[0] - 1
    out = np.empty(n, np.int64)
    for i in range(n):
        h0, h1 = pairs[i, 0], pairs[i, 1]
        if h0 == 0 and h1 == 0:
            out[i] = -1
            continue
        slot = h0 & mask
        out[i] = MISSING
        while table[slot] != 0:
            entry = table[slot] - 1
            if hashes[entry, 0] == h0 and hashes[entry, 1] == h1:
                out[i] = entry
                break
            slot = (slot + 1) & mask
    return out


@njit(cache=True, inline="always")
def _same(one: int, two: int, length: int) -> bool:
    whole = length // 8
    for i in range(whole):
        if load_unaligned(one + 8 * i) != load_unaligned(two + 8 * i):
            return False
    for i in range(8 * whole, length):
        if load_byte(one + i) != load_byte(two + i):
            return False
    return True


@njit(cache=True)
def insert(pairs, addresses, lengths, table, hashes, starts, arena, count):  # type: ignore[no-untyped-def]
    """Add the contents of n texts under their hashes int64[n, 2]; contents of hashes that exist already are compared.

    The table (a power of two, at most half full afterwards), hashes[m, 2], starts[m + 1] and arena must have capacity
    for all. Returns (number of entries, -1), or (entries so far, the text whose content differs from the stored one of
    its hash).
    """
    mask = table.shape[0] - 1
    base = arena.ctypes.data
    for i in range(pairs.shape[0]):
        h0, h1 = pairs[i, 0], pairs[i, 1]
        slot = h0 & mask
        found = False
        while table[slot] != 0:
            entry = table[slot] - 1
            if hashes[entry, 0] == h0 and hashes[entry, 1] == h1:
                length = starts[entry + 1] - starts[entry]
                if length != lengths[i] or not _same(base + starts[entry], addresses[i], length):
                    return count, i
                found = True
                break
            slot = (slot + 1) & mask
        if not found:
            table[slot] = count + 1
            hashes[count, 0], hashes[count, 1] = h0, h1
            copy_bytes(base + starts[count], addresses[i], lengths[i])
            starts[count + 1] = starts[count] + lengths[i]
            count += 1
    return count, -1


@njit(cache=True)
def rehash(hashes: np.ndarray, count: int, table: np.ndarray) -> None:
    """Fill an empty table with the first `count` entries."""
    mask = table.shape[0] - 1
    for entry in range(count):
        slot = hashes[entry, 0] & mask
        while table[slot] != 0:
            slot = (slot + 1) & mask
        table[slot] = entry + 1


@njit(cache=True)
def decode(words, entries, starts, arena):  # type: ignore[no-untyped-def]
    """The contents (offsets[n + 1], bytes) of n texts: from entry entries[i], or from words[i] if that is -1."""
    n = entries.shape[0]
    offsets = np.zeros(n + 1, np.int64)
    for i in range(n):
        entry = entries[i]
        length = (words[i, 1] & 0xFF) if entry < 0 else starts[entry + 1] - starts[entry]
        offsets[i + 1] = offsets[i] + length
    data = np.empty(offsets[n], np.uint8)
    base, source = data.ctypes.data, arena.ctypes.data
    for i in range(n):
        entry, at = entries[i], offsets[i]
        if entry >= 0:
            copy_bytes(base + at, source + starts[entry], offsets[i + 1] - at)
        else:
            first, second = words[i, 0] ^ _TOP, words[i, 1] ^ _TOP
            for b in range(offsets[i + 1] - at):
                if b < 8:
                    data[at + b] = (first >> (56 - 8 * b)) & 0xFF
                else:
                    data[at + b] = (second >> (56 - 8 * (b - 8))) & 0xFF
    return offsets, data


@njit(cache=True)
def collect(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The distinct hashes int64[m, 2] of the long texts in rows, unordered. positions: the words at which texts
    begin."""
    out = np.empty((32, 2), np.int64)
    table = np.zeros(64, np.int64)
    count = 0
    for i in range(rows.shape[0]):
        for c in range(positions.shape[0]):
            at = positions[c] + H0
            h0, h1 = rows[i, at], rows[i, at + 1]
            if h0 == 0 and h1 == 0:
                continue
            mask = table.shape[0] - 1
            slot = h0 & mask
            while table[slot] != 0 and (out[table[slot] - 1, 0] != h0 or out[table[slot] - 1, 1] != h1):
                slot = (slot + 1) & mask
            if table[slot] == 0:
                out[count, 0], out[count, 1] = h0, h1
                count += 1
                table[slot] = count
                if count == out.shape[0]:
                    out = more_rows(out, count)
                    table = np.zeros(4 * count, np.int64)
                    rehash(out, count, table)
    return out[:count].copy()


@njit(cache=True)
def locate(pairs: np.ndarray, dictionaries: np.ndarray) -> np.ndarray:
    """Where the contents of hashes int64[n, 2] are: int64[n, 2], `[address, length]`, with length -1 if they are
    missing.

    dictionaries: int64[d, 4], each row `[entries, address of the sorted hashes, of the offsets, of the bytes]`; the
    caller keeps the arrays alive. O(n d log entries).
    """
    n = pairs.shape[0]
    out = np.empty((n, 2), np.int64)
    for i in range(n):
        h0, h1 = pairs[i, 0], pairs[i, 1]
        out[i, 0], out[i, 1] = 0, -1
        for d in range(dictionaries.shape[0]):
            low, high = 0, dictionaries[d, 0]
            hashes, offsets = dictionaries[d, 1], dictionaries[d, 2]
            while low < high:
                middle = (low + high) // 2
                a, b = load(hashes, 2 * middle), load(hashes, 2 * middle + 1)
                if a < h0 or (a == h0 and b < h1):
                    low = middle + 1
                else:
                    high = middle
            if low < dictionaries[d, 0] and load(hashes, 2 * low) == h0 and load(hashes, 2 * low + 1) == h1:
                start = load(offsets, low)
                out[i, 0], out[i, 1] = dictionaries[d, 3] + start, load(offsets, low + 1) - start
                break
    return out


@njit(cache=True)
def unite(pairs, order, addresses, lengths):  # type: ignore[no-untyped-def]
    """One dictionary of n texts at these addresses. pairs: their hashes int64[n, 2]; order: their positions sorted by
    hash.

    Returns (hashes[m, 2], offsets[m + 1], bytes, -1). If the content of a text differs from that of the text before it,
    which has the same hash, the text's position in the order takes the place of the -1.
    """
    n, count = order.shape[0], 0
    hashes = np.empty((n, 2), np.int64)
    kept = np.empty(n, np.int64)
    offsets = np.zeros(n + 1, np.int64)
    for i in range(n):
        j = order[i]
        if count > 0 and hashes[count - 1, 0] == pairs[j, 0] and hashes[count - 1, 1] == pairs[j, 1]:
            k = kept[count - 1]
            if lengths[j] != lengths[k] or not _same(addresses[j], addresses[k], lengths[j]):
                return hashes[:0], offsets[:1], np.empty(0, np.uint8), i
            continue
        hashes[count, 0], hashes[count, 1] = pairs[j, 0], pairs[j, 1]
        kept[count] = j
        offsets[count + 1] = offsets[count] + lengths[j]
        count += 1
    data = np.empty(offsets[count], np.uint8)
    base = data.ctypes.data
    for i in range(count):
        copy_bytes(base + offsets[i], addresses[kept[i]], lengths[kept[i]])
    return hashes[:count].copy(), offsets[: count + 1].copy(), data, -1


@njit(cache=True, inline="always")
def _content_less(a: int, b: int, starts: np.ndarray, base: int) -> bool:
    length_a, length_b = starts[a + 1] - starts[a], starts[b + 1] - starts[b]
    for i in range(SHORT, min(length_a, length_b)):
        x, y = load_byte(base + starts[a] + i), load_byte(base + starts[b] + i)
        if x != y:
            return x < y
    return length_a < length_b


@njit(cache=True)
def sort_runs(runs: np.ndarray, entries: np.ndarray, starts: np.ndarray, arena: np.ndarray) -> np.ndarray:
    """The order of texts by content within each run: int64[n], positions. runs: int64[r + 1], where runs begin; the
    texts of a run have equal prefixes. Merge sort."""
    n = entries.shape[0]
    base = arena.ctypes.data
    order = np.arange(n)
    spare = np.empty(n, np.int64)
    for run in range(runs.shape[0] - 1):
        first, last = runs[run], runs[run + 1]
        width = 1
        while width < last - first:
            start = first
            while start < last:
                middle, stop = min(start + width, last), min(start + 2 * width, last)
                i, j = start, middle
                for k in range(start, stop):
                    right = i >= middle or (
                        j < stop and _content_less(entries[order[j]], entries[order[i]], starts, base)
                    )
                    if right:
                        spare[k] = order[j]
                        j += 1
                    else:
                        spare[k] = order[i]
                        i += 1
                for k in range(start, stop):
                    order[k] = spare[k]
                start = stop
            width *= 2
    return order


@njit(cache=True)
def replace_hashes(rows: np.ndarray, positions: np.ndarray, pairs: np.ndarray, ranks: np.ndarray) -> None:
    """Replace each hash pairs[i] (sorted) in rows by ranks[i], and every other hash by 0."""
    for i in range(rows.shape[0]):
        for c in range(positions.shape[0]):
            at = positions[c] + H0
            h0, h1 = rows[i, at], rows[i, at + 1]
            rows[i, at] = rows[i, at + 1] = 0
            low, high = 0, pairs.shape[0]
            while low < high:
                middle = (low + high) // 2
                if pairs[middle, 0] < h0 or (pairs[middle, 0] == h0 and pairs[middle, 1] < h1):
                    low = middle + 1
                else:
                    high = middle
            if low < pairs.shape[0] and pairs[low, 0] == h0 and pairs[low, 1] == h1:
                rows[i, at] = ranks[low]
