"""The page on examples: it names all of them, and what it shows of notebooks holds."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "examples.md").read_text("utf-8")


def test_all_examples_are_in_the_table() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) - {"live", "NAME"} == {
        path.parent.name for path in (ROOT / "examples").glob("*/program.py")
    }


def test_the_session_holds() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(example, "examples.md", "exec"), {"__name__": "examples"})
