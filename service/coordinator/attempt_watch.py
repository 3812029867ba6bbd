"""Looks at a running attempt now and then: from the thread that waits for its end, or from one of its own while Spark
runs its tasks. An epoch of few messages is over before a thread has started and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from vernier.service.cluster.rendezvous import Attempt


class AttemptWatch:
    """Something that looks at an attempt every `seconds` until it has ended, or `look` returns False."""

    def __init__(self, attempt: Attempt, seconds: float) -> None:
        self.attempt, self.seconds = attempt, seconds
        self._timer: threading.Timer | None = None

    def look(self) -> bool:
        """Look at the attempt; returns whether to look again."""
        raise NotImplementedError

    def begin(self) -> None:
        """Look from a thread of its own from now on, until `cancel`."""
        self._timer = threading.Timer(self.seconds, self._look)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """The attempt has ended: stop looking."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if not self.attempt.ended.is_set() and self.look():
            self.begin()


class TimeLimit(AttemptWatch):
    """Calls `give_up` once, if the attempt has not ended after `seconds`."""

    def __init__(self, attempt: Attempt, seconds: float, give_up: Callable[[], None]) -> None:
        super().__init__(attempt, seconds)
        self._give_up = give_up

    def look(self) -> bool:
        """Give up; returns False."""
        self._give_up()
        return False


def await_end(attempt: Attempt, watches: Iterable[AttemptWatch]) -> None:
    """Wait for the end of an attempt; the watches look from this thread."""
    begun = time.monotonic()
    due = {watch: begun + watch.seconds for watch in watches}
    while due and not attempt.ended.wait(max(0.0, min(due.values()) - time.monotonic())):
        now = time.monotonic()
        for watch in [one for one, at in due.items() if at <= now]:
            due[watch] = now + watch.seconds
            if not watch.look():
                del due[watch]
    attempt.ended.wait()
