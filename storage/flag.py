"""A flag that a signal handler may set.

`threading.Event.set` takes a lock. A handler runs between two instructions of the main thread, which may hold that very
lock, in `wait` for example; then the process stands still for ever.
"""

from __future__ import annotations

import time

_LOOK_SECONDS = 0.05


class Flag:
    """False until `set`. No lock; a waiting thread sees it within 50 ms."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set it; safe in a signal handler and from any thread."""
        self._set = True

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most this long; returns whether it is."""
        until = time.monotonic() + seconds
        while not self._set and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        return self._set
