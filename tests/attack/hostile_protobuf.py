"""Hostile messages in Protobuf for the source of `hostile`, and the descriptor that they are meant for."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tests.ingest.protofiles import descriptor_set, file, written

_FIELDS = {
    "id": "int64", "m": "optional string", "note": "optional string", "at": "google.protobuf.Timestamp",
    "day": "google.type.Date", "x": "optional double", "tags": "repeated int64", "raw": "optional bytes",
    "_diff": "optional int64", "_time": "optional int64",
}  # fmt: skip
_FILES = descriptor_set(
    file({"Hostile": _FIELDS}, imports=("google/protobuf/timestamp.proto", "google/type/date.proto"))
)
PROTOBUF = base64.b64encode(_FILES).decode()
"""The descriptor of the messages."""


def protobuf(**fields: Any) -> bytes:
    """A message."""
    return written(_FILES, "Hostile", **fields).SerializeToString()


def _varint(value: int) -> bytes:
    out = b""
    while value & ~0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def protobufs() -> Iterator[bytes]:
    """Messages, none of which may enter."""
    good = protobuf(id=1)
    for diff in (2**63 - 1, -(2**63), 2**31 + 1, -(2**31) - 1, 0):
        yield protobuf(id=1, _diff=diff)
    for time in (2**63 - 1, -(2**63), -(2**63) + 1):
        yield protobuf(id=1, _time=time)
    for number in ("", "x", "1_0", " 5", "+5", "5 ", "1.001", "1e14", "NaN", "Infinity", "1e-999999999", "1e999999999",
                   "9" * 5_000, "0x10", ".5", "5.", "\u0663", "1\0"):  # fmt: skip
        yield protobuf(id=1, m=number)
    for seconds in (2**62, -(2**62), 2**63 - 1, -(2**63), 9_223_372_036, -9_223_372_037):
        yield protobuf(id=1, at={"seconds": seconds})
    for nanos in (-1, 1_000_000_000, 2**31 - 1, -(2**31)):
        yield protobuf(id=1, at={"seconds": 1, "nanos": nanos})
    for day in ((0, 0, 0), (2026, 2, 30), (2026, 13, 1), (10_000, 1, 1), (-1, 1, 1), (2**31 - 1, 1, 1), (2026, 0, 1)):
        yield protobuf(id=1, day=dict(zip(("year", "month", "day"), day)))
    # Fields that the descriptor does not have, and fields of another kind, which Protobuf takes for such.
    for number in (11, 15, 16, 100, 1_000, 18_999, 2**29 - 1):
        for kind, data in ((0, b"\1"), (1, b"12345678"), (2, b"\1a"), (5, b"1234"), (3, _tag(number, 4))):
            yield good + _tag(number, kind) + data
    for number in range(1, 11):
        for kind, data in ((0, b"\1"), (1, b"12345678"), (5, b"1234")):
            if (number, kind) not in ((1, 0), (6, 1), (7, 0), (9, 0), (10, 0)):
                yield good + _tag(number, kind) + data
    for kind in (4, 6, 7):
        yield good + _tag(1, kind)
    yield good + b"\0\1"
    yield good + _varint(2**29 << 3) + b"\1"
    for size in (2, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1):
        for number in (2, 3, 4, 5, 7, 8):
            yield good + _tag(number, 2) + _varint(size) + b"a"
    yield b"\x08" + b"\xff" * 10 + b"\1"
    yield b"\x08" + b"\xff" * 100_000
    yield b"\x08" + b"\x80" * 9
    for text in (b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"a\x80"):
        for number in (2, 3):
            yield good + _tag(number, 2) + _varint(len(text)) + text
    for inner in (b"\x18\1", b"\x08", b"\xff", b"\x0a\1a", b"\x08" + b"\xff" * 11):
        yield good + _tag(4, 2) + _varint(len(inner)) + inner
    yield _tag(11, 3) * 3_000 + _tag(11, 4) * 3_000
    yield _tag(7, 2) + b"\3\1\1\xff"
    yield protobuf(id=1, note="a note")[:-1]
    yield good + b"\x08"
    yield b'{"id":1}'
    yield b"\0\0\0\0\1\0" + good
