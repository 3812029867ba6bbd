"""A disk, and an object store, that fail on purpose at their n-th call.

`FaultyDisk` stands between a `LocalBlob` and any disk, `FaultyStore` between an `ObjectBlob` and any store, and they
count the calls that pass. At the chosen one they do what `Fault` says. Each plays one process: once that has crashed,
no call is answered any more, and its locks are gone.
"""

import enum
import errno
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from vernier.storage.blob.blob import Buffer, HeldLock
from vernier.storage.blob.disk import Disk
from vernier.storage.blob.object_store import Store

Result = TypeVar("Result")


class Crash(BaseException):
    """The process is dead as far as the disk can tell. Not an Exception, because no code may handle it."""


class Fault(enum.Enum):
    """What happens at the chosen call."""

    CRASH_BEFORE = "the process ends before the call"
    CRASH_AFTER = "the process ends after the call, before it knows"
    TORN_WRITE = "half of what is written arrives, then the process ends"
    LOST_REPLY = "the call happens, but is reported as failed"
    DISK_FULL = "this call and all later ones that need room find none"
    KILL = "the process kills itself with SIGKILL before the call"


NEEDS_ROOM = frozenset({"create", "write", "rename", "link", "make_folder", "overwrite", "put"})
CHANGES = NEEDS_ROOM | {"sync", "close", "unlink", "sync_folder", "lock", "remove"}


class Faults:
    """Counts calls that change something, and fails the `at`-th of them (from 1); never, if `at` is 0."""

    def __init__(self, fault: Fault, at: int) -> None:
        self._fault, self._at = fault, at
        self._next = ("", 0)
        self.calls: list[str] = []
        self.crashed = False

    @property
    def reached(self) -> bool:
        """Whether the chosen call has been made."""
        return 0 < self._at <= len(self.calls)

    def fail_next(self, name: str, skip: int = 0) -> None:
        """Let the fault strike at the next call of this name, or some later one."""
        self._at, self._next = 0, (name, skip)

    def fail_later(self, fault: Fault, calls: int) -> None:
        """Let a fault strike at a call that is still to come: the next is 1."""
        self._fault, self._at = fault, len(self.calls) + calls

    def repair(self) -> None:
        """Make room again; from here on nothing fails."""
        self._at, self._next = 0, ("", 0)

    def end(self) -> None:
        """The process is gone."""
        self.crashed = True

    def strike(
        self,
        name: str,
        path: str,
        call: Callable[..., Result],
        *args: object,
        torn: Callable[[], None] | None = None,
    ) -> Result:
        if self.crashed:
            raise Crash
        if name not in CHANGES:
            return call(*args)
        self.calls.append(f"{name} {os.path.basename(path)}".strip())
        wanted, skip = self._next
        if name == wanted:
            self._next = (name, skip - 1) if skip else ("", 0)
            self._at = 0 if skip else len(self.calls)
        full = self._fault is Fault.DISK_FULL and self.reached
        if full and name in NEEDS_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if len(self.calls) != self._at or full:
            return call(*args)
        if self._fault is Fault.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault is Fault.LOST_REPLY:
            call(*args)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if self._fault is Fault.CRASH_AFTER:
            call(*args)
        if self._fault is Fault.TORN_WRITE and torn is not None:
            torn()
        self.end()
        raise Crash


class FaultyDisk(Faults):
    """A disk whose calls fail as `Faults` says."""

    def __init__(self, inner: Disk, fault: Fault = Fault.CRASH_BEFORE, at: int = 0) -> None:
        super().__init__(fault, at)
        self._inner = inner
        self._open: set[int] = set()
        self._held: list[HeldLock] = []

    def end(self) -> None:
        """The process is gone: the system closes its files and drops its locks."""
        super().end()
        while self._open:
            self._inner.close(self._open.pop())
        while self._held:
            self._held.pop().release()

    def create(self, path: str) -> int:
        def call() -> int:
            fd = self._inner.create(path)
            self._open.add(fd)
            return fd

        return self.strike("create", path, call)

    def write(self, fd: int, chunks: Sequence[Buffer]) -> int:
        def torn() -> None:
            data = b"".join(chunks)
            self._inner.write(fd, [data[: len(data) // 2]])

        return self.strike("write", "", self._inner.write, fd, chunks, torn=torn)

    def sync(self, fd: int) -> None:
        self.strike("sync", "", self._inner.sync, fd)

    def close(self, fd: int) -> None:
        def call() -> None:
            self._inner.close(fd)
            self._open.discard(fd)

        self.strike("close", "", call)

    def rename(self, old: str, new: str) -> None:
        self.strike("rename", new, self._inner.rename, old, new)

    def link(self, old: str, new: str) -> None:
        self.strike("link", new, self._inner.link, old, new)

    def unlink(self, path: str) -> None:
        self.strike("unlink", path, self._inner.unlink, path)

    def sync_folder(self, path: str) -> None:
        self.strike("sync_folder", path, self._inner.sync_folder, path)

    def make_folder(self, path: str) -> None:
        self.strike("make_folder", path, self._inner.make_folder, path)

    def overwrite(self, path: str, data: bytes) -> None:
        def torn() -> None:
            self._inner.overwrite(path, data[: len(data) // 2])

        self.strike("overwrite", path, self._inner.overwrite, path, data, torn=torn)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self.strike("read", path, self._inner.read, path, start, length)

    def map(self, path: str) -> memoryview:
        return self.strike("map", path, self._inner.map, path)

    def size(self, path: str) -> int:
        return self.strike("size", path, self._inner.size, path)

    def names(self, path: str) -> Iterable[str]:
        return self.strike("names", path, self._inner.names, path)

    def lock(self, path: str) -> HeldLock | None:
        def call() -> HeldLock | None:
            held = self._inner.lock(path)
            if held is not None:
                self._held.append(held)
            return held

        return self.strike("lock", path, call)


class FaultyStore(Faults):
    """An object store whose calls fail as `Faults` says. A put is whole or not at all, so none is torn."""

    def __init__(self, inner: Store, fault: Fault = Fault.CRASH_BEFORE, at: int = 0) -> None:
        super().__init__(fault, at)
        self._inner = inner

    def ready(self) -> None:
        self.strike("ready", "", self._inner.ready)

    def read(self, name: str, large: bool = False) -> bytes:
        return self.strike("read", name, self._inner.read, name, large)

    def put(self, name: str, data: bytes) -> None:
        self.strike("put", name, self._inner.put, name, data)

    def create(self, name: str, data: bytes) -> None:
        self.strike("create", name, self._inner.create, name, data)

    def remove(self, name: str) -> None:
        self.strike("remove", name, self._inner.remove, name)

    def size(self, name: str) -> int:
        return self.strike("size", name, self._inner.size, name)

    def names(self, folder: str) -> Iterable[str]:
        return self.strike("names", folder, self._inner.names, folder)
