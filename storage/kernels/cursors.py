"""Walk many keys through many layers: one call finds, folds and consolidates the histories of all of them."""

import numpy as np
from numba import njit

from storage.kernels.pointers import load
from storage.kernels.sorting import FEW, add_checked, insertion_sort, merge_sort, pack_columns, rows_equal
from storage.kernels.status import OVERFLOW
from storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    HASH_STRIDE,
    HASHES,
    KEY_OFFSETS,
    KEY_STRIDE,
    KEY_WORDS,
    KEYS,
    ROUND_STRIDE,
    ROUNDS,
    TIME_STRIDE,
    TIMES,
    VAL_OFFSETS,
    VAL_STRIDE,
    VALS,
)

_LINEAR = 16
AS_STORED = -(2**63)
"""The fold that leaves times as they are."""


MEMO_AT, MEMO_SIZE, MEMO_LINK, LINK = 4, 5, 6, 7
"""Of a link: where a history lies that has been given already, its entries (-1: none), the newest link + 1 in it; and
how many words a link has."""


@njit(cache=True)
def seek(address: int, stride: int, lo: int, hi: int, hashed: int) -> int:
    """First position in [lo, hi) of the sorted words at `address`, `stride` apart, that is >= hashed, or hi.

    Hashes are uniform, so interpolation lands close: a few steps of it, then binary search.
    """
    for _ in range(3):
        if hi - lo <= _LINEAR:
            break
        first = load(address, lo * stride)
        last = load(address, (hi - 1) * stride)
        if hashed <= first:
            return lo
        if hashed > last:
            return hi
        share = (np.float64(hashed) - np.float64(first)) / (np.float64(last) - np.float64(first))
        guess = lo + np.int64(share * (hi - 1 - lo))
        guess = min(max(guess, lo + 1), hi - 2)
        slack = np.int64(np.sqrt(np.float64(hi - lo))) + 2
        if load(address, guess * stride) < hashed:
            far = min(guess + slack, hi - 1)
            if load(address, far * stride) < hashed:
                lo = far + 1
            else:
                lo = guess + 1
                hi = far + 1
        else:
            near = max(guess - slack, lo)
            if load(address, near * stride) >= hashed:
                hi = near + 1
            else:
                lo = near + 1
                hi = guess + 1
    while lo < hi:
        middle = (lo + hi) >> 1
        if load(address, middle * stride) < hashed:
            lo = middle + 1
        else:
            hi = middle
    return lo


@njit(cache=True, inline="always")
def _is_key(table: np.ndarray, layer: int, at: int, keyed: np.ndarray, i: int, k: int) -> bool:
    """Whether the layer's key at `at`, whose hash is right, is key i."""
    if k > 1:
        for c in range(k):
            if load(table[layer, KEY_WORDS], at * table[layer, KEY_STRIDE] + c) != keyed[i, 1 + c]:
                return False
    return True


@njit(cache=True, inline="always")
def _advance(table: np.ndarray, layer: int, lo: int, hashed: int, left: int) -> int:
    """The first position from `lo` on whose hash is not below `hashed`; `left` keys of the list are still to come.

    By single steps where the layer is not much longer than the list of keys, by interpolation where it is.
    """
    size, address, stride = table[layer, KEYS], table[layer, HASHES], table[layer, HASH_STRIDE]
    if size - lo <= 4 * left:
        while lo < size and load(address, lo * stride) < hashed:
            lo += 1
        return lo
    if lo < size and load(address, lo * stride) < hashed:
        return seek(address, stride, lo + 1, size, hashed)
    return lo


@njit(cache=True, inline="always")
def _place(table: np.ndarray, layer: int, lo: int, keyed: np.ndarray, i: int, k: int) -> int:
    """Where key i is among the keys from `lo` on that have its hash, or -1."""
    size, address, stride = table[layer, KEYS], table[layer, HASHES], table[layer, HASH_STRIDE]
    while lo < size and load(address, lo * stride) == keyed[i, 0]:
        if _is_key(table, layer, lo, keyed, i, k):
            return lo
        lo += 1
    return -1


@njit(cache=True)
def _index_step(table, layer, k, step, heads, links, count):  # type: ignore[no-untyped-def]
    """Put the keys of a step (a FLAT layer) into the index; returns how many links there are then.

    heads[2**m, 3]: `[hash, oldest link + 1 or 0, newest link + 1]`, open addressing; links[n, LINK]: `[next link + 1 or
    0, step, start, stop, memo]`. Keys of one hash share a chain, oldest first: later steps mostly sort behind earlier
    ones. A key's memo stands at its oldest link.
    """
    mask = heads.shape[0] - 1
    n, address, stride = table[layer, KEYS], table[layer, HASHES], table[layer, HASH_STRIDE]
    words = table[layer, KEY_WORDS]
    start = 0
    while start < n:
        hashed = load(address, start * stride)
        stop = start + 1
        while stop < n and load(address, stop * stride) == hashed:
            same = True
            if k > 1:
                for c in range(k):
                    if load(words, stop * stride + c) != load(words, start * stride + c):
                        same = False
                        break
            if not same:
                break
            stop += 1
        slot = hashed & mask
        while heads[slot, 1] != 0 and heads[slot, 0] != hashed:
            slot = (slot + 1) & mask
        links[count, 0], links[count, 1] = 0, step
        links[count, 2], links[count, 3], links[count, MEMO_SIZE] = start, stop, -1
        count += 1
        if heads[slot, 1] == 0:
            heads[slot, 0], heads[slot, 1] = hashed, count
        else:
            links[heads[slot, 2] - 1, 0] = count
        heads[slot, 2] = count
        start = stop
    return count


@njit(cache=True, inline="always")
def _read(table, layer, val, start, stop, v, d, rows, n):  # type: ignore[no-untyped-def]
    """Copy entries [start, stop) of a layer, the first of them of val `val`, behind rows[:n]; returns the new n."""
    vals, val_stride, val_offsets = table[layer, VALS], table[layer, VAL_STRIDE], table[layer, VAL_OFFSETS]
    times, time_stride = table[layer, TIMES], table[layer, TIME_STRIDE]
    rounds, round_stride = table[layer, ROUNDS], table[layer, ROUND_STRIDE]
    diffs, diff_stride = table[layer, DIFFS], table[layer, DIFF_STRIDE]
    next_val = stop if val_offsets == 0 else load(val_offsets, val + 1)
    for e in range(start, stop):
        if val_offsets == 0:
            val = e
        elif e == next_val:
            val += 1
            next_val = load(val_offsets, val + 1)
        for c in range(v):
            rows[n, c] = load(vals, val * val_stride + c)
        rows[n, v] = load(times, e * time_stride)
        for c in range(d):
            rows[n, v + 1 + c] = load(rounds, e * round_stride + c)
        rows[n, v + 1 + d] = load(diffs, e * diff_stride)
        n += 1
    return n


@njit(cache=True, inline="always")
def _room(rows: np.ndarray, n: int, more: int) -> np.ndarray:
    """The matrix with room for `more` rows behind rows[:n]: itself, or a larger copy."""
    if n + more <= rows.shape[0]:
        return rows
    grown = np.empty((2 * (n + more), rows.shape[1]), np.int64)
    grown[:n] = rows[:n]
    return grown


@njit(cache=True)
def select_keys(table, keyed, k, v, d, settled, before, fold, heads, links, index):  # type: ignore[no-untyped-def]
    """The consolidated histories of q keys over the first `before` of a trace's layers and steps.

    table[l, FIELDS]; keyed[q, >= 1 + k] begins with hash and key words: distinct, sorted by hash. Layers
    `0 .. settled-1` are older than the slice: their times read as `fold`. Those behind are the slice's steps. They are
    many and small, so they are not searched one by one but found by an index, which this call brings up to date:
    heads, links as in `_index_step`, large enough; index: `[steps in the index, links, fold of the memos]`.
    A key is asked for again in most rounds of a slice; so its history is remembered where this call gave it (the caller
    keeps that alive), and the next call adds the steps that have come since. Returns (offsets[q + 1],
    entries[n, v + 1 + d + 1], status): rows `[val words | time | rounds | diff]` by key, sorted by (val, rounds, time).
    O(history x log history).
    """
    q = keyed.shape[0]
    older = min(settled, before)
    while settled + index[0] < before:
        index[1] = _index_step(table, settled + index[0], k, index[0], heads, links, index[1])
        index[0] += 1
    mask = heads.shape[0] - 1
    last = v + d + 1
    offsets = np.empty(q + 1, np.int64)
    firsts = np.empty(q, np.int64)  # where a key's second run begins
    rows = np.empty((8 * q + 64, last + 1), np.int64)
    positions = np.zeros(older, np.int64)
    homes, tails = np.zeros(q, np.int64), np.zeros(q, np.int64)  # a key's oldest and newest link + 1, 0: none
    if index[2] != fold:
        for link in range(index[1]):
            links[link, MEMO_SIZE] = -1
        index[2] = fold
    n = 0
    for i in range(q):
        offsets[i] = firsts[i] = n
        link = 0
        if before > settled:
            slot = keyed[i, 0] & mask
            while heads[slot, 1] != 0 and heads[slot, 0] != keyed[i, 0]:
                slot = (slot + 1) & mask
            link = heads[slot, 1]
            while link != 0 and not _is_key(table, settled + links[link - 1, 1], links[link - 1, 2], keyed, i, k):
                link = links[link - 1, 0]
            if link != 0 and settled + links[link - 1, 1] >= before:
                link = 0
        remembered = False
        if link != 0:
            homes[i] = tails[i] = link
            tail = links[link - 1, MEMO_LINK]
            if links[link - 1, MEMO_SIZE] >= 0:
                remembered = settled + links[tail - 1, 1] < before
                if not remembered:
                    homes[i] = 0  # it is of more than is asked for: it stays
        if remembered:
            at, size = links[link - 1, MEMO_AT], links[link - 1, MEMO_SIZE]
            rows = _room(rows, n, size)
            for e in range(size):
                for c in range(last + 1):
                    rows[n + e, c] = load(at, e * (last + 1) + c)
            n += size
            firsts[i] = n
            tails[i] = tail
            link = links[tail - 1, 0]
        else:
            for layer in range(older):
                positions[layer] = _advance(table, layer, positions[layer], keyed[i, 0], q - i)
                at = _place(table, layer, positions[layer], keyed, i, k)
                if at < 0:
                    continue
                val = at if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], at)
                end = at + 1 if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], at + 1)
                start = val if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], val)
                stop = end if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], end)
                rows = _room(rows, n, stop - start)
                first = n
                n = _read(table, layer, val, start, stop, v, d, rows, n)
                if fold != AS_STORED:
                    for e in range(first, n):
                        rows[e, v] = fold
                if first == offsets[i]:
                    firsts[i] = n
        while link != 0:
            step, start, stop = links[link - 1, 1], links[link - 1, 2], links[link - 1, 3]
            if settled + step >= before:
                break
            if _is_key(table, settled + step, start, keyed, i, k):
                rows = _room(rows, n, stop - start)
                first = n
                n = _read(table, settled + step, start, start, stop, v, d, rows, n)
                if first == offsets[i]:
                    firsts[i] = n
                tails[i] = link
            link = links[link - 1, 0]
    offsets[q] = n

    columns = np.empty(v + d + 1, np.int64)
    for c in range(v):
        columns[c] = c
    for c in range(d):
        columns[v + c] = v + 1 + c
    columns[v + d] = v
    one, two, order = np.empty(n, np.int64), np.empty(n, np.int64), np.arange(n)
    exact = pack_columns(rows, n, columns, 0, one)
    exact = pack_columns(rows, n, columns, exact, two)
    rest = exact < columns.shape[0]
    out = np.empty((n, last + 1), np.int64)
    count = 0
    for i in range(q):
        lo, hi = offsets[i], offsets[i + 1]
        offsets[i] = count
        if firsts[i] < hi:
            if hi - firsts[i] <= FEW:
                insertion_sort(rows, columns, exact, one, two, order, firsts[i], lo, hi)
            else:
                merge_sort(rows, columns, exact, one, two, order, lo, hi)
        e = lo
        while e < hi:
            first = e
            sum_ = rows[order[e], last]
            e += 1
            while (
                e < hi
                and one[e] == one[first]
                and two[e] == two[first]
                and not (rest and not rows_equal(rows, columns, exact, order[first], order[e]))
            ):
                sum_, wrapped = add_checked(sum_, rows[order[e], last])
                if wrapped:
                    return offsets, out[:0], OVERFLOW
                e += 1
            if sum_ != 0:
                for c in range(last):
                    out[count, c] = rows[order[first], c]
                out[count, last] = sum_
                count += 1
    offsets[q] = count
    for i in range(q):
        if homes[i] != 0:
            home = homes[i] - 1
            links[home, MEMO_AT] = out.ctypes.data + 8 * offsets[i] * (last + 1)
            links[home, MEMO_SIZE] = offsets[i + 1] - offsets[i]
            links[home, MEMO_LINK] = tails[i]
    return offsets, out[:count], 0


@njit(cache=True, inline="always")
def _compare_val(table, layer, val, rows, i, first, v):  # type: ignore[no-untyped-def]
    """How the layer's val compares with the words rows[i, first : first + v]: -1, 0 or 1."""
    address, stride = table[layer, VALS], table[layer, VAL_STRIDE]
    for c in range(v):
        here, there = load(address, val * stride + c), rows[i, first + c]
        if here != there:
            return -1 if here < there else 1
    return 0


@njit(cache=True)
def count_rows(table, rows, k, v):  # type: ignore[no-untyped-def]
    """How often each of n rows is in all layers together: (int64[n], status).

    rows[n, >= 1 + k + v]: `[hash | key | val | …]`, sorted, equal ones side by side. O(layers x log vals of the key) a
    row, so the other rows of a key cost nothing.
    """
    n, layers = rows.shape[0], table.shape[0]
    counts = np.empty(n, np.int64)
    positions = np.zeros(layers, np.int64)
    places = np.empty(layers, np.int64)
    for i in range(n):
        new_key = i == 0
        new_val = new_key
        if not new_key:
            for c in range(1 + k + v):
                if rows[i, c] != rows[i - 1, c]:
                    new_val = True
                    new_key = c < 1 + k
                    break
        if not new_val:
            counts[i] = counts[i - 1]
            continue
        total = np.int64(0)
        for layer in range(layers):
            if new_key:
                positions[layer] = _advance(table, layer, positions[layer], rows[i, 0], n - i)
                places[layer] = _place(table, layer, positions[layer], rows, i, k)
            at = places[layer]
            if at < 0:
                continue
            lo = at if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], at)
            end = at + 1 if table[layer, KEY_OFFSETS] == 0 else load(table[layer, KEY_OFFSETS], at + 1)
            hi = end
            while lo < hi:
                middle = (lo + hi) >> 1
                if _compare_val(table, layer, middle, rows, i, 1 + k, v) < 0:
                    lo = middle + 1
                else:
                    hi = middle
            if lo == end or _compare_val(table, layer, lo, rows, i, 1 + k, v) != 0:
                continue
            start = lo if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], lo)
            stop = lo + 1 if table[layer, VAL_OFFSETS] == 0 else load(table[layer, VAL_OFFSETS], lo + 1)
            # Without offsets every update has a val of its own, equal ones side by side.
            while stop < end and table[layer, VAL_OFFSETS] == 0:
                if _compare_val(table, layer, stop, rows, i, 1 + k, v) != 0:
                    break
                stop += 1
            for e in range(start, stop):
                total, wrapped = add_checked(total, load(table[layer, DIFFS], e * table[layer, DIFF_STRIDE]))
                if wrapped:
                    return counts[:0], OVERFLOW
        counts[i] = total
    return counts, 0
