"""Scrub: reads the newest epoch's files and compares their checksums, all of them at the start, then slowly for ever.

Workers open large layers unverified and read a few pages of each, so that a restart takes as long for a large state as
for a small one. The driver verifies these layers in their place, while Spark starts, and no epoch begins before that is
done. Afterwards every file is read again every ten minutes or so, to find what a disk forgets. While a file of
the newest epoch is damaged no epoch is made; the next attempt looks whether the file has been put back.

Only for directories: the local copy of a segment in an object store has a checksum that each process compares.
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

ROUND_SECONDS = 600.0
"""From the beginning of one round to that of the next, at least."""
_log = logging.getLogger("vernier.scrub")


class Scrub:
    """Verifies what `newest` names in a thread of its own. rate: bytes a second after the first round; 0: only that.

    `require` is for another thread, which makes epochs.
    """

    def __init__(self, directory: StateDirectory, newest: Callable[[], Manifest | None], rate: int) -> None:
        self._directory, self._newest, self._rate = directory, newest, rate
        self._verified: set[str] = set()
        self._damaged: dict[str, StorageError] = {}
        self._first, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="vernier-scrub", daemon=True)
        self._thread.start()

    def require(self, *, anew: bool = False) -> None:
        """Wait for the first round, then see that no file of the newest epoch is known to be damaged.

        anew: an attempt has failed, so a worker may open files that were written since then: verify these, too.
        Raises StateDamaged. O(1) while all is well.
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
        self._thread.join()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
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
        """Verify all files that the newest manifest names now, those that never were first."""
        named = self._named()
        self._verified &= named
        for name in self._damaged.keys() - named:
            self._damaged.pop(name, None)
        for name in sorted(named, key=lambda name: (name in self._verified, name)):
            if self._stop.is_set():
                return
            self._verify(name, rate)

    def _verify(self, name: str, rate: int) -> None:
        """Compare one file's checksums, at most so many bytes a second (0: as fast as can be)."""
        try:
            for size in read_and_verify(self._directory.blob, name):
                if rate and self._stop.wait(size / rate):
                    return
        except (Damaged, FileMissing) as problem:
            # A file that is collected meanwhile is not missed.
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
                _log.warning("segment %s is whole again", name)

    def _named(self) -> frozenset[str]:
        newest = self._newest()
        return frozenset() if newest is None else newest.segments()
