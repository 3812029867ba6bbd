"""Object store: a Blob (class ObjectBlob) where a put is atomic and durable, and where locks, links and renames do not
exist.

`Store` has one method per call of the store, so that tests can replace it and let any call fail. `FsspecStore`
implements it on any fsspec file system. Endpoints and credentials come from the environment, as fsspec and the store's
own client read them.
"""

import errno
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from vernier.storage.blob.blob import Buffer, HeldLock, Owner
from vernier.storage.blob.disk import storage_error
from vernier.storage.blob.filecache import FileCache
from vernier.storage.blob.leases import LOCK_MS, Claims, Clock
from vernier.storage.errors import CreateUnknown, FileExists, FileMissing, NoFileSystem, StorageError

Result = TypeVar("Result")
_AT_ONCE = 32
"""Requests at once, where an epoch needs one for each worker."""


class Store(Protocol):
    """The calls of an object store; each raises OSError. Names are relative to the state's own prefix."""

    def ready(self) -> None:
        """Raises if the store cannot be used at all, for example if its bucket does not exist."""
        ...

    def read(self, name: str, large: bool = False) -> bytes:
        """An object's bytes. large: it may be worth a second request to read its parts at once."""
        ...

    def put(self, name: str, data: bytes) -> None: ...

    def create(self, name: str, data: bytes) -> None:
        """Put an object that must be new. Raises FileExistsError."""
        ...

    def remove(self, name: str) -> None: ...
    def size(self, name: str) -> int: ...

    def names(self, folder: str) -> Iterable[str]:
        """The last parts of the names in a folder, in any order."""
        ...


class ObjectBlob:
    """A Blob in an object store. cache: local copies of mapped objects; without it they are held in memory. claims: its
    locks and leases."""

    def __init__(
        self,
        where: str,
        store: Store,
        now: Clock,
        cache: FileCache | None = None,
        owner: str | None = None,
        *,
        beating: bool = True,
        lock_ms: int = LOCK_MS,
        machine: str | None = None,
        elapsed: Clock | None = None,
        at_once: bool = False,
    ) -> None:
        """now, owner, beating, lock_ms, machine and elapsed are passed to its claims. at_once: whether the store may be
        called by several threads at once."""
        self._where, self._store, self._cache, self._at_once = where, store, cache, at_once
        self.claims = Claims(self, now, owner, beating=beating, lock_ms=lock_ms, machine=machine, elapsed=elapsed)

    @property
    def where(self) -> str:
        """The URI."""
        return self._where

    def prepare(self, folders: Sequence[str]) -> None:
        """Checks that the store can be used at all; folders need not be created."""
        self._do("use", self._where, self._store.ready)

    def put(self, name: str, chunks: Iterable[Buffer]) -> int:
        """One put and one local copy, so that written data is not fetched again. Holds the bytes in memory once."""
        data = b"".join(chunks)
        self._do("write", name, self._store.put, name, data)
        if self._cache is not None:
            self._cache.add(name, [data])
        return len(data)

    def create(self, name: str, data: bytes) -> None:
        """A conditional put. If an error leaves the outcome open, a read of the object decides.

        Raises CreateUnknown, and FileExists. FileExists is also raised when a repeated request finds its own object, so
        the caller compares the contents.
        """
        try:
            self._do("create", name, self._store.create, name, data)
        except (FileExists, FileMissing):
            raise
        except StorageError as problem:
            try:
                there = self.get(name)
            except FileMissing:
                raise problem from None
            except StorageError:
                raise CreateUnknown(name=name, where=self._where, reason=str(problem)) from problem
            if there != data:
                raise FileExists(name=name, where=self._where) from problem

    def overwrite(self, name: str, data: bytes) -> None:
        """One put."""
        self._do("overwrite", name, self._store.put, name, data)

    def rename(self, old: str, new: str) -> None:
        """A copy and a deletion: both names exist for a moment, and after a crash between the two."""
        self.overwrite(new, self.get(old))
        self.delete(old)

    def delete(self, name: str) -> None:
        """Delete an object. A missing object is no error."""
        with suppress(FileMissing):
            self._do("delete", name, self._store.remove, name)
        if self._cache is not None:
            self._cache.drop(name)

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """An object's bytes, or a range of them; the whole object is fetched."""
        data = self._do("read", name, self._store.read, name)
        return data[start : None if length is None else start + length]

    def get_each(self, names: Sequence[str]) -> Sequence[bytes | StorageError]:
        """The objects' bytes, `_AT_ONCE` requests at a time."""
        return self._at_once_each(self._get_or_error, names)

    def map(self, name: str) -> memoryview:
        """An immutable object's bytes, by mmap of its local copy."""
        if self._cache is None:
            return memoryview(bytearray(self._get_large(name)))
        return self._cache.map(name, lambda: self._get_large(name))

    def size(self, name: str) -> int | None:
        """An object's size in bytes, None if it does not exist."""
        try:
            return self._do("stat", name, self._store.size, name)
        except FileMissing:
            return None

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """Which of these objects do not exist: `_AT_ONCE` requests at a time, because an epoch has a segment for each
        worker."""
        sizes = self._at_once_each(self.size, names)
        return [name for name, size in zip(names, sizes, strict=True) if size is None]

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        try:
            return sorted(f"{folder}/{name}" for name in self._do("list", folder, self._store.names, folder))
        except FileMissing:
            return []

    def sync(self, folder: str) -> None:
        """Does nothing: puts are durable already."""

    def lock(self, name: str) -> HeldLock | None:
        """Take the lock that is the chain of claims `name`."""
        return self.claims.lock(name)

    def release_ended(self, name: str) -> bool:
        """Release the lock of a process of this machine that has ended."""
        return self.claims.release_ended(name)

    def owner(self, name: str) -> Owner | None:
        """Who has the lock; an Owner with no time left if it is free."""
        found = self.claims.holder(name)
        return Owner(0, "", 0) if found is None else Owner(found.pid, found.host, self.claims.left_ms(found))

    def hold(self, stem: str) -> HeldLock:
        """A claim under a name of its own."""
        return self.claims.hold(stem)

    def present(self, folder: str) -> Sequence[str]:
        """The claims in a folder that are alive."""
        return self.claims.present(folder)

    def _get_large(self, name: str) -> bytes:
        return self._do("read", name, self._store.read, name, True)

    def _get_or_error(self, name: str) -> bytes | StorageError:
        try:
            return self.get(name)
        except StorageError as problem:
            return problem

    def _at_once_each(self, call: Callable[[str], Result], names: Sequence[str]) -> Sequence[Result]:
        if len(names) <= 1 or not self._at_once:
            return [call(name) for name in names]
        with ThreadPoolExecutor(min(_AT_ONCE, len(names)), "vernier-objects") as threads:
            return list(threads.map(call, names))

    def _do(self, operation: str, name: str, call: Callable[..., Result], *args: object) -> Result:
        try:
            return call(*args)
        except OSError as problem:
            raise storage_error(problem, operation, name, self._where) from problem


class FsspecStore:
    """The store below a fsspec URI such as s3://bucket/prefix. Opened again in a forked process."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._process = 0
        self._made: Any = None
        self._in_parts = False
        self._root = ""
        self._open()

    def ready(self) -> None:
        """Check that the bucket exists. On a file system with folders, create the folder instead."""
        fs, root = self._open(), self._root
        with _errors_of_the_system():
            if not hasattr(fs, "split_path"):
                fs.makedirs(root, exist_ok=True)
            elif not fs.exists(root.partition("/")[0]):
                raise OSError(f"there is no bucket {root.partition('/')[0]}")

    def read(self, name: str, large: bool = False) -> bytes:
        with _errors_of_the_system():
            fs = self._open()
            # s3fs asks for the size of an object first, unless it must not read parts of it at once.
            options = {"max_concurrency": 1} if self._in_parts and not large else {}
            data: bytes = fs.cat_file(self._full(name), **options)
            return data

    def put(self, name: str, data: bytes) -> None:
        with _errors_of_the_system():
            self._open().pipe_file(self._full(name), data)

    def create(self, name: str, data: bytes) -> None:
        """Conditional where the file system offers it (S3, GCS). Elsewhere it checks for the object first, which is not
        atomic."""
        fs, path = self._open(), self._full(name)
        with _errors_of_the_system():
            if _is_conditional(fs):
                fs.pipe_file(path, data, mode="create")
            elif fs.exists(path):
                raise FileExistsError(path)
            else:
                fs.pipe_file(path, data)

    def remove(self, name: str) -> None:
        with _errors_of_the_system():
            self._open().rm_file(self._full(name))

    def size(self, name: str) -> int:
        with _errors_of_the_system():
            return int(self._open().info(self._full(name))["size"])

    def names(self, folder: str) -> Iterable[str]:
        with _errors_of_the_system():
            return [path.rpartition("/")[2] for path in self._open().ls(self._full(folder), detail=False)]

    def _full(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _open(self) -> Any:
        """This process's file system: its connections do not survive a fork."""
        if self._process != os.getpid():
            try:
                import fsspec  # imported here so that only services with an object store pay for it

                self._made, root = fsspec.core.url_to_fs(self.uri, use_listings_cache=False, skip_instance_cache=True)
            except (ImportError, ValueError, OSError) as problem:
                raise NoFileSystem(uri=self.uri, problem=str(problem).splitlines()[0].lower()) from problem
            self._root = root.rstrip("/")
            reads = getattr(type(self._made), "_cat_file", None)
            self._in_parts = reads is not None and "max_concurrency" in inspect.signature(reads).parameters
            self._process = os.getpid()
        return self._made


def _is_conditional(fs: Any) -> bool:
    """Whether the file system's own put can be restricted to new objects."""
    own = getattr(type(fs), "_pipe_file", None) or type(fs).pipe_file
    import fsspec

    return "mode" in inspect.signature(own).parameters and own is not fsspec.AbstractFileSystem.pipe_file


@contextmanager
def _errors_of_the_system() -> Iterator[None]:
    """Converts whatever a store's client raises into an OSError, with the errno for missing and existing files."""
    try:
        yield
    except FileNotFoundError as problem:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT)) from problem
    except FileExistsError as problem:
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST)) from problem
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = (getattr(problem, "strerror", None) or str(problem)).strip() or type(problem).__name__
        raise OSError(said.splitlines()[0]) from problem
