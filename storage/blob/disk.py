"""The file calls of an operating system, one method for each call.

`LocalBlob` makes all of its calls through a `Disk`. Crash tests replace it and let any single call fail.
"""

import errno
import fcntl
import mmap
import os
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from vernier.storage.blob.blob import Buffer, HeldLock
from vernier.storage.errors import DiskFull, FileExists, FileFailed, FileMissing, StorageError, SyncFailed

MAX_VECTORS = 512
"""Buffers per writev call (the system's limit is 1024)."""
MAX_BYTES = 1 << 20
"""Bytes per writev call. Of more than two megabytes at once, ext4 takes three to ten times as long as of pieces."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Only the user that the service runs as can read the state."""

MAP_NORESERVE = 0x4000
"""The flag's value on Linux. Python's mmap module defines it only from version 3.13 on."""


class Disk(Protocol):
    """The file calls of an operating system. Each raises OSError. Paths are absolute."""

    def create(self, path: str) -> int: ...
    def write(self, fd: int, chunks: Sequence[Buffer]) -> int: ...
    def sync(self, fd: int) -> None: ...
    def close(self, fd: int) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def link(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def sync_folder(self, path: str) -> None: ...
    def make_folder(self, path: str) -> None: ...
    def overwrite(self, path: str, data: bytes) -> None: ...
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes: ...
    def map(self, path: str) -> memoryview: ...
    def size(self, path: str) -> int: ...
    def names(self, path: str) -> Iterable[str]: ...
    def lock(self, path: str) -> HeldLock | None: ...


class FileLock:
    """An flock on an open file. The kernel releases it when the process ends."""

    alone = True

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def check(self) -> None:
        """Does nothing: the kernel never takes the lock away."""

    def release(self) -> None:
        """Release the lock; idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class OsDisk:
    """The real operating system. file_mode, folder_mode: of what it creates, reduced by the process's umask."""

    def __init__(self, file_mode: int = FILE_MODE, folder_mode: int = FOLDER_MODE) -> None:
        self._file_mode, self._folder_mode = file_mode, folder_mode

    def create(self, path: str) -> int:
        """Create a new file for writing; fails if it exists."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._file_mode)

    def write(self, fd: int, chunks: Sequence[Buffer]) -> int:
        """Write all chunks one after the other; returns the bytes written."""
        total = 0
        waiting = deque(memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes)
        while waiting:
            some, left = list[memoryview](), MAX_BYTES
            for chunk in islice(waiting, MAX_VECTORS):
                some.append(chunk[:left])
                left -= some[-1].nbytes
                if left == 0:
                    break
            written = os.writev(fd, some)
            total += written
            while written:
                first = waiting.popleft()
                if written < first.nbytes:
                    waiting.appendleft(first[written:])
                written -= min(written, first.nbytes)
        return total

    def sync(self, fd: int) -> None:
        """Flush a file's bytes and length to the device, but not its timestamps."""
        os.fdatasync(fd)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing any file of the new name."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free. This is the one atomic test-and-set of a file system."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        """Delete a name."""
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        """Flush a folder's entries to the device."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_folder(self, path: str) -> None:
        """Create a folder and its missing parents. Existing folders keep their modes."""
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            try:
                os.mkdir(folder, self._folder_mode)
            except FileExistsError:
                if not os.path.isdir(folder):  # another process may have created it meanwhile
                    raise

    def overwrite(self, path: str, data: bytes) -> None:
        """Overwrite the start of a file in place."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, self._file_mode)
        try:
            os.pwrite(fd, data, 0)
        finally:
            os.close(fd)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """All of a file, or a range of it."""
        fd = os.open(path, os.O_RDONLY)
        try:
            left = max(0, os.fstat(fd).st_size - start) if length is None else length
            parts = []
            while left and (part := os.pread(fd, left, start)):
                parts.append(part)
                left -= len(part)
                start += len(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def map(self, path: str) -> memoryview:
        """All of a file, by mmap.

        The mapping is private and writable. Arrays over it then have the same type for compiled kernels as arrays in
        memory; read-only arrays would compile every kernel a second time. Writing to the mapping does not change the
        file. No swap is reserved for private copies, because none are made. The mapping stays valid after the file is
        unlinked.
        """
        fd = os.open(path, os.O_RDONLY)
        try:
            length = os.fstat(fd).st_size
            if length == 0:
                return memoryview(b"")
            flags = mmap.MAP_PRIVATE | MAP_NORESERVE
            return memoryview(mmap.mmap(fd, length, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE))
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        """A file's size in bytes."""
        return os.stat(path).st_size

    def names(self, path: str) -> Iterable[str]:
        """The names in a folder, unordered."""
        return os.listdir(path)

    def lock(self, path: str) -> HeldLock | None:
        """Take an flock without waiting; None if another process has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, self._file_mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have unlinked the file between open and flock. A lock on an unlinked file excludes no
            # one.
            held, named = os.fstat(fd), os.stat(path)
            if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino):
                return FileLock(fd)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None


def storage_error(problem: OSError, operation: str, name: str, where: str) -> StorageError:
    """The StorageError that corresponds to an OSError."""
    reason = os.strerror(problem.errno).lower() if problem.errno else str(problem)
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(name=name, where=where)
    if problem.errno == errno.ENOENT:
        return FileMissing(name=name, where=where)
    if problem.errno == errno.EEXIST:
        return FileExists(name=name, where=where)
    kind = SyncFailed if operation == "sync" else FileFailed
    return kind(operation=operation, name=name, where=where, reason=reason)
