"""Golden files: a command, `----`, and what it answers. `make golden` writes the answers anew; review reads the diff.

Standard output comes as it is, standard error with `! ` before each line, and a status other than 0 as `= 1`.
"""

import contextlib
import io
import shlex
import shutil
from pathlib import Path

import pytest

from vernier.service.cli.main import run

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "programs"
FILES = sorted(HERE.glob("*.txt"))


def answer(command: str) -> str:
    """What a command says."""
    words = shlex.split(command)
    if words[0] == "cat":
        return "".join(Path(name).read_text() for name in words[1:])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(words[1:])
    said = out.getvalue() + "".join(f"! {line}".rstrip() + "\n" for line in err.getvalue().splitlines())
    return said + (f"= {status}\n" if status else "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_golden(file: Path, tmp_path: Path, clean_environment: pytest.MonkeyPatch, update_golden: bool) -> None:
    for source in [*PROGRAMS.glob("*.py"), *(HERE / "files").iterdir()]:
        if source.is_file():
            shutil.copy(source, tmp_path)
    clean_environment.chdir(tmp_path)
    clean_environment.setenv("COLUMNS", "100")
    expected = file.read_text()
    commands = [line.removeprefix("$ ") for line in expected.splitlines() if line.startswith("$ ")]
    found = "\n".join(f"$ {command}\n----\n{answer(command)}" for command in commands)
    if update_golden:
        file.write_text(found)
    assert found == expected
