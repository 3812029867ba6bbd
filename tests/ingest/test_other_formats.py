"""The formats of others: inserts and deletes, Debezium, Arrow and Avro; what enters, and every kind that does not."""

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Context
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.log import EDGES, ROOTS, Service, Topics, values
from vernier.operators.language.collection.app import App
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType, Schema
from vernier.operators.language.types.texts import List, String
from vernier.service.config.settings import BadSettings, load
from vernier.service.ingest.config import IngestionConfig, SourceConfig, SourceMisfit
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.messages import NO_TIME, Parsed, Progress
from vernier.service.ingest.formats.upsert import Upserts
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.ingest.rejects import REASONS
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME

EDGE = {
    "type": "record",
    "name": "edge",
    "fields": [
        {"name": "src", "type": "long"},
        {"name": "dst", "type": "int"},
        {"name": "_time", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "_diff", "type": "long", "default": 1},
    ],
}
SCHEMAS = ((None, json.dumps(EDGE)),)
ORDERS = RowType(
    [
        ("id", Int64(), False),
        ("name", String(), True),
        ("at", TimestampNs(), False),
        ("day", Date(), True),
        ("paid", Decimal(9, 2), True),
        ("tags", List(String()), False),
    ]
)


class Edges(Schema):
    src: Int64
    dst: Int64


LONG = "a text of more than fifteen bytes"


def decode(kind: str, *messages: str | bytes | None, sources: Any = None, schemas: Any = SCHEMAS) -> Parsed:
    """Decode a batch as ingestion would."""
    own = {"edges": EDGES} if sources is None else sources
    return make_format(kind, own, schemas).decode(values(*messages), Heap())


def updates(parsed: Parsed) -> list[tuple[int, tuple[int, ...], int | None, int]]:
    """(message, words, time, diff) of a topic's only source."""
    (rows,) = parsed.words.values()
    times = [None if at == NO_TIME else at for at in parsed.time.tolist()]
    found = zip(parsed.message.tolist(), map(tuple, rows.tolist()), times, parsed.diff.tolist(), strict=True)
    return list(found)


def stream(columns: dict[str, Any], **about: Any) -> bytes:
    """An Arrow IPC stream."""
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, **about) as writer:
        writer.write_table(table)
    return sink.getvalue()


def record(values_: dict[str, Any], schema: Any = EDGE, head: bytes = b"") -> bytes:
    """An Avro record."""
    out = io.BytesIO(head)
    out.seek(len(head))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), values_)
    return out.getvalue()


def test_inserts_and_deletes() -> None:
    parsed = decode(
        "insert_delete",
        '{"insert":{"src":1,"dst":2}}', '{"delete":[1,2],"time":"7"}', '[{"insert":[3,4],"time":8},{"delete":[1,2]}]',
        "[]", '{"resolved":"9"}', ' { "insert" : [ 5 , 6 ] } ',
    )  # fmt: skip
    assert updates(parsed) == [
        (0, (1, 2), None, 1), (1, (1, 2), 7, -1), (2, (3, 4), 8, 1), (2, (1, 2), None, -1), (5, (5, 6), None, 1)
    ]  # fmt: skip
    assert parsed.progress == [Progress(4, MIN_TIME, 9)]
    assert parsed.refused == []
    both = decode("insert_delete", '{"insert":[1],"input":"roots"}', sources={"edges": EDGES, "roots": ROOTS})
    assert both.words["roots"].tolist() == [[1]]


def change(op: str, before: Any, after: Any, **more: Any) -> str:
    """A Debezium message."""
    return json.dumps({"before": before, "after": after, "source": {"table": "edges", "ts_ms": 5}, "op": op, **more})


def test_debezium_changes() -> None:
    one, two = {"src": 1, "dst": 2}, {"src": 1, "dst": 3}
    wrapped = json.dumps({"schema": {"type": "struct"}, "payload": json.loads(change("u", one, two))})
    parsed = decode(
        "debezium",
        change("c", None, one, ts_ms=99), wrapped, change("d", two, None), None, change("r", None, one, source=None),
        '{"resolved":"9"}', change("m", None, None), change("c", None, one, source={"ts_us": 6, "ts_ms": 7}),
        '{"schema":null,"payload":null}',
    )  # fmt: skip
    assert parsed.refused == []
    assert updates(parsed) == [
        (0, (1, 2), 5_000_000, 1), (1, (1, 2), 5_000_000, -1), (1, (1, 3), 5_000_000, 1), (2, (1, 3), 5_000_000, -1),
        (4, (1, 2), None, 1), (7, (1, 2), 6_000, 1),
    ]  # fmt: skip
    assert parsed.progress == [Progress(5, MIN_TIME, 9)]


def test_debezium_values_are_read_as_their_schema_says() -> None:
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "name", "type": "string"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {
            "field": "paid",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "tags", "type": "array"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    paid = base64.b64encode((-1250).to_bytes(3, "big", signed=True)).decode()
    row = {"id": 1, "name": LONG, "at": 1_700_000_000_000_001, "day": 19_000, "paid": paid, "tags": ["a"]}
    plain = {"id": 2, "name": None, "at": "2026-01-31T12:00:00Z", "day": 3, "paid": "1.5", "tags": []}
    messages = [json.dumps({"schema": schema, "payload": json.loads(change("c", None, row))}), change("c", None, plain)]
    heap = Heap()
    parsed = make_format("debezium", {"orders": ORDERS}).decode(values(*messages), heap)
    assert parsed.refused == []
    one, two = ORDERS.decode_rows(parsed.words["orders"], heap)
    assert one == (1, LONG, 1_700_000_000_000_001_000, date(2022, 1, 8), Number("-12.50"), ["a"])
    assert two[3:] == (date(1970, 1, 4), Number("1.50"), [])
    wrong = json.dumps({"schema": schema, "payload": json.loads(change("c", None, {**row, "paid": 7}))})
    (refused,) = decode("debezium", wrong, sources={"orders": ORDERS}).refused
    assert (refused.reason, "paid is 7" in refused.detail) == ("schema", True)


def test_arrow_streams_of_any_shape() -> None:
    parsed = decode(
        "arrow",
        stream({"src": [1, 2], "dst": [3, 4], "_time": [7, None], "_diff": [-1, 2]}),
        stream({"dst": pa.array([5], pa.uint8()), "src": pa.array([6], pa.int16())}),
        stream({"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}),
        '{"resolved": "9"}',
        stream({"src": [8], "dst": [9], "_time": pa.array([1], pa.timestamp("us", "UTC"))}),
    )
    assert parsed.refused == []
    assert updates(parsed) == [
        (0, (1, 3), 7, -1), (0, (2, 4), None, 2), (1, (6, 5), None, 1), (4, (8, 9), 1_000, 1)
    ]  # fmt: skip
    assert parsed.progress == [Progress(3, MIN_TIME, 9)]
    rows = {"id": [1], "name": [LONG], "at": pa.array([3], pa.timestamp("ms")), "day": [date(2026, 1, 1)],
            "paid": [Number("1.5")], "tags": [["x", LONG]]}  # fmt: skip
    heap = Heap()
    wide = make_format("arrow", {"orders": ORDERS}).decode(values(stream(rows)), heap)
    assert wide.refused == []
    assert ORDERS.decode_rows(wide.words["orders"], heap) == [
        (1, LONG, 3_000_000, date(2026, 1, 1), Number("1.50"), ["x", LONG])
    ]


def test_avro_records_plain_and_of_a_registry() -> None:
    at = datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    first, second = (
        {"src": 1, "dst": 2, "_time": None, "_diff": 1},
        {"src": -(2**63), "dst": 4, "_time": at, "_diff": -2},
    )
    parsed = decode("avro", record(first), '{"resolved":"9"}', record(second))
    assert parsed.refused == []
    assert updates(parsed) == [(0, (1, 2), None, 1), (2, (-(2**63), 4), 5_000, -2)]
    assert parsed.progress == [Progress(1, MIN_TIME, 9)]
    older = {"type": "record", "name": "edge", "fields": [{"name": n, "type": "long"} for n in ("dst", "src")]}
    registry = ((7, json.dumps(older)), (300, json.dumps(EDGE)))
    framed = [record(first, EDGE, b"\0" + (300).to_bytes(4, "big")), record({"src": 5, "dst": 6}, older, b"\0\0\0\0\7")]
    both = decode("avro", *framed, schemas=registry)
    assert updates(both) == [(0, (1, 2), None, 1), (1, (5, 6), None, 1)]
    fields = [
        {"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ]  # fmt: skip
    order = {"type": "record", "name": "o", "fields": fields}
    row = {"id": 1, "name": LONG, "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "day": date(2026, 1, 1),
           "paid": Number("-1.25"), "tags": ["a"]}  # fmt: skip
    heap = Heap()
    wide = make_format("avro", {"orders": ORDERS}, ((None, json.dumps(order)),)).decode(
        values(record(row, order)), heap
    )
    assert wide.refused == []
    assert ORDERS.decode_rows(wide.words["orders"], heap) == [
        (1, LONG, 1_000_000_000, date(2026, 1, 1), Number("-1.25"), ["a"])
    ]


BAD: list[tuple[str, bytes | str | None, str, str]] = [
    ("insert_delete", None, "decode", "no value"),
    ("insert_delete", "", "decode", "empty"),
    ("insert_delete", "{", "decode", "not JSON"),
    ("insert_delete", b"\xff", "decode", "not UTF-8"),
    ("insert_delete", "7", "decode", "should be an insert or a delete"),
    ("insert_delete", "{}", "decode", "neither insert nor delete"),
    ("insert_delete", '{"insert":[1,2],"delete":[1,2]}', "decode", "both insert and delete"),
    ("insert_delete", '{"insert":[1,2],"diff":2}', "decode", "should be an insert or a delete"),
    ("insert_delete", '{"update":[1,2]}', "decode", "should be an insert or a delete"),
    ("insert_delete", '{"insert":[1,2],"resolved":"3"}', "decode", "progress and an update"),
    ("insert_delete", '{"resolved":"soon"}', "decode", "neither an integer nor RFC 3339"),
    ("insert_delete", '{"insert":[1]}', "schema", "has 1 values"),
    ("insert_delete", '{"insert":{"src":1}}', "schema", "no field 'dst'"),
    ("insert_delete", '{"insert":[1,"2"]}', "schema", "not Int64"),
    ("insert_delete", '{"insert":[1,9223372036854775808]}', "overflow", "64 bits"),
    ("insert_delete", '{"insert":[1,2],"time":"9223372036854775807"}', "overflow", "outside"),
    ("insert_delete", '{"insert":[1,2],"time":true}', "decode", "time is True"),
    ("insert_delete", '{"insert":[1,2],"input":"nodes"}', "unknown_source", "nodes"),
    ("insert_delete", '[{"insert":[1,2]},{"insert":[3,null]}]', "schema", "dst of the row is null"),
    ("debezium", "", "decode", "empty"),
    ("debezium", "[]", "decode", "not a Debezium change"),
    ("debezium", "{}", "decode", "no op"),
    ("debezium", '{"op":"x","after":{}}', "decode", "op is 'x'"),
    ("debezium", '{"op":7}', "decode", "not a Debezium change"),
    ("debezium", change("t", None, None), "decode", "truncated"),
    ("debezium", change("u", None, {"src": 1, "dst": 2}), "schema", "before is null; have the table send its rows"),
    ("debezium", change("d", None, None), "schema", "before is null"),
    ("debezium", change("c", None, None), "schema", "after is null"),
    ("debezium", change("c", None, {"src": 1}), "schema", "no field 'dst'"),
    ("debezium", change("c", None, {"src": 1, "dst": 2, "w": 3}), "schema", "field 'w'"),
    ("debezium", change("u", {"src": 1, "dst": 2}, {"src": 1, "dst": 2**63}), "overflow", "64 bits"),
    ("debezium", change("c", None, {"src": 1, "dst": 2}, source={"ts_ms": 2**62}), "overflow", "time is"),
    ("arrow", None, "decode", "no value"),
    ("arrow", b"", "decode", "no value"),
    ("arrow", b"not arrow at all", "decode", "not an Arrow stream"),
    ("arrow", stream({"src": [1], "dst": [2]})[:-40], "decode", "not an Arrow stream"),
    ("arrow", '{"resolved":"x"}', "decode", "neither an integer"),
    ("arrow", '{"resolved":"3","x":1}', "decode", "only resolved"),
    ("arrow", stream({"src": [1]}), "schema", "no column 'dst'"),
    ("arrow", stream({"src": [1], "dst": [2], "w": [3]}), "schema", "the column 'w'"),
    ("arrow", stream({"src": [1], "dst": [None]}), "schema", "column 'dst'"),
    ("arrow", stream({"src": [1], "dst": ["x"]}), "schema", "column 'dst'"),
    ("arrow", stream({"src": [1], "dst": [2.0]}), "schema", "column 'dst'"),
    ("arrow", stream({"src": [1], "dst": pa.array([2**63], pa.uint64())}), "overflow", "column 'dst'"),
    ("arrow", stream({"src": [1], "dst": [2], "_diff": [0]}), "schema", "_diff of row 0 is 0"),
    ("arrow", stream({"src": [1], "dst": [2], "_diff": ["1"]}), "schema", "_diff is string"),
    ("arrow", stream({"src": [1], "dst": [2], "_time": [2**63 - 1]}), "overflow", "_time of row 0"),
    ("arrow", stream({"src": [1], "dst": [2], "_time": pa.array([2**63], pa.uint64())}), "overflow", "_time"),
    ("arrow", stream({"src": [1], "dst": [2], "_time": [1.5]}), "schema", "_time is double"),
    ("avro", None, "decode", "no value"),
    ("avro", b"\x02", "decode", "not Avro of that schema"),
    ("avro", record({"src": 1, "dst": 2, "_time": None}) + b"!", "decode", "1 bytes follow the record"),
    ("avro", record({"src": 1, "dst": 2, "_time": None, "_diff": 0}), "schema", "_diff of row 0 is 0"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message", "reason", "detail"), BAD)
def test_what_is_refused_and_why(kind: str, message: str | bytes | None, reason: str, detail: str) -> None:
    good = {
        "insert_delete": '{"insert":[1,2]}',
        "debezium": change("c", None, {"src": 1, "dst": 2}),
        "arrow": stream({"src": [1], "dst": [2]}),
        "avro": record({"src": 1, "dst": 2, "_time": None}),
    }[kind]
    parsed = decode(kind, good, message, good)
    assert [entry[0] for entry in updates(parsed)] == [0, 2]
    (refused,) = parsed.refused
    assert (refused.message, refused.reason) == (1, reason)
    assert detail in refused.detail
    assert refused.reason in REASONS


ROWS = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5), st.integers(0, 99), st.sampled_from([1, -1])),
    max_size=6,
)


_SIZES = st.integers(0, 17).flatmap(lambda size: st.binary(min_size=size, max_size=size))


@pytest.mark.parametrize("precision", [18, 38])
@given(data=st.lists(st.none() | _SIZES, min_size=1, max_size=6), scale=st.sampled_from([0, 2, 18]))
def test_avro_decimals_of_any_length(precision: int, data: list[bytes | None], scale: int) -> None:
    """Columns of short numbers alone are read at once, others number by number."""
    row_type = RowType([("paid", Decimal(precision, scale), True)])
    plain, logical = ["null", "bytes"], {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    (written, read) = (
        {"type": "record", "name": "o", "fields": [{"name": "paid", "type": kind}]}
        for kind in (plain, ["null", logical])
    )
    messages = values(*(record({"paid": one}, written) for one in data))
    parsed = make_format("avro", {"orders": row_type}, ((None, json.dumps(read)),)).decode(messages, Heap())
    numbers = [None if one is None else int.from_bytes(one, "big", signed=True) for one in data]
    fits = [number is None or abs(number) < 10**precision for number in numbers]
    assert [one.message for one in parsed.refused] == [k for k, fit in enumerate(fits) if not fit]
    assert {one.reason for one in parsed.refused} <= {"overflow"}
    wanted = [
        None if number is None else Number(number).scaleb(-scale, Context(prec=60))
        for number, fit in zip(numbers, fits, strict=True)
        if fit
    ]
    assert [row[0] for row in row_type.decode_rows(parsed.words["orders"], Heap())] == wanted


@pytest.mark.parametrize(
    ("days", "refused"),
    [
        (["19000", '"2022-01-08"', "19000", "null"], []),
        (["19000", "19000.0", "true", '"2022-1-8"', "-0", "9999999", "01"], [1, 2, 3, 5, 6]),
    ],
)
def test_debezium_days_that_come_again(days: list[str], refused: list[int]) -> None:
    row_type = RowType([("day", Date(), True)])
    messages = [f'{{"op":"c","after":{{"day":{day}}}}}' for day in days]
    for _ in range(2):
        parsed = decode("debezium", *messages, sources={"days": row_type})
        assert [one.message for one in parsed.refused] == refused
        alone = [decode("debezium", one, sources={"days": row_type}).words["days"].tolist() for one in messages]
        assert parsed.words["days"].tolist() == [row for rows in alone for row in rows]
    assert row_type.decode_rows(parsed.words["days"][:1], Heap()) == [(date(2022, 1, 8),)]


@given(st.lists(ROWS, max_size=4))
def test_all_formats_say_the_same(batches: list[list[tuple[int, int, int, int]]]) -> None:
    wanted = [(m, (src, dst), at, diff) for m, rows in enumerate(batches) for src, dst, at, diff in rows]
    kinds = {
        "insert_delete": [
            json.dumps([{"insert" if diff > 0 else "delete": [src, dst], "time": at} for src, dst, at, diff in rows])
            for rows in batches
        ],
        "arrow": [
            stream(
                {
                    n: pa.array([row[i] for row in rows], pa.int64())
                    for i, n in enumerate(("src", "dst", "_time", "_diff"))
                }
            )
            for rows in batches
        ],
        "vernier": [
            json.dumps({"v": 1, "t": "0", "u": [[[src, dst], str(at), diff] for src, dst, at, diff in rows]})
            for rows in batches
        ],
    }
    for kind, messages in kinds.items():
        parsed = decode(kind, *messages)
        assert parsed.refused == []
        assert updates(parsed) == wanted, kind
    flat = [row for rows in batches for row in rows]
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    single = [
        record({"src": src, "dst": dst, "_time": moment.replace(microsecond=at), "_diff": diff})
        for src, dst, at, diff in flat
    ]
    assert [one[1:] for one in updates(decode("avro", *single))] == [
        ((src, dst), at * 1_000, diff) for src, dst, at, diff in flat
    ]


@given(st.lists(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), max_size=5), st.data())
def test_no_bytes_stop_a_batch(messages: list[bytes], data: st.DataObject) -> None:
    good = stream({"src": [1, 2], "dst": [3, 4]})
    at, bit = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 7))
    flipped = good[:at] + bytes([good[at] ^ (1 << bit)]) + good[at + 1 :]
    for kind in ("insert_delete", "debezium", "arrow", "avro"):
        parsed = decode(kind, *messages, flipped)
        known = {*parsed.message.tolist(), *(one.message for one in parsed.refused)}
        told = {one.message for one in parsed.refused} | {one.message for one in parsed.progress}
        assert known | told <= set(range(len(messages) + 1))
        assert not {one.message for one in parsed.refused} & set(parsed.message.tolist())
        assert np.all(np.diff(parsed.message) >= 0)


def test_ingestion_reads_them_by_promise_or_bounded_lateness() -> None:
    topics = Topics()
    config = SourceConfig("t", format="arrow", clock="event", idle_timeout_ms=None)
    service = Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": config}, partitions={"t": 2})), workers=2)
    service.epoch([
        topics.append("t", 0, stream({"src": [1, 1], "dst": [2, 3], "_time": [5, 20]}), 1),
        topics.append("t", 0, '{"resolved":"10"}'), topics.append("t", 1, '{"resolved":"30"}'),
        topics.append("t", 1, stream({"src": [9], "dst": [9]})),
    ])  # fmt: skip
    assert service.frontiers == [10]
    assert dict(service.entered) == {("edges", (1, 2), 5, 1): 1}
    (letter,) = service.letters
    assert (letter.reason, letter.offset) == ("decode", 1)
    late = SourceConfig("t", format="debezium", clock="event", lateness_ns=1_000_000, idle_timeout_ms=None)
    service = Service(Ingestion({"edges": EDGES}, IngestionConfig({"edges": late})))
    service.epoch([topics.append("t", 0, change("c", None, {"src": 1, "dst": 2}), 1)])
    assert service.frontiers == [4_000_000]


def test_settings_of_formats(tmp_path: Path) -> None:
    both = IngestionConfig({name: SourceConfig("t", format="arrow") for name in ("edges", "roots")})
    with pytest.raises(SourceMisfit, match="sources edges and roots share topic t, but messages in format arrow"):
        Ingestion({"edges": EDGES, "roots": ROOTS}, both)
    with pytest.raises(SourceMisfit, match="format avro but no schema; set"):
        Ingestion({"edges": EDGES}, IngestionConfig({"edges": SourceConfig("edges", format="avro")}))
    (tmp_path / "7.avsc").write_text(json.dumps(EDGE))
    (tmp_path / "bad.avsc").write_text('{"type":"string"}')
    app = App("formats")
    app.view("copied", app.source("edges", Edges), key=["src"])
    flags = {"sources.edges.format": "avro"}
    good = load(None, {**flags, "sources.edges.schema_folder": str(tmp_path)}, {}).settings
    assert [number for number, _ in good.ingestion(app, {}).sources["edges"].schemas] == [7]
    bad = load(None, {**flags, "sources.edges.schema_file": str(tmp_path / "bad.avsc")}, {}).settings
    with pytest.raises(BadSettings, match="edges: its Avro schema cannot be used: it is not a record"):
        bad.ingestion(app, {})


ITEMS = RowType([("name", String(), True), ("id", Int64(), False), ("price", Int64(), False)])


def upsert(*messages: tuple[str | bytes | None, str | bytes | None], key: tuple[str, ...] = ("id",)) -> Parsed:
    """Decode upserts, each a key and a value."""
    reader = make_format("upsert", {"items": ITEMS}, (), key)
    assert isinstance(reader, Upserts)
    return reader.decode_keyed(values(*(v for _, v in messages)), values(*(k for k, _ in messages)), Heap())


def test_upserts() -> None:
    parsed = upsert(
        ('{"id":1}', '{"name":"a","price":5}'), ("[2]", '{"id":2,"price":6}'), ("3", '["c",3,7]'), ('{"id":1}', None),
        (None, '{"resolved":"9"}'), ("2", "null"),
    )  # fmt: skip
    assert parsed.refused == []
    assert parsed.progress == [Progress(4, MIN_TIME, 9)]
    assert (parsed.message.tolist(), parsed.diff.tolist()) == ([0, 1, 2, 3, 5], [1, 1, 1, -1, -1])
    assert ITEMS.decode_rows(parsed.words["items"][:3]) == [("a", 1, 5), (None, 2, 6), ("c", 3, 7)]
    assert parsed.words["items"][3:, ITEMS.index(["id"])].tolist() == [[1], [2]]
    named = upsert((b"plain text", '{"id":1,"price":5}'), ('"in quotes"', None), key=("name",))
    assert ITEMS.decode_rows(named.words["items"])[0] == ("plain text", 1, 5)
    assert named.refused == []


@pytest.mark.parametrize(
    ("key", "value", "reason", "detail"),
    [
        (None, '{"price":1}', "key", "no key, but it should have id"),
        ("", '{"price":1}', "key", "no key"),
        ("{", '{"price":1}', "key", "not JSON"),
        ("x", '{"price":1}', "key", "not JSON"),
        ("[1,2]", '{"price":1}', "key", "2 values for the columns id"),
        ('{"key":1}', '{"price":1}', "key", "has the columns key, but it should have id"),
        ('{"id":"one"}', None, "key", "not Int64"),
        ("1", '{"id":2,"price":1}', "key", "id is b'1' in the key but b'2' in the row"),
        ('{"id":"one"}', '{"price":1}', "schema", "not Int64"),
        ("1", '{"price":null}', "schema", "price of the row is null"),
        ("1", "{}", "schema", "no field 'price'"),
        ("1", "[1]", "schema", "has 1 values"),
        ("1", "7", "schema", "should be an object or an array"),
        ("1", "{", "decode", "not JSON"),
        ("1", b"\xff", "decode", "not UTF-8"),
        ("1", '{"price":9223372036854775808}', "overflow", "64 bits"),
    ],
)
def test_upserts_that_are_refused(key: Any, value: Any, reason: str, detail: str) -> None:
    parsed = upsert(("1", '{"price":1}'), (key, value), ("1", None))
    assert parsed.message.tolist() == [0, 2]
    (refused,) = parsed.refused
    assert (refused.message, refused.reason) == (1, reason)
    assert detail in refused.detail


def test_ingestion_tells_upserts_where_they_stand_and_when() -> None:
    topics = Topics()
    config = SourceConfig("t", format="upsert", clock="event", lateness_ns=0, idle_timeout_ms=None, key=("id",))
    service = Service(Ingestion({"items": ITEMS}, IngestionConfig({"items": config}, partitions={"t": 1})))
    service.epoch([topics.append("t", 0, '{"price":1}', 1, key=b"7"), topics.append("t", 0, None, 1, key=b"7")])
    service.epoch([topics.append("t", 0, '{"price":2}', 5, key=b"8"), topics.append("t", 0, "{}", key=b"8")])
    found = sorted((time, diff) for (_, _, time, diff) in service.entered)
    assert found == [(1_001_000_000, 1), (1_002_000_000, -2)]
    assert service.waiting == 1
    assert [letter.reason for letter in service.letters] == ["schema"]
    for wrong in (SourceConfig("t", format="upsert"), SourceConfig("t", key=("id",))):
        with pytest.raises(SourceMisfit, match="set both"):
            Ingestion({"items": ITEMS}, IngestionConfig({"items": wrong}))
    coarse = SourceConfig("t", format="upsert", clock="event", records=9, key=("id",))
    with pytest.raises(SourceMisfit, match="leave its rounding exact"):
        Ingestion({"items": ITEMS}, IngestionConfig({"items": coarse}))
    with pytest.raises(SourceMisfit, match="has 'no', which is not a column of it"):
        Ingestion({"items": ITEMS}, IngestionConfig({"items": SourceConfig("t", format="upsert", key=("no",))}))


def test_debezium_by_key_needs_no_row_as_it_was() -> None:
    reader = make_format("debezium", {"items": ITEMS}, (), ("id",))
    assert isinstance(reader, Upserts)
    row = {"id": 1, "name": "a", "price": 5}
    messages: list[tuple[str | None, str | None]] = [
        ('{"id":1}', change("c", None, row)), ('{"id":1}', change("u", None, {**row, "price": 6})),
        ('{"schema":{},"payload":{"id":1}}', change("d", None, None)), ('{"id":1}', None),
        (None, change("d", {"id": 2, "name": None, "price": None}, None)), (None, change("d", None, None)),
        ("{}", change("u", row, None)), (None, change("t", None, None)), (None, '{"resolved":"9"}'),
    ]  # fmt: skip
    parsed = reader.decode_keyed(values(*(v for _, v in messages)), values(*(k for k, _ in messages)), Heap())
    assert (parsed.message.tolist(), parsed.diff.tolist()) == ([0, 1, 2, 4], [1, 1, -1, -1])
    assert parsed.time.tolist() == [5_000_000] * 4
    assert ITEMS.decode_rows(parsed.words["items"][:2]) == [("a", 1, 5), ("a", 1, 6)]
    assert parsed.words["items"][2:, ITEMS.index(["id"])].tolist() == [[1], [2]]
    assert [(one.message, one.reason) for one in parsed.refused] == [(5, "key"), (6, "schema"), (7, "decode")]
    assert parsed.progress == [Progress(8, MIN_TIME, 9)]
