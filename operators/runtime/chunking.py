"""Chunking: processes the keys of a step in pieces of bounded size, so that the memory gathered for them is bounded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Ints

KEYS = 1 << 14
"""Keys in a piece: enough that the cost of a call is negligible, and few enough for caches and memory."""


_SPARE = 1.25
"""Space to allocate for each row that is expected. Pages that are never written take no memory."""
_MOST = 1 << 32
"""The most bytes to allocate for expected rows. An estimate can be far off: the keys of one piece may have more rows
than all others together."""
_NOTHING = np.empty((0, 0), np.int64)
_SMALL = 1 << 25
"""A buffer of at most this number of bytes is always kept."""


class Gathered:
    """A buffer for the output of a step's pieces. The result is one matrix, without a second copy of the rows.

    again: nothing refers to the rows any more in the next step, which reuses the buffer then, unless the step before
    used less than a quarter of it: the first rounds of a load give many rows, the others few.
    """

    def __init__(self, *, again: bool) -> None:
        self._again = again
        self._buffer = _NOTHING
        self._used = 0

    def begin(self) -> None:
        """Begin a step."""
        if not self._again or (self._buffer.nbytes > _SMALL and 4 * self._used < len(self._buffer)):
            self._buffer = _NOTHING
        self._used = 0

    def gather(self, given: list[Ints], times: float) -> None:
        """Merge the step's parts into one; the newest part is the output of one piece. All pieces together are expected
        to give `times` as many rows as that piece. O(rows of the parts added since the last call)."""
        count = len(given[0]) if given[0].base is self._buffer else 0
        if count == len(given[0]) and len(given) == 1:
            return
        fresh = given[1:] if count else given
        wanted = count + sum(map(len, fresh))
        if len(self._buffer) < wanted:
            width = fresh[0].shape[1]
            expected = min(int(_SPARE * times * len(given[-1])), _MOST // (8 * width))
            wider = np.empty((wanted + max(wanted, expected), width), np.int64)
            if count:
                wider[:count] = given[0]
            self._buffer = wider
        for part in fresh:
            self._buffer[count : count + len(part)] = part
            count += len(part)
        self._used = count
        given[:] = [self._buffer[:count]]

    def release(self) -> None:
        """Free the buffer."""
        self._buffer = _NOTHING


def pieces(count: int) -> Iterable[tuple[int, int]]:
    """The start and end of each piece of `count` keys, in order. A small step is one piece."""
    if count <= KEYS:
        return ((0, count),) if count else ()
    return [(first, min(first + KEYS, count)) for first in range(0, count, KEYS)]


def parts(fresh: Ints | Batch) -> Iterable[Ints]:
    """The keyed rows that a step added to an arrangement: all at once or, if they are in a trie, piece by piece of its
    keys."""
    return fresh.keyed_pieces(KEYS) if isinstance(fresh, Batch) else (fresh,)
