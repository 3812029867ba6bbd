"""Where state lives: named files that are whole or absent, and one name that can be claimed only once.

`Blob` is all that segments, manifests and leases ask of a place to store things; it is small so that an object store
can offer it too. `LocalBlob` offers it on a local directory by way of a `Disk`, which is the operating system's calls
one method each: crash tests stand between the two and fail any single call.

What is durable when: the bytes of a file are synced before its name appears. The *name* is durable after the next
`sync` of its folder, so that many files need one such sync, not one each.
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
"""Suffix of files that are being written; whoever owns the directory may delete them when it starts."""

PIECE = 1 << 24
"""Bytes written between two syncs of a file: whoever else syncs waits for no more than that."""

MAX_VECTORS = 512
"""Buffers given to one writev call (the system's limit is 1024)."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""State is for the user that the service runs as, and nobody else."""

MAP_NORESERVE = 0x4000
"""Linux's flag; Python's mmap module names it from 3.13 on."""


@dataclass(frozen=True)
class Owner:
    """Who holds a lock. host: "" for this machine. left_ms: when it ends unless it is renewed; None: with its
    process."""

    pid: int
    host: str = ""
    left_ms: int | None = None


class Held(Protocol):
    """A lock that is held until it is released or its process ends, however it ends.

    alone: nobody who held it before can still be at work on what it guards.
    """

    @property
    def alone(self) -> bool: ...

    def check(self) -> None:
        """Raises OwnershipLost if it may not be held any more."""
        ...

    def release(self) -> None: ...


class Blob(Protocol):
    """A place for named byte strings. Names are `folder/file`, or `file`. All errors are `StorageError`s."""

    @property
    def where(self) -> str:
        """The place, for messages."""
        ...

    def prepare(self, folders: Sequence[str]) -> None:
        """Make the place and its folders if they are not there."""
        ...

    def put(self, name: str, chunks: Sequence[Buffer]) -> int:
        """Store the chunks as one file, whole or not at all; returns its bytes. The name is durable after `sync`."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Claim a new name: durable on return, as are all names given before in the same folder. Else FileExists."""
        ...

    def overwrite(self, name: str, data: bytes) -> None:
        """Set a small file's bytes at once; never needs room again once it exists, not durable, may be seen torn."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A file's bytes, or those of a piece of it: fewer than `length` where the file ends. FileMissing."""
        ...

    def map(self, name: str) -> memoryview:
        """A file's bytes without reading them: pages are loaded when touched. FileMissing."""
        ...

    def size(self, name: str) -> int | None:
        """A file's bytes, None if it is not there."""
        ...

    def list(self, folder: str) -> list[str]:
        """The names `folder/file` in a folder, sorted; empty if there is no such folder."""
        ...

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        ...

    def lock(self, name: str) -> Held | None:
        """Take a lock without waiting; None if someone else has it."""
        ...

    def owner(self, name: str) -> Owner | None:
        """Who has a lock, as far as can be told."""
        ...

    def hold(self, stem: str) -> Held:
        """A lock of its own under a new name that begins with `stem`; the name goes when it is released."""
        ...

    def present(self, folder: str) -> Sequence[str]:
        """The names in a folder that somebody alive has by `hold`; removes those of the dead. O(names)."""
        ...


class Disk(Protocol):
    """The file calls of an operating system; each raises OSError. Paths are absolute."""

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
    """An flock on an open file: the kernel drops it when the process is gone."""

    alone = True

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def check(self) -> None:
        """Nothing: the kernel takes it from nobody."""

    def release(self) -> None:
        """Let go; doing so twice is fine."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class FileHold:
    """A held file of `LocalBlob.hold`."""

    alone = True

    def __init__(self, blob: "LocalBlob", name: str, held: Held) -> None:
        self._blob, self._name = blob, name
        self._held: Held | None = held

    def check(self) -> None:
        """Nothing: the kernel takes it from nobody."""

    def release(self) -> None:
        """Remove the file and let go; doing so twice is fine."""
        held, self._held = self._held, None
        if held is not None:
            # The name goes first: after the unlock, another file could have been made under it.
            self._blob.delete(self._name)
            held.release()


class OsDisk:
    """The real operating system."""

    def create(self, path: str) -> int:
        """Open a file that must be new, for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)

    def write(self, fd: int, chunks: Sequence[Buffer]) -> int:
        """Write all the chunks one after the other; returns their bytes."""
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
        """Flush a file's bytes (and its length) to the device; times and the like are not needed."""
        os.fdatasync(fd)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename, over what has the new name."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must be free: the one atomic test-and-set of a file system."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def sync_folder(self, path: str) -> None:
        """Flush a folder's names to the device."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it. Folders that exist keep their modes."""
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            try:
                os.mkdir(folder, FOLDER_MODE)
            except FileExistsError:
                if not os.path.isdir(folder):  # else another process has made it meanwhile
                    raise

    def overwrite(self, path: str, data: bytes) -> None:
        """Write over the start of a file, in place."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, FILE_MODE)
        try:
            os.pwrite(fd, data, 0)
        finally:
            os.close(fd)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """All of a file, or a piece."""
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

        The mapping is private and writable: arrays over it are then of the same type for compiled kernels as arrays in
        memory (a read-only one would compile every kernel again). The file cannot change through it, nothing is
        reserved for copies that nobody makes, and it stays valid after the file is unlinked.
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
        """A file's bytes."""
        return os.stat(path).st_size

    def names(self, path: str) -> Iterable[str]:
        """The names in a folder, in no order."""
        return os.listdir(path)

    def lock(self, path: str) -> Held | None:
        """Take an flock without waiting, None if it is refused."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between open and flock someone may have unlinked the file: a lock on a nameless file excludes nobody.
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
    """The error of ours that says what the operating system's error means here."""
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
    """The chunks in groups of at most `PIECE` bytes, larger ones cut; one group, though it be empty, at least."""
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
    """A Blob in a directory of a local file system (or any that has links, renames and flock)."""

    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self._path = os.path.abspath(path)
        self._disk: Disk = disk or OsDisk()
        self._serial = itertools.count()

    @property
    def where(self) -> str:
        """The directory's path."""
        return self._path

    def prepare(self, folders: Sequence[str]) -> None:
        """Make the directory and its folders, durably."""
        for folder in folders:
            self._do("make", folder, self._disk.make_folder, self._full(folder))
        for path in (self._path, os.path.dirname(self._path)):
            self._do("sync", path, self._disk.sync_folder, path)

    def put(self, name: str, chunks: Sequence[Buffer]) -> int:
        """Temporary file, sync, rename: whole or not at all. One sync."""
        temporary, fd = self._open_temporary(name)
        try:
            written = self._write(fd, name, chunks)
            self._do("rename", name, self._disk.rename, self._full(temporary), self._full(name))
        except StorageError:
            self._drop(temporary)
            raise
        return written

    def create(self, name: str, data: bytes) -> None:
        """Temporary file, sync, link (which fails if the name exists), sync of the folder. Two syncs."""
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
        """Give a file another name."""
        self._do("rename", old, self._disk.rename, self._full(old), self._full(new))

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""
        with suppress(FileMissing):
            self._do("delete", name, self._disk.unlink, self._full(name))

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A file's bytes, or those of a piece of it."""
        return self._do("read", name, self._disk.read, self._full(name), start, length)

    def map(self, name: str) -> memoryview:
        """A file's bytes by mmap."""
        return self._do("map", name, self._disk.map, self._full(name))

    def size(self, name: str) -> int | None:
        """A file's bytes, None if it is not there."""
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
        """Take an flock on a file, and write our process id into it."""
        held = self._flock(name)
        if held is not None:
            try:
                self.overwrite(name, f"{os.getpid():<10}\n".encode())
            except BaseException:
                held.release()
                raise
        return held

    def owner(self, name: str) -> Owner | None:
        """Who wrote its process id into the lock's file last."""
        try:
            return Owner(int(self.get(name).split()[0]))
        except (FileMissing, IndexError, ValueError):
            return None

    def hold(self, stem: str) -> Held:
        """An flock on a new file `<stem>.<pid>.<serial>`."""
        while True:
            name = f"{stem}.{os.getpid()}.{next(self._serial)}"
            held = self._flock(name)
            # Refused where another container's process has this name, or somebody removes the file of a dead one.
            if held is not None:
                return FileHold(self, name, held)

    def present(self, folder: str) -> Sequence[str]:
        """The files in a folder that are locked; those whose lock we get are nobody's, and are removed."""
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
        """A new file to write `name` in: its name and descriptor."""
        while True:
            temporary = f"{name}.{os.getpid()}.{next(self._serial)}{TEMPORARY}"
            # A process that died may have left one of this name: process ids come again, in containers always.
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
        """Remove a temporary file as well as can be: what stays behind, the next start removes."""
        with suppress(OSError):
            self._disk.unlink(self._full(temporary))

    def _do(self, operation: str, name: str, call: Callable[..., Result], *args: object) -> Result:
        try:
            return call(*args)
        except OSError as problem:
            raise storage_error(problem, operation, name, self._path) from problem
