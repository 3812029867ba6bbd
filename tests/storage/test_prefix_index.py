"""Prefix index: partial sums along the vals of batches, while these merge, and keys that owe copies."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from vernier.storage.kernels.prefix_sums import STEP, SUMS
from vernier.storage.trace import prefix_index
from vernier.storage.trace import spine as trace_module
from vernier.storage.trace.batch import Batch, keyed_rows
from vernier.storage.trace.prefix_index import owes, sums_of
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Updates

COPIES, PLAIN, WIDE = (-1, 1, -1), (1, 1, 0), (1, 2, -1)
LEAST = -(2**63)


def sums_by_hand(batch: Batch, column: tuple[int, int, int]) -> list[list[int]]:
    """The sum before each STEP-th val, in numbers of any size."""
    first, words, flag = column
    offsets = batch.val_offsets.tolist() or list(range(batch.updates + 1))
    diffs = batch.diffs.tolist() * (batch.updates if len(batch.diffs) == 1 else 1)
    copies = total = values = 0
    found = []
    for val, row in enumerate(batch.vals.tolist()):
        if val % STEP == 0:
            found.append([copies, total, values])
        here = sum(diffs[offsets[val] : offsets[val + 1]])
        copies += here
        if first >= 0 and (flag < 0 or row[flag]):
            values += here
            total += here * (row[first] if words == 1 else (row[first] << 64) + (row[first + 1] ^ LEAST) % 2**64)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_the_vals_whatever_merges(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "SMALL", 32)
    monkeypatch.setattr(trace_module, "LEAST", 8)
    monkeypatch.setattr(prefix_index, "_READ", 16)
    choose = random.Random(seed)
    trace = Trace("t", 1, 3, 0)
    held: Counter[tuple[int, ...]] = Counter()
    continued, owed = 0, 0
    for number in range(120):
        n = choose.choice((1, 5, 40, choose.randrange(300)))
        rows = [(choose.randrange(3), choose.randrange(2), choose.randrange(-40, 40), 0) for _ in range(n)]
        gone = [row for row in choose.sample(sorted(held), min(len(held), n // 3)) if held[row] > 0]
        diffs = [choose.choice([1, 2, 2**40])] * n + [-held[row] - (number % 10 == 7) for row in gone]
        for row, diff in zip([*rows, *gone], diffs, strict=True):
            held[row] += diff
        updates = Updates.of(np.array([*rows, *gone], np.int64), [number] * len(diffs), diffs)
        trace.seal(keyed_rows(updates, 1), number, number + 1)
        trace.close_slice(number + 1)
        for merge in trace.merges:
            continued += bool(merge.summed)
        for column in (COPIES, PLAIN, WIDE) if number % 3 else ():
            places = sums_of(trace, column).tolist()
            assert [bool(place) for place in places] == [batch.updates >= 16 for batch in trace.batches]
            for batch in trace.batches:
                if batch.updates >= 16:
                    sums = batch.sums[column]
                    assert sums.shape == (len(batch.vals) // STEP + 1, SUMS)
                    for (copies, total, values), row in list(zip(sums_by_hand(batch, column), sums.tolist()))[1:]:
                        assert (row[0], (row[1] << 64) + row[2] % 2**64) == (copies, total)
                        assert column == COPIES or row[3] == values
        keys = {row[0] for row, copies in held.items() if copies < 0}
        for key in range(3):
            hashes = keyed_rows(Updates.of([(key, 0, 0, 0)], [0], [1]), 1)[:, 0]
            # A key may be taken to owe something until its batches have merged, never the other way round.
            assert owes(trace, hashes) or key not in keys
            owed += key in keys
    assert continued
    assert owed
    merged = [Counter[tuple[int, ...]](), held]
    for batch in trace.batches:
        for _, *row, _, diff in batch.keyed().tolist():
            merged[0][tuple(row)] += diff
    assert merged[0] == Counter({row: copies for row, copies in held.items() if copies})
