"""A machine's disk in memory that knows what is durable, so that a power cut loses what was not synced.

What the rules of file systems promise, and no more: a file's bytes are durable after `sync` of the file, names in a
folder after `sync_folder`. At a power cut the names in a folder fall back to the last synced state plus some prefix of
what was done there since (journals keep the order within a folder; between folders nothing is promised); bytes that
were not synced are there in part, or not, or as zeros. One seeded `Random` decides.
"""

import errno
import os
import random
from collections.abc import Iterable, Sequence
from typing import Self

from vernier.storage.blob.blob import Buffer, HeldLock


class Inode:
    """A file: its bytes as processes see them, and as the device has them."""

    def __init__(self) -> None:
        self.data = b""
        self.durable = b""


class SimLock:
    """An flock in memory."""

    alone = True

    def __init__(self, holders: list[Self]) -> None:
        self._holders = holders
        holders.append(self)

    def check(self) -> None:
        pass

    def release(self) -> None:
        if self in self._holders:
            self._holders.remove(self)


class SimDisk:
    """All calls of `Disk` in storage/blob. A process that dies releases its locks; `cut_power` ends all of them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names: dict[str, Inode] = {}
        self._synced: dict[str, Inode] = {}
        # What was done to names since their folder was synced: each change whole or not at all.
        self._since: list[tuple[str, list[tuple[str, Inode | None]]]] = []
        self._folders: set[str] = set()
        self._open: dict[int, Inode] = {}
        self._fds = 3
        self._locks: dict[str, list[SimLock]] = {}

    def create(self, path: str) -> int:
        if path in self._names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if os.path.dirname(path) not in self._folders:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._change((path, Inode()))
        self._fds += 1
        self._open[self._fds] = self._names[path]
        return self._fds

    def write(self, fd: int, chunks: Sequence[Buffer]) -> int:
        data = b"".join(chunks)
        self._open[fd].data += data
        return len(data)

    def sync(self, fd: int) -> None:
        inode = self._open[fd]
        inode.durable = inode.data

    def close(self, fd: int) -> None:
        del self._open[fd]

    def rename(self, old: str, new: str) -> None:
        inode = self._find(old)
        self._change((new, inode), (old, None))

    def link(self, old: str, new: str) -> None:
        inode = self._find(old)
        if new in self._names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self._change((new, inode))

    def unlink(self, path: str) -> None:
        self._find(path)
        self._change((path, None))

    def sync_folder(self, path: str) -> None:
        for folder, changes in self._since:
            if folder == path:
                self._apply(self._synced, changes)
        self._since = [change for change in self._since if change[0] != path]

    def make_folder(self, path: str) -> None:
        self._folders.add(path)
        self._folders.add(os.path.dirname(path))

    def overwrite(self, path: str, data: bytes) -> None:
        if path not in self._names:
            self._change((path, Inode()))
        inode = self._names[path]
        inode.data = data + inode.data[len(data) :]

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._find(path).data[start : None if length is None else start + length]

    def map(self, path: str) -> memoryview:
        return memoryview(bytearray(self._find(path).data))

    def size(self, path: str) -> int:
        return len(self._find(path).data)

    def names(self, path: str) -> Iterable[str]:
        return [os.path.basename(name) for name in self._names if os.path.dirname(name) == path]

    def lock(self, path: str) -> HeldLock | None:
        if path not in self._names:
            self._change((path, Inode()))
        holders = self._locks.setdefault(path, [])
        return None if holders else SimLock(holders)

    def cut_power(self) -> None:
        """The machine stops: what was not synced is lost as the device likes, then it starts again."""
        self._locks.clear()
        self._open.clear()
        for folder in sorted(self._folders):
            mine = [changes for where, changes in self._since if where == folder]
            for changes in mine[: self._rng.randint(0, len(mine))]:
                self._apply(self._synced, changes)
        self._since = []
        self._names = dict(self._synced)
        for inode in {id(inode): inode for inode in self._names.values()}.values():
            if inode.data != inode.durable:
                inode.durable = self._fate(inode)
            inode.data = inode.durable

    def _fate(self, inode: Inode) -> bytes:
        """What is left of bytes that were not synced."""
        if len(inode.durable) == len(inode.data):
            cut = self._rng.randint(0, len(inode.data))
            return inode.data[:cut] + inode.durable[cut:]
        arrived = inode.data[: self._rng.randint(len(inode.durable), len(inode.data))]
        zeros = self._rng.choice((0, len(inode.data) - len(arrived)))
        return arrived + bytes(zeros)

    def _find(self, path: str) -> Inode:
        if path not in self._names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._names[path]

    def _change(self, *changes: tuple[str, Inode | None]) -> None:
        self._apply(self._names, changes)
        self._since.append((os.path.dirname(changes[0][0]), list(changes)))

    @staticmethod
    def _apply(names: dict[str, Inode], changes: Sequence[tuple[str, Inode | None]]) -> None:
        for path, inode in changes:
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
