"""The kernel that reads Avro records says what fastavro says, about every record and every byte."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal as Number
from typing import Any
from unittest.mock import patch

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.guarded import GuardedMemory
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import Binary, String
from vernier.service.ingest.formats.avro import Avro
from vernier.service.ingest.formats.messages import Parsed
from vernier.storage.strings.string_heap import Heap

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
DECIMAL = {"logicalType": "decimal", "precision": 30, "scale": 2}
DECIMALS = st.decimals(-(10**9), 10**9, places=2, allow_nan=False, allow_infinity=False)
KINDS: dict[str, tuple[Any, Type, st.SearchStrategy[Any]]] = {
    "long": ("long", Int64(), LONGS),
    "int": ({"type": "int"}, Int64(), st.integers(-(2**31), 2**31 - 1)),
    "day": ({"type": "int", "logicalType": "date"}, Date(), st.dates()),
    "bool": ("boolean", Bool(), st.booleans()),
    "float": ("float", Float64(), st.floats(width=32)),
    "double": ("double", Float64(), st.floats()),
    "text": ({"type": "string", "avro.java.string": "String"}, String(), st.text()),
    "bytes": ("bytes", Binary(), st.binary()),
    "fixed": ({"type": "fixed", "name": "three", "size": 3}, Binary(), st.binary(min_size=3, max_size=3)),
    "enum": ({"type": "enum", "name": "unit", "symbols": ["kg", "g"]}, String(), st.sampled_from(["kg", "g"])),
    "number": ({"type": "bytes", **DECIMAL}, Decimal(11, 2), DECIMALS),
    "wide_number": (
        {"type": "bytes", **DECIMAL},
        Decimal(30, 2),
        st.decimals(-(10**27), 10**27, places=2, allow_nan=False, allow_infinity=False),
    ),
    "packed": ({"type": "fixed", "name": "packed", "size": 13, **DECIMAL}, Decimal(30, 2), DECIMALS),
    "at": ({"type": "long", "logicalType": "timestamp-micros"}, TimestampNs(), LONGS),
    "at_ms": ({"type": "long", "logicalType": "timestamp-millis"}, TimestampNs(), st.integers(0, 2**41)),
    "at_as_number": ({"type": "long", "logicalType": "timestamp-millis"}, Int64(), st.integers(0, 2**41)),
    "listed": ({"type": "array", "items": "long"}, Int64(), st.just([])),
}
GUARDED = GuardedMemory()
FLAT = [name for name in KINDS if name not in ("listed", "at_as_number")]


def both(avro: Avro, messages: list[bytes | None]) -> tuple[Parsed, Parsed]:
    """What ingestion reads, and what it reads without the kernel."""
    values = pa.array(messages, pa.large_binary())
    found = avro.decode(values, Heap())
    with patch.object(Avro, "_scan", lambda self, values: ()):
        return found, avro.decode(values, Heap())


def same(one: Parsed, other: Parsed) -> bool:
    """Whether two results are equal."""
    arrays = ("message", "source", "time", "diff")
    equal = [np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays]
    equal += [np.array_equal(one.words[name], other.words[name]) for name in one.names]
    return all(equal) and list(one.refused) == list(other.refused) and list(one.progress) == list(other.progress)


def written(schema: Any, rows: list[dict[str, Any]]) -> list[bytes]:
    """Records as bytes; timestamps are integers."""
    plain = json.loads(json.dumps(schema).replace('"logicalType": "timestamp-micros"', '"other": 1'))
    plain = json.loads(json.dumps(plain).replace('"logicalType": "timestamp-millis"', '"other": 1'))
    parsed, found = fastavro.parse_schema(plain), []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        found.append(stream.getvalue())
    return found


@st.composite
def topics(draw: st.DrawFn) -> tuple[Avro, list[bytes]]:
    """A reader, and records of its schema."""
    names = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=6, unique=True))
    unions = {name: draw(st.sampled_from([None, 0, 1])) for name in names}
    fields = []
    for name in names:
        kind, at = KINDS[name][0], unions[name]
        fields.append({"name": name, "type": kind if at is None else ["null", kind] if at == 0 else [kind, "null"]})
    schema = {"type": "record", "name": "row", "fields": fields}
    columns = [(name, KINDS[name][1], draw(st.booleans())) for name in names]
    rows = st.fixed_dictionaries(
        {name: KINDS[name][2] if unions[name] is None else st.none() | KINDS[name][2] for name in names}
    )
    framed = draw(st.booleans())
    avro = Avro({"rows": RowType(columns)}, ((7 if framed else None, json.dumps(schema)),))
    head = b"\0\0\0\0\7" if framed else b""
    return avro, [head + record for record in written(schema, draw(st.lists(rows, max_size=8)))]


@given(topics())
def test_records_are_read_as_fastavro_reads_them(topic: tuple[Avro, list[bytes]]) -> None:
    one, other = both(topic[0], list(topic[1]))
    assert same(one, other)


@given(topics(), st.data())
def test_bytes_are_refused_as_fastavro_refuses_them(topic: tuple[Avro, list[bytes]], data: st.DataObject) -> None:
    avro, records = topic
    messages: list[bytes | None] = [None, b"", b'{"resolved":"5"}', b' { "resolved" : 5}', *records]
    for record in records:
        at = data.draw(st.integers(0, len(record)))
        messages.append(record[:at] + data.draw(st.binary(max_size=3)) + record[at + data.draw(st.integers(0, 3)) :])
    messages += data.draw(st.lists(st.binary(max_size=20), max_size=4))
    one, other = both(avro, data.draw(st.permutations(messages)))
    assert same(one, other)


def test_a_nan_before_bytes_that_look_like_a_long_integer_is_no_error() -> None:
    names = ("float", "text")
    schema = {"type": "record", "name": "row", "fields": [{"name": name, "type": KINDS[name][0]} for name in names]}
    avro = Avro({"rows": RowType([(name, KINDS[name][1], False) for name in names])}, ((None, json.dumps(schema)),))
    rows = [{"float": value, "text": "\x80\u0800\U00010000"} for value in (float("nan"), 1.0)]
    one, other = both(avro, list(written(schema, rows)))
    assert same(one, other)
    assert (len(one.time), one.refused) == (2, [])


@given(topics(), st.data())
def test_nothing_behind_the_records_is_read(topic: tuple[Avro, list[bytes]], data: st.DataObject) -> None:
    """Wherever a record ends. A kernel that reads on would end this process."""
    avro, records = topic
    whole = data.draw(st.sampled_from(records)) if records else b""
    for end in {len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=8))}:
        given_ = [*records[:1], whole[:end]]
        found = avro.decode(GUARDED.messages(given_), Heap())
        assert same(found, avro.decode(pa.array(given_, pa.large_binary()), Heap()))


@pytest.mark.parametrize("name", FLAT)
def test_the_kernel_reads_flat_records(name: str) -> None:
    kind, column, _ = KINDS[name]
    value: dict[type[Type], Any] = {
        Int64: -5, Date: datetime.date(2026, 11, 25), Bool: True, Float64: 0.5, String: "kg", Binary: b"abc",
        Decimal: Number("-1.25"), TimestampNs: 10**9,
    }  # fmt: skip
    schema = {"type": "record", "name": "row", "fields": [{"name": name, "type": ["null", kind]}]}
    avro = Avro({"rows": RowType([(name, column, True)])}, ((None, json.dumps(schema)),))
    records = written(schema, [{name: value[type(column)]}, {name: None}])
    with patch.object(Avro, "_read", lambda *given: pytest.fail("fastavro read a record")):
        found = avro.decode(pa.array(records, pa.large_binary()), Heap())
    assert found.message.tolist() == [0, 1]
    assert found.words["rows"][:, 0].tolist() == [1, 0]


def test_records_without_fields() -> None:
    schema = {"type": "record", "name": "row", "fields": []}
    avro = Avro({"rows": RowType([("long", Int64(), True)])}, ((None, json.dumps(schema)),))
    one, other = both(avro, [b"", b"", b"\0"])
    assert same(one, other)


def test_a_refusal_is_the_same_each_time() -> None:
    schema = json.dumps({"type": "record", "name": "row", "fields": [{"name": "float", "type": "float"}]})
    avro = Avro({"rows": RowType([("float", Float64(), False)])}, ((None, schema),))
    (refused,) = avro.decode(pa.array([b"\1"], pa.large_binary()), Heap()).refused
    assert refused.detail == "not Avro of that schema: EOFError cannot read float"
