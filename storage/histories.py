"""Histories: what many keys have in a trace, one kernel call for all of them, remembered while the slice runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from storage.kernels.histories import (
    AS_STORED,
    COUNTS,
    HEAD,
    LINK,
    LINKS,
    SLOTS,
    WORDS,
    count_runs,
    forget_blocks,
    select_keys,
    spread_heads,
)
from storage.updates import Ints

__all__ = ["AS_STORED", "Histories", "Selection", "select_once"]

_ROOM = 1 << 10
"""Keys that a new index has room for."""
_REMEMBERED = 1 << 29
"""Bytes of histories above which what is remembered is forgotten before the next call."""
_KEPT = 1 << 26
"""Bytes of room, for them or for the index, that are kept from slice to slice."""


@dataclass(slots=True)
class Selection:
    """Histories of q keys. spans: int64[q, 2], where each begins in `entries` and ends; entries: int64[n, v + 1 + depth
    + 1] `[val words | time | rounds | diff]`, others' among them.

    Within a key entries are sorted by (val, rounds, time), each once, no diff zero. To be used before the trace is
    asked again, and not to be changed.
    """

    spans: Ints
    entries: Ints

    @staticmethod
    def nothing(keys: int, width: int) -> Selection:
        """No entries of so many words for any key."""
        return Selection(np.zeros((keys, 2), np.int64), np.empty((0, width), np.int64))

    def dense(self) -> Selection:
        """The same without entries of others, key after key. O(entries)."""
        sizes = self.spans[:, 1] - self.spans[:, 0]
        ends = np.cumsum(sizes)
        places = np.arange(int(sizes.sum())) + np.repeat(self.spans[:, 0] - (ends - sizes), sizes)
        return Selection(np.column_stack((ends - sizes, ends)), self.entries[places])


class Histories:
    """The histories of a trace's keys that have been asked for since `forget`, and an index of its steps."""

    __slots__ = (
        "_arena",
        "_asked",
        "_fold",
        "_generation",
        "_heads",
        "_index",
        "_key_width",
        "_links",
        "_shape",
        "_slots",
    )

    def __init__(self, key_width: int, val_width: int, depth: int) -> None:
        self._key_width, self._shape = key_width, (val_width, depth)
        self._generation = 1
        self._fold = AS_STORED
        self._asked = False
        self._index = np.zeros(COUNTS, np.int64)
        self._heads: Ints
        self._slots: Ints
        self._links: Ints
        self._arena: Ints
        self._arena = np.empty((0, val_width + depth + 2), np.int64)
        self._make(0, 0)

    def select(
        self, table: Ints, keyed: Ints, settled: int, before: int, fold: int, sealed: int
    ) -> tuple[Selection, int]:
        """(histories, status) of keys `[hash | key words …]`, distinct, sorted by hash, over the first `before` of
        `settled` layers and the steps behind them, which have `sealed` rows. See kernels.histories.select_keys."""
        index, keyed = self._index, np.ascontiguousarray(keyed)
        steps, links, slots, used, rows = index.tolist()
        if fold != self._fold or used * self._arena.shape[1] * 8 > _REMEMBERED:
            forget_blocks(self._slots, index)
            if self._arena.nbytes > _KEPT:
                self._arena = np.empty((0, self._arena.shape[1]), np.int64)
            self._fold = fold
        self._asked = True
        # Rows that are in no link yet may each be a key's; they are counted when there is no room for so many.
        fresh = sealed - rows
        if slots + fresh + len(keyed) > len(self._slots) or links + fresh > len(self._links):
            fresh = count_runs(table, settled + steps, before, self._key_width)
            self._widen(slots + fresh + len(keyed), links + fresh)
        spans, arena, status = select_keys(
            table, keyed, self._key_width, *self._shape, settled, before, fold,
            self._heads, self._slots, self._links, self._arena, self._generation, index,
        )  # fmt: skip
        self._arena = arena
        return Selection(spans, arena), status

    def forget(self) -> None:
        """Forget histories and steps. O(1)."""
        if self._asked:
            self._asked = False
            self._generation += 1
            self._index[:] = 0
            if self._heads.nbytes + self._slots.nbytes + self._links.nbytes > _KEPT:
                self._make(0, 0)
            if self._arena.nbytes > _KEPT:
                self._arena = np.empty((0, self._arena.shape[1]), np.int64)

    def _make(self, keys: int, links: int) -> None:
        """An empty index with room for so many keys and links (powers of two, or 0: made when there is need). Room for
        keys is kept near to what there are: looking one up touches a page of its own, and pages are few, too."""
        self._heads = np.zeros((2 * keys, HEAD), np.int64)
        self._slots = np.empty((keys, WORDS + (self._key_width if self._key_width > 1 else 0)), np.int64)
        self._links = np.empty((links, LINK), np.int64)

    def _widen(self, keys: int, links: int) -> None:
        """Have room for so many keys and links, and for as many again; what is there stays. O(what is there)."""
        heads, slots, known = self._heads, self._slots, self._links
        wide, long = (
            len(held) if wanted <= len(held) else 1 << max(wanted, _ROOM).bit_length()
            for wanted, held in ((keys, slots), (links, known))
        )
        self._make(wide, long)
        count, used = int(self._index[SLOTS]), int(self._index[LINKS])
        spread_heads(heads, self._heads, self._generation)
        self._slots[:count] = slots[:count]
        self._links[:used] = known[:used]


def select_once(table: Ints, keyed: Ints, key_width: int, val_width: int, depth: int) -> tuple[Selection, int]:
    """(histories, status) of keys over layers, times as stored; nothing is remembered."""
    nothing = np.empty((0, 1), np.int64)
    arena = np.empty((4 * len(keyed), val_width + depth + 2), np.int64)
    layers = len(table)
    spans, arena, status = select_keys(
        table, keyed, key_width, val_width, depth, layers, layers, AS_STORED, nothing, nothing, nothing, arena, 0,
        np.zeros(COUNTS, np.int64),
    )  # fmt: skip
    return Selection(spans, arena), status
