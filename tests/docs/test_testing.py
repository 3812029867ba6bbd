"""The page on testing: its examples hold as they stand."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.search(r'vn\.App\("(\w+)"', text)[1])  # type: ignore[index]
def test_an_example_holds(example: str) -> None:
    exec(compile(example, "testing.md", "exec"), {"__name__": "testing"})
