"""Room: memory for large columns that can give way, so that a state may be larger than what a process may hold.

Columns that are in a file are the kernel's to keep in memory or not: pages that nobody looks at give way, and come
back when they are touched. What is on disk is mapped from its segment (`rebind` moves a layer there once it is
written); what is not there yet, a merge on its way, gets pages of a file without a name (`spill`, `empty`), which goes
with the process. `release` takes the pages of such columns from this process at once, whatever room there is: nothing
is lost, what is needed again is read again. O(mappings). Where nothing says how much a process may hold, it keeps what
a slice has freed for the next one (`keep`).
"""

from __future__ import annotations

import ctypes
import mmap
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vernier.storage.blob.segment import Segment
from vernier.storage.trace.batch import COLUMNS, Layer
from vernier.storage.updates import Ints

LARGE = 1 << 20
"""Bytes from which a column gets pages of a file, where there is a folder for them."""

KEPT = 1 << 26
"""Bytes of freed memory that a worker's process keeps at most."""
_MAPPED = 1 << 25
"""Bytes from which memory is the kernel's own mapping all the same: the most that the C library lets us say."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them

_folder: Path | None = None


def spill(folder: Path | None) -> None:
    """From now on this process takes room for large columns in files of a folder; None: in memory alone."""
    global _folder
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    _folder = folder


def keep() -> bool:
    """From now on this process keeps up to KEPT bytes that it has freed; whether its C library could be told to.

    A slice frees nearly all that it has taken, and glibc would give it back: the next slice then faults for every page,
    a microsecond each with the zeros that are written to it, a tenth of the time of large epochs.
    """
    told = getattr(_libc(), "mallopt", None)
    return told is not None and bool(told(_TRIM_THRESHOLD, KEPT)) and bool(told(_MMAP_THRESHOLD, _MAPPED))


def empty(rows: int, width: int | None = None) -> Ints:
    """Room for int64[rows] or int64[rows, width], not set. Pages that are never written take no room."""
    shape = (rows,) if width is None else (rows, width)
    size = 8 * rows * (1 if width is None else width)
    if _folder is None or size < LARGE:
        return np.empty(shape, np.int64)
    with tempfile.TemporaryFile(dir=_folder) as file:
        file.truncate(size)
        pages = mmap.mmap(file.fileno(), size)
    return np.ndarray(shape, np.int64, memoryview(pages))


def rebind(layer: Layer, segment: Segment, label: str) -> None:
    """Let a layer that was written read its columns from its segment; what it had in memory is free then.

    Whoever has copied the layer's addresses has to take them anew (`Trace.replace`).
    """
    stored = Layer.open(segment.meta(label), segment.entry(label).arrays)
    layer.hold({name: getattr(stored, name) for name in COLUMNS})
    layer.texts = stored.texts
    layer.address = stored.address


def in_file(layer: Layer) -> bool:
    """Whether the layer's columns, but for small ones, are in files."""
    return all(column.nbytes < LARGE or _pages(column) is not None for column in _columns(layer))


def in_memory(layers: Iterable[Layer]) -> int:
    """Bytes of the layers that are not in mapped files. O(layers)."""
    return sum(layer.nbytes if layer.ref is None else layer.ref.nbytes for layer in layers if not _is_mapped(layer))


def _is_mapped(layer: Layer) -> bool:
    return not layer.packed and _pages(layer.hashes) is not None


def release(layers: Iterable[Layer], more: Iterable[Ints] = ()) -> int:
    """Take the pages of mapped columns from this process; returns how many mappings there were. more: other columns."""
    columns = [column for layer in layers for column in _columns(layer)]
    found = {id(pages): pages for column in [*columns, *more] if (pages := _pages(column)) is not None}
    for pages in found.values():
        pages.madvise(mmap.MADV_DONTNEED)
    return len(found)


def give_back() -> None:
    """Give what the allocator has free back to the system, where it can. O(what is free): not in each slice."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def _libc() -> Any:
    try:
        return ctypes.CDLL(None)
    except OSError:
        return None


def _columns(layer: Layer) -> list[Ints]:
    return [getattr(layer, name) for name in COLUMNS]


def _pages(column: Ints) -> mmap.mmap | None:
    """The mapping that a column lies in."""
    base: Any = column
    while isinstance(base, np.ndarray):
        base = base.base
    pages = base.obj if isinstance(base, memoryview) else base
    return pages if isinstance(pages, mmap.mmap) else None
