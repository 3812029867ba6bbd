"""Batch: an immutable set of updates sorted by key and val, stored as a merge trie.

The trie is keys → vals → (time, rounds, diff), linked by offsets. Keys are ordered by (hash, key). A batch can
therefore be built by one sort, probed by interpolation, cut into contiguous hash ranges for workers and cut again when
their number changes. The hash of a one-word key is a bijection and represents the key. Wider keys are stored and
compared in full, so a collision does not affect any answer. Offsets that count 0, 1, 2 … and constant columns are
elided: a single time, diffs that are all 1, and empty vals cost nothing.

Source: "Differential dataflow roadmap", the log-structured merge trie and constraint 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels import tries
from vernier.storage.kernels.advancing import advance_rows
from vernier.storage.kernels.growing import pack_many
from vernier.storage.kernels.keying import consolidate_keyed
from vernier.storage.kernels.loading import MOST, load_keyed, unmix_words
from vernier.storage.strings.string_heap import Heap, Texts, unite
from vernier.storage.updates import Ints, Updates, sort_columns, whole_of

COLUMNS = ("hashes", "keys", "key_offsets", "vals", "val_offsets", "times", "rounds", "diffs")
"""The names of a batch's columns, in the order in which kernels return them."""
_MANY = 1 << 15
"""From this number of rows on, offsets, vals, rounds and diffs take as few bytes as they need."""


def keyed_columns(key_width: int, val_width: int, depth: int) -> Ints:
    """The columns that sort keyed rows `[hash | key | val | time | rounds | diff]`; a one-word key is skipped because
    its hash represents it."""
    first = 1 if key_width > 1 else 1 + key_width
    rest = sort_columns(first, 1 + key_width + val_width, depth)
    return np.concatenate((np.zeros(1, np.int64), rest))


def key_updates(data: Ints, key: Ints, val: Ints, depth: int) -> Ints:
    """Updates `[row | time | rounds | diff]` as keyed rows, sorted and consolidated. key, val: words of the row. O(n
    log n). Raises DiffOverflow."""
    whole, first = whole_of(data)
    if first:
        key, val = key + first, val + first
    rows, status = consolidate_keyed(whole, key, val, depth + 2)
    if status != 0:
        raise DiffOverflow(operation="addition")
    keyed: Ints = rows
    return keyed


def advance_updates(data: Ints, since: int) -> Ints:
    """Updates outside loops, `[row | time | diff]`, with times before `since` advanced to it, in any order. Rows that
    become equal are summed if few rows are distinct. O(n). Raises DiffOverflow."""
    whole, first = whole_of(data)
    rows, status = advance_rows(whole, first, since)
    if status != 0:
        raise DiffOverflow(operation="addition")
    advanced: Ints = rows
    return advanced


def key_batch(data: Ints, key: Ints, val: Ints, depth: int, lower: int, upper: int, since: int) -> Batch:
    """Like `key_updates`, but builds a batch without the intermediate matrix of keyed rows. The key has at least one
    word. O(n log n) time; four bytes per update of memory beside the batch. Raises DiffOverflow."""
    whole, first = whole_of(data)
    shape = len(key), len(val), depth
    if len(whole) >= MOST:
        return Batch.of_rows(key_updates(data, key, val, depth), len(key), depth, lower, upper, since)
    columns, updates, status = load_keyed(whole, key + first, val + first, depth + 2, keyed_columns(*shape))
    if status != 0:
        raise DiffOverflow(operation="addition")
    return Batch.of_columns(columns, shape, updates, lower, upper, since)


def keyed_rows(updates: Updates, key_width: int) -> Ints:
    """The updates as keyed rows, keyed by their first `key_width` words, sorted and consolidated. O(n log n). Raises
    DiffOverflow."""
    key = np.arange(key_width, dtype=np.int64)
    return key_updates(updates.data, key, np.arange(key_width, updates.width, dtype=np.int64), updates.depth)


def owing_of(parts: Sequence[Batch]) -> Ints | None:
    """The `owing` of the batch that adjacent batches become: no key if none of them has any, else not known."""
    known = [part.owing for part in parts]
    return known[0] if all(keys is not None and len(keys) == 0 for keys in known) else None


def _taken_apart(together: Ints, address: Ints, key_width: int, val_width: int, depth: int) -> dict[str, Ints]:
    """The columns by name, from the single array that kernels.tries.pack returns."""
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


class Batch:
    """An immutable trie for the data times [lower, upper), compacted to `since`.

    hashes[K]; keys[K, key_width] (no rows unless key_width > 1); key_offsets[K + 1] and val_offsets[V + 1] (empty:
    identity); vals[V, val_width]; times[n or 1]; rounds[n or 1, depth]; diffs[n or 1]. All are int64, but offsets,
    vals, rounds and diffs of a large batch that was built in memory may be narrower.

    `ref` says where the batch is persisted; None if it is not. `parts` are the batches that represent a large merged
    batch on disk until it is persisted. `texts` contains the contents of the long texts in its rows; it is None if rows
    have no texts or if the batch is not settled yet. In that case the contents of a merged batch are in its `origins`.
    `check` compares the checksums of a batch that was opened unverified; `verify` calls it once. `sums` and `owing` are
    what a prefix index knows about the batch (storage/trace/prefix_index.py): partial sums by column, and the hashes of
    the keys with rows of which it takes too many copies, None if that is not known.
    """

    __slots__ = (
        "_together", "address", "check", "depth", "diffs", "hashes", "key_offsets", "key_width", "keys", "lower",
        "origins", "owing", "parts", "ref", "rounds", "since", "sums", "texts", "times", "updates", "upper",
        "val_offsets", "val_width", "vals",
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
        """columns: by name; or one array with its addresses, as kernels.tries.pack returns them. Such an array is split
        into columns on the first access to one, which most small batches never see."""
        self.key_width, self.val_width, self.depth = key_width, val_width, depth
        self.updates, self.lower, self.upper, self.since = updates, lower, upper, since
        self.ref: Any = None
        self.parts: tuple[Batch, ...] = ()
        self.check: Callable[[], None] | None = None
        self.texts: Texts | None = None
        self.origins: tuple[Batch, ...] = ()
        self.sums: dict[tuple[int, int, int], Ints] = {}
        self.owing: Ints | None = None
        self._together: Ints | None = None
        if isinstance(columns, np.ndarray):
            self._together = columns
        else:
            self.set_columns(columns)
            self.texts = Texts.of_arrays(columns)
        if address is None:
            address = tries.describe(
                self.hashes, self.keys, self.key_offsets, self.vals, self.val_offsets, self.times, self.rounds,
                self.diffs, updates,
            )  # fmt: skip
        self.address: Ints = address

    def set_columns(self, columns: Mapping[str, Ints]) -> None:
        """Set the columns. Callers that have copied the batch's addresses must read them again."""
        for name in COLUMNS:
            setattr(self, name, columns[name])
        self._together = None

    @property
    def packed(self) -> bool:
        """Whether the columns were built as one array, in memory."""
        return self._together is not None

    def __getattr__(self, name: str) -> Ints:
        """A column, on its first access."""
        if name not in COLUMNS or self._together is None:
            raise AttributeError(name)
        columns = _taken_apart(self._together, self.address, self.key_width, self.val_width, self.depth)
        for each, column in columns.items():
            setattr(self, each, column)
        return columns[name]

    @staticmethod
    def of_rows(rows: Ints, key_width: int, depth: int, lower: int, upper: int, since: int) -> Batch:
        """The batch of keyed rows that are already sorted and consolidated. O(n)."""
        val_width = rows.shape[1] - 3 - key_width - depth
        if len(rows) >= _MANY:
            shape = key_width, val_width, depth
            return Batch.of_columns(pack_many(rows, *shape), shape, len(rows), lower, upper, since)
        columns, address = tries.pack(rows, key_width, val_width, depth)
        return Batch(key_width, val_width, depth, len(rows), lower, upper, since, columns, address)

    @staticmethod
    def of_columns(
        columns: Sequence[Ints], shape: tuple[int, int, int], updates: int, lower: int, upper: int, since: int
    ) -> Batch:
        """The batch of columns and addresses that kernels.growing.finish_trie returns. shape: (key words, val words,
        depth)."""
        arrays, address = dict(zip(COLUMNS, columns[:-1], strict=True)), columns[-1]
        alone, (_, val_width, depth) = min(updates, 1), shape
        vals, rounds = int(address[tries.VAL_COUNT]), updates if address[tries.ROUND_STRIDE] else alone
        for name, field, entries in (
            ("key_offsets", tries.KEY_OFFSETS, len(arrays["hashes"]) + 1),
            ("vals", tries.VALS, vals * val_width),
            ("val_offsets", tries.VAL_OFFSETS, vals + 1),
            ("rounds", tries.ROUNDS, rounds * depth),
            ("diffs", tries.DIFFS, updates if address[tries.DIFF_STRIDE] else alone),
        ):
            size = int(address[field]) & 7 or 8
            arrays[name] = arrays[name][: size * entries].view(f"i{size}")
        arrays["vals"] = arrays["vals"].reshape(vals, val_width)
        arrays["rounds"] = arrays["rounds"].reshape(rounds, depth)
        return Batch(*shape, updates, lower, upper, since, arrays, address)

    @staticmethod
    def build(updates: Updates, key_width: int, lower: int, upper: int, since: int) -> Batch:
        """The batch of updates whose first `key_width` words are the key. O(n log n). Raises DiffOverflow."""
        return Batch.of_rows(keyed_rows(updates, key_width), key_width, updates.depth, lower, upper, since)

    @staticmethod
    def open(meta: Mapping[str, Any], arrays: Mapping[str, Ints]) -> Batch:
        """The batch that `meta()` and `arrays()` describe. The arrays may be views of a mapped file and are not
        copied."""
        return Batch(
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
        """What `open` needs in addition to the arrays."""
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
        """Call before reading the batch: compares its checksums if it was opened unverified. O(bytes) once, then O(1).
        Raises Damaged."""
        if self.check is not None:
            self.check()
            self.check = None

    def settle(self, positions: Sequence[int], heap: Heap) -> Texts:
        """The contents of the long texts in its rows. positions: the words at which texts begin (key words, then val
        words).

        Call this before the batch is stored, and before the heap frees contents or detaches their dictionaries.

        A merged batch unites the dictionaries of its origins, including contents that it no longer needs, unless they
        are more than its rows can need: O(texts log texts + bytes). For any other batch its rows are scanned, O(n log
        n).
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
        """The columns by name, contiguous, all of int64, and the arrays of its dictionary if it has one."""
        columns = {name: np.ascontiguousarray(getattr(self, name), np.int64) for name in COLUMNS}
        return columns if self.texts is None else columns | self.texts.arrays()

    @property
    def leaves(self) -> tuple[Batch, ...]:
        """The batches that a manifest names for this one: itself, or its parts while it exists only in memory."""
        return self.parts if self.parts and self.ref is None else (self,)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        texts = {} if self.texts is None else self.texts.arrays()
        return sum(array.nbytes for array in (*(getattr(self, name) for name in COLUMNS), *texts.values()))

    def keyed(self, keys: tuple[int, int] | None = None) -> Ints:
        """Keyed rows in order; if `keys` is given, only those of the keys at positions [first, stop). O(rows)."""
        first, stop = (0, len(self.hashes)) if keys is None else keys
        rows: Ints = tries.flatten(self.address, self.key_width, self.val_width, self.depth, first, stop)
        return rows

    def updates_before(self, key: int) -> int:
        """How many updates the keys before position `key` have. O(1)."""
        val = int(self.key_offsets[key]) if len(self.key_offsets) else key
        return int(self.val_offsets[val]) if len(self.val_offsets) else val

    def keyed_pieces(self, keys: int) -> Iterator[Ints]:
        """Keyed rows in order, in pieces of `keys` keys."""
        for first in range(0, len(self.hashes), keys):
            yield self.keyed((first, min(first + keys, len(self.hashes))))

    def key_rows(self) -> Ints:
        """The keys in order, `[hash | key words]`. O(keys)."""
        if self.key_width == 1:
            return np.column_stack((self.hashes, unmix_words(self.hashes)))
        return np.column_stack((self.hashes, self.keys))

    def compacted(self, since: int) -> Batch | None:
        """The batch compacted to `since` if all its updates have one time, so that no two of them can add up; else
        None. O(1), because columns are shared."""
        if len(self.times) > 1:
            return None
        times, address = np.maximum(self.times, since), self.address.copy()
        address[tries.TIMES] = times.ctypes.data
        arrays = {name: getattr(self, name) for name in COLUMNS} | {"times": times}
        return Batch(
            self.key_width, self.val_width, self.depth, self.updates, self.lower, self.upper, since, arrays, address
        )  # fmt: skip

    def to_updates(self) -> Updates:
        """The updates, with rows as key words followed by val words, in trie order. O(n)."""
        return Updates(np.ascontiguousarray(self.keyed()[:, 1:]), self.key_width + self.val_width, self.depth)
