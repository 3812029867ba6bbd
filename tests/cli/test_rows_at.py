"""`replay --rows-at`: what a view holds at a data time is what its changes up to then add up to."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.cli import graphs
from tests.cli.command import ROOT, vernier
from vernier.service.replay.replay import Account, Request, replay

TEXTS = """
import vernier as vn

class Note(vn.Schema):
    number: vn.Int64
    name: vn.String
    at: vn.TimestampNs | None

app = vn.App("notes")
app.view("notes", app.source("notes", Note), key=["name", "number"])
"""
LONG = "a name of this length is longer than what words hold: "


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows_at") / "graph.jsonl"
    graphs.write(file, graphs.updates(400))
    return file


def run(updates: Path, at: int, out: Path | None, epoch_size: int = 25) -> Account:
    program = ROOT / "tests/programs/bfs.py"
    return replay(Request(program, [updates], out, epoch_size=epoch_size, rows_at=at))


def test_rows_are_the_sum_of_the_changes_up_to_their_time(updates: Path, tmp_path: Path) -> None:
    out = tmp_path / "changes.jsonl"
    times = sorted({update.time for update in graphs.updates(400)})
    for at in (times[0] - 1, times[0], times[len(times) // 2], times[-1] - 1, times[-1] + 10**18):
        found = run(updates, at, out).found
        assert found is not None
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        for view in ("distances", "histogram"):
            held: Counter[tuple[int, ...]] = Counter()
            for line in lines:
                if line["view"] == view and line["time"] <= at:
                    held[tuple(line["data"])] += line["diff"]
            expected = sorted(row for row, count in held.items() if count)
            assert [tuple(row.values()) for row in found.rows(view)] == expected
            assert set(held.values()) <= {0, 1}


def test_without_a_change_file_nothing_behind_the_time_is_run(updates: Path, tmp_path: Path) -> None:
    times = sorted(update.time for update in graphs.updates(400))
    part, whole = run(updates, times[50], None), run(updates, times[50], tmp_path / "changes.jsonl")
    assert part.epochs < whole.epochs / 4
    assert part.found is not None
    assert whole.found is not None
    assert part.found.rows("distances") == whole.found.rows("distances")
    assert "found" not in part.to_json()


@pytest.mark.parametrize("workers", [1, 2])
def test_long_texts_nulls_and_multiplicities(tmp_path: Path, workers: int) -> None:
    (tmp_path / "notes.py").write_text(TEXTS)
    rows = [[3, f"{LONG}b", 17], [2, f"{LONG}a", None], [1, "short", 5]]
    lines = [{"data": row, "time": n, "diff": 1 + n} for n, row in enumerate(rows)]
    lines.append({"data": rows[2], "time": 9, "diff": -3})
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("replay", "notes.py", "--updates", "notes.jsonl", "--epoch-size", 1, "--workers", workers, "--rows-at")
    done = vernier(*words, 8, cwd=tmp_path)
    assert (done.status, done.err) == (0, "(3 rows of notes as of 8)\n")
    wide = len(LONG) + 1
    assert done.out.splitlines() == [
        f"number  {'name':{wide}}  at    _diff",
        f"     2  {LONG}a  null      2",
        f"     3  {LONG}b  17        1",
        f"     1  {'short':{wide}}  5         3",
    ]
    assert vernier(*words, 9, cwd=tmp_path).out.splitlines()[-1].endswith(f"{LONG}b  17        1")
