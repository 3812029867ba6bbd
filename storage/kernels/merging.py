"""Merge two tries into one, a bounded piece at a time.

The progress of a merge is entirely in its `state` and in the output arrays. A call may therefore stop after any val,
and the next call continues from there. Advancing old times to `since` may make entries of a val equal. Such entries are
summed, and zero sums are dropped, along with a val or key that becomes empty.
"""

import numpy as np
from numba import njit

from vernier.storage.kernels.cells import cell, put, put_word, word
from vernier.storage.kernels.fitting import fit, room, room_words
from vernier.storage.kernels.inlining import borrowing
from vernier.storage.kernels.pointers import load
from vernier.storage.kernels.separate import NUMBER, ROWS, WORDS, separate, types
from vernier.storage.kernels.sorting import add_checked
from vernier.storage.kernels.status import OVERFLOW
from vernier.storage.kernels.tries import (
    DIFF_STRIDE,
    DIFFS,
    FIELDS,
    HASHES,
    KEY_OFFSETS,
    KEY_WORDS,
    KEYS,
    ROUND_STRIDE,
    ROUNDS,
    TIME_STRIDE,
    TIMES,
    UPDATES,
    VAL_COUNT,
    VAL_OFFSETS,
    VALS,
    narrow,
    offset,
    trie_words,
)

KEY_A, KEY_B, VAL_A, END_A, VAL_B, END_B = 0, 1, 2, 3, 4, 5
"""State: the next keys; inside a key, the next vals and where they end."""
OUT_KEYS, OUT_VALS, OUT_UPDATES, OUT_KEY_START = 6, 7, 8, 9
"""State: how much has been written, and where the vals of the open key begin."""
OPEN, DONE, MANY_TIMES, MANY_ROUNDS, MANY_DIFFS = 10, 11, 12, 13, 14
"""State: whether a key is open, whether the merge is done, and whether times, rounds and diffs are not constant."""
READ = 15
"""State: how many updates of the two tries have been read."""
STATE_WORDS = 16


@njit(cache=True, inline="always")
def _compare(a: int, i: int, b: int, j: int, count: int) -> int:
    """Compares `count` numbers of one column, from number i on, with those of another, from j on: -1, 0 or 1."""
    for c in range(count):
        x, y = narrow(a, i + c), narrow(b, j + c)
        if x != y:
            return -1 if x < y else 1
    return 0


@njit(cache=True, inline="always")
def _diff_of(table: np.ndarray, i: int) -> int:
    return narrow(word(table, DIFFS), i * word(table, DIFF_STRIDE))


@njit(cache=True, inline="always")
def _compare_entries(a: np.ndarray, i: int, b: np.ndarray, j: int, d: int, since: int) -> int:
    order = _compare(word(a, ROUNDS), i * word(a, ROUND_STRIDE), word(b, ROUNDS), j * word(b, ROUND_STRIDE), d)
    if order != 0:
        return order
    x = max(load(_at(a, TIMES, TIME_STRIDE, i), 0), since)
    y = max(load(_at(b, TIMES, TIME_STRIDE, j), 0), since)
    return 0 if x == y else -1 if x < y else 1


@njit(cache=True, inline="always")
def _at(table: np.ndarray, field: int, stride: int, i: int) -> int:
    """The address of entry i of a column."""
    return word(table, field) + 8 * i * word(table, stride)


@njit(cache=True, inline="always")
def _time_of(table: np.ndarray, i: int) -> int:
    return load(_at(table, TIMES, TIME_STRIDE, i), 0)


@njit(cache=True, forceinline=True)
def _merge_entries(  # type: ignore[no-untyped-def]
    a, ha, stop_a, b, hb, stop_b, d, since, n, times, rounds, diffs
):
    """Write the entries [ha, stop_a) and [hb, stop_b) of one val after the first n entries: (new n, wrapped)."""
    first = n
    while ha < stop_a or hb < stop_b:
        if ha < stop_a and hb < stop_b:
            from_a = _compare_entries(a, ha, b, hb, d, since) <= 0
        else:
            from_a = ha < stop_a
        if from_a:
            time, diff = load(_at(a, TIMES, TIME_STRIDE, ha), 0), _diff_of(a, ha)
            coordinates, at = word(a, ROUNDS), ha * word(a, ROUND_STRIDE)
            ha += 1
        else:
            time, diff = load(_at(b, TIMES, TIME_STRIDE, hb), 0), _diff_of(b, hb)
            coordinates, at = word(b, ROUNDS), hb * word(b, ROUND_STRIDE)
            hb += 1
        time = max(time, since)
        equal = n > first and word(times, n - 1) == time
        if equal:
            for c in range(d):
                if narrow(coordinates, at + c) != cell(rounds, n - 1, c):
                    equal = False
                    break
        if equal:
            total, wrapped = add_checked(word(diffs, n - 1), diff)
            if wrapped:
                return n, True
            put_word(diffs, n - 1, total)
            continue
        if n > first and word(diffs, n - 1) == 0:
            n -= 1
        put_word(times, n, time)
        put_word(diffs, n, diff)
        for c in range(d):
            put(rounds, n, c, narrow(coordinates, at + c))
        n += 1
    if n > first and word(diffs, n - 1) == 0:
        n -= 1
    return n, False


@njit(cache=True, inline="always")
def _append_entries(a, h, stop, since, first, n, times, diffs):  # type: ignore[no-untyped-def]
    """Write the entries [h, stop) of a val without rounds after those of it that begin at number `first`, all of which
    are as early: (new n, wrapped)."""
    for i in range(h, stop):
        time, diff = max(load(_at(a, TIMES, TIME_STRIDE, i), 0), since), _diff_of(a, i)
        if n > first and word(times, n - 1) == time:
            total, wrapped = add_checked(word(diffs, n - 1), diff)
            if wrapped:
                return n, True
            put_word(diffs, n - 1, total)
            continue
        if n > first and word(diffs, n - 1) == 0:
            n -= 1
        put_word(times, n, time)
        put_word(diffs, n, diff)
        n += 1
    return n, False


@njit(cache=True, forceinline=True)
def _merge(a, b, k, v, d, since, fuel, state, columns):  # type: ignore[no-untyped-def]
    """The body of `merge_piece`, compiled into it once for known widths and once for any."""
    hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = columns
    keys_a, keys_b = word(a, KEYS), word(b, KEYS)
    hashes_a, hashes_b = word(a, HASHES), word(b, HASHES)
    vals_a, vals_b = word(a, VALS), word(b, VALS)
    vals_of_a, vals_of_b = word(a, KEY_OFFSETS), word(b, KEY_OFFSETS)
    entries_of_a, entries_of_b = word(a, VAL_OFFSETS), word(b, VAL_OFFSETS)
    key_a, key_b = state[KEY_A], state[KEY_B]
    va, end_a, vb, end_b = state[VAL_A], state[END_A], state[VAL_B], state[END_B]
    nk, nv, n, key_start = state[OUT_KEYS], state[OUT_VALS], state[OUT_UPDATES], state[OUT_KEY_START]
    is_open = state[OPEN] == 1
    many_times, many_rounds, many_diffs = state[MANY_TIMES] == 1, state[MANY_ROUNDS] == 1, state[MANY_DIFFS] == 1
    given = fuel
    # The later of the two times, if each batch has only one time, as most batches do.
    newest = np.int64(2**63 - 1)
    if word(a, TIME_STRIDE) == 0 and word(b, TIME_STRIDE) == 0 and keys_a > 0 and keys_b > 0:
        newest = max(load(word(a, TIMES), 0), load(word(b, TIMES), 0))
    while fuel > 0:
        if not is_open:
            if key_a < keys_a and key_b < keys_b:
                x, y = load(hashes_a, key_a), load(hashes_b, key_b)
                order = 0 if x == y else -1 if x < y else 1
                if order == 0 and k > 1:
                    order = _compare(word(a, KEY_WORDS), key_a * k, word(b, KEY_WORDS), key_b * k, k)
            elif key_a < keys_a:
                order = -1
            elif key_b < keys_b:
                order = 1
            else:
                put_word(key_offsets, nk, nv)
                put_word(val_offsets, nv, n)
                state[DONE] = 1
                break
            va = end_a = vb = end_b = 0
            from_a = order <= 0
            put_word(hashes, nk, load(hashes_a, key_a) if from_a else load(hashes_b, key_b))
            if k > 1:
                words = word(a, KEY_WORDS) + 8 * key_a * k if from_a else word(b, KEY_WORDS) + 8 * key_b * k
                for c in range(k):
                    put(keys, nk, c, load(words, c))
            if order <= 0:
                va, end_a = offset(vals_of_a, key_a), offset(vals_of_a, key_a + 1)
                key_a += 1
            if order >= 0:
                vb, end_b = offset(vals_of_b, key_b), offset(vals_of_b, key_b + 1)
                key_b += 1
            key_start = nv
            is_open = True
        while fuel > 0 and (va < end_a or vb < end_b):
            if va < end_a and vb < end_b:
                order = _compare(vals_a, va * v, vals_b, vb * v, v)
            else:
                order = -1 if va < end_a else 1
            words, at = (vals_a, va * v) if order <= 0 else (vals_b, vb * v)
            for c in range(v):
                put(vals, nv, c, narrow(words, at + c))
            ha = stop_a = hb = stop_b = 0
            if order <= 0:
                ha, stop_a = offset(entries_of_a, va), offset(entries_of_a, va + 1)
                va += 1
            if order >= 0:
                hb, stop_b = offset(entries_of_b, vb), offset(entries_of_b, vb + 1)
                vb += 1
            size = stop_a - ha + stop_b - hb
            fuel -= size
            first = n
            if size == 1:
                # One update: nothing to sum, and no update is zero.
                if order < 0:
                    put_word(times, n, max(load(_at(a, TIMES, TIME_STRIDE, ha), 0), since))
                    put_word(diffs, n, _diff_of(a, ha))
                    coordinates, at = word(a, ROUNDS), ha * word(a, ROUND_STRIDE)
                else:
                    put_word(times, n, max(load(_at(b, TIMES, TIME_STRIDE, hb), 0), since))
                    put_word(diffs, n, _diff_of(b, hb))
                    coordinates, at = word(b, ROUNDS), hb * word(b, ROUND_STRIDE)
                for c in range(d):
                    put(rounds, n, c, narrow(coordinates, at + c))
                n += 1
            elif size == 2 and order == 0 and d == 0 and newest <= since:
                # Both times become `since`.
                total, wrapped = add_checked(_diff_of(a, ha), _diff_of(b, hb))
                if wrapped:
                    return OVERFLOW
                put_word(times, n, since)
                put_word(diffs, n, total)
                n += 1 if total != 0 else 0
            elif d == 0 and (order != 0 or _time_of(a, stop_a - 1) <= max(_time_of(b, hb), since)):
                # As it should be: the older trie has the earlier times.
                n, wrapped = _append_entries(a, ha, stop_a, since, first, n, times, diffs)
                n, more = _append_entries(b, hb, stop_b, since, first, n, times, diffs)
                if wrapped or more:
                    return OVERFLOW
                n -= 1 if n > first and word(diffs, n - 1) == 0 else 0
            else:
                n, wrapped = _merge_entries(a, ha, stop_a, b, hb, stop_b, d, since, n, times, rounds, diffs)
                if wrapped:
                    return OVERFLOW
            for h in range(first, n):
                many_times = many_times or word(times, h) != word(times, 0)
                many_diffs = many_diffs or word(diffs, h) != word(diffs, 0)
                for c in range(d):
                    many_rounds = many_rounds or cell(rounds, h, c) != cell(rounds, 0, c)
            if n > first:
                put_word(val_offsets, nv, first)
                nv += 1
        if va == end_a and vb == end_b:
            if nv > key_start:
                put_word(key_offsets, nk, key_start)
                nk += 1
            is_open = False
    state[READ] += given - fuel
    state[KEY_A], state[KEY_B] = key_a, key_b
    state[VAL_A], state[END_A], state[VAL_B], state[END_B] = va, end_a, vb, end_b
    state[OUT_KEYS], state[OUT_VALS], state[OUT_UPDATES], state[OUT_KEY_START] = nk, nv, n, key_start
    state[OPEN] = 1 if is_open else 0
    state[MANY_TIMES] = 1 if many_times else 0
    state[MANY_ROUNDS] = 1 if many_rounds else 0
    state[MANY_DIFFS] = 1 if many_diffs else 0
    return 0


@njit(cache=True)
def _adds_up(a, b, k, v, d, since):  # type: ignore[no-untyped-def]
    """Whether each key of two tries is one word and one update, and all times become `since`."""
    if k != 1 or v != 0 or d != 0 or word(a, VAL_OFFSETS) != 0 or word(b, VAL_OFFSETS) != 0:
        return False
    if word(a, TIME_STRIDE) != 0 or word(b, TIME_STRIDE) != 0 or word(a, KEYS) == 0 or word(b, KEYS) == 0:
        return False
    return max(load(word(a, TIMES), 0), load(word(b, TIMES), 0)) <= since


@njit(cache=True)
def _add_keys(a, b, since, fuel, state, columns):  # type: ignore[no-untyped-def]
    """`merge_piece` of tries that `_adds_up`. Each key that is left has one update, so offsets are not written. Which
    side a key is on cannot be predicted, so nothing branches on it."""
    hashes, _, _, _, _, times, _, diffs = columns
    keys_a, keys_b, hashes_a, hashes_b = word(a, KEYS), word(b, KEYS), word(a, HASHES), word(b, HASHES)
    diffs_a, stride_a, diffs_b, stride_b = word(a, DIFFS), word(a, DIFF_STRIDE), word(b, DIFFS), word(b, DIFF_STRIDE)
    key_a, key_b, first = state[KEY_A], state[KEY_B], state[OUT_KEYS]
    start, n, wrapped = key_a + key_b, first, False
    put_word(times, 0, since)
    while key_a < keys_a and key_b < keys_b and key_a + key_b - start < fuel:
        x, y = load(hashes_a, key_a), load(hashes_b, key_b)
        from_a, from_b = np.int64(x <= y), np.int64(y <= x)
        left, right = narrow(diffs_a, key_a * stride_a) & -from_a, narrow(diffs_b, key_b * stride_b) & -from_b
        total, over = add_checked(left, right)
        wrapped |= over
        put_word(hashes, n, min(x, y))
        put_word(diffs, n, total)
        n += np.int64(total != 0)
        key_a += from_a
        key_b += from_b
    if wrapped:
        return OVERFLOW
    if key_b == keys_b:
        stop = max(key_a, min(keys_a, start + fuel - key_b))
        for key in range(key_a, stop):
            put_word(hashes, n, load(hashes_a, key))
            put_word(diffs, n, narrow(diffs_a, key * stride_a))
            n += 1
        key_a = stop
    elif key_a == keys_a:
        stop = max(key_b, min(keys_b, start + fuel - key_a))
        for key in range(key_b, stop):
            put_word(hashes, n, load(hashes_b, key))
            put_word(diffs, n, narrow(diffs_b, key * stride_b))
            n += 1
        key_b = stop
    many = state[MANY_DIFFS] == 1
    for i in range(first, n):
        many |= word(diffs, i) != word(diffs, 0)
    state[READ] += key_a + key_b - start
    state[KEY_A], state[KEY_B], state[MANY_DIFFS] = key_a, key_b, 1 if many else 0
    state[OUT_KEYS] = state[OUT_VALS] = state[OUT_UPDATES] = n
    state[DONE] = 1 if key_a == keys_a and key_b == keys_b else 0
    return 0


_MERGED = types.Tuple((WORDS, ROWS, WORDS, ROWS, WORDS, WORDS, ROWS, WORDS))


@separate(NUMBER, WORDS, WORDS, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, WORDS, _MERGED)
@njit(cache=True)
def merge_piece(a, b, k, v, d, since, fuel, state, columns):  # type: ignore[no-untyped-def]
    """Continue merging the tries `a` and `b` (rows of addresses) for about `fuel` updates.

    columns: hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs, with capacity for both tries. state:
    int64[STATE_WORDS], zeros at first; state[DONE] is set at the end, when key_offsets and val_offsets are complete
    where they are needed. Returns OK or OVERFLOW. O(fuel), exceeded by at most the history of a single val.
    """
    if _adds_up(a, b, k, v, d, since):
        return _add_keys(a, b, since, fuel, state, columns)
    if k == 1 and v == 1 and d <= 1:
        # Constant widths of one word get a loop of their own, whose inner loops are unrolled.
        if d == 1:
            return _merge(a, b, 1, 1, 1, since, fuel, state, columns)
        return _merge(a, b, 1, 1, 0, since, fuel, state, columns)
    return _merge(a, b, k, v, d, since, fuel, state, columns)


@borrowing
def _merge_whole(a, b, k, v, d, since, keys, vals, updates, words, state):  # type: ignore[no-untyped-def]
    """Merge two tries into `room` in `words`. Returns a status."""
    return merge_piece(a, b, k, v, d, since, np.int64(2**62), state, room(words, k, v, d, keys, vals, updates))


@borrowing
def _fit_merged(words, keys, vals, most, k, v, d, nk, nv, n, times, rounds, diffs, together, address):  # type: ignore[no-untyped-def]
    """Copy what `_merge_whole` has made to an array of its own."""
    fit(room(words, k, v, d, keys, vals, most), k, v, d, nk, nv, n, times, rounds, diffs, together, address)


@njit(cache=True)
def merge_tries(a, b, k, v, d, since):  # type: ignore[no-untyped-def]
    """Merge the tries `a` and `b` (rows of addresses) as a whole: (columns and addresses as kernels.tries.pack returns
    them, number of updates, status). O(updates)."""
    keys, vals = word(a, KEYS) + word(b, KEYS), word(a, VAL_COUNT) + word(b, VAL_COUNT)
    most = word(a, UPDATES) + word(b, UPDATES)
    words, state = np.empty(room_words(k, v, d, keys, vals, most), np.int64), np.zeros(STATE_WORDS, np.int64)
    address = np.empty(FIELDS, np.int64)
    status = _merge_whole(a, b, k, v, d, since, keys, vals, most, words, state)
    n = state[OUT_UPDATES]
    alone = min(n, 1)
    times, rounds = n if state[MANY_TIMES] == 1 else alone, n if state[MANY_ROUNDS] == 1 else alone
    diffs, sizes = n if state[MANY_DIFFS] == 1 else alone, (state[OUT_KEYS], state[OUT_VALS], n)
    together = np.empty(trie_words(k, v, d, *sizes, times, rounds, diffs), np.int64)
    _fit_merged(words, keys, vals, most, k, v, d, *sizes, times, rounds, diffs, together, address)
    return (together, address), n, status
