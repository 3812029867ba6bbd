"""Worker processes of a replay: they end with it, and it ends with them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli import graphs
from tests.cli.command import PATIENCE, ROOT, start, vernier

WORKERS = 2


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A long replay at work, and its workers."""
    graphs.write(tmp_path / "graph.jsonl", graphs.updates(60_000))
    words = ["replay", ROOT / "tests/programs/bfs.py", "--updates", "graph.jsonl", "--out", "out.jsonl"]
    process = start(*words, "--epoch-size", 1, "--workers", WORKERS, cwd=tmp_path)
    parent = psutil.Process(process.pid)
    children: list[psutil.Process] = []
    while len(children) < WORKERS:
        assert process.poll() is None
        children = parent.children()
    yield process, children
    process.kill()
    process.communicate()
    psutil.wait_procs(children, PATIENCE)


def test_a_worker_that_dies_ends_the_replay_with_one_line(
    running: tuple[subprocess.Popen[str], list[psutil.Process]], tmp_path: Path
) -> None:
    process, children = running
    children[1].kill()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err == "vernier: worker 1 of 2 ended with status -9; perhaps the machine has too little memory\n"
    assert psutil.wait_procs(children, PATIENCE)[1] == []
    assert [path.name for path in tmp_path.iterdir()] == ["graph.jsonl"]


def test_workers_end_with_a_replay_that_is_killed(
    running: tuple[subprocess.Popen[str], list[psutil.Process]],
) -> None:
    process, children = running
    process.kill()
    process.communicate()
    assert psutil.wait_procs(children, PATIENCE)[1] == []


def test_what_a_worker_raises_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "nodes.jsonl").write_text('{"input":"nodes","data":[1],"time":1}\n')
    words = ["replay", ROOT / "tests/golden/files/endless.py", "--updates", "nodes.jsonl", "--out", "out.jsonl"]
    done = vernier(*words, "--workers", WORKERS, cwd=tmp_path)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("vernier: loop count_up did not settle: at round 10")
