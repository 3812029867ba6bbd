"""Pages whose blocks are run from top to bottom, in one folder."""

from pathlib import Path

import pytest

from tests.docs.session import Session, blocks

PAGES = ("index.md", "concepts.md", "time.md", "limits.md", "faq.md", "seeds.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_holds(page: str, tmp_path: Path) -> None:
    assert Session(tmp_path).follow(page) == len(blocks(page)) > 0
