"""Finds the newest epoch of a state directory, cheaply enough to be polled often."""

from __future__ import annotations

import time

from vernier.storage.state.manifest import NO_EPOCH
from vernier.storage.state.state import StateDirectory

_LISTED_EVERY_NS = 1_000_000_000


class Head:
    """Finds the newest epoch of a state directory. For one polling thread."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._listed_at = -_LISTED_EVERY_NS

    def look(self) -> int:
        """Return the newest epoch.

        HEAD is only a hint: a service that died during a commit may have left it at an older epoch. The manifests are
        therefore also listed, at most once a second.
        """
        now = time.monotonic_ns()
        if now - self._listed_at < _LISTED_EVERY_NS:
            return self._state.head()
        self._listed_at = now
        return max(self._state.epochs(), default=NO_EPOCH)
