"""Pieces: the keys of a step, so many at a time, so that what is brought together for them has bounds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vernier.storage.trace.batch import Layer
from vernier.storage.updates import Ints

KEYS = 1 << 14
"""Keys of a piece: many enough that calls cost nothing beside them, few enough for caches and memory."""


_SPARE = 1.25
"""Room for each row that is expected to come. What nobody writes takes none."""
_MOST = 1 << 32
"""Bytes that are taken for what is expected at most: one piece's keys may have more than all others'."""
_NOTHING = np.empty((0, 0), np.int64)


class Gathered:
    """Room for what the pieces of a step give, so that it is one matrix at the end and nothing is there twice.

    again: nobody has the rows any more in the next step, which takes the same room then.
    """

    def __init__(self, *, again: bool) -> None:
        self._again = again
        self._room = _NOTHING

    def begin(self) -> None:
        """Begin a step."""
        if not self._again:
            self._room = _NOTHING

    def gather(self, given: list[Ints], times: float) -> None:
        """Make one part of the step's parts, the newest of which is a piece's: there will be about so many times as
        many rows of all pieces. O(rows of the parts that have come since)."""
        count = len(given[0]) if given[0].base is self._room else 0
        if count == len(given[0]) and len(given) == 1:
            return
        fresh = given[1:] if count else given
        wanted = count + sum(map(len, fresh))
        if len(self._room) < wanted:
            width = fresh[0].shape[1]
            expected = min(int(_SPARE * times * len(given[-1])), _MOST // (8 * width))
            wider = np.empty((wanted + max(wanted, expected), width), np.int64)
            if count:
                wider[:count] = given[0]
            self._room = wider
        for part in fresh:
            self._room[count : count + len(part)] = part
            count += len(part)
        given[:] = [self._room[:count]]

    def let_go(self) -> None:
        """Forget the room."""
        self._room = _NOTHING


def pieces(count: int) -> Iterable[tuple[int, int]]:
    """Where each piece of `count` keys begins and ends, in order; a small step is one piece."""
    if count <= KEYS:
        return ((0, count),) if count else ()
    return [(first, min(first + KEYS, count)) for first in range(0, count, KEYS)]


def parts(fresh: Ints | Layer) -> Iterable[Ints]:
    """The keyed rows that a step has added to an arrangement, at once or, where it is a trie, those of a piece of its
    keys after the other."""
    return fresh.keyed_pieces(KEYS) if isinstance(fresh, Layer) else (fresh,)
