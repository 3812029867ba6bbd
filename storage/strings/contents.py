"""Contents: byte strings in one array, the form in which texts enter and leave storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

TEXT_WORDS = 4
"""The number of words per text in a row: two for its prefix, two for its hash (storage/strings/string_heap.py)."""


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """n byte strings: string i is data[offsets[i] : offsets[i + 1]]. offsets: int64[n + 1]; data: uint8[m]."""

    offsets: Ints
    data: npt.NDArray[np.uint8]

    @staticmethod
    def of(strings: Sequence[bytes]) -> Contents:
        """From Python bytes; for tests and small inputs."""
        lengths = np.array([0, *map(len, strings)], np.int64)
        return Contents(np.cumsum(lengths), np.frombuffer(b"".join(strings), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def strings(self) -> list[bytes]:
        """As Python bytes."""
        data = self.data.tobytes()
        return [data[a:b] for a, b in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)]
