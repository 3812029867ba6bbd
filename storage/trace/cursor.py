"""Cursor: reads a run of batches as one, by key and by range of hashes, while the trace goes on merging.

Batches are immutable, so a cursor is a list of them and never changes. Times are as stored: those before the trace's
`since` may have been advanced to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels import tries
from vernier.storage.kernels.cursors import seek
from vernier.storage.trace.batch import Batch, keyed_columns
from vernier.storage.trace.history_cache import Selection, select_once
from vernier.storage.updates import Ints, consolidate_rows


class Cursor:
    """Reads `batches`, batches that share widths and depth."""

    def __init__(self, batches: Sequence[Batch], key_width: int, val_width: int, depth: int) -> None:
        self.batches = tuple(batches)
        self.key_width, self.val_width, self.depth = key_width, val_width, depth
        self._table = np.array([batch.address for batch in self.batches], np.int64).reshape(-1, tries.FIELDS)

    def look_up(self, keyed: Ints) -> Selection:
        """The histories of many keys at once. keyed: `[hash | key words …]`, distinct, sorted by hash. Raises
        DiffOverflow.

        One kernel call. For few keys of many it interpolates, in O(log log n) steps per key and batch; for many keys it
        makes one pass.
        """
        found, status = select_once(self._table, keyed, self.key_width, self.val_width, self.depth)
        if status != 0:
            raise DiffOverflow(operation="addition")
        return found

    def seek(self, hashed: int) -> Ints:
        """The position, in each batch, of the first key whose hash is at least `hashed` (the number of keys if none
        is)."""
        places = [seek(batch.address[tries.HASHES], 1, 0, len(batch.hashes), hashed) for batch in self.batches]
        return np.array(places, np.int64)

    def range(self, lower: int | None = None, upper: int | None = None) -> Ints:
        """All keyed rows whose hash is in [lower, upper) (None: no bound), sorted and consolidated. Raises
        DiffOverflow.

        O(log log n) for each batch and O(m log m) for m rows.
        """
        first = self.seek(lower) if lower is not None else np.zeros(len(self.batches), np.int64)
        stop = self.seek(upper) if upper is not None else self._table[:, tries.KEYS]
        parts = [
            batch.keyed(keys=(int(one), int(two)))
            for batch, one, two in zip(self.batches, first, stop, strict=True)
            if one < two
        ]
        if not parts:
            return np.empty((0, 3 + self.key_width + self.val_width + self.depth), np.int64)
        if len(parts) == 1:
            return parts[0]
        return consolidate_rows(np.concatenate(parts), keyed_columns(self.key_width, self.val_width, self.depth))
