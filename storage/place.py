"""Where a state directory is: a path, or the URI of any fsspec file system with a local cache in front."""

import os
import tempfile
import time
from pathlib import Path

import xxhash

from storage.blob import Blob, LocalBlob
from storage.filecache import FileCache
from storage.objects import FsspecStore, ObjectBlob

CACHE_BYTES = 8 << 30
"""Bytes of local copies of segments, unless settings say otherwise."""


def is_local(place: str) -> bool:
    """Whether a place is a path of this machine, and not the URI of something else."""
    return "://" not in place or place.startswith("file://")


def local_path(place: str) -> str:
    """The path of a local place."""
    return place.removeprefix("file://")


def cache_folder() -> Path:
    """Where copies are kept by default: ours alone, gone when the machine cleans up."""
    return Path(tempfile.gettempdir()) / f"vernier-cache-{os.getuid()}"


def open_blob(place: str, cache: str | None = None, cache_bytes: int = CACHE_BYTES) -> Blob:
    """The files at a place; a URI's segments by way of copies in `cache`. Raises NoFileSystem for an unknown URI."""
    if is_local(place):
        return LocalBlob(local_path(place))
    uri = place.rstrip("/")
    folder = Path(cache or cache_folder()) / xxhash.xxh3_64_hexdigest(uri.encode())
    copies = FileCache(folder, cache_bytes)
    return ObjectBlob(uri, FsspecStore(uri), lambda: time.time_ns() // 1_000_000, copies)
