"""The programs in SQL of the documentation can be built, and the README's gives the changes that are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.command import vernier
from tests.sql.snapshots import Oracle

pytestmark = pytest.mark.spark


def _blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [body for found, body in fenced if found == language]


def test_the_pages_programs_can_be_built(oracle: Oracle, root: Path) -> None:
    for block in _blocks(root / "docs" / "sql.md", "sql"):
        assert oracle.build(block).views


def test_the_readmes_program_gives_the_changes_that_are_shown(root: Path, tmp_path: Path) -> None:
    (block,) = _blocks(root / "README.md", "sql")
    (tmp_path / "friends.sql").write_text(block, "utf-8")
    session = next(block for block in _blocks(root / "README.md", "") if "$ cat updates.jsonl" in block)
    _, updates, changes = re.split(r"^\$ .*\n", session, flags=re.MULTILINE)
    (tmp_path / "updates.jsonl").write_text(updates, "utf-8")
    ran = vernier("replay", "friends.sql", "--updates", "updates.jsonl", "--out", "out.jsonl", cwd=tmp_path)
    assert ran.status == 0, ran.err
    assert (tmp_path / "out.jsonl").read_text("utf-8") == changes
