"""Casts between all types, above all to and from text, against rules in plain Python."""

import datetime
import math
import re
from decimal import Context
from decimal import Decimal as Exact
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.values import row_type, values
from vernier.operators.errors import ArithmeticOverflow, DecimalOverflow, WrongType
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, col, lit

S = row_type(s=vn.String | None)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = 86_400_000_000_000


def cast(text: str | None, kind: Any) -> Any:
    return values(col("s").cast(kind), S, [(text,), (None,)])[0]


# --- numbers ----------------------------------------------------------------------------------------------------------


def integer(text: str) -> int | None:
    """Spark's rule: digits with a sign, and a point with digits behind it, which are cut off; white space around."""
    text = text.strip("".join(map(chr, range(33))) + "\x7f")
    if not re.fullmatch(r"[+-]?[0-9]*(\.[0-9]*)?", text) or text in ("", "+", "-"):
        return None
    whole = text.split(".")[0]
    value = int(whole) if re.search("[0-9]", whole) else 0
    return value if -(2**63) <= value < 2**63 else None


NUMERALS = st.from_regex(r"[ \t]?[+-]?[0-9]{0,21}(\.[0-9]{0,3})?[ \n]?", fullmatch=True)
EDGES = st.sampled_from(
    [str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), "0" * 30 + "7", "", " ", ".", "1e3"]
)


@given(text=NUMERALS | EDGES | st.text(max_size=4))
def test_text_to_integer(text: str) -> None:
    assert cast(text, vn.Int64) == integer(text)


FLOATING = st.from_regex(
    r"[ ]?[+-]?([0-9]{1,4}\.?[0-9]{0,20}|\.[0-9]{1,4})([eE][+-]?[0-9]{1,3})?[dDfF]?[ ]?", fullmatch=True
)


@given(text=FLOATING)
def test_text_to_double(text: str) -> None:
    assert cast(text, vn.Float64) == float(text.strip(" dDfF"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, math.inf) for text in ("inf", "+Infinity", "INF", "infinity", "1e999")),
        *((text, -math.inf) for text in ("-inf", "-INFINITY", "-1e999")),
        *((text, None) for text in ("", " ", ".", "e5", "1e", "--1", "0x10", "1_000", "in", "+nan", "1,5", "1 2", "d")),
    ],
)
def test_special_doubles(text: str, value: float | None) -> None:
    assert cast(text, vn.Float64) == value
    assert math.isnan(cast("NaN", vn.Float64))
    assert math.isnan(cast(" nan ", vn.Float64))


@given(value=st.floats())
def test_double_to_text_and_back(value: float) -> None:
    row = row_type(f=vn.Float64 | None)
    text, null = values(col("f").cast(vn.String), row, [(value,), (None,)])
    assert null is None
    if math.isnan(value):
        assert text == "NaN"
    elif math.isinf(value):
        assert text == ("Infinity" if value > 0 else "-Infinity")
    else:
        assert float(text) == value
        mantissa, _, exponent = text.lstrip("-").partition("E")
        assert re.fullmatch(r"[0-9]+\.[0-9]+", mantissa)
        if value == 0 or 1e-3 <= abs(value) < 1e7:
            assert not exponent
        else:
            assert re.fullmatch(r"-?[1-9][0-9]*", exponent)
            assert re.fullmatch(r"[1-9]\.[0-9]+", mantissa)
        # As many digits as the shortest spelling has.
        digits = repr(value).lstrip("-").partition("e")[0].replace(".", "").strip("0")
        assert mantissa.replace(".", "").strip("0") == digits
        assert values(col("f").cast(vn.String).cast(vn.Float64), row, [(value,)]) == [value]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.5, "1.23456785E7"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (-0.0, "0.0"),
        (100.0, "100.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_spelled_as_java_does(value: float, text: str) -> None:
    assert values(lit(value).cast(vn.String), S, [(None,)]) == [text]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.235", "1.24"),
        ("-1.235", "-1.24"),
        ("1.2349999999999999999999999999999999999999999", "1.23"),
        (" +12 ", "12.00"),
        (".5", "0.50"),
        ("5.", "5.00"),
        ("1e2", "100.00"),
        ("1.5E-1", "0.15"),
        ("123.994", "123.99"),
        ("0.0000001", "0.00"),
        ("00000000000000000000000000000000000000000000000001", "1.00"),
        ("999.995", None),
        ("1000", None),
        ("1e400", None),
        ("", None),
        (".", None),
        ("1.2.3", None),
        ("abc", None),
        ("1e", None),
    ],
)
def test_text_to_decimal(text: str, value: str | None) -> None:
    assert cast(text, vn.Decimal(5, 2)) == (None if value is None else Exact(value))


@given(unscaled=st.integers(-(10**38) + 1, 10**38 - 1), scale=st.integers(0, 38))
def test_decimal_to_text_and_back(unscaled: int, scale: int) -> None:
    kind = vn.Decimal(38, scale)
    value = Exact(unscaled).scaleb(-scale, Context(prec=50))
    row, rows = row_type(d=kind), [(value,)]
    assert values(col("d").cast(vn.String), row, rows) == [str(value)]  # Python and Java spell decimals alike
    assert values(col("d").cast(vn.String).cast(kind), row, rows) == [value]
    assert values(col("d").cast(vn.Float64), row, rows) == [float(value)]
    whole = int(value)
    if -(2**63) <= whole < 2**63:
        assert values(col("d").cast(vn.Int64), row, rows) == [whole]
    else:
        with pytest.raises(ArithmeticOverflow):
            values(col("d").cast(vn.Int64), row, rows)
    assert values(col("d").cast(vn.Bool), row, rows) == [unscaled != 0]


def test_numbers_to_decimals_round_or_raise() -> None:
    row = row_type(f=vn.Float64 | None, i=vn.Int64 | None, d=vn.Decimal(6, 3) | None)
    rows = [(0.125, 99, Exact("1.005")), (None, None, None)]
    assert values(col("f").cast(vn.Decimal(5, 2)), row, rows) == [Exact("0.13"), None]
    assert values(col("i").cast(vn.Decimal(4, 2)), row, rows) == [Exact("99.00"), None]
    assert values(col("d").cast(vn.Decimal(5, 2)), row, rows) == [Exact("1.01"), None]
    assert values(col("d").cast(vn.Decimal(9, 4)), row, rows) == [Exact("1.0050"), None]
    assert values((col("i") > 5).cast(vn.Decimal(1, 0)), row, rows) == [Exact(1), None]
    for expr in (
        col("i").cast(vn.Decimal(3, 2)),
        (col("f") + 9.87).cast(vn.Decimal(3, 2)),
        lit(1e300).cast(vn.Decimal(38, 0)),
    ):
        with pytest.raises(DecimalOverflow):
            values(expr, row, rows)
    with pytest.raises(DecimalOverflow, match="nan"):
        values(col("f").cast(vn.Decimal(5, 2)), row, [(math.nan, 0, None)])


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_integer_to_text_and_back(value: int) -> None:
    row = row_type(i=vn.Int64)
    assert values(col("i").cast(vn.String), row, [(value,)]) == [str(value)]
    assert values(col("i").cast(vn.String).cast(vn.Int64), row, [(value,)]) == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("true", "T", " yes ", "Y", "1", "TRUE")),
        *((text, False) for text in ("false", "f", "NO", "n", "0\n")),
        *((text, None) for text in ("", "2", "on", "tru", "01", "nein")),
    ],
)
def test_text_to_bool(text: str, value: bool | None) -> None:
    assert cast(text, vn.Bool) is value
    assert values(lit(True).cast(vn.String), S, [(None,)]) == ["true"]


# --- dates ------------------------------------------------------------------------------------------------------------


@given(day=st.dates())
def test_date_to_text_and_back(day: datetime.date) -> None:
    row = row_type(d=vn.Date)
    assert values(col("d").cast(vn.String), row, [(day,)]) == [day.isoformat()]
    assert values(col("d").cast(vn.String).cast(vn.Date), row, [(day,)]) == [day]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-02-29", (2024, 2, 29)),
        (" 2024-2-9 ", (2024, 2, 9)),
        ("2024-02", (2024, 2, 1)),
        ("2024", (2024, 1, 1)),
        ("2024-02-29T10:11", (2024, 2, 29)),
        ("2024-02-29 what you like", (2024, 2, 29)),
        ("0001-01-01", (1, 1, 1)),
        ("9999-12-31", (9999, 12, 31)),
        *(
            (text, None)
            for text in ("", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-00", "24-01-01", "2024/01/01")
        ),
        *((text, None) for text in ("10000-01-01", "0000-01-01", "2024-01-01x", "2024-", "abc", "2024-1-32")),
    ],
)
def test_text_to_date(text: str, value: tuple[int, int, int] | None) -> None:
    assert cast(text, vn.Date) == (None if value is None else datetime.date(*value))


@given(ns=st.integers(-(2**63), 2**63 - 1))
def test_timestamp_to_text_and_back(ns: int) -> None:
    row = row_type(t=vn.TimestampNs)
    seconds, fraction = divmod(ns, 10**9)
    moment = EPOCH + datetime.timedelta(seconds=seconds)
    behind = f".{fraction:09d}".rstrip("0").rstrip(".")
    text = moment.strftime("%Y-%m-%d %H:%M:%S") + behind
    assert values(col("t").cast(vn.String), row, [(ns,)]) == [text]
    if abs(ns) < 2**63 - 2 * 10**9:
        assert values(col("t").cast(vn.String).cast(vn.TimestampNs), row, [(ns,)]) == [ns]


def ns(*parts: int, nanos: int = 0) -> int:
    span = datetime.datetime(*parts, tzinfo=datetime.UTC) - EPOCH  # type: ignore[misc,arg-type]
    return (span.days * 86_400 + span.seconds) * 10**9 + nanos


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-02-29 10:11:12", ns(2024, 2, 29, 10, 11, 12)),
        ("2024-02-29T10:11:12.123456789", ns(2024, 2, 29, 10, 11, 12, nanos=123456789)),
        ("2024-02-29T10:11:12.1234567899", ns(2024, 2, 29, 10, 11, 12, nanos=123456789)),
        ("2024-02-29T10:11:12.5Z", ns(2024, 2, 29, 10, 11, 12, nanos=500_000_000)),
        ("2024-02-29T10:11:12 UTC", ns(2024, 2, 29, 10, 11, 12)),
        ("2024-02-29T10:11:12+02:30", ns(2024, 2, 29, 7, 41, 12)),
        ("2024-02-29T10:11:12-1", ns(2024, 2, 29, 11, 11, 12)),
        ("2024-02-29T10:11:12+0230", ns(2024, 2, 29, 7, 41, 12)),
        ("2024-2-9 1:2:3", ns(2024, 2, 9, 1, 2, 3)),
        ("2024-02-29 10:11", ns(2024, 2, 29, 10, 11)),
        ("2024-02-29", ns(2024, 2, 29)),
        ("2024-02", ns(2024, 2, 1)),
        (" 2024 ", ns(2024, 1, 1)),
        ("1969-12-31T23:59:59.999999999", -1),
        ("2262-04-11 23:47:15", ns(2262, 4, 11, 23, 47, 15)),
        *(
            (text, None)
            for text in (
                "",
                "2024-02-30",
                "2024-02-29 24:00:00",
                "2024-02-29 10:60",
                "2024-02-29T",
                "2024-02-29 10:11:60",
            )
        ),
        *((text, None) for text in ("2024-02-29 10", "x", "2263-01-01", "1677-01-01", "2024-01-01 1:2:3+19:00")),
    ],
)
def test_text_to_timestamp(text: str, value: int | None) -> None:
    assert cast(text, vn.TimestampNs) == value


# --- bytes and parts --------------------------------------------------------------------------------------------------


@given(text=st.text(max_size=20), some=st.binary(max_size=6))
def test_text_and_bytes(text: str, some: bytes) -> None:
    assert cast(text, vn.Binary) == text.encode()
    row = row_type(b=vn.Binary)
    assert values(col("b").cast(vn.String), row, [(text.encode(),)]) == [text]
    try:
        expected: str | None = some.decode()
    except UnicodeDecodeError:
        expected = None
    assert values(col("b").cast(vn.String), row, [(some,), (text.encode(),)]) == [expected, text]


def test_lists_and_structs_are_cast_part_by_part() -> None:
    row = row_type(l=vn.List(vn.Int64) | None, s=vn.Struct(a=vn.Int64, b=vn.String | None) | None)
    rows: list[Any] = [([1, 2], {"a": 1, "b": "2.5"}), (None, None), ([], {"a": 2, "b": "x"})]
    assert values(col("l").cast(vn.List(vn.String)), row, rows) == [["1", "2"], None, []]
    assert values(col("l").cast(vn.List(vn.Float64 | None)), row, rows) == [[1.0, 2.0], None, []]
    made = values(col("s").cast(vn.Struct(a=vn.Decimal(3, 1), b=vn.Float64 | None)), row, rows)
    assert made == [{"a": Exact("1.0"), "b": 2.5}, None, {"a": Exact("2.0"), "b": None}]
    for wrong in (vn.List(vn.Date), vn.Struct(a=vn.Int64), vn.Int64):
        with pytest.raises(WrongType, match="there is no such cast"):
            values(col("l").cast(wrong), row, rows)
    with pytest.raises(WrongType, match="there is no such cast"):  # text may be null as a number
        values(col("s").cast(vn.Struct(a=vn.Int64, b=vn.Float64)), row, rows)


@pytest.mark.parametrize("name", ["int", "bigint", "long", "string", "double", "timestamp", "Int64", "decimal(10,2)"])
def test_names_of_types_are_no_types(name: str) -> None:
    with pytest.raises(WrongType, match=r"did you mean vn\."):
        col("s").cast(name)


def test_a_cast_that_may_give_null_says_so() -> None:
    row = row_type(s=vn.String, i=vn.Int64)

    def nullable(expr: Expr) -> bool:
        return bind(expr, row).nullable

    assert nullable(col("s").cast(vn.Int64))
    assert nullable(col("s").cast(vn.Date))
    assert not nullable(col("s").cast(vn.Binary))
    assert not nullable(col("i").cast(vn.String))
    assert not nullable(vn.coalesce(col("s").cast(vn.Int64), 0))
