"""File cache: copies of immutable files on a local disk, in front of a remote store.

A copy is the file's bytes followed by a trailer with their checksum. It is written under a temporary name and renamed.
Nothing is synced: a process verifies the checksum when it first maps a copy, so a copy torn by a power failure is
fetched again. Several processes may share a folder. The total size is bounded: the least recently used copy is deleted
first, and a copy that is still mapped stays readable after its name is deleted.
"""

import itertools
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import xxhash

from vernier.storage.blob.blob import Buffer
from vernier.storage.blob.disk import OsDisk
from vernier.storage.errors import CacheUnsafe

_MAGIC = b"VNCACHED"
_TRAILER = len(_MAGIC) + 8


class FileCache:
    """Copies below `folder`, at most `limit` bytes in total. The newest copy is kept however large it is."""

    def __init__(self, folder: str | os.PathLike[str], limit: int) -> None:
        self._folder = Path(folder)
        self._limit = limit
        self._disk = OsDisk()
        self._serial = itertools.count()
        self._verified: dict[str, tuple[int, int]] = {}

    def map(self, name: str, fetch: Callable[[], bytes]) -> memoryview:
        """A file's bytes by mmap of its copy. If there is no intact copy, `fetch` provides the bytes.

        Raises CacheUnsafe and whatever `fetch` raises. If the local disk is full or failing, the bytes are held in
        memory instead.
        """
        found = self._open(name)
        if found is not None:
            return found
        data = fetch()
        self.add(name, [data])
        found = self._open(name)
        return memoryview(bytearray(data)) if found is None else found

    def add(self, name: str, chunks: Sequence[Buffer]) -> None:
        """Keep a copy of a file that was just written or fetched. Does nothing if the local disk has no space for
        it."""
        path = self._path(name)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{next(self._serial)}.tmp")
        try:
            self._make(path.parent)
            fd = self._disk.create(str(temporary))
            try:
                digest = xxhash.xxh3_64()
                for chunk in chunks:
                    digest.update(chunk)
                self._disk.write(fd, [*chunks, _MAGIC, digest.digest()])
            finally:
                os.close(fd)
            os.rename(temporary, path)
            identity = _identity(path)  # another process that evicts may have deleted the copy already
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            return
        self._verified[name] = identity
        self._evict(path)

    def drop(self, name: str) -> None:
        """Delete a copy. A missing copy is no error."""
        self._verified.pop(name, None)
        with suppress(OSError):
            os.unlink(self._path(name))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _make(self, folder: Path) -> None:
        """Create a folder that only this user can write to or replace, because its contents become state. Raises
        CacheUnsafe."""
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, above = self._folder.stat(), self._folder.parent.stat()
        others = stat.S_IWGRP | stat.S_IWOTH
        ours = found.st_uid == os.getuid() and not found.st_mode & others
        stays = above.st_uid in (os.getuid(), 0) and (not above.st_mode & others or above.st_mode & stat.S_ISVTX)
        if not ours or not stays:
            raise CacheUnsafe(path=str(self._folder))

    def _open(self, name: str) -> memoryview | None:
        path = self._path(name)
        try:
            identity = _identity(path)
            view = self._disk.map(str(path))
            # `_evict` reads the modification time as the time of last use; mapping a file does not change it.
            os.utime(path)
        except OSError:
            return None
        if self._verified.get(name) != identity:
            self._make(path.parent)
            if not _is_whole(view):
                self.drop(name)
                return None
            self._verified[name] = identity
        return view[:-_TRAILER]

    def _evict(self, newest: Path) -> None:
        """Delete the least recently used copies until the rest fits. O(copies)."""
        found = []
        for path in self._folder.rglob("*"):
            with suppress(OSError):
                about = path.lstat()
                if stat.S_ISREG(about.st_mode):
                    found.append((about.st_mtime_ns, about.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit:
                break
            if path != newest:
                total -= size
                with suppress(OSError):
                    os.unlink(path)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_size


def _is_whole(view: memoryview) -> bool:
    if view.nbytes < _TRAILER or view[-_TRAILER : -_TRAILER + len(_MAGIC)] != _MAGIC:
        return False
    return xxhash.xxh3_64_digest(view[:-_TRAILER]) == bytes(view[-8:])
