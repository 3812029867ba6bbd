"""The drawings of the page on concepts are what tools/drawings.py draws, and each has an alternative text."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools.drawings import DRAWINGS, FOLDER


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_current(name: str) -> None:
    written = (FOLDER / f"concepts-{name}.svg").read_text("utf-8")
    assert written == DRAWINGS[name](), "run python tools/drawings.py"
    assert ElementTree.fromstring(written).find("{http://www.w3.org/2000/svg}title") is not None


def test_the_page_shows_each_with_a_text(root: Path) -> None:
    shown = dict(
        re.findall(r"!\[([^\]]+)\]\(images/concepts-(\w+)\.svg\)", (root / "docs/concepts.md").read_text("utf-8"))
    )
    assert sorted(shown.values()) == sorted(DRAWINGS)
