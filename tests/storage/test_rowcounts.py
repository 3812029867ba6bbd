"""How often rows were there before a slice: by search, against the histories of their keys."""

from __future__ import annotations

import random

import numpy as np
import pytest

from vernier.storage.kernels.cursors import count_rows, key_runs
from vernier.storage.trace.batch import keyed_rows
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME, Updates


@pytest.mark.parametrize("key_width", [1, 2])
@pytest.mark.parametrize("val_width", [0, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_counted_over_all_batches(key_width: int, val_width: int, seed: int) -> None:
    rng = random.Random(f"{key_width} {val_width} {seed}")
    width = key_width + val_width
    trace = Trace("t", key_width, val_width, 0)
    lower = MIN_TIME
    for upper in range(10, 60, 10):
        rows = [[rng.randrange(3) for _ in range(width)] for _ in range(rng.choice([0, 3, 40]))]
        times = [rng.randrange(max(lower, 0), upper) for _ in rows]
        if rows:
            updates = Updates.of(rows, times, [rng.choice([1, -1, 2]) for _ in rows])
            trace.seal(keyed_rows(updates, key_width), lower, upper)
        # A view's trace keeps times, so that a row has several updates in one batch.
        trace.close_slice(upper if seed % 2 else MIN_TIME)
        lower = upper
    held: dict[tuple[int, ...], int] = {}
    for batch in trace.batches:
        for row, diff in zip(batch.to_updates().rows.tolist(), batch.to_updates().diff.tolist(), strict=True):
            held[tuple(row)] = held.get(tuple(row), 0) + diff
    asked = [[rng.randrange(4) for _ in range(width)] for _ in range(50)]
    keyed = keyed_rows(Updates.of(asked, [60 + i % 3 for i in range(50)], 1), key_width)
    found, status = count_rows(trace.settled, keyed, key_runs(keyed, key_width), key_width, val_width)
    assert status == 0
    assert found.tolist() == [held.get(tuple(row), 0) for row in keyed[:, 1 : 1 + width].tolist()]
    none = np.ascontiguousarray(keyed[:0])
    assert count_rows(trace.settled, none, key_runs(none, key_width), key_width, val_width)[0].tolist() == []


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_every_size_are_counted(seed: int) -> None:
    """Around the number of vals that are compared at once, at the ends of batches, and with no such key."""
    rng = random.Random(seed)
    trace = Trace("t", 1, 1, 0)
    held: dict[tuple[int, ...], int] = {}
    for upper in range(10, 50, 10):
        rows = [(key, val) for key in range(30) for val in range(rng.choice([0, 1, 7, 8, 9, 30])) if rng.random() < 0.8]
        diffs = [rng.choice([1, -1, 5]) if seed % 2 else 1 for _ in rows]
        times = [upper - 1] * len(rows)
        trace.seal(keyed_rows(Updates.of(rows, times, diffs), 1), upper - 10, upper)
        trace.close_slice(upper)
        for row, diff in zip(rows, diffs, strict=True):
            held[row] = held.get(row, 0) + diff
    asked = sorted({(rng.randrange(33), rng.randrange(32)) for _ in range(300)})
    keyed = keyed_rows(Updates.of(asked, [60] * len(asked), 1), 1)
    found, status = count_rows(trace.settled, keyed, key_runs(keyed, 1), 1, 1)
    assert status == 0
    assert found.tolist() == [held.get(tuple(row), 0) for row in keyed[:, 1:3].tolist()]
