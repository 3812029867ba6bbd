"""The interface of the place where state lives: named files that are whole or absent, and names that only one process
can create.

`Blob` is everything that segments, manifests and leases need from storage. It is kept small so that an object store can
implement it (object_store.py) as well as a local directory (local_blob.py).

Durability: the bytes of a file are synced before its name appears. The *name* is durable after the next `sync` of its
folder, so one such sync serves many files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vernier.storage.errors import StorageError

Buffer = bytes | bytearray | memoryview

TEMPORARY = ".tmp"
"""Suffix of files that are being written. The owner of the directory may delete them when it starts."""


@dataclass(frozen=True)
class Owner:
    """The holder of a lock. host: "" for this machine. left_ms: the time until it expires unless it is renewed; None if
    it ends with its process."""

    pid: int
    host: str = ""
    left_ms: int | None = None


class HeldLock(Protocol):
    """A lock that is held until it is released or its process ends, however it ends.

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

    def get_each(self, names: Sequence[str]) -> Sequence[bytes | StorageError]:
        """The files' bytes, in the order of the names; in place of a file that cannot be read, why."""
        ...

    def absent(self, names: Sequence[str]) -> Sequence[str]:
        """Which of these files do not exist, in their order."""
        ...

    def list(self, folder: str) -> list[str]:
        """The names `folder/file` in a folder, sorted; empty if the folder does not exist."""
        ...

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""
        ...

    def lock(self, name: str) -> HeldLock | None:
        """Take a lock without waiting; None if another process has it."""
        ...

    def release_ended(self, name: str) -> bool:
        """Release a lock whose holder was a process of this machine and has ended without releasing it. Returns whether
        there was one to release."""
        ...

    def owner(self, name: str) -> Owner | None:
        """Who has a lock, as far as this can be determined."""
        ...

    def hold(self, stem: str) -> HeldLock:
        """Take a lock on a new name that begins with `stem`; releasing the lock deletes the name."""
        ...

    def present(self, folder: str) -> Sequence[str]:
        """The names in a folder that live processes have by `hold`; deletes those of dead processes. O(names)."""
        ...
