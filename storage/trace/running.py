"""Running traces: traces whose slice runs in a kernel (storage/kernels/running_traces.py), which seals and closes them.

Before a slice, `lend` writes where the arrays of each trace are, if that has changed. After it, `take_back` makes
batches of what the kernel has left, and the traces go on as after any slice: small batches unite, merges advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vernier.storage.kernels import running_traces as kernel
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.history_cache import Lent
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import Ints

_LARGE = 1 << 26
"""A trace whose history cache has more bytes than this is not lent: `HistoryCache.forget` may free them."""


class RunningTraces:
    """Traces, and their rows of words: int64[traces, TRACE_WORDS]."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces = list(traces)
        self.rows: Ints = np.zeros((len(self.traces), kernel.TRACE_WORDS), np.int64)
        self._lent: list[Lent | None] = [None] * len(self.traces)
        self._tables: list[Ints | None] = [None] * len(self.traces)
        words: Any = self.rows.reshape(-1)
        self._words = memoryview(words)  # reading and writing single words is faster than through numpy
        for row, trace in zip(self.rows, self.traces, strict=True):
            row[[kernel.K, kernel.V, kernel.D]] = trace.key_width, trace.val_width, trace.depth

    def lend(self, sinces: Sequence[int], steps: int) -> bool:
        """Prepare for a slice of up to `steps` steps, which closes at these times. Returns whether it can run in a
        kernel: not if memory may have to be freed, or an index is about to be counted through."""
        words, at = self._words, 0
        for i, trace in enumerate(self.traces):
            table, lent = trace.table(steps), trace.histories.lend(trace.number)
            if table is not self._tables[i] or lent is not self._lent[i]:
                if lent.nbytes > _LARGE:
                    return False
                kernel.describe_trace(
                    self.rows[i], table, lent.index, lent.heads, lent.slots, lent.links, lent.arena, trace.columns
                )
                self._tables[i], self._lent[i] = table, lent
            words[at + kernel.BATCHES] = len(trace.batches)
            words[at + kernel.SINCE] = trace.advance(sinces[i])
            at += kernel.TRACE_WORDS
        return True

    def take_arrays(self) -> None:
        """After a run, also a failed one: take the arrays that it has enlarged."""
        words, at = self._words, 0
        for i, trace in enumerate(self.traces):
            if words[at + kernel.ARENA_OWNER] or words[at + kernel.SLOTS_OWNER] or words[at + kernel.LINKS_OWNER]:
                self._lent[i] = trace.histories.replace(
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

    def take_back(self, lower: int, upper: int) -> None:
        """After a successful run of the slice [lower, upper): close the slice of all traces."""
        words, at = self._words, 0
        for i, trace in enumerate(self.traces):
            left, fresh = words[at + kernel.LEFT], None
            if left:
                together, address = kernel.take_batch(self.rows, i)
                shape = trace.key_width, trace.val_width, trace.depth
                fresh = Batch(*shape, left, lower, upper, trace.since, together, address)
            trace.close_with(fresh)
            at += kernel.TRACE_WORDS
