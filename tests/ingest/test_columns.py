"""Messages from before a source's columns changed, beside messages for the present ones, in each format."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.ingest.log import values
from tests.ingest.protofiles import descriptor_set, file, written
from vernier.operators.errors import WrongType
from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.messages import Parsed
from vernier.service.ingest.formats.upsert import Upserts
from vernier.storage.strings.string_heap import Heap


class First(vn.Schema):
    id: vn.Int64
    kind: vn.Int64
    paid: vn.Int64


class Second(vn.Schema):
    """A column was dropped, one has another name, one another type, three are new."""

    id: vn.Int64
    note: vn.String | None
    spent: vn.Decimal(12, 2) = vn.column(was="paid")
    rate: vn.Float64 = vn.column(default=0.5)
    day: vn.Date = vn.column(default=datetime.date(2020, 2, 29))


NOW = Second.row_type.after([First.row_type])
OLD = {"id": 1, "kind": 9, "paid": 30}
OLD_NOW = {"id": 1, "note": None, "spent": decimal.Decimal(30), "rate": 0.5, "day": datetime.date(2020, 2, 29)}
NEW = {"id": 2, "note": "a", "spent": decimal.Decimal("1.25"), "rate": 2.0, "day": datetime.date(2021, 1, 1)}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON has it."""
    special = (decimal.Decimal, datetime.date)
    return {name: str(value) if isinstance(value, special) else value for name, value in row.items()}


def dumps(value: Any) -> str:
    return json.dumps(value)


def arrow(row: dict[str, Any]) -> bytes:
    table = pa.table({name: [value] for name, value in row.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
DAY = {"type": "int", "logicalType": "date"}
AVRO = (
    {"id": "long", "kind": "long", "paid": "long"},
    {"id": "long", "note": ["null", "string"], "spent": DECIMAL, "rate": "double", "day": DAY},
)
SCHEMAS = tuple(
    (number, json.dumps({"type": "record", "name": "use", "fields": [{"name": n, "type": t} for n, t in one.items()]}))
    for number, one in enumerate(AVRO, 1)
)


def avro(row: dict[str, Any]) -> bytes:
    number = 1 if "paid" in row else 2
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMAS[number - 1][1])), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


DATE = "google/type/date.proto"
PROTOBUF = (
    descriptor_set(file({"use": {"id": "int64", "kind": "int64", "paid": "int64"}})),
    descriptor_set(
        file({"use": {"id": "int64", "note": "optional string", "spent": "string", "rate": "double",
                      "day": "google.type.Date"}}, imports=(DATE,))
    ),
)  # fmt: skip
FILES = tuple((number, base64.b64encode(one).decode()) for number, one in enumerate(PROTOBUF, 1))


def protobuf(row: dict[str, Any]) -> bytes:
    number = 1 if "paid" in row else 2
    given = {name: str(value) if isinstance(value, decimal.Decimal) else value for name, value in row.items()}
    if isinstance(day := given.get("day"), datetime.date):
        given["day"] = {"year": day.year, "month": day.month, "day": day.day}
    message = written(PROTOBUF[number - 1], None, **given)
    return b"\0" + number.to_bytes(4, "big") + b"\0" + message.SerializeToString()


FORMS: dict[str, tuple[str, Callable[[dict[str, Any]], str | bytes]]] = {
    "json by name": ("json", lambda row: dumps(plain(row))),
    "json updates": ("json", lambda row: dumps({"data": plain(row)})),
    "json arrays": ("json", lambda row: dumps(list(plain(row).values()))),
    "native": ("vernier", lambda row: dumps({"v": 1, "t": "5", "u": [[list(plain(row).values()), "5", 1]]})),
    "native by name": ("vernier", lambda row: dumps({"v": 1, "t": "5", "u": [[plain(row), "5", 1]]})),
    "inserts": ("insert_delete", lambda row: dumps({"insert": plain(row)})),
    "debezium": ("debezium", lambda row: dumps({"op": "c", "before": None, "after": plain(row)})),
    "arrow": ("arrow", arrow),
    "avro": ("avro", avro),
    "protobuf": ("protobuf", protobuf),
}


def decode(kind: str, *messages: str | bytes) -> tuple[Parsed, Heap]:
    heap = Heap()
    return make_format(kind, {"uses": NOW}, FILES if kind == "protobuf" else SCHEMAS).decode(
        values(*messages), heap
    ), heap


def rows(parsed: Parsed, heap: Heap) -> list[dict[str, Any]]:
    assert not parsed.refused, parsed.refused
    return [dict(zip(NOW.names, row, strict=True)) for row in NOW.decode_rows(parsed.words["uses"], heap)]


@pytest.mark.parametrize("form", FORMS)
def test_old_and_new_messages_side_by_side(form: str) -> None:
    kind, write = FORMS[form]
    parsed, heap = decode(kind, write(OLD), write(NEW), write(OLD), write(NEW))
    assert rows(parsed, heap) == [OLD_NOW, NEW, OLD_NOW, NEW]


def test_debezium_reads_the_old_row_of_an_update_in_its_own_columns() -> None:
    parsed, heap = decode("debezium", dumps({"op": "u", "before": OLD, "after": plain(NEW)}))
    assert rows(parsed, heap) == [OLD_NOW, NEW]
    assert parsed.diff.tolist() == [-1, 1]


def test_upserts_by_the_earlier_name_of_the_key() -> None:
    class Renamed(vn.Schema):
        number: vn.Int64 = vn.column(was="id")
        kind: vn.Int64
        note: vn.String | None

    class Before(vn.Schema):
        id: vn.Int64
        kind: vn.Int64

    now = Renamed.row_type.after([Before.row_type])
    heap = Heap()
    keys = values('{"id":1}', "2", '{"number":3}', '{"id":4}')
    given = values('{"id":1,"kind":5}', "[2,6]", '{"kind":7,"note":"x"}', None)
    parsed = Upserts({"uses": now}, ("number",)).decode_keyed(given, keys.cast(pa.binary()), heap)
    assert not parsed.refused
    assert now.decode_rows(parsed.words["uses"], heap)[:3] == [(1, 5, None), (2, 6, None), (3, 7, "x")]
    assert parsed.diff.tolist() == [1, 1, 1, -1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": 1, "paid": 3, "spent": 4}, "the column spent twice"),
        ({"id": 1, "paid": 3, "kindd": 4}, "'kindd'"),
        ({"paid": 3}, "no field 'id'"),
    ],
)
def test_what_no_columns_of_the_source_explain_is_refused(row: dict[str, Any], said: str) -> None:
    parsed, _ = decode("json", dumps(row))
    assert said in parsed.refused[0].detail


def test_without_a_former_row_type_an_unknown_column_is_a_mistake() -> None:
    parsed = make_format("json", {"uses": Second.row_type}).decode(values(dumps(OLD)))
    assert "'kind'" in parsed.refused[0].detail


@given(st.lists(st.tuples(st.booleans(), st.integers(-(10**9), 10**9)), max_size=12), st.sampled_from(sorted(FORMS)))
def test_any_mixture_is_read_row_by_row(given_: list[tuple[bool, int]], form: str) -> None:
    kind, write = FORMS[form]
    messages = [write(OLD | {"paid": n} if old else NEW | {"id": n}) for old, n in given_]
    wanted = [OLD_NOW | {"spent": decimal.Decimal(n)} if old else NEW | {"id": n} for old, n in given_]
    parsed, heap = decode(kind, *messages)
    assert rows(parsed, heap) == wanted


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: vn.column(), "says nothing"),
        (lambda: vn.column(default=object()), "cannot be a column's default"),
        (lambda: vn.column(default="a text of more than fifteen bytes"), "more than 15 bytes"),
        (lambda: vn.column(was="not a name"), "was= takes"),
        (lambda: schema(vn.Int64 | None, vn.column(default=1)), "leave its default out"),
        (lambda: schema(vn.Int64, vn.column(default="x")), "cannot have the default 'x'"),
        (lambda: schema(vn.Int64, 3), "vn.column(default=3)"),
    ],
)
def test_what_a_column_cannot_say(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(WrongType, match=r".*") as error:
        make()
    assert said in str(error.value)


def schema(kind: Any, value: Any) -> RowType:
    made: type[vn.Schema] = type("Made", (vn.Schema,), {"__annotations__": {"x": kind}, "x": value})
    return made.row_type
