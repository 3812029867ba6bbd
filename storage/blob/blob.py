"""The interface of the place where state lives: named files that are whole or absent, and names that only one process
can create.

`Blob` is everything that segments, manifests and leases need from storage. It is kept small so that an object store can
implement it, too. `LocalBlob` implements it on a local directory through a `Disk`, which has one method per operating
system call. Crash tests replace the `Disk` and let any single call fail.

Durability: the bytes of a file are synced before its name appears. The *name* is durable after the next `sync` of its
folder, so one such sync serves many files.
"""

import errno
import fcntl
import itertools
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from vernier.storage.errors import DiskFull, FileExists, FileFailed, FileMissing, StorageError, SyncFailed

Buffer = bytes | bytearray | memoryview
Result = TypeVar("Result")

TEMPORARY = ".tmp"
"""Suffix of files that are being written. The owner of the directory may delete them when it starts."""

PIECE = 1 << 24
"""Bytes written between two syncs of a file, so that another process's sync waits for no more than that."""

MAX_VECTORS = 512
"""Buffers per writev call (the system's limit is 1024)."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Only the user that the service runs as can read the state."""

MAP_NORESERVE = 0x4000
"""The flag's value on Linux. Python's mmap module defines it only from version 3.13 on."""


@dataclass(frozen=True)
class Owner:
    """The holder of a lock. host: "" for this machine. left_ms: the time until it expires unless it is renewed; None if
    it ends with its process."""

    pid: int
    host: str = ""
    left_ms: int | None = None


class Held(Protocol):
    """A lock that is held until it is released or its process ends, in whatever way it ends.

    alone: no earlier holder can still be working on what the lock guards.
    """

    @property
    def alone(self) -> bool: ...

    def check(self) -> None:
        """Raises OwnershipLost if the lock may have been lost."""
        ...

    def release(self) -> None: ...


class Blob(Protocol):
    """A place for named byte strings. Names are `folder/file` or `file`. All errors are `StorageError`s."""

    @property
    def where(self) -> str:
        """The path or URI, for messages."""
        ...

    def prepare(self, folders: Sequence[str]) -> None:
        """Create the place and its folders if they do not exist."""
        ...

    def put(self, name: str, chunks: Sequence[Buffer]) -> int:
        """Store the chunks as one file, whole or not at all; returns its size. The name is durable after `sync`."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create a file under a new name; it and all earlier names in its folder are durable on return. Raises
        FileExists."""
        ...

    def overwrite(self, name: str, data: bytes) -> None:
        """Replace a small file's bytes in place. Needs no disk space once the file exists; not durable; readers may see
        a torn write."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file. A missing file is no error."""
        ...

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A file's bytes, or a range of them: fewer than `length` if the file ends before. Raises FileMissing."""
        ...

    def map(self, name: str) -> memoryview:
        """A file's bytes, mapped: pages are loaded when they are touched. Raises FileMissing."""
        ...

    def size(self, name: str) -> int | None:
        """A file's size in bytes, None if it does not exist."""
        ...

    def list(self, folder: str) -> list[str]:
        """The names `folder/file` in a folder, sorted; empty if the folder does not exist."""
        ...

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        ...

    def lock(self, name: str) -> Held | None:
        """Take a lock without waiting; None if another process has it."""
        ...

    def owner(self, name: str) -> Owner | None:
        """Who has a lock, as far as this can be determined."""
        ...

    def hold(self, stem: str) -> Held:
        """Take a lock on a new name that begins with `stem`; releasing the lock deletes the name."""
        ...

    def present(self, folder: str) -> Sequence[str]:
        """The names in a folder that live processes have by `hold`; deletes those of dead processes. O(names)."""
        ...


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
    def lock(self, path: str) -> Held | None: ...


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


class FileHold:
    """The lock that `LocalBlob.hold` returns: a locked file of its own."""

    alone = True

    def __init__(self, blob: "LocalBlob", name: str, held: Held) -> None:
        self._blob, self._name = blob, name
        self._held: Held | None = held

    def check(self) -> None:
        """Does nothing: the kernel never takes the lock away."""

    def release(self) -> None:
        """Delete the file and release its lock; idempotent."""
        held, self._held = self._held, None
        if held is not None:
            # Delete the name first: after the unlock, another process could create a file under it.
            self._blob.delete(self._name)
            held.release()


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
        waiting = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
        at = 0
        while at < len(waiting):
            written = os.writev(fd, waiting[at : at + MAX_VECTORS])
            total += written
            while written:
                taken = min(written, waiting[at].nbytes)
                written -= taken
                if taken == waiting[at].nbytes:
                    at += 1
                else:
                    waiting[at] = waiting[at][taken:]
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

    def lock(self, path: str) -> Held | None:
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


def _pieces(chunks: Sequence[Buffer]) -> Iterable[Sequence[Buffer]]:
    """The chunks in groups of at most `PIECE` bytes; larger chunks are split. Yields at least one group, which may be
    empty."""
    group: list[Buffer] = []
    size = 0
    for chunk in chunks:
        if not memoryview(chunk).nbytes:
            continue
        left = memoryview(chunk).cast("B")
        while size + left.nbytes > PIECE:
            group.append(left[: PIECE - size])
            left = left[PIECE - size :]
            yield group
            group, size = [], 0
        group.append(left)
        size += left.nbytes
    yield group


class LocalBlob:
    """A Blob in a directory of a local file system, or of any that has hard links, atomic renames and flock."""

    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self._path = os.path.abspath(path)
        self._disk: Disk = disk or OsDisk()
        self._serial = itertools.count()

    @property
    def where(self) -> str:
        """The directory's path."""
        return self._path

    def prepare(self, folders: Sequence[str]) -> None:
        """Create the directory and its folders, durably."""
        for folder in folders:
            self._do("make", folder, self._disk.make_folder, self._full(folder))
        for path in (self._path, os.path.dirname(self._path)):
            self._do("sync", path, self._disk.sync_folder, path)

    def put(self, name: str, chunks: Sequence[Buffer]) -> int:
        """Temporary file, sync, rename: the file is whole or absent. One sync."""
        temporary, fd = self._open_temporary(name)
        try:
            written = self._write(fd, name, chunks)
            self._do("rename", name, self._disk.rename, self._full(temporary), self._full(name))
        except StorageError:
            self._drop(temporary)
            raise
        return written

    def create(self, name: str, data: bytes) -> None:
        """Temporary file, sync, link (which fails if the name exists), folder sync. Two syncs."""
        temporary, fd = self._open_temporary(name)
        try:
            self._write(fd, name, [data])
            self._do("link", name, self._disk.link, self._full(temporary), self._full(name))
        finally:
            self._drop(temporary)
        self.sync(os.path.dirname(name))

    def overwrite(self, name: str, data: bytes) -> None:
        """One write in place."""
        self._do("overwrite", name, self._disk.overwrite, self._full(name), data)

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._do("rename", old, self._disk.rename, self._full(old), self._full(new))

    def delete(self, name: str) -> None:
        """Delete a file. A missing file is no error."""
        with suppress(FileMissing):
            self._do("delete", name, self._disk.unlink, self._full(name))

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A file's bytes, or a range of them."""
        return self._do("read", name, self._disk.read, self._full(name), start, length)

    def map(self, name: str) -> memoryview:
        """A file's bytes by mmap."""
        return self._do("map", name, self._disk.map, self._full(name))

    def size(self, name: str) -> int | None:
        """A file's size in bytes, None if it does not exist."""
        try:
            return self._do("stat", name, self._disk.size, self._full(name))
        except FileMissing:
            return None

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        try:
            names = self._do("list", folder, self._disk.names, self._full(folder))
        except FileMissing:
            return []
        return sorted(f"{folder}/{name}" for name in names)

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        self._do("sync", folder, self._disk.sync_folder, self._full(folder))

    def lock(self, name: str) -> Held | None:
        """Take an flock on a file and write this process's id into it."""
        held = self._flock(name)
        if held is not None:
            try:
                self.overwrite(name, f"{os.getpid():<10}\n".encode())
            except BaseException:
                held.release()
                raise
        return held

    def owner(self, name: str) -> Owner | None:
        """The process that last wrote its id into the lock's file."""
        try:
            return Owner(int(self.get(name).split()[0]))
        except (FileMissing, IndexError, ValueError):
            return None

    def hold(self, stem: str) -> Held:
        """An flock on a new file `<stem>.<pid>.<serial>`."""
        while True:
            name = f"{stem}.{os.getpid()}.{next(self._serial)}"
            held = self._flock(name)
            # The lock is refused if a process in another container uses this name, or if `present` is just deleting the
            # file of a dead process.
            if held is not None:
                return FileHold(self, name, held)

    def present(self, folder: str) -> Sequence[str]:
        """The locked files in a folder. A file whose lock can be taken belongs to a dead process and is deleted."""
        living = []
        for name in self.list(folder):
            held = self._flock(name)
            if held is None:
                living.append(name)
            else:
                self.delete(name)
                held.release()
        return living

    def _flock(self, name: str) -> Held | None:
        return self._do("lock", name, self._disk.lock, self._full(name))

    def _full(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _open_temporary(self, name: str) -> tuple[str, int]:
        """Open a new temporary file for `name`; returns its name and descriptor."""
        while True:
            temporary = f"{name}.{os.getpid()}.{next(self._serial)}{TEMPORARY}"
            # A dead process may have left a file of this name: process ids are reused, in containers always.
            with suppress(FileExists):
                return temporary, self._do("create", name, self._disk.create, self._full(temporary))

    def _write(self, fd: int, name: str, chunks: Sequence[Buffer]) -> int:
        try:
            written = 0
            for piece in _pieces(chunks):
                written += self._do("write", name, self._disk.write, fd, piece)
                self._do("sync", name, self._disk.sync, fd)
        finally:
            self._do("close", name, self._disk.close, fd)
        return written

    def _drop(self, temporary: str) -> None:
        """Delete a temporary file if possible. The next start deletes any that are left."""
        with suppress(OSError):
            self._disk.unlink(self._full(temporary))

    def _do(self, operation: str, name: str, call: Callable[..., Result], *args: object) -> Result:
        try:
            return call(*args)
        except OSError as problem:
            raise storage_error(problem, operation, name, self._path) from problem
