"""A Blob in a directory of a local file system. Each system call goes through a `Disk` (disk.py)."""

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from vernier.storage.blob.blob import TEMPORARY, Buffer, HeldLock, Owner
from vernier.storage.blob.disk import Disk, OsDisk, storage_error
from vernier.storage.errors import FileExists, FileMissing, StorageError

Result = TypeVar("Result")

PIECE = 1 << 24
"""Bytes written between two syncs of a file, so that another process's sync waits for no more than that."""


class FileHold:
    """The lock that `LocalBlob.hold` returns: a locked file of its own."""

    alone = True

    def __init__(self, blob: "LocalBlob", name: str, held: HeldLock) -> None:
        self._blob, self._name = blob, name
        self._held: HeldLock | None = held

    def check(self) -> None:
        """Does nothing: the kernel never takes the lock away."""

    def release(self) -> None:
        """Delete the file and release its lock; idempotent."""
        held, self._held = self._held, None
        if held is not None:
            # Delete the name first: after the unlock, another process could create a file under it.
            self._blob.delete(self._name)
            held.release()


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
            self._link(temporary, name, data)
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

    def get_each(self, names: Sequence[str]) -> Sequence[bytes | StorageError]:
        """The files' bytes."""
        found = list[bytes | StorageError]()
        for name in names:
            try:
                found.append(self.get(name))
            except StorageError as problem:
                found.append(problem)
        return found

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """Which of these files do not exist."""
        return [name for name in names if self.size(name) is None]

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

    def lock(self, name: str) -> HeldLock | None:
        """Take an flock on a file and write this process's id into it."""
        held = self._flock(name)
        if held is not None:
            try:
                self.overwrite(name, f"{os.getpid():<10}\n".encode())
            except BaseException:
                held.release()
                raise
        return held

    def release_ended(self, name: str) -> bool:
        """False: the kernel releases the locks of processes that end."""
        return False

    def owner(self, name: str) -> Owner | None:
        """The process that last wrote its id into the lock's file."""
        try:
            return Owner(int(self.get(name).split()[0]))
        except (FileMissing, IndexError, ValueError):
            return None

    def hold(self, stem: str) -> HeldLock:
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

    def _flock(self, name: str) -> HeldLock | None:
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

    def _link(self, temporary: str, name: str, data: bytes) -> None:
        """Give a file its name. A network file system may lose the reply of a call that has happened."""
        try:
            self._do("link", name, self._disk.link, self._full(temporary), self._full(name))
        except FileExists:
            raise
        except StorageError:
            if self.size(name) is None or self.get(name) != data:
                raise

    def _drop(self, temporary: str) -> None:
        """Delete a temporary file if possible. The next start deletes any that are left."""
        with suppress(OSError):
            self._disk.unlink(self._full(temporary))

    def _do(self, operation: str, name: str, call: Callable[..., Result], *args: object) -> Result:
        try:
            return call(*args)
        except OSError as problem:
            raise storage_error(problem, operation, name, self._path) from problem
