"""Expressions on words against a plain evaluation, row by row, of what Spark SQL says."""

import datetime
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vernier.operators.errors import ArithmeticOverflow, BadValue, UnknownColumn, WrongType
from vernier.operators.language.expr.evaluate import bind, evaluate, predicate, project
from vernier.operators.language.expr.expression import Binary, Column, Expr, Nullability, Unary, col, lit, when
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs
from vernier.operators.language.types.schema import RowType

ROW = RowType(
    [
        ("a", Int64(), True),
        ("b", Int64(), False),
        ("f", Float64(), True),
        ("p", Bool(), True),
        ("d", Date(), False),
        ("t", TimestampNs(), True),
    ]
)
EDGES = [-(2**63), -(2**63) + 1, -(2**32), -7, -1, 0, 1, 7, 2**31, 2**32, 2**62, 2**63 - 1]
INTEGERS = st.sampled_from(EDGES) | st.integers(-10, 10)
SMALL = st.integers(-5, 5)


def rows_of(*rows: tuple[object, ...]) -> Any:
    return ROW.encode_rows(rows)


def row(a: object = 0, b: object = 0, f: object = 0.0, p: object = True, d: object = None, t: object = 0) -> Any:
    day = datetime.date(2000, 1, 1) if d is None else d
    return (a, b, f, p, day, t)


def values(expr: Expr, *rows: tuple[object, ...]) -> list[object]:
    """Evaluate on rows and decode, as a view would show it."""
    bound = bind(expr, ROW)
    result = RowType([("x", bound.type, bound.nullable)])
    return [value for (value,) in result.decode_rows(bound.words(rows_of(*rows)))]


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


EXACT: dict[str, Callable[[int, int], int | None]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": lambda a, b: truncated(a, b) if b else None,
    "%": lambda a, b: a - truncated(a, b) * b if b else None,
}


@pytest.mark.parametrize("op", EXACT)
@given(a=st.none() | INTEGERS, b=INTEGERS)
def test_integer_arithmetic_is_exact_or_raises(op: str, a: int | None, b: int) -> None:
    expr = Binary(op, col("a"), col("b"))
    expected = None if a is None else EXACT[op](a, b)
    if expected is not None and not -(2**63) <= expected < 2**63:
        with pytest.raises(ArithmeticOverflow) as caught:
            values(expr, row(a=1, b=1), row(a=a, b=b))
        assert f"{a} {op} {b}" in str(caught.value)
        assert str(expr) in str(caught.value)
    else:
        assert values(expr, row(a=1, b=1), row(a=a, b=b))[1] == expected


@given(a=INTEGERS)
def test_negation_is_exact_or_raises(a: int) -> None:
    if a == -(2**63):
        with pytest.raises(ArithmeticOverflow):
            values(-col("a"), row(a=a))
    else:
        assert values(-col("a"), row(a=a)) == [-a]


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("op", COMPARE)
@given(left=st.none() | st.floats(), right=st.none() | st.floats())
def test_floats_compare_as_in_spark(op: str, left: float | None, right: float | None) -> None:
    row_type = RowType([("x", Float64(), True), ("y", Float64(), True)])
    words = evaluate(Binary(op, col("x"), col("y")), row_type, row_type.encode_rows([(left, right)]))
    if left is None or right is None:
        assert words.tolist() == [[0, 0]]
    else:
        ordered = [(math.isnan(x), 0.0 if math.isnan(x) else x) for x in (left, right)]
        assert words.tolist() == [[1, COMPARE[op](*ordered)]]


LOGIC = [True, False, None]


@pytest.mark.parametrize("p", LOGIC)
@pytest.mark.parametrize("q", LOGIC)
def test_logic_is_three_valued(p: bool | None, q: bool | None) -> None:
    row_type = RowType([("p", Bool(), True), ("q", Bool(), True)])
    words = row_type.encode_rows([(p, q)])

    def value(expr: Expr) -> bool | None:
        ((valid, data),) = evaluate(expr, row_type, words).tolist()
        return bool(data) if valid else None

    low, high = sorted([p, q], key=[False, None, True].index)
    assert value(col("p") & col("q")) is low
    assert value(col("p") | col("q")) is high
    assert value(~col("p")) is (None if p is None else not p)
    assert predicate(col("p") & col("q"), row_type)(words).tolist() == [low is True]
    assert evaluate(col("p").is_null(), row_type, words).tolist() == [[p is None]]
    assert evaluate(col("p").is_not_null(), row_type, words).tolist() == [[p is not None]]


def test_division_by_zero_is_null_and_a_constant_divisor_is_not() -> None:
    assert values(col("b") / col("b"), row(b=0), row(b=4)) == [None, 1.0]
    assert values(col("f") % lit(2.0), row(f=-3.5)) == [-1.5]
    assert values(lit(1) / 0, row()) == [None]
    assert not bind(col("b") // 10, ROW).nullable
    assert bind(col("b") // col("b"), ROW).nullable
    assert values(col("b") / 4, row(b=-10)) == [-2.5]


def test_integers_widen_to_floats() -> None:
    assert values(col("b") + 0.5, row(b=2)) == [2.5]
    assert values(col("b") < col("f"), row(b=2, f=2.5), row(b=2, f=None)) == [True, None]
    assert values(when(col("b") > 1, col("b")).otherwise(col("f")), row(b=2), row(b=1, f=0.5)) == [2.0, 0.5]


def test_branches_are_computed_only_for_their_rows() -> None:
    big = 2**62
    doubled = when(col("b") < 1000, col("b") * 4).otherwise(col("b"))
    assert values(doubled, row(b=10), row(b=big)) == [40, big]
    assert values((col("b") < 1000) & (col("b") * 4 > 10), row(b=10), row(b=big)) == [True, False]
    assert values((col("b") > 1000) | (col("b") * 4 > 10), row(b=1), row(b=big)) == [False, True]
    chosen = when(col("p"), 1).when(col("b") * 4 > 8, 2)
    assert values(chosen, row(p=True, b=big), row(p=None, b=3), row(p=False, b=1)) == [1, 2, None]
    with pytest.raises(ArithmeticOverflow):
        values(when(col("b") < 1000, col("b")).otherwise(col("b") * 4), row(b=10), row(b=big))


def test_nulls_hold_no_hidden_values() -> None:
    words = evaluate(col("a") + col("b"), ROW, rows_of(row(a=None, b=5), row(a=None, b=2**63 - 1)))
    assert words.tolist() == [[0, 0], [0, 0]]
    words = evaluate(when(col("p"), col("b")), ROW, rows_of(row(p=None, b=5), row(p=False, b=6)))
    assert words.tolist() == [[0, 0], [0, 0]]


DAY = 86_400_000_000_000


def test_dates_and_times_count_in_days_and_nanoseconds() -> None:
    day = datetime.date(2024, 2, 28)
    assert values(col("d") + 2, row(d=day)) == [datetime.date(2024, 3, 1)]
    assert values(col("d") - lit(day), row(d=datetime.date(2025, 2, 28))) == [366]
    assert values(col("t") - 1, row(t=5), row(t=None)) == [4, None]
    assert values(col("t").cast(Date), row(t=-1), row(t=DAY)) == [
        datetime.date(1969, 12, 31),
        datetime.date(1970, 1, 2),
    ]
    assert values(col("d").cast(TimestampNs), row(d=datetime.date(1970, 1, 3))) == [2 * DAY]
    instant = datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    assert values(col("t") == lit(instant), row(t=0)) == [True]
    with pytest.raises(ArithmeticOverflow):
        values(col("d") + 10_000_000, row())
    with pytest.raises(ArithmeticOverflow):
        values(col("d").cast(TimestampNs), row(d=datetime.date(9999, 1, 1)))


def test_casts_truncate_and_raise() -> None:
    assert values(col("f").cast(Int64), row(f=-1.9), row(f=None), row(f=-(2.0**63))) == [-1, None, -(2**63)]
    for bad in (math.nan, math.inf, 2.0**63):
        with pytest.raises(ArithmeticOverflow):
            values(col("f").cast(Int64), row(f=bad))
    assert values(col("p").cast(Int64), row(p=True), row(p=None)) == [1, None]
    assert values(col("b").cast(Bool), row(b=-3), row(b=0)) == [True, False]
    assert values(lit(None).cast(Int64), row()) == [None]
    assert values(col("b").cast(Int64 | None), row(b=3)) == [3]
    assert bind(col("b").cast(Int64 | None), ROW).nullable
    with pytest.raises(WrongType, match="there is no such cast"):
        bind(col("d").cast(Float64), ROW)


def test_membership_and_ranges() -> None:
    assert values(col("a").is_in(1, 2), row(a=2), row(a=3), row(a=None)) == [True, False, None]
    assert values(col("b").between(1, 3), row(b=1), row(b=3), row(b=4)) == [True, True, False]
    assert values(col("a") == lit(None), row(a=2)) == [None]


def test_columns_alone_are_index_takes() -> None:
    words = rows_of(row(a=1, b=2), row(a=None, b=3))
    assert col("b").alias("x").column == "b"
    assert project([col("b"), col("a")], ROW)(words).tolist() == [[2, 1, 1], [3, 0, 0]]
    assert project([col("b") + 1, col("a")], ROW)(words).tolist() == [[3, 1, 1], [4, 0, 0]]
    everything = [col(name) for name in ROW.names]
    assert project(everything, ROW)(words) is words


def test_empty_input_gives_empty_output() -> None:
    empty = np.empty((0, ROW.width), np.int64)
    for expr in (col("a") * col("b"), col("f") / 2, when(col("p"), 1), (col("b") > 1) & (col("b") * 2 > 1)):
        assert evaluate(expr, ROW, empty).shape[0] == 0


def test_a_null_behind_a_filter_is_an_error() -> None:
    kept = Nullability(col("a"), False)
    assert evaluate(kept, ROW, rows_of(row(a=4))).tolist() == [[4]]
    with pytest.raises(BadValue, match="null"):
        evaluate(kept, ROW, rows_of(row(a=None)))


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        (col("a") + col("d") * 2, r'col\("d"\) \* 2 cannot be computed'),
        (col("d") + col("d"), "cannot be computed"),
        (col("f") // 2, "cast the operands or use /"),
        (col("d") == 1, "values of different types"),
        (col("a") & col("p"), "put comparisons in parentheses"),
        (-col("p"), "cannot be computed"),
        (when(col("p"), col("d")).otherwise(1), "values of different types"),
        (when(col("p"), None), "null of no type"),
    ],
)
def test_types_that_do_not_fit_are_refused(expr: Expr, problem: str) -> None:
    with pytest.raises(WrongType, match=problem):
        bind(expr, ROW)


def test_unknown_columns_get_the_nearest() -> None:
    with pytest.raises(UnknownColumn, match=r"no column 'aa'.*did you mean 'a'"):
        bind(col("aa") + 1, ROW)
    with pytest.raises(WrongType, match="a condition must be Bool"):
        predicate(col("a") + 1, ROW)


def test_text_is_what_a_program_would_write() -> None:
    instant = datetime.datetime(1969, 1, 2, 3, tzinfo=datetime.UTC)
    for expr, text in [
        ((col("a") + 1) * 2, '(col("a") + 1) * 2'),
        (col("a") - (col("b") - 1), 'col("a") - (col("b") - 1)'),
        ((col("a") > 1) & ~(col("b") == 2), '(col("a") > 1) & ~(col("b") == 2)'),
        (col("a").is_not_null(), 'col("a").is_not_null()'),
        (when(col("p"), 1).otherwise(col("b")), 'when(col("p"), 1).otherwise(col("b"))'),
        ((-col("a")).cast(Float64), '(-col("a")).cast(Float64)'),
        (lit(3), "lit(3)"),
        (-(col("a") * 2), '-(col("a") * 2)'),
        (col("d") - lit(datetime.date(2000, 1, 2)), 'col("d") - lit(datetime.date(2000, 1, 2))'),
        (lit(instant), f"lit({instant!r})"),
    ]:
        assert str(expr) == text
        names = {"col": col, "lit": lit, "when": when, "Float64": Float64, "datetime": datetime}
        assert eval(text, names).key() == expr.key()


def test_keys_tell_structure_apart() -> None:
    keys = [
        lit(1).key(),
        lit(True).key(),
        lit(1.0).key(),
        lit(0.0).key(),
        lit(False).key(),
        lit(0).key(),
        lit(None).key(),
    ]
    assert len({repr(key) for key in keys}) == len(keys)
    assert (col("a") + 1).key() == (col("a") + 1).key()
    assert (col("a") + col("b")).key() != (col("b") + col("a")).key()
    assert col("a").alias("x").key() == col("a").key()
    assert lit(-0.0).key() == lit(0.0).key()


# --- random trees -----------------------------------------------------------------------------------------------------

NULLS = st.none() | SMALL


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([Column("a"), Column("b"), lit(2), lit(0), lit(-3)]))
    kind = draw(st.sampled_from(["binary", "negate", "case"]))
    if kind == "negate":
        return Unary("-", draw(trees(depth - 1)))
    if kind == "case":
        test = Binary(draw(st.sampled_from(sorted(COMPARE))), draw(trees(depth - 1)), draw(trees(depth - 1)))
        case = when(test, draw(trees(depth - 1)))
        return case.otherwise(draw(trees(depth - 1))) if draw(st.booleans()) else case
    return Binary(draw(st.sampled_from(sorted(EXACT))), draw(trees(depth - 1)), draw(trees(depth - 1)))


def plain(expr: Any, a: int | None, b: int) -> Any:
    """What one row gives, by Python's own integers."""
    if isinstance(expr, Column):
        return a if expr.name == "a" else b
    if isinstance(expr, Unary):
        value = plain(expr.part, a, b)
        return None if value is None else -value
    if isinstance(expr, Binary):
        left, right = plain(expr.left, a, b), plain(expr.right, a, b)
        if left is None or right is None:
            return None
        return COMPARE[expr.op](left, right) if expr.op in COMPARE else EXACT[expr.op](left, right)
    if hasattr(expr, "branches"):
        for condition, value in expr.branches:
            if plain(condition, a, b):
                return plain(value, a, b)
        return None if expr.default is None else plain(expr.default, a, b)
    return expr.value


@given(tree=trees(), data=st.lists(st.tuples(NULLS, SMALL), min_size=1, max_size=8))
def test_random_expressions_equal_the_plain_evaluation(tree: Expr, data: list[tuple[int | None, int]]) -> None:
    found = values(tree, *(row(a=a, b=b) for a, b in data))
    assert found == [plain(tree, a, b) for a, b in data]
