"""Background threads with an owner, which starts them, sees them fail, starts them again, and stops them.

A thread of Python that raises ends without any effect on the rest of its process: heartbeats or measurements would be
missing from then on, unnoticed. A thread of an owner logs the error, is counted, and runs again after a pause.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between a failure and the next start: they double with each failure, up to the longest."""

JOIN_SECONDS = 10.0

_log = logging.getLogger("vernier.threads")


class Loop:
    """One thread of an owner. stopping: set when it is time to end; its function looks at it, or waits for it."""

    def __init__(
        self, name: str, run: Callable[[threading.Event], None], failed: Callable[[str], None], *, again: bool
    ) -> None:
        self.name = name
        self.stopping = threading.Event()
        self._run, self._failed, self._again = run, failed, again
        self._thread = threading.Thread(target=self._watched, name=f"vernier-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs, or waits to run again."""
        return self._thread.is_alive()

    def stop(self, timeout: float | None = JOIN_SECONDS) -> None:
        """Tell the thread to end, and wait for its end, at most `timeout` seconds. Idempotent."""
        self.stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _watched(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                self._run(self.stopping)
            except BaseException:  # whatever it is, the thread would be gone
                if self.stopping.is_set():
                    _log.debug("thread %s failed while it was stopped", self.name, exc_info=True)
                    return
                if not self._again:
                    _log.exception("thread %s failed", self.name)
                    return
                _log.exception("thread %s failed; it starts again in %.1f s", self.name, pause)
                self._failed(self.name)
            else:
                return
            if self.stopping.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE)


class Threads:
    """The background threads of one owner. restarts: how often each has failed and was started again, by name."""

    def __init__(self) -> None:
        self.restarts: Counter[str] = Counter()
        self._loops: list[Loop] = []
        self._books = threading.Lock()

    def start(self, name: str, run: Callable[[threading.Event], None], *, again: bool = True) -> Loop:
        """Run a function in a thread of its own until it returns. It gets the event that tells it to end. again: if it
        raises, it is called again; otherwise the error is only logged, because its work will be due again anyway."""
        loop = Loop(name, run, self._count, again=again)
        with self._books:
            self._loops = [one for one in self._loops if one.alive]
            self._loops.append(loop)
        return loop

    def close(self) -> None:
        """Stop all threads, the newest first."""
        with self._books:
            loops, self._loops = self._loops, []
        for loop in loops:
            loop.stopping.set()
        for loop in reversed(loops):
            loop.stop()

    def _count(self, name: str) -> None:
        with self._books:
            self.restarts[name] += 1
