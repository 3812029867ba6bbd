"""Change files: one line `{"view":"reach","data":[1],"time":17,"diff":1}` per change, consolidated.

Lines are sorted by time, then view, then data, and each (view, data, time) occurs once. One program and one set of
updates therefore have exactly one change file, byte for byte, however the work was cut and distributed. `data` is an
array in schema order, with values as in service/codec/arrowjson.py; `time` is an integer. Rows sort as their values do,
nulls first and NaN last.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa

from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import Field, RowType
from vernier.service.codec.arrowjson import joined, json_parts
from vernier.storage.errors import CallerError
from vernier.storage.strings.string_heap import Heap, needed
from vernier.storage.strings.string_heap import order as by_content
from vernier.storage.updates import Ints, Updates, consolidate_rows

_INT = Int64()
_WAITING = 1 << 18
"""Number of changes that are collected before they are formatted; formatting many at once is cheap per change."""


class CannotWrite(CallerError):
    """The change file cannot be written at its path."""

    message = "cannot write {file}: {reason}"
    file: str
    reason: str


def json_lines(member: str, name: str, schema: RowType, updates: Ints, heap: Heap | None = None) -> pa.LargeStringArray:
    """One line `{member:name,"data":[...],"time":t,"diff":d}` for each update, int64[n, width + 2]. O(n).

    heap: holds the contents of long texts.
    """
    parts: list[Any] = [f'{{"{member}":{json.dumps(name)},"data":[']
    for number, field in enumerate(schema.fields):
        parts += [","] if number else []
        parts += _parts(field, updates[:, field.offset : field.offset + field.words], heap)
    parts += ['],"time":', _integers(updates[:, -2]), ',"diff":', _integers(updates[:, -1]), "}\n"]
    return joined(*parts)


def _integers(values: Ints) -> pa.LargeStringArray:
    return pa.array(np.ascontiguousarray(values)).cast(pa.large_string())


def _parts(field: Field, words: Ints, heap: Heap | None) -> list[Any]:
    """What the JSON texts of one column are joined of."""
    if field.type == _INT and not field.nullable:
        return [_integers(words[:, 0])]
    return json_parts(field.slot, field.decode(words, heap))


class ChangeFile:
    """Writes the changes of views, epoch by epoch; the times of each epoch are after those of the previous one.

    A context manager: the complete file appears on exit without an error. A name ending in `.gz` is compressed.
    """

    def __init__(self, path: Path, views: Mapping[str, RowType]) -> None:
        self.path = path
        self.views = dict(sorted(views.items()))
        self.written = 0
        self._waiting: dict[str, list[Ints]] = {name: [] for name in self.views}
        self._count = 0
        self._heap = Heap()
        # A pipe or a device is written directly; a file is renamed into place when it is complete.
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._direct = path.exists() and not path.is_file()
        try:
            self._raw = (path if self._direct else self._partial).open("wb")
        except OSError as error:
            raise CannotWrite(file=str(path), reason=(error.strerror or str(error)).lower()) from error
        self._text: IO[bytes] = self._raw
        if path.suffix == ".gz":
            # The gzip header has no name and no time, so that equal changes give equal bytes.
            self._text = cast(IO[bytes], gzip.GzipFile("", "wb", 6, self._raw, mtime=0))

    def add(self, changes: Mapping[str, Updates], heap: Heap | None = None) -> None:
        """Add the changes of an epoch; views that the file does not show are left out. Raises CannotWrite.

        heap: holds the contents of long texts in the changes.
        """
        texts = {name: schema.text_words for name, schema in self.views.items()}
        if heap is not None:
            self._heap.attach(needed(heap, {name: changes[name] for name in texts}, texts))
        for name, waiting in self._waiting.items():
            data = changes[name].data
            if len(data):
                waiting.append(data)
                self._count += len(data)
        if self._count >= _WAITING:
            self._flush()

    def _flush(self) -> None:
        times, ranks, lines = [], [], []
        for rank, (name, schema) in enumerate(self.views.items()):
            parts = self._waiting[name]
            if parts:
                columns = np.array([schema.width, *range(schema.width)], np.int64)
                rows = consolidate_rows(np.ascontiguousarray(np.concatenate(parts)), columns)
                times.append(rows[:, -2])
                ranks.append(np.full(len(rows), rank))
                rows = rows[by_content(rows, columns, schema.text_words, self._heap)] if schema.text_words else rows
                lines.append(json_lines("view", name, schema, rows, self._heap))
            self._waiting[name] = []
        self._count = 0
        self._heap.trim(0)
        if lines:
            order = np.lexsort((np.concatenate(ranks), np.concatenate(times)))
            text = pa.chunked_array(lines).take(pa.array(order)) if len(lines) > 1 else pa.chunked_array(lines)
            self._write(text)
            self.written += len(text)

    def _write(self, text: pa.ChunkedArray) -> None:
        try:
            for chunk in text.chunks:
                _, offsets, data = chunk.buffers()
                at = np.frombuffer(offsets, np.int64)
                if data is not None:
                    start, stop = int(at[chunk.offset]), int(at[chunk.offset + len(chunk)])
                    self._text.write(memoryview(data)[start:stop])
        except OSError as error:
            raise CannotWrite(file=str(self.path), reason=(error.strerror or str(error)).lower()) from error

    def __enter__(self) -> ChangeFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self._flush()
                if self._text is not self._raw:
                    self._text.close()
                self._raw.close()
                if not self._direct:
                    self._partial.replace(self.path)
        except OSError as failed:
            raise CannotWrite(file=str(self.path), reason=(failed.strerror or str(failed)).lower()) from failed
        finally:
            self._raw.close()
            self._partial.unlink(missing_ok=True)
