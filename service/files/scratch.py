"""A running service's folder for files that no later process needs: Spark's files, sockets, native libraries.

The folder is beside the state, under a root that all runs of the service share. Each run holds a lock on its own
folder, which the kernel releases however the run ends. The next run can therefore remove the folders of runs that were
killed, and no others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

_LOCK = "lock"


class Scratch:
    """The folder of one run, `path`, readable by its owner only. Raises OSError if it cannot be created."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = root
        with _locked(root / _LOCK):
            _remove_others(root)
            # The name is short, because the paths of sockets must be.
            self.path = root / secrets.token_hex(3)
            self.path.mkdir(mode=0o700)
            self._held = os.open(self._lock_of(self.path), os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the folder."""
        with _locked(self._root / _LOCK):
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock_of(self.path).unlink(missing_ok=True)
            os.close(self._held)

    @staticmethod
    def _lock_of(folder: Path) -> Path:
        return folder.with_name(f"{folder.name}.lock")


def _remove_others(root: Path) -> None:
    """Remove the folders of runs that have ended."""
    for lock in root.glob("*.lock"):
        held = os.open(lock, os.O_RDWR)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
        finally:
            os.close(held)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    held = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
