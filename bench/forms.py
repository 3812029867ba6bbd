"""Three other representations of a batch's updates, to compare with ours: their size, and that they lose nothing.

All keep what our batches elide elided (offsets that count 0, 1, 2 …, columns that are constant) and are for one-word
keys and vals outside loops, diffs all 1, as `bench.storage` has them. Source: "High resolution, high
throughput", on high- and low-resolution traces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Ints


def plain(batch: Batch) -> bool:
    """Whether the forms here can hold it."""
    return (batch.key_width, batch.val_width, batch.depth) == (1, 1, 0) and bool((batch.diffs == 1).all())


def distinct(batch: Batch) -> tuple[int, int, int]:
    """How many keys, rows and updates it has."""
    return len(batch.hashes), len(batch.vals), batch.updates


def low_resolution_bytes(batch: Batch) -> int:
    """Bytes of any batch if its times were places in a table (`LowResolution`)."""
    times = len(np.unique(batch.times))
    if times <= 1:
        return batch.nbytes
    return batch.nbytes - batch.times.nbytes + 8 * times + place_bytes(times) * batch.updates


def place_bytes(times: int) -> int:
    """How many bytes a place in a table of times needs."""
    return next(size for size in (1, 2, 4, 8) if times <= 256**size)


def rows_of(batch: Batch) -> Ints:
    """Its updates as rows [hash, val, time], in the batch's order."""
    return np.ascontiguousarray(batch.keyed()[:, [0, 2, 3]])


def bytes_of(*columns: np.ndarray) -> int:
    """Bytes of columns."""
    return sum(column.nbytes for column in columns)


def offsets_of(starts: np.ndarray) -> Ints:
    """Offsets of groups, true where one begins; none if each has one member."""
    if bool(starts.all()):
        return np.empty(0, np.int64)
    return np.append(np.flatnonzero(starts), len(starts)).astype(np.int64)


def sizes_of(offsets: Ints, groups: int) -> Ints:
    """The number of members of each group."""
    return np.diff(offsets) if len(offsets) else np.ones(groups, np.int64)


def starts_of(rows: Ints) -> np.ndarray:
    """True where a row differs from the one before it."""
    return np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1)))


@dataclass
class LowResolution:
    """Key first, and for each update the position of its time in a table, in as few bytes as the table needs: no bytes
    once times are compacted to one."""

    hashes: Ints
    key_offsets: Ints
    vals: Ints
    val_offsets: Ints
    times: Ints
    places: np.ndarray

    @staticmethod
    def of(batch: Batch) -> LowResolution:
        """The batch's updates. O(n log times)."""
        rows = rows_of(batch)
        times, places = np.unique(rows[:, 2], return_inverse=True)
        narrow = np.dtype(f"u{place_bytes(len(times))}")
        kept = places.astype(narrow) if len(times) > 1 else np.empty(0, narrow)
        return LowResolution(batch.hashes, batch.key_offsets, batch.vals[:, 0], batch.val_offsets, times, kept)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return bytes_of(self.hashes, self.key_offsets, self.vals, self.val_offsets, self.times, self.places)

    def rows(self) -> Ints:
        """As `rows_of` the batch that it was made of."""
        vals = np.repeat(np.arange(len(self.vals)), sizes_of(self.val_offsets, len(self.vals)))
        keys = np.repeat(np.arange(len(self.hashes)), sizes_of(self.key_offsets, len(self.hashes)))
        times = self.times[self.places] if len(self.places) else np.full(len(vals), self.times[0])
        return np.column_stack((self.hashes[keys[vals]], self.vals[vals], times))


@dataclass
class TimeFirst:
    """Times, and below each the trie of what changed then."""

    times: Ints
    time_offsets: Ints
    hashes: Ints
    key_offsets: Ints
    vals: Ints

    @staticmethod
    def of(batch: Batch) -> TimeFirst:
        """The batch's updates. O(n log n)."""
        rows = rows_of(batch)
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0], rows[:, 2]))]
        new_key = starts_of(rows[:, [2, 0]])
        keys = rows[new_key]
        new_time = starts_of(keys[:, 2:])
        return TimeFirst(
            keys[new_time, 2].copy(), offsets_of(new_time), keys[:, 0].copy(), offsets_of(new_key), rows[:, 1].copy()
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return bytes_of(self.times, self.time_offsets, self.hashes, self.key_offsets, self.vals)

    def rows(self) -> Ints:
        """As `rows_of` the batch that it was made of."""
        keys = np.repeat(np.arange(len(self.hashes)), sizes_of(self.key_offsets, len(self.hashes)))
        times = np.repeat(np.arange(len(self.times)), sizes_of(self.time_offsets, len(self.times)))
        found = np.column_stack((self.hashes[keys], self.vals, self.times[times[keys]]))
        ordered: Ints = found[np.lexsort((found[:, 2], found[:, 1], found[:, 0]))]
        return ordered


@dataclass
class Mixed:
    """Updates at the commonest time without a time, key first; the others key first with theirs."""

    common: Batch
    others: Batch

    @staticmethod
    def of(batch: Batch) -> Mixed:
        """The batch's updates. O(n log n)."""
        keyed, at = batch.keyed(), 1 + batch.key_width + batch.val_width
        times, counts = np.unique(keyed[:, at], return_counts=True)
        usual = keyed[:, at] == times[np.argmax(counts)]
        shape = batch.key_width, batch.depth, batch.lower, batch.upper, batch.since
        return Mixed(*(Batch.of_rows(np.ascontiguousarray(keyed[part]), *shape) for part in (usual, ~usual)))

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return self.common.nbytes + self.others.nbytes

    def rows(self) -> Ints:
        """As `rows_of` the batch that it was made of."""
        found = np.concatenate((rows_of(self.common), rows_of(self.others)))
        ordered: Ints = found[np.lexsort((found[:, 2], found[:, 1], found[:, 0]))]
        return ordered
