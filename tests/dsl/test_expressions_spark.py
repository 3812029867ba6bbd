"""Expressions against Spark SQL itself (without ANSI mode): the same rows, the same functions, the same values.

There is no case here for what we mean to have otherwise: numbers that wrap in Spark raise, there is no -0.0, dates are
of the years 1 to 9999, instants of those that 64 bits of nanoseconds reach, and a time without a day is none.
"""

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal as Exact
from typing import Any

import pytest

import vernier as vn
from tests.dsl.values import row_type, values
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, col, lit

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROW = row_type(
    s=vn.String | None,
    t=vn.String,
    i=vn.Int64 | None,
    f=vn.Float64 | None,
    d=vn.Date | None,
    e=vn.Decimal(10, 2) | None,
    g=vn.Decimal(38, 10),
    l=vn.List(vn.Int64 | None) | None,
    p=vn.Bool | None,
)
SCHEMA = "s string, t string, i bigint, f double, d date, e decimal(10,2), g decimal(38,10), l array<bigint>, p boolean"
DAY = datetime.date
ROWS: list[tuple[Any, ...]] = [
    ("Straße", "a", 5, 2.675, DAY(2024, 2, 29), Exact("1.25"), Exact("0.0000000001"), [1, None, 3], True),
    (" a,b,,c ", ",", -7, -0.0, DAY(1969, 12, 31), Exact("-99999999.99"), Exact("12345678901234567890.5"), [], False),
    ("", "", 0, math.nan, DAY(1, 1, 1), Exact("0.00"), Exact("-1.5"), None, None),
    (None, "x", None, None, None, None, Exact(0), [2, 2], True),
    ("İǆ ß ΑΣ", "ǆ", 2**63 - 1, math.inf, DAY(9999, 12, 31), Exact("0.05"), Exact("7"), [None], False),
    ("😀 o'neil mc-x", "😀", 100, -12345678.9, DAY(2021, 1, 3), Exact("2.50"), Exact("2.5"), [9], True),
    ("a" * 40, "a" * 15, -1, 1e-5, DAY(2020, 12, 28), Exact("-2.50"), Exact("-2.5"), [3, 2, 1], None),
]
S, T, N, F, D, E, G, L, P = map(col, "stifdeglp")
CASES: list[tuple[Expr, str]] = [
    (S.upper(), "upper(s)"),
    (S.lower(), "lower(s)"),
    (S.replace("İ").initcap(), "initcap(replace(s, 'İ', ''))"),
    (S.trim(), "trim(s)"),
    (S.trim(" a"), "trim(BOTH ' a' FROM s)"),
    (S.length(), "length(s)"),
    (S.reverse(), "reverse(s)"),
    *((S.substr(a, b), f"substring(s, {a}, {b})") for a in (-30, -5, -2, 0, 1, 3, 50) for b in (-1, 0, 2, 28, 100)),
    (S.substr(-3), "substring(s, -3)"),
    (S.startswith(T), "startswith(s, t)"),
    (S.endswith(T), "endswith(s, t)"),
    (S.contains(T), "contains(s, t)"),
    (S.instr(T), "instr(s, t)"),
    (S.replace(T, "-"), "replace(s, t, '-')"),
    (S.like("%a_%"), "s like '%a_%'"),
    (S.like("😀%_"), "s like '😀%_'"),
    (S.rlike("[a-c],"), "s rlike '[a-c],'"),
    (S.regexp_replace("(a),", "$1;"), "regexp_replace(s, '(a),', '$1;')"),
    (S.regexp_extract("(o)'(n?)", 2), "regexp_extract(s, '(o)\\'(n?)', 2)"),
    (S.split(","), "split(s, ',')"),
    (S.split(",", 2), "split(s, ',', 2)"),
    (S.split("a"), "split(s, 'a')"),
    (S.lpad(9, "xy"), "lpad(s, 9, 'xy')"),
    (S.rpad(9, "xy"), "rpad(s, 9, 'xy')"),
    (S.lpad(-1, "x"), "lpad(s, -1, 'x')"),
    (S.lpad(12, ""), "lpad(s, 12, '')"),
    (S.repeat(2), "repeat(s, 2)"),
    (S.repeat(-2), "repeat(s, -2)"),
    (vn.concat(S, T), "concat(s, t)"),
    (vn.concat_ws("-", S, T), "concat_ws('-', s, t)"),
    (vn.coalesce(S, T), "coalesce(s, t)"),
    (vn.greatest(S, T), "greatest(s, t)"),
    (vn.least(S, T), "least(s, t)"),
    (S < T, "s < t"),
    (S == T, "s = t"),
    (S.eq_null_safe(None), "s <=> null"),
    (S.is_in(T, None), "s in (t, null)"),
    (F.is_nan(), "isnan(f)"),
    (F > 2.0, "f > 2.0D"),
    (F == F, "f = f"),
    (vn.greatest(F, N), "greatest(f, i)"),
    (vn.least(F, 1), "least(f, 1)"),
    (F.sqrt(), "sqrt(f)"),
    (F.ln(), "ln(f)"),
    (F.log10(), "log10(f)"),
    (F.sign(), "sign(f)"),
    (F.abs(), "abs(f)"),
    (F**2, "pow(f, 2)"),
    (F**0.5, "pow(f, 0.5D)"),
    *((F.round(n), f"round(f, {n})") for n in (-2, 0, 1, 2, 5)),
    *((vn.when(N < 1000, N).round(n), f"round(case when i < 1000 then i end, {n})") for n in (-2, -1, 0, 3)),
    *((E.round(n), f"round(e, {n})") for n in (-2, 0, 1, 2, 5)),
    *((G.round(n), f"round(g, {n})") for n in (-3, 0, 4, 10)),
    (E.floor(), "floor(e)"),
    (E.ceil(), "ceil(e)"),
    (E + G, "e + g"),
    (E - G, "e - g"),
    (E * E, "e * e"),
    (E * G, "e * g"),
    (E / G, "e / g"),
    (G / E, "g / e"),
    (E / 3, "e / 3"),
    (E % 3, "e % 3"),
    (G % E, "g % e"),
    (E // 3, "e div 3"),
    (E * N, "e * i"),
    (E + F, "e + f"),
    (-E, "-e"),
    (E == G, "e = g"),
    (E > 1, "e > 1"),
    (N / 2, "i / 2"),
    (N % 3, "i % 3"),
    (N // -2, "i div -2"),
    (D.year(), "year(d)"),
    (D.quarter(), "quarter(d)"),
    (D.month(), "month(d)"),
    (D.week(), "weekofyear(d)"),
    (D.day(), "day(d)"),
    (D.day_of_week(), "dayofweek(d)"),
    (D.day_of_year(), "dayofyear(d)"),
    (D.date_trunc("quarter"), "trunc(d, 'quarter')"),
    (vn.when(D.year() > 1, D).date_trunc("week"), "trunc(case when year(d) > 1 then d end, 'week')"),
    (L.length(), "case when l is not null then size(l) end"),
    (L[1], "l[1]"),
    (L.get(N), "get(l, cast(case when i < 1000 then i end as int))"),
    (L.contains(2), "array_contains(l, 2L)"),
    (L.reverse(), "reverse(l)"),
    (L + lit([7]), "concat(l, array(7L))"),
    (L.cast(vn.List(vn.String | None)), "cast(l as array<string>)"),
    (vn.array(N, 1), "array(i, 1L)"),
    (vn.struct(x=N, y=S), "named_struct('x', i, 'y', s)"),
    (P & (N > 0), "p and i > 0"),
    (P | (N > 0), "p or i > 0"),
    (vn.when(P, S).otherwise(T), "case when p then s else t end"),
    ((F + 0.0).cast(vn.String), "cast(f + 0.0D as string)"),
    (E.cast(vn.String), "cast(e as string)"),
    (G.cast(vn.String), "cast(g as string)"),
    (D.cast(vn.String), "cast(d as string)"),
    (P.cast(vn.String), "cast(p as string)"),
    (E.cast(vn.Int64), "cast(e as bigint)"),
    (E.cast(vn.Float64), "cast(e as double)"),
    (G.cast(vn.Float64), "cast(g as double)"),
    (G.cast(vn.Decimal(38, 2)), "cast(g as decimal(38, 2))"),
    (P.cast(vn.Decimal(3, 1)), "cast(p as decimal(3, 1))"),
    (S.cast(vn.Binary), "cast(s as binary)"),
]
TEXTS = [
    *(
        "",
        " ",
        "1",
        " 42\t",
        "+7",
        "-0",
        "1.5",
        ".5",
        "5.",
        ".",
        "-.",
        "+",
        "1e3",
        "1E-2",
        "0x1f",
        "1_0",
        "abc",
        "9" * 19,
    ),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "007",
        "1,5",
        "1 2",
    ),
    *(
        "NaN",
        "nan",
        "inf",
        "-Infinity",
        "+inf",
        "infinit",
        "1d",
        "2.5f",
        "1e400",
        "1e-400",
        "d",
        "--1",
        "1.7976931348623157e308",
    ),
    *("true", "T", "yes", "Y", "false", "no", "off", "tru", "2024-02-29", "2023-02-29", "2024-2-9", "2024", "2024-02"),
    *("2024-02-29 10:11:12", "2024-02-29T10:11:12.5", "2024-02-29T10:11:12.123456Z", "2024-02-29 10:11:12+02:30"),
    *(
        "2024-02-29 10:11:12 UTC",
        "2024-02-29 1:2:3",
        "2024-02-29 10:11",
        "2024-02-29 24:00:00",
        "2024-02-29x",
        "2024/02/29",
    ),
    *(
        "0001-01-01",
        "9999-12-31",
        "24-01-01",
        "2024-13-01",
        "2024-01-01T",
        "999.995",
        "1000",
    ),
    *("1.235", "-1.235", "123456789.125", "1.2.3", "é"),
]
_FAR = ("0001", "9999", "1000")
"""Years that nanoseconds do not reach."""
TARGETS = {
    "bigint": vn.Int64,
    "double": vn.Float64,
    "boolean": vn.Bool,
    "date": vn.Date,
    "timestamp": vn.TimestampNs,
    "decimal(5,2)": vn.Decimal(5, 2),
    "decimal(38,10)": vn.Decimal(38, 10),
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from tests.spark_session import session

    settings = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
    }
    with session(1, settings) as started:
        yield started


def shown(value: Any) -> Any:
    """A value with one NaN, without -0.0, and in the types that our rows have."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if hasattr(value, "asDict"):
        return {name: shown(part) for name, part in value.asDict().items()}
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def test_functions_are_those_of_spark(spark: Any) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    theirs = frame.selectExpr(*(f"{sql} as c{i}" for i, (_, sql) in enumerate(CASES))).collect()
    different = {}
    for i, (expr, _) in enumerate(CASES):
        ours, expected = [shown(v) for v in values(expr, ROW, ROWS)], [shown(row[i]) for row in theirs]
        if ours != expected:
            different[str(expr)] = [(a, b, row) for a, b, row in zip(ours, expected, ROWS, strict=True) if a != b]
    assert not different, "\n".join(map(str, different.items()))


def test_casts_of_texts_are_those_of_spark(spark: Any) -> None:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "s string")
    # Python's own dates and the local zone stay out of it.
    read = {
        "timestamp": "unix_micros(cast(s as timestamp)) * 1000",
        "date": "datediff(cast(s as date), date'1970-01-01')",
    }
    rows = frame.selectExpr(
        *(f"{read.get(sql, f'cast(s as {sql})')} as c{i}" for i, sql in enumerate(TARGETS))
    ).collect()
    different = {}
    row = row_type(s=vn.String)
    for i, (sql, kind) in enumerate(TARGETS.items()):
        expr = col("s").cast(kind)
        expr = expr - lit(DAY(1970, 1, 1)) if sql == "date" else expr
        ours = [shown(v) for v in values(expr, row, [(text,) for text in TEXTS])]
        expected = [shown(found[i]) for found in rows]
        if sql == "timestamp":
            far = [text[:4] in _FAR for text in TEXTS]
            expected = [None if out else ns for ns, out in zip(expected, far, strict=True)]
        if ours != expected:
            different[sql] = [(text, a, b) for text, a, b in zip(TEXTS, ours, expected, strict=True) if a != b]
    assert not different, "\n".join(map(str, different.items()))


def test_types_of_decimals_are_those_of_spark(spark: Any) -> None:
    kinds = [(1, 0), (5, 2), (18, 9), (19, 0), (38, 0), (38, 10), (38, 38)]
    pairs = [(one, two) for one in kinds for two in kinds]
    for op in "+-*/%":
        sql = [f"cast(1 as decimal{one}) {op} cast(1 as decimal{two}) as c{i}" for i, (one, two) in enumerate(pairs)]
        theirs = spark.sql("select " + ", ".join(sql)).schema
        for field, (one, two) in zip(theirs, pairs, strict=True):
            row = row_type(a=vn.Decimal(*one), b=vn.Decimal(*two))
            x, y = col("a"), col("b")
            ours = bind({"+": x + y, "-": x - y, "*": x * y, "/": x / y, "%": x % y}[op], row).type
            assert str(ours).lower().replace(" ", "") == field.dataType.simpleString(), (one, op, two)
