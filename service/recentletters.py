"""RecentLetters: the newest dead letters in memory, so that they can be shown without reading old epochs again.

All of them, whole and for good, are in the dead-letter topics; what is kept here is for a person who looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

MOST = 1000
_MOST_BYTES = 16 << 20
_OVERHEAD = 500
"""Bytes of a letter beside its key and value, about."""


class RecentLetters:
    """Up to 1,000 letters and 16 MiB. One thread adds; others may ask."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, dict[str, Any]]] = deque()
        self._bytes = 0

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._bytes = 0

    def add(self, epoch: int, letters: Iterable[Mapping[str, Any]]) -> None:
        """Add an epoch's letters, oldest first."""
        for letter in letters:
            size = _OVERHEAD + len(letter.get("value") or "") + len(letter.get("key") or "")
            self._kept.append((size, {"epoch": epoch, **letter}))
            self._bytes += size
            while len(self._kept) > MOST or (self._bytes > _MOST_BYTES and len(self._kept) > 1):
                self._bytes -= self._kept.popleft()[0]

    def newest(
        self, limit: int, wanted: Callable[[Mapping[str, Any]], bool] = lambda letter: True
    ) -> list[dict[str, Any]]:
        """The newest letters that are wanted, newest first."""
        found = (letter for _, letter in reversed(list(self._kept)) if wanted(letter))
        return list(islice(found, limit))
