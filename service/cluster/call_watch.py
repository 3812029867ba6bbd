"""Call watch: a thread notices that a function of the program does not return, while another thread waits for it.

A slow epoch may be healthy, so nothing is ended. The watch reports a single call that goes on and on with the same
input; a function that is called per row starts a new call with each row. A function that also holds the interpreter
lock (for instance a regular expression that backtracks) blocks this thread, too. For that case, a timer that this
thread keeps resetting makes the interpreter write its stack into an in-memory file, where the driver finds it
(service/coordinator/stuck_workers.py).
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from vernier.operators.language.expr.running_calls import RUNNING
from vernier.storage.threads import Threads

_LEAST_POLL = 0.05


STACKS = "vernier-stacks"
"""The name of that in-memory file among the process's open files."""


class Watch:
    """A watch thread of a worker process. seconds: how long a call may take; on_slow: called with a call's description,
    once per call."""

    def __init__(self, seconds: float, on_slow: Callable[[str, float], None]) -> None:
        self._seconds, self._on_slow = seconds, on_slow
        self._poll = max(_LEAST_POLL, min(1.0, seconds / 4))
        self._seen: dict[int, tuple[Any, Any, float, bool]] = {}
        self._file = os.fdopen(os.memfd_create(STACKS), "w") if hasattr(os, "memfd_create") else None
        self._threads = Threads()
        self._threads.start("calls", self._run)

    def stop(self) -> None:
        """End the thread."""
        self._threads.close()
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()

    def look(self, now: float) -> None:
        """Report the calls that have been the same, on the same input, for too long. now: a clock's reading in
        seconds."""
        current: dict[int, tuple[Any, Any, float, bool]] = {}
        for thread, call in list(RUNNING.items()):
            given = call.given
            before = self._seen.get(thread)
            if before is None or before[0] is not call or before[1] is not given:
                current[thread] = (call, given, now, False)
                continue
            began, said = before[2], before[3]
            if not said and now - began >= self._seconds:
                self._on_slow(call.describe(), now - began)
                said = True
            current[thread] = (call, given, began, said)
        self._seen = current

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.wait(self._poll):
            if self._file is not None:
                faulthandler.dump_traceback_later(self._seconds + 2 * self._poll, file=self._file)
            self.look(time.monotonic())
