"""Cursors against dictionaries: look-up of many keys, seek and range over several batches."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from vernier.storage.kernels.hashing import key_rows
from vernier.storage.trace.batch import Batch, keyed_columns
from vernier.storage.trace.cursor import Cursor
from vernier.storage.updates import Ints, Updates, order_rows

Histories = dict[tuple[int, ...], Counter[tuple[int, ...]]]


def built(choose: random.Random, key_width: int, keys: int, sizes: list[int]) -> tuple[Cursor, Histories]:
    """A cursor over batches of these sizes, and by key what it holds: (val, time) to diff."""
    batches, wanted = [], Histories()
    for number, size in enumerate(sizes):
        rows = [[choose.randrange(keys), *[1] * (key_width - 1), choose.randrange(3)] for _ in range(size)]
        times = [10 * number + choose.randrange(4) for _ in range(size)]
        diffs = [choose.choice((-1, 1, 2)) for _ in range(size)]
        for row, time, diff in zip(rows, times, diffs, strict=True):
            wanted.setdefault(tuple(row[:-1]), Counter())[row[-1], time] += diff
        batches.append(Batch.build(Updates.of(rows, times, diffs), key_width, 10 * number, 10 * number + 10, 0))
    return Cursor(batches, key_width, 1, 0), wanted


def asked_for(keys: list[tuple[int, ...]]) -> Ints:
    """The keys as `[hash | key]`, sorted."""
    data = np.array(keys, np.int64)
    rows = key_rows(data, np.arange(data.shape[1]), np.empty(0, np.int64), 0)
    return np.ascontiguousarray(rows[order_rows(rows, np.arange(rows.shape[1]))])


@pytest.mark.parametrize("key_width", [1, 2])
@pytest.mark.parametrize("sizes", [[1], [3000, 1000, 40], [20_000, 5, 300]])
def test_look_up_gives_the_histories_of_many_keys(key_width: int, sizes: list[int]) -> None:
    choose = random.Random(len(sizes))
    cursor, wanted = built(choose, key_width, 2000, sizes)
    for count in (1, 3, 50, 1500):
        keys = choose.sample([(key, *[1] * (key_width - 1)) for key in range(-50, 2050)], count)
        asked = asked_for(keys)
        found = cursor.look_up(asked)
        for i, key in enumerate(map(tuple, asked[:, 1:].tolist())):
            part = found.entries[slice(*found.spans[i])].tolist()
            assert part == sorted(part)
            some = {(val, time): diff for val, time, diff in part}
            assert some == {place: diff for place, diff in wanted.get(key, Counter()).items() if diff}


def test_seek_and_range_by_brute_force() -> None:
    choose = random.Random(5)
    cursor, _ = built(choose, 1, 900, [2000, 500, 60])
    whole = np.concatenate([batch.keyed() for batch in cursor.batches])
    edges = [
        None,
        -(2**63),
        2**63 - 1,
        *choose.sample(whole[:, 0].tolist(), 12),
        *(choose.getrandbits(63) for _ in "ab"),
    ]
    for lower in edges:
        if lower is not None:
            places = [int((batch.hashes < lower).sum()) for batch in cursor.batches]
            assert cursor.seek(lower).tolist() == places
        for upper in edges:
            mine = np.ones(len(whole), np.bool_)
            if lower is not None:
                mine &= whole[:, 0] >= lower
            if upper is not None:
                mine &= whole[:, 0] < upper
            total: Counter[tuple[int, ...]] = Counter()
            for *row, diff in whole[mine].tolist():
                total[tuple(row)] += diff
            found = cursor.range(lower, upper)
            assert {tuple(row): diff for *row, diff in found.tolist()} == {r: d for r, d in total.items() if d}
            assert np.array_equal(order_rows(found, keyed_columns(1, 1, 0)), np.arange(len(found)))
