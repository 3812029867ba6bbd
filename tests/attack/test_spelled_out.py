"""Small messages of much: what comes out of one is bounded before it is made."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attack.hostile import Hostile
from tests.attack.hostile_binary import bomb, stream
from tests.attack.test_hostile import decoded
from tests.ingest.log import values
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType
from vernier.service.config.settings import load as load_settings
from vernier.service.ingest.bounds import MOST_BYTES
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.avro import read_schema
from vernier.service.ingest.formats.ipc import TooLarge, read_stream
from vernier.service.ingest.formats.sieve import doubtful
from vernier.storage.strings.string_heap import Heap

ROW = RowType([("id", Int64(), False)])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_small_stream_of_much_is_a_dead_letter(codec: str) -> None:
    small = bomb(codec)
    assert len(small) < 500_000
    (found,) = decoded("arrow", [(None, small)]).batches
    (refused,) = found.refused
    assert refused.reason == "decode"
    assert f"it has {12 * 2**20 * 8} bytes when decoded, more than max_decoded_bytes, {MOST_BYTES}" in refused.detail
    (wide,) = decoded("arrow", [(None, bomb(codec, 1_000))], max_decoded_bytes=1_024).batches
    assert len(wide.refused) == 1


def test_it_is_not_even_made() -> None:
    """What a buffer says of itself is enough to refuse it."""
    code = """
import numpy as np
import pyarrow as pa
from vernier.service.ingest.formats.ipc import TooLarge, read_stream
from tests.attack.hostile_binary import stream
small = stream({"id": pa.array(np.zeros(500, np.int64))}, "zstd")
claims = small.replace((4_000).to_bytes(8, "little"), (2 << 30).to_bytes(8, "little"))
try:
    read_stream(pa.py_buffer(claims), 1, 1 << 20)
except TooLarge as refusal:
    print(refusal.detail)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "it has 2147483648 bytes" in done.stdout, done.stderr


def repeated(kind: str, text: str, times: int) -> pa.Array:
    """A text that is stored once and referenced many times."""
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int8()), [text])
    one = pa.array([text], pa.string_view()).buffers()
    views = np.tile(np.frombuffer(one[1], np.uint8)[:16], times)
    return pa.Array.from_buffers(pa.string_view(), times, [None, pa.py_buffer(views), *one[2:]])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_texts_count_as_often_as_they_are_there(kind: str, nested: bool) -> None:
    def message(times: int) -> pa.Buffer:
        texts = repeated(kind, "x" * 10_000, times)
        if nested:
            texts = pa.StructArray.from_arrays([texts], ["a"])
        return pa.py_buffer(stream({"id": pa.array(range(times)), "note": texts}))

    assert message(100).size < 20_000
    assert read_stream(message(100), 1, 2_000_000).count == 100
    with pytest.raises(TooLarge) as found:
        read_stream(message(1_000), 1, 2_000_000)
    assert found.value.reason == "decode"


@given(
    st.lists(st.tuples(st.integers(-5, 5), st.text(max_size=40), st.lists(st.integers(0, 9), max_size=3)), max_size=6)
)
def test_ordinary_streams_are_taken_at_what_they_hold(rows: list[tuple[int, str, list[int]]]) -> None:
    ids, notes, tags = ([row[i] for row in rows] for i in range(3))
    columns = {
        "id": pa.array(ids, pa.int64()),
        "note": pa.array(notes, pa.string()),
        "tags": pa.array(tags, pa.list_(pa.int64())),
    }
    for codec in (None, "lz4", "zstd"):
        (found,) = decoded("arrow", [(None, stream(columns, codec))]).batches
        assert list(found.refused) == []
        assert found.parsed is not None
        assert len(found.parsed.time) == len(rows)


def test_the_settings_say_how_much() -> None:
    settings = load_settings(None, {"max_decoded_bytes": "4096", "diff_range": "5"}, {}).settings
    assert (settings.max_decoded_bytes, settings.diff_range) == (4096, 5)
    default = load_settings(None, {}, {}).settings
    assert (default.max_decoded_bytes, default.diff_range) == (64 << 20, 2**31)


LIST = {"type": "array", "items": "null"}
NODE = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
EMPTY = {"type": "record", "name": "nothing", "fields": []}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (LIST, "array of values of no bytes"),
        ({"type": "array", "items": EMPTY}, "array of values of no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, "array of values of no bytes"),
        (NODE, "node contains itself"),
        ({"type": "array", "items": "outer"}, "outer contains itself"),
    ],
)
def test_avro_schemas_without_bounds_are_refused(kind: Any, said: str) -> None:
    schema = {"type": "record", "name": "outer", "fields": [{"name": "tags", "type": kind}]}
    with pytest.raises(ValueError, match=said):
        read_schema(json.dumps(schema))


# --- members that come twice ------------------------------------------------------------------------------------------

TWICE = {
    "insert_delete": (
        '{"insert":[1],"insert":[2]}', '{"insert":{"id":1,"id":2}}', '[{"delete":[1],"time":1,"time":2}]',
        '{"resolved":1,"resolved":2}',
    ),
    "debezium": (
        '{"op":"c","after":{"id":1},"after":{"id":2}}', '{"op":"c","op":"d","after":{"id":1}}',
        '{"op":"c","after":{"id":1,"id":2}}', '{"op":"c","after":{"id":1},"source":{"ts_ms":1,"ts_ms":2}}',
        '{"payload":{"op":"c","after":{"id":1},"\\u006fp":"c"}}',
        '{"op":"c","after":{"id":1},"transaction":{"a":1,"a":2}}',
    ),
    "upsert": ('{"id":1,"id":1}', '{"note":"a","note":"b"}', '{"note":"a","n\\u006fte":"b"}'),
    "json": ('{"id":1,"id":1}', '{"data":[1],"data":[1]}'),
    "vernier": ('{"v":1,"v":1,"t":0,"u":[]}', '{"v":1,"t":0,"u":[[{"id":1,"id":1},1,1]]}'),
}  # fmt: skip


@pytest.mark.parametrize(("form", "message"), [(form, one) for form, messages in TWICE.items() for one in messages])
def test_members_that_come_twice_are_refused_in_every_format(form: str, message: str) -> None:
    (found,) = decoded(form, [(b"1", message.encode())]).batches
    (refused,) = found.refused
    assert refused.reason == "decode"
    assert "comes twice in one object" in refused.detail
    for key in ('{"id":1,"id":1}', '{"id":1,"i\\u0064":1}') if form == "upsert" else ():
        (found,) = decoded(form, [(key.encode(), b"{}")]).batches
        assert [one.reason for one in found.refused] == ["key"]


def test_a_name_with_an_escape_is_a_name() -> None:
    parsed = make_format("insert_delete", {"s": ROW}).decode(
        values('{"ins\\u0065rt":{"i\\u0064":7}}', '{"insert":{"id":8}}')
    )
    assert parsed.refused == []
    assert parsed.words["s"].tolist() == [[7], [8]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abé\n"), inner, max_size=3),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=5), st.booleans())
def test_the_sieve_lets_good_messages_pass(messages: list[Any], escaped: bool) -> None:
    texts = [json.dumps(one, ensure_ascii=escaped) for one in messages]
    if not escaped:
        found = doubtful(values(*texts))
        assert found.tolist() == ['\\n":' in text for text in texts]
    assert doubtful(values(None)).tolist() == [False]


@given(st.lists(st.binary(max_size=30) | JSON.map(lambda one: json.dumps(one).encode()), max_size=4), st.data())
def test_what_the_sieve_lets_pass_is_no_trap(messages: list[bytes], data: st.DataObject) -> None:
    """Whatever is twice, too deep or no UTF-8 is doubtful."""
    inner = data.draw(st.sampled_from(messages or [b"1"]))
    name = data.draw(st.sampled_from([b"a", b"\\u0061", b"\xc3\xa9", b""]))
    twice = b'{"%b":1,"b":[%b],"%b":2}' % (name, inner.strip(), name)
    deep = b"[" * 129 + inner + b"]" * 129
    broken = b'{"a":"%b"}' % data.draw(
        st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xe2\x82"])
    )
    assert doubtful(values(deep, broken)).tolist() == [True, True]
    try:
        json.loads(inner)
    except ValueError:
        return
    assert doubtful(values(twice)).tolist() == [True]


def test_texts_of_a_source_are_bounded_wherever_they_are() -> None:
    long = "x" * ((16 << 20) + 1)
    rows = [f'{{"id":1,"note":"{long}"}}', '{"id":2}']
    (found,) = decoded("json", [(None, row.encode()) for row in rows], max_message_bytes=64 << 20).batches
    assert [(one.message, one.reason) for one in found.refused] == [(0, "schema")]
    assert found.parsed is not None
    assert Hostile.row_type.decode_rows(found.parsed.words["s"], Heap())[0][0] == 2
