"""Runs of batches merged into one, as a trace does it over many closes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.storage.trace.batch import Batch
from vernier.storage.trace.merge import Merge


def merge_batches(batches: Sequence[Batch], since: int) -> Batch:
    """One batch for a run of adjacent batches, oldest first, compacted to `since`. O(n log batches). Raises
    DiffOverflow."""
    runs = list(batches)
    if len(runs) == 1:
        runs.append(empty_like(runs[0]))
    while len(runs) > 1:
        paired = [Merge(older, newer, since).finish() for older, newer in zip(runs[::2], runs[1::2], strict=False)]
        if len(runs) % 2:
            paired.append(runs[-1])
        runs = paired
    return runs[0]


def empty_like(batch: Batch) -> Batch:
    """A batch of the same shape and interval, without updates."""
    rows = np.empty((0, 3 + batch.key_width + batch.val_width + batch.depth), np.int64)
    return Batch.of_rows(rows, batch.key_width, batch.depth, batch.lower, batch.upper, batch.since)
