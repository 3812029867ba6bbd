"""Tables of row, time and diff: what is read, what is written, and what a test prints that fails."""

import datetime
import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from vernier.operators.tables import format_changes, format_rows, parse_changes, parse_rows


class Everything(vn.Schema):
    number: vn.Int64
    share: vn.Float64
    yes: vn.Bool
    day: vn.Date
    at: vn.TimestampNs
    price: vn.Decimal(6, 2)  # type: ignore[valid-type]
    name: vn.String | None  # type: ignore[valid-type]
    raw: vn.Binary
    tags: vn.List(vn.String)  # type: ignore[valid-type]
    place: vn.Struct(x=vn.Int64, y=vn.Int64 | None)  # type: ignore[valid-type]


class Pair(vn.Schema):
    key: vn.Int64
    name: vn.String | None  # type: ignore[valid-type]


EVERYTHING = Everything.row_type
PAIR = Pair.row_type
ROW = (
    -7,
    0.5,
    True,
    datetime.date(2026, 3, 2),
    17,
    decimal.Decimal("9.95"),
    "two words | a bar",
    b"\x00\xff",
    ["a b", "]"],
    {"x": 1, "y": None},
)


def test_values_of_all_types_are_read_as_they_are_written() -> None:
    assert parse_changes(format_changes([(ROW, 5, -2)], EVERYTHING), EVERYTHING) == [(ROW, 5, -2)]
    assert parse_rows(format_rows([ROW, ROW], EVERYTHING), EVERYTHING) == [ROW, ROW]


names = st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]))
pairs = st.tuples(st.integers(-(2**63), 2**63 - 1), names)


@given(st.lists(st.tuples(pairs, st.integers(-100, 100), st.integers(-3, 3))))
def test_any_text_is_read_as_it_is_written(changes: list[tuple[tuple[int, str | None], int, int]]) -> None:
    assert parse_changes(format_changes(changes, PAIR), PAIR) == changes


def test_columns_in_any_order_a_missing_diff_and_a_nullable_column_left_out() -> None:
    table = """
        name   key  time  diff
        ann    1    5
        null   2    6     -1
        "null" 3    7     +2
    """
    assert parse_changes(table, PAIR) == [((1, "ann"), 5, 1), ((2, None), 6, -1), ((3, "null"), 7, 2)]
    assert parse_changes("key time\n4 8", PAIR) == [((4, None), 8, 1)]


def test_tables_of_markdown() -> None:
    table = """
        | key | name      | time | diff |
        | --- | :-------- | ---: | ---- |
        | 1   | two words | 5    |      |
        | 2   | b         | 6    | -1   |
    """
    assert parse_changes(table, PAIR) == [((1, "two words"), 5, 1), ((2, "b"), 6, -1)]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "the table is empty"),
        ("key name\n1 a", "ends in the columns time or time and diff, not key, name"),
        ("kay time\n1 5", "column 'kay'; did you mean 'key'"),
        ("key name time diff\n1 a", "the line '1 a' has 2 cells for the columns key, name, time, diff"),
        ("key time\none 5", "the cell one of column 'key' is no Int64"),
        ("key time\n1 soon", "'soon' is no integer, in the line '1 soon'"),
        ("name time\na 5", "has no value for it"),
    ],
)
def test_what_is_no_table(table: str, said: str) -> None:
    with pytest.raises(vn.VernierError, match=said):
        parse_changes(table, PAIR)


def _counted() -> vn.App:
    app = vn.App("counted")
    app.view("counts", app.source("pairs", Pair).group_by("name").agg(n=vn.count()))
    return app


def test_a_run_takes_tables_and_compares_with_them() -> None:
    with vn.testing.run(_counted()) as t:
        t.given("pairs", "key name time diff\n1 a 5\n2 a 6\n1 a 8 -1")
        t.finish()
        t.expect("counts", "name n time diff\na 1 5\na 1 6 -1\na 2 6\na 2 8 -1\na 1 8")
        t.expect("counts", "n name\n2 a", at=7)
        with pytest.raises(AssertionError) as failed:
            t.expect("counts", "name n time\na 1 5\na 2 7")
        assert str(failed.value).splitlines() == [
            "the changes of counts are not as expected",
            "  name  n  time  diff",
            "  a     1  5     +1",
            "- a     2  7     +1",
            "+ a     1  6     -1",
            "+ a     2  6     +1",
            "+ a     1  8     +1",
            "+ a     2  8     -1",
        ]
        with pytest.raises(AssertionError, match="the rows of counts at 7 are not as expected"):
            t.expect("counts", "name n\na 1", at=7)
        with pytest.raises(vn.ProgramError, match="no source 'pair'; did you mean 'pairs'"):
            t.given("pair", "key time\n1 5")
