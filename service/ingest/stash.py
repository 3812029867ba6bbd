"""The stash: updates that came before their time and are stored durably until a later epoch's frontier covers them.

A batch is sorted by time and never changes. An epoch takes the updates of its interval out of every batch by two binary
searches; updates that earlier epochs took stay in the file until the batch is merged or used up.
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
class HeldUpdates:
    """A batch of n held updates, sorted by time. received_ms: int64[n], the broker's time of their messages; origin:
    int64[n, 2], their partition and offset. ref: where the batch is stored, None while it is not stored. texts: for
    stored batches whose rows may have long texts, the contents of these; None before the batch is stored."""

    updates: Updates
    received_ms: Ints
    origin: Ints
    ref: Any = None
    texts: Texts | None = None

    @staticmethod
    def sort(updates: Updates, received_ms: Ints, origin: Ints) -> "HeldUpdates":
        """Make a batch of updates in any order. O(n log n)."""
        order = np.argsort(updates.time, kind="stable")
        return HeldUpdates(updates.take(order), received_ms[order], origin[order])

    @staticmethod
    def open(width: int, arrays: Mapping[str, Any], ref: Any) -> "HeldUpdates":
        """A stored batch from its arrays, which may be memory-mapped."""
        updates = Updates(arrays["data"], width, 0)
        return HeldUpdates(updates, arrays["received_ms"], arrays["origin"], ref, Texts.of_arrays(arrays))

    def arrays(self) -> dict[str, Ints]:
        """The arrays to store; the inverse of `open`."""
        arrays = {"data": self.updates.data, "received_ms": self.received_ms, "origin": self.origin}
        return arrays if self.texts is None else arrays | self.texts.arrays()

    @cached_property
    def time(self) -> Ints:
        """int64[n], ascending and contiguous, for searches."""
        return np.ascontiguousarray(self.updates.time)

    def __len__(self) -> int:
        return len(self.updates)

    def between(self, lower: int, upper: int) -> slice:
        """The slice of the updates with lower <= time < upper."""
        return slice(int(np.searchsorted(self.time, lower)), int(np.searchsorted(self.time, upper)))

    def drop(self, unwanted: npt.NDArray[np.bool_]) -> "HeldUpdates":
        """The batch without some of its updates, not stored yet; the batch itself if no update is unwanted."""
        keep = ~unwanted
        if keep.all():
            return self
        return HeldUpdates(self.updates.take(keep), self.received_ms[keep], self.origin[keep])

    def count_from(self, lower: int) -> int:
        """The number of updates at or after `lower`."""
        return len(self) - int(np.searchsorted(self.time, lower))


def retain(batches: Sequence[HeldUpdates], fresh: HeldUpdates | None, upper: int) -> list[HeldUpdates]:
    """The batches to keep once everything before `upper` is released: used-up batches are dropped, and `fresh` is
    appended.

    Batches are merged until each is more than twice as large as the next, so there are O(log n) of them and each update
    is rewritten O(log n) times. A batch that stays unchanged is the same object, with its ref; a merged one has no ref
    yet.
    """
    kept: list[HeldUpdates] = []
    for batch in (*batches, fresh):
        if batch is None or not batch.count_from(upper):
            continue
        while kept and kept[-1].count_from(upper) <= 2 * batch.count_from(upper):
            batch = _merge(kept.pop(), batch, upper)
        kept.append(batch)
    return kept


def _merge(older: HeldUpdates, newer: HeldUpdates, upper: int) -> HeldUpdates:
    parts = [(batch, slice(len(batch) - batch.count_from(upper), None)) for batch in (older, newer)]
    updates = Updates.concat([batch.updates.take(left) for batch, left in parts], older.updates.width)
    received = np.concatenate([batch.received_ms[left] for batch, left in parts])
    return HeldUpdates.sort(updates, received, np.concatenate([batch.origin[left] for batch, left in parts]))
