"""Update files: one line `{"input":"edges","data":[1,2],"time":17,"diff":1}` per update, or the same as columns.

In: files of a user. `.jsonl` and `.jsonl.gz` hold one JSON object per line: `data` is an array in schema order or an
object by name; `time` is an integer, a decimal string or RFC 3339; `diff` is 1 if omitted; `input` may be omitted if
the program has one source. `.parquet` and `.arrow` (file or stream) have the columns `input`, `data` (a list, or a
struct by name), `time` and `diff`. Updates may be in any order.
Out: the updates of each source as words, sorted by time. Files are read in pieces, so the memory in use at the end is
that of the words, times and diffs: 8 bytes each.
Read first: `read_updates` below, then lines.py and columns.py.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from vernier.operators.errors import listed
from vernier.service.files.updatefiles.columns import read_columns
from vernier.service.files.updatefiles.lines import read_lines
from vernier.service.files.updatefiles.problems import BadUpdateFile, Sources
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Updates

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet", ".arrow")
"""The suffixes of update files."""

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the total."""


def read_updates(
    files: Sequence[Path],
    sources: Sources,
    progress: Progress = lambda done, size: None,
    heap: Heap | None = None,
) -> dict[str, Updates]:
    """All updates of the files by source, sorted by time; updates of one time keep their order in the files.

    heap: receives the contents of long texts. O(n log n). Raises BadUpdate, which names the first bad line or row of
    the file, and BadUpdateFile.
    """
    sizes = [_size(path) for path in files]
    parts: dict[str, list[Updates]] = {name: [] for name in sources}
    before = 0
    for path, size in zip(files, sizes, strict=True):
        for done, piece in _read(path, sources, heap):
            for name, updates in piece.items():
                if len(updates):
                    parts[name].append(updates)
            progress(before + min(done, size), sum(sizes))
        before += size
    result = {}
    for name, row_type in sources.items():
        updates = Updates.concat(parts.pop(name), row_type.width)
        times = updates.time
        if len(times) > 1 and bool((times[1:] < times[:-1]).any()):
            updates = updates.take(np.argsort(times, kind="stable"))
        result[name] = updates
    return result


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise BadUpdateFile(file=str(path), problem=(error.strerror or str(error)).lower()) from error


def _read(path: Path, sources: Sources, heap: Heap | None) -> Iterator[tuple[int, dict[str, Updates]]]:
    """Yield (bytes of the file read so far, the updates in the piece), piece by piece."""
    name = path.name.lower()
    try:
        if name.endswith((".jsonl", ".jsonl.gz")):
            yield from read_lines(path, sources, heap)
        elif name.endswith((".parquet", ".arrow")):
            yield from read_columns(path, sources, heap)
        else:
            raise BadUpdateFile(file=str(path), problem=f"the name of an update file ends in {listed(SUFFIXES)}")
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadUpdateFile(file=str(path), problem=f"not a complete gzip file: {error}") from error
    except (pa.ArrowException, OSError) as error:
        raise BadUpdateFile(file=str(path), problem=f"cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
