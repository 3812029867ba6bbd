"""Functions of the program in expressions: what they are given, what they may return, what is said when they fail."""

import datetime
import random
import re
from collections.abc import Callable
from decimal import Decimal as Exact
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.named import named
from tests.dsl.values import row_type, values
from vernier.operators.errors import WrongType
from vernier.operators.failures import UserCodeFailed
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import col, lit
from vernier.operators.language.expr.functions import NotDeterministic

ROW = row_type(a=vn.Int64, b=vn.Int64 | None, s=vn.String | None, f=vn.Float64)
INTS = st.integers(-1000, 1000)
ROWS = st.lists(st.tuples(INTS, st.none() | INTS, st.none() | st.text(max_size=20), st.floats(-9, 9)), max_size=6)


@vn.udf(returns=vn.Int64)
def gcd(a: Any, b: Any) -> Any:
    return np.gcd(a, b)


@vn.udf(returns=vn.String)
def shout(s: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(s, pa.scalar("!", s.type), pa.scalar("", s.type))


@given(rows=ROWS)
def test_whole_columns_are_computed_and_nulls_left_out(rows: list[Any]) -> None:
    expected = [None if b is None else int(np.gcd(a, b)) for a, b, _, _ in rows]
    assert values(gcd(col("a"), col("b")), ROW, rows) == expected
    assert values(gcd(col("b") + 1, 6), ROW, rows) == [
        None if b is None else int(np.gcd(b + 1, 6)) for _, b, _, _ in rows
    ]
    assert values(shout(col("s")), ROW, rows) == [None if s is None else s + "!" for _, _, s, _ in rows]
    filled = vn.coalesce(shout(col("s").upper()), lit("none"))
    assert values(filled, ROW, rows) == ["none" if s is None else s.upper() + "!" for _, _, s, _ in rows]
    assert bind(gcd(col("a"), 2), ROW).nullable is False
    assert bind(gcd(col("a"), col("b")), ROW).nullable is True


def test_each_type_comes_as_it_is_said() -> None:
    row = row_type(
        i=vn.Int64,
        f=vn.Float64,
        p=vn.Bool,
        d=vn.Date,
        t=vn.TimestampNs,
        s=vn.String,
        e=vn.Decimal(5, 2),
        l=vn.List(vn.Int64),
    )
    seen: list[Any] = []

    def look(*columns: Any) -> Any:
        seen.extend(columns)
        return columns[3]

    look_at = vn.udf(look, returns=vn.Date, deterministic=True)
    day = datetime.date(2024, 2, 29)
    rows = [(1, 0.5, True, day, 10**18, "a" * 20, Exact("1.25"), [1, 2])]
    assert values(look_at(*map(col, row.names)), row, rows) == [day]
    kinds = [str(getattr(column, "dtype", None) or column.type) for column in seen]
    arrow = ["large_string", "decimal128(5, 2)", "large_list<item: int64 not null>"]
    assert kinds == ["int64", "float64", "bool", "datetime64[D]", "datetime64[ns]", *arrow]


@pytest.mark.parametrize(
    ("returns", "result", "value"),
    [
        (vn.Int64, lambda a: a.tolist(), 7),
        (vn.Int64, lambda a: a.astype(np.int8), 7),
        (vn.Float64, lambda a: a, 7.0),
        (vn.Float64 | None, lambda a: pa.nulls(len(a)), None),
        (vn.String, lambda a: [str(x) for x in a], "7"),
        (vn.String, lambda a: np.array(["x"] * len(a)), "x"),
        (vn.Decimal(5, 2), lambda a: pa.array([Exact("1.5")] * len(a)), Exact("1.50")),
        (vn.List(vn.Int64), lambda a: [[1, 2]] * len(a), [1, 2]),
        (vn.List(vn.Int64 | None), lambda a: [[], [1, None], [1]][: len(a)], []),
        (vn.Struct(x=vn.Int64), lambda a: [{"x": 1}] * len(a), {"x": 1}),
        (vn.TimestampNs, lambda a: a.astype("datetime64[ns]"), 7),
        (vn.Bool, lambda a: a > 3, True),
        (vn.Int64, lambda a: pa.chunked_array([a]), 7),
    ],
    ids=named,
)
def test_what_can_be_returned(returns: Any, result: Callable[[Any], Any], value: Any) -> None:
    assert values(vn.udf(result, returns=returns)(col("a")), ROW, [(7, None, None, 0.0)]) == [value]


NO_TEXT = (pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))


@pytest.mark.parametrize(
    ("returns", "result", "said"),
    [
        (vn.Int64, lambda a: 1 // (a - a), None),
        (vn.Int64, lambda a: a[1:], "it returned 0 values for 1 rows"),
        (vn.Int64, lambda a: "5", "not an array of 1 values"),
        (vn.Int64, lambda a: np.array([[5]]), "not an array of 1 values"),
        (vn.Int64, lambda a: 5, "not an array of 1 values"),
        (vn.Int64, lambda a: None, "not an array of 1 values"),
        (vn.Int64, lambda a: ["x"], "are not Int64"),
        (vn.Int64, lambda a: a + 0.5, "are not Int64"),
        (vn.Int64, lambda a: [None], "say returns=Int64 | None"),
        (vn.String, lambda a: [b"\xff"], "are not String"),
        (vn.String, lambda a: pa.Array.from_buffers(pa.string(), 1, [None, *NO_TEXT]), "not String"),
        (vn.Date, lambda a: np.array(["10000-01-01"], "datetime64[D]"), "outside the years 1 to 9999"),
        (vn.Decimal(2, 0), lambda a: pa.array([Exact("1.5")]), "not Decimal(2, 0)"),
        (vn.Int64, lambda a: a.nope, "AttributeError"),
        (vn.List(vn.Int64), lambda a: [["a"]], "are not Int64"),
    ],
    ids=named,
)
def test_what_fails_is_named_with_its_input(returns: Any, result: Callable[[Any], Any], said: str | None) -> None:
    expr = vn.udf(result, returns=returns)(col("a"))
    with np.errstate(all="raise"), pytest.raises(UserCodeFailed) as caught:
        values(expr, ROW, [(7, None, None, 0.0)])
    error = caught.value
    assert said is None or said in error.cause
    assert error.operator == str(expr)
    assert error.function == "<lambda>"
    assert error.where.startswith(f"{__file__}:")
    assert error.sample == "(7,)"


def test_an_error_of_the_function_is_its_cause() -> None:
    def fail(a: Any, s: Any) -> Any:
        raise LookupError("no such thing")

    with pytest.raises(UserCodeFailed, match=r"LookupError: no such thing.*\(1, 'x'\), \(2, 'y'\)") as caught:
        values(
            vn.udf(fail, returns=vn.Int64)(col("a"), col("s")), ROW, [(1, 1, "x", 0), (3, 1, None, 0), (2, 1, "y", 0)]
        )
    assert isinstance(caught.value.__cause__, LookupError)


def test_it_is_not_called_without_rows_nor_where_it_is_not_reached() -> None:
    calls: list[int] = []

    def count(a: Any) -> Any:
        calls.append(len(a))
        return a

    counted = vn.udf(count, returns=vn.Int64)
    assert values(counted(col("a")), ROW, []) == []
    assert values(counted(col("b")), ROW, [(1, None, None, 0)]) == [None]
    assert calls == []
    expr = vn.when(col("a") > 1, counted(col("a"))).otherwise(0)
    assert values(expr, ROW, [(1, 0, "", 0), (2, 0, "", 0), (3, 0, "", 0)]) == [0, 2, 3]
    assert calls == [2]


def test_a_function_that_sees_nulls() -> None:
    known = vn.udf(lambda b: b.is_valid(), returns=vn.Bool, nulls=True)
    assert values(known(col("b")), ROW, [(1, None, None, 0), (1, 2, None, 0)]) == [False, True]
    assert not bind(known(col("b")), ROW).nullable


def test_it_cannot_change_what_it_is_given() -> None:
    def spoil(a: Any) -> Any:
        a += 1
        return a

    spoiled = vn.udf(spoil, returns=vn.Int64)
    assert values(vn.array(spoiled(col("a")), col("a"), spoiled(col("a"))), ROW, [(1, 0, "", 0)]) == [[2, 1, 2]]


def test_a_changed_function_is_a_changed_expression() -> None:
    one, same, two = (
        vn.udf(f, returns=vn.Int64)(col("a")) for f in (lambda x: x + 1, lambda x: x + 1, lambda x: x + 2)
    )
    other = vn.udf(lambda x: x + 1, returns=vn.Float64)(col("a"))
    assert one.key() == same.key()
    assert len({repr(expr.key()) for expr in (one, two, other)}) == 3


def test_what_cannot_be_used() -> None:
    with pytest.raises(NotDeterministic, match="before the row is sent"):
        vn.udf(lambda x: x + random.random(), returns=vn.Float64)
    with pytest.raises(NotDeterministic, match="declared deterministic=False"):
        vn.udf(lambda x: x, returns=vn.Float64, deterministic=False)
    with pytest.raises(WrongType, match="takes a function"):
        vn.udf("x", returns=vn.Int64)  # type: ignore[call-overload]
    with pytest.raises(WrongType, match=re.escape("did you mean vn.Int64?")):
        vn.udf(len, returns=int)
    with pytest.raises(WrongType, match="needs columns"):
        gcd()
    with pytest.raises(WrongType, match="null of no type"):
        bind(gcd(None, 1), ROW)


class Row(vn.Schema):
    a: vn.Int64
    s: vn.String | None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_with_functions_and_texts(workers: int) -> None:
    app = vn.App("texts")
    rows = app.source("rows", Row)
    long = "a name that is longer than fifteen bytes, "
    made = rows.filter(col("s").is_not_null()).select(
        name=long + col("s").upper(),
        six=gcd(col("a"), 6),
        tags=vn.array("s", lit("x")),
        pair=vn.struct("a", t=col("s")),
    )
    app.view("made", made, key=["name"])
    app.view("counts", made.group_by("name").agg(n=vn.count()), key=["name"])
    with vn.testing.run(app, workers=workers) as t:
        t.update("rows", [((4, "b"), 1, 1), ((9, "b"), 1, 1), ((5, None), 1, 1), ((4, "b"), 3, -1)])
        t.advance(10)
        b = (long + "B", 2, ["b", "x"], {"a": 4, "t": "b"})
        assert sorted(row[:2] for row in t.rows("made", at=1)) == [b[:2], (b[0], 3)]
        assert t.rows("counts", at=1) == [(long + "B", 2)]
        assert t.rows("counts", at=3) == [(long + "B", 1)]


def build(function: Callable[[Any], Any]) -> vn.App:
    app = vn.App("changing")
    rows = app.source("rows", Row)
    app.view("made", rows.select("a", x=vn.udf(function, returns=vn.Int64)(col("a"))), key=["a"])
    return app


def test_a_changed_function_is_a_changed_program() -> None:
    assert build(lambda x: x + 1).fingerprint == build(lambda x: x + 1).fingerprint
    assert build(lambda x: x + 1).fingerprint != build(lambda x: x + 2).fingerprint


def test_a_run_stops_where_a_function_fails() -> None:
    def fail(a: Any) -> Any:
        if (a < 0).any():
            raise ValueError("below zero")
        return a

    with vn.testing.run(build(fail)) as t:
        t.insert("rows", (1, "x"), at=1)
        t.advance(2)
        t.insert("rows", (-5, "x"), at=3)
        with pytest.raises(UserCodeFailed, match=r"the function fail failed: ValueError: below zero; .* \(-5,\)"):
            t.advance(4)
        assert t.rows("made", at=1) == [(1, 1)]
