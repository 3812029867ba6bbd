"""Layer: the immutable merge-trie of a batch of updates, split into key and val.

keys → vals → (time, rounds, diff), by offsets. Keys are ordered by (hash, key), so a layer can be built by one sort,
probed by interpolation, cut into contiguous hash ranges for workers and re-cut when their number changes. The hash of
a one-word key is a bijection and stands for the key; wider keys are stored and compared in full, so a collision
changes no answer. Offsets that count 0, 1, 2 … and columns that are constant are elided: one time, all diffs 1 and
empty vals cost nothing. Source: seed 000, "log-structured merge trie", constraint 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from storage.errors import DiffOverflow
from storage.kernels import tries
from storage.kernels.hashing import key_rows
from storage.updates import Ints, Updates, consolidate_rows, sort_columns

_NONE = np.empty(0, np.int64)


def keyed_columns(key_width: int, val_width: int, depth: int) -> Ints:
    """The columns that order keyed rows `[hash | key | val | time | rounds | diff]`; a one-word key is its hash."""
    first = 1 if key_width > 1 else 1 + key_width
    rest = sort_columns(first, 1 + key_width + val_width, depth)
    return np.concatenate((np.zeros(1, np.int64), rest))


def _address(array: Ints) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _elide(column: Ints) -> Ints:
    """One row where all are alike, else the column."""
    if len(column) > 1 and bool((column[0] == column[-1]).all()) and bool((column == column[0]).all()):
        return np.ascontiguousarray(column[:1])
    return column


class Layer:
    """An immutable trie for the data times [lower, upper), folded to `since`.

    hashes[K]; keys[K, key_width] (no rows unless key_width > 1); key_offsets[K + 1] and val_offsets[V + 1] (empty:
    identity); vals[V, val_width]; times[n or 1]; rounds[n or 1, depth]; diffs[n or 1]. `ref` says where the layer is
    persisted, None while nowhere.
    """

    __slots__ = (
        "address", "depth", "diffs", "hashes", "key_offsets", "key_width", "keys", "lower", "ref", "rounds", "since",
        "times", "updates", "upper", "val_offsets", "val_width", "vals",
    )  # fmt: skip

    def __init__(
        self,
        key_width: int,
        val_width: int,
        depth: int,
        updates: int,
        lower: int,
        upper: int,
        since: int,
        arrays: Mapping[str, Ints],
    ) -> None:
        self.key_width, self.val_width, self.depth = key_width, val_width, depth
        self.updates, self.lower, self.upper, self.since = updates, lower, upper, since
        self.ref: Any = None
        self.hashes = arrays["hashes"]
        self.keys = arrays["keys"]
        self.key_offsets = arrays["key_offsets"]
        self.vals = arrays["vals"]
        self.val_offsets = arrays["val_offsets"]
        self.times = arrays["times"]
        self.rounds = arrays["rounds"]
        self.diffs = arrays["diffs"]
        row = np.zeros(tries.FIELDS, np.int64)
        row[tries.HASHES] = _address(self.hashes)
        row[tries.KEYS] = len(self.hashes)
        row[tries.KEY_WORDS] = _address(self.keys)
        row[tries.KEY_OFFSETS] = _address(self.key_offsets) if len(self.key_offsets) else 0
        row[tries.VALS] = _address(self.vals)
        row[tries.VAL_OFFSETS] = _address(self.val_offsets) if len(self.val_offsets) else 0
        row[tries.TIMES] = _address(self.times)
        row[tries.TIME_STRIDE] = 1 if len(self.times) > 1 else 0
        row[tries.ROUNDS] = _address(self.rounds)
        row[tries.ROUND_STRIDE] = depth if len(self.rounds) > 1 else 0
        row[tries.DIFFS] = _address(self.diffs)
        row[tries.DIFF_STRIDE] = 1 if len(self.diffs) > 1 else 0
        row[tries.UPDATES] = updates
        row[tries.VAL_COUNT] = self._val_count()
        self.address = row

    def _val_count(self) -> int:
        if len(self.val_offsets):
            return len(self.val_offsets) - 1
        return self.updates

    @staticmethod
    def of_rows(rows: Ints, key_width: int, depth: int, lower: int, upper: int, since: int) -> Layer:
        """The layer of keyed rows that are sorted and consolidated. O(n)."""
        val_width = rows.shape[1] - 3 - key_width - depth
        hashes, keys, key_offsets, vals, val_offsets, times, rounds, diffs = tries.pack(
            rows, key_width, val_width, depth
        )
        n = len(rows)
        arrays = {
            "hashes": hashes,
            "keys": keys if key_width > 1 else _NONE.reshape(0, key_width),
            "key_offsets": _NONE if len(vals) == len(hashes) else key_offsets,
            "vals": vals,
            "val_offsets": _NONE if len(vals) == n else val_offsets,
            "times": _elide(times),
            "rounds": _elide(rounds) if depth else rounds[:1],
            "diffs": _elide(diffs),
        }
        return Layer(key_width, val_width, depth, n, lower, upper, since, arrays)

    @staticmethod
    def of_keyed(rows: Ints, key_width: int, depth: int, lower: int, upper: int, since: int) -> Layer:
        """The layer of keyed rows in any order. O(n log n). Raises DiffOverflow."""
        val_width = rows.shape[1] - 3 - key_width - depth
        ordered = consolidate_rows(rows, keyed_columns(key_width, val_width, depth))
        return Layer.of_rows(ordered, key_width, depth, lower, upper, since)

    @staticmethod
    def build(updates: Updates, key_width: int, lower: int, upper: int, since: int) -> Layer:
        """The layer of updates whose first `key_width` words are the key. O(n log n). Raises DiffOverflow."""
        key = np.arange(key_width, dtype=np.int64)
        val = np.arange(key_width, updates.width, dtype=np.int64)
        rows = key_rows(np.ascontiguousarray(updates.data), key, val, updates.depth + 2)
        return Layer.of_keyed(rows, key_width, updates.depth, lower, upper, since)

    @staticmethod
    def open(meta: Mapping[str, Any], arrays: Mapping[str, Ints]) -> Layer:
        """The layer that `meta()` and `arrays()` describe; arrays may be views of a mapped file and are not copied."""
        return Layer(
            meta["key_width"],
            meta["val_width"],
            meta["depth"],
            meta["updates"],
            meta["lower"],
            meta["upper"],
            meta["since"],
            arrays,
        )

    def meta(self) -> dict[str, int]:
        """What `open` needs beside the arrays."""
        return {
            "key_width": self.key_width,
            "val_width": self.val_width,
            "depth": self.depth,
            "updates": self.updates,
            "lower": self.lower,
            "upper": self.upper,
            "since": self.since,
        }

    def arrays(self) -> dict[str, Ints]:
        """The columns by name, contiguous."""
        names = ("hashes", "keys", "key_offsets", "vals", "val_offsets", "times", "rounds", "diffs")
        return {name: np.ascontiguousarray(getattr(self, name)) for name in names}

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(array.nbytes for array in self.arrays().values())

    def keyed(self, fold: int | None = None, ceiling: int = 2**63 - 1) -> Ints:
        """Keyed rows in order, times raised to `fold` (duplicates may appear) and lowered to `ceiling`. O(n)."""
        least = -(2**63) if fold is None else fold
        rows: Ints = tries.flatten(self.address, self.key_width, self.val_width, self.depth, least, ceiling)
        return rows

    def to_updates(self) -> Updates:
        """The updates, rows as key words then val words, in trie order. O(n)."""
        return Updates(np.ascontiguousarray(self.keyed()[:, 1:]), self.key_width + self.val_width, self.depth)


def merge_layers(layers: Sequence[Layer], since: int) -> Layer:
    """One layer for a run of adjacent layers, oldest first, compacted to `since`. O(n log layers). Raises DiffOverflow.

    Compaction is `advance_by` for the frontier {(since, 0 … 0)}: data times before `since` become `since`, rounds stay.
    """
    first, last = layers[0], layers[-1]
    columns = keyed_columns(first.key_width, first.val_width, first.depth)
    runs = [layer.keyed(since) for layer in layers]
    if len(runs) == 1:
        runs.append(runs[0][:0])
    while len(runs) > 1:
        paired = []
        for i in range(0, len(runs) - 1, 2):
            rows, status = tries.merge_rows(runs[i], runs[i + 1], columns)
            if status != 0:
                raise DiffOverflow(operation="adding")
            paired.append(rows)
        if len(runs) % 2:
            paired.append(runs[-1])
        runs = paired
    lowest = max(since, max(layer.since for layer in layers))
    return Layer.of_rows(runs[0], first.key_width, first.depth, first.lower, last.upper, lowest)
