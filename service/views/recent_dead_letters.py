"""Keeps the newest dead letters in memory, so that they can be shown without reading old epochs again.

A dead letter is the record of a refused message. The dead-letter topics hold all of them, complete and permanently;
this cache only serves people who look at recent ones.
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
"""Approximate bytes of a dead letter besides its key and value."""


class RecentDeadLetters:
    """Up to 1,000 dead letters and 16 MiB; of each message only the newest one. One thread adds, others may read."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[int, dict[str, Any]]] = {}
        self._bytes = 0

    def clear(self) -> None:
        """Drop all dead letters."""
        self._kept = {}
        self._bytes = 0

    def add(self, epoch: int, letters: Iterable[Mapping[str, Any]]) -> None:
        """Add an epoch's dead letters, oldest first. A message that was refused before keeps only its newest dead
        letter.
        """
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
        """The newest dead letters for which `wanted` is true, newest first."""
        found = (letter for _, letter in reversed(list(self._kept.values())) if wanted(letter))
        return list(islice(found, limit))

    def _remove(self, name: object) -> None:
        size, _ = self._kept.pop(name, (0, None))
        self._bytes -= size


def _name(letter: Mapping[str, Any]) -> object:
    """The position of the message when it first arrived (see service/kafka/dead_letter_queue.py)."""
    for name, value in letter.get("headers") or ():
        if name == REPLAY_HEADER and value:
            # The topic's id may follow the first three parts.
            return "/".join(base64.b64decode(value).decode("utf-8", "replace").split("/")[:3])
    return "/".join(str(letter.get(part)) for part in ("topic", "partition", "offset"))
