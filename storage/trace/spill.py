"""Spill: memory for large columns that the kernel can evict, so that a state may exceed a process's memory limit.

The kernel decides whether pages of files stay in memory: it evicts idle pages and loads them again when they are
touched. Columns that are on disk are mapped from their segment (`rebind` switches a batch to it once it is written).
Columns that are not on disk yet, such as those of a running merge, get pages of an unnamed file (`spill`, `empty`),
which disappears with the process. `release` drops this process's pages of such columns at once, independent of memory
pressure: nothing is lost, and what is needed again is read again. O(mappings).

If the process has no memory limit, it keeps what a slice has freed for the next slice (`keep`).
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
from vernier.storage.trace.batch import COLUMNS, Batch
from vernier.storage.updates import Ints

LARGE = 1 << 20
"""From this size in bytes on, a column gets pages of a file, if a folder for them is set."""

KEPT = 1 << 26
"""How many bytes of freed memory a worker's process keeps at most."""
_MAPPED = 1 << 25
"""From this size in bytes on, an allocation is always a kernel mapping of its own. This is the maximum that the C
library accepts."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the numbers in glibc's malloc.h

_folder: Path | None = None


def spill(folder: Path | None) -> None:
    """From now on this process allocates large columns in files of this folder; None: in memory only."""
    global _folder
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    _folder = folder


def keep() -> bool:
    """From now on this process keeps up to KEPT bytes of freed memory. Returns whether the C library supports this.

    A slice frees nearly everything that it has allocated, and glibc would return it to the system. The next slice would
    then take a page fault for every page: a microsecond each, including zeroing it, a tenth of the time of large
    epochs.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    return mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _MAPPED))


def empty(rows: int, width: int | None = None) -> Ints:
    """An uninitialised int64[rows] or int64[rows, width]. Pages that are never written take no memory."""
    shape = (rows,) if width is None else (rows, width)
    size = 8 * rows * (1 if width is None else width)
    if _folder is None or size < LARGE:
        return np.empty(shape, np.int64)
    with tempfile.TemporaryFile(dir=_folder) as file:
        file.truncate(size)
        pages = mmap.mmap(file.fileno(), size)
    return np.ndarray(shape, np.int64, memoryview(pages))


def rebind(batch: Batch, segment: Segment, label: str) -> None:
    """Switch a batch that was written to the columns in its segment; the memory of its old columns becomes free.

    Callers that have copied the batch's addresses must read them again (`Trace.replace`).
    """
    stored = Batch.open(segment.meta(label), segment.entry(label).arrays)
    batch.set_columns({name: getattr(stored, name) for name in COLUMNS})
    batch.texts = stored.texts
    batch.address = stored.address


def in_file(batch: Batch) -> bool:
    """Whether the batch's columns, except for small ones, are in files."""
    return all(column.nbytes < LARGE or _pages(column) is not None for column in _columns(batch))


def in_memory(batches: Iterable[Batch]) -> int:
    """Bytes of the batches that are not in mapped files. O(batches)."""
    return sum(batch.nbytes if batch.ref is None else batch.ref.nbytes for batch in batches if not _is_mapped(batch))


def _is_mapped(batch: Batch) -> bool:
    return not batch.packed and _pages(batch.hashes) is not None


def release(batches: Iterable[Batch], more: Iterable[Ints] = ()) -> int:
    """Drop this process's pages of mapped columns; returns the number of mappings. more: other columns."""
    columns = [column for batch in batches for column in _columns(batch)]
    found = {id(pages): pages for column in [*columns, *more] if (pages := _pages(column)) is not None}
    for pages in found.values():
        pages.madvise(mmap.MADV_DONTNEED)
    return len(found)


def return_memory() -> None:
    """Return the allocator's free memory to the system, where possible. O(free memory), so do not call it in each
    slice."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def _libc() -> Any:
    try:
        return ctypes.CDLL(None)
    except OSError:
        return None


def _columns(batch: Batch) -> list[Ints]:
    return [getattr(batch, name) for name in COLUMNS]


def _pages(column: Ints) -> mmap.mmap | None:
    """The mapping that contains a column; None if it is not mapped."""
    base: Any = column
    while isinstance(base, np.ndarray):
        base = base.base
    pages = base.obj if isinstance(base, memoryview) else base
    return pages if isinstance(pages, mmap.mmap) else None
