"""Encodes the answer of a question as JSON, lines of JSON, CSV or an Arrow stream, within its limits.

Values look as in answers about views (docs/http.md): integers of any size are numbers, every timestamp is a decimal
string of nanoseconds, a decimal is a string with all its digits. Types that views do not have (intervals, times of day,
maps, UUIDs, …) arrive as the text that DuckDB prints. Two columns of one name become `n` and `n_1`. DuckDB's infinite
dates and timestamps are no numbers, so they fail, except in TIMESTAMP_NS: there they are the last values of a view.
"""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from vernier.service.ask.errors import AnswerTooLarge, QueryFailed, TooManyRows
from vernier.service.ask.frames import Column, Done, Run

_BATCH = 8_192
_INTEGERS = frozenset(
    {"tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint"}
)
_TIMES = frozenset({"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"})
_PLAIN = _INTEGERS | _TIMES | {"boolean", "float", "double", "varchar", "blob", "date", "decimal", '"null"'}
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def encode(answer: duckdb.DuckDBPyRelation, request: Run) -> Done:
    """Run a question to its end. Raises TooManyRows, AnswerTooLarge, QueryFailed, and DuckDB's errors."""
    names = distinct([name for name, *_ in answer.description])
    kinds = [kind for _, kind, *_ in answer.description]
    columns = [Column(name, str(kind)) for name, kind in zip(names, kinds, strict=True)]
    plain = [_is_plain(kind) for kind in kinds]
    if not all(plain):
        # Positions, because names may be there twice.
        chosen = [f"#{i}" if easy else f"CAST(#{i} AS VARCHAR)" for i, easy in enumerate(plain, 1)]
        answer = answer.project(", ".join(chosen))
        kinds = [kind for _, kind, *_ in answer.description]
    batches = _limited(answer.to_arrow_reader(_BATCH), request.max_rows)
    try:
        rows, body = _FORMS[request.form](batches, names, kinds, request)
    except (OverflowError, ValueError) as error:
        raise QueryFailed(problem=f"a value of the answer cannot be written: {error}") from error
    return Done(columns, rows, body)


def distinct(names: list[str]) -> list[str]:
    """The names with `_1`, `_2`, … behind those that an earlier column has."""
    taken = set(names)
    found: list[str] = []
    for name in names:
        own, number = name, 0
        while own in found or (number and own in taken):
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def _is_plain(kind: Any) -> bool:
    if kind.id in ("list", "array"):
        return _is_plain(kind.children[0][1])
    if kind.id == "struct":
        return all(_is_plain(child) for _, child in kind.children)
    return kind.id in _PLAIN


def _limited(reader: pa.RecordBatchReader, most: int) -> Iterator[pa.RecordBatch]:
    """The batches, first an empty one with the schema. Raises TooManyRows."""
    yield pa.RecordBatch.from_pylist([], reader.schema)
    rows = 0
    for batch in reader:
        rows += batch.num_rows
        if rows > most:
            raise TooManyRows(limit=most)
        for array in batch.columns:
            _check_finite(array)
        yield batch


def _check_finite(array: pa.Array) -> None:
    """Raises QueryFailed for an infinite date or timestamp, also in a list or a struct: DuckDB writes infinity as the
    largest integer."""
    kind = array.type
    if pa.types.is_nested(kind):
        for part in array.flatten() if pa.types.is_struct(kind) else [array.flatten()]:
            _check_finite(part)
    elif pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns"):
        bits = kind.bit_width
        most = 2 ** (bits - 1) - 1
        numbers = array.cast(pa.int32() if bits == 32 else pa.int64())
        if pc.any(pc.is_in(numbers, pa.array([most, -most], numbers.type))).as_py():
            raise QueryFailed(problem="an infinite date or timestamp is no number; leave it out with isfinite()")


# --- JSON and CSV -----------------------------------------------------------------------------------------------------


def _dicts(batch: pa.RecordBatch, names: list[str], kinds: list[Any]) -> Iterator[tuple[Any, ...]]:
    columns = [values(array, kind) for array, kind in zip(batch.columns, kinds, strict=True)]
    return zip(*columns, strict=True)


def _lines(batches: Iterator[pa.RecordBatch], names: list[str], kinds: list[Any], request: Run) -> list[bytes]:
    encoder, found, size = msgspec.json.Encoder(), list[bytes](), 0
    for batch in batches:
        for row in _dicts(batch, names, kinds):
            found.append(encoder.encode(dict(zip(names, row, strict=True))))
            size += len(found[-1]) + 1
        if size > request.max_bytes:
            raise AnswerTooLarge(limit=request.max_bytes)
    return found


def _json(batches: Iterator[pa.RecordBatch], names: list[str], kinds: list[Any], request: Run) -> tuple[int, bytes]:
    lines = _lines(batches, names, kinds, request)
    return len(lines), b"[" + b",".join(lines) + b"]"


def _ndjson(batches: Iterator[pa.RecordBatch], names: list[str], kinds: list[Any], request: Run) -> tuple[int, bytes]:
    lines = _lines(batches, names, kinds, request)
    return len(lines), b"".join(line + b"\n" for line in lines)


def _csv(batches: Iterator[pa.RecordBatch], names: list[str], kinds: list[Any], request: Run) -> tuple[int, bytes]:
    out, rows = io.StringIO(), 0
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for batch in batches:
        rows += batch.num_rows
        writer.writerows([_cell(value) for value in row] for row in _dicts(batch, names, kinds))
        if out.tell() > request.max_bytes:
            raise AnswerTooLarge(limit=request.max_bytes)
    return rows, out.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        return msgspec.json.encode(value).decode()
    return "" if value is None else value


def values(array: pa.Array, kind: Any) -> list[Any]:
    """The JSON values of a column. kind: DuckDB's type of it."""
    if kind.id in ("list", "array"):
        if kind.id == "array":
            array = array.cast(pa.large_list(array.type.value_type))
        inner = values(array.values, kind.children[0][1])
        offsets = array.offsets.to_pylist()
        spans = zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
        return [inner[start:end] if there else None for start, end, there in spans]
    if kind.id == "struct":
        names = [name for name, _ in kind.children]
        parts = [values(part, child) for part, (_, child) in zip(array.flatten(), kind.children, strict=True)]
        there = array.is_valid().to_pylist()
        rows = zip(*parts, strict=True)
        return [dict(zip(names, row, strict=True)) if some else None for row, some in zip(rows, there, strict=True)]
    if kind.id in _TIMES:
        factor = _NS[array.type.unit]
        return [None if value is None else str(value * factor) for value in array.cast(pa.int64()).to_pylist()]
    found = array.to_pylist()
    convert = _CONVERT.get(kind.id)
    return found if convert is None else [None if value is None else convert(value) for value in found]


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "hugeint": int,
    "decimal": lambda value: f"{value:f}",
    "float": _float,
    "double": _float,
    "blob": lambda value: base64.b64encode(value).decode(),
    "date": lambda value: value.isoformat(),
}


# --- Arrow ------------------------------------------------------------------------------------------------------------


def _arrow(batches: Iterator[pa.RecordBatch], names: list[str], kinds: list[Any], request: Run) -> tuple[int, bytes]:
    first = next(batches)
    fields = [_arrow_field(name, one.type) for name, one in zip(names, first.schema, strict=True)]
    schema = pa.schema(fields, {"vernier.as_of": str(request.as_of)})
    sink, rows = io.BytesIO(), 0
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            arrays = [pc.cast(array, one.type) for array, one in zip(batch.columns, schema, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            rows += batch.num_rows
            if sink.tell() > request.max_bytes:
                raise AnswerTooLarge(limit=request.max_bytes)
    return rows, sink.getvalue()


def _arrow_field(name: str, kind: pa.DataType) -> pa.Field:
    """A field of the answer: instants are of UTC, as in answers about views."""
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp(kind.unit, "UTC")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = pa.large_list(_arrow_field("item", kind.value_type))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_arrow_field(one.name, one.type) for one in kind])
    return pa.field(name, kind)


_FORMS: dict[str, Callable[[Iterator[pa.RecordBatch], list[str], list[Any], Run], tuple[int, bytes]]] = {
    "json": _json,
    "ndjson": _ndjson,
    "csv": _csv,
    "arrow": _arrow,
}
