"""Running traces: traces whose slices run in a kernel (storage/kernels/running_traces.py), which seals and closes them.

Before a slice, `lend` writes where the arrays of each trace are, if something other than the kernel has changed it.
After slices with many rows, or while merges run, `tend` lets traces go on merging.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from vernier.storage.kernels import closing, tries
from vernier.storage.kernels import running_traces as kernel
from vernier.storage.trace.closed import Closed
from vernier.storage.trace.history_cache import LOANS, HistoryCache, Lent
from vernier.storage.trace.holds import HOLDS
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints

_OF_NONE = -1
"""The number of the trace for which a cache of no trace is lent."""
_NO_TABLE, _NO_COLUMNS = np.empty((0, tries.FIELDS), np.int64), np.empty(0, np.int64)
_LARGE = 1 << 26
"""A trace whose history cache has more bytes than this is not lent: `HistoryCache.forget` may free them."""


class RunningTraces:
    """Traces, and their rows of words: int64[traces, TRACE_WORDS]. retains: how much history each trace keeps, None for
    none. texts: whether its rows have long texts, whose contents unite with their batches, which Python does. indexed:
    the numbers of those with a prefix index, whose partial sums merges continue, in Python. caches: of no trace; their
    rows come after those of the traces."""

    def __init__(
        self,
        traces: Mapping[str, Trace],
        retains: Mapping[str, int | None],
        texts: Mapping[str, bool],
        indexed: Collection[int] = (),
        caches: Sequence[HistoryCache] = (),
    ) -> None:
        self.traces, self.caches = list(traces.values()), caches
        self.rows: Ints = np.zeros((len(traces) + len(caches), kernel.TRACE_WORDS), np.int64)
        self._lent: list[Lent | None] = [None] * len(self.rows)
        self._closed = [Closed(self.rows, number) for number in range(len(self.traces))]
        self._unites = [not texts[name] for name in traces]
        self._merges = [number not in indexed for number in range(len(traces))]
        self._seen = (-1, -1)
        words: Any = self.rows.reshape(-1)
        self._words = memoryview(words)  # reading and writing single words is faster than through numpy
        for row, (name, trace) in zip(self.rows, traces.items(), strict=False):
            retain = retains[name]
            row[[kernel.K, kernel.V, kernel.D]] = trace.key_width, trace.val_width, trace.depth
            row[kernel.RETAIN] = -1 if retain is None else retain
        for row, cache in zip(self.rows[len(traces) :], caches, strict=True):
            row[[kernel.K, kernel.V, kernel.D]] = cache.key_width, *cache.shape

    @property
    def lent(self) -> bool:
        """Whether nothing has changed since `lend`, but for what kernels did."""
        return self._seen == (HOLDS.now, LOANS.now)

    def lend(self, steps: int) -> bool:
        """Prepare for a slice of up to `steps` steps. Returns whether it can run in a kernel: not if memory may have to
        be freed, or an index is about to be counted through."""
        words, at, held, loans = self._words, 0, HOLDS.now, LOANS.now
        all_ = held != self._seen[0]
        for i, trace in enumerate(self.traces):
            if (
                all_
                or trace.running is not self._closed[i]
                or words[at + kernel.CAPACITY] < words[at + kernel.BATCHES] + steps
                or not trace.histories.lends(trace.number, self._lent[i])
            ) and not self._describe(i, trace, steps):
                self._seen = (-1, -1)
                return False
            at += kernel.TRACE_WORDS
        for i, cache in enumerate(self.caches, len(self.traces)):
            lends = cache.lends(_OF_NONE, self._lent[i])
            if not lends and not self._describe_cache(i, cache, _OF_NONE, _NO_TABLE, _NO_COLUMNS):
                self._seen = (-1, -1)
                return False
        self._seen = held, loans
        return True

    def _describe(self, i: int, trace: Trace, steps: int) -> bool:
        """Write all words of a trace. Returns whether it can run in a kernel."""
        if not self._describe_cache(i, trace.histories, trace.number, trace.table(2 * steps), trace.columns):
            return False
        trace.run_in(self._closed[i], self._unites[i], self._merges[i])
        return True

    def _describe_cache(self, i: int, cache: HistoryCache, number: int, table: Ints, columns: Ints) -> bool:
        """Write where the arrays of a cache are, lent for the trace of this number, and that trace's table and columns.
        Returns whether a kernel can use them."""
        lent = cache.lend(number)
        if lent.nbytes > _LARGE:
            return False
        kernel.describe_trace(self.rows[i], table, lent.index, lent.heads, lent.slots, lent.links, lent.arena, columns)
        self._lent[i] = lent
        return True

    def take_arrays(self) -> None:
        """After a run that has enlarged arrays, also a failed one: take them."""
        words, at = self._words, 0
        for i, cache in enumerate([*(trace.histories for trace in self.traces), *self.caches]):
            if words[at + kernel.ARENA_OWNER] or words[at + kernel.SLOTS_OWNER] or words[at + kernel.LINKS_OWNER]:
                self._lent[i] = cache.replace(
                    {
                        name: kernel.take_array(self.rows, i, column, lent.shape[1])
                        for name, column, lent in self._changed(i)
                    }
                )
            at += kernel.TRACE_WORDS

    def _changed(self, i: int) -> list[tuple[str, int, Ints]]:
        lent = self._lent[i]
        if lent is None:
            return []
        columns = (
            ("heads", kernel.HEADS, lent.heads),
            ("slots", kernel.SLOT_ROWS, lent.slots),
            ("links", kernel.LINK_ROWS, lent.links),
            ("arena", kernel.ARENA, lent.arena),
        )
        return [one for one in columns if self.rows[i, one[1] + 2] != 0]

    @property
    def sealed(self) -> int:
        """The number of rows that the slice has sealed."""
        return int(self.rows[:, kernel.SEALED].sum())

    def tend(self) -> None:
        """Continue the merges of the traces that need it. Raises DiffOverflow."""
        for closed, trace in zip(self._closed, self.traces, strict=True):
            attention = closed[kernel.ATTENTION]
            if attention:
                closed[kernel.ATTENTION] = 0
                crowded, merges = attention & closing.CROWDED != 0, attention & closing.MAY_MERGE != 0
                trace.go_on(crowded=crowded, fresh=crowded or merges)
