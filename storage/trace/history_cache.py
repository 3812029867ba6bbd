"""History cache: what a trace holds for many keys, read in one kernel call and cached while the slice runs.

A history is the consolidated updates of one key over all batches of a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vernier.storage.kernels.histories import AS_STORED, select_keys
from vernier.storage.kernels.leading import select_leading
from vernier.storage.kernels.step_index import (
    COUNTS,
    GENERATION,
    GENERATIONS,
    HEAD,
    INDEX_WORDS,
    LINK,
    LINKS,
    ORDERED,
    SLOTS,
    STEPS,
    TRIES,
    USED,
    WORDS,
    count_runs,
    count_unknown,
    forget_blocks,
    index_steps,
    lay_out,
    spread_heads,
)
from vernier.storage.trace.changes import Changes
from vernier.storage.updates import Ints

__all__ = ["AS_STORED", "LOANS", "HistoryCache", "Selection", "select_once"]

LOANS = Changes()
"""Counts whenever what a kernel was lent of any trace of this process may have changed: the arrays of its histories, or
its batches, otherwise than by the kernel."""
_ROOM = 1 << 10
"""The capacity of a new index, in keys."""
_REMEMBERED = 1 << 26
"""If the cached histories exceed this many bytes, the cache is cleared before the next call. A caller that asks for few
keys in each round stays below it. A caller that asks for all keys, as a load does, asks in pieces, each once per round.
"""
_KEPT = 1 << 26
"""Bytes of memory, for the histories or for one part of the index, that are kept from slice to slice in any case."""
_USED = 4
"""Larger memory is kept if the ending slice used at least one part in this many. Freeing and faulting in pages costs as
much as the work done in them."""


@dataclass(slots=True)
class Selection:
    """Histories of q keys. spans: int64[q, 2], where each begins and ends in `entries`. entries: int64[n, v + 1 + depth
    + 1], `[val words | time | rounds | diff]`, which may contain other keys' entries, too.

    Within a key, entries are sorted by (val, rounds, time), distinct, and no diff is zero. A selection must be used
    before the next call to the trace and must not be modified.
    """

    spans: Ints
    entries: Ints

    @staticmethod
    def nothing(keys: int, width: int) -> Selection:
        """A selection of empty histories. width: words per entry."""
        return Selection(np.zeros((keys, 2), np.int64), np.empty((0, width), np.int64))

    def dense(self) -> Selection:
        """The same selection without entries of other keys, key after key. O(entries)."""
        sizes = self.spans[:, 1] - self.spans[:, 0]
        ends = np.cumsum(sizes)
        places = np.arange(int(sizes.sum())) + np.repeat(self.spans[:, 0] - (ends - sizes), sizes)
        return Selection(np.column_stack((ends - sizes, ends)), self.entries[places])


@dataclass(frozen=True, slots=True, eq=False)
class Lent:
    """The arrays of a history cache, for a kernel that uses them for a slice: no history is cached in them then."""

    index: Ints
    heads: Ints
    slots: Ints
    links: Ints
    arena: Ints

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.heads.nbytes + self.slots.nbytes + self.links.nbytes + self.arena.nbytes


class HistoryCache:
    """The histories of a trace's keys that have been requested since `forget`, and an index of the steps (sorted rows
    that the running slice has sealed but not yet closed into a batch).

    Forks of a trace share it in order to share its memory: each epoch runs on a fork and would otherwise allocate it
    anew. They take turns (`serve`).
    A reduction that keeps covers has a cache of its own, which is of no trace.
    """

    __slots__ = (
        "_asked", "_fold", "_heads", "_index", "_least", "_lent", "_links", "_most", "_of", "_slots",
        "arena", "dropped", "key_width", "shape",
    )  # fmt: skip

    def __init__(self, key_width: int, val_width: int, depth: int) -> None:
        self.key_width, self.shape = key_width, (val_width, depth)
        self._fold = AS_STORED
        self._asked = False
        self.dropped = False
        """Whether what was cached in the running slice has been cleared."""
        self._of = 0
        self._least, self._most = 2**63 - 1, -(2**63)
        self._index = np.zeros(INDEX_WORDS, np.int64)
        self._lent: Lent | None = None
        self._heads: Ints
        self._slots: Ints
        self._links: Ints
        self.arena: Ints = np.empty((0, val_width + depth + 2), np.int64)
        self._empty()

    @property
    def _generation(self) -> int:
        return int(self._index[GENERATION])

    def select(
        self, table: Ints, keyed: Ints, settled: int, before: int, sealed: int, tries: int, fold: int
    ) -> tuple[Selection, int]:
        """(histories, status) of keys `[hash | key words …]`, distinct, sorted by hash. They cover the first `before`
        entries of the table: `settled` batches of earlier slices, then steps. `sealed`: the total rows of the steps
        that are matrices; `tries`: the number of steps that are tries. See kernels.histories.select_keys."""
        self._prepare(table, keyed, settled, before, sealed, tries, fold)
        spans, arena, status = select_keys(
            table, keyed, self.key_width, *self.shape, settled, before, fold,
            self._heads, self._slots, self._links, self.arena, self._generation, self._index,
        )  # fmt: skip
        self.arena = arena
        return Selection(spans, arena), status

    def select_leading(
        self, table: Ints, keyed: Ints, settled: int, before: int, sealed: int, tries: int, fold: int,
        now: Ints, both: bool, limit: int,
    ) -> tuple[Selection, int]:  # fmt: skip
        """The same up to the first val that decides (kernels.leading.select_leading); nothing is cached."""
        self._prepare(table, keyed[:0], settled, before, sealed, tries, fold)
        spans, arena, status = select_leading(
            table, keyed, self.key_width, self.shape[0], settled, before, fold, now, both, limit,
            self._heads, self._slots, self._links, self.arena, self._generation, self._index,
        )  # fmt: skip
        self.arena = arena
        return Selection(spans, arena), status

    def _prepare(self, table: Ints, keyed: Ints, settled: int, before: int, sealed: int, tries: int, fold: int) -> None:
        """What comes before each selection. keyed: the keys whose histories it caches."""
        if tries and self._index[TRIES] == 0:
            self.drop()
        self._index[TRIES] = tries
        self._limit(fold)
        self.reserve(table, keyed, settled, before, sealed, tries)

    def reserve(self, table: Ints, keyed: Ints, settled: int, before: int, sealed: int, tries: int) -> None:
        """Reserve space for the keys of all steps up to number `before` of the table and for the keys of `keyed`.
        Parameters as for `select`, which calls this first. O(keys and new rows); free if there is space already.

        Callers that read many keys in pieces call this first. Heads lie in hash order, and one piece covers only a
        small part of the hash range: an index sized for one piece would put all later keys in one place.
        """
        self._asked = True
        self._end_loan()
        _, links, slots, _, rows = self._index[:COUNTS].tolist()
        # Rows that are not linked yet may each be a key's, and all keys may be new; they are counted exactly only if
        # this bound exceeds the space. Keys that are in no step get a slot, too: it caches what the settled batches
        # hold for them.
        fresh, asked = sealed - rows, len(keyed) if settled > 0 and not tries else 0
        if slots + fresh + asked > len(self._slots) or links + fresh > len(self._links):
            self._widen(table, keyed[:asked], settled, before)
        if asked > ORDERED:
            self._make_arena()

    def covers(self, keyed: Ints, fold: int) -> tuple[Ints, Ints, Ints, Ints]:
        """(heads, slots, index, arena), in which a reduction keeps covers of these keys (operators/kernels/covers.py)
        while the slice runs, or until the cache is cleared because it has become large. It puts the arena that it
        returns into `arena`. O(keys) if there has to be more space; keys as for `select`."""
        self._asked = True
        self._end_loan()
        self._limit(fold)
        if int(self._index[SLOTS]) + len(keyed) > len(self._slots):
            self._least, self._most = min(self._least, int(keyed[0, 0])), max(self._most, int(keyed[-1, 0]))
            known = self.key_width, self._heads, self._slots
            some = len(self._slots) > 0
            self._reserve_keys(count_unknown(keyed, *known, self._generation, self._index) if some else len(keyed))
        return self._heads, self._slots, self._index, self.arena

    def _limit(self, fold: int) -> None:
        """Clear the cache if it has become large, or holds what was read with another fold."""
        used = int(self._index[USED]) * self.arena.shape[1] * 8
        if fold != self._fold or used > _REMEMBERED:
            self.drop()
            if used > 4 * _REMEMBERED:
                self.arena = self.arena[:0].copy()
            self._fold = fold

    def drop(self) -> None:
        """Clear what is cached of keys, but not the index of the steps. O(keys)."""
        self.dropped = self.dropped or int(self._index[USED]) > 0
        forget_blocks(self._slots, self._index)

    def lend(self, trace: int) -> Lent:
        """The arrays, for a kernel that runs a slice of the trace of this number and leaves nothing cached. They are
        the same object while they are the same arrays."""
        self.serve(trace)
        self.forget()
        if self._lent is None:
            self._lent = Lent(self._index, self._heads, self._slots, self._links, self.arena)
        return self._lent

    def lends(self, trace: int, lent: Lent | None) -> bool:
        """Whether these arrays are still lent for the trace of this number, and nothing else has used them."""
        return self._of == trace and self._lent is lent

    def _end_loan(self) -> None:
        if self._lent is not None:
            self._lent = None
            LOANS.add()

    def replace(self, arrays: Mapping[str, Ints]) -> Lent:
        """Use arrays that a kernel has made in place of those it was lent, by name."""
        self._heads, self._slots = arrays.get("heads", self._heads), arrays.get("slots", self._slots)
        self._links, self.arena = arrays.get("links", self._links), arrays.get("arena", self.arena)
        self._lent = Lent(self._index, self._heads, self._slots, self._links, self.arena)
        return self._lent

    def serve(self, trace: int) -> None:
        """Switch to the trace of this number: drops what another trace requested. O(1)."""
        if trace != self._of:
            self._of = trace
            LOANS.add()
            self.forget()

    def forget(self) -> None:
        """Drop the cached histories and the indexed steps. O(1)."""
        if self._asked:
            self._asked = self.dropped = False
            self._index[GENERATION] += 1
            _, links, slots, used, _ = self._index[:COUNTS].tolist()
            self._index[:COUNTS] = 0
            if self._generation >= GENERATIONS or _idle(links, self._links) or _idle(slots, self._slots):
                self._empty()
            if _idle(used, self.arena):
                self.arena = self.arena[:0].copy()

    def release(self) -> None:
        """Free the memory, too."""
        self.forget()
        self._end_loan()
        self._empty()
        self.arena = self.arena[:0].copy()

    def _empty(self) -> None:
        """Replace the index by one without capacity."""
        self._index[GENERATION] = 1
        self._links = np.empty((0, LINK), np.int64)
        self._make(0)

    def _make(self, keys: int) -> None:
        """Allocate an index for `keys` keys (a power of two, or 0 to allocate on demand). The capacity stays close to
        the number of keys, because each lookup touches a page of its own and the number of pages should be small."""
        self._heads = np.zeros((2 * keys, HEAD), np.int64)
        self._slots = np.empty((keys, WORDS + (self.key_width if self.key_width > 1 else 0)), np.int64)
        lay_out(self._index, len(self._heads) if keys >= ORDERED else 0, self._least, self._most)

    def _make_arena(self) -> None:
        """Reserve memory for everything that may be cached plus one piece. Growing step by step would write to twice as
        many pages; pages that are never written take no memory."""
        used, width = int(self._index[USED]), self.arena.shape[1]
        rows = (_REMEMBERED + _REMEMBERED // 4) // (8 * width)
        if len(self.arena) < rows:
            arena, self.arena = self.arena, np.empty((rows, width), np.int64)
            self.arena[:used] = arena[:used]

    def _widen(self, table: Ints, keyed: Ints, settled: int, before: int) -> None:
        """Grow the index for the keys of all steps up to number `before` of the table and for those of `keyed`;
        existing entries are kept. O(new rows + keys, plus the existing entries if the capacity doubles)."""
        index = self._index
        runs, least, most = count_runs(table, settled + int(index[STEPS]), before, self.key_width)
        self._least, self._most = min(self._least, least), max(self._most, most)
        if len(keyed):
            self._least, self._most = min(self._least, int(keyed[0, 0])), max(self._most, int(keyed[-1, 0]))
        used = int(index[LINKS])
        if used + runs > len(self._links):
            links, self._links = self._links, np.empty((_capacity(used + runs), LINK), np.int64)
            self._links[:used] = links[:used]
        self._reserve_keys(runs)
        known = self.key_width, self._heads, self._slots
        index_steps(table, settled, before, *known, self._links, self._generation, index)
        if settled > 0 and int(index[SLOTS]) + len(keyed) > len(self._slots):
            some = len(self._slots) > 0
            self._reserve_keys(count_unknown(keyed, *known, self._generation, index) if some else len(keyed))

    def _reserve_keys(self, more: int) -> None:
        """Grow the index for this many more keys."""
        count = int(self._index[SLOTS])
        if count + more > len(self._slots):
            heads, slots = self._heads, self._slots
            self._make(_capacity(count + more))
            spread_heads(heads, self._heads, self._generation, self._index)
            self._slots[:count] = slots[:count]


def _idle(used: int, buffer: Ints) -> bool:
    """Whether a slice has used little of a large allocation."""
    return buffer.nbytes > _KEPT and _USED * used < len(buffer)


def _capacity(wanted: int) -> int:
    """The capacity to allocate for a wanted size: the next power of two, at least `_ROOM`."""
    return 1 << max(wanted - 1, _ROOM - 1).bit_length()


def select_once(table: Ints, keyed: Ints, key_width: int, val_width: int, depth: int) -> tuple[Selection, int]:
    """(histories, status) of keys over batches, with times as stored; nothing is cached."""
    nothing = np.empty((0, 1), np.int64)
    arena = np.empty((4 * len(keyed), val_width + depth + 2), np.int64)
    batches = len(table)
    spans, arena, status = select_keys(
        table, keyed, key_width, val_width, depth, batches, batches, AS_STORED, nothing, nothing, nothing, arena, 0,
        np.zeros(INDEX_WORDS, np.int64),
    )  # fmt: skip
    return Selection(spans, arena), status
