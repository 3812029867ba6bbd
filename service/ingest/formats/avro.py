"""The avro format: a message is one record in Avro's binary encoding, whose fields are the source's columns.

Where its schema comes from: by_schema.py. In the settings it is `schema_file` for messages that are just the record,
and `registry`, or `schema_folder` with schemas as `<id>.avsc`, for messages that begin with an id.
"""

from __future__ import annotations

import decimal
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro
import fastavro._read_py as _read_py
import numpy as np
import pyarrow as pa

from vernier.operators.language.types.scalars import TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.by_schema import BySchema
from vernier.service.ingest.formats.columns import TIME, rows_of
from vernier.service.ingest.formats.registry import Schema
from vernier.service.ingest.rejects import Refusal

Change = Callable[[Any], Any]

_DIGITS, _WORD = 38, 8
_LONG = re.compile(rb"[\x80-\xff]{9}")
"""Matches the bytes of every integer of more than 64 bits."""
_UNITS = {
    "timestamp-millis": 1_000_000,
    "timestamp-micros": 1_000,
    "timestamp-nanos": 1,
    "local-timestamp-millis": 1_000_000,
    "local-timestamp-micros": 1_000,
    "local-timestamp-nanos": 1,
}
_KINDS = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "enum": pa.large_string(),
    "bytes": pa.large_binary(),
    "fixed": pa.large_binary(),
}


@dataclass(frozen=True, slots=True)
class Record:
    """A schema prepared for reading. types: the Arrow type of each field; units: ns per unit of the timestamp fields;
    changes: conversions for the fields that contain decimals."""

    parsed: Any
    types: Mapping[str, pa.DataType]
    units: Mapping[str, int]
    changes: Mapping[str, Change]

    def columns(self, records: Sequence[dict[str, Any]], row_type: RowType) -> dict[str, pa.Array]:
        """The fields of n records as Arrow columns. Raises Refusal."""
        found = {}
        for name, kind in self.types.items():
            column = row_type.earlier_names.get(name, name)
            given = [record[name] for record in records]
            try:
                if name in self.units:
                    unit = self.units[name]
                    given = [None if one is None else one * unit for one in given]
                elif column in row_type and pa.types.is_nested(row_type.field(column).type.arrow):
                    kind = row_type.field(column).type.arrow
                if (decimals := _short_decimals(kind, self.changes.get(name), given)) is not None:
                    found[name] = decimals
                    continue
                if name in self.changes:
                    given = [None if one is None else self.changes[name](one) for one in given]
                array = pa.array(given, kind)
                if name in self.units and name != TIME and not _is_instant(row_type, column):
                    array = array.cast(pa.timestamp("ns", "UTC"))
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                said = (str(error).splitlines() or [type(error).__name__])[0]
                reason = "overflow" if name in self.units or pa.types.is_decimal(kind) else "schema"
                raise Refusal(reason, f"field {name!r}: {said}") from error  # type: ignore[arg-type]
            found[name] = array
        return found


class Avro(BySchema[dict[str, Any]]):
    """Reads a topic of Avro records for one source."""

    ending = "avsc"

    def _text(self, found: Schema) -> str:
        if found.kind != "AVRO" or found.references:
            names = ", ".join(one.name for one in found.references)
            problem = f"is {found.kind}" if found.kind != "AVRO" else f"refers to {names}"
            raise ValueError(f"it {problem}; only records of Avro without references are read")
        return found.text

    def _check(self, text: str) -> None:
        rows_of(read_schema(text).columns([], self._row_type), 0, self._row_type, None)

    def _columns(self, kind: Any, records: list[dict[str, Any]]) -> Mapping[str, pa.Array]:
        return self._schema(kind).columns(records, self._row_type)

    def _read(self, number: int | None, value: bytes, start: int) -> tuple[int | None, dict[str, Any]]:
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            record = fastavro.schemaless_reader(stream, self._schema(number).parsed, None)
            if _LONG.search(value, start):
                # fastavro's compiled readers drop the bits of an integer beyond the 64th; its Python reader does not.
                again = io.BytesIO(value)
                again.seek(start)
                if _read_py.schemaless_reader(again, self._schema(number).parsed, None) != record:
                    raise ValueError("an integer of more than 64 bits")
        except Exception as error:  # a wrong byte can make fastavro raise anything
            said = (str(error).splitlines() or [""])[0]
            raise Refusal("decode", f"not Avro of that schema: {type(error).__name__} {said}".rstrip()) from error
        if stream.tell() != len(value):
            left = len(value) - stream.tell()
            raise Refusal("decode", f"not Avro of that schema: {left} bytes follow the record")
        return number, record  # type: ignore[return-value]

    def _schema(self, number: int | None) -> Record:
        return read_schema(self._texts[number])


@cache
def read_schema(text: str) -> Record:
    """A record schema from its JSON. Raises ValueError, with a one-line text, for an invalid or unsupported schema."""
    try:
        given = json.loads(text)
        types: dict[str, pa.DataType] = {}
        units: dict[str, int] = {}
        changes: dict[str, Change] = {}
        if not isinstance(given, dict) or given.get("type") != "record":
            raise ValueError("it is not a record")
        seen: dict[str, bool | None] = {str(given.get("name")).rpartition(".")[2]: None}
        for field in given["fields"]:
            name = field["name"]
            field["type"], types[name], unit = _plain_type(field["type"])
            if unit is not None:
                units[name] = unit
            _check_bounded(field["type"], seen)
            change = _change(field["type"])
            if change is not None:
                changes[name] = change
                field["type"] = _without_decimals(field["type"])
        return Record(fastavro.parse_schema(given), types, units, changes)
    except (fastavro.schema.SchemaParseException, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an Avro schema: {type(error).__name__}: {error}") from error


def _plain_type(kind: Any) -> tuple[Any, pa.DataType, int | None]:
    """A field's type with timestamps as integers, its Arrow type, and ns per unit if it is a timestamp."""
    if isinstance(kind, list):
        parts = [one for one in kind if one != "null"]
        if len(parts) != 1:
            raise ValueError(f"a union of {len(parts)} types cannot be a column")
        plain, arrow, unit = _plain_type(parts[0])
        return ["null", plain] if kind[0] == "null" else [plain, "null"], arrow, unit
    if isinstance(kind, str):
        return kind, _KINDS.get(kind, pa.null()), None
    logical, base = kind.get("logicalType"), kind["type"]
    if logical in _UNITS:
        return base, pa.int64(), _UNITS[logical]
    if logical == "date":
        return kind, pa.date32(), None
    if logical == "decimal":
        return kind, pa.decimal128(_DIGITS, int(kind.get("scale", 0))), None
    if logical is not None:
        # Times of day, durations and the like are read as the type they are encoded in.
        kind = {name: value for name, value in kind.items() if name != "logicalType"}
    if base in ("array", "record") and any(f'"{name}"' in json.dumps(kind) for name in _UNITS):
        raise ValueError("timestamps inside lists and records cannot be read")
    return kind, _KINDS.get(base, pa.null()), None


def _check_bounded(kind: Any, seen: dict[str, bool | None]) -> bool:
    """Whether each value of a type takes at least one byte. seen: the answers for named types, None while one is being
    checked.

    Raises ValueError if a short message could encode a long or deeply nested value.
    """
    if isinstance(kind, list):
        for one in kind:
            _check_bounded(one, seen)
        return True
    if isinstance(kind, str):
        found = seen.get(kind.rpartition(".")[2], kind != "null")
        if found is None:
            raise ValueError(f"{kind} contains itself, so the depth of its values has no limit")
        return found
    base = kind["type"]
    name = str(kind.get("name", "")).rpartition(".")[2]
    if base in ("array", "map"):
        if not _check_bounded(kind["items" if base == "array" else "values"], seen) and base == "array":
            raise ValueError("an array of values of no bytes, whose length has no limit")
        return True
    if base == "fixed":
        seen[name] = bool(kind["size"])
    elif base == "record":
        seen[name] = None
        parts = [_check_bounded(field["type"], seen) for field in kind["fields"]]
        seen[name] = any(parts)
    elif base == "enum":
        seen[name] = True
    else:
        return _check_bounded(base, seen)
    return bool(seen[name])


def _change(kind: Any) -> Change | None:
    """The conversion for values of a type that contains decimals, which are read as bytes; None for a type without
    decimals."""
    if isinstance(kind, list):
        (change,) = (_change(one) for one in kind if one != "null")
        return None if change is None else lambda value: None if value is None else change(value)
    if isinstance(kind, str):
        return None
    if kind.get("logicalType") == "decimal":
        scale = int(kind.get("scale", 0))
        return lambda value: _decimal(value, scale)
    if kind["type"] == "array":
        inner = _change(kind["items"])
        return None if inner is None else lambda value: [inner(one) for one in value]
    if kind["type"] == "record":
        changes = {field["name"]: _change(field["type"]) for field in kind["fields"]}
        wanted = {name: change for name, change in changes.items() if change is not None}
        if wanted:
            return lambda value: value | {name: change(value[name]) for name, change in wanted.items()}
    return None


def _without_decimals(kind: Any) -> Any:
    """The type with decimals replaced by the bytes that encode them: fastavro would round decimals to their
    precision."""
    if isinstance(kind, list):
        return [_without_decimals(one) for one in kind]
    if isinstance(kind, str):
        return kind
    if kind.get("logicalType") == "decimal":
        return {name: value for name, value in kind.items() if name not in ("logicalType", "scale", "precision")}
    changed = dict(kind)
    if "items" in kind:
        changed["items"] = _without_decimals(kind["items"])
    if "fields" in kind:
        changed["fields"] = [field | {"type": _without_decimals(field["type"])} for field in kind["fields"]]
    return changed


def _decimal(value: bytes, scale: int) -> decimal.Decimal:
    number = int.from_bytes(value, "big", signed=True)
    if abs(number) >= 10**_DIGITS:
        raise OverflowError(f"a decimal of more than {_DIGITS} digits")
    return decimal.Decimal(f"{number}e{-scale}")


def _short_decimals(kind: pa.DataType, change: Change | None, given: Sequence[Any]) -> pa.Array | None:
    """The column of a decimal field whose numbers have at most eight bytes each and are all there; None for others."""
    if change is None or not pa.types.is_decimal(kind) or not 0 <= kind.scale <= _DIGITS:
        return None
    if not given or None in given or max(map(len, given)) > _WORD:
        return None
    numbers = np.fromiter([int.from_bytes(one, "big", signed=True) for one in given], np.int64, len(given))
    # A decimal128 is the low word and the high word, which repeats the sign.
    return pa.Array.from_buffers(kind, len(given), [None, pa.py_buffer(np.column_stack((numbers, numbers >> 63)))])


def _is_instant(row_type: RowType, name: str) -> bool:
    return name in row_type and isinstance(row_type.field(name).type, TimestampNs)
