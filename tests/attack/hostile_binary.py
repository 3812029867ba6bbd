"""Hostile messages in binary formats: Arrow streams and Avro records for the source of `hostile`."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "hostile",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "m", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 15, "scale": 2}]},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "x", "type": ["null", "double"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": "long"}]},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "_diff", "type": "long", "default": 1},
    ],
}
"""The schema of the Avro messages."""

_NULLABLE = ("m", "note", "at", "day", "x", "tags", "raw")


_FOUND = (
    (
        "/////3AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAAAAAAUAAAAEAAUAAgABgAHAAwAAAAQ"
        "ABAAAAAAAAEFEAAAABgAAAAEAAAAAAAAAAIAAABpZAAABAAEAAQAAAAAAAAA/////5gAAAAUAAAAAAAAAAwAFgAGAAUACAAMAAwA"
        "AAAAAwQAGAAAABAAAAAAAAAAAAAKABgADAAEAAgACgAAAEwAAAAQAAAA//////////8AAAAAAwAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAAAAAAAAgAAAAAAAAACAAAAAAAAAABAAAAAAAAAAAAAAABAAAAAQAAAAAAAgAAAAAAAAAAAAAAAAABAAAAMQAAAAAAAAD/////"
        "AAAAAA=="
    ),
    (
        "/////7AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAAAAABMAAAABAAAAMz///8AAAEHEAAA"
        "ABwAAAAEAAAAAAAAAAEAAABtAAAACAAMAAQACAAIAAAAJgAAAAMAAAAQABQACAAGAP8ADAAAABAAEAAAAAAAAQIQAAAAHAAAAAQA"
        "AAAAAAAAAgAAAGlkAAAIAAwACAAHAAgAAAAAAAABQAAAAP////+4AAAAFAAAAAAAAAAMABYABgAFAAgADAAMAAAAAAMEABgAAAAY"
        "AAAAAAAAAAAACgAYAAwABAAIAAoAAABcAAAAEAAAAAEAAAD/////AAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIAAAA"
        "AAAAAAgAAAAAAAAAAAAAAAAAAAAIAAAAAAAAABAAAAAAAAAAAAAAAAIAAAABAAAAAAAAAAAAAAAAAAAAAQAAAAAAAAAAAAAAAAAA"
        "AAEAAAAAAAAAAQAAAAAAAAAAAAAAAAAAAP////8AAAAA"
    ),
)
_MARK = 54_321
"""A length that is found again in a message."""


def stream(columns: dict[str, Any], codec: str | None = None) -> bytes:
    """An Arrow IPC stream of one batch."""
    batch = pa.record_batch(list(columns.values()), list(columns))
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec, allow_64bit=True)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def bomb(codec: str, rows: int = 12 << 20) -> bytes:
    """A small stream of many rows."""
    return stream({"id": pa.array(np.zeros(rows, np.int64))}, codec)


def _patched(whole: bytes, old: bytes, new: bytes) -> bytes:
    if whole.count(old) != 1 or len(old) != len(new):
        raise ValueError(f"{old!r} is there {whole.count(old)} times")
    return whole.replace(old, new)


def streams() -> Iterator[bytes]:
    """Arrow messages, none of which may enter."""
    yield from _that_grow()
    yield from _that_lie()
    yield from _of_other_types()
    yield from _cut()


def _that_grow() -> Iterator[bytes]:
    """Small messages of much."""
    one = pa.array([1])
    yield from (bomb(codec) for codec in ("lz4", "zstd"))
    few = stream({"note": pa.nulls(_MARK)})
    for count in (2**31, 2**40, 2**62):
        yield few.replace(_MARK.to_bytes(8, "little"), count.to_bytes(8, "little"))
    text, many = "x" * 200_000, 1_000
    numbers = pa.array(range(many))
    coded = pa.DictionaryArray.from_arrays(pa.array([0] * many, pa.int8()), [text])
    yield stream({"id": numbers, "note": coded})
    seen = pa.array([text], pa.string_view()).buffers()
    views = np.tile(np.frombuffer(seen[1], np.uint8)[:16], many)
    yield stream(
        {"id": numbers, "note": pa.Array.from_buffers(pa.string_view(), many, [None, pa.py_buffer(views), *seen[2:]])}
    )
    length = 2**31 - 1
    yield stream({"id": one, "tags": pa.ListArray.from_arrays(pa.array([0, length], pa.int32()), pa.nulls(length))})
    yield stream({"id": pa.RunEndEncodedArray.from_arrays(pa.array([length], pa.int32()), one)})


def _that_lie() -> Iterator[bytes]:
    """Lengths, offsets and texts that are not what they say."""
    compressed = stream({"id": pa.array(np.zeros(500, np.int64))}, "zstd")
    for claimed in (2**31, 2**40, 2**62, 2**63 - 1, 3_999, 4_001):
        yield _patched(compressed, (4_000).to_bytes(8, "little"), claimed.to_bytes(8, "little"))
    good = stream({"id": pa.array([1, 2]), "note": pa.array(["@#%@#%@#", "x" * (_MARK - 8)])})
    for offsets in ((8, 2**31 - 1), (2**30, 2**30 + 1), (-5, _MARK), (8, 1), (_MARK + 1, _MARK), (8, -1)):
        yield _patched(good, np.array([8, _MARK], np.int32).tobytes(), np.array(offsets, np.int32).tobytes())
    for garbled in (b"\xff" * 8, b"\xed\xa0\x80 and ", b"\xc0\xaf  two "):
        yield _patched(good, b"@#%@#%@#", garbled)
    # Found by the fuzzer: less than no rows.
    yield from map(base64.b64decode, _FOUND)
    for scale in (-2_000_000_000, -1_000, -77, 77, 1_000, 2_000_000_000):
        yield _with_scale(scale)


def _of_other_types() -> Iterator[bytes]:
    """Values that the columns do not take."""
    one = pa.array([1])
    for kind in (pa.decimal128(38, 37), pa.decimal128(38, 3), pa.decimal256(76, 70), pa.decimal256(76, 3)):
        yield stream({"id": one, "m": _least(kind)})
    yield stream({"id": one, "m": pa.array([10**14])})
    yield stream({"id": one, "m": pa.array([1.5])})
    for unit in ("s", "ms", "us"):
        yield stream({"id": one, "at": pa.array([2**62], pa.timestamp(unit))})
        yield stream({"id": one, "_time": pa.array([2**62], pa.timestamp(unit))})
    yield stream({"id": one, "day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32())})
    yield stream({"id": one, "day": pa.array([2**62]).cast(pa.date64())})
    for wrong in (
        pa.array(["1"]), pa.array([1.0]), pa.array([None], pa.int64()), pa.array([True]), pa.array([[1]]), pa.nulls(1),
        pa.array([{"a": 1}]), pa.array([2**63], pa.uint64()), pa.array([b"1"]), pa.array([1], pa.duration("s")),
        pa.array([1], pa.time64("ns")), pa.array([1.0], pa.float32()),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    ):  # fmt: skip
        yield stream({"id": wrong})
    for diff in (2**63 - 1, -(2**63), 2**31 + 1, -(2**31) - 1, 0):
        yield stream({"id": one, "_diff": pa.array([diff])})
    yield stream({"id": one, "_diff": pa.array([2**63], pa.uint64())})
    for time in (2**63 - 1, -(2**63), -(2**63) + 1):
        yield stream({"id": one, "_time": pa.array([time])})
    yield stream({"id": one, "w": one})
    yield stream({"m": pa.nulls(1)})
    sink = io.BytesIO()
    twice = pa.RecordBatch.from_arrays([one, one], ["id", "id"])
    with pa.ipc.new_stream(sink, twice.schema) as writer:
        writer.write_batch(twice)
    yield sink.getvalue()
    deep: pa.DataType = pa.int64()
    for _ in range(40):
        deep = pa.list_(deep)
    yield stream({"id": one, "tags": pa.array([[]], deep)})


def _cut() -> Iterator[bytes]:
    """A good message with bytes gone, turned or doubled."""
    good = stream({"id": pa.array([1]), "note": pa.array(["a note"])})
    yield from (good[:at] for at in range(1, len(good) - 9, 23))
    for at in range(4, len(good) - 16, 31):
        turned = good[:at] + b"\xff\xff\xff\x7f" + good[at + 4 :]
        if not _reads(turned):
            yield turned
    yield b"\xff\xff\xff\xff\xff\xff\xff\x7f" + good[8:]
    yield b"\xff\xff\xff\xff\x00\x00\x00\x80" + good[8:]
    yield b"ARROW1\0\0" + good


def _least(kind: pa.DataType) -> pa.Array:
    """The least number above zero of a decimal type."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer((1).to_bytes(kind.byte_width, "little"))])


def _with_scale(scale: int) -> bytes:
    """A stream whose column m is decimal128 with a scale that Arrow's own writers do not make."""
    whole = stream({"id": pa.array([1]), "m": _least(pa.decimal128(31, 29))})
    given, wanted = (part.to_bytes(4, "little", signed=True) for part in (29, scale))
    digits = (31).to_bytes(4, "little")
    if whole.count(given + digits) == 1:
        return _patched(whole, given + digits, wanted + digits)
    return _patched(whole, digits + given, digits + wanted)


def _reads(value: bytes) -> bool:
    """Whether Arrow reads it in spite of all."""
    try:
        for batch in pa.ipc.open_stream(value):
            batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        return False
    return True


def _long(value: int) -> bytes:
    """An integer as Avro has it."""
    left, out = (value << 1) ^ (value >> 63), b""
    while left & ~0x7F:
        out, left = out + bytes([left & 0x7F | 0x80]), left >> 7
    return out + bytes([left])


def _fields(**given: bytes) -> bytes:
    """A record from its fields' bytes."""
    return b"".join({"id": _long(1), **dict.fromkeys(_NULLABLE, b"\0"), "_diff": _long(1), **given}.values())


def records() -> Iterator[bytes]:
    """Avro messages, none of which may enter."""
    schema = fastavro.parse_schema(json.loads(json.dumps(AVRO)))

    def record(**about: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"id": 1, **dict.fromkeys(_NULLABLE), "_diff": 1, **about})
        return out.getvalue()

    there = _long(1)
    for diff in (2**63 - 1, -(2**63), 2**31 + 1, -(2**31) - 1, 0):
        yield record(_diff=diff)
    for size in (-1, -(2**63), 2**31, 2**40, 2**63 - 1):
        for column in ("note", "raw", "m"):
            yield _fields(**{column: there + _long(size) + b"abc"})
    for size in (-(2**63), 2**31, 2**40, 2**63 - 1):
        yield _fields(tags=there + _long(size) + b"\2\2\0")
    for number in (
        b"\x7f" * 16,
        b"\x7f" * 10_000,
        (10**15).to_bytes(8, "big"),
        (-(10**15)).to_bytes(8, "big", signed=True),
    ):
        yield _fields(m=there + _long(len(number)) + number)
    for index in (2, -1, 2**31, 2**62):
        yield _fields(note=_long(index))
        yield _fields(tags=_long(index))
    yield _fields(id=b"\xff" * 20 + b"\1")
    yield _fields(id=b"\xff" * 100_000)
    for text in (b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"):
        yield _fields(note=there + _long(len(text)) + text)
    for at in (2**62, -(2**62), 2**63 - 1):
        yield _fields(at=there + _long(at))
    for day in (2**31 - 1, -(2**31), 2**62, 2_932_897, -719_163):
        yield _fields(day=there + _long(day))
    yield _fields(tags=there + _long(-3) + _long(2**40) + b"\2\2")
    yield _fields(tags=there + (_long(1) + b"\2") * 9)
    good = record(note="a note", tags=[1, 2], raw=b"bytes")
    yield from (good[:at] for at in range(1, len(good)))
    yield good + b"\0"
    yield good + good
