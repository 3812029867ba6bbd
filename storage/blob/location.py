"""Where a state directory is: a path, or the URI of any fsspec file system with a local cache in front."""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import xxhash

from vernier.storage.blob.blob import Blob, LocalBlob
from vernier.storage.blob.filecache import FileCache
from vernier.storage.blob.object_store import FsspecStore, ObjectBlob

CACHE_BYTES = 8 << 30
"""Bytes of local copies of segments, unless settings say otherwise."""


@dataclass(frozen=True)
class Place:
    """A place for state. uri: a path, or a URI of fsspec. cache: where a URI's segments are copied to, None: a folder
    of our own among the machine's temporary ones. cache_bytes: what these copies may take."""

    uri: str
    cache: str | None = None
    cache_bytes: int = CACHE_BYTES

    @staticmethod
    def of(place: "str | os.PathLike[str] | Place") -> "Place":
        """A place from what people write."""
        return place if isinstance(place, Place) else Place(os.fspath(place))

    def __str__(self) -> str:
        return self.uri

    @property
    def folder(self) -> Path | None:
        """The directory of this machine, absolute; None if it is somewhere else."""
        if "://" in self.uri and not self.uri.startswith("file://"):
            return None
        return Path(os.path.abspath(self.uri.removeprefix("file://")))

    def open(self) -> Blob:
        """The files there. Nothing is made or asked for yet. Raises NoFileSystem for an unknown kind of URI."""
        if self.folder is not None:
            return LocalBlob(self.folder)
        uri = self.uri.rstrip("/")
        copies = Path(self.cache or Path(tempfile.gettempdir()) / f"vernier-cache-{os.getuid()}")
        cache = FileCache(copies / xxhash.xxh3_64_hexdigest(uri.encode()), self.cache_bytes)
        return ObjectBlob(uri, FsspecStore(uri), lambda: time.time_ns() // 1_000_000, cache)
