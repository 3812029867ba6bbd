"""Layer: the immutable merge-trie of a batch of updates, split into key and val.

keys → vals → (time, rounds, diff), by offsets. Keys are ordered by (hash, key), so a layer can be built by one sort,
probed by interpolation, cut into contiguous hash ranges for workers and re-cut when their number changes. The hash of
a one-word key is a bijection and stands for the key; wider keys are stored and compared in full, so a collision
changes no answer. Offsets that count 0, 1, 2 … and columns that are constant are elided: one time, all diffs 1 and
empty vals cost nothing. Source: seed 000, "log-structured merge trie", constraint 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels import tries
from vernier.storage.kernels.keying import consolidate_keyed
from vernier.storage.kernels.loading import MOST, load_keyed, unmix_words
from vernier.storage.strings.string_heap import Heap, Texts, unite
from vernier.storage.updates import Ints, Updates, sort_columns

COLUMNS = ("hashes", "keys", "key_offsets", "vals", "val_offsets", "times", "rounds", "diffs")
"""The names of a layer's columns, in the order in which kernels give them."""
_COPIED = 1 << 7
"""Rows below which copying them is cheaper than to find out whether they must be."""


def keyed_columns(key_width: int, val_width: int, depth: int) -> Ints:
    """The columns that order keyed rows `[hash | key | val | time | rounds | diff]`; a one-word key is its hash."""
    first = 1 if key_width > 1 else 1 + key_width
    rest = sort_columns(first, 1 + key_width + val_width, depth)
    return np.concatenate((np.zeros(1, np.int64), rest))


def key_updates(data: Ints, key: Ints, val: Ints, depth: int) -> Ints:
    """Updates `[row | time | rounds | diff]` as keyed rows by these words of their rows, sorted and consolidated. O(n
    log n). Raises DiffOverflow."""
    whole, first = _whole(data)
    if first:
        key, val = key + first, val + first
    rows, status = consolidate_keyed(whole, key, val, depth + 2)
    if status != 0:
        raise DiffOverflow(operation="adding")
    keyed: Ints = rows
    return keyed


def key_layer(data: Ints, key: Ints, val: Ints, depth: int, lower: int, upper: int, since: int) -> Layer:
    """The same as a layer, without the matrix of keyed rows in between; key: one word or more. O(n log n), beside the
    layer four bytes an update. Raises DiffOverflow."""
    whole, first = _whole(data)
    shape = len(key), len(val), depth
    if len(whole) >= MOST:
        return Layer.of_rows(key_updates(data, key, val, depth), len(key), depth, lower, upper, since)
    columns, updates, status = load_keyed(whole, key + first, val + first, depth + 2, keyed_columns(*shape))
    if status != 0:
        raise DiffOverflow(operation="adding")
    return Layer.of_columns(columns, shape, updates, lower, upper, since)


def _whole(data: Ints) -> tuple[Ints, int]:
    """A contiguous matrix that has `data` as its last columns, and the number of the first of them; a copy of `data`
    where there is none that is known. Operators give the rest of keyed rows, all columns but the hash."""
    if len(data) < _COPIED or data.flags.c_contiguous:
        return np.ascontiguousarray(data), 0
    whole = data.base
    if not isinstance(whole, np.ndarray) or whole.dtype != data.dtype or not whole.flags.c_contiguous:
        return np.ascontiguousarray(data), 0
    if whole.strides != data.strides or len(whole) != len(data):
        return np.ascontiguousarray(data), 0
    first = whole.shape[1] - data.shape[1]
    if _address(data) != _address(whole) + 8 * first:
        return np.ascontiguousarray(data), 0
    return whole, first


def _address(array: Ints) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def keyed_rows(updates: Updates, key_width: int) -> Ints:
    """The updates as keyed rows, by their first `key_width` words, sorted and consolidated. O(n log n). Raises
    DiffOverflow."""
    key = np.arange(key_width, dtype=np.int64)
    return key_updates(updates.data, key, np.arange(key_width, updates.width, dtype=np.int64), updates.depth)


def _taken_apart(together: Ints, address: Ints, key_width: int, val_width: int, depth: int) -> dict[str, Ints]:
    """The columns that kernels.tries.pack has put together, by name."""
    row = address.tolist()
    keys, vals, n = row[tries.KEYS], row[tries.VAL_COUNT], row[tries.UPDATES]
    alone = min(n, 1)
    shapes: list[tuple[int, ...]] = [
        (keys,),
        (keys if key_width > 1 else 0, key_width),
        (keys + 1 if row[tries.KEY_OFFSETS] else 0,),
        (vals, val_width),
        (vals + 1 if row[tries.VAL_OFFSETS] else 0,),
        (n if row[tries.TIME_STRIDE] else alone,),
        (n if row[tries.ROUND_STRIDE] else alone, depth),
        (n if row[tries.DIFF_STRIDE] else alone,),
    ]
    columns, at = {}, 0
    for name, shape in zip(COLUMNS, shapes, strict=True):
        end = at + math.prod(shape)
        columns[name] = together[at:end].reshape(shape)
        at = end
    return columns


class Layer:
    """An immutable trie for the data times [lower, upper), folded to `since`.

    hashes[K]; keys[K, key_width] (no rows unless key_width > 1); key_offsets[K + 1] and val_offsets[V + 1] (empty:
    identity); vals[V, val_width]; times[n or 1]; rounds[n or 1, depth]; diffs[n or 1]. `ref` says where the layer is
    persisted, None while nowhere; `parts` are the layers that stand for it on disk until then, if it is merged and
    large. `texts` holds the contents of the long texts in its rows; None where rows have no
    texts, or nobody has settled the layer yet: then `origins` are the layers that a merged one has them from. `check`
    compares the checksums of a layer that was opened without; `verify` calls it once.
    """

    __slots__ = (
        "_together", "address", "check", "depth", "diffs", "hashes", "key_offsets", "key_width", "keys", "lower",
        "origins", "parts", "ref", "rounds", "since", "texts", "times", "updates", "upper", "val_offsets", "val_width",
        "vals",
    )  # fmt: skip
    hashes: Ints
    keys: Ints
    key_offsets: Ints
    vals: Ints
    val_offsets: Ints
    times: Ints
    rounds: Ints
    diffs: Ints

    def __init__(
        self,
        key_width: int,
        val_width: int,
        depth: int,
        updates: int,
        lower: int,
        upper: int,
        since: int,
        columns: Mapping[str, Ints] | Ints,
        address: Ints | None = None,
    ) -> None:
        """columns: by name; or, with their addresses, as kernels.tries.pack gives them: then they are taken apart when
        somebody asks for one, which nobody does of most small layers."""
        self.key_width, self.val_width, self.depth = key_width, val_width, depth
        self.updates, self.lower, self.upper, self.since = updates, lower, upper, since
        self.ref: Any = None
        self.parts: tuple[Layer, ...] = ()
        self.check: Callable[[], None] | None = None
        self.texts: Texts | None = None
        self.origins: tuple[Layer, ...] = ()
        self._together: Ints | None = None
        if isinstance(columns, np.ndarray):
            self._together = columns
        else:
            self.hold(columns)
            self.texts = Texts.of_arrays(columns)
        if address is None:
            address = tries.describe(
                self.hashes, self.keys, self.key_offsets, self.vals, self.val_offsets, self.times, self.rounds,
                self.diffs, updates,
            )  # fmt: skip
        self.address: Ints = address

    def hold(self, columns: Mapping[str, Ints]) -> None:
        """Have its columns there. Whoever has copied the layer's addresses has to take them anew."""
        for name in COLUMNS:
            setattr(self, name, columns[name])
        self._together = None

    @property
    def packed(self) -> bool:
        """Whether its columns were made in one array, in memory."""
        return self._together is not None

    def __getattr__(self, name: str) -> Ints:
        """A column, when one is asked for first."""
        if name not in COLUMNS or self._together is None:
            raise AttributeError(name)
        columns = _taken_apart(self._together, self.address, self.key_width, self.val_width, self.depth)
        for each, column in columns.items():
            setattr(self, each, column)
        return columns[name]

    @staticmethod
    def of_rows(rows: Ints, key_width: int, depth: int, lower: int, upper: int, since: int) -> Layer:
        """The layer of keyed rows that are sorted and consolidated. O(n)."""
        val_width = rows.shape[1] - 3 - key_width - depth
        columns, address = tries.pack(rows, key_width, val_width, depth)
        return Layer(key_width, val_width, depth, len(rows), lower, upper, since, columns, address)

    @staticmethod
    def of_columns(
        columns: Sequence[Ints], shape: tuple[int, int, int], updates: int, lower: int, upper: int, since: int
    ) -> Layer:
        """The layer of columns and addresses as kernels.growing.finish_trie gives them. shape: words of a key, of a
        val, depth."""
        arrays = dict(zip(COLUMNS, columns[:-1], strict=True))
        return Layer(*shape, updates, lower, upper, since, arrays, columns[-1])

    @staticmethod
    def build(updates: Updates, key_width: int, lower: int, upper: int, since: int) -> Layer:
        """The layer of updates whose first `key_width` words are the key. O(n log n). Raises DiffOverflow."""
        return Layer.of_rows(keyed_rows(updates, key_width), key_width, updates.depth, lower, upper, since)

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

    def verify(self) -> None:
        """Before reading it: have the checksums compared of a layer that was opened without. O(bytes) once, else O(1).
        Raises Damaged."""
        if self.check is not None:
            self.check()
            self.check = None

    def settle(self, positions: Sequence[int], heap: Heap) -> Texts:
        """The contents of the long texts in its rows, which begin at these words (key words, then val words).

        To be called before the layer is stored, and before the heap lets go of contents or of their dictionaries.

        A merged layer unites those of its origins, whatever of them it still needs, unless they are more than its rows
        can need: O(texts log texts + bytes); any other is looked through, O(n log n).
        """
        if self.texts is None:
            in_keyed = [1 + at for at in positions]
            if self.origins:
                texts = unite([origin.settle(positions, heap) for origin in self.origins])
                if len(texts) > self.updates * len(positions):
                    texts = texts.only(self.keyed(), in_keyed)
            else:
                texts = heap.dictionary(self.keyed(), in_keyed)
            self.texts, self.origins = texts, ()
        return self.texts

    def arrays(self) -> dict[str, Ints]:
        """The columns by name, contiguous."""
        columns = {name: np.ascontiguousarray(getattr(self, name)) for name in COLUMNS}
        return columns if self.texts is None else columns | self.texts.arrays()

    @property
    def leaves(self) -> tuple[Layer, ...]:
        """The layers that a manifest names for this one: itself, or its parts while it is in memory alone."""
        return self.parts if self.parts and self.ref is None else (self,)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(array.nbytes for array in self.arrays().values())

    def keyed(self, keys: tuple[int, int] | None = None) -> Ints:
        """Keyed rows in order, of the keys at the places [first, stop) alone if `keys` says so. O(rows)."""
        first, stop = (0, len(self.hashes)) if keys is None else keys
        rows: Ints = tries.flatten(self.address, self.key_width, self.val_width, self.depth, first, stop)
        return rows

    def keyed_pieces(self, keys: int) -> Iterator[Ints]:
        """Keyed rows in order, those of so many keys at a time."""
        for first in range(0, len(self.hashes), keys):
            yield self.keyed((first, min(first + keys, len(self.hashes))))

    def key_rows(self) -> Ints:
        """The keys in order, `[hash | key words]`. O(keys)."""
        if self.key_width == 1:
            return np.column_stack((self.hashes, unmix_words(self.hashes)))
        return np.column_stack((self.hashes, self.keys))

    def since_then(self, since: int) -> Layer | None:
        """The layer compacted to `since`, if none of its updates can become one with another: all have one time. O(1),
        since columns are shared."""
        if len(self.times) > 1:
            return None
        arrays = {name: getattr(self, name) for name in COLUMNS} | {"times": np.maximum(self.times, since)}
        return Layer(
            self.key_width, self.val_width, self.depth, self.updates, self.lower, self.upper, since, arrays
        )  # fmt: skip

    def to_updates(self) -> Updates:
        """The updates, rows as key words then val words, in trie order. O(n)."""
        return Updates(np.ascontiguousarray(self.keyed()[:, 1:]), self.key_width + self.val_width, self.depth)
