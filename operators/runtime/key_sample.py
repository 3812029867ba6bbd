"""Which key most of the rows have that a worker sends to their owners: a sample, for people; nothing decides by it.

Every 64th row counts, and the newest 1,024 of these are kept, so a sample is of the newest 65,536 rows, whatever the
size of the steps. A step of fewer than 64 rows mostly costs an addition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vernier.storage.updates import Ints

EVERY = 64
KEPT = 1_024
LEAST = 128
"""Samples without which nothing is said."""
_AGAIN = KEPT // 4
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class HotKey:
    """The most frequent key of a sample. words: int64[key words]; share: its part of the rows, 0 to 1; samples: how
    many rows were looked at."""

    words: Ints
    share: float
    samples: int


class KeySample:
    """A sample of the rows that go to one arrangement from one worker. Forks of a state share it."""

    __slots__ = ("_counted", "_found", "_kept", "_seen", "_taken")

    def __init__(self, width: int) -> None:
        self._kept = np.empty((KEPT, width), np.int64)
        self._seen = self._taken = self._counted = 0
        self._found: HotKey | None = None

    def see(self, data: Ints, key: Ints) -> None:
        """Count rows, whose key is in the columns `key`."""
        first = -self._seen % EVERY
        self._seen += len(data)
        if first >= len(data):
            return
        rows = data[first::EVERY][-KEPT:, key]
        self._kept[np.arange(self._taken, self._taken + len(rows)) % KEPT] = rows
        self._taken += len(rows)

    def most(self) -> HotKey | None:
        """The most frequent key; None while the sample is too small. It is counted again after some new rows."""
        if self._taken < LEAST:
            return None
        if self._found is None or self._taken >= self._counted + _AGAIN:
            self._counted = self._taken
            kept = self._kept[: min(self._taken, KEPT)]
            mixed = np.zeros(len(kept), np.uint64)
            for column in kept.T:
                mixed = (mixed ^ column.view(np.uint64)) * np.uint64(_MIX)
            _, firsts, counts = np.unique(mixed, return_index=True, return_counts=True)
            best = int(counts.argmax())
            self._found = HotKey(kept[firsts[best]].copy(), int(counts[best]) / len(kept), len(kept))
        return self._found
