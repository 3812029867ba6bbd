"""Replay against recompute: whatever the epochs and workers, the same file, and the right one."""

import json
from pathlib import Path

import pytest

from tests.cli import graphs
from tests.cli.command import ROOT, succeed, vernier
from tests.profiles import NIGHTLY

COUNT = 20_000
EPOCHS = (1, 10, 1_000, 20_000)
WORKERS = (1, 2)
PROGRAMS = {"reachability": graphs.reachability, "bfs": graphs.bfs}


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the updates, graph.jsonl."""
    folder = tmp_path_factory.mktemp("moving")
    graphs.write(folder / "graph.jsonl", graphs.updates(COUNT))
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", PROGRAMS)
def test_any_epochs_and_workers_write_the_file_that_recompute_writes(moving: Path, program: str) -> None:
    made = graphs.updates(COUNT)
    # Except nightly, each number of workers has each program with every other size, and each size with one program.
    first = list(PROGRAMS).index(program)
    runs = [
        (size, workers)
        for i, size in enumerate(EPOCHS)
        for j, workers in enumerate(WORKERS)
        if NIGHTLY or (first + i + j) % 2 == 0
    ]
    outs = {run: moving / "{}-{}-{}.jsonl".format(program, *run) for run in runs}
    start = ["replay", ROOT / f"tests/programs/{program}.py", "--updates", moving / "graph.jsonl"]
    commands = [
        [*start, "--out", out, "--epoch-size", size, "--workers", workers] for (size, workers), out in outs.items()
    ]
    succeed(commands, moving)
    expected = graphs.change_file(made, PROGRAMS[program])
    assert expected.count("\n") > COUNT / 2
    for run, out in outs.items():
        assert out.read_text() == expected, f"epochs of {run[0]} with {run[1]} workers"


def test_stats_tell_what_it_took(moving: Path) -> None:
    program = ROOT / "tests/programs/bfs.py"
    few = moving / "few.jsonl"
    made = graphs.updates(300)
    graphs.write(few, made)
    out = moving / "few.out.jsonl"
    done = vernier("replay", program, "--updates", few, "--out", out, "--epoch-size", 100, "--stats", cwd=moving)
    assert (done.status, done.err) == (0, "")
    stats = json.loads(done.out)
    times = sorted(update.time for update in made)
    cuts = {times[k] for k in (99, 199, 299)}
    assert (stats["updates"], stats["engine"], stats["workers"]) == (300, "local", 1)
    assert 1 < stats["epochs"] <= len(cuts)
    assert stats["changes"] == out.read_text().count("\n")
    assert stats["seconds"] > 0
    assert stats["peak_memory_bytes"] > 1 << 20
    assert stats["state_bytes"] > 1 << 10
    assert stats["seconds"] == pytest.approx(
        stats["read_seconds"] + stats["epoch_seconds"] + stats["write_seconds"], abs=1e-5
    )


def test_views_are_chosen(moving: Path) -> None:
    few = moving / "chosen.jsonl"
    graphs.write(few, graphs.updates(200))
    program = ROOT / "tests/programs/bfs.py"
    everything, one = moving / "all.jsonl", moving / "one.jsonl"
    succeed([["replay", program, "--updates", few, "--out", everything]], moving)
    succeed([["replay", program, "--updates", few, "--out", one, "--view", "histogram"]], moving)
    lines = everything.read_text().splitlines(keepends=True)
    assert one.read_text() == "".join(line for line in lines if line.startswith('{"view":"histogram"'))
    assert one.read_text() != everything.read_text()


def test_two_files_are_one_set_of_updates(moving: Path) -> None:
    made = graphs.updates(400)
    graphs.write(moving / "odd.jsonl", made[1::2])
    graphs.write(moving / "even.jsonl", made[0::2])
    program, out = ROOT / "tests/programs/reachability.py", moving / "both.jsonl"
    files = ["--updates", moving / "odd.jsonl", "--updates", moving / "even.jsonl"]
    succeed([["replay", program, *files, "--out", out, "--epoch-size", 7]], moving)
    assert out.read_text() == graphs.change_file(made, graphs.reachability)


def test_no_updates_make_no_changes(moving: Path) -> None:
    (moving / "empty.jsonl").write_text("")
    out = moving / "empty.out.jsonl"
    program = ROOT / "tests/programs/bfs.py"
    done = vernier("replay", program, "--updates", moving / "empty.jsonl", "--out", out, cwd=moving)
    assert (done.status, done.out) == (0, "")
    assert done.err.strip().endswith("empty.jsonl has no updates in it")
    assert out.read_bytes() == b""
