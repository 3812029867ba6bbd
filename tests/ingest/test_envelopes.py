"""The kernels that read envelopes say what the strict readers say, about every message and every byte."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.guarded import GuardedMemory
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import List, String
from vernier.service.ingest.formats import make_format
from vernier.service.ingest.formats.enveloped import Enveloped
from vernier.service.ingest.formats.messages import Parsed
from vernier.storage.strings.string_heap import Heap

ROW_TYPE = RowType(
    [
        ("id", Int64(), False),
        ("name", String(), True),
        ("day", Date(), True),
        ("at", TimestampNs(), True),
        ("paid", Decimal(9, 2), True),
        ("tags", List(String()), True),
    ]
)
ROW: dict[str, Any] = {
    "id": 1, "name": "a text of more than fifteen bytes", "day": "2026-11-25", "at": 17, "paid": "1.25", "tags": ["a"],
}  # fmt: skip
INTEGERS = st.sampled_from([0, 1, -1, 20000, -719162, -719163, 2932896, 2932897, 2**63, -(2**63), 2**70])
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
DAYS = st.none() | INTEGERS | st.sampled_from(["2026-11-25", "2026-02-30", "x"])
ROWS = st.fixed_dictionaries(
    {
        "id": st.just(1) | INTEGERS,
        "name": st.none() | st.text(max_size=20),
        "day": DAYS,
        "at": st.none() | INTEGERS | st.just("2026-11-25T00:00:00Z"),
        "paid": st.none() | st.sampled_from(["1.25", 7, "1.255", "x"]),
        "tags": st.none() | st.lists(st.text(max_size=2), max_size=2),
    }
) | st.just(ROW)
"""Rows, most of them legal."""
ANY_ROW = ROWS | JSON | ROWS.map(lambda row: list(row.values())) | ROWS.map(lambda row: dict(reversed(row.items())))
TIMES = st.none() | INTEGERS | st.sampled_from([1_795_000_000_000, "5", "2026-11-25T00:00:00Z", 1.0, True])


def members(required: dict[str, st.SearchStrategy[Any]], **others: st.SearchStrategy[Any]) -> Any:
    """Objects with members in any order."""
    whole = st.fixed_dictionaries(required, optional=others)
    return st.tuples(whole, st.randoms(use_true_random=False)).map(
        lambda drawn: dict(drawn[1].sample(list(drawn[0].items()), len(drawn[0])))
    )


SOURCE = members(
    {}, ts_ms=TIMES, ts_us=TIMES, ts_ns=TIMES, snapshot=st.sampled_from([True, "false", "last", None]), x=JSON
)
CHANGE = members(
    {"op": st.sampled_from([*"crudmtx", None, 5])},
    before=ANY_ROW,
    after=ANY_ROW,
    source=SOURCE | JSON,
    ts_ms=TIMES,
    ts_ns=TIMES,
    transaction=JSON,
)
EVENT = (
    members({}, insert=ANY_ROW)
    | members({}, delete=ANY_ROW)
    | members({}, insert=ROWS, delete=ROWS, time=TIMES, x=JSON)
)
MESSAGES = {
    "debezium": CHANGE
    | members({"op": st.just("c"), "after": ROWS}, source=SOURCE, before=st.none())
    | members({"op": st.just("u"), "after": ROWS, "before": ROWS}, source=SOURCE)
    | members({"payload": CHANGE | JSON}, schema=JSON),
    "insert_delete": members({"insert": ROWS}, time=TIMES) | members({"delete": ROWS}, time=TIMES) | EVENT
    | st.lists(members({"insert": ROWS}, time=TIMES) | EVENT, max_size=4),
}  # fmt: skip
SPELLED = st.sampled_from([{"separators": (",", ":")}, {"separators": (" , ", " : ")}, {"ensure_ascii": False}])


GUARDED = GuardedMemory()


def both(kind: str, messages: list[bytes | None]) -> tuple[Parsed, Parsed]:
    """What ingestion reads, and what it reads without the kernels."""
    reader, given_ = make_format(kind, {"rows": ROW_TYPE}), pa.array(messages, pa.large_binary())
    found = reader.decode(given_, Heap())
    with patch.object(type(reader), "find", Enveloped.find):
        return found, reader.decode(given_, Heap())


def same(one: Parsed, other: Parsed) -> bool:
    """Whether two results are equal."""
    arrays = ("message", "source", "time", "diff", "marks")
    equal = [np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays]
    equal += [np.array_equal(one.words[name], other.words[name]) for name in one.names]
    return all(equal) and list(one.refused) == list(other.refused) and list(one.progress) == list(other.progress)


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_messages_are_read_as_before(kind: str, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.tuples(MESSAGES[kind], SPELLED), max_size=6))
    messages: list[bytes | None] = [json.dumps(one, **how).encode("utf-8", "surrogatepass") for one, how in drawn]
    messages += data.draw(st.lists(st.sampled_from([None, b"", b'{"resolved":"5"}', b"[]", b"{}", b"5"]), max_size=3))
    one, other = both(kind, data.draw(st.permutations(messages)))
    assert same(one, other)


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_bytes_are_refused_as_before(kind: str, data: st.DataObject) -> None:
    messages: list[bytes | None] = []
    for message, how in data.draw(st.lists(st.tuples(MESSAGES[kind], SPELLED), max_size=4)):
        whole = json.dumps(message, **how).encode("utf-8", "surrogatepass")
        at, piece = (
            data.draw(st.integers(0, len(whole))),
            data.draw(st.sampled_from(list(b'[]{}",:\\tn01-.e \x00\xff'))),
        )
        messages += [whole, whole[:at] + bytes([piece]) + whole[at + data.draw(st.integers(0, 2)) :]]
    one, other = both(kind, messages)
    assert same(one, other)


@pytest.mark.parametrize("kind", MESSAGES)
@given(st.data())
def test_nothing_behind_the_messages_is_read(kind: str, data: st.DataObject) -> None:
    """Wherever a message ends. A kernel that reads on would end this process."""
    message, how = data.draw(st.tuples(MESSAGES[kind], SPELLED))
    whole = json.dumps(message, **how).encode("utf-8", "surrogatepass")
    reader = make_format(kind, {"rows": ROW_TYPE})
    for end in {len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=8))}:
        found = reader.decode(GUARDED.messages([whole[:end]]), Heap())
        assert same(found, reader.decode(pa.array([whole[:end]], pa.large_binary()), Heap()))


@pytest.mark.parametrize(
    ("kind", "message", "count"),
    [
        ("debezium", {"op": "c", "before": None, "after": ROW, "source": {"ts_ms": 5, "db": [{"a": [1, -2.5e3]}]}}, 1),
        ("debezium", {"op": "u", "before": ROW | {"day": 20000}, "after": ROW, "ts_ms": 5, "transaction": None}, 2),
        ("debezium", {"op": "d", "before": ROW, "after": None, "x": [[], {}, {"a": True, "b": "\n"}, False]}, 1),
        ("insert_delete", {"insert": ROW}, 1),
        ("insert_delete", {"delete": list(ROW.values()), "time": "2026-11-25T00:00:00Z"}, 1),
        ("insert_delete", [{"insert": ROW}, {"delete": ROW, "time": 5}], 2),
    ],
)  # fmt: skip
def test_the_kernels_read_plain_messages(kind: str, message: Any, count: int) -> None:
    values = pa.array([json.dumps(message).encode()] * 3, pa.large_binary())
    with patch.object(Enveloped, "_open_all", lambda *given: pytest.fail("a message was read alone")):
        found = make_format(kind, {"rows": ROW_TYPE}).decode(values, Heap())
    assert found.message.tolist() == sorted([*range(3)] * count)
