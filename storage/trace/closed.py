"""Closed slices: the batches of a trace that a kernel has made and Python has not seen (storage/kernels/closing.py).

While small slices run in a kernel, a trace grows there. `Trace.batches` takes the news when it is read, so slices that
nothing else reads cost no objects; most of their batches unite with others before.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from vernier.storage.kernels import closing
from vernier.storage.kernels import running_traces as kernel
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Ints


class Closed:
    """Trace number `number` of `rows`, the words of the traces that a kernel runs. Frees what is never taken."""

    __slots__ = ("__weakref__", "_at", "_number", "_rows", "_table", "_words")

    def __init__(self, rows: Ints, number: int) -> None:
        self._rows, self._number, self._at = rows, number, number * kernel.TRACE_WORDS
        words: Any = rows.reshape(-1)
        self._words = memoryview(words)
        self._table = np.zeros((closing.CLOSED_SIZE, closing.CLOSED_WORDS), np.int64)
        self[kernel.CLOSED_ROWS] = self._table.ctypes.data
        weakref.finalize(self, _free, rows, self._table, number).atexit = False

    def __getitem__(self, word: int) -> int:
        return self._words[self._at + word]

    def __setitem__(self, word: int, value: int) -> None:
        self._words[self._at + word] = value

    @property
    def news(self) -> bool:
        """Whether slices have closed since `take`."""
        return self._words[self._at + kernel.NEWS] != 0

    def take(self, known: list[Batch], table: Ints, shape: tuple[int, int, int]) -> list[Batch]:
        """All batches of the trace, oldest first. known: those that Python had; table: where all are described; shape:
        key words, val words, depth."""
        kept, count = self[kernel.KEPT], self[kernel.CLOSED]
        batches = known[:kept]
        for at, row in enumerate(self._table[:count].tolist()):
            together = closing.take_closed(self._rows, self._number, at)
            lower = known[kept].lower if row[closing.FOLLOWS] else row[closing.LOWER]
            times = lower, row[closing.UPPER], row[closing.OF_SINCE]
            batches.append(Batch(*shape, row[closing.COUNT], *times, together, table[kept + at].copy()))
        self[kernel.KEPT], self[kernel.CLOSED], self[kernel.NEWS] = len(batches), 0, 0
        return batches


def _free(rows: Ints, table: Ints, number: int) -> None:
    """Free what was not taken; `table` is an argument so that it lives until then."""
    closing.drop_closed(rows, number)
