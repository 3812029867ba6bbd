"""Expressions on texts against plain Python, row by row."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.values import FEW, row_type, values
from vernier.operators.errors import BadValue, WrongType
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, col, lit
from vernier.storage.strings.string_heap import Heap, TextMissing

ROW = row_type(s=vn.String | None, t=vn.String, n=vn.Int64 | None, b=vn.Binary | None)
# Letters whose cases have other lengths, composed and astral ones, what patterns and Java take for special.
LETTERS = st.sampled_from(list("aAbBxyzİßſǆäéΣσ😀𝒳 \t\n%_\\.$0-"))
TEXTS = st.text(LETTERS, max_size=12) | st.sampled_from(["", "a" * 15, "a" * 16, "ab" * 20, "x" * 100 + "é"])
ROWS = st.lists(
    st.tuples(
        st.none() | TEXTS,
        TEXTS,
        st.none() | st.integers(-20, 20) | st.sampled_from([2**63 - 1, -(2**63), 2**31]),
        st.none() | st.binary(max_size=20),
    ),
    max_size=6,
)
S, T, N, B = col("s"), col("t"), col("n"), col("b")


def substr(text: str, start: int, length: int | None = None) -> str:
    """Spark's rule: positions count from 1, or from the end below 0; what lies outside is cut off."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return "".join(text[i] for i in range(len(text)) if first <= i < last)


def pad(text: str, size: int, some: str, left: bool) -> str:
    if len(text) >= size:
        return text[: max(size, 0)]
    filling = (some * size)[: size - len(text)]
    return filling + text if left else text + filling


def initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


RULES: list[tuple[Expr, Callable[[str, str], Any]]] = [
    (S.upper(), lambda s, t: s.upper()),
    (S.lower(), lambda s, t: s.lower()),
    (S.initcap(), lambda s, t: initcap(s)),
    (S.trim(), lambda s, t: s.strip(" ")),
    (S.ltrim(), lambda s, t: s.lstrip(" ")),
    (S.rtrim(), lambda s, t: s.rstrip(" ")),
    (S.trim("ax"), lambda s, t: s.strip("ax")),
    (S.trim(T), lambda s, t: s.strip(t) if t else s),
    (S.trim(""), lambda s, t: s),
    (S.length(), lambda s, t: len(s)),
    (S.reverse(), lambda s, t: s[::-1]),
    (S.startswith("a"), lambda s, t: s.startswith("a")),
    (S.startswith(T), lambda s, t: s.startswith(t)),
    (S.endswith("é"), lambda s, t: s.endswith("é")),
    (S.endswith(T), lambda s, t: s.endswith(t)),
    (S.contains("ß"), lambda s, t: "ß" in s),
    (S.contains(T), lambda s, t: t in s),
    (S.instr("x"), lambda s, t: s.find("x") + 1),
    (S.instr(T), lambda s, t: s.find(t) + 1),
    (S.replace("a", "éé"), lambda s, t: s.replace("a", "éé")),
    (S.replace("", "x"), lambda s, t: s),
    (S.replace(T, "-"), lambda s, t: s.replace(t, "-") if t else s),
    (S.substr(2, 3), lambda s, t: substr(s, 2, 3)),
    (S.substr(0, 2), lambda s, t: substr(s, 0, 2)),
    (S.substr(-3, 2), lambda s, t: substr(s, -3, 2)),
    (S.substr(-3, 3), lambda s, t: substr(s, -3, 3)),
    (S.substr(-3, 7), lambda s, t: substr(s, -3, 7)),
    (S.substr(-30, 25), lambda s, t: substr(s, -30, 25)),
    (S.substr(2, -1), lambda s, t: ""),
    (S.substr(2), lambda s, t: substr(s, 2)),
    (S.substr(-2), lambda s, t: substr(s, -2)),
    (S.lpad(5, "é-"), lambda s, t: pad(s, 5, "é-", True)),
    (S.rpad(5), lambda s, t: pad(s, 5, " ", False)),
    (S.lpad(7, ""), lambda s, t: s[:7]),
    (S.rpad(-1, "x"), lambda s, t: ""),
    (S.repeat(3), lambda s, t: s * 3),
    (S.repeat(-3), lambda s, t: ""),
    (S + T, lambda s, t: s + t),
    ("<" + S, lambda s, t: "<" + s),
    (vn.concat("s", lit("|"), T), lambda s, t: s + "|" + t),
    (S == T, lambda s, t: s == t),
    (S != T, lambda s, t: s != t),
    (S < T, lambda s, t: s < t),
    (S <= T, lambda s, t: s <= t),
    (S > "ab", lambda s, t: s > "ab"),
    (S.upper() >= T.upper(), lambda s, t: s.upper() >= t.upper()),
    (S.upper() == T, lambda s, t: s.upper() == t),
    (S.is_in("a", T, "ab" * 20), lambda s, t: s in ("a", t, "ab" * 20)),
    (S.between("A", "b"), lambda s, t: "A" <= s <= "b"),
    (S.like("%a_%"), lambda s, t: re.fullmatch(".*a..*", s, re.DOTALL) is not None),
    (S.like(r"a\%\_\\%"), lambda s, t: s.startswith("a%_\\")),
    (S.like("%.$"), lambda s, t: s.endswith(".$")),
    (S.like(""), lambda s, t: s == ""),
    (S.rlike("a+b"), lambda s, t: re.search("a+b", s) is not None),
    (S.rlike("^$"), lambda s, t: s == ""),
    (S.regexp_replace("a|x", "<$0>"), lambda s, t: re.sub("(a|x)", r"<\1>", s)),
    (S.regexp_replace("(a)(.)", r"$2\$\\$1"), lambda s, t: re.sub("(a)(.)", r"\2$\\\1", s)),
    (S.regexp_extract("a(b|[(x])?"), lambda s, t: ((m := re.search(r"a(b|[(x])?", s)) and m[1]) or ""),
    (S.regexp_extract(r"(?:a)(?P<n>\()?(.)", 2), lambda s, t: ((m := re.search(r"a(\()?(.)", s)) and m[2]) or ""),
    (S.regexp_extract("a+", 0), lambda s, t: ((m := re.search("a+", s)) and m[0]) or ""),
    (S.split("a"), lambda s, t: s.split("a")),
    (S.split("[ax]+"), lambda s, t: re.split("[ax]+", s)),
    (S.split("a", 2), lambda s, t: s.split("a", 1)),
    (S.split("a", 1), lambda s, t: [s]),
    (S.split("a", 0), lambda s, t: s.split("a")),
]


@pytest.mark.parametrize(("expr", "rule"), RULES, ids=[str(expr) for expr, _ in RULES])
@FEW
@given(rows=ROWS)
def test_texts_are_computed_as_in_python(expr: Expr, rule: Callable[..., Any], rows: list[Any]) -> None:
    assert values(expr, ROW, rows) == [None if s is None else rule(s, t) for s, t, _, _ in rows]


BY_NUMBER: list[tuple[Expr, Callable[[str, int], Any]]] = [
    (S.substr(N), substr),
    (S.substr(N, 3), lambda s, n: substr(s, n, 3)),
    (S.substr(-4, N), lambda s, n: substr(s, -4, n)),
    (S.lpad(vn.least(N, 20), "ab"), lambda s, n: pad(s, min(n, 20), "ab", True)),
    (S.repeat(vn.least(N, 20)), lambda s, n: s * min(n, 20)),
]


@pytest.mark.parametrize(("expr", "rule"), BY_NUMBER, ids=[str(expr) for expr, _ in BY_NUMBER])
@FEW
@given(rows=ROWS)
def test_arguments_may_differ_by_row(expr: Expr, rule: Callable[..., Any], rows: list[Any]) -> None:
    # least leaves a null out, so it is not null where n is.
    said = [20 if n is None and "least" in str(expr) else n for _, _, n, _ in rows]
    expected = [None if s is None or n is None else rule(s, n) for (s, _, _, _), n in zip(rows, said, strict=True)]
    assert values(expr, ROW, rows) == expected


@given(rows=ROWS)
def test_bytes(rows: list[Any]) -> None:
    def expect(expr: Expr, rule: Callable[[bytes], Any]) -> None:
        assert values(expr, ROW, rows) == [None if b is None else rule(b) for _, _, _, b in rows]

    expect(B.length(), len)
    expect(B + b"\x00\xff", lambda b: b + b"\x00\xff")
    expect(B.startswith(b"\x00"), lambda b: b.startswith(b"\x00"))
    expect(B.contains(b"a"), lambda b: b"a" in b)
    expect(B.substr(2, 3), lambda b: b[1:4])
    expect(B.substr(-2), lambda b: b[-2:])
    expect(B == b"\x00" * 16, lambda b: b == b"\x00" * 16)
    expect(B < b"a", lambda b: b < b"a")


@given(rows=ROWS)
def test_nulls_are_left_out_where_it_is_said(rows: list[Any]) -> None:
    assert values(vn.concat_ws("-", S, T), ROW, rows) == [t if s is None else f"{s}-{t}" for s, t, _, _ in rows]
    assert values(vn.concat_ws("-", S, S), ROW, rows) == ["" if s is None else f"{s}-{s}" for s, _, _, _ in rows]
    assert values(vn.coalesce("s", "t", lit("x")), ROW, rows) == [t if s is None else s for s, t, _, _ in rows]
    assert values(vn.coalesce(S.upper(), T), ROW, rows) == [t if s is None else s.upper() for s, t, _, _ in rows]
    assert values(vn.greatest(S, T), ROW, rows) == [t if s is None else max(s, t) for s, t, _, _ in rows]
    assert values(vn.least(S, T), ROW, rows) == [t if s is None else min(s, t) for s, t, _, _ in rows]
    expected = [False if s is None else s == t for s, t, _, _ in rows]
    assert values(S.eq_null_safe(T), ROW, rows) == expected
    assert values(S.eq_null_safe(lit(None)), ROW, rows) == [s is None for s, _, _, _ in rows]


@given(rows=ROWS)
def test_choices_between_texts(rows: list[Any]) -> None:
    expr = vn.when(S < "b", S).when(S.is_null(), "none").otherwise(T + "!")
    expected = ["none" if s is None else s if s < "b" else t + "!" for s, t, _, _ in rows]
    assert values(expr, ROW, rows) == expected
    expr = vn.when(S < "b", S).when(T == "", "a text longer than fifteen bytes")
    long = "a text longer than fifteen bytes"
    assert values(expr, ROW, rows) == [
        s if s is not None and s < "b" else long if t == "" else None for s, t, _, _ in rows
    ]


def test_long_texts_with_one_prefix_are_ordered_by_their_contents() -> None:
    prefix = "p" * 15
    ends = ["", "a", "b", "é", "\U0001f600", "bb", "ba"]
    rows = [(prefix + one, prefix + two, None, None) for one in ends for two in ends]
    assert values(S < T, ROW, rows) == [s < t for s, t, _, _ in rows]
    assert values(S >= T, ROW, rows) == [s >= t for s, t, _, _ in rows]
    assert values(vn.greatest(S, T), ROW, rows) == [max(s, t) for s, t, _, _ in rows]


def test_long_texts_are_not_ordered_without_their_contents() -> None:
    words = ROW.encode_rows([("x" * 20, "y" * 20, None, None)], Heap())
    assert bind(S == T, ROW).words(words).tolist() == [[1, 0]]
    with pytest.raises(TextMissing):
        bind(S < T, ROW).words(words)


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (col("n").upper(), "needs String, but"),
        (S.like("a\\b"), "backslash"),
        (S.rlike("("), "needs a regular expression of RE2"),
        (S.rlike("(?=a)"), "needs a regular expression of RE2"),
        (S.rlike(T), "a constant str"),  # type: ignore[arg-type]
        (S.split("x*"), "matches the empty text"),
        (S.regexp_extract("a(b)", 2), "needs group 2, but the regular expression has 1"),
        (S.regexp_replace("a", "$1"), "does not fit its pattern"),
        (S + 1, "cast(vn.String)"),
        (S == 1, "different types"),
        (S.substr("a"), "needs Int64"),
        (S.startswith(b"a"), "needs String"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named_when_the_program_is_built(expr: Expr, said: str) -> None:
    with pytest.raises(WrongType, match=re.escape(said)):
        values(expr, ROW, [])


def test_a_text_that_would_be_too_long_is_refused_before_it_is_made() -> None:
    for expr in (S.repeat(2**40), S.lpad(2**40), S.rpad(2**40)):
        with pytest.raises(BadValue, match="; the most is"):
            values(expr, ROW, [("abc", "", 0, None)])
    assert values(S.repeat(2**40), ROW, [("", "", 0, None)]) == [""]
