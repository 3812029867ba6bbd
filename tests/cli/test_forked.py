"""Worker processes of a replay: they end with it, it ends with them, and their number is not seen in answers."""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli import graphs
from tests.cli.command import PATIENCE, ROOT, start, vernier
from vernier.operators.engine.program import program_of
from vernier.operators.language.collection.app import load_program
from vernier.operators.planning.planner import compile_app

WORKERS = 2


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A long replay at work, and the processes of its other workers."""
    graphs.write(tmp_path / "graph.jsonl", graphs.updates(60_000))
    words = ["replay", ROOT / "tests/programs/bfs.py", "--updates", "graph.jsonl", "--out", "out.jsonl"]
    process = start(*words, "--epoch-size", 1, "--workers", WORKERS, cwd=tmp_path)
    parent = psutil.Process(process.pid)
    children: list[psutil.Process] = []
    while len(children) < WORKERS - 1:
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
    children[0].kill()
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


FAILS = """
import vernier as vn

class Row(vn.Schema):
    key: vn.Int64

@vn.udf(returns=vn.Int64)
def checked(key):
    if {bad} in key.tolist():
        raise ValueError("this one fails")
    return key

app = vn.App("fails")
app.view("rows", app.source("rows", Row).select(key=checked(vn.col("key"))), key="key")
"""


@pytest.mark.parametrize("bad", [4, 5])
def test_a_function_that_fails_on_any_worker_ends_the_replay_with_its_words(tmp_path: Path, bad: int) -> None:
    # Worker 0 has the even rows, and worker 1 the odd ones.
    (tmp_path / "fails.py").write_text(FAILS.format(bad=bad))
    lines = [f'{{"input":"rows","data":[{key}],"time":{key},"diff":1}}\n' for key in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    done = vernier("replay", "fails.py", "--updates", "rows.jsonl", "--out", "out", "--workers", WORKERS, cwd=tmp_path)
    assert (done.status, done.out) == (1, "")
    assert "this one fails" in done.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == ["fails.py", "rows.jsonl"]


NAMES = """
import vernier as vn
from vernier import col, count

class Note(vn.Schema):
    number: vn.Int64
    text: vn.String

app = vn.App("names")
notes = app.source("notes", Note)
app.view("notes", notes, key="number")
app.view("few", notes.filter(col("number") % 50 == 0).select("number"), key="number")
app.view("counts", notes.group_by("text").agg(n=count()), key="text")
"""
NUMBERS = NAMES.replace('app.view("notes", notes,', 'app.view("notes", notes.select("number"),').replace(
    'notes.group_by("text").agg(n=count()), key="text"', 'notes.group_by(seventh=col("number") % 7).agg(n=count())'
)
LONG = "a text that is longer than fifteen bytes "


def replayed(folder: Path, program: str, updates: str, sizes: Iterable[int]) -> set[bytes]:
    """What a program gives with one, two and three workers and epochs of these sizes."""
    answers = set()
    for workers in (1, 2, 3):
        for size in sizes:
            words = ["replay", program, "--updates", updates, "--out", "out", "--epoch-size", size]
            done = vernier(*words, "--workers", workers, cwd=folder)
            assert (done.status, done.err) == (0, "")
            answers.add((folder / "out").read_bytes())
    return answers


@pytest.mark.parametrize(("program", "text"), [(NAMES, "short "), (NAMES, LONG), (NUMBERS, "short ")])
def test_small_and_large_epochs_answer_alike_with_any_number_of_workers(
    tmp_path: Path, program: str, text: str
) -> None:
    # Epochs of one update leave most workers without rows; those of 9,000 are too large for a packet, and long texts
    # never are in one. Where views have no texts, changes of slices that kernels run come with the rows of the slice.
    (tmp_path / "names.py").write_text(program)
    notes = [(number, text + str(number % 7), number // 3, 1) for number in range(12_000)]
    notes += [(number, kept, time + 9_000, -1) for number, kept, time, _ in notes[::2]]
    lines = [
        f'{{"input":"notes","data":[{number},"{kept}"],"time":{time},"diff":{diff}}}\n'
        for number, kept, time, diff in notes
    ]
    (tmp_path / "few.jsonl").write_text("".join(lines[:60]))
    (tmp_path / "many.jsonl").write_text("".join(lines))
    for file, sizes in (("few", (1, 7, 1000)), ("many", (500, 9_000))):
        answers = replayed(tmp_path, "names.py", f"{file}.jsonl", sizes)
        assert len(answers) == 1
        assert answers.pop().count(b"\n") > len(lines[:60])


PAIRS = """
import vernier as vn
from vernier import col, count

class Pair(vn.Schema):
    left: vn.Int64
    right: vn.Int64

app = vn.App("pairs")
pairs = app.source("pairs", Pair)
app.view("lefts", pairs.group_by("left").agg(n=count()), key="left")
app.view("rights", pairs.group_by("right").agg(n=count()).group_by("n").agg(m=count()), key="n")
"""
FILTERED = PAIRS.replace('app.source("pairs", Pair)', 'app.source("pairs", Pair).filter(col("left") != 3)')


@pytest.mark.parametrize(("program", "parted"), [(PAIRS, {"pairs"}), (FILTERED, set())])
def test_it_is_not_seen_which_worker_reads_the_rows(tmp_path: Path, program: str, parted: set[str]) -> None:
    # Rows that kernels part before anything else stay with worker 0 in epochs of up to 32,768.
    (tmp_path / "pairs.py").write_text(program)
    found = program_of(compile_app(load_program(tmp_path / "pairs.py")))
    assert found is not None
    assert found.parted == parted
    lines = [
        f'{{"input":"pairs","data":[{n * 7 % 1_000},{n * n % 1_009}],"time":{n // 5},"diff":{1 if n % 3 else 2}}}\n'
        for n in range(40_000)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    assert len(replayed(tmp_path, "pairs.py", "pairs.jsonl", (500, 9_000, 40_000))) == 1
