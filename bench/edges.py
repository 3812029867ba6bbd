"""Distinct random edges, as the benchmarks of storage use them."""

from pathlib import Path

import numpy as np

from vernier.storage.updates import Ints


def random_edges(n: int, degree: int = 4, seed: int = 0) -> Ints:
    """int64[n, 2]: n distinct edges `[source, target]` in random order, among n / degree nodes."""
    choose = np.random.default_rng(seed)
    nodes = max(2, n // degree)
    found = np.empty(0, np.int64)
    while len(found) < n:
        more = choose.integers(0, nodes, n - len(found)) * nodes + choose.integers(0, nodes, n - len(found))
        found = np.unique(np.concatenate((found, more)))
    choose.shuffle(found)
    return np.column_stack((found // nodes, found % nodes))


def write_words(path: Path, words: Ints) -> None:
    """The words as little-endian int64, for peers in other languages."""
    np.ascontiguousarray(words).astype("<i8").tofile(path)
