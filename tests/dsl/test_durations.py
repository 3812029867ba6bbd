"""Durations as programs write them."""

import pytest

from vernier.operators.errors import WrongType
from vernier.operators.language.types.duration import nanoseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (60, 60),
        ("1.5h", 5_400 * 10**9),
        ("250 ms", 250 * 10**6),
        ("1 day", 86_400 * 10**9),
        ("30 minutes", 1_800 * 10**9),
        ("2seconds", 2 * 10**9),
    ],
)
def test_units(text: str | int, expected: int) -> None:
    assert nanoseconds(text) == expected


@pytest.mark.parametrize("text", ["ten minutes", "1 month", "-1s", "0.1ns", True, ""])
def test_what_is_no_duration(text: str | int) -> None:
    with pytest.raises(WrongType):
        nanoseconds(text)
