"""Keeps the reader at the newest epoch, in a thread of its own, and wakes the requests that wait for a new epoch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from pathlib import Path

from vernier.service.sidecar.commit_watch import CommitWatch
from vernier.service.sidecar.problems import NoEpoch, Unreadable
from vernier.service.sidecar.prompt_files import promptly
from vernier.service.views.snapshot_reader import Reader, Snapshot
from vernier.storage.errors import Damaged
from vernier.storage.threads import Loop, Threads

_log = logging.getLogger("vernier.sidecar")


class Follower:
    """Polls a reader after each commit, or every `poll_ms` where commits are not heard of (commit_watch.py); folder:
    the state's, if it may be watched. Any thread may read `snapshot` and `failure`. files: those of the state, for
    requests: a store that does not answer does not make them wait."""

    def __init__(self, reader: Reader, poll_ms: float, folder: Path | None = None) -> None:
        self.reader = reader
        self.files = promptly(reader.files)
        self._watch = CommitWatch(folder, poll_ms / 1000)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fresh = asyncio.Event()
        self._threads = Threads()
        self._following: Loop | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest epoch; None before the first."""
        return self.reader.snapshot

    @property
    def failure(self) -> str | None:
        """Why the newest state cannot be read."""
        return self.reader.failure

    def require(self) -> Snapshot:
        """The newest epoch. Raises NoEpoch, or Damaged or Unreadable if there is an epoch that cannot be read."""
        snapshot, problem = self.reader.snapshot, self.reader.problem
        if snapshot is None and isinstance(problem, Damaged):
            raise problem
        if snapshot is None and self.reader.failure is not None:
            raise Unreadable(problem=self.reader.failure)
        if snapshot is None:
            raise NoEpoch(path=self.reader.files.where)
        return snapshot

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread. The first poll has happened on return, so existing epochs can be queried at once."""
        self._loop = loop
        self._look()
        self._following = self._threads.start("follower", self._run)

    def stop(self) -> None:
        """End the thread and close the files."""
        if self._following is not None:
            self._following.stop(None)
        self._watch.close()
        self.reader.close()

    async def woken(self, timeout: float) -> None:
        """Wait for the next snapshot (or `wake`), at most `timeout` seconds. Check `snapshot` before and after."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._fresh.wait(), timeout)

    async def after(self, seen: Snapshot | None, timeout: float) -> Snapshot | None:
        """The first snapshot other than `seen`; after `timeout` seconds, the current one."""
        deadline = time.monotonic() + timeout
        while self.snapshot is seen and (left := deadline - time.monotonic()) > 0:
            await self.woken(left)
        return self.snapshot

    def wake(self) -> None:
        """Wake all waiting requests. Call on the event loop."""
        waiting, self._fresh = self._fresh, asyncio.Event()
        waiting.set()

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._watch.wait(stopping)
            if not stopping.is_set() and self._look():
                self._watch.found()

    def _look(self) -> bool:
        """Returns whether the snapshot changed."""
        try:
            changed = self.reader.poll()
        except Exception as error:
            # Following must continue whatever an epoch contains; readers learn of the problem through `failure`.
            if self.reader.failure != str(error):
                _log.exception("cannot follow the state directory")
            self.reader.failure = str(error) or type(error).__name__
            return False
        if changed and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wake)
        return changed
