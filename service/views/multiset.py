"""The rows of a view at one data time: an immutable sorted multiset that absorbs changes cheaply.

It keeps a few sorted runs of geometrically growing size, like a log-structured merge tree without times. Applying an
epoch costs in proportion to its changes (amortised, times the logarithm of the view's size). A point look-up is one
binary search per run, and a page of rows in key order is a slice. Older sets stay valid, because their runs are never
modified.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.storage.errors import DiffOverflow
from vernier.storage.updates import Ints, consolidate_rows

_SIGN = np.int64(-(2**63))
_SMALL_RUN = 4096


def order_keys(rows: Ints) -> npt.NDArray[Any]:
    """One sort key per row that orders like the row's words: the word itself, or big-endian bytes with the sign bit
    flipped.

    numpy compares fixed-length byte strings as unsigned bytes, so searching rows of any width is one C call.
    """
    width = rows.shape[1]
    if width == 1:
        return np.ascontiguousarray(rows[:, 0])
    turned = np.ascontiguousarray((rows ^ _SIGN).astype(">i8"))
    return turned.view(f"S{8 * width}")[:, 0]


@dataclass(frozen=True, slots=True)
class Run:
    """Distinct rows in order, with their counts. rows: int64[n, width]; keys: order_keys(rows); counts: int64[n], never
    0.
    """

    rows: Ints
    keys: npt.NDArray[Any]
    counts: Ints

    @staticmethod
    def of(data: Ints) -> Run:
        """Build a run from a consolidated matrix `[row words | count]`."""
        rows = np.ascontiguousarray(data[:, :-1])
        return Run(rows, order_keys(rows), np.ascontiguousarray(data[:, -1]))

    def __len__(self) -> int:
        return len(self.counts)

    def count_of(self, keys: npt.NDArray[Any]) -> Ints:
        """The count for each of the given order keys, 0 for a key that is absent. O(m log n)."""
        if not len(self):
            return np.zeros(len(keys), np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(self.keys[place] == keys, self.counts[place], 0)

    def merged(self, newer: Run) -> Run:
        """Merge both runs: add counts and drop zeros. O(n + m log n). Raises DiffOverflow."""
        if not len(self):
            return newer
        place = np.searchsorted(self.keys, newer.keys)
        inside = np.minimum(place, len(self) - 1)
        known = self.keys[inside] == newer.keys
        counts = self.counts.copy()
        counts[inside[known]] = add_counts(counts[inside[known]], newer.counts[known])
        fresh = ~known
        rows, keys = self.rows, self.keys
        if fresh.any():
            where = place[fresh]
            rows = np.insert(rows, where, newer.rows[fresh], axis=0)
            keys = np.insert(keys, where, newer.keys[fresh])
            counts = np.insert(counts, where, newer.counts[fresh])
        kept = counts != 0
        return Run(rows, keys, counts) if kept.all() else Run(rows[kept], keys[kept], counts[kept])


def add_counts(one: Ints, two: Ints) -> Ints:
    """Add element by element. Raises DiffOverflow when a sum leaves int64."""
    total = one + two
    if bool((((one ^ total) & (two ^ total)) < 0).any()):
        raise DiffOverflow(operation="addition")
    return total


class Multiset:
    """Rows with signed, non-zero multiplicities, ordered by their words. Readers see it as immutable."""

    __slots__ = ("__weakref__", "_flat", "runs", "size", "width")

    def __init__(self, width: int, runs: tuple[Run, ...], size: int) -> None:
        self.width, self.runs, self.size = width, runs, size
        self._flat: Run | None = runs[0] if len(runs) == 1 else None

    @staticmethod
    def of(width: int, data: Ints) -> Multiset:
        """Build from a matrix `[row words | diff]` in any order. O(n log n). Raises DiffOverflow."""
        run = Run.of(consolidate_rows(np.ascontiguousarray(data), np.arange(width, dtype=np.int64)))
        return Multiset(width, (run,), len(run))

    def __len__(self) -> int:
        """The number of distinct rows."""
        return self.size

    @property
    def nbytes(self) -> int:
        """The size of all runs in bytes."""
        return sum(run.rows.nbytes + run.keys.nbytes + run.counts.nbytes for run in self.runs)

    def apply(self, data: Ints) -> Multiset:
        """Return the set after the changes `[row words | diff]`, given in any order. Raises DiffOverflow."""
        return self.plus(Multiset.of(self.width, data))

    def plus(self, other: Multiset) -> Multiset:
        """The sum of both sets. O(rows of the other one), amortised, times the logarithm of this one's size. Raises
        DiffOverflow."""
        changes = other.flat()
        if not len(changes):
            return self
        base = (self._flat,) if self._flat is not None else self.runs
        before = np.zeros(len(changes), np.int64)
        for run in base:
            before = add_counts(before, run.count_of(changes.keys))
        after = add_counts(before, changes.counts)
        size = self.size + int(np.count_nonzero(after)) - int(np.count_nonzero(before))
        runs = [*base, changes]
        while len(runs) > 1 and len(runs[-2]) < max(2 * len(runs[-1]), _SMALL_RUN):
            newest = runs.pop()
            runs[-1] = runs[-1].merged(newest)
        return Multiset(self.width, tuple(runs), size)

    def flat(self) -> Run:
        """All rows as one run. The result is cached, so the pages of one answer merge the runs only once."""
        if self._flat is None:
            run = self.runs[0]
            for newer in self.runs[1:]:
                run = run.merged(newer)
            self._flat = run
        return self._flat

    def find(self, prefix: Sequence[int]) -> tuple[Ints, Ints]:
        """The rows that begin with these words, in order, and their counts. O(log n) per run, plus the rows found."""
        found = []
        for run in (self._flat,) if self._flat is not None else self.runs:
            low, high = self._between(run, prefix)
            if low < high:
                found.append((run.rows[low:high], run.counts[low:high]))
        if len(found) == 1:
            return found[0]
        if not found:
            return np.empty((0, self.width), np.int64), np.empty(0, np.int64)
        data = np.concatenate([np.column_stack(part) for part in found])
        run = Run.of(consolidate_rows(data, np.arange(self.width, dtype=np.int64)))
        return run.rows, run.counts

    def _between(self, run: Run, prefix: Sequence[int]) -> tuple[int, int]:
        if self.width == 1 and prefix:
            word = np.int64(prefix[0])
            return int(run.keys.searchsorted(word)), int(run.keys.searchsorted(word, "right"))
        if not prefix:
            return 0, len(run)
        head = struct.pack(f">{len(prefix)}Q", *(word + 2**63 for word in prefix))
        rest = 8 * (self.width - len(prefix))
        low = run.keys.searchsorted(np.bytes_(head + b"\x00" * rest))
        return int(low), int(run.keys.searchsorted(np.bytes_(head + b"\xff" * rest), "right"))
