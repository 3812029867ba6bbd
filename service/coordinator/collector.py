"""Garbage collection between epochs: old manifests and the files that no kept epoch needs."""

from __future__ import annotations

import logging
import threading

from vernier.service.status import publisher
from vernier.storage.errors import StorageError
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Loop, Threads

GC_EVERY = 16
"""The number of epochs between two garbage collections. Each collection lists the leases, which costs more than the few
files that become garbage in between."""

_log = logging.getLogger("vernier.epochs")


class Collector:
    """Collects the garbage of one state directory. keep: how many manifests to keep. hold: how many more to keep, at
    most, while a publisher is behind. threads: collect in a thread of theirs; None: while the caller waits."""

    def __init__(self, directory: StateDirectory, keep: int, hold: int, threads: Threads | None) -> None:
        self._directory, self._keep, self._hold = directory, keep, hold
        self._threads = threads
        self._running: Loop | None = None

    def collect(self, newest: Manifest | None) -> None:
        """Every GC_EVERY epochs, delete what no kept epoch needs. Failed deletions are tried again later."""
        if newest is None or newest.epoch % GC_EVERY:
            return
        if self._threads is None:
            self._directory.gc(self._kept(newest))
            return
        if self._running is None or not self._running.alive:

            def collect(_stopping: threading.Event) -> None:
                try:
                    self._directory.gc(self._kept(newest))
                except StorageError as problem:
                    _log.warning("old epochs are not collected yet: %s", problem)

            self._running = self._threads.start("collect", collect, again=False)

    def close(self) -> None:
        """Wait for the end of a running collection."""
        if self._running is not None:
            self._running.stop(None)

    def _kept(self, newest: Manifest) -> int:
        """How many epochs to keep, including those that the publisher has not sent yet."""
        published = publisher.read(self._directory.blob) if self._hold else None
        if published is None:
            return self._keep
        return self._keep + max(0, min(newest.epoch - published.epoch, self._hold))
