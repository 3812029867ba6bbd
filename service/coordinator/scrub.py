"""Scrub: reads the newest epoch's files and compares their checksums: all of them once at the start, then slowly for
ever.

Workers open large batches without verifying them and read only a few pages of each, so a restart takes as long for a
large state as for a small one. Instead, the driver verifies these batches while Spark starts, and no epoch begins
before it has finished. After that it reads every file again about every ten minutes, to find bit rot. While a file of
the newest epoch is damaged, no epoch is made; the next attempt checks whether the file has been restored.

Only for local directories. For an object store, each process compares the checksum of its local copy of a segment.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from vernier.service.errors import StateDamaged
from vernier.storage.blob.segment import read_and_verify, segment_file
from vernier.storage.errors import Damaged, FileMissing, StorageError
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory
from vernier.storage.threads import Threads

ROUND_SECONDS = 600.0
"""The minimum number of seconds from the start of one round to the start of the next."""
_log = logging.getLogger("vernier.scrub")


class Scrub:
    """Verifies the files of `newest` in a thread of `threads`. rate: bytes per second after the first round; 0: only
    the first round.

    `require` is called from another thread, the one that makes epochs.
    """

    def __init__(
        self, directory: StateDirectory, newest: Callable[[], Manifest | None], rate: int, threads: Threads
    ) -> None:
        self._directory, self._newest, self._rate = directory, newest, rate
        self._verified: set[str] = set()
        self._damaged: dict[str, StorageError] = {}
        self._first, self._stop = threading.Event(), threading.Event()
        self._loop = threads.start("scrub", self._run)

    def require(self, *, anew: bool = False) -> None:
        """Wait for the first round, then check that no file of the newest epoch is known to be damaged.

        anew: an attempt has failed, so a worker may open files that were written since the first round; verify these,
        too. Raises StateDamaged. O(1) while all is well.
        """
        self._first.wait()
        if not self._damaged and not anew:
            return
        named = self._named()
        for name in sorted(named & self._damaged.keys()):
            self._verify(name, 0)
        if anew:
            for name in sorted(named - self._verified - self._damaged.keys()):
                self._verify(name, 0)
        for name in sorted(named & self._damaged.keys()):
            problem = self._damaged[name]
            raise StateDamaged(path=self._directory.path, problem=str(problem), file=segment_file(name))

    @property
    def damaged(self) -> list[str]:
        """The segments that are known to be damaged."""
        return sorted(self._damaged)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._loop.stop(None)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _run(self, _stopping: threading.Event) -> None:
        began = time.monotonic()
        try:
            self._round(0)
        finally:
            self._first.set()
        _log.debug("the state was verified in %.1f s", time.monotonic() - began)
        while self._rate and not self._stop.wait(max(0.0, began + ROUND_SECONDS - time.monotonic())):
            began = time.monotonic()
            self._round(self._rate)

    def _round(self, rate: int) -> None:
        """Verify all files that the newest manifest names, starting with those that have never been verified."""
        named = self._named()
        self._verified &= named
        for name in self._damaged.keys() - named:
            self._damaged.pop(name, None)
        for name in sorted(named, key=lambda name: (name in self._verified, name)):
            if self._stop.is_set():
                return
            self._verify(name, rate)

    def _verify(self, name: str, rate: int) -> None:
        """Compare one file's checksums, reading at most `rate` bytes per second (0: no limit)."""
        try:
            for size in read_and_verify(self._directory.blob, name):
                if rate and self._stop.wait(size / rate):
                    return
        except (Damaged, FileMissing) as problem:
            # If the file has been garbage-collected in the meantime, its absence is not an error.
            if name in self._named():
                self._verified.discard(name)
                if name not in self._damaged:
                    _log.error("%s", problem)
                self._damaged[name] = problem
        except StorageError as problem:
            _log.warning("cannot verify segment %s: %s", name, problem)
        else:
            self._verified.add(name)
            if self._damaged.pop(name, None) is not None:
                _log.warning("segment %s is intact again", name)

    def _named(self) -> frozenset[str]:
        newest = self._newest()
        return frozenset() if newest is None else newest.segments()
