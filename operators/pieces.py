"""Pieces: the keys of a step, so many at a time, so that what is brought together for them has bounds."""

from __future__ import annotations

from collections.abc import Iterable

from storage.layer import Layer
from storage.updates import Ints

KEYS = 1 << 14
"""Keys of a piece: many enough that calls cost nothing beside them, few enough for caches and memory."""


def pieces(count: int) -> Iterable[tuple[int, int]]:
    """Where each piece of `count` keys begins and ends, in order; a small step is one piece."""
    if count <= KEYS:
        return ((0, count),) if count else ()
    return [(first, min(first + KEYS, count)) for first in range(0, count, KEYS)]


def parts(fresh: Ints | Layer) -> Iterable[Ints]:
    """The keyed rows that a step has added to an arrangement, at once or, where it is a trie, those of a piece of its
    keys after the other."""
    return fresh.keyed_pieces(KEYS) if isinstance(fresh, Layer) else (fresh,)
