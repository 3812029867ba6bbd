"""Waits for the next commit: the kernel says when the state's HEAD was written, so nothing has to look for it all the
time.

A file system of another host says nothing of what is written there. So once a commit was found that was not heard of,
the files are looked at every few milliseconds until one is heard of again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

from vernier.storage.state.state import HEAD

if sys.platform == "linux":
    import inotify_simple

LONGEST_S = 0.1
"""The longest wait while commits are heard of. It limits how late an unheard commit is seen, and the end of the wait
when the sidecar stops."""

_AGAIN_S = 1.0
"""The least time from one attempt to listen to the next: the folder may not exist yet."""


class CommitWatch:
    """Waits for commits to the state in `folder`, for one thread. poll_s: the longest wait while they are not heard of,
    and every wait without a folder. Costs one descriptor and one of the user's inotify instances; if there is none
    left, it waits for `poll_s`."""

    def __init__(self, folder: Path | None, poll_s: float) -> None:
        self._folder, self._poll_s = folder, poll_s
        self._hears, self._heard = True, False
        self._events: inotify_simple.INotify | None = None
        self._next_try = 0.0

    def wait(self, stopping: threading.Event) -> None:
        """Wait for a write to HEAD, at most `LONGEST_S` or `poll_s`. `stopping` ends the wait if nothing is watched."""
        if self._events is None:
            self._listen()
        self._heard = False
        if self._events is None:
            stopping.wait(self._poll_s)
            return
        until = time.monotonic() + (LONGEST_S if self._hears else self._poll_s)
        while not self._heard and (left := until - time.monotonic()) > 0:
            for event in self._events.read(timeout=int(left * 1000) + 1):
                self._heard |= event.name == HEAD

    def found(self) -> None:
        """Note that there was a new commit after the wait. If it was not heard of, another folder may have taken the
        place of the one that is watched."""
        self._hears = self._heard
        if not self._heard:
            self.close()

    def close(self) -> None:
        """Give the descriptor back. A later wait listens again."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _listen(self) -> None:
        if sys.platform != "linux" or self._folder is None or time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + _AGAIN_S
        with contextlib.suppress(OSError):
            events = inotify_simple.INotify()
            try:
                events.add_watch(self._folder, inotify_simple.flags.MODIFY | inotify_simple.flags.MOVED_TO)
            except OSError:
                events.close()
                raise
            self._events = events
