"""Parts of dates and instants, lists and structs, against plain Python."""

import datetime
import decimal
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.values import row_type, values
from vernier.operators.errors import ArithmeticOverflow, WrongType
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, col, lit

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TIMES = row_type(d=vn.Date | None, t=vn.TimestampNs | None)
INSTANTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, -(10**9), 86_400 * 10**9 - 1, -(2**63)])


def moment(ns: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=ns // 10**9)


DAYS: list[tuple[Callable[[Expr], Expr], Callable[[datetime.date], int]]] = [
    (lambda x: x.year(), lambda d: d.year),
    (lambda x: x.quarter(), lambda d: (d.month + 2) // 3),
    (lambda x: x.month(), lambda d: d.month),
    (lambda x: x.week(), lambda d: d.isocalendar().week),
    (lambda x: x.day(), lambda d: d.day),
    (lambda x: x.day_of_week(), lambda d: d.isoweekday() % 7 + 1),
    (lambda x: x.day_of_year(), lambda d: d.timetuple().tm_yday),
]


@given(days=st.lists(st.none() | st.dates(), max_size=5), times=st.lists(st.none() | INSTANTS, max_size=5))
def test_parts_of_dates(days: list[datetime.date | None], times: list[int | None]) -> None:
    rows = [*((day, None) for day in days), *((None, ns) for ns in times)]
    for part, rule in DAYS:
        expected = [None if day is None else rule(day) for day, _ in rows]
        assert values(part(col("d")), TIMES, rows) == expected
        expected = [None if ns is None else rule(moment(ns).date()) for _, ns in rows]
        assert values(part(col("t")), TIMES, rows) == expected


@given(ns=INSTANTS)
def test_parts_of_the_clock(ns: int) -> None:
    at, t = moment(ns), col("t")
    found = [
        values(part, TIMES, [(None, ns), (None, None)]) for part in (t.hour(), t.minute(), t.second(), t.nanosecond())
    ]
    assert found == [[at.hour, None], [at.minute, None], [at.second, None], [ns % 10**9, None]]


def begin(unit: str, at: datetime.datetime) -> datetime.datetime:
    midnight = at.replace(hour=0, minute=0, second=0)
    match unit:
        case "year":
            return midnight.replace(month=1, day=1)
        case "quarter":
            return midnight.replace(month=(at.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            return midnight.replace(day=1)
        case "week":
            return midnight - datetime.timedelta(at.weekday())
        case "day":
            return midnight
        case "hour":
            return at.replace(minute=0, second=0)
    return at.replace(second=0) if unit == "minute" else at


UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second"]


@pytest.mark.parametrize("unit", UNITS)
@given(ns=INSTANTS, day=st.dates())
def test_truncation(unit: str, ns: int, day: datetime.date) -> None:
    span = begin(unit, moment(ns)) - EPOCH
    expected = (span.days * 86_400 + span.seconds) * 10**9
    if expected < -(2**63):
        with pytest.raises(ArithmeticOverflow):
            values(col("t").date_trunc(unit), TIMES, [(None, ns)])
    else:
        assert values(col("t").date_trunc(unit), TIMES, [(None, ns), (None, None)]) == [expected, None]
    assert values(col("t").date_trunc("millisecond"), TIMES, [(None, max(ns, 0))]) == [max(ns, 0) // 10**6 * 10**6]
    assert values(col("t").date_trunc("microsecond"), TIMES, [(None, max(ns, 0))]) == [max(ns, 0) // 1000 * 1000]
    if unit in UNITS[:5] and day > datetime.date(1, 1, 7):
        noon = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
        assert values(col("d").date_trunc(unit), TIMES, [(day, None)]) == [begin(unit, noon).date()]


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (col("d").hour(), "needs TimestampNs"),
        (col("d").date_trunc("hour"), "no unit 'hour'"),
        (col("t").date_trunc("minutes"), "did you mean 'minute'?"),
        (lit(1).year(), "needs Date or TimestampNs"),
    ],
    ids=str,
)
def test_wrong_units_are_named(expr: Expr, said: str) -> None:
    with pytest.raises(WrongType, match=re.escape(said)):
        bind(expr, TIMES)


# --- lists and structs ------------------------------------------------------------------------------------------------

PARTS = row_type(
    l=vn.List(vn.Int64 | None) | None,
    m=vn.List(vn.Int64),
    t=vn.List(vn.String) | None,
    s=vn.Struct(a=vn.Int64, b=vn.Struct(c=vn.String | None)) | None,
    i=vn.Int64 | None,
)
INTS = st.integers(-3, 3)
LONG = "a text that is longer than fifteen bytes "
TEXTS = st.sampled_from(["", "a", LONG + "1", LONG + "2"])
INNER = st.fixed_dictionaries({"c": st.none() | TEXTS})
ROWS = st.lists(
    st.tuples(
        st.none() | st.lists(st.none() | INTS, max_size=4),
        st.lists(INTS, max_size=4),
        st.none() | st.lists(TEXTS, max_size=3),
        st.none() | st.fixed_dictionaries({"a": INTS, "b": INNER}),
        st.none() | INTS,
    ),
    max_size=6,
)
L, M, T, S, N = map(col, "lmtsi")
NO_TEXT = lit(None).cast(vn.String)


def holds(some: list[Any], wanted: Any) -> bool | None:
    """SQL's array_contains: a null among the elements may be the one."""
    return True if wanted in [one for one in some if one is not None] else None if None in some else False


def at(some: list[Any], index: int) -> Any:
    return some[index] if 0 <= index < len(some) else None


def sign(number: int | None) -> int:
    return -1 if number is None else (number > 0) - (number < 0)


def unless_null(rule: Callable[..., Any], *places: int) -> Callable[[tuple[Any, ...]], Any]:
    return lambda row: None if any(row[i] is None for i in places) else rule(*(row[i] for i in places))


RULES: list[tuple[Expr, Callable[[tuple[Any, ...]], Any]]] = [
    (L.length(), unless_null(len, 0)),
    (M.length(), unless_null(len, 1)),
    (L[0], unless_null(lambda some: at(some, 0), 0)),
    (M.get(N), unless_null(at, 1, 4)),
    (T[-1], lambda row: None),
    (T[N], unless_null(at, 2, 4)),
    (L.contains(2), unless_null(lambda some: holds(some, 2), 0)),
    (L.contains(N), unless_null(holds, 0, 4)),
    (L.contains(2.0), unless_null(lambda some: holds(some, 2), 0)),
    (M.contains(N), unless_null(holds, 1, 4)),
    (T.contains(LONG + "1"), unless_null(lambda some: holds(some, LONG + "1"), 2)),
    (L.reverse(), unless_null(lambda some: some[::-1], 0)),
    (T.reverse(), unless_null(lambda some: some[::-1], 2)),
    (L + M, unless_null(lambda one, two: one + two, 0, 1)),
    (vn.concat(M, [9], M), unless_null(lambda some: [*some, 9, *some], 1)),
    (T + lit(["x"]), unless_null(lambda some: [*some, "x"], 2)),
    (M == [1, 2], unless_null(lambda some: some == [1, 2], 1)),
    (L == M, unless_null(lambda one, two: one == two, 0, 1)),
    (M < [1, 0], unless_null(lambda some: some < [1, 0], 1)),
    (T <= ["a", LONG + "1"], unless_null(lambda some: some <= ["a", LONG + "1"], 2)),
    (vn.array(N, 1), lambda row: [row[4], 1]),
    (vn.array(M, [7]), lambda row: [row[1], [7]]),
    (vn.array(N, 0.5), lambda row: [None if row[4] is None else float(row[4]), 0.5]),
    (S["a"], unless_null(lambda one: one["a"], 3)),
    (S.field("b")["c"], unless_null(lambda one: one["b"]["c"], 3)),
    (S["b"], unless_null(lambda one: one["b"], 3)),
    (vn.struct("i", x=S["a"]), lambda row: {"i": row[4], "x": None if row[3] is None else row[3]["a"]}),
    (vn.struct(m="m", s="s"), lambda row: {"m": row[1], "s": row[3]}),
    (S == {"a": 1, "b": {"c": "a"}}, unless_null(lambda one: one == {"a": 1, "b": {"c": "a"}}, 3)),
    (S["b"] == {"c": NO_TEXT}, unless_null(lambda one: one["b"] == {"c": None}, 3)),
    (vn.coalesce(L, M), lambda row: row[1] if row[0] is None else row[0]),
    (vn.coalesce(S, {"a": 0, "b": {"c": NO_TEXT}}), lambda row: row[3] or {"a": 0, "b": {"c": None}}),
    (vn.when(N > 0, T).when(N == 0, ["zero"]), lambda row: {1: row[2], 0: ["zero"]}.get(sign(row[4]))),
    (vn.greatest(M, [0]), lambda row: max(row[1], [0])),
    (L.is_null(), lambda row: row[0] is None),
    (S.is_not_null(), lambda row: row[3] is not None),
    (M.is_in([1], [2, 2]), lambda row: row[1] in ([1], [2, 2])),
    (vn.array(*[M] * 2)[1][0], lambda row: at(row[1], 0)),
]  # fmt: skip


@given(rows=ROWS)
def test_lists_and_structs_are_computed_as_in_python(rows: list[Any]) -> None:
    for expr, rule in RULES:
        assert values(expr, PARTS, rows) == [rule(row) for row in rows], expr


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (S["aa"], "has no field 'aa'; did you mean 'a'? (it has a, b)"),
        (S[0], 'a field is x["name"]'),
        (L["a"], "needs a Struct"),
        (N.field("a"), "needs a Struct"),
        (N[0], "needs a List"),
        (L.contains("a"), "a value of another type"),
        (vn.array(1, lit("a")), "different types"),
        (vn.array(), "needs at least one value"),
        (vn.array(None), "null of no type"),
        (L + T, "cannot be computed"),
        (L + 1, "cannot be computed"),
        (L < T, "different types"),
        (L.upper(), "needs String"),
        (-L, "cannot be computed"),
    ],
    ids=str,
)
def test_wrong_parts_are_named(expr: Expr, said: str) -> None:
    with pytest.raises(WrongType, match=re.escape(said)):
        bind(expr, PARTS)


def test_what_cannot_be_written() -> None:
    with pytest.raises(WrongType, match="an empty list has no element type"):
        lit([])
    with pytest.raises(WrongType, match="at least one field"):
        vn.struct()
    with pytest.raises(WrongType, match="cannot be iterated"):
        1 in L  # noqa: B015
    assert values(lit(None).cast(vn.List(vn.Int64)), PARTS, [(None, [], None, None, None)]) == [None]


@given(rows=st.lists(st.tuples(st.lists(st.floats() | st.none(), max_size=3), st.floats()), max_size=4))
def test_floats_in_lists_compare_as_in_spark(rows: list[tuple[list[float | None], float]]) -> None:
    row = row_type(l=vn.List(vn.Float64 | None), x=vn.Float64)
    nans = [(any(one is not None and math.isnan(one) for one in some), math.isnan(x)) for some, x in rows]
    expected = [
        has if wanted else holds([None if one is None else one for one in some], x)
        for (some, x), (has, wanted) in zip(rows, nans, strict=True)
    ]
    expected = [
        None if found is False and None in some else found for found, (some, _) in zip(expected, rows, strict=True)
    ]
    assert values(col("l").contains(col("x")), row, rows) == expected


INSIDE: dict[str, Any] = {
    "d": vn.Date, "e": vn.Decimal(5, 2), "t": vn.TimestampNs, "l": vn.List(vn.Int64), "b": vn.Binary, "p": vn.Bool,
    "z": vn.Struct(x=vn.Int64, y=vn.String | None), "f": vn.Float64, "s": vn.String, "g": vn.Decimal(38, 2),
}  # fmt: skip
VALUE: dict[str, Any] = {
    "d": datetime.date(2020, 1, 1), "e": decimal.Decimal("1.25"), "t": 5, "l": [1, 2], "b": b"x" * 20, "p": True,
    "z": {"x": 1, "y": None}, "f": 1.5, "s": LONG, "g": decimal.Decimal("-0.01"),
}  # fmt: skip
"""A value of every type."""


def test_every_type_inside_of_what_may_be_null() -> None:
    row, v = row_type(v=vn.Struct(**INSIDE) | None, k=vn.Int64), col("v")
    rows = [(VALUE, 1), (None, 2)]
    for expr, expected in [
        (vn.when(col("k") > 0, v), [VALUE, None]),
        (vn.when(col("k") > 1, v).otherwise(vn.when(col("k") == 1, v)), [VALUE, None]),
        (vn.struct(a="v")["a"], [VALUE, None]),
        (vn.array("v", v)[1], [VALUE, None]),
        (vn.array("v").contains(v), [True, None]),
        (v == v, [True, None]),
        (v.eq_null_safe(v), [True, True]),
        (v < v, [False, None]),
        (vn.greatest("v", v), [VALUE, None]),
        (vn.coalesce("v", v).is_null(), [False, True]),
    ]:
        assert values(expr, row, rows) == expected, expr
    for name in INSIDE:
        assert values(v[name], row, rows) == [VALUE[name], None]
        assert values(vn.array(v[name])[0], row, rows) == [VALUE[name], None]
        assert values(vn.array(v[name], v[name]).contains(v[name]), row, rows) == [True, None]
    changed = {**INSIDE, "e": vn.Decimal(4, 1), "z": vn.Struct(x=vn.Float64, y=vn.String | None), "f": vn.String}
    other = {**VALUE, "e": decimal.Decimal("1.3"), "z": {"x": 1.0, "y": None}, "f": "1.5"}
    assert values(v.cast(vn.Struct(**changed)), row, rows) == [other, None]
