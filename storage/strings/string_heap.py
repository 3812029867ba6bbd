"""Texts: the contents behind the words of long strings, bytes and lists.

A text is four words in a row (storage/kernels/texts.py). They contain a text of up to 15 bytes completely, and the
128-bit hash of a longer one. The contents of long texts are kept in two places. A batch's dictionary (Texts) is stored
with the batch and contains what the batch's rows need. A worker's Heap is a cache in memory; it loads missing contents
from the dictionaries attached to it, so a batch loads nothing into memory before a content is needed.

Words alone decide equality, placement and order (except among equal prefixes), so most of the engine never reads
contents.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.storage.errors import InvariantError
from vernier.storage.kernels import texts as kernels
from vernier.storage.strings.contents import Contents
from vernier.storage.updates import Ints, Updates, order_rows

Bytes = npt.NDArray[np.uint8]

HEAP_BYTES = 256 << 20
"""How many bytes a heap may keep from one epoch to the next."""
_SHOWN = 60
_BOTH = np.array([0, 1], np.int64)
_BY_PREFIX = np.array([0, 1, 2, 3], np.int64)


class TextMissing(InvariantError):
    """The content of a long text is not in any known dictionary."""

    message = "no dictionary in memory contains the text that begins with {prefix} and has the hash {hash}"
    prefix: str
    hash: str


class TextsCollide(InvariantError):
    """Two contents have the same 128-bit hash, so their words cannot distinguish them."""

    message = (
        "two texts have the hash {hash}: {one} and {other}; answers cannot distinguish them, so change one of them"
    )
    hash: str
    one: str
    other: str


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Texts:
    """An immutable dictionary. hashes: int64[m, 2], sorted and distinct; offsets: int64[m + 1]; data: uint8[bytes].

    The arrays may be views of a mapped file. `address` is the dictionary's row in the table that `locate` searches.
    """

    __slots__ = ("address", "data", "hashes", "offsets")

    def __init__(self, hashes: Ints, offsets: Ints, data: Bytes) -> None:
        self.hashes, self.offsets, self.data = hashes, offsets, data
        self.address = (len(hashes), _address(hashes), _address(offsets), _address(data))

    def __reduce__(self) -> tuple[type[Texts], tuple[Ints, Ints, Bytes]]:
        # Addresses are valid only in this process.
        return Texts, (self.hashes, self.offsets, self.data)

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.hashes.nbytes + self.offsets.nbytes + self.data.nbytes

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays to store beside a batch's; `of_arrays` reads them back."""
        return {"text_hashes": self.hashes, "text_offsets": self.offsets, "text_data": self.data}

    @staticmethod
    def of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Texts | None:
        """The dictionary among a stored batch's arrays, None if it has none. Copies nothing."""
        if "text_hashes" not in arrays:
            return None
        return Texts(arrays["text_hashes"], arrays["text_offsets"], arrays["text_data"])

    def only(self, rows: Ints, positions: Sequence[int]) -> Texts:
        """This dictionary restricted to what rows int64[n, w] need. positions: the words at which texts begin. O(n log
        n + bytes)."""
        pairs = _distinct(rows, positions)
        places: Ints = kernels.locate(pairs, np.array([self.address], np.int64))
        if (places[:, 1] < 0).any():
            raise TextMissing(prefix="?", hash=_shown(pairs[int(np.argmin(places[:, 1]))]))
        return _united(pairs, places[:, 0].copy(), places[:, 1].copy())

    @staticmethod
    def empty() -> Texts:
        """A dictionary without texts, the same one for all: most batches of short texts have it."""
        return _EMPTY


_EMPTY = Texts(np.empty((0, 2), np.int64), np.zeros(1, np.int64), np.empty(0, np.uint8))


class Heap:
    """Contents by hash, in memory, for one worker (or one reader); a cache of the dictionaries attached to it.

    It may be used from several threads. `_sent` records which contents each peer has received in the running epoch.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._attached: dict[int, Texts] = {}
        self._dictionaries: Ints | None = None
        self._clear()

    def _clear(self) -> None:
        self._count = 0
        self._table = np.zeros(8, np.int64)
        self._hashes = np.empty((4, 2), np.int64)
        self._starts = np.zeros(5, np.int64)
        self._arena = np.empty(64, np.uint8)
        self._sent: dict[int, npt.NDArray[np.bool_]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use for contents."""
        return self._table.nbytes + self._hashes.nbytes + self._starts.nbytes + self._arena.nbytes

    def __len__(self) -> int:
        return self._count

    @property
    def is_empty(self) -> bool:
        """Whether it knows of no long text, in memory or attached."""
        return self._count == 0 and not self._attached

    # --- what it can look up ------------------------------------------------------------------------------------------

    def attach(self, dictionaries: Iterable[Texts | None]) -> None:
        """Load missing contents from these dictionaries, too; None and empty ones are skipped."""
        with self._lock:
            for one in dictionaries:
                if one is not None and len(one):
                    self._attached[id(one)] = one
            self._dictionaries = None

    def detach(self) -> None:
        """Detach all dictionaries. Contents already loaded stay in memory."""
        with self._lock:
            self._attached.clear()
            self._dictionaries = None

    def trim(self, limit: int = HEAP_BYTES) -> None:
        """Call between epochs: detaches all dictionaries, and frees the contents if they take more than `limit` bytes.

        Every live batch has its dictionary by then (`Batch.settle`); the next epoch attaches it again.
        """
        with self._lock:
            self.detach()
            self._sent.clear()
            if self.nbytes > limit:
                self._clear()

    # --- words and contents -------------------------------------------------------------------------------------------

    def encode(self, contents: Contents) -> Ints:
        """The words int64[n, 4] of n texts. Long texts are added to the heap. O(bytes). Raises TextsCollide."""
        base = _address(contents.data)
        words: Ints = kernels.encode(base, contents.offsets)
        pairs = np.ascontiguousarray(words[:, kernels.H0 :])
        long = pairs.any(axis=1)
        if long.any():
            offsets = contents.offsets
            self._insert(pairs[long], (base + offsets[:-1])[long], np.diff(offsets)[long])
        return words

    def decode(self, words: Ints) -> Contents:
        """The contents of the texts with these words, int64[n, 4]. O(bytes). Raises TextMissing."""
        with self._lock:
            words = np.ascontiguousarray(words)
            entries = self._entries(np.ascontiguousarray(words[:, kernels.H0 :]), words)
            return Contents(*kernels.decode(words, entries, self._starts, self._arena))

    def dictionary(self, rows: Ints, positions: Sequence[int]) -> Texts:
        """The dictionary that rows int64[n, w] need. positions: the words at which texts begin. O(n log n + bytes).
        Raises TextMissing."""
        pairs = _distinct(rows, positions)
        if len(pairs) == 0:
            return Texts.empty()
        with self._lock:
            return Texts(pairs, *self._contents(pairs))

    def add(self, texts: Texts) -> None:
        """Add all contents of a dictionary. Raises TextsCollide."""
        lengths = np.diff(texts.offsets)
        self._insert(np.array(texts.hashes), _address(texts.data) + texts.offsets[:-1], lengths)

    def unsent(self, peer: int, rows: Ints, positions: Sequence[int]) -> Texts:
        """Like `dictionary`, without the contents already returned for this peer (since `trim` or `forget_sent`)."""
        pairs = _distinct(rows, positions)
        if len(pairs) == 0:
            return Texts.empty()
        with self._lock:
            entries = self._entries(pairs, None)
            known = self._sent.get(peer, np.empty(0, np.bool_))
            if len(known) < len(self._hashes):
                known = np.concatenate((known, np.zeros(len(self._hashes) - len(known), np.bool_)))
            new = ~known[entries]
            known[entries] = True
            self._sent[peer] = known
            return Texts(pairs[new], *kernels.decode(_NO_WORDS, entries[new], self._starts, self._arena))

    def forget_sent(self) -> None:
        """Call at the start of an epoch: no peer is assumed to have received anything."""
        with self._lock:
            self._sent.clear()

    def comparable(self, rows: Ints, positions: Sequence[int]) -> Ints:
        """Rows whose words sort as their values do, even if long texts share a prefix.

        rows: int64[n, w]; positions: the words at which texts begin. If different long texts have the same prefix,
        their hashes are replaced by ranks, in a copy. Usually none do, and `rows` is returned unchanged. Ranks of
        different calls are not comparable. O(n log n), plus reading the contents of the texts that share a prefix.
        """
        if not positions:
            return rows
        index = np.concatenate([rows[:, p : p + kernels.WORDS] for p in positions])
        long = index[index[:, kernels.H0 :].any(axis=1)]
        if len(long) < 2:
            return rows
        long = long[order_rows(long, _BY_PREFIX)]
        fresh = np.concatenate(([True], (long[1:] != long[:-1]).any(axis=1)))
        long = long[fresh]
        begins = np.concatenate(([True], (long[1:, :2] != long[:-1, :2]).any(axis=1)))
        run = np.cumsum(begins) - 1
        crowded = np.bincount(run)[run] > 1
        if not crowded.any():
            return rows
        long, begins = long[crowded], begins[crowded]
        pairs = np.ascontiguousarray(long[:, kernels.H0 :])
        runs = np.append(np.flatnonzero(begins), len(long)).astype(np.int64)
        with self._lock:
            entries = self._entries(pairs, long)
            order = kernels.sort_runs(runs, entries, self._starts, self._arena)
        ranks = np.empty(len(long), np.int64)
        ranks[order] = np.arange(1, len(long) + 1)
        by_hash = order_rows(pairs, _BOTH)
        copy = np.array(rows, order="C")
        at = np.array(positions, np.int64)
        kernels.replace_hashes(copy, at, pairs[by_hash], ranks[by_hash])
        return copy

    # --- inside -------------------------------------------------------------------------------------------------------

    def _contents(self, pairs: Ints) -> tuple[Ints, Bytes]:
        entries = self._entries(pairs, None)
        offsets, data = kernels.decode(_NO_WORDS, entries, self._starts, self._arena)
        return offsets, data

    def _entries(self, pairs: Ints, words: Ints | None) -> Ints:
        """The entry of each hash, loaded from a dictionary if needed. words: the texts' words, for the error
        message."""
        entries: Ints = kernels.find(pairs, self._table, self._hashes)
        missing = entries == kernels.MISSING
        if missing.any():
            self._load(pairs[missing], None if words is None else words[missing])
            entries = kernels.find(pairs, self._table, self._hashes)
        return entries

    def _load(self, pairs: Ints, words: Ints | None) -> None:
        if self._dictionaries is None:
            # Search the largest dictionary first: it most likely contains the text.
            listed = sorted((one.address for one in self._attached.values()), reverse=True)
            self._dictionaries = np.array(listed, np.int64).reshape(-1, 4)
        places: Ints = kernels.locate(pairs, self._dictionaries)
        lost = np.flatnonzero(places[:, 1] < 0)
        if len(lost):
            first = lost[0]
            prefix = "?" if words is None else repr(_prefix(words[first]))
            raise TextMissing(prefix=prefix, hash=_shown(pairs[first]))
        self._insert(pairs, places[:, 0].copy(), places[:, 1].copy())

    def _insert(self, pairs: Ints, addresses: Ints, lengths: Ints) -> None:
        with self._lock:
            self._reserve(len(pairs), int(lengths.sum()))
            before = self._count
            self._count, fault = kernels.insert(
                pairs, addresses, lengths, self._table, self._hashes, self._starts, self._arena, before
            )
            if fault >= 0:
                (entry,) = kernels.find(pairs[fault : fault + 1], self._table, self._hashes)
                held = self._arena[self._starts[entry] : self._starts[entry + 1]].tobytes()
                given = ctypes.string_at(int(addresses[fault]), int(lengths[fault]))
                raise TextsCollide(hash=_shown(pairs[fault]), one=_cut(held), other=_cut(given))

    def _reserve(self, texts: int, size: int) -> None:
        """Reserve space for this many more texts and bytes."""
        entries = self._count + texts
        if entries > len(self._hashes):
            capacity = max(entries, 2 * len(self._hashes))
            self._hashes = np.concatenate((self._hashes, np.empty((capacity - len(self._hashes), 2), np.int64)))
            self._starts = np.concatenate((self._starts, np.empty(capacity + 1 - len(self._starts), np.int64)))
        used = int(self._starts[self._count])
        if used + size > len(self._arena):
            arena = np.empty(max(used + size, 2 * len(self._arena)), np.uint8)
            arena[:used] = self._arena[:used]
            self._arena = arena
        if 2 * entries > len(self._table):
            self._table = np.zeros(1 << (4 * entries - 1).bit_length(), np.int64)
            kernels.rehash(self._hashes, self._count, self._table)


_NO_WORDS = np.empty((0, kernels.WORDS), np.int64)


def encode(contents: Contents, heap: Heap | None) -> Ints:
    """The words of n texts. Without a heap all texts must be short. Raises TextMissing, TextsCollide."""
    if heap is not None:
        return heap.encode(contents)
    words: Ints = kernels.encode(_address(contents.data), contents.offsets)
    _check_short(words)
    return words


def decode(words: Ints, heap: Heap | None) -> Contents:
    """The contents of texts int64[n, 4]. Without a heap all texts must be short. Raises TextMissing."""
    if heap is not None:
        return heap.decode(words)
    _check_short(words)
    words = np.ascontiguousarray(words)
    return Contents(*kernels.decode(words, np.full(len(words), -1), np.zeros(1, np.int64), np.empty(0, np.uint8)))


def _check_short(words: Ints) -> None:
    long = np.flatnonzero(words[:, kernels.H0 :].any(axis=1))
    if len(long):
        row = words[long[0]]
        raise TextMissing(prefix=repr(_prefix(row)), hash=_shown(row[kernels.H0 :]))


def unite(parts: Sequence[Texts]) -> Texts:
    """The union of several dictionaries. O(n log n + bytes). Raises TextsCollide."""
    full = [part for part in parts if len(part)]
    if len(full) < 2:
        return full[0] if full else Texts.empty()
    pairs = np.concatenate([part.hashes for part in full])
    addresses = np.concatenate([_address(part.data) + part.offsets[:-1] for part in full])
    return _united(pairs, addresses, np.concatenate([np.diff(part.offsets) for part in full]))


def _united(pairs: Ints, addresses: Ints, lengths: Ints) -> Texts:
    order = order_rows(pairs, _BOTH)
    hashes, offsets, data, fault = kernels.unite(pairs, order, addresses, lengths)
    if fault >= 0:
        one, other = (ctypes.string_at(int(addresses[i]), int(lengths[i])) for i in order[fault - 1 : fault + 1])
        raise TextsCollide(hash=_shown(pairs[order[fault]]), one=_cut(one), other=_cut(other))
    return Texts(hashes, offsets, data)


def needed(heap: Heap, updates: Mapping[str, Updates], positions: Mapping[str, Sequence[int]]) -> list[Texts]:
    """The dictionaries that the rows of some collections need, to attach to another heap. positions: by name, the words
    at which texts begin."""
    return [heap.dictionary(one.data, positions[name]) for name, one in updates.items() if positions[name]]


def order(rows: Ints, columns: Ints, positions: Sequence[int], heap: Heap | None) -> Ints:
    """The stable order of rows by word columns, with long texts at `positions` compared by content. O(n log n)."""
    return order_rows(rows if heap is None else heap.comparable(rows, positions), columns)


def _distinct(rows: Ints, positions: Sequence[int]) -> Ints:
    """The hashes of the long texts in rows, sorted and distinct."""
    pairs: Ints = kernels.collect(np.ascontiguousarray(rows), np.array(positions, np.int64))
    return pairs[order_rows(pairs, _BOTH)] if len(pairs) > 1 else pairs


def _prefix(words: Ints) -> bytes:
    row = np.ascontiguousarray(words.reshape(1, -1)).copy()
    row[0, 1] = (row[0, 1] & ~0xFF) | kernels.SHORT
    _, data = kernels.decode(row, np.array([-1]), np.zeros(1, np.int64), np.empty(0, np.uint8))
    return bytes(data)


def _shown(pair: Ints) -> str:
    return "".join(f"{int(word) & (2**64 - 1):016x}" for word in pair)


def _cut(content: bytes) -> str:
    return repr(content[:_SHOWN]) + ("" if len(content) <= _SHOWN else f" … ({len(content)} bytes)")
