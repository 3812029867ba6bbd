"""tools/results.py finds numbers that no result has, and nothing else; the pages are right by it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import script

RUN = {
    "command": "python -m bench.x",
    "at": "2026-11-23T01:02:03Z",
    "commit": "abc1234",
    "machine": "a machine, 2 cores",
    "versions": {"python": "3.11"},
    "load": [0.5, 1.0],
    "values": {
        "p99_ms": 12.3456,
        "load_s": 0.0821,
        "resident_mb": 1536.0,
        "rows_per_s": 4523.2,
        "to_peer": 0.397,
        "said": "it took 1,155 s",
        "cells": ["0.40", "1,300"],
    },
    "tables": {"sizes": {"head": ["batch", "ms"], "rows": [["1", "12.3"], ["10", "1,300"]]}},
}


@pytest.fixture(scope="module")
def tool(root: Path) -> ModuleType:
    """tools/results.py."""
    return script(root, "results")


def results(tool: ModuleType, folder: Path, runs: dict[str, Any] | None = None) -> Any:
    """A folder with the results of one benchmark."""
    (folder / "x.json").write_text(json.dumps({"runs": {"small": RUN} if runs is None else runs}), "utf-8")
    return tool.Results(folder)


def wrong(tool: ModuleType, folder: Path, text: str) -> list[str]:
    return list(tool.check("page.md", text, results(tool, folder)))


@pytest.mark.parametrize(
    "text",
    [
        "It takes 12 ms.",
        "It takes 3, 4 and 5 s.",
        "A third faster: 1.3 ×.",
        "It makes 4,000 rows a second.",
        "| batch | p99, ms |\n| --- | --- |\n| 1 | 12 |",
        "| what | value |\n| --- | --- |\n| longest, ms | 12 |",
    ],
)
def test_a_number_without_a_result_is_found(tool: ModuleType, tmp_path: Path, text: str) -> None:
    found = wrong(tool, tmp_path, f"# Page\n\nNo number.\n\n{text}\n")
    assert found
    assert all(one.startswith("page.md:5: ") and "no result" in one for one in found)


@pytest.mark.parametrize(
    "text",
    [
        "It has 12 rows and `timeout: 12 ms`.",
        "```\nit took 12 ms\n```",
        "The goal is 12 ms<!-- given -->.",
        "<!-- no result: a default -->\nIt waits 12 ms.",
        "See [later](page.md#it-takes-12 ms).",
        "On 2026-11-23 it ran with Python 3.11.",
        "| batch | rows |\n| --- | --- |\n| 1 | 12 |",
    ],
)
def test_what_is_not_measured_needs_none(tool: ModuleType, tmp_path: Path, text: str) -> None:
    assert wrong(tool, tmp_path, f"# Page\n\n{text}\n") == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("p99 is 12 ms", True),
        ("p99 is 12.3 ms", True),
        ("p99 is 12.4 ms", False),
        ("p99 is 12,300 µs", True),
        ("p99 is 12 s", False),
        ("p99 is 12 MB", False),
        ("loading takes 82 ms", True),
        ("loading takes 0.08 s", True),
        ("it holds 1.5 GB", True),
        ("it does 4,523 rows a second, or 4,500 rows/s", True),
        ("it does 4,623 rows a second", False),
        ("it takes 0.4 ×, or 40 %", True),
        ("it takes 41 %", False),
        ("it took 1,155 s", True),
        ("it took 0.40, 0.41 ms", False),
    ],
)
def test_a_number_is_one_of_the_result_rounded(tool: ModuleType, tmp_path: Path, text: str, right: bool) -> None:
    assert (wrong(tool, tmp_path, f"# Page\n\n<!-- result: x/small -->\n{text}\n") == []) == right


def test_all_cells_of_a_table_count(tool: ModuleType, tmp_path: Path) -> None:
    page = "# Page\n\n<!-- result: x -->\n| batch | ms |\n| --- | --- |\n| 7 | 12.3, **1,300** |\n| 8 | 12.9 |\n"
    assert [one.partition(": ")[0] for one in wrong(tool, tmp_path, page)] == ["page.md:7"]


def test_a_marker_alone_holds_up_to_the_next_heading(tool: ModuleType, tmp_path: Path) -> None:
    page = "# Page\n\n<!-- result: x -->\n\n12 ms\n\nand 82 ms\n\n## Next\n\n12 ms\n"
    assert [one.partition(": ")[0] for one in wrong(tool, tmp_path, page)] == ["page.md:11"]
    assert wrong(tool, tmp_path, f"<!-- no result: a page of settings -->\n\n{page}") == []


def test_a_result_that_is_not_there_is_found(tool: ModuleType, tmp_path: Path) -> None:
    assert "no result x/large" in wrong(tool, tmp_path, "# Page\n\n<!-- result: x/large -->\n12 ms\n")[0]
    lacking = results(tool, tmp_path, {"small": RUN | {"commit": ""}})
    assert list(lacking.problems()) == ["x.json: the run 'small' has no commit"]


def test_tables_are_written(tool: ModuleType, tmp_path: Path) -> None:
    page = "# Page\n\n<!-- table: x/small#sizes -->\nold\n\nand 99 ms\n<!-- end of table -->\n\nAfter: 98 ms.\n"
    found = results(tool, tmp_path)
    written = tool.written("page.md", page, found)
    assert "| 10 | 1,300 |" in written
    assert (
        "`python -m bench.x`, 2026-11-23, a machine, 2 cores, load 0.5 before and 1.0 after, commit abc1234" in written
    )
    assert tool.written("page.md", written, found) == written
    assert [one.partition(": ")[2] for one in tool.check("page.md", written, found)] == [
        "'98 ms' has no result: mark where it comes from (tools/results.py)"
    ]
    with pytest.raises(SystemExit, match="no table x/small#other"):
        tool.written("page.md", page.replace("#sizes", "#other"), found)


def test_the_pages_have_the_numbers_of_the_results(root: Path) -> None:
    ran = subprocess.run([sys.executable, "tools/results.py"], cwd=root, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
