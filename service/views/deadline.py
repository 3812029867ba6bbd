"""A time limit for one answer. A thread cannot be killed from outside, so the query checks the deadline between its
steps.
"""

from __future__ import annotations

import time

from vernier.storage.errors import CallerError


class TooSlow(CallerError):
    """A query took longer than the limit."""

    code = "query_timeout"
    message = "the query was cancelled after {ms} ms (http.query_ms); request less: where=, limit=, fewer keys"
    ms: int


class Deadline:
    """Expires `ms` milliseconds after its creation, or when `give_up` is called; with None it never expires.
    Thread-safe.
    """

    __slots__ = ("_at", "ms")

    def __init__(self, ms: int | None) -> None:
        self.ms = ms or 0
        self._at = None if ms is None else time.monotonic() + ms / 1000

    def check(self) -> None:
        """Raises TooSlow if the deadline has expired."""
        if self._at is not None and time.monotonic() >= self._at:
            raise TooSlow(ms=self.ms)

    def give_up(self) -> None:
        """Expire now, because no client waits for the answer any more."""
        self._at = 0.0

    @property
    def seconds(self) -> float | None:
        """Seconds until it expires, or None."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


NEVER = Deadline(None)
