"""Messages in Protobuf: what their fields become, versions side by side, a registry's framing, and what is refused."""

from __future__ import annotations

import base64
import datetime
import decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vernier as vn
from tests.ingest.fake_registry import Fake, registry
from tests.ingest.log import EDGES, Service, Topics, values
from tests.ingest.protofiles import File, descriptor_set, encoded, file, written
from vernier.operators.language.types.schema import RowType
from vernier.service.config.model import BadSettings
from vernier.service.config.settings import load
from vernier.service.ingest.config import IngestionConfig, SourceConfig, SourceMisfit
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.messages import Parsed, Progress
from vernier.service.ingest.formats.registry import Registry
from vernier.service.ingest.ingestion import Ingestion
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME


class Order(vn.Schema):
    id: vn.Int64
    name: vn.String
    note: vn.String | None
    paid: vn.Decimal(12, 2) | None
    owed: vn.Decimal(20, 3) | None
    at: vn.TimestampNs | None
    took: vn.Int64 | None
    kind: vn.String
    rank: vn.Int64
    ratio: vn.Float64
    done: vn.Bool
    raw: vn.Binary
    tags: vn.List(vn.String)
    place: vn.Struct(lat=vn.Float64, name=vn.String | None) | None
    places: vn.List(vn.Struct(lat=vn.Float64, name=vn.String | None))
    counts: vn.List(vn.Struct(key=vn.String, value=vn.Int64))
    card: vn.String | None
    cash: vn.Int64 | None
    stars: vn.Int64 | None
    day: vn.Date | None
    amount: vn.Int64 = vn.column(default=7)


IMPORTS = (
    *(f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")),
    "google/type/date.proto", "confluent/type/decimal.proto",
)  # fmt: skip
FIELDS = {
    "id": "int64", "name": "string", "note": "optional string", "paid": "optional string",
    "owed": "confluent.type.Decimal", "at": "google.protobuf.Timestamp", "took": "google.protobuf.Duration",
    "kind": "shop.Kind", "rank": "shop.Kind", "ratio": "float", "done": "bool", "raw": "bytes",
    "tags": "repeated string", "place": "shop.Place", "places": "repeated shop.Place",
    "counts": "repeated shop.Order.CountsEntry", "card": "oneof how string", "cash": "oneof how sint32",
    "stars": "google.protobuf.Int32Value", "day": "google.type.Date", "amount": "optional fixed64",
}  # fmt: skip


def orders() -> File:
    """A file with a message of every kind of field."""
    made = file({"Place": {"lat": "double", "name": "optional string"}, "Order": FIELDS},
                {"Kind": {"NONE": 0, "NEW": 1, "OLD": -4}}, IMPORTS)  # fmt: skip
    entry = made.message_type[1].nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", 9), ("value", 5)), 1):
        entry.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    return made


FILES = descriptor_set(orders())
LONG = "a text of more than fifteen bytes"


def plain(files: bytes) -> tuple[tuple[None, str]]:
    """A descriptor set as settings hand it over."""
    return ((None, base64.b64encode(files).decode()),)


def decoded(row: RowType, files: bytes, message: str | None, *sent: bytes | str) -> tuple[Parsed, list[Any]]:
    """What comes of messages, and the rows of those that enter."""
    heap = Heap()
    parsed = make_format("protobuf", {"s": row}, plain(files), message=message).decode(values(*sent), heap)
    return parsed, row.decode_rows(parsed.words["s"], heap)


def test_every_kind_of_field() -> None:
    full = written(
        FILES, "shop.Order", id=-(2**63), name=LONG, note="", paid="-9.95", at={"seconds": -1, "nanos": 999_999_999},
        owed={"value": (-1_234_567).to_bytes(4, "big", signed=True), "scale": 3}, took={"seconds": 2, "nanos": 5},
        kind=-4, rank=1, ratio=0.5, done=True, raw=b"\0\xff", tags=["b", LONG], place={"lat": 1.5},
        places=[{"name": LONG}, {"lat": -1.0}], counts={"b": 2, "a": -1}, cash=-5, stars={"value": 0},
        day={"year": 2026, "month": 2, "day": 28}, amount=9,
    )  # fmt: skip
    parsed, rows = decoded(Order.row_type, FILES, "Order", full.SerializeToString(), b"", '{"resolved":"9"}')
    assert not parsed.refused
    assert parsed.progress == [Progress(2, MIN_TIME, 9)]
    assert dict(zip(Order.row_type.names, rows[0])) == {
        "id": -(2**63), "name": LONG, "note": "", "paid": decimal.Decimal("-9.95"), "at": -1, "took": 2_000_000_005,
        "owed": decimal.Decimal("-1234.567"), "kind": "OLD", "rank": 1, "ratio": 0.5, "done": True, "raw": b"\0\xff",
        "tags": ["b", LONG], "place": {"lat": 1.5, "name": None},
        "places": [{"lat": 0.0, "name": LONG}, {"lat": -1.0, "name": None}],
        "counts": [{"key": "a", "value": -1}, {"key": "b", "value": 2}], "card": None, "cash": -5, "stars": 0,
        "day": datetime.date(2026, 2, 28), "amount": 9,
    }  # fmt: skip
    # A message of no bytes is one of which every field is absent: nulls, defaults of columns, Protobuf's defaults.
    assert dict(zip(Order.row_type.names, rows[1])) == {
        "id": 0, "name": "", "note": None, "paid": None, "owed": None, "at": None, "took": None, "kind": "NONE",
        "rank": 0, "ratio": 0.0, "done": False, "raw": b"", "tags": [], "place": None, "places": [], "counts": [],
        "card": None, "cash": None, "stars": None, "day": None, "amount": 7,
    }  # fmt: skip


TIMED = descriptor_set(file({"Edge": {"src": "int64", "dst": "optional uint64", "_time": "google.protobuf.Timestamp",
                                      "_diff": "optional int32"}}, imports=IMPORTS[:1]))  # fmt: skip
LAST = 2**63 - 1


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), LAST), st.none() | st.integers(0, LAST), st.none() | st.integers(0, 2**60),
            st.none() | st.sampled_from([1, -1, 3]),
        )
        | st.sampled_from(["short", "more", "big", "null"]),
        max_size=12,
    )
)  # fmt: skip
@settings(deadline=None)
def test_good_and_bad_messages_in_any_order(sent: list[Any]) -> None:
    """Each enters with its time and diff, or is refused; others do not matter."""
    row = RowType([("src", vn.Int64(), False), ("dst", vn.Int64(), False)])
    messages, wanted, wrong = list[bytes](), list[Any](), dict[int, tuple[str, str]]()
    for number, one in enumerate(sent):
        good = written(TIMED, None, src=1, dst=2).SerializeToString()
        if one == "short":
            messages.append(good[:-1])
            wrong[number] = ("decode", "not a message shop.Edge")
        elif one == "more":
            messages.append(good + b"\x78\1")
            wrong[number] = ("schema", "the message has field 15, which shop.Edge does not have")
        elif one == "big":
            messages.append(written(TIMED, None, dst=2**63).SerializeToString())
            wrong[number] = ("overflow", "column 'dst'")
        elif one == "null" or one[1] is None:
            messages.append(written(TIMED, None, src=1).SerializeToString())
            wrong[number] = ("schema", "column 'dst': null, but its type has no `| None`")
        else:
            src, dst, time, diff = one
            about = {} if time is None else {"_time": dict(zip(("seconds", "nanos"), divmod(time, 10**9)))}
            about |= {} if diff is None else {"_diff": diff}
            messages.append(written(TIMED, None, src=src, dst=dst, **about).SerializeToString())
            wanted.append(((src, dst), time, diff or 1, number))
    parsed, rows = decoded(row, TIMED, None, *messages)
    times = [None if time == -(2**63) else time for time in parsed.time.tolist()]
    assert list(zip(map(tuple, rows), times, parsed.diff.tolist(), parsed.message.tolist())) == wanted
    assert {one.message: one.reason for one in parsed.refused} == {number: why for number, (why, _) in wrong.items()}
    assert all(one.detail.startswith(wrong[one.message][1]) for one in parsed.refused)


EDGE = {"src": "int64", "dst": "int32"}
FRAME = b"\0\0\0\0"


def framed(number: int, places: bytes, files: File, name: str, **fields: Any) -> bytes:
    """A message in Confluent's framing. places: its message indexes."""
    message = written(descriptor_set(files), name, **fields)
    return FRAME + bytes([number]) + places + message.SerializeToString()


def service(fake: Fake, message: str | None = None) -> Service:
    """A service that reads edges with schemas of a registry."""
    source = SourceConfig("edges", "protobuf", registry=Registry(fake.url), message=message)
    return Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": source}, {"edges": 1})))


def schema(one: File, **about: Any) -> dict[str, Any]:
    """A registry's answer."""
    return {"schema": encoded(one), "schemaType": "PROTOBUF", **about}


def test_a_registrys_schemas_with_message_indexes_and_references() -> None:
    first = file({"Edge": EDGE})
    other = file({"Note": {"text": "string"}, "Edge": {"dst": "int64", "src": "sint64 7"}})
    other.message_type[0].nested_type.add().CopyFrom(first.message_type[0])
    more = file({"Edge": EDGE | {"note": "string"}})
    node = file({"Node": {"id": "int64"}}, name="node.proto")
    using = file({"Edge": {"src": "shop.Node", "dst": "int32"}}, imports=("node.proto",))
    with registry() as fake:
        fake.schemas = {1: schema(first), 2: schema(other), 3: schema(more), 4: {"schema": '{"type": "long"}'},
                        5: schema(using, references=[{"name": "node.proto", "subject": "node", "version": 1}]),
                        6: schema(node), 7: schema(using),
                        8: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}}  # fmt: skip
        fake.subjects = {"node": [6]}
        one, log = service(fake), Topics()
        sent = [
            framed(1, b"\0", first, "Edge", src=1, dst=2),
            framed(1, b"\2\0", first, "Edge", src=1, dst=3),  # the same place, written out
            framed(2, b"\2\2", other, "Edge", src=1, dst=4),
            framed(2, b"\4\0\0", other, "Note.Edge", src=1, dst=5),
            framed(2, b"\0", other, "Note", text="x"),
            framed(2, b"\2\6", other, "Note", text="x"),
            framed(3, b"\0", more, "Edge", src=1, dst=6, note="x"),
            *(FRAME + bytes([number]) + b"\0\x08\1" for number in (4, 5, 7, 8, 9)),
            FRAME + b"\1",
            FRAME + b"\1\xff\xff\xff\xff\xff\xff",
            FRAME + b"\1\1",
            b"\x08\1",
        ]
        one.epoch([log.append("edges", 0, message) for message in sent])
        one.epoch([])
        assert sorted(row for _, row, _, _ in one.entered) == [(1, 2), (1, 3), (1, 4), (1, 5)]
        start = "of the registry"
        assert [(letter.reason, letter.detail.partition("; ")[0]) for letter in one.letters] == [
            ("schema", (f"shop.Note of schema 2 {start} does not fit source edges: it has the column 'text', which the "
                       "source does not (it has src, dst)")),
            ("decode", f"schema 2 {start} cannot be used: the schema has no message at [3]"),
            ("schema", (f"schema 3 {start} does not fit source edges: it has the column 'note', which the source does "
                       "not (it has src, dst)")),
            ("schema", f"schema 4 {start} cannot be read: it is AVRO"),
            ("schema", (f"schema 5 {start} does not fit source edges: field 'src' is a message shop.Node, but the "
                       "column is int64")),
            ("schema", f"schema 7 {start} cannot be read: node.proto is not in the descriptor set"),
            ("schema", f"schema 8 {start} cannot be read: the registry did not return a serialized descriptor"),
            ("decode", "the registry has no schema 9: Schema 9 not found (error 40403)"),
            ("decode", "the message's indexes cannot be read"),
            ("decode", "the message's indexes cannot be read"),
            ("decode", "the message has -1 message indexes"),
            ("decode", "the message does not begin with a zero byte and the id of its schema"),
        ]  # fmt: skip
        assert "/schemas/ids/1?format=serialized" in fake.asked
        assert len(fake.asked) == len(set(fake.asked))
        named = service(fake, "Edge")
        named.epoch([log.append("edges", 0, message) for message in sent[:5]])
        assert len(named.entered) == 3
        assert {letter.detail for letter in named.letters} == {
            "the message is shop.Note.Edge, not Edge", "the message is shop.Note, not Edge",
        }  # fmt: skip


def test_messages_of_proto2() -> None:
    old = file({"Edge": {"src": "required int64", "dst": "optional int64", "kind": "shop.Kind"}},
               {"Kind": {"A": 1, "B": 2}}, syntax="proto2")  # fmt: skip
    row = RowType([("src", vn.Int64(), False), ("dst", vn.Int64(), True), ("kind", vn.String(), True)])
    files = descriptor_set(old)
    good = written(files, None, src=1, kind=2).SerializeToString()
    parsed, rows = decoded(row, files, None, good, b"\x10\1", good[:-1] + b"\7")
    assert rows == [(1, None, "B")]
    assert [(one.reason, one.detail) for one in parsed.refused] == [
        ("decode", "not a message shop.Edge: without src"),
        ("schema", "the message has field 3, which shop.Edge does not have in its descriptor"),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"src": "int64"}, "it has no column 'dst'"),
        ({"src": "int64", "dst": "string"}, "column 'dst': values of Arrow type large_string are not Int64"),
        ({"src": "int64", "dst": "repeated int64"}, "field 'dst' is repeated, but the column is int64"),
        ({"src": "int64", "dst": "shop.Edge"}, "field 'dst' is a message shop.Edge, but the column is int64"),
        ({"src": "int64", "dst": "int64", "w": "int64"}, "it has the column 'w', which the source does not"),
    ],
)
def test_a_message_type_that_does_not_fit_stops_the_start(fields: dict[str, str], said: str) -> None:
    source = SourceConfig("edges", "protobuf", schemas=plain(descriptor_set(file({"Edge": fields}))))
    with pytest.raises(SourceMisfit, match="the message type of source edges does not fit: ") as caught:
        Ingestion({"edges": EDGES}, IngestionConfig({"edges": source}, {"edges": 1}))
    assert said in str(caught.value)


def test_the_settings(tmp_path: Path) -> None:
    class Edge(vn.Schema):
        src: vn.Int64
        dst: vn.Int64

    app = vn.App("edges")
    app.view("copied", app.source("edges", Edge), key=["src"])
    (tmp_path / "edge.desc").write_bytes(descriptor_set(file({"Edge": EDGE, "Node": {"id": "int64"}})))
    (tmp_path / "7.desc").write_bytes(descriptor_set(file({"Edge": EDGE})))
    (tmp_path / "bad.desc").write_bytes(b"\xff")
    (tmp_path / "part.desc").write_bytes(descriptor_set(file({"Edge": EDGE}, imports=("missing.proto",))))

    def config(**given: object) -> IngestionConfig:
        flags = {f"sources.edges.{name}": str(value) for name, value in given.items()}
        return load(None, {"sources.edges.format": "protobuf", **flags}, {}).settings.ingestion(app, {})

    found = config(descriptor_file=tmp_path / "edge.desc", message="shop.Edge")
    Ingestion({"edges": EDGES}, found)
    assert [number for number, _ in config(schema_folder=tmp_path).sources["edges"].schemas] == [7]
    for given_, said in (
        ({"descriptor_file": tmp_path / "edge.desc"}, "has the messages shop.Edge, shop.Node; set `message`"),
        ({"descriptor_file": tmp_path / "edge.desc", "message": "Path"}, "has no message Path"),
        ({"descriptor_file": tmp_path / "bad.desc"}, "not a descriptor set; write it with protoc"),
        ({"descriptor_file": tmp_path / "part.desc"}, "missing.proto is not in the descriptor set"),
    ):
        with pytest.raises(BadSettings, match="its Protobuf descriptor cannot be used") as caught:
            config(**given_)
        assert said in str(caught.value)
    with pytest.raises(SourceMisfit, match=r"set sources\.edges\.registry, descriptor_file or schema_folder"):
        Ingestion({"edges": EDGES}, config())


@pytest.mark.parametrize(("name", "ending"), [("avro", "avsc"), ("protobuf", "desc")])
def test_an_unknown_id_names_the_file_that_is_missing(name: str, ending: str) -> None:
    reader = make_format(name, {"edges": EDGES}, ((7, "not read"),))
    (refused,) = reader.decode(values(FRAME + b"\x09\0")).refused
    assert refused.detail == f"schema 9 is unknown (known: 7); add 9.{ending}"
