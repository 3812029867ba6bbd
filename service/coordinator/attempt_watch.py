"""Looks at a running attempt now and then, in a thread of its own."""

from __future__ import annotations

import threading

from vernier.service.cluster.rendezvous import Attempt


class AttemptWatch:
    """Calls `look` every `seconds` until the attempt has ended, `look` returns False, or `cancel`. Subclasses set what
    `look` needs before they call this constructor."""

    def __init__(self, attempt: Attempt, seconds: float) -> None:
        self._attempt, self._seconds = attempt, seconds
        self._timer = self._later()

    def look(self) -> bool:
        """Look at the attempt; returns whether to look again."""
        raise NotImplementedError

    def cancel(self) -> None:
        """The attempt has ended: stop looking."""
        self._timer.cancel()

    def _later(self) -> threading.Timer:
        timer = threading.Timer(self._seconds, self._look)
        timer.daemon = True
        timer.start()
        return timer

    def _look(self) -> None:
        if not self._attempt.ended.is_set() and self.look():
            self._timer = self._later()
