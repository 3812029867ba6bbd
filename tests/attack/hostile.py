"""Hostile messages of every format: none of them may enter, stop a service, or take a process down.

All are for one source, `Hostile`: each becomes one dead letter. Arrow messages are made once a process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache

from tests.attack.hostile_binary import AVRO, records, streams
from tests.attack.hostile_protobuf import PROTOBUF, protobufs
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import Schema
from vernier.operators.language.types.texts import Binary, List, String

__all__ = ["AVRO", "FORMATS", "KEY", "SCHEMAS", "Hostile", "hostile_messages"]


class Hostile(Schema):
    """The columns that the messages are for."""

    id: Int64
    m: Decimal(15, 2) | None
    note: String | None
    at: TimestampNs | None
    day: Date | None
    x: Float64 | None
    tags: List(Int64) | None
    raw: Binary | None


KEY = ("id",)
"""The key of the source where its format is upsert."""

FORMATS = ("vernier", "json", "arrow", "upsert", "insert_delete", "debezium", "avro", "protobuf")

SCHEMAS = {"avro": ((None, json.dumps(AVRO)),), "protobuf": ((None, PROTOBUF),)}
"""The schemas of the formats that need one."""

Message = tuple[bytes | None, bytes | None]
"""Key and value."""

_DIGITS = "9" * 5_000
_DEEP = "[" * 3_000 + "]" * 3_000
_DEEP_OBJECTS = '{"a":' * 3_000 + "1" + "}" * 3_000
_LEVELS = "[" * 900 + "]" * 900
"""As deep as a JSON parser of Python's takes it, and too deep for what comes behind."""

_CELLS: dict[str, tuple[str, ...]] = {
    "id": (
        "1e999", "-1e999", _DIGITS, f"-{_DIGITS}", "1.0", '"1"', '"+5"', '" 5"', "true", "null", "9223372036854775808",
        "-9223372036854775809", "1e2", "{}", _DEEP, _LEVELS, '"\\ud800"',
    ),
    "m": (
        "1e-999999999", '"1e-999999999"', "1e-1000", '"1e-95"', "1e-85", "1e-77", "1e-71", "1e-61", "1e-41", "1e-3",
        "1.001", '"0.001"', '"1_0"', '" 5"', '"+5"', '"5 "', '"NaN"', '"Infinity"', '"sNaN"', "1e999999999",
        '"1e999999999"', '"1e99999999999999999999"', "1e14", _DIGITS, f'"{_DIGITS}"', f"0.{_DIGITS}", '"\u0663"',
        '"0x10"',
        '"1e"', '"."', '".5"', '"5."', '"05"', '""', "true", "{}", '"\\ud800"', _LEVELS, '"1\\u00005"',
    ),
    "note": ("5", "true", "{}", '"\\ud800"', '"\\udc00\\ud800"', '"\x01"', '"\\x"', '"open', _LEVELS),
    "at": (
        '" 5"', '"+5"', '"1_0"', '"5 "', '"1e3"', "1.5", "1e3", "18446744073709551616", "9223372036854775808", _DIGITS,
        f'"{_DIGITS}"', '"2026-W01-1T00:00:00Z"', '"2026-01-01T00:00:60Z"', '"2026-01-01T00:00:00+99:99"',
        '"2026-01-01T00:00:00"', '"2026-01-01T24:00:00Z"', '"2026-02-30T00:00:00Z"', '"0000-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59Z"', '"2026-01-01T00:00:00.0000000001Z"', '"\u0662\u0660\u0662\u0666-01-01T00:00:00Z"',
        "true", '""', '"\\ud800"', _LEVELS,
    ),
    "day": (
        '"2026-W01-1"', '"20260101"', '"2026-1-1"', '"2026-02-30"', '"0000-01-01"', '"2026-001"', '" 2026-1-1"', "1.5",
        '"\u0662\u0660\u0662\u0666-01-01"', '"2026-01-01T00:00:00Z"', '""', "true", _DIGITS, "1e999", '"2026/01/01"',
    ),
    "x": (
        '"1_0"', "1e999", "-1e999", '"inf"', '"nan"', '"+5"', '" 5"', '"5"', "9" * 400, _DIGITS, "true", "NaN",
        "Infinity", "+5", "05", ".5", "5.", "0x10", "1_0", _LEVELS,
    ),
    "tags": (
        "[1e3]", "[1.0]", '["1"]', "[null]", '{"0":1}', f"[{_DIGITS}]", "[9223372036854775808]", _DEEP, _LEVELS, "[1,]",
        "5", '"[1]"', "[1e999]", "[true]",
    ),
    "raw": ('"\u00e9"', '"!!!!"', '"A"', '"AA=A"', "5", '"\\ud800"', '"AAA"', '"AA AA"'),
}  # fmt: skip
"""By column, JSON that is no value of it."""

_DIFFS = (
    "9223372036854775807", "-9223372036854775808", "2147483649", "-2147483649", "0", "1e999", '"1"', "true", "1.0",
    "9223372036854775808", _DIGITS, "[1]", "1_0", "+1", _LEVELS,
)  # fmt: skip
_TIMES = (
    '"9223372036854775807"', "9223372036854775808", '"-9223372036854775808"', '" 5"', '"+5"', '"1_0"', "1.5", "true",
    "1e999",
    _DIGITS, f'"{_DIGITS}"', '"soon"', '"2026-W01-1"', '"2026-01-01"', _DEEP, _LEVELS, '"\\ud800"', "[]",
)  # fmt: skip
_BYTES = (
    b"", b" ", b"\n\t ", b"\xff", b"\xfe\xff", b"\x00", b"\xef\xbb\xbf{}", b"{", b"[", b'"', b"{]", b"[}", b"nul",
    b"NaN",
    b"-", b"1e", b'{"a"', b'{"a":', b'{"a":1,', b'{"a":1,}', b'{"":1}', b"{'a':1}", b"// x", b"{}{}", b"[] []",
    b'"\\u12"',
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00", b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00", b"<xml/>", b"\x80\x04\x95.",
    b"\xed\xa0\x80",
    _DEEP.encode(), _DEEP_OBJECTS.encode(), _LEVELS.encode(), b"[" * 100_000, b'{"a":' * 50_000, _DIGITS.encode(),
    f"-{_DIGITS}".encode(), b"1e999", b"-1e-999", b'"\\ud800"', b'"' + b"\xc0\xaf" + b'"', b"true", b"7", b'"text"',
)  # fmt: skip
"""What is a message in no format of JSON."""


def _row(column: str = "", given: str = "") -> str:
    """A good row, or one whose `column` is `given`."""
    good = {"id": "1", "m": '"1.50"', "note": '"a"', "at": "17", "day": '"2026-01-31"', "x": "1.5", "tags": "[1]"}
    return (
        "{"
        + ",".join(f'"{name}":{text}' for name, text in (good | {"raw": '"AA=="'} | {column: given}).items() if name)
        + "}"
    )


def _bad_rows(debezium: bool = False) -> Iterator[str]:
    """Rows that the source does not take. debezium: leave out what its special columns may be."""
    for column, texts in _CELLS.items():
        yield from (_row(column, text) for text in texts)
    if not debezium:
        yield _row("day", "7")
    good = _row()
    yield good[:-1] + ',"id":1}'
    yield good[:-1] + ',"i\\u0064":2}'
    yield good[:-1] + ',"w":1}'
    yield good[:-1] + ',"":1}'
    yield good[:-1]
    yield "{}"
    yield '{"id":1'


def _json(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _garbled(good: str) -> Iterator[bytes]:
    """A good message with a byte that is no UTF-8 within its texts and names, or cut off."""
    whole = good.encode()
    for at in (whole.index(b'"a"') + 1, whole.index(b"note") + 1):
        yield whole[:at] + b"\xff" + whole[at + 1 :]
        yield whole[:at] + b"\xed\xa0\x80" + whole[at + 1 :]
    yield from (whole[:at] for at in range(1, len(whole), 29))
    yield whole + b"}"
    yield b"\xef\xbb\xbf" + whole


def _vernier() -> Iterator[bytes]:
    head = '{"v":1,"t":0,"u":'
    for row in _bad_rows():
        yield _json(f"{head}[[{row},1,1]]}}")
    for diff in _DIFFS:
        yield _json(f"{head}[[{_row()},1,{diff}]]}}")
    for time in _TIMES:
        yield _json(f"{head}[[{_row()},{time},1]]}}")
        yield _json(f'{{"v":1,"t":{time},"u":[]}}')
        if time != '"9223372036854775807"':
            yield _json(f'{{"v":1,"p":{{"upper":[{time}]}}}}')
    for text in (
        '{"v":2,"t":0,"u":[]}', '{"v":1.0,"t":0,"u":[]}', '{"v":true,"t":0,"u":[]}', f'{{"v":{_DIGITS},"t":0,"u":[]}}',
        '{"v":1}',
        '{"v":1,"v":1,"t":0,"u":[]}', '{"v":1,"t":0,"t":0,"u":[]}', '{"v":1,"t":0,"u":[],"u":[]}',
        '{"v":1,"t":0,"u":[],"w":1}',
        '{"v":1,"t":0,"u":{}}', '{"v":1,"t":0,"u":[[]]}', '{"v":1,"t":0,"u":[7]}',
        '{"v":1,"t":0,"u":[],"input":"absent"}',
        '{"v":1,"t":0,"u":[],"input":7}', '{"v":1,"t":0,"u":[],"p":{}}', '{"v":1,"p":{"upper":[],"upper":[]}}',
        '{"v":1,"p":[]}',
        '{"v":1,"p":{"upper":7}}', '{"v":1,"p":{"upper":["1","2"]}}', '{"v":1,"p":{"lower":["9"],"upper":["1"]}}',
        '{"v":1,"p":{"upper":["9"],"counts":[["1",1]]}}',
        '{"v":1,"p":{"lower":["0"],"upper":["9"],"counts":[["1",-1]]}}',
        '{"v":1,"p":{"lower":["0"],"upper":["9"],"counts":[["1",1],["1",1]]}}', '{"v":1,"restarts":true}',
        '{"v":1,"p":{"lower":["0"],"upper":["9"],"counts":[["1",1e999]]}}',
        f'{{"v":1,"p":{{"upper":["9"],"counts":{_LEVELS}}}}}',
    ):  # fmt: skip
        yield _json(text)
    yield from _garbled(f"{head}[[{_row()},1,1]]}}")


def _lines() -> Iterator[bytes]:
    for row in _bad_rows():
        yield _json(f'{{"data":{row}}}')
    for diff in _DIFFS:
        yield _json(f'{{"data":{_row()},"diff":{diff}}}')
    for time in _TIMES:
        yield _json(f'{{"data":{_row()},"time":{time}}}')
        if time != '"9223372036854775807"':
            yield _json(f'{{"resolved":{time}}}')
    for text in (
        f'{{"data":{_row()},"data":{_row()}}}', f'{{"data":{_row()},"time":1,"time":1}}', f'{{"data":{_row()},"w":1}}',
        f'{{"data":{_row()},"input":"absent"}}', f'{{"data":{_row()},"input":7}}', f'{{"data":{_DEEP}}}',
        f'{{"data":{_LEVELS}}}',
        '{"resolved":1,"resolved":1}', '{"resolved":1,"data":null}', "[1]", "[1,2,3,4,5,6,7,8,9]", f"[{_row()}]",
    ):  # fmt: skip
        yield _json(text)
    yield from _garbled(f'{{"data":{_row()},"time":1,"diff":1}}')


def _inserts() -> Iterator[bytes]:
    for row in _bad_rows():
        yield _json(f'{{"insert":{row}}}')
    for row in list(_bad_rows())[::7]:
        yield _json(f'[{{"insert":{_row()}}},{{"delete":{row}}}]')
    for time in _TIMES:
        yield _json(f'{{"delete":{_row()},"time":{time}}}')
        if time != '"9223372036854775807"':
            yield _json(f'{{"resolved":{time}}}')
    for text in (
        f'{{"insert":{_row()},"insert":{_row()}}}', f'{{"insert":{_row()},"ins\\u0065rt":{_row()}}}',
        f'{{"insert":{_row()},"delete":{_row()}}}',
        f'{{"insert":{_row()},"time":1,"time":2}}', f'{{"insert":{_row()},"diff":1}}',
        f'{{"insert":{_row()},"input":"absent"}}',
        f'{{"insert":{_row()},"input":7}}', f'{{"insert":{_row()},"input":{_LEVELS}}}',
        f'{{"insert":{_row()},"resolved":1}}',
        '{"resolved":1,"resolved":1}', f"[{_row()}]", f"[{_LEVELS}]", f"[[{_row()}]]",
        f'[{{"insert":{_row()}}},{{"resolved":1}}]',
        "{}", "[{}]", '{"insert":null}', '{"insert":[]}',
    ):  # fmt: skip
        yield _json(text)
    yield from _garbled(f'{{"insert":{_row()},"time":1}}')


_SCALES = (
    '"abc"',
    "null",
    "[]",
    "{}",
    '"1e3"',
    '"-1001"',
    '"99999"',
    '"1000000000"',
    '"+2"',
    '" 2"',
    '"1_0"',
    "true",
    _DIGITS,
    f'"{_DIGITS}"',
)


def _changes() -> Iterator[bytes]:
    def change(after: str, more: str = "", op: str = "c") -> bytes:
        return _json(f'{{"before":null,"after":{after},"op":"{op}","source":{{"ts_ms":5}}{more}}}')

    def described(kind: str, column: str, given: str, parameters: str = "null") -> bytes:
        told = f'{{"field":"{column}","type":"bytes","name":"{kind}","parameters":{parameters}}}'
        schema = f'{{"type":"struct","fields":[{{"field":"after","type":"struct","fields":[{told}]}}]}}'
        return b'{"schema":%b,"payload":%b}' % (_json(schema), change(_row(column, given)))

    yield from (change(row) for row in _bad_rows(debezium=True))
    yield from (change(_row(), f',"ts_ns":{time},"source":{time}') for time in _TIMES)
    number, kind = '"AAAB"', "org.apache.kafka.connect.data.Decimal"
    yield from (described(kind, "m", number, f'{{"scale":{scale}}}') for scale in _SCALES)
    yield from (described(kind, "m", number, parameters) for parameters in ('"abc"', "7", "[1]", "true"))
    for given in ('"!"', "5", "1e999", f'"{"A" * 40_000}"', '"\u00e9"', "true", _LEVELS, "[]", '"\\ud800"', _DIGITS):
        yield described(kind, "m", given, '{"scale":"2"}')
    for given in (
        "5", "{}", '{"scale":2}', '{"scale":"2","value":"AAAB"}', '{"scale":1e999,"value":"AAAB"}',
        '{"scale":1000000000,"value":"AAAB"}',
        '{"scale":-1000000000,"value":"AAAB"}', f'{{"scale":{_DIGITS},"value":"AAAB"}}',
        '{"scale":true,"value":"AAAB"}', "[]", _LEVELS,
        '{"scale":2,"scale":3,"value":"AAAB"}',
    ):  # fmt: skip
        yield described("io.debezium.data.VariableScaleDecimal", "m", given)
    for given in ("1e999", _DIGITS, "9223372036854775807", "-9223372036854775808", "true", "1.5", '"+5"', _LEVELS):
        yield described("io.debezium.time.MicroTimestamp", "at", given)
        yield described("io.debezium.time.Timestamp", "at", given)
        yield described("io.debezium.time.Date", "day", given)
    for schema in (
        '{"fields":7}', '{"fields":[7]}', '{"fields":[{"field":"after","fields":7}]}', _LEVELS,
        '{"fields":[],"fields":[]}', '{"fields":[{"field":"after","fields":[7]}]}',
        '{"fields":[{"field":"after","fields":[{"field":[]}]}]}',
    ):  # fmt: skip
        yield b'{"schema":%b,"payload":%b}' % (_json(schema), change(_row()))
    for op in ("x", "t", "", "cc"):
        yield change(_row(), op=op)
    for text in (
        "{}", "[]", '{"op":7}', '{"op":null}', '{"op":"c"}', '{"op":"c","after":null}', '{"op":"d"}',
        '{"op":"u","after":{}}',
        '{"resolved":" 5"}', '{"resolved":"+5"}', f'{{"resolved":{_LEVELS}}}', '{"resolved":1,"resolved":1}',
        '{"payload":7}',
        f'{{"payload":{_DEEP}}}', '{"schema":null,"payload":{"op":"c"}}',
        f'{{"op":"c","after":{_row()},"after":{_row()}}}',
        f'{{"op":"c","op":"c","after":{_row()}}}', f'{{"op":"c","after":{_row()},"source":{{"ts_ms":1,"ts_ms":1}}}}',
        f'{{"op":"c","after":{_row()},"source":7}}',
        f'{{"op":"c","after":{_row()},"source":{{"ts_ms":9223372036854775807}}}}',
    ):  # fmt: skip
        yield _json(text)
    yield from _garbled(f'{{"op":"c","after":{_row()}}}')


def _upserts() -> Iterator[Message]:
    key = b'{"id":1}'
    for row in _bad_rows():
        if row != "{}":
            yield key, _json(row)
    for text in (
        *_CELLS["id"], '{"id":1,"id":1}', '{"i\\u0064":1,"id":1}', "{}", '{"key":1}', "[]", "[1,2]", "[[1]]",
        _DEEP_OBJECTS, "{", "1 2",
        '{"id":1e999}', f'{{"id":{_LEVELS}}}', f'{{"id":{_DIGITS}}}',
    ):  # fmt: skip
        yield _json(text), None
        yield _json(text), _row().encode()
    for garbled in (b"", b"\xff", b'"\xff"', b'{"id":"\xff"}', b"\xed\xa0\x80", b"\x00", b"[" * 100_000):
        yield garbled, None
        yield garbled, _row().encode()
    yield None, None
    yield None, _row().encode()
    for other in ("2", "1e999", _DIGITS, '"1"', "1.5", "null", _LEVELS):
        yield key, _row("id", other).encode()
    yield from ((key, value) for value in _garbled(_row()))
    for time in _TIMES:
        if time != '"9223372036854775807"':
            yield key, _json(f'{{"resolved":{time}}}')


def _beside(messages: Iterator[bytes]) -> Iterator[bytes]:
    """Messages of a binary format, with bad progress and with what is no message at all."""
    yield from messages
    for time in _TIMES:
        if time != '"9223372036854775807"':
            yield b'{"resolved":%b}' % _json(time)
    yield b'{"resolved":1,"resolved":1}'
    yield from (text for text in _BYTES if text[:1] in (b"{", b"[", b'"', b"\xff", b"-"))


_PLAIN: dict[str, Callable[[], Iterator[bytes]]] = {
    "vernier": _vernier,
    "json": _lines,
    "insert_delete": _inserts,
    "debezium": _changes,
    "arrow": lambda: _beside(streams()),
    "avro": lambda: _beside(records()),
    "protobuf": lambda: _beside(protobufs()),
}


@cache
def hostile_messages(form: str) -> list[Message]:
    """Messages of a format (of `FORMATS`) for the source `Hostile`, each of them a dead letter.

    form: upsert is one of the key `KEY`, avro and protobuf have `SCHEMAS`; debezium is one without a key.
    """
    if form == "upsert":
        found = [*_upserts(), *((b'{"id":1}', value) for value in _BYTES)]
    else:
        found = [(None, value) for value in _PLAIN[form]()]
        if form not in ("arrow", "avro", "protobuf"):
            found += [(None, value) for value in _BYTES]
        if form != "debezium":
            found.append((None, None))
    return list(dict.fromkeys(found))
