"""Where a state directory is: a path, or the URI of any fsspec file system with a local cache in front."""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import xxhash

from vernier.storage.blob.blob import Blob
from vernier.storage.blob.filecache import FileCache
from vernier.storage.blob.leases import LOCK_MS
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.object_store import FsspecStore, ObjectBlob

CACHE_BYTES = 8 << 30
"""Default limit for local copies of segments, in bytes."""


@dataclass(frozen=True)
class BlobLocation:
    """Where a state lies. uri: a path or a fsspec URI. cache: the folder for local copies of a URI's segments; None for
    a folder of this user in the system's temporary directory. cache_bytes: the size limit of these copies. lock_ms: the
    silence of this process after which another machine may take its lock in an object store."""

    uri: str
    cache: str | None = None
    cache_bytes: int = CACHE_BYTES
    lock_ms: int = LOCK_MS

    @staticmethod
    def of(place: "str | os.PathLike[str] | BlobLocation") -> "BlobLocation":
        """The location of a path or a URI; a location as it is."""
        return place if isinstance(place, BlobLocation) else BlobLocation(os.fspath(place))

    def __str__(self) -> str:
        return self.uri

    @property
    def folder(self) -> Path | None:
        """The absolute directory on this machine; None if the state is elsewhere."""
        if "://" in self.uri and not self.uri.startswith("file://"):
            return None
        return Path(os.path.abspath(self.uri.removeprefix("file://")))

    def open(self) -> Blob:
        """The Blob there. Does not access the place yet. Raises NoFileSystem for an unknown kind of URI."""
        if self.folder is not None:
            return LocalBlob(self.folder)
        uri = self.uri.rstrip("/")
        copies = Path(self.cache or Path(tempfile.gettempdir()) / f"vernier-cache-{os.getuid()}")
        cache = FileCache(copies / xxhash.xxh3_64_hexdigest(uri.encode()), self.cache_bytes)
        return ObjectBlob(
            uri,
            FsspecStore(uri),
            lambda: time.time_ns() // 1_000_000,
            cache,
            lock_ms=self.lock_ms,
            elapsed=_elapsed_ms,
            at_once=True,
        )


def _elapsed_ms() -> int:
    """Milliseconds of a clock that is never set and that counts the time in which the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000
