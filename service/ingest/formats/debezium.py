"""The debezium format: `{"before":row,"after":row,"op":"c"}`, bare or as `{"schema":…,"payload":…}`.

`c` and `r` insert `after`, `d` deletes `before`, `u` does both. An update therefore needs the old row: either have the
database send it (in PostgreSQL, REPLICA IDENTITY FULL), or name the key's columns in the settings, so that only `after`
counts. A message without a value, which follows a delete in a compacted topic, carries no information and is ignored,
like `op` `m`. With an event clock, the time is that of the source's transaction: `source.ts_ns`, `ts_us` or `ts_ms`.
Rows of a snapshot are marked as `source.snapshot` says (table_snapshots.py). Progress is `{"resolved":"<ns>"}`. Dates
that are integers count days. If the message has a schema, timestamps and decimals are read in the encodings of Debezium
and Kafka Connect that the schema names.
"""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats.enveloped import Enveloped, Events, Found, Line, Members, Opened, Text
from vernier.service.ingest.formats.judge import judge_time, load
from vernier.service.ingest.formats.messages import NO_TIME, Ints, Parsed, Progress
from vernier.service.ingest.formats.present import present
from vernier.service.ingest.formats.sieve import Bools
from vernier.service.ingest.formats.upsert import Upserted, Upserts
from vernier.service.ingest.rejects import Refusal, shown
from vernier.service.ingest.table_snapshots import Mark, Marks
from vernier.service.kernels.json_members import ABSENT, ANY, INSIDE, NUMBER, ROW, THERE
from vernier.service.kernels.json_values import GREATEST_TIME, LEAST_TIME, SPAN_LENGTH, SPAN_START
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME

_NULL = b"null"
_NONE = msgspec.Raw()
_FIRST_DAY = date(1970, 1, 1)
_DIGITS = re.compile(r"-?\d{1,5}", re.ASCII)
_OPEN_OBJECT = ord("{")
_GREATEST_SCALE = 20_000
"""A limit above the scale in any database; a number with this scale can be this long when it is written out."""
_LONGEST_NUMBER = 200
_LONGEST_DAY = len('"2024-02-29"')
_UNITS = {"ts_ns": 1, "ts_us": 1_000, "ts_ms": 1_000_000}


class _Times(msgspec.Struct):
    ts_ns: int | None = None
    ts_us: int | None = None
    ts_ms: int | None = None


class _Change(_Times):
    before: msgspec.Raw = _NONE
    after: msgspec.Raw = _NONE
    op: str | None = None
    source: _Times | None = None
    resolved: msgspec.Raw = _NONE
    payload: msgspec.Raw = _NONE
    schema: msgspec.Raw = _NONE


class _Place(msgspec.Struct):
    snapshot: str | bool | None = None


class _Placed(msgspec.Struct):
    source: _Place | None = None
    payload: _Placed | None = None


_placed = msgspec.json.Decoder(_Placed).decode
_SNAPSHOT = r'"snapshot"\s*:\s*"?(true|first|last)'
_change = msgspec.json.Decoder(_Change).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


_MEMBERS = Members(
    [
        ("before", ROW),
        ("after", ROW),
        ("op", ANY),
        ("source", INSIDE),
        ("resolved", ANY),
        ("payload", ANY),
        ("schema", ANY),
        *((name, NUMBER) for name in _UNITS),
    ],
    [(name, NUMBER) for name in _UNITS],
    others=True,
)
_BEFORE, _AFTER, _OP, _OTHERS = 0, 1, 2, slice(4, 7)
_OWN_TIMES, _TIMES = range(7, 10), range(10, 13)


class Debezium(Enveloped):
    """Reads a topic of Debezium's changes of one table; see messages.Format."""

    def __init__(self, sources: Mapping[str, RowType]) -> None:
        super().__init__(sources, self._open_message, days=True)
        (row_type,) = sources.values()
        self._values = _Values(row_type)

    def find(self, text: Text, starts: Ints, good: Bools) -> Sequence[Events]:
        found = _MEMBERS.find(text, starts)
        there, cells = found.there, found.cells
        good &= found.good & (there[:, _OTHERS] == ABSENT).all(axis=1) & (there[:, _OP] == THERE)
        time = _times_of(found, good)
        if not good.any():
            return ()
        # An op is one letter in quotation marks. A row is an object; what is no row of the op is null or left out.
        good &= (cells[:, _OP] & SPAN_LENGTH) == len('"c"')
        op = np.where(good, text[np.where(good, (cells[:, _OP] >> SPAN_START) + 1, 0)], 0)
        wanted = np.zeros((len(good), 2), np.bool_)
        wanted[:, _BEFORE] = (op == ord("u")) | (op == ord("d"))
        wanted[:, _AFTER] = (op == ord("u")) | (op == ord("c")) | (op == ord("r"))
        for row in (_BEFORE, _AFTER):
            first = text[np.where(good & wanted[:, row] & (there[:, row] == THERE), cells[:, row] >> SPAN_START, 0)]
            is_row = (there[:, row] == THERE) & (first == _OPEN_OBJECT)
            good &= np.where(wanted[:, row], is_row, there[:, row] != THERE)
        good &= wanted.any(axis=1)
        message, which = np.nonzero(wanted & good[:, np.newaxis])  # the row before comes before the row after
        if not len(message):
            return ()
        return [Events(text, message, cells[message, which], np.where(which == _AFTER, 1, -1), time[message])]

    def decode(self, values: pa.LargeBinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch of messages, with their marks."""
        return replace(super().decode(values, heap), marks=_marks(values))

    def _open_message(self, value: bytes | None) -> Opened:
        found = _unwrapped(value)
        if found is None:
            return []
        change, schema = found
        if change.resolved != _NONE and change.op is None:
            return Progress(0, MIN_TIME, judge_time(load(bytes(change.resolved)), "resolved", closed=True))
        wanted: tuple[tuple[str, msgspec.Raw, int], ...]
        match change.op:
            case "c" | "r":
                wanted = (("after", change.after, 1),)
            case "u":
                wanted = (("before", change.before, -1), ("after", change.after, 1))
            case "d":
                wanted = (("before", change.before, -1),)
            case "m":
                return []
            case _:
                raise _no_op(change.op)
        time = _time_of(change)
        lines = []
        for name, row, diff in wanted:
            text = bytes(row)
            if text in (b"", _NULL):
                hint = ""
                if name == "before":
                    hint = (
                        "; have the table send its rows as they were (REPLICA IDENTITY FULL), or set the source's key"
                    )
                raise Refusal("schema", f"op is {change.op} but {name} is null{hint}")
            lines.append(Line(self._values.plain(text, schema), diff, time))
        return lines


def _times_of(found: Found, good: Bools) -> Ints:
    """What `_time_of` says about each message, NO_TIME for none; a message without a legal one becomes false in
    `good`."""
    time, known = np.full(len(good), NO_TIME, np.int64), np.zeros(len(good), np.bool_)
    for columns in (_TIMES, _OWN_TIMES):
        for column, unit in zip(columns, _UNITS.values(), strict=True):
            mine = (found.there[:, column] == THERE) & ~known
            given = np.where(mine, found.cells[:, column], 0)
            good &= (given >= -(-LEAST_TIME // unit)) & (given <= GREATEST_TIME // unit)
            time[mine] = given[mine] * unit
            known |= mine
    return time


class DebeziumUpserts(Upserts):
    """Reads the changes of a table by key, without using old rows: `after` is the row as it is now.

    A delete names its row by the message's key, or by the key's columns in `before`.
    """

    def __init__(self, sources: Mapping[str, RowType], key: Sequence[str]) -> None:
        super().__init__(sources, key)
        (row_type,) = sources.values()
        self._values = _Values(row_type)

    def decode_keyed(self, values: pa.LargeBinaryArray, keys: pa.BinaryArray, heap: Heap | None = None) -> Parsed:
        """Decode a batch with its keys, with the messages' marks."""
        return replace(super().decode_keyed(values, keys, heap), marks=_marks(values))

    def _opened(self, key: bytes | None, value: bytes | None, suspect: bool) -> Upserted | None:
        found = _unwrapped(value)
        if found is None or found[0].op == "m":
            return None
        change, schema = found
        time = _time_of(change)
        match change.op:
            case "c" | "r" | "u":
                if bytes(change.after) in (b"", _NULL):
                    raise Refusal("schema", f"op is {change.op} but after is null")
                return Upserted(self._values.plain(bytes(change.after), schema), b"", time)
            case "d":
                # A key that is not JSON, as some converters write it, is ignored.
                return Upserted(None, self._gone(None if suspect else key, change, schema), time)
            case _:
                raise _no_op(change.op)

    def _gone(self, key: bytes | None, change: _Change, schema: bytes) -> bytes:
        """The key columns of a deleted row."""
        for text in (key, bytes(change.before)):
            try:
                members = _members(text or b"{}")
                if "payload" in members:
                    members = _members(members["payload"])
                members = self._present(members, "the key")
            except msgspec.DecodeError:
                continue
            if all(name in members for name in self._key):
                row = msgspec.json.encode({name: members[name] for name in self._key})
                return self._values.plain(row, schema)
        raise Refusal("key", f"neither the key nor before has {', '.join(self._key)}, so the deleted row is unknown")


class _Values:
    """Converts values of special columns to the form of the json format."""

    def __init__(self, row_type: RowType) -> None:
        kinds = (Date, TimestampNs, Decimal)
        self._row_type = row_type
        self._special = frozenset(field.name for field in row_type.fields if isinstance(field.type, kinds))
        self._dates = frozenset(field.name for field in row_type.fields if isinstance(field.type, Date))

    def plain(self, text: bytes, schema: bytes) -> bytes:
        """A row in the form of the json format. Raises Refusal."""
        if not self._special:
            return text
        try:
            row = _members(text)
        except msgspec.DecodeError:
            return text
        reads = _readers(schema) if schema else {}
        if self._row_type.changed:
            row = present(row, self._row_type, "the row")
            reads = {self._row_type.earlier_names.get(name, name): read for name, read in reads.items()}
        for name in self._special & row.keys():
            read = reads.get(name, _day if name in self._dates else None)
            if read is None or bytes(row[name]) == _NULL:
                continue
            raw = bytes(row[name])
            try:
                day = read is _day and len(raw) <= _LONGEST_DAY
                row[name] = _written_day(raw) if day else msgspec.Raw(msgspec.json.encode(read(load(raw))))
            except (ValueError, TypeError, LookupError, OverflowError, ArithmeticError) as error:
                found = f"{name} is {shown(load(raw))}, which is not what its type or schema says ({error})"
                raise Refusal("schema", found) from error
        return msgspec.json.encode(row)


def _unwrapped(value: bytes | None) -> tuple[_Change, bytes] | None:
    """A change and its schema, b"" for none; None for a message that carries no information. Raises Refusal."""
    if value is None:
        return None
    try:
        change, schema = _change(value), b""
        if change.payload != _NONE:
            schema = bytes(change.schema)
            if bytes(change.payload) == _NULL:
                return None
            change = _change(change.payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _explained(value, error) from error
    return change, schema


def _marks(values: pa.LargeBinaryArray) -> Marks:
    """What each message is to a snapshot, int8[m]."""
    marks = np.zeros(len(values), np.int8)
    found = pc.fill_null(pc.match_substring_regex(values, _SNAPSHOT), False).to_numpy(zero_copy_only=False)
    for message in np.flatnonzero(found).tolist():
        try:
            placed = _placed(values[message].as_py())
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        source = (placed.payload or placed).source
        said = None if source is None else source.snapshot
        if said is True or said == "true":
            marks[message] = Mark.ROW
        elif isinstance(said, str) and said.startswith(("first", "last")):
            marks[message] = Mark.FIRST if said.startswith("first") else Mark.LAST
    return marks


def _no_op(op: str | None) -> Refusal:
    """The refusal for a change whose op is missing, unknown or a truncation."""
    if op is None:
        return Refusal("decode", "the message has no op, so it is not a Debezium change")
    if op == "t":
        return Refusal("decode", "the table was truncated (op t), which does not list the deleted rows")
    return Refusal("decode", f"op is {shown(op)}, but it should be c, r, u or d")


def _time_of(change: _Change) -> bytes | None:
    """The time of the source's transaction or, without one, that of the message; None if there is neither."""
    for times in (change.source, change):
        for name, unit in _UNITS.items():
            found = getattr(times, name, None)
            if found is not None:
                if not -(2**63) <= found * unit < 2**63:
                    raise Refusal("overflow", f"the time is {shown(found)} ({name}), which does not fit 64 bits")
                return b"%d" % (found * unit)
    return None


@lru_cache(maxsize=64)
def _readers(schema: bytes) -> Mapping[str, Callable[[Any], Any]]:
    """The conversions of the columns that a schema describes, by name, without columns that need none. Raises
    Refusal."""
    found = {}
    described = load(schema)
    for row in _fields(described) if described is not None else ():
        if row.get("field") in ("before", "after"):
            for column in _fields(row):
                name, kind = column.get("field"), column.get("name")
                if not isinstance(name, str) or not isinstance(kind, str | None):
                    raise Refusal("decode", f"its schema describes a column by {shown(column)}")
                read = _reader(kind, column.get("parameters"))
                if read is not None:
                    found[name] = read
    return found


def _fields(described: object) -> list[dict[str, Any]]:
    """The fields of a struct in a schema. Raises Refusal."""
    fields = described.get("fields") if isinstance(described, dict) else described
    if fields is None:
        return []
    if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
        raise Refusal("decode", f"its schema has {shown(fields)} where fields should be")
    return fields


def _reader(name: str | None, parameters: object) -> Callable[[Any], Any] | None:
    match name:
        case "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date":
            return _day
        case "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp":
            return lambda value: _integer(value) * 1_000_000
        case "io.debezium.time.MicroTimestamp":
            return lambda value: _integer(value) * 1_000
        case "org.apache.kafka.connect.data.Decimal":
            return lambda value: _decimal(value, _scale_of(parameters))
        case "io.debezium.data.VariableScaleDecimal":
            return lambda value: _decimal(value["value"], _scale(_integer(value["scale"])))
    return None


def _scale_of(parameters: object) -> int:
    """The scale of a decimal according to a schema's parameters; 0 without parameters."""
    if parameters is None:
        return 0
    if not isinstance(parameters, dict):
        raise TypeError(f"its schema's parameters are {shown(parameters)}")
    return _scale(parameters.get("scale", 0))


def _scale(given: object) -> int:
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or abs(given) > _GREATEST_SCALE:
        raise ValueError(f"its scale is {shown(given)}, not an integer of at most {_GREATEST_SCALE}")
    return given


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("it should be an integer")
    return value


def _day(value: Any) -> Any:
    """A date from days since 1970; a text is left unchanged."""
    return value if isinstance(value, str) else (_FIRST_DAY + timedelta(days=_integer(value))).isoformat()


@lru_cache(maxsize=1 << 14)
def _written_day(raw: bytes) -> msgspec.Raw:
    """The JSON of a date from the JSON that was sent. Days repeat, so this is a look-up for nearly all of them."""
    return msgspec.Raw(msgspec.json.encode(_day(load(raw))))


def _decimal(value: Any, scale: int) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NUMBER:
        raise ValueError(f"it should be base64 of at most {_LONGEST_NUMBER} characters")
    number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    return f"{decimal.Decimal(f'{number}e{-scale}'):f}"


def _explained(value: bytes, error: Exception) -> Refusal:
    try:
        found = load(value)
    except Refusal as refusal:
        return refusal
    return Refusal("decode", f"the message is {shown(found)}, which is not a Debezium change ({error})")
