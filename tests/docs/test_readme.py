"""The README's first program does what the README shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify

import vernier as vn


def _blocks(root: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", (root / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [body for found, body in fenced if found == language]


def test_the_first_program_gives_the_changes_that_are_shown(root: Path, tmp_path: Path) -> None:
    program = next(block for block in _blocks(root, "python") if "vn.fixpoint" in block)
    (tmp_path / "friends.py").write_text(program, "utf-8")
    session = next(block for block in _blocks(root, "") if "$ cat updates.jsonl" in block)
    _, updates, changes = re.split(r"^\$ .*\n", session, flags=re.MULTILINE)
    (tmp_path / "updates.jsonl").write_text(updates, "utf-8")
    command = [
        sys.executable,
        "-m",
        "vernier",
        "replay",
        "friends.py",
        "--updates",
        "updates.jsonl",
        "--out",
        "out.jsonl",
    ]
    subprocess.run(
        command, cwd=tmp_path, check=True, timeout=240, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
    )
    assert (tmp_path / "out.jsonl").read_text("utf-8") == changes


def test_the_example_of_a_test_holds(root: Path) -> None:
    blocks = _blocks(root, "python")
    names: dict[str, object] = {"vn": vn}
    exec(compile(next(block for block in blocks if "vn.fixpoint" in block), "README.md", "exec"), names)
    exec(compile(next(block for block in blocks if "vn.testing" in block), "README.md", "exec"), names)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs and most hosts of repositories make them."""
    return {slugify(heading, "-") for heading in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(root: Path, page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", (root / page).read_text("utf-8"))
    assert links
    assert [file for file, _ in links if not (root / file).exists()] == []
    assert [
        f"{file}#{anchor}" for file, anchor in links if anchor and anchor not in _anchors(root / (file or page))
    ] == []
