"""RecentLetters: the newest dead letters in memory, so that they can be shown without reading old epochs again.

All of them, whole and for good, are in the dead-letter topics; what is kept here is for a person who looks.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from vernier.service.ingest.rejects import REPLAY_HEADER

MOST = 1000
_MOST_BYTES = 16 << 20
_OVERHEAD = 500
"""Bytes of a letter beside its key and value, about."""


class RecentLetters:
    """Up to 1,000 letters and 16 MiB, of each message the newest. One thread adds; others may read."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[int, dict[str, Any]]] = {}
        self._bytes = 0

    def clear(self) -> None:
        """Forget all."""
        self._kept = {}
        self._bytes = 0

    def add(self, epoch: int, letters: Iterable[Mapping[str, Any]]) -> None:
        """Add an epoch's letters, oldest first. A message that was refused before has its newest letter only."""
        for letter in letters:
            name = _name(letter)
            self._remove(name)
            size = _OVERHEAD + len(letter.get("value") or "") + len(letter.get("key") or "")
            self._kept[name] = size, {"epoch": epoch, **letter}
            self._bytes += size
            while len(self._kept) > MOST or (self._bytes > _MOST_BYTES and len(self._kept) > 1):
                self._remove(next(iter(self._kept)))

    def newest(
        self, limit: int, wanted: Callable[[Mapping[str, Any]], bool] = lambda letter: True
    ) -> list[dict[str, Any]]:
        """The newest letters that are wanted, newest first."""
        found = (letter for _, letter in reversed(list(self._kept.values())) if wanted(letter))
        return list(islice(found, limit))

    def _remove(self, name: object) -> None:
        size, _ = self._kept.pop(name, (0, None))
        self._bytes -= size


def _name(letter: Mapping[str, Any]) -> object:
    """The place that its message had when it came for the first time (see dlq.py)."""
    for name, value in letter.get("headers") or ():
        if name == REPLAY_HEADER and value:
            # Behind it may be the topic's id.
            return "/".join(base64.b64decode(value).decode("utf-8", "replace").split("/")[:3])
    return "/".join(str(letter.get(part)) for part in ("topic", "partition", "offset"))
