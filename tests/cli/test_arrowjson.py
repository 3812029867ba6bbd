"""JSON texts of columns, against json.dumps of the values one by one."""

import base64
import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.test_types import VALUES
from vernier.operators.language.types.scalars import Type
from vernier.operators.language.types.schema import RowType
from vernier.service.codec.arrowjson import json_texts
from vernier.storage.strings.string_heap import Heap


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    match value:
        case dict():
            return {name: plain(value[name]) for name in sorted(value)}
        case list():
            return [plain(one) for one in value]
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


@pytest.mark.parametrize("name", VALUES)
def test_texts_are_those_of_json(name: str) -> None:
    kind, strategy = VALUES[name]
    row = RowType([("x", kind, True)])

    @given(st.lists(st.none() | strategy, max_size=10), st.integers(0, 3))
    def check(values: list[Any], skip: int) -> None:
        heap = Heap()
        column = row.decode(row.encode_rows([(value,) for value in values], heap), heap).column("x").slice(skip)
        texts = json_texts(row.fields[0].slot, column).to_pylist()
        python = row.fields[0].slot.to_python(column)
        assert [json.loads(text) for text in texts] == [plain(value) for value in python]
        assert texts == [json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")) for value in python]

    check()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (vn.String(), 'a "quoted"\nline \\ é \x00', '"a \\"quoted\\"\\nline \\\\ é \\u0000"'),
        (vn.Decimal(10, 3), decimal.Decimal("-0.5"), '"-0.500"'),
        (vn.List(vn.List(vn.Int64)), [[], [1, 2], []], "[[],[1,2],[]]"),
        (vn.Struct(a=vn.Float64, b=vn.Binary | None), {"a": math.nan, "b": None}, '{"a":"NaN","b":null}'),
    ],
)
def test_values_are_spelled_like_this(kind: Type, value: object, text: str) -> None:
    row = RowType([("x", kind, False)])
    heap = Heap()
    column: pa.Array = row.decode(row.encode_rows([(value,)], heap), heap).column("x")
    assert json_texts(row.fields[0].slot, column).to_pylist() == [text]
