"""Regular expressions that Java and RE2 read differently are refused; others are taken."""

import pytest

from vernier.operators.sql.patterns import check_pattern
from vernier.operators.sql.refusals import Refused


@pytest.mark.parametrize("pattern", ["[[:alpha:]]", "[a[b]]", "[a&&b]", "(?U)a", "(?sU:b)", "\\va", "[\\v]", "\\C"])
def test_another_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(Refused, match="means something else in Spark"):
        check_pattern(pattern, "rlike")


@pytest.mark.parametrize(
    "pattern", ["^a", "[]a]", "[^]a]", "[a\\[]", "\\Q[[\\E[a]", "a&&b", "(?i:a)", "(a|b)[c]d", "\\[[a]", "[", "\\"]
)
def test_the_same_meaning_is_taken(pattern: str) -> None:
    check_pattern(pattern, "rlike")
