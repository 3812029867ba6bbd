"""Values to words and back: exact, in Spark's order, refusing what does not fit."""

import datetime
import decimal
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from vernier.operators.errors import BadValue
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type, parse, spell
from vernier.operators.language.types.schema import RowType
from vernier.storage.strings.string_heap import Heap

INT64 = st.integers(-(2**63), 2**63 - 1)
# Near the fifteen bytes that words hold, and with equal beginnings.
TEXT = st.one_of(
    st.text(max_size=20), st.builds(lambda n, end: "x" * n + end, st.integers(13, 17), st.text(max_size=3))
)


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    bound = 10**precision - 1
    return st.one_of(st.integers(-bound, bound), st.sampled_from([-bound, bound, 0])).map(
        lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=50))
    )


VALUES: dict[str, tuple[Type, st.SearchStrategy[Any]]] = {
    "Int64": (Int64(), INT64),
    "Bool": (Bool(), st.booleans()),
    "Date": (Date(), st.dates()),
    "TimestampNs": (TimestampNs(), INT64),
    "Float64": (Float64(), st.floats()),
    "String": (vn.String(), TEXT),
    "Binary": (vn.Binary(), st.one_of(st.binary(max_size=40), TEXT.map(str.encode))),
    "Decimal(5, 2)": (vn.Decimal(5, 2), decimals(5, 2)),
    "Decimal(18, 18)": (vn.Decimal(18, 18), decimals(18, 18)),
    "Decimal(19, 0)": (vn.Decimal(19, 0), decimals(19, 0)),
    "Decimal(38, 10)": (vn.Decimal(38, 10), decimals(38, 10)),
    "List(Int64)": (vn.List(vn.Int64), st.lists(INT64, max_size=3)),
    "List(String | None)": (vn.List(vn.String | None), st.lists(st.none() | TEXT, max_size=3)),
    "List(List(Binary))": (
        vn.List(vn.List(vn.Binary)),
        st.lists(st.lists(st.binary(max_size=3), max_size=3), max_size=3),
    ),
    "Struct(a=Float64, b=String | None)": (
        vn.Struct(a=vn.Float64, b=vn.String | None),
        st.fixed_dictionaries({"a": st.floats(), "b": st.none() | TEXT}),
    ),
    "List(Struct(p=Decimal(20, 1) | None, q=List(Bool)) | None)": (
        vn.List(vn.Struct(p=vn.Decimal(20, 1) | None, q=vn.List(vn.Bool)) | None),
        st.lists(
            st.none()
            | st.fixed_dictionaries({"p": st.none() | decimals(20, 1), "q": st.lists(st.booleans(), max_size=2)}),
            max_size=3,
        ),
    ),
    "Struct(x=Struct(t=TimestampNs, u=Date | None) | None)": (
        vn.Struct(x=vn.Struct(t=vn.TimestampNs, u=vn.Date | None) | None),
        st.fixed_dictionaries(
            {"x": st.none() | st.fixed_dictionaries({"t": INT64, "u": st.none() | st.dates()})},
        ),
    ),
}


def spark_order(value: object) -> object:
    """Nulls first, NaN last, -0.0 equal to 0.0, at every level; strings by code point; fields by name, as declared."""
    if isinstance(value, dict):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, list):
        return (True, False, tuple(map(spark_order, value)))
    return (value is not None, value != value, 0 if value is None or value != value else value)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("nullable", [False, True])
def test_words_hold_values_and_order(name: str, nullable: bool) -> None:
    kind, strategy = VALUES[name]
    row = RowType([("x", kind, nullable)])

    @given(st.lists(st.none() | strategy if nullable else strategy, min_size=2, max_size=20))
    def check(values: list[object]) -> None:
        heap = Heap()
        words = row.encode_rows([(value,) for value in values], heap)
        assert words.shape == (len(values), kind.words + nullable)
        back = [value for (value,) in row.decode_rows(words, heap)]
        assert list(map(spark_order, back)) == list(map(spark_order, values))
        ordered = heap.comparable(words, row.text_words)
        for i in range(len(values) - 1):
            one, two = spark_order(values[i]), spark_order(values[i + 1])
            assert (tuple(ordered[i]) < tuple(ordered[i + 1])) == (one < two)  # type: ignore[operator]
            assert (tuple(words[i]) == tuple(words[i + 1])) == (one == two)
        batch = row.decode(words, heap)
        batch.validate(full=True)
        assert batch.schema == row.arrow
        assert (row.encode({"x": batch.column("x")}, heap) == words).all()
        # As an Arrow array of another library may be: a slice of a chunked one, padded with what is not looked at.
        padded = pa.chunked_array([batch.column("x"), batch.column("x")]).slice(1, len(values))
        assert (row.encode({"x": padded}, heap) == np.concatenate((words[1:], words[:1]))).all()
        assert (words[words[:, 0] == 0] == 0).all() or not nullable

    check()


def test_floats_have_one_nan_and_one_zero() -> None:
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    words = Float64().encode(np.array([math.nan, *payload, -0.0, 0.0, math.inf, -math.inf]))[:, 0]
    assert len(set(words[:3])) == 1
    assert words[3] == words[4]
    assert words[6] < words[4] < words[5] < words[0]


def test_arrow_columns_of_other_widths_are_taken_when_nothing_is_lost() -> None:
    assert Int64().encode(pa.array([1, 2], pa.int8()))[:, 0].tolist() == [1, 2]
    assert Int64().encode(pa.chunked_array([pa.array([1]), pa.array([2])]))[:, 0].tolist() == [1, 2]
    assert Float64().decode(Float64().encode(pa.array([1.5], pa.float32()))).to_pylist() == [1.5]
    assert TimestampNs().encode(pa.array([1], pa.timestamp("ms")))[:, 0].tolist() == [1_000_000]
    with pytest.raises(BadValue, match="not Int64"):
        Int64().encode(pa.array([2**63], pa.uint64()))


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Int64(), 1.0, "double are not Int64"),
        (Int64(), True, "bool are not Int64"),
        (Int64(), "1", "string are not Int64"),
        (Int64(), 2**63, "not Int64"),
        (Int64(), None, "null, but its type has no"),
        (Bool(), 1, "int64 are not Bool"),
        (Date(), 1, "int64 are not Date"),
        (Float64(), "x", "string are not Float64"),
        (TimestampNs(), datetime.date(2020, 1, 1), "are not TimestampNs"),
        (vn.String(), 1, "not String: 1"),
        (vn.String(), b"x", "not String: b'x'"),
        (vn.String(), "\ud800", "not String: 'utf-8' codec can't encode"),
        (vn.String(), None, "null, but its type has no"),
        (vn.Binary(), "x", "not Binary: 'x'"),
        (vn.Binary(), b"x" * (16 << 20) + b"y", "a text of 16777217 bytes; the most is 16777216"),
        (vn.Decimal(4, 2), decimal.Decimal("1.001"), "not Decimal(4, 2): it has more than 2 digits behind the point"),
        (vn.Decimal(4, 2), decimal.Decimal(100), "not Decimal(4, 2)"),
        (vn.Decimal(4, 2), 1.5, "1.5 is neither a finite decimal.Decimal nor an integer"),
        (vn.Decimal(4, 2), True, "True is neither a finite decimal.Decimal nor an integer"),
        (vn.Decimal(4, 2), decimal.Decimal("NaN"), "not Decimal(4, 2)"),
        (vn.List(vn.Int64), (1, None), "null in Int64, which has no `| None`"),
        (vn.List(vn.Int64), "ab", "not List(Int64): 'ab'"),
        (vn.List(vn.Int64), [1.5], "double are not Int64"),
        (vn.Struct(a=vn.Int64), {"b": 1}, "{'b': 1} is not a dict with the keys a"),
        (vn.Struct(a=vn.Int64), {"a": None}, "field a: null in Int64"),
    ],
)
def test_values_of_another_type_are_refused_with_the_column(kind: Type, value: object, problem: str) -> None:
    row = RowType([("a", Int64(), False), ("price", kind, False)])
    with pytest.raises(BadValue, match=re.escape(problem)) as caught:
        row.encode_rows([(1, value)])
    assert caught.value.column == "price"


def test_dates_outside_the_years_1_to_9999_are_refused() -> None:
    with pytest.raises(BadValue, match="outside the years"):
        RowType([("day", Date(), False)]).encode({"day": pa.array([3_000_000], pa.int32()).cast(pa.date32())})


def test_rows_of_the_wrong_length_and_missing_columns_are_refused() -> None:
    row = RowType([("a", Int64(), False), ("b", Int64(), False)])
    with pytest.raises(BadValue, match="has 1 values for the columns a, b"):
        row.encode_rows([(1,)])
    with pytest.raises(BadValue, match="column b: missing"):
        row.encode({"a": np.array([1])})


def test_batches_decode_with_their_schema() -> None:
    row = RowType([("a", Int64(), True), ("t", TimestampNs(), False), ("d", Date(), False), ("b", Bool(), False)])
    words = row.encode_rows([(None, 5, datetime.date(1969, 12, 31), True), (7, -1, datetime.date(2000, 1, 1), False)])
    batch = row.decode(words)
    assert batch.schema == row.arrow
    assert batch.column("a").to_pylist() == [None, 7]
    assert batch.column("d").to_pylist() == [datetime.date(1969, 12, 31), datetime.date(2000, 1, 1)]
    assert row.encode({name: batch.column(name) for name in row.names}).tolist() == words.tolist()
    assert row.decode(words[:0]).num_rows == 0


def test_columns_lie_where_index_says() -> None:
    row = RowType([("a", Int64(), True), ("b", Int64(), False), ("c", Int64(), True)])
    assert (row.width, row.index(["c", "b"]).tolist()) == (5, [3, 4, 2])
    assert RowType.from_json(row.to_json()) == row
    assert row.to_json() == [["a", "Int64 | None"], ["b", "Int64"], ["c", "Int64 | None"]]


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_types_are_spelled_as_they_are_parsed(name: str, nullable: bool) -> None:
    assert parse(spell(VALUES[name][0], nullable)) == (VALUES[name][0], nullable)


def test_schemas_inherit_columns_and_know_text_annotations() -> None:
    class Node(vn.Schema):
        node: vn.Int64

    class Weighted(Node):
        weight: "vn.Float64 | None"

    assert Weighted.row_type.to_json() == [["node", "Int64"], ["weight", "Float64 | None"]]
    assert Node.row_type.names == ("node",)
