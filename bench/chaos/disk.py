"""Disk: a small separate one for the state directory, so that it can be filled without affecting other programs."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from pathlib import Path

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS of sched.h


class SmallDisk:
    """A file system of a given size in MB: ext4 in a file, else one in memory; `kind` is None if neither can be made
    (not root), and then it is an ordinary folder that cannot be filled. A context manager; the file stays.

    The disk is mounted in a namespace of this thread, and of all threads and processes that it starts from then on, so
    it goes with them, however they end.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder, self._image = folder / "disk", folder / "disk.ext4"
        self.kind: str | None = None
        self._megabytes = megabytes

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self._megabytes << 20)
        if os.geteuid() or ctypes.CDLL(None).unshare(_NEW_MOUNTS) or not _runs("mount", "--make-rprivate", "/"):
            return self
        if _runs("mkfs.ext4", "-q", "-m", "0", str(self._image)) and _runs(
            "mount", "-o", "loop", str(self._image), str(self.folder)
        ):
            self.kind = "ext4"
        elif _runs("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.folder)):
            self.kind = "tmpfs"
        return self

    def __exit__(self, *_: object) -> None:
        if self.kind is not None:
            _runs("umount", str(self.folder)) or _runs("umount", "-l", str(self.folder))

    def fill(self) -> None:
        """Fill it completely."""
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            size = 0
            for step in (64 << 20, 1 << 20, 4096):
                while True:
                    try:
                        os.posix_fallocate(filler.fileno(), size, step)
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
                    size += step

    def free(self) -> None:
        """Free the space again."""
        (self.folder / "filler").unlink(missing_ok=True)


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False
