"""What `make example` prints is what expected.txt and the README of each example show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.examples.data import EXAMPLES, NAMES
from tests.scripts import script


@pytest.fixture(scope="module")
def example(root: Path) -> ModuleType:
    """tools/example.py."""
    return script(root, "example")


def test_there_are_six(example: ModuleType) -> None:
    assert example.names() == NAMES
    assert len(NAMES) == 6


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_is_expected(name: str, example: ModuleType, update_golden: bool) -> None:
    printed = "\n".join(example.show(name, example.moments(name))) + "\n"
    expected = EXAMPLES / name / "expected.txt"
    if update_golden:
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8"), "run `make golden`, and read the diff"


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_shows_parts_of_it(name: str) -> None:
    page = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    printed = (EXAMPLES / name / "expected.txt").read_text(encoding="utf-8")
    moments = dict(re.findall(r"^(\d\S+Z: .*)\n((?:(?!\d{4}-).*\n)*)", printed, re.MULTILINE))
    parts = re.findall(r"^(\d\S+Z: .*)\n((?:(?!\d{4}-).*\n)*)", shown, re.MULTILINE)
    assert parts
    for moment, tables in parts:
        assert tables in moments[moment], moment
    assert f"make example NAME={name}" in page
    assert f"tests/examples/test_{name}.py" in page


def test_one_moment_of_a_users_choice(root: Path) -> None:
    command = [sys.executable, "tools/example.py", "fraud_rings", "--at", "2026-03-02T09:00:00Z"]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=250, check=True)
    assert ran.stdout.splitlines()[0] == "2026-03-02T09:00:00Z"
    assert "rings: no rows" in ran.stdout
