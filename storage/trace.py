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
from storage.kernels.cursors import find_keys, gather
from storage.layer import Layer, merge_layers
from storage.updates import MIN_TIME, Ints


@dataclass(frozen=True, slots=True)
class Selection:
    """Histories of q keys. offsets: int64[q + 1]; entries: int64[n, v + 1 + depth + 1] `[val words | time | rounds |
    diff]`.

    Within a key entries are sorted by (val, rounds, time), each once, no diff zero.
    """

    offsets: Ints
    entries: Ints


class Trace:
    """The layers of one arrangement, oldest first. Layers are immutable, so `fork` is a cheap copy."""

    __slots__ = ("_settled", "_table", "depth", "key_width", "layers", "merged", "name", "since", "val_width")

    def __init__(self, name: str, key_width: int, val_width: int, depth: int, since: int = MIN_TIME) -> None:
        self.name, self.key_width, self.val_width, self.depth = name, key_width, val_width, depth
        self.layers: list[Layer] = []
        self.since = since
        self.merged = 0
        self._settled = 0
        self._table = np.empty((8, tries.FIELDS), np.int64)

    def fork(self) -> Trace:
        """An independent trace with the same layers."""
        copy = Trace(self.name, self.key_width, self.val_width, self.depth, self.since)
        copy.replace(self.layers)
        return copy

    def replace(self, layers: list[Layer]) -> None:
        """Hold exactly these layers, all of them settled."""
        self.layers = []
        for layer in layers:
            self.append(layer)
        self._settled = len(self.layers)

    def append(self, layer: Layer) -> None:
        """Add the newest layer."""
        count = len(self.layers)
        if count == len(self._table):
            self._table = np.concatenate((self._table, np.empty_like(self._table)))
        self._table[count] = layer.address
        self.layers.append(layer)

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
        earlier slices read as time `fold`. `before`: only the first so many layers. Raises DiffOverflow.
        """
        count = len(self.layers) if before is None else before
        table = self._table[:count]
        found = find_keys(table, keyed, self.key_width)
        offsets, entries, status = gather(table, found, self.val_width, self.depth, self._settled, fold)
        if status != 0:
            raise DiffOverflow(operation=f"adding in {self.name}")
        return Selection(offsets, entries)

    def close_slice(self, since: int) -> None:
        """Fold this slice's layers into one, compact to `since`, and merge neighbours of similar size."""
        self.since = max(self.since, since)
        fresh = self.layers[self._settled :]
        layers = self.layers[: self._settled]
        if fresh:
            layer = merge_layers(fresh, self.since)
            if layer.updates:
                layers.append(layer)
        while len(layers) > 1 and layers[-2].updates < 2 * layers[-1].updates:
            newest = layers.pop()
            older = layers.pop()
            self.merged += newest.updates + older.updates
            layer = merge_layers((older, newest), self.since)
            if layer.updates:
                layers.append(layer)
        self.replace(layers)
