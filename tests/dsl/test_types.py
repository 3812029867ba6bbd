"""Values to words and back: exact, in Spark's order, refusing what does not fit."""

import datetime
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from operators.errors import BadValue
from operators.language.schema import RowType
from operators.language.types import Bool, Date, Float64, Int64, TimestampNs, Type, parse, spell

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, tuple[Type, st.SearchStrategy[object]]] = {
    "Int64": (Int64(), INT64),
    "Bool": (Bool(), st.booleans()),
    "Date": (Date(), st.dates()),
    "TimestampNs": (TimestampNs(), INT64),
    "Float64": (Float64(), st.floats()),
}


def spark_order(value: object) -> tuple[bool, bool, object]:
    """Nulls first, NaN last, -0.0 equal to 0.0."""
    return (value is not None, value != value, 0 if value is None or value != value else value)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("nullable", [False, True])
def test_words_hold_values_and_order(name: str, nullable: bool) -> None:
    kind, strategy = VALUES[name]
    row = RowType([("x", kind, nullable)])

    @given(st.lists(st.none() | strategy if nullable else strategy, min_size=2, max_size=20))
    def check(values: list[object]) -> None:
        words = row.encode_rows([(value,) for value in values])
        assert words.shape == (len(values), 1 + nullable)
        back = [value for (value,) in row.decode_rows(words)]
        assert list(map(spark_order, back)) == list(map(spark_order, values))
        for i in range(len(values) - 1):
            one, two = tuple(words[i]), tuple(words[i + 1])
            assert (one < two) == (spark_order(values[i]) < spark_order(values[i + 1]))
            assert (one == two) == (spark_order(values[i]) == spark_order(values[i + 1]))

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
    ],
)
def test_values_of_another_type_are_refused_with_the_column(kind: Type, value: object, problem: str) -> None:
    row = RowType([("a", Int64(), False), ("price", kind, False)])
    with pytest.raises(BadValue, match=problem) as caught:
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
