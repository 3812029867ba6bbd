"""Decimals, and functions of numbers, against Python's own decimals and integers."""

import decimal
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.values import FEW, row_type, values
from vernier.operators.errors import ArithmeticOverflow, DecimalOverflow, WrongType
from vernier.operators.language.expr.compute.decimals import adjusted, result_type
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, col, lit
from vernier.operators.language.types.decimals import Decimal

D = decimal.Decimal
EXACT = decimal.Context(prec=700, rounding=decimal.ROUND_HALF_UP)


def numbers(kind: Decimal) -> st.SearchStrategy[D]:
    """Unscaled integers of all sizes, extremes among them."""
    top = 10**kind.precision - 1
    some = st.integers(-top, top) | st.integers(-min(top, 20), min(top, 20)) | st.sampled_from([top, -top, 0, top // 2])
    return some.map(lambda n: D(n).scaleb(-kind.scale, EXACT))


KINDS = [Decimal(1, 0), Decimal(5, 2), Decimal(18, 9), Decimal(19, 0), Decimal(38, 0), Decimal(38, 10), Decimal(38, 38)]


def quotient(a: D, b: D, digits: int) -> D:
    """a / b, rounded half away from zero to a number of digits behind the point."""
    over, under = EXACT.divide(a.scaleb(100, EXACT), D(1)), b.scaleb(100, EXACT)
    (p, q), scale = (int(over), int(under)), 10**digits
    positive = (2 * abs(p) * scale + abs(q)) // (2 * abs(q))
    return D(-positive if (p < 0) != (q < 0) else positive).scaleb(-digits, EXACT)


def rounded(value: D, digits: int) -> D:
    return value.quantize(D(1).scaleb(-digits), context=EXACT)


def remainder(a: D, b: D) -> D:
    return EXACT.subtract(a, EXACT.multiply(D(int(quotient_down(a, b))), b))


def quotient_down(a: D, b: D) -> int:
    p, q = int(a.scaleb(40, EXACT)), int(b.scaleb(40, EXACT))
    return -(abs(p) // abs(q)) if (p < 0) != (q < 0) else abs(p) // abs(q)


RULES: dict[str, Callable[[D, D, int], D]] = {
    "+": lambda a, b, scale: rounded(EXACT.add(a, b), scale),
    "-": lambda a, b, scale: rounded(EXACT.subtract(a, b), scale),
    "*": lambda a, b, scale: rounded(EXACT.multiply(a, b), scale),
    "/": quotient,
    "%": lambda a, b, scale: rounded(remainder(a, b), scale),
}
A, B = col("a"), col("b")


@pytest.mark.parametrize("op", RULES)
@given(data=st.data(), left=st.sampled_from(KINDS), right=st.sampled_from(KINDS))
def test_decimals_are_exact_or_raise(op: str, data: st.DataObject, left: Decimal, right: Decimal) -> None:
    row = row_type(a=left, b=right | None)
    a, b = data.draw(numbers(left)), data.draw(st.none() | numbers(right))
    expr = {"+": A + B, "-": A - B, "*": A * B, "/": A / B, "%": A % B}[op]
    target = bind(expr, row).type
    assert isinstance(target, Decimal)
    rows = [(D(0), None), (a, b)]
    if b is None or (b == 0 and op in "/%"):
        assert values(expr, row, rows) == [None, None]
        return
    expected = RULES[op](a, b, target.scale)
    if abs(int(expected.scaleb(target.scale, EXACT))) >= 10**target.precision:
        with pytest.raises(DecimalOverflow) as caught:
            values(expr, row, rows)
        assert str(expr) in str(caught.value)
        assert f"{a:f}" in str(caught.value) or str(a) in str(caught.value)
    else:
        assert values(expr, row, rows) == [None, expected]


@given(data=st.data(), left=st.sampled_from(KINDS), right=st.sampled_from(KINDS))
def test_decimals_divide_whole_and_compare(data: st.DataObject, left: Decimal, right: Decimal) -> None:
    row = row_type(a=left, b=right)
    # Where no 38 digits hold both, Spark compares by fewer digits behind the point; keep to where they do.
    scale = max(left.scale, right.scale)
    pair = (data.draw(numbers(left)), data.draw(numbers(right)))
    if max(left.precision - left.scale, right.precision - right.scale) + scale <= 38:
        assert values(A < B, row, [pair]) == [pair[0] < pair[1]]
        assert values(A == B, row, [pair]) == [pair[0] == pair[1]]
        assert values(vn.greatest(A, B), row, [pair]) == [max(pair)]
    if pair[1] == 0:
        assert values(A // B, row, [pair]) == [None]
    elif abs(quotient_down(*pair)) < 2**63:
        assert values(A // B, row, [pair]) == [quotient_down(*pair)]
    else:
        with pytest.raises(ArithmeticOverflow):
            values(A // B, row, [pair])


@pytest.mark.parametrize(
    ("op", "left", "right", "result"),
    [  # from Spark's DecimalPrecision and its tests
        ("+", (10, 2), (10, 2), (11, 2)),
        ("+", (38, 18), (38, 18), (38, 17)),
        ("-", (5, 0), (3, 2), (8, 2)),
        ("*", (10, 2), (10, 2), (21, 4)),
        ("*", (38, 10), (38, 10), (38, 6)),
        ("*", (38, 37), (38, 37), (38, 35)),
        ("/", (10, 2), (10, 2), (23, 13)),
        ("/", (20, 2), (20, 3), (38, 17)),
        ("/", (38, 0), (38, 0), (38, 6)),
        ("%", (10, 2), (5, 3), (5, 3)),
    ],
)
def test_result_types_are_those_of_spark(
    op: str, left: tuple[int, int], right: tuple[int, int], result: tuple[int, int]
) -> None:
    assert result_type(op, Decimal(*left), Decimal(*right)) == Decimal(*result)


def test_integers_beside_decimals() -> None:
    row = row_type(a=vn.Decimal(10, 2), i=vn.Int64, f=vn.Float64)
    rows = [(D("1.25"), 2, 0.5)]
    assert bind(A + 1, row).type == Decimal(11, 2)
    assert bind(A * col("i"), row).type == Decimal(31, 2)
    assert values(A * col("i"), row, rows) == [D("2.50")]
    assert values(1 - A, row, rows) == [D("-0.25")]
    assert values(A * col("f"), row, rows) == [0.625]
    assert values(A == 1.25, row, rows) == [True]
    assert values(col("i") < A, row, rows) == [False]
    assert values(A.is_in(1, D("1.250")), row, rows) == [True]
    assert values(vn.coalesce(A, col("i")), row, rows) == [D("1.25")]
    assert values(vn.coalesce(A, D("0.125")), row, rows) == [D("1.250")]
    assert adjusted(50, 20) == Decimal(38, 8)
    with pytest.raises(WrongType, match="cannot be computed"):
        bind(A + "1", row)


INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-50, 50) | st.sampled_from([-(2**63), 2**63 - 1])
FLOATS = st.floats() | st.floats(-100, 100) | st.sampled_from([2.675, 0.5, -0.5, 1.5, 2.5, -0.0, 1e15 + 0.5, 2.0**52])


def fits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def check_integer(expr: Expr, row: Any, rows: list[Any], expected: int | None) -> None:
    if expected is None or not fits(expected):
        with pytest.raises(ArithmeticOverflow):
            values(expr, row, rows)
    else:
        assert values(expr, row, rows) == [expected]


@given(i=INTS, digits=st.integers(-20, 20))
def test_functions_of_integers(i: int, digits: int) -> None:
    row = row_type(i=vn.Int64)
    check_integer(col("i").abs(), row, [(i,)], abs(i))
    check_integer(col("i").floor(), row, [(i,)], i)
    check_integer(round(col("i"), digits), row, [(i,)], i if digits >= 0 else int(rounded(D(i), digits)))
    assert values(col("i").sign(), row, [(i,)]) == [float((i > 0) - (i < 0))]


@given(f=FLOATS | st.integers(-(10**6), 10**6).map(lambda n: n / 1000), digits=st.integers(-20, 20))
@example(f=2.675, digits=2)
@example(f=1e300, digits=3)
@example(f=6.728789107928805e16, digits=-2)
@example(f=0.285, digits=2)
def test_functions_of_doubles(f: float, digits: int) -> None:
    row, rows, x = row_type(f=vn.Float64), [(f,)], col("f")
    whole = math.isfinite(f)
    check_integer(x.floor(), row, rows, math.floor(f) if whole else None)
    check_integer(x.ceil(), row, rows, math.ceil(f) if whole else None)
    nearest = float(rounded(D(repr(f)), digits)) if whole else f
    assert values(round(x, digits), row, rows) == [pytest.approx(nearest, abs=0, rel=0, nan_ok=True)]
    assert values(x.abs(), row, rows) == [pytest.approx(abs(f), abs=0, rel=0, nan_ok=True)]
    assert values(x.is_nan(), row, rows) == [math.isnan(f)]
    root = math.nan if math.isnan(f) or f < 0 else math.sqrt(f)
    assert values(x.sqrt(), row, rows) == [pytest.approx(root, abs=0, rel=0, nan_ok=True)]
    assert values(x.ln(), row, rows) == [
        None if f <= 0 else pytest.approx(f if math.isnan(f) or math.isinf(f) else math.log(f), nan_ok=True)
    ]


@given(data=st.data(), kind=st.sampled_from(KINDS), digits=st.integers(-3, 12))
def test_functions_of_decimals(data: st.DataObject, kind: Decimal, digits: int) -> None:
    a = data.draw(numbers(kind))
    row, rows = row_type(a=kind), [(a,)]

    def check(expr: Expr, expected: D) -> None:
        target = bind(expr, row).type
        assert isinstance(target, Decimal)
        if abs(int(expected.scaleb(target.scale, EXACT))) >= 10**target.precision:
            with pytest.raises(DecimalOverflow):
                values(expr, row, rows)
        else:
            assert values(expr, row, rows) == [expected]

    check(A.abs(), EXACT.abs(a))
    check(-A, EXACT.minus(a))
    check(A.floor(), D(math.floor(a)))
    check(A.ceil(), D(math.ceil(a)))
    check(A.round(digits), rounded(a, min(digits, kind.scale)))


@FEW
@given(x=FLOATS, y=FLOATS)
def test_powers_are_those_of_java(x: float, y: float) -> None:
    if abs(x) == 1 and not math.isfinite(y):
        expected = math.nan
    else:
        try:
            expected = math.pow(x, y)
        except OverflowError:
            expected = math.inf if x > 0 or y % 2 == 0 else -math.inf
        except ValueError:
            zero = x == 0 and y < 0
            odd = zero and y % 2 == 1 and math.copysign(1, x) < 0
            expected = (-math.inf if odd else math.inf) if zero else math.nan
    row = row_type(x=vn.Float64, y=vn.Float64)
    # -0.0 does not exist in a column.
    x = x + 0.0 if x == 0 else x
    if x == 0 and y < 0:
        expected = math.inf
    if expected == 0:
        expected = 0.0
    assert values(col("x") ** col("y"), row, [(x, y)]) == [pytest.approx(expected, nan_ok=True)]


def test_nulls_and_constants() -> None:
    row = row_type(i=vn.Int64 | None, f=vn.Float64 | None, d=vn.Decimal(5, 2) | None)
    rows = [(None, None, None), (3, 2.5, D("-1.5"))]
    assert values(col("i").abs(), row, rows) == [None, 3]
    assert values(col("f").round(), row, rows) == [None, 3.0]
    assert values(col("f").is_nan(), row, rows) == [False, False]
    assert values(2 ** col("i"), row, rows) == [None, 8.0]
    assert values(abs(col("i") - 5), row, rows) == [None, 2]
    assert values(col("d").round(), row, rows) == [None, D("-2")]
    assert values(lit(D("1E+3")) + col("d"), row, rows) == [None, D("998.50")]
    assert values(vn.least(col("i"), col("f")), row, rows) == [None, 2.5]
    assert values(vn.greatest(col("f"), math.nan), row, rows) == [pytest.approx(math.nan, nan_ok=True)] * 2
    for expr in (col("f").round(21), col("f").round(True), col("d").round(col("i"))):  # type: ignore[arg-type]
        with pytest.raises(WrongType):
            values(expr, row, rows)


@given(a=st.lists(st.tuples(st.none() | INTS, st.none() | st.text(max_size=20)), max_size=5))
def test_hashes_tell_rows_apart_and_are_for_ever(a: list[tuple[int | None, str | None]]) -> None:
    row = row_type(i=vn.Int64 | None, s=vn.String | None)
    hashed = values(vn.hash("i", "s"), row, a)
    assert len(set(hashed)) == len(set(a))
    assert values(vn.hash("i", "s"), row, [(1, "a"), (None, None)]) == [-4629314497803638595, 701279491252118104]
    same = row_type(i=vn.Int64, s=vn.String)
    assert values(vn.hash("i", "s"), same, [(1, "a")]) == [-4629314497803638595]


def rank(value: float) -> tuple[bool, float]:
    """Spark's order of doubles: NaN is the greatest, and equal to itself."""
    return (True, 0.0) if math.isnan(value) else (False, value)


MAYBE = st.none() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.0]) | st.floats()


@given(rows=st.lists(st.tuples(MAYBE, MAYBE), max_size=6))
def test_choices_among_doubles_and_nulls(rows: list[tuple[float | None, float | None]]) -> None:
    row = row_type(x=vn.Float64 | None, y=vn.Float64 | None)

    def check(expr: Expr, rule: Callable[[list[float]], float | bool | None]) -> None:
        found = values(expr, row, rows)
        expected = [rule([one for one in some if one is not None]) for some in rows]
        assert [None if one is None else rank(one) for one in found] == [
            None if one is None else rank(one + 0.0) for one in expected
        ]

    check(vn.greatest("x", "y"), lambda some: max(some, key=rank, default=None))
    check(vn.least("x", "y"), lambda some: min(some, key=rank, default=None))
    check(vn.coalesce("x", "y"), lambda some: some[0] if some else None)
    equal = [None if None in some else rank(some[0] + 0.0) == rank(some[1] + 0.0) for some in rows]  # type: ignore[operator]
    assert values(col("x") == col("y"), row, rows) == equal
    assert values(col("x").eq_null_safe(col("y")), row, rows) == [
        some == (None, None) if found is None else found for some, found in zip(rows, equal, strict=True)
    ]
    wanted = [
        None if x is None else True if math.isnan(x) or x == 0 else None if y is None else x == y for x, y in rows
    ]
    assert values(col("x").is_in(0, math.nan, col("y")), row, rows) == wanted
