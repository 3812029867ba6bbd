"""The page on operators: its examples hold, and its table has every method that there is."""

import re
from pathlib import Path

import pytest

from vernier.operators.language.collection.collection import Collection

PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.search(r'vn\.App\("(\w+)"', text)[1])  # type: ignore[index]
def test_an_example_holds(example: str) -> None:
    assert "assert" in example
    exec(compile(example, "operators.md", "exec"), {})


def test_the_table_has_every_method() -> None:
    named = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}
    assert set(Collection._methods()) - named == set()
