"""Reads update files with columns for input, data, time and diff: Parquet, and Arrow files and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vernier.operators.errors import BadValue, listed, meant
from vernier.operators.language.types.scalars import spell
from vernier.operators.language.types.schema import Field, RowType
from vernier.service.files.updatefiles.problems import COLUMNS, BadUpdate, BadUpdateFile, Sources, source_of
from vernier.service.ingest.rejects import Refusal, shown
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED, MIN_TIME, Ints, Updates


def read_columns(path: Path, sources: Sources, heap: Heap | None = None) -> Iterator[tuple[int, dict[str, Updates]]]:
    """Yield (bytes of the file read so far, the updates in the piece), piece by piece. Raises BadUpdate and
    BadUpdateFile.

    heap: receives the contents of long texts.
    """
    size, first = path.stat().st_size, 1
    schema, count, batches = _open_columns(path)
    _check_columns(path, schema, sources)
    for done, batch in enumerate(batches, start=1):
        piece = _Piece(str(path), first, batch, sources, heap)
        yield size * done // max(count, done), piece.updates()
        first += batch.num_rows


def _open_columns(path: Path) -> tuple[pa.Schema, int, Iterator[pa.RecordBatch]]:
    """The schema, the approximate number of batches, and the batches."""
    if path.suffix.lower() == ".parquet":
        file = pq.ParquetFile(path, memory_map=True)
        return file.schema_arrow, file.num_row_groups, file.iter_batches(use_threads=False)
    source = pa.memory_map(str(path))
    try:
        opened = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, 0, iter(stream)
    return opened.schema, opened.num_record_batches, map(opened.get_batch, range(opened.num_record_batches))


def _check_columns(path: Path, schema: pa.Schema, sources: Sources) -> None:
    for name in schema.names:
        if name not in COLUMNS:
            hint = meant(name, COLUMNS)
            raise BadUpdateFile(
                file=str(path), problem=f"unknown column {name!r}{hint} (an update has {listed(COLUMNS)})"
            )
    needed = COLUMNS[1:3] if len(sources) == 1 else COLUMNS[:3]
    missing = [name for name in needed if name not in schema.names]
    if missing:
        raise BadUpdateFile(
            file=str(path), problem=f"no column {missing[0]!r} (an update has {listed(COLUMNS)}; diff is optional)"
        )


class _Piece:
    """A record batch of updates. `first`: the number of its first row in the file, from 1."""

    def __init__(self, file: str, first: int, batch: pa.RecordBatch, sources: Sources, heap: Heap | None) -> None:
        self.file, self.first, self.batch, self.sources, self.heap = file, first, batch, sources, heap

    def fail(self, row: int, problem: str) -> BadUpdate:
        """The error for row `row` of the batch."""
        return BadUpdate(file=self.file, unit="row", number=self.first + row, problem=problem)

    def updates(self) -> dict[str, Updates]:
        """The updates by source. Raises BadUpdate."""
        time, diff = self._times(), self._diffs()
        result = {}
        for name, rows in self._split().items():
            words = self._words(self.sources[name], name, rows)
            result[name] = Updates.of(words, time[rows], diff[rows])
        return result

    def _split(self) -> dict[str, Ints]:
        """The row numbers of each source."""
        n = self.batch.num_rows
        if "input" not in self.batch.schema.names:
            return {next(iter(self.sources)): np.arange(n)}
        given = self.batch.column("input")
        if pa.types.is_dictionary(given.type):
            given = given.dictionary_decode()
        if not (pa.types.is_string(given.type) or pa.types.is_large_string(given.type)):
            raise BadUpdateFile(file=self.file, problem=f"column input is {given.type}, expected the names of sources")
        names = list(self.sources)
        number = pc.index_in(given, value_set=pa.array(names, given.type)).fill_null(-1).to_numpy(zero_copy_only=False)
        if only := len(names) == 1:
            number = np.where(given.is_null().to_numpy(zero_copy_only=False), 0, number)
        unknown = np.flatnonzero(number < 0)
        if len(unknown):
            row = int(unknown[0])
            try:
                source_of(given[row].as_py(), self.sources)
            except Refusal as refusal:
                raise self.fail(row, refusal.detail) from refusal
        return {name: np.flatnonzero(number == i) for i, name in enumerate(names) if only or (number == i).any()}

    def _integers(self, name: str) -> Ints:
        """An integer column without nulls as int64[n]. The time column may hold timestamps."""
        column = self.batch.column(name)
        if name == "time" and pa.types.is_timestamp(column.type):
            column = self._cast(name, column, pa.timestamp("ns")).cast(pa.int64())
        if not pa.types.is_integer(column.type):
            raise BadUpdateFile(file=self.file, problem=f"column {name} is {column.type}, but it should be int64")
        column = self._cast(name, column, pa.int64())
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.fail(row, f"{name} is null")
        integers: Ints = column.to_numpy(zero_copy_only=False)
        return integers

    def _cast(self, name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            row = first_bad(len(column), lambda stop: column.slice(0, stop).cast(kind))
            problem = f"{name} is {shown(column[row].as_py())}, which does not fit 64 bits"
            raise self.fail(row, problem) from error

    def _times(self) -> Ints:
        time = self._integers("time")
        bad = np.flatnonzero((time < MIN_TIME) | (time >= CLOSED))
        if len(bad):
            row = int(bad[0])
            raise self.fail(row, f"time is {time[row]}, outside {MIN_TIME} to {CLOSED - 1}")
        return time

    def _diffs(self) -> Ints:
        if "diff" not in self.batch.schema.names:
            return np.ones(self.batch.num_rows, np.int64)
        column = self.batch.column("diff")
        if pa.types.is_integer(column.type) and column.null_count:
            index = self.batch.schema.get_field_index("diff")
            self.batch = self.batch.set_column(index, "diff", pc.fill_null(column, 1))
        diff = self._integers("diff")
        zero = np.flatnonzero(diff == 0)
        if len(zero):
            raise self.fail(int(zero[0]), "diff is 0, which changes nothing")
        return diff

    def _words(self, row_type: RowType, source: str, rows: Ints) -> Ints:
        """The words of one source's rows."""
        data = self.batch.column("data")
        if len(rows) < len(data):
            data = data.take(pa.array(rows))
        if data.null_count:
            row = int(np.flatnonzero(data.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.fail(int(rows[row]), "there is no data")
        if pa.types.is_struct(data.type):
            columns = self._members(data, row_type, source, rows)
        elif pa.types.is_list(data.type) or pa.types.is_large_list(data.type) or pa.types.is_fixed_size_list(data.type):
            columns = self._values(data, row_type, source, rows)
        else:
            raise BadUpdateFile(
                file=self.file, problem=f"column data is {data.type}, but rows are lists in schema order or structs"
            )
        out = np.empty((len(rows), row_type.width), np.int64)
        for field, values in zip(row_type.fields, columns, strict=True):
            out[:, field.offset : field.offset + field.words] = self._encode(field, values, rows)
        return out

    def _members(self, data: pa.StructArray, row_type: RowType, source: str, rows: Ints) -> list[pa.Array]:
        """The columns of structs. Members of other sources may be present if they are null."""
        names = [field.name for field in data.type]
        for name in names:
            if name not in row_type:
                full = np.flatnonzero(pc.struct_field(data, name).is_valid().to_numpy(zero_copy_only=False))
                if len(full):
                    raise self.fail(int(rows[full[0]]), f"data has the field {name!r}, which {source} does not")
        columns = []
        for field in row_type.fields:
            if field.name in names:
                columns.append(pc.struct_field(data, field.name))
            elif field.nullable or not len(rows):
                columns.append(pa.nulls(len(rows), field.type.arrow))
            else:
                raise self.fail(int(rows[0]), f"data has no field {field.name!r}")
        return columns

    def _values(self, data: pa.Array, row_type: RowType, source: str, rows: Ints) -> list[pa.Array]:
        """The columns of lists in schema order."""
        width = len(row_type.fields)
        lengths = pc.list_value_length(data).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != width)
        if len(wrong):
            row = int(wrong[0])
            columns = listed(row_type.names)
            problem = f"data has {lengths[row]} values, but {source} has {width} columns ({columns})"
            raise self.fail(int(rows[row]), problem)
        flat = pc.list_flatten(data)
        return [flat.take(pa.array(np.arange(i, len(flat), width))) for i in range(width)]

    def _encode(self, field: Field, values: pa.Array, rows: Ints) -> Ints:
        try:
            return field.encode(values, self.heap)
        except BadValue as error:
            row = first_bad(len(values), lambda stop: field.encode(values.slice(0, stop), self.heap))
            found = shown(values[row].as_py())
            problem = f"{field.name} of data is {found}, which is not {spell(field.type, field.nullable)}"
            raise self.fail(int(rows[row]), problem) from error


def first_bad(n: int, attempt: Callable[[int], object]) -> int:
    """Find the first of n rows for which `attempt(number of first rows)` fails, by bisection. It must fail for all n
    rows.
    """
    good, bad = 0, n
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            attempt(middle)
            good = middle
        except (BadValue, pa.ArrowInvalid):
            bad = middle
    return good
