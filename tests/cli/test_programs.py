"""`vernier programs`: who has joined, who could not, from the outside."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.command import ROOT, Done, vernier
from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.conftest import VIEWS
from vernier.service.cli.main import run as command
from vernier.service.config.programs import Program, Registry
from vernier.storage.blob.location import BlobLocation

TEXT = """
import vernier as vn

class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64

app = vn.App("degrees")
edges = app.source("edges", Edge)
app.view("degrees", edges.group_by("src").agg(n=vn.count()), key=["src"])
"""


def run(*words: object) -> Done:
    """The command, wherever it is run."""
    return vernier(*words, cwd=ROOT)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with an epoch."""
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(10)
    builder.close()
    return builder.path


def test_a_program_joins_and_leaves(state: Path, tmp_path: Path) -> None:
    program = tmp_path / "degrees.py"
    program.write_text(TEXT, "utf-8")
    where = ("--state", str(state))
    assert run("programs", "list", *where).out == ""
    joined = run("programs", "add", str(program), *where)
    assert (joined.status, joined.out.startswith("degrees joins")) == (0, True)
    assert run("programs", "list", *where).out == "degrees\n"
    assert "has joined this service already" in run("programs", "add", str(program), *where).err
    registry = Registry(BlobLocation(str(state)).open())
    assert [one.text for one in registry.joined()] == [TEXT]
    registry.refuse(registry.joined()[0], "it needs the past")
    assert run("programs", "list", *where).out == "degrees: refused: it needs the past\n"
    assert run("programs", "remove", "degrees", *where).status == 0
    assert run("programs", "list", *where).out == ""
    gone = run("programs", "remove", "degrees", *where)
    assert (gone.status, gone.err.strip()) == (
        1,
        "vernier: program 'degrees' has not joined this service (joined programs: none)",
    )


def test_a_wrong_program_is_told_at_once(state: Path, tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(TEXT.replace('"src").agg', '"scr").agg'), "utf-8")
    answer = run("programs", "add", str(program), "--state", str(state))
    assert answer.status == 1
    assert "did you mean 'src'" in answer.err
    assert Registry(BlobLocation(str(state)).open()).joined() == []
    nowhere = run("programs", "list", "--state", str(tmp_path / "nowhere"))
    assert nowhere.status == 1


def test_a_program_may_stand_beside_its_helpers(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("KEY = 'src'\n", "utf-8")
    program = tmp_path / "degrees.py"
    program.write_text(
        TEXT.replace('group_by("src")', "group_by(KEY)").replace(
            "import vernier", "from helper import KEY\nimport vernier"
        ),
        "utf-8",
    )
    assert Program.of(program).load().name == "degrees"


def test_add_can_wait_until_its_views_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "degrees.py"
    program.write_text(TEXT, "utf-8")
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(10)
    where = ["--state", str(builder.path), "--wait"]
    registry = Registry(BlobLocation(str(builder.path)).open())
    assert command(["programs", "add", str(program), *where, "0"]) == 1
    assert "program 'degrees' did not join within 0 s: no epoch has its views yet" in capsys.readouterr().err
    registry.remove("degrees")

    def sleeping(then: Callable[[float], None]) -> None:
        """The command's own sleep does this. Other threads of the process sleep as they do."""
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=then)
        monkeypatch.setattr("vernier.service.config.programs.time", clock)

    def refuse(_: float) -> None:
        registry.refuse(registry.joined()[0], "it needs the past")

    sleeping(refuse)
    assert command(["programs", "add", str(program), *where, "60"]) == 1
    assert capsys.readouterr().err == "vernier: program 'degrees' cannot join: it needs the past\n"

    def join(_: float) -> None:
        builder.views["degrees"] = row_type(src="Int64", n="Int64"), ["src"]
        builder.traces["degrees"], builder.since["degrees"] = [[]], 0
        builder.commit(20)

    sleeping(join)
    assert command(["programs", "add", str(program), *where, "60"]) == 0
    assert capsys.readouterr().out == "degrees has joined with epoch 2\n"
    builder.close()


def test_a_program_that_is_not_there_is_one_line(state: Path, tmp_path: Path) -> None:
    answer = run("programs", "add", str(tmp_path / "nothing.py"), "--state", str(state))
    assert answer.status == 1
    assert answer.err == f"vernier: the program {tmp_path}/nothing.py cannot be read: no such file or directory\n"
