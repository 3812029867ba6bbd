"""Regular expressions that Java and RE2 read differently are rewritten or refused; others are taken as they are."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from vernier.operators.sql.patterns import translated
from vernier.operators.sql.refusals import Refused


@pytest.mark.parametrize("pattern", ["[[:alpha:]]", "[a[b]]", "[a&&b]", "(?U)a", "(?sU:b)", "\\va", "[\\v]", "\\C"])
def test_another_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(Refused, match="means something else in Spark"):
        translated(pattern, "rlike", tested=True)


@pytest.mark.parametrize(
    "pattern", ["^a", "[]a]", "[^]a]", "[a\\[]", "\\Q[[\\E[a]", "a&&b", "(?i:a)", "(a|b)[c]d", "\\[[a]", "[", "\\"]
)
def test_the_same_meaning_is_taken(pattern: str) -> None:
    assert translated(pattern, "rlike", tested=True) == pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a.b", "a\x0bb"),
        ("(?s:a.b)", "a\nb"),
        ("a\\sb", "a\x0bb"),
        ("a[\\sc]b", "a\x0bb"),
        ("(ab|b$)", "b\r\n"),
        ("a$", "a"),
    ],
)
def test_what_java_finds_is_found(pattern: str, text: str) -> None:
    assert pc.match_substring_regex(pa.array([text]), translated(pattern, "rlike", tested=True)).to_pylist() == [True]


@pytest.mark.parametrize("pattern", ["a$", "a$b", "(?m)a"])
def test_ends_of_lines_are_refused_where_the_match_is_used(pattern: str) -> None:
    with pytest.raises(Refused, match="means something else in Spark"):
        translated(pattern, "regexp_replace", tested=False)
