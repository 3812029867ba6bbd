"""Deadline: how long an answer may take. A thread cannot be ended from outside, so the work asks between its steps."""

from __future__ import annotations

import time

from vernier.storage.errors import CallerError


class TooSlow(CallerError):
    """A query took longer than is allowed."""

    code = "query_timeout"
    message = "the query was given up after {ms} ms (http.query_ms); ask for less: where=, limit=, fewer keys"
    ms: int


class Deadline:
    """Passes `ms` milliseconds after it was made, or when it is given up; None: never. For threads."""

    __slots__ = ("_at", "ms")

    def __init__(self, ms: int | None) -> None:
        self.ms = ms or 0
        self._at = None if ms is None else time.monotonic() + ms / 1000

    def check(self) -> None:
        """Raises TooSlow when it has passed."""
        if self._at is not None and time.monotonic() >= self._at:
            raise TooSlow(ms=self.ms)

    def give_up(self) -> None:
        """Nobody waits any more."""
        self._at = 0.0

    @property
    def seconds(self) -> float | None:
        """How long it still is."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


NEVER = Deadline(None)
