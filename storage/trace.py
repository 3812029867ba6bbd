"""Trace: the layers of one arrangement on one worker, few and geometric in size.

A slice appends one layer a step; readers keep marks (how many layers they have seen) while the slice runs, so layers
merge only when it closes. Closing folds the slice's steps into one layer, compacts it to `since`, and merges
neighbours whose sizes are within a factor of two; every update is merged O(log n) times in its life.
Source: seed 000, "log-structured merge trie".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.errors import DiffOverflow
from storage.kernels import tries
from storage.kernels.cursors import select_keys
from storage.layer import Layer, keyed_columns
from storage.merge import Merge
from storage.updates import MIN_TIME, Ints, consolidate_rows

_INDEX = 1 << 10
"""Room for runs of keys in a new index of a slice's steps."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Histories of q keys. offsets: int64[q + 1]; entries: int64[n, v + 1 + depth + 1] `[val words | time | rounds |
    diff]`.

    Within a key entries are sorted by (val, rounds, time), each once, no diff zero.
    """

    offsets: Ints
    entries: Ints


class Trace:
    """The layers of one arrangement, oldest first. Layers are immutable, so `fork` is a cheap copy.

    `layers` are those of earlier slices. `steps` are the keyed rows that the running slice has sealed, a matrix a step:
    they are read where they lie and become a layer when the slice closes.
    """

    __slots__ = (
        "_heads",
        "_index",
        "_interval",
        "_links",
        "_sealed",
        "_table",
        "depth",
        "key_width",
        "layers",
        "merged",
        "name",
        "since",
        "steps",
        "val_width",
    )

    def __init__(self, name: str, key_width: int, val_width: int, depth: int, since: int = MIN_TIME) -> None:
        self.name, self.key_width, self.val_width, self.depth = name, key_width, val_width, depth
        self.layers: list[Layer] = []
        self.steps: list[Ints] = []
        self.since = since
        self.merged = 0
        self._interval = (MIN_TIME, MIN_TIME)
        self._table = np.zeros((8, tries.FIELDS), np.int64)
        self._sealed = 0
        self._clear_index(_INDEX)

    def fork(self) -> Trace:
        """An independent trace with the same layers. Not inside a slice."""
        copy = Trace(self.name, self.key_width, self.val_width, self.depth, self.since)
        copy.replace(self.layers)
        return copy

    def replace(self, layers: list[Layer]) -> None:
        """Hold exactly these layers, all of them of earlier slices."""
        self.layers = list(layers)
        if self.steps:
            self.steps = []
            self._sealed = 0
            if self._index[0]:
                self._clear_index(_INDEX)
        while len(self._table) < len(layers):
            self._grow()
        for place, layer in enumerate(layers):
            self._table[place] = layer.address

    def seal(self, rows: Ints, lower: int, upper: int) -> None:
        """Add what a step of the slice [lower, upper) changed: keyed rows, sorted and consolidated.

        They must not change any more. O(1).
        """
        if len(rows) == 0:
            return
        rows = np.ascontiguousarray(rows)
        self._interval = (self._interval[0] if self.steps else lower, upper)
        count = self.mark
        if count == len(self._table):
            self._grow()
        tries.describe_rows(rows, self.key_width, self.val_width, self._table, count)
        self.steps.append(rows)
        self._sealed += len(rows)

    def _clear_index(self, links: int) -> None:
        """An empty index of the steps with room for `links` runs of keys (a power of two)."""
        self._heads = np.zeros((2 * links, 3), np.int64)
        self._links = np.empty((links, 4), np.int64)
        self._index = np.zeros(2, np.int64)

    def _grow(self) -> None:
        self._table = np.concatenate((self._table, np.zeros_like(self._table)))

    @property
    def mark(self) -> int:
        """How many layers and steps there are now: what a reader remembers to tell later what it has seen."""
        return len(self.layers) + len(self.steps)

    @property
    def updates(self) -> int:
        """How many updates the layers hold."""
        return sum(layer.updates for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def select(self, keyed: Ints, *, fold: int, before: int | None = None) -> Selection:
        """The histories of many keys, one kernel call.

        keyed: int64[q, >= 1 + key_width], each row `[hash | key words …]`, distinct, sorted by hash. Layers of
        earlier slices read as time `fold`. `before`: only what was there at this mark. Raises DiffOverflow.
        """
        if self._sealed > len(self._links):
            self._clear_index(1 << self._sealed.bit_length())
        offsets, entries, status = select_keys(
            self._table, keyed, self.key_width, self.val_width, self.depth, len(self.layers),
            self.mark if before is None else before, fold, self._heads, self._links, self._index,
        )  # fmt: skip
        if status != 0:
            raise DiffOverflow(operation=f"adding in {self.name}")
        return Selection(offsets, entries)

    def close_slice(self, since: int) -> None:
        """Make a layer of this slice's steps, compact it to `since`, and merge neighbours of similar size."""
        self.since = max(self.since, since)
        layers = self.layers
        fresh = self._close_steps()
        if fresh is not None:
            layers.append(fresh)
        while len(layers) > 1 and layers[-2].updates < 2 * layers[-1].updates:
            newest = layers.pop()
            older = layers.pop()
            self.merged += newest.updates + older.updates
            layer = Merge(older, newest, self.since).finish()
            if layer.updates:
                layers.append(layer)
        self.replace(layers)

    def _close_steps(self) -> Layer | None:
        """The layer of this slice's steps, None when they come to nothing."""
        if not self.steps:
            return None
        rows = self.steps[0].copy() if len(self.steps) == 1 else np.concatenate(self.steps)
        times = rows[:, 1 + self.key_width + self.val_width]
        np.maximum(times, self.since, out=times)
        rows = consolidate_rows(rows, keyed_columns(self.key_width, self.val_width, self.depth))
        if len(rows) == 0:
            return None
        return Layer.of_rows(rows, self.key_width, self.depth, *self._interval, self.since)
