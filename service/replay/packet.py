"""Packets: a few numbers and some matrices as one vector of words, as small epochs travel between workers.

The words are the numbers, then the number of rows of each matrix, then their rows. Both sides know how many numbers and
matrices there are, and how wide these are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vernier.storage.updates import Ints

MOST = 1 << 14
"""The largest packet in words. A packet is copied twice; a few of them fit into what carries them."""


def pack(numbers: Sequence[int], matrices: Sequence[Ints]) -> Ints | None:
    """The packet, int64[words, 1]; None if it were too large. Matrices need not be contiguous. O(words)."""
    head = [*numbers, *map(len, matrices)]
    total = len(head) + sum(matrix.size for matrix in matrices)
    if total > MOST:
        return None
    words = np.empty((total, 1), np.int64)
    at = len(head)
    words[:at, 0] = head
    for matrix in matrices:
        end = at + matrix.size
        words[at:end].reshape(matrix.shape)[:] = matrix
        at = end
    return words


def unpack(words: Ints, numbers: int, widths: Sequence[int]) -> tuple[list[int], list[Ints]]:
    """The numbers, and matrices of these widths: views of the packet."""
    at = numbers + len(widths)
    head = words[:at, 0].tolist()
    matrices = []
    for rows, width in zip(head[numbers:], widths, strict=True):
        end = at + rows * width
        matrices.append(words[at:end].reshape(rows, width))
        at = end
    return head[:numbers], matrices
