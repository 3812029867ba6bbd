"""The moving graph of the benchmarks: a window over a list of random edges, and sums to compare answers by.

The first `window` edges are there at time 0. Update i puts edge window + i in and takes edge i out, at time i + 1;
after the last edge the list starts again, so a window that has gone round once sees the same work again. Updates
are rows of int64 `[source, target, time, multiplicity]`. Needs numpy alone: a peer's own Python reads this, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Stream:
    """The updates of a window over edges, int64[n, 2]."""

    def __init__(self, edges: Ints, window: int) -> None:
        self.edges, self.window = edges, window

    def first(self) -> Ints:
        """The edges of time 0."""
        data = np.zeros((self.window, 4), np.int64)
        data[:, :2] = self.edges[np.arange(self.window) % len(self.edges)]
        data[:, 3] = 1
        return data

    def updates(self, first: int, stop: int, size: int, exact: bool) -> Ints:
        """Updates first..stop-1, two rows each, in order; each at its own time, or all of a batch of `size` at its
        first one's."""
        i = np.arange(first, stop)
        data = np.empty((len(i), 2, 4), np.int64)
        data[:, 0, :2] = self.edges[(self.window + i) % len(self.edges)]
        data[:, 1, :2] = self.edges[i % len(self.edges)]
        data[:, :, 2] = (1 + i if exact else 1 + first + (i - first) // size * size)[:, None]
        data[:, :, 3] = 1, -1
        return data.reshape(-1, 4)


def random_graph(nodes: int, edges: int, seed: int = 0) -> Ints:
    """int64[edges, 2]: random edges, possibly with duplicates."""
    return np.random.default_rng(seed).integers(0, nodes, (edges, 2))


class Sums:
    """Sums over changes that do not depend on their order or on how they are cut, with their times and without.

    Two logs of changes with the same sums are the same, but for a chance of 1 in 2**64; the peers have the same sums.
    """

    def __init__(self) -> None:
        self.timed = self.timeless = 0

    def add(self, data: Ints) -> None:
        """Add more changes: words of a row, time, multiplicity."""
        diffs = np.ascontiguousarray(data[:, -1]).view(np.uint64)
        rows = mix(np.zeros(len(data), np.uint64), data[:, :-2])
        self.timeless = (self.timeless + int((rows * diffs).sum())) % 2**64
        self.timed = (self.timed + int((mix(rows, data[:, -2:-1]) * diffs).sum())) % 2**64


def mix(mixed: NDArray[np.uint64], words: Ints) -> NDArray[np.uint64]:
    """uint64[n] that depend on all words int64[n, c] of a row, from where `mixed` left off."""
    for column in words.T:
        mixed = (mixed ^ np.ascontiguousarray(column).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
