"""Held updates: what came before its time, kept durably until a later epoch's frontier covers it.

A batch is sorted by time and never changes: an epoch takes the updates of its interval out of every batch by two
searches, and what earlier epochs took stays in the file until the batch is merged or used up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.storage.strings.string_heap import Texts
from vernier.storage.updates import Updates

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Held:
    """n updates sorted by time. received_ms: int64[n], the broker's time of their messages; origin: int64[n, 2],
    their partition and offset. ref: where the batch is stored, None while it is not. texts: the contents of the long
    texts in a stored batch of rows that may have some, None before it is stored."""

    updates: Updates
    received_ms: Ints
    origin: Ints
    ref: Any = None
    texts: Texts | None = None

    @staticmethod
    def sort(updates: Updates, received_ms: Ints, origin: Ints) -> "Held":
        """A batch of updates in any order. O(n log n)."""
        order = np.argsort(updates.time, kind="stable")
        return Held(updates.take(order), received_ms[order], origin[order])

    @staticmethod
    def open(width: int, arrays: Mapping[str, Any], ref: Any) -> "Held":
        """A stored batch from its arrays, which may be memory-mapped."""
        updates = Updates(arrays["data"], width, 0)
        return Held(updates, arrays["received_ms"], arrays["origin"], ref, Texts.of_arrays(arrays))

    def arrays(self) -> dict[str, Ints]:
        """The arrays to store: `open` takes them back."""
        arrays = {"data": self.updates.data, "received_ms": self.received_ms, "origin": self.origin}
        return arrays if self.texts is None else arrays | self.texts.arrays()

    @cached_property
    def time(self) -> Ints:
        """int64[n], ascending, contiguous, for searches."""
        return np.ascontiguousarray(self.updates.time)

    def __len__(self) -> int:
        return len(self.updates)

    def between(self, lower: int, upper: int) -> slice:
        """Where the updates with lower <= time < upper are."""
        return slice(int(np.searchsorted(self.time, lower)), int(np.searchsorted(self.time, upper)))

    def drop(self, unwanted: npt.NDArray[np.bool_]) -> "Held":
        """The batch without some of its updates, not stored yet; the batch itself when nothing is unwanted."""
        keep = ~unwanted
        if keep.all():
            return self
        return Held(self.updates.take(keep), self.received_ms[keep], self.origin[keep])

    def since(self, lower: int) -> int:
        """How many updates are at or after `lower`."""
        return len(self) - int(np.searchsorted(self.time, lower))


def retain(batches: Sequence[Held], fresh: Held | None, upper: int) -> list[Held]:
    """The batches in force once everything before `upper` is released: used-up ones leave, and `fresh` comes last.

    Batches are merged until each is more than twice the next: there are O(log n) of them and each update is rewritten
    O(log n) times. A batch that waits on is the same object, with its ref; a merged one has none yet.
    """
    kept: list[Held] = []
    for batch in (*batches, fresh):
        if batch is None or not batch.since(upper):
            continue
        while kept and kept[-1].since(upper) <= 2 * batch.since(upper):
            batch = _merge(kept.pop(), batch, upper)
        kept.append(batch)
    return kept


def _merge(older: Held, newer: Held, upper: int) -> Held:
    parts = [(batch, slice(len(batch) - batch.since(upper), None)) for batch in (older, newer)]
    updates = Updates.concat([batch.updates.take(left) for batch, left in parts], older.updates.width)
    received = np.concatenate([batch.received_ms[left] for batch, left in parts])
    return Held.sort(updates, received, np.concatenate([batch.origin[left] for batch, left in parts]))
