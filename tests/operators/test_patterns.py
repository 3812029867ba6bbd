"""Regular expressions that Java and RE2 read differently are rewritten or refused; others are taken as they are."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from vernier.operators.sql.patterns import may_follow_empty, translated
from vernier.operators.sql.refusals import Refused


@pytest.mark.parametrize("pattern", ["[[:alpha:]]", "[a[b]]", "[a&&b]", "(?U)a", "(?sU:b)", "\\va", "[\\v]", "\\C"])
def test_another_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(Refused, match="means something else in Spark"):
        translated(pattern, "rlike", tested=True)


@pytest.mark.parametrize(
    "pattern", ["^a", "[]a]", "[^]a]", "[a\\[]", "\\Q[[\\E[a]", "a&&b", "(a|b)[c]d", "\\[[a]", "[", "\\"]
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


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("(?i)ks1", "[kK][sS]1"),
        ("(?i:k)k", "(?:[kK])k"),
        ("(?is)k.", "(?s)[kK]."),
        ("(?i)a(?-i)b", "[aA]b"),
        ("(?i)(?<kilo>k)", "(?<kilo>[kK])"),
        ("(?i)[^j-l]|[-k]|[Z-a]", "[^j-lJKL]|[-kK]|[Z-azA]"),
        ("(?i)\\Qk.\\E\\w", "[kK]\\.\\w"),
        ("(?i)é", "é"),
    ],
)
def test_without_regard_to_case_means_the_letters_of_ascii(pattern: str, wanted: str) -> None:
    found = translated(pattern, "rlike", tested=True)
    assert found == wanted
    pc.match_substring_regex(pa.array(["\u212a\u017f"]), found)


@pytest.mark.parametrize("pattern", ["(?i)\\x6b", "(?i)\\p{Lu}", "(?i)[\\x{6b}]"])
def test_escapes_of_letters_without_regard_to_case_are_refused(pattern: str) -> None:
    with pytest.raises(Refused, match="under the flag i"):
        translated(pattern, "rlike", tested=True)


@pytest.mark.parametrize(
    ("pattern", "empty"), [("x*", True), ("\\b", True), ("x?|a", True), ("^x*", False), ("x+", False), ("a*\\z", True)]
)
def test_matches_of_the_empty_text_are_found(pattern: str, empty: bool) -> None:
    assert may_follow_empty(pattern) == empty
