"""The avro format: a message is one record in Avro's binary encoding, whose fields are the source's columns.

A kernel reads the records of flat schemas (avro_records.py); fastavro reads the others, and explains what is wrong.
Where its schema comes from: by_schema.py. In the settings it is `schema_file` for messages that are just the record,
and `registry`, or `schema_folder` with schemas as `<id>.avsc`, for messages that begin with an id.
"""

from __future__ import annotations

import decimal
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro
import fastavro._read_py as _read_py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.scalars import TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.by_schema import BySchema
from vernier.service.ingest.formats.columns import TIME, resolved, rows_of
from vernier.service.ingest.formats.messages import Ints
from vernier.service.ingest.formats.registry import FRAME, Schema
from vernier.service.ingest.formats.sieve import bytes_of
from vernier.service.ingest.rejects import Refusal
from vernier.service.kernels import avro_records as kernel
from vernier.service.kernels.json_texts import copy_spans
from vernier.service.kernels.json_values import SPAN_LENGTH

Change = Callable[[Any], Any]

_DIGITS, _WORD = 38, 8
_SPACE, _OPEN = b" {"
_READER = re.compile(r" from <.* object at 0x[0-9a-f]+>")
"""Matches what a message of fastavro's says about the object that it reads from, which differs from attempt to
attempt."""
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
    changes: conversions for the fields that contain decimals. facts: int64[fields, 3], what the kernel has to know
    (there), None if it does not know the types of all fields; symbols: of the fields that are enums."""

    parsed: Any
    types: Mapping[str, pa.DataType]
    units: Mapping[str, int]
    changes: Mapping[str, Change]
    facts: Ints | None
    symbols: Mapping[str, Sequence[str]]

    def scans(self, row_type: RowType) -> bool:
        """Whether the kernel reads such records for rows of this type."""
        columns = (row_type.earlier_names.get(name, name) for name in self.types)
        own = (row_type.field(column).type.arrow for column in columns if column in row_type)
        return self.facts is not None and not any(map(pa.types.is_nested, own))

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
                array = self.stamped(name, pa.array(given, kind), row_type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                said = (str(error).splitlines() or [type(error).__name__])[0]
                reason = "overflow" if name in self.units or pa.types.is_decimal(kind) else "schema"
                raise Refusal(reason, f"field {name!r}: {said}") from error  # type: ignore[arg-type]
            found[name] = array
        return found

    def stamped(self, name: str, array: pa.Array, row_type: RowType) -> pa.Array:
        """A field's column: a timestamp field is one of instants, unless it is the update's time or a TimestampNs,
        which take its nanoseconds."""
        if name not in self.units or name == TIME or _is_instant(row_type, row_type.earlier_names.get(name, name)):
            return array
        return array.cast(pa.timestamp("ns", "UTC"))


@dataclass(frozen=True, slots=True)
class Scanned:
    """n records as the kernel has scanned them. text: uint8[.], in which spans lie; cells: int64[fields, n]; nulls:
    bool[fields, n]."""

    record: Record
    text: npt.NDArray[np.uint8]
    cells: Ints
    nulls: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        count: int = self.cells.shape[1]
        return count

    def __getitem__(self, part: slice) -> Scanned:
        return Scanned(self.record, self.text, self.cells[:, part], self.nulls[:, part])

    def columns(self, row_type: RowType) -> dict[str, pa.Array]:
        """The fields as Arrow columns, as `Record.columns` returns them."""
        record, found = self.record, {}
        for c, (name, kind) in enumerate(record.types.items()):
            array = self._column(name, kind, np.ascontiguousarray(self.cells[c]), self.nulls[c])
            found[name] = record.stamped(name, array, row_type)
        return found

    def _column(self, name: str, kind: pa.DataType, cells: Ints, nulls: npt.NDArray[np.bool_]) -> pa.Array:
        n, valid = len(cells), pa.array(~nulls).buffers()[1] if nulls.any() else None
        if name in self.record.symbols:
            symbols = pa.array(self.record.symbols[name], kind)
            return pa.DictionaryArray.from_arrays(pa.array(cells, mask=nulls), symbols).dictionary_decode()
        if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            offsets, data = copy_spans(self.text, cells)
            return pa.Array.from_buffers(kind, n, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])
        if pa.types.is_decimal(kind):
            return _decimals(kind, cells, valid)
        if pa.types.is_date32(kind):
            return pa.Array.from_buffers(kind, n, [valid, pa.py_buffer(cells.astype(np.int32))])
        if pa.types.is_boolean(kind):
            return pa.array(cells != 0, mask=nulls)
        return pa.Array.from_buffers(kind, n, [valid, pa.py_buffer(cells * self.record.units.get(name, 1))])


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

    def _columns(self, kind: Any, records: list[dict[str, Any]] | Scanned) -> Mapping[str, pa.Array]:
        if isinstance(records, Scanned):
            return records.columns(self._row_type)
        return self._schema(kind).columns(records, self._row_type)

    def _scan(self, values: pa.LargeBinaryArray) -> Iterator[tuple[int | None, Ints, Scanned]]:
        if not len(values):
            return
        text, starts = bytes_of(pc.fill_null(values, b"") if values.null_count else values)
        if starts[-1] > SPAN_LENGTH:
            return
        for number, messages in self._by_number(values, text, starts):
            record = self._schema(number)
            if record.facts is None or not record.scans(self._row_type):
                continue
            begins = starts[:-1][messages] + (0 if number is None else FRAME)
            cells = np.empty((len(record.types), len(messages)), np.int64)
            nulls = np.empty(cells.shape, np.bool_)
            good = kernel.scan_records(text, begins, starts[1:][messages], record.facts, cells, nulls)
            for c, name in enumerate(record.types):
                if name in record.units:
                    least, greatest = -(2**63 // record.units[name]), (2**63 - 1) // record.units[name]
                    good &= (cells[c] >= least) & (cells[c] <= greatest)
            if not good.all():
                messages, cells, nulls = messages[good], cells[:, good], nulls[:, good]
            if len(messages):
                yield number, messages, Scanned(record, text, cells, nulls)

    def _by_number(
        self, values: pa.LargeBinaryArray, text: npt.NDArray[np.uint8], starts: Ints
    ) -> Iterator[tuple[int | None, Ints]]:
        """The messages with records of each schema that is known and fits."""
        there = np.flatnonzero(np.diff(starts) > (0 if self._plain else FRAME))
        heads = text[starts[there]]
        if self._plain:
            perhaps = there[(heads == _SPACE) | (heads == _OPEN)]
            progress = [message for message in perhaps.tolist() if resolved(values[message].as_py())]
            yield None, np.setdiff1d(there, progress, assume_unique=True) if progress else there
            return
        there = there[heads == 0]
        numbers = np.zeros(len(there), np.int64)
        for at in range(1, FRAME):
            numbers = numbers << 8 | text[starts[there] + at]
        for number in np.unique(numbers).tolist():
            if number in self._texts and number not in self._unfit:
                yield number, there[numbers == number]

    def _read(self, number: int | None, value: bytes, start: int) -> tuple[int | None, dict[str, Any]]:
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            record = fastavro.schemaless_reader(stream, self._schema(number).parsed, None)
            if _LONG.search(value, start):
                # fastavro's compiled readers drop the bits of an integer beyond the 64th; its Python reader does not.
                again = io.BytesIO(value)
                again.seek(start)
                # Compared as texts, because a NaN does not equal itself.
                if repr(_read_py.schemaless_reader(again, self._schema(number).parsed, None)) != repr(record):
                    raise ValueError("an integer of more than 64 bits")
        except Exception as error:  # a wrong byte can make fastavro raise anything
            said = _READER.sub("", (str(error).splitlines() or [""])[0])
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
        facts: list[tuple[int, int, int] | None] = []
        symbols: dict[str, list[str]] = {}
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
            facts.append(_facts(field["type"], types[name], symbols.setdefault(name, [])))
        scanned = np.array(facts, np.int64) if None not in facts and 0 < len(facts) == len(types) else None
        symbols = {name: listed for name, listed in symbols.items() if listed}
        return Record(fastavro.parse_schema(given), types, units, changes, scanned, symbols)
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


_SCANNED = {
    "boolean": kernel.BOOLEAN,
    "int": kernel.LONG,
    "long": kernel.LONG,
    "float": kernel.FLOAT,
    "double": kernel.DOUBLE,
    "string": kernel.STRING,
    "enum": kernel.ENUM,
    "bytes": kernel.BYTES,
    "fixed": kernel.BYTES,
}
_SIZES = {"float": 4, "double": 8}


def _facts(kind: Any, arrow: pa.DataType, symbols: list[str]) -> tuple[int, int, int] | None:
    """What the kernel has to know about a field, whose type has no timestamps and decimals any more; None if it does
    not know the type. symbols: receives those of an enum."""
    null_at = -1
    if isinstance(kind, list):
        null_at = kind.index("null")
        kind = kind[1 - null_at]
    about: dict[str, Any] = {"type": kind} if isinstance(kind, str) else kind
    base, logical = about["type"], about.get("logicalType")
    if (
        not isinstance(base, str)
        or base not in _SCANNED
        or (logical is not None and (base, logical) != ("int", "date"))
    ):
        return None
    size = about["size"] if base == "fixed" else _SIZES.get(base, -1)
    if pa.types.is_date32(arrow):
        return (kernel.DATE, null_at, size) if logical == "date" else None
    if pa.types.is_decimal(arrow):
        scaled = base in ("bytes", "fixed") and 0 <= arrow.scale <= _DIGITS
        return (kernel.DECIMAL, null_at, size) if scaled else None
    if base == "enum":
        symbols += about["symbols"]
        size = len(symbols)
    return _SCANNED[base], null_at, size


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
    return _decimals(kind, numbers, None)


def _decimals(kind: pa.DataType, numbers: Ints, valid: pa.Buffer | None) -> pa.Array:
    """Unscaled numbers as decimals. valid: the bitmap of those that are not null."""
    # A decimal128 is the low word and the high word, which repeats the sign.
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(np.column_stack((numbers, numbers >> 63)))])


def _is_instant(row_type: RowType, name: str) -> bool:
    return name in row_type and isinstance(row_type.field(name).type, TimestampNs)
