"""How commands end: status, one line, silence; and what they load."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from tests.cli import graphs
from tests.cli.command import PATIENCE, ROOT, VERNIER, environment, start, vernier

BFS = ROOT / "tests/programs/bfs.py"


def _loaded(packages: set[str], arguments: list[str], folder: Path) -> str:
    """Which of the packages a command loads, and its exit status."""
    script = (
        "import sys, vernier.service.cli.main\n"
        f"status = vernier.service.cli.main.run({arguments})\n"
        f"print(sorted({packages} & set(sys.modules)), status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"numpy", "numba", "pyarrow", "pyspark", "pandas", "httpx", "kafka", "rich", "fastapi", "pydantic"}
    assert _loaded(heavy, ["replay", "--help"], tmp_path) == "[] 0"


def test_a_question_loads_no_engine(tmp_path: Path) -> None:
    asked = ["query", "paths", "--url", "http://127.0.0.1:1"]
    assert _loaded({"numba", "pyspark", "pandas", "kafka", "fastapi"}, asked, tmp_path) == "[] 1"


def test_it_is_installed_and_a_module_too(tmp_path: Path) -> None:
    installed = Path(sys.executable).with_name("vernier")
    for command in ([installed], [sys.executable, "-m", "vernier"]):
        done = subprocess.run(
            [*command, "--version"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith("vernier 0.")


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import vernier as vn\napp = vn.App('x')\nnonsense\n")
    line = "vernier: wrong.py:3: the program raised NameError: name 'nonsense' is not defined [nonsense]\n"
    plain = vernier("explain", "wrong.py", cwd=tmp_path)
    assert plain == (1, "", line)
    for words in (("--debug", "explain", "wrong.py"), ("explain", "wrong.py", "--debug")):
        told = vernier(*words, cwd=tmp_path)
        assert (told.status, told.out) == (1, "")
        assert told.err.startswith("Traceback")
        assert told.err.endswith(line)


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    process = start("explain", BFS, "--format", "json", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(PATIENCE), said) == (0, "")


@pytest.mark.parametrize(("workers", "wait"), [(1, 0.0), (2, 0.0), (2, 0.1), (2, 0.3), (2, 0.5)])
def test_control_c_ends_a_replay_quietly_and_leaves_no_file(tmp_path: Path, workers: int, wait: float) -> None:
    out = tmp_path / "out.jsonl"
    graphs.write(tmp_path / "graph.jsonl", graphs.updates(60_000))
    words = ["replay", BFS, "--updates", "graph.jsonl", "--out", out, "--epoch-size", 1, "--workers", workers]
    process = start(*words, cwd=tmp_path, start_new_session=True)
    # Its output, half done, says that it is at work.
    while not list(tmp_path.glob(".out.jsonl.*")):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
    time.sleep(wait)  # workers connect, load the program, or wait for one another in their kernels
    os.killpg(process.pid, signal.SIGINT)
    out_, err = process.communicate(timeout=PATIENCE)
    # The end of the line on which a terminal shows ^C is all there is.
    assert (process.returncode, out_, err) == (130, "", "\n")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.jsonl"]


def test_a_terminal_sees_progress_and_a_program_does_not(tmp_path: Path) -> None:
    graphs.write(tmp_path / "graph.jsonl", graphs.updates(300))
    words = ["replay", BFS, "--updates", "graph.jsonl", "--out", "out.jsonl", "--epoch-size", 1]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*VERNIER, *map(str, words)],
        cwd=tmp_path,
        env=environment({"TERM": "xterm"}),
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        pass  # the terminal's other side is closed
    os.close(ours)
    assert process.communicate(timeout=PATIENCE)[0] == b""
    assert process.returncode == 0
    assert b"replaying" in shown
    assert b"300 updates" in shown
    assert vernier(*words, cwd=tmp_path) == (0, "", "")


def test_a_plan_as_json(tmp_path: Path) -> None:
    plan = json.loads(vernier("explain", BFS, "--format", "json", cwd=tmp_path).out)
    assert plan["app"] == "bfs"
    assert {"sources", "views", "operators", "arrangements"} <= plan.keys()


def test_settings_are_shown_with_where_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("workers: 3\nhttp: {port: 1234}\n")
    words = ["up", BFS, "--config", "settings.yaml", "--set", "workers=2", "--rebuild", "--print-config"]
    lines = [line.split() for line in vernier(*words, cwd=tmp_path).out.splitlines()]
    assert ["workers", "=", "2", "#", "--set", "workers"] in lines
    assert ["http.port", "=", "1234", "#", "settings.yaml"] in lines
    assert ["state.rebuild", "=", "true", "#", "--set", "state.rebuild"] in lines
    assert ["http.host", "=", "127.0.0.1", "#", "default"] in lines


def test_new_projects_run_at_once(tmp_path: Path) -> None:
    made = vernier("new", "my-sales", cwd=tmp_path)
    folder, command = (line.strip() for line in made.out.splitlines()[2:4])
    assert folder == "cd my-sales"
    done = subprocess.run(
        command.replace("vernier", " ".join(VERNIER), 1),
        cwd=tmp_path / "my-sales",
        env=environment(),
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count('"view":"totals"') == 6
    again = vernier("new", "my-sales", cwd=tmp_path)
    assert (again.status, again.err.count("\n")) == (1, 1)


def test_the_test_of_a_new_project_passes_with_pytest(tmp_path: Path) -> None:
    vernier("new", "my-sales", cwd=tmp_path)
    known = [entry.name for entry in entry_points(group="pytest11")]
    plugin = [] if "vernier" in known else ["-p", "vernier.operators.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
    folder = tmp_path / "my-sales"
    ran = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=250)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_the_settings_and_the_compose_file_of_a_new_project_are_valid(tmp_path: Path, root: Path) -> None:
    vernier("new", "my-sales", cwd=tmp_path)
    folder = tmp_path / "my-sales"
    shown = vernier("up", "my-sales.py", "--config", "settings.yaml", "--print-config", cwd=folder)
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["kafka.embedded", "=", "true", "#", "settings.yaml"] in lines
    assert ["sources.sales.topic", "=", "sales", "#", "settings.yaml"] in lines
    mine = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))
    ours = yaml.safe_load((root / "docker" / "compose.yaml").read_text("utf-8"))["services"]
    assert mine["name"] == "my-sales"
    assert mine["services"]["kafka"] == ours["kafka"]
    service = mine["services"]["vernier"]
    assert service["command"] == ["up", "/project/my-sales.py", "--config", "/project/settings.yaml"]
    for key in ("image", "restart", "depends_on", "environment", "ports", "stop_grace_period"):
        assert service[key] == ours["vernier"][key], key
    assert set(service["volumes"]) == {".:/project:ro", *ours["vernier"]["volumes"]}
