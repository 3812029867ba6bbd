"""The way of a standby from the lock of the state directory to its first commit: how long each stage took."""

from __future__ import annotations

import logging
import time

_log = logging.getLogger("vernier.driver")


class FirstCommit:
    """Stages in their order; the last one ends with the first commit, which logs all of them. Create it when the
    directory is acquired. after_standing_by: whether to log anything."""

    def __init__(self, *, after_standing_by: bool) -> None:
        self._began = self._last = time.monotonic()
        self._stages: dict[str, float] = {}
        self._done = not after_standing_by

    def passed(self, stage: str) -> None:
        """A stage has ended. Only the first time counts."""
        now = time.monotonic()
        if stage not in self._stages and not self._done:
            self._stages[stage], self._last = now - self._last, now

    def committed(self, seconds: float) -> None:
        """An epoch that took `seconds` is committed."""
        if self._done:
            return
        self._done = True
        now = time.monotonic()
        self._stages["first messages"] = max(0.0, now - self._last - seconds)
        self._stages["epoch"] = seconds
        listed = ", ".join(f"{name} {took:.2f} s" for name, took in self._stages.items())
        _log.info("first commit %.2f s after the lock: %s", now - self._began, listed)
