"""Newest: asks a state directory for its newest epoch, cheaply and often."""

from __future__ import annotations

import time

from vernier.storage.state.manifest import NO_EPOCH
from vernier.storage.state.state import StateDirectory

_LISTED_EVERY_NS = 1_000_000_000


class Newest:
    """The newest epoch of a state directory, for one thread that polls."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._listed_at = -_LISTED_EVERY_NS

    def look(self) -> int:
        """The newest epoch. HEAD is a hint, which a service that died in a commit may have left; so list, too."""
        now = time.monotonic_ns()
        if now - self._listed_at < _LISTED_EVERY_NS:
            return self._state.head()
        self._listed_at = now
        return max(self._state.epochs(), default=NO_EPOCH)
