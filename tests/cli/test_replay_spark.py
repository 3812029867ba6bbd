"""Replay on Spark: the service's own epochs write the file that recompute writes, and that the local engine writes."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli import graphs
from tests.cli.command import ROOT, environment, succeed, vernier
from tests.profiles import NIGHTLY

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COUNT, FEW = 20_000, 60
BFS = ROOT / "tests/programs/bfs.py"
IN_ONE_PROCESS = """
import json, sys
from vernier.service.cli.main import run
statuses = [run(words) for words in json.load(sys.stdin)]
raise SystemExit(max(statuses))
"""


def succeed_in_one_process(commands: Sequence[Sequence[object]], folder: Path) -> None:
    """Commands one after another in one process: Java starts once, Spark anew for each."""
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS],
        cwd=folder,
        env=environment(),
        input=json.dumps([[str(word) for word in words] for words in commands]),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.timeout(900)
def test_spark_writes_the_same_file(tmp_path: Path) -> None:
    made = graphs.updates(COUNT)
    graphs.write(tmp_path / "all.jsonl", made)
    graphs.write(tmp_path / "few.jsonl", made[:FEW])
    full = [("all", 1_000, 2), ("all", 20_000, 1)]
    short = [("few", 1, 2), ("few", 10, 1)]
    if NIGHTLY:
        full += [("all", 1_000, 1), ("all", 20_000, 2)]
        short += [("few", 1, 1), ("few", 10, 2)]
    outs = {run: tmp_path / "spark-{}-{}-{}.jsonl".format(*run) for run in [*full, *short]}
    start = ["replay", BFS, "--engine", "spark"]
    commands = [
        [*start, "--updates", f"{name}.jsonl", "--out", out, "--epoch-size", size, "--workers", workers]
        for (name, size, workers), out in outs.items()
    ]
    succeed_in_one_process(commands, tmp_path)
    local = tmp_path / "local-few.jsonl"
    succeed([["replay", BFS, "--updates", "few.jsonl", "--out", local, "--epoch-size", 3]], tmp_path)
    expected = {"all": graphs.change_file(made, graphs.bfs), "few": graphs.change_file(made[:FEW], graphs.bfs)}
    assert local.read_text() == expected["few"]
    for run, out in outs.items():
        assert out.read_text() == expected[run[0]], "{}: epochs of {} with {} workers".format(*run)


def test_the_state_is_kept_where_it_is_wanted_and_begins_with_nothing(tmp_path: Path) -> None:
    made = graphs.updates(100)
    graphs.write(tmp_path / "u.jsonl", made)
    words = ["replay", BFS, "--updates", "u.jsonl", "--out", "out.jsonl", "--engine", "spark", "--state", "kept"]
    done = vernier(*words, "--epoch-size", 50, cwd=tmp_path)
    assert (done.status, done.out, done.err) == (0, "", "")
    assert (tmp_path / "out.jsonl").read_text() == graphs.change_file(made, graphs.bfs)
    listed = vernier("state", "list", "kept", cwd=tmp_path)
    assert "kept: app bfs, epoch 2 of 1 workers" in listed.out.splitlines()[0]
    assert vernier("state", "verify", "kept", cwd=tmp_path).status == 0
    again = vernier(*words, cwd=tmp_path)
    assert (again.status, again.err.count("\n")) == (1, 1)
    assert again.err == (
        "vernier: state directory kept contains epoch 2 already; a replay starts empty: give it a new directory\n"
    )


def test_a_program_that_cannot_go_on_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "u.jsonl").write_text('{"input":"nodes","data":[1],"time":1}\n')
    program = ROOT / "tests/golden/files/endless.py"
    done = vernier("replay", program, "--updates", "u.jsonl", "--out", "out.jsonl", "--engine", "spark", cwd=tmp_path)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert "loop count_up did not settle: at round 10" in done.err
    assert not (tmp_path / "out.jsonl").exists()
