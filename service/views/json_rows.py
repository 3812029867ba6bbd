"""Converts rows of words to JSON values and back, as HTTP and the console show them.

Int64 is a number. TimestampNs is a decimal string of nanoseconds, because JSON numbers lose precision above 2**53. Date
is `YYYY-MM-DD`, Bool a boolean. Float64 is a number, or "NaN", "Infinity" or "-Infinity", for which JSON has no
numbers. String is a string, Binary a base64 string, Decimal a string with all its digits ("1.50"), List an array,
Struct an object, null is null. Columns keep the program's order. A row whose multiplicity is not 1 carries it as
`_diff`; no column can have that name.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.parts import Composed, Slot
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import Field, RowType
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List
from vernier.service.codec.instants import parse_day, parse_instant
from vernier.service.ingest.formats.composed import double, is_number, judge_value
from vernier.service.ingest.formats.judge import load
from vernier.service.ingest.rejects import Refusal, shown
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints

TIME, DIFF = "_time", "_diff"
_INTEGER = re.compile(r"-?\d{1,20}", re.ASCII)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_BOOLS = {"true": True, "false": False, "1": True, "0": False}


def column_values(field: Field, words: Ints, heap: Heap | None = None) -> list[Any]:
    """The JSON values of one column of int64[n, width] rows. heap: holds the contents of long texts. O(n)."""
    if isinstance(field.type, Composed):
        array = field.decode(words[:, field.offset : field.offset + field.words], heap)
        return [jsonable(value, field.slot) for value in field.slot.to_python(array)]
    if field.nullable:
        block = words[:, field.value_offset : field.offset + field.words]
        values = _plain_values(field, block)
        valid = (words[:, field.offset] != 0).tolist()
        return [value if present else None for value, present in zip(values, valid, strict=True)]
    return _plain_values(field, words[:, field.offset : field.offset + field.words])


def _plain_values(field: Field, block: Ints) -> list[Any]:
    match field.type:
        case Int64():
            return list(block[:, 0].tolist())
        case TimestampNs():
            return [str(value) for value in block[:, 0].tolist()]
        case Bool():
            return [value != 0 for value in block[:, 0].tolist()]
        case Float64():
            return [value if math.isfinite(value) else _name(value) for value in field.type.from_words(block).tolist()]
        case _:
            return [value.isoformat() for value in field.type.decode(block).to_pylist()]


def jsonable(value: Any, slot: Slot) -> Any:
    """Convert a Python value of a composed type, or of a part of one, to its JSON form."""
    if value is None:
        return None
    match slot.type:
        case Binary():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case List():
            return [jsonable(one, slot.type.element) for one in value]
        case Struct():
            return {name: jsonable(value[name], own) for name, own in slot.type.fields.items()}
        case TimestampNs():
            return str(value)
        case Date():
            return value.isoformat()
        case Float64():
            return value if math.isfinite(value) else _name(value)
        case _:
            return value


def _name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


class RowJson:
    """Turns rows of one stored row type into dicts of the chosen columns. heap: holds the contents of long texts."""

    def __init__(self, stored: RowType, columns: Sequence[str], heap: Heap | None = None) -> None:
        self.columns, self._heap = tuple(columns), heap
        self._fields = [stored.field(name) for name in columns]

    def dicts(self, words: Ints, counts: Ints | None = None) -> list[dict[str, Any]]:
        """Return one dict per row. counts: int64[n] multiplicities, or None if they do not matter."""
        names = self.columns
        columns = [column_values(field, words, self._heap) for field in self._fields]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if counts is not None and bool((counts != 1).any()):
            for row, count in zip(rows, counts.tolist(), strict=True):
                if count != 1:
                    row[DIFF] = count
        return rows

    def arrow(
        self, words: Ints, counts: Ints | None = None, *, counted: bool | None = None, times: Ints | None = None
    ) -> pa.RecordBatch:
        """The rows as an Arrow record batch.

        `_time` is a column if there are `times`: int64[n]. `_diff` is a column if `counted` is true; if `counted` is
        None, it is a column when some multiplicity is not 1.
        """
        arrays = [
            field.decode(words[:, field.offset : field.offset + field.words], self._heap) for field in self._fields
        ]
        fields = [pa.field(field.name, field.type.arrow, nullable=field.nullable) for field in self._fields]
        if times is not None:
            arrays.append(pa.array(np.ascontiguousarray(times)))
            fields.append(pa.field(TIME, pa.int64(), nullable=False))
        if counts is not None and (bool((counts != 1).any()) if counted is None else counted):
            arrays.append(pa.array(np.ascontiguousarray(counts)))
            fields.append(pa.field(DIFF, pa.int64(), nullable=False))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def encode_value(field: Field, given: object, heap: Heap | None = None) -> tuple[int, ...]:
    """The words of one value that a user wrote as text or JSON. heap: receives a long text. Raises BadValue, which
    names the column.
    """
    if isinstance(field.type, Composed) and not (field.nullable and (given is None or given == "null")):
        value = _composed_value(field, given, field.type)
        return tuple(field.encode_python([value], Heap() if heap is None else heap)[0].tolist())
    if isinstance(field.type, Int64) and not field.nullable:
        return (_integer(field, given),)
    if given is None or given == "null":
        if not field.nullable:
            raise BadValue(column=field.name, problem="null, but its type has no `| None`")
        return (0,) * field.words
    array = pa.array([_python_value(field, given)], field.type.arrow)
    return tuple(field.encode(array)[0].tolist())


def _composed_value(field: Field, given: object, kind: Composed) -> Any:
    if isinstance(given, str) and isinstance(kind, (List, Struct)):
        try:
            given = load(given.encode("utf-8", "surrogatepass"))
        except Refusal as refusal:
            problem = f"{shown(given)} is not JSON of type {kind}: {refusal.detail}"
            raise BadValue(column=field.name, problem=problem) from refusal
    if isinstance(given, float):
        given = repr(given)
    try:
        return judge_value(given, kind, field.name)
    except Refusal as refusal:
        raise BadValue(column=field.name, problem=refusal.detail) from refusal


def _integer(field: Field, given: object) -> int:
    try:
        if isinstance(given, (bool, float)) or not isinstance(given, (int, str)):
            raise ValueError
        if isinstance(given, str) and not _INTEGER.fullmatch(given):
            raise ValueError
        value = int(given)
    except ValueError:
        raise BadValue(column=field.name, problem=f"{shown(given)} is not an integer") from None
    if not -(2**63) <= value < 2**63:
        raise BadValue(column=field.name, problem=f"{shown(value)} is outside 64-bit integers")
    return value


def _python_value(field: Field, given: object) -> object:
    """The Python value that Arrow accepts for the field's type."""
    try:
        match field.type:
            case Int64():
                return _integer(field, given)
            case TimestampNs():
                return parse_instant(given if isinstance(given, int) else str(given))
            case Bool():
                return given if isinstance(given, bool) else _BOOLS[str(given).lower()]
            case Float64():
                if isinstance(given, bool) or not isinstance(given, (int, float, str)):
                    raise ValueError
                if isinstance(given, str) and given in _NOT_FINITE:
                    return float(given)
                if isinstance(given, str) and not is_number(given):
                    raise ValueError
                return double(given, field.name)
            case _:
                return parse_day(str(given))
    except (ValueError, KeyError, OverflowError):
        raise BadValue(column=field.name, problem=f"{shown(given)} is not {field.type}") from None
    except Refusal as refusal:
        raise BadValue(column=field.name, problem=refusal.detail) from None
