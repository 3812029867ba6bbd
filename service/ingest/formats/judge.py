"""The judge: reads one JSON message strictly and says exactly what is wrong with it.

The scanner (scan.py) handles well-formed messages; the messages it leaves come here, one at a time, so this module
defines what is legal. It works on Python values and is written to be read rather than to be fast (about 0.1 M messages
per second).
"""

import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never

import numpy as np

from vernier.operators.language.types.parts import Composed
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, spell
from vernier.operators.language.types.schema import Field, RowType
from vernier.service.codec.instants import BadInstant, InstantOutOfRange, NoZone, parse_day, parse_instant
from vernier.service.ingest.formats.composed import Huge, Real, double, judge_value
from vernier.service.ingest.formats.present import completed, named, present
from vernier.service.ingest.rejects import Refusal, shown
from vernier.service.kernels.json_sieve import DEEPEST
from vernier.storage.updates import CLOSED, MIN_TIME

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_INT_DIGITS = 20
_EPOCH_DAY = parse_day("1970-01-01").toordinal()
TOO_DEEP = "nested too deeply"
"""The beginning of the details of such refusals."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_OPENING, _CLOSING = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Cell = Any
"""One column of a row: as the scanner would have written it (an integer, a double's bits, days, nanoseconds, 0 or 1);
for a composed type its Python value; or None for null."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One legal update: its source's name, a cell for each column, time (None: not sent) and diff."""

    source: str
    cells: Sequence[Cell]
    time: int | None
    diff: int


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal("decode", f"the member {shown(twice)} comes twice in one object")
    return members


def _constant(text: str) -> Never:
    raise Refusal("decode", f"{text} is not JSON; a Float64 takes it as a string")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_constant=_constant,
    parse_float=Real,
    parse_int=lambda text: int(text) if len(text) <= _INT_DIGITS else Huge(text),
)


def load(value: bytes | None) -> object:
    """The JSON value of a message, with unique members and exact numbers. Raises Refusal."""
    if value is None:
        raise Refusal("decode", "the message is empty: it has no value")
    try:
        check_depth(value)
        text = value.decode("utf-8")
        if not text.strip(" \t\r\n"):
            raise Refusal("decode", f"the message is empty: its value has {len(value)} bytes, none of them JSON")
        return _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise Refusal("decode", f"not UTF-8: byte 0x{value[error.start]:02x} at position {error.start}") from error
    except json.JSONDecodeError as error:
        raise Refusal("decode", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from error


def check_depth(value: bytes) -> None:
    """Refuse a message that is nested too deeply for its readers. O(bytes). Raises Refusal."""
    if value.count(b"[") + value.count(b"{") > DEEPEST and _depth(value) > DEEPEST:
        raise Refusal("decode", f"{TOO_DEEP}: its values are nested more than {DEEPEST} levels deep")


def _depth(value: bytes) -> int:
    """The nesting depth of arrays and objects. O(bytes)."""
    marks = np.frombuffer(_STRING.sub(b"", value), np.uint8)
    steps = np.isin(marks, _OPENING).astype(np.int64) - np.isin(marks, _CLOSING)
    return int(np.cumsum(steps).max(initial=0))


def only_members(value: dict[str, Any], known: Sequence[str], what: str) -> None:
    """Refuse members that the format does not have: a misspelt member would otherwise be taken for a missing one."""
    for name in value:
        if name not in known:
            raise Refusal("decode", f"{what} has the unknown member {shown(name)} (it may have {', '.join(known)})")


def source_of(name: object, sources: dict[str, RowType], what: str) -> tuple[str, RowType]:
    """The source that a message names; if `name` is not a str, the topic's only source. Raises Refusal."""
    if isinstance(name, str):
        if name not in sources:
            known = ", ".join(sorted(sources))
            raise Refusal("unknown_source", f"no source {shown(name)} reads this topic (it carries {known})")
        return name, sources[name]
    if name is not None:
        raise Refusal("decode", f"input is {shown(name)}, but it should be a source's name")
    if len(sources) > 1:
        raise Refusal("unknown_source", f"{what} names no input, and this topic carries {', '.join(sorted(sources))}")
    only = next(iter(sources))
    return only, sources[only]


def judge_time(value: object, what: str, closed: bool = False) -> int:
    """A time in ns, from an integer, a decimal string or RFC 3339; `closed` allows the greatest one, a frontier. Raises
    Refusal."""
    if isinstance(value, Huge) or (
        isinstance(value, str) and len(value) > _INT_DIGITS and value.isascii() and value.removeprefix("-").isdecimal()
    ):
        raise Refusal("overflow", f"{what} is {shown(value)}, which does not fit 64 bits")
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise Refusal("decode", f"{what} is {shown(value)}, but it should be nanoseconds since 1970 or RFC 3339")
    try:
        time = parse_instant(value)
    except NoZone as error:
        raise Refusal("decode", f"{what}: {error}") from error
    except BadInstant as error:
        raise Refusal("decode", f"{what} is {shown(value)}, which is neither an integer nor RFC 3339") from error
    except InstantOutOfRange as error:
        raise Refusal("overflow", f"{what} is {shown(value)}, outside {MIN_TIME} to {CLOSED - 1}") from error
    if time == CLOSED and not closed:
        raise Refusal("overflow", f"{what} is {shown(value)}, outside {MIN_TIME} to {CLOSED - 1}")
    return time


def judge_diff(value: object, what: str) -> int:
    """A diff: an int64 other than 0. Raises Refusal."""
    if isinstance(value, Huge) or (isinstance(value, int) and not _LEAST <= value <= _GREATEST):
        raise Refusal("overflow", f"{what} is {shown(value)}, which does not fit 64 bits")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal("schema", f"{what} is {shown(value)}, but it should be an integer")
    if value == 0:
        raise Refusal("schema", f"{what} is 0, which changes nothing")
    return value


def judge_row(value: object, row_type: RowType, what: str) -> list[Cell]:
    """The cells of a row, which is an array in column order or an object by name (a nullable column may be left
    out). It may have columns that the source had earlier (present.py)."""
    fields = row_type.fields
    if row_type.changed and isinstance(value, list):
        value = named(value, row_type)
    if row_type.changed and isinstance(value, dict):
        value = completed(present(value, row_type, what), row_type)
    if isinstance(value, list):
        if len(value) != len(fields):
            names = ", ".join(row_type.names)
            raise Refusal(
                "schema", f"{what} has {len(value)} values, but the source has {len(fields)} columns ({names})"
            )
        return [_cell(given, field, what) for given, field in zip(value, fields, strict=True)]
    if not isinstance(value, dict):
        raise Refusal("schema", f"{what} is {shown(value)}, but it should be an array or an object")
    for name in value:
        if name not in row_type:
            columns = ", ".join(row_type.names)
            raise Refusal("schema", f"{what} has the field {shown(name)}, which the source does not (it has {columns})")
    for field in fields:
        if field.name not in value and not field.nullable:
            raise Refusal("schema", f"{what} has no field {field.name!r}")
    return [_cell(value.get(field.name), field, what) for field in fields]


def _cell(value: object, field: Field, what: str) -> Cell:
    if value is None:
        if field.nullable:
            return None
        raise Refusal("schema", f"{field.name} of {what} is null, but its type is {field.type}")
    if isinstance(field.type, Composed):
        return judge_value(value, field.type, f"{field.name} of {what}")
    if isinstance(field.type, Int64):
        return _int64(value, field, what)
    if isinstance(field.type, Bool) and isinstance(value, bool):
        return int(value)
    if isinstance(field.type, Float64):
        return _float64(value, field, what)
    if isinstance(field.type, TimestampNs):
        return judge_time(value, f"{field.name} of {what}", closed=True)
    if isinstance(field.type, Date) and isinstance(value, str):
        try:
            return parse_day(value).toordinal() - _EPOCH_DAY
        except ValueError as error:
            raise Refusal("schema", f"{field.name} of {what} is {shown(value)}, which is not a date") from error
    raise _wrong(value, field, what)


def _int64(value: object, field: Field, what: str) -> int:
    if isinstance(value, Huge) or (isinstance(value, int) and not _LEAST <= value <= _GREATEST):
        raise Refusal("overflow", f"{field.name} of {what} is {shown(value)}, which does not fit 64 bits")
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(value, field, what)
    return value


def _float64(value: object, field: Field, what: str) -> int:
    if isinstance(value, str) and value in _NOT_FINITE:
        number = _NOT_FINITE[value]
    elif isinstance(value, (int, float, Huge)) and not isinstance(value, bool):
        number = double(value, f"{field.name} of {what}")
    else:
        raise _wrong(value, field, what)
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits


def _wrong(value: object, field: Field, what: str) -> Refusal:
    return Refusal(
        "schema", f"{field.name} of {what} is {shown(value)}, which is not {spell(field.type, field.nullable)}"
    )
