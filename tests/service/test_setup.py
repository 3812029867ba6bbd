"""The parts of `make setup` that can be tried without a second environment."""

import importlib.metadata
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from service import setup


def lock(folder: Path, *lines: str) -> Path:
    """A lock file of these lines."""
    path = folder / "requirements.lock"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_this_environment_is_that_of_the_lock() -> None:
    assert setup.missing_packages() == []


def test_packages_that_are_missing_or_other(tmp_path: Path) -> None:
    version = importlib.metadata.version("click")
    path = lock(
        tmp_path,
        f"click=={version} \\",
        "    --hash=sha256:0",
        "no-such-package==1.0 \\",
        "pytest==0.1 ; python_version >= '3'",
        "colorama==0.4 ; sys_platform == 'never' \\",
        "# via click",
    )
    assert setup.missing_packages(path) == [
        "no-such-package is missing",
        f"pytest is {pytest.__version__} instead of 0.1",
    ]


def test_lost_files_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    info = site / "thing-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: thing\nVersion: 1\n")
    (info / "RECORD").write_text("thing/__init__.py,sha256=x,1\nthing-1.dist-info/METADATA,,\n../../bin/thing,,\n")
    monkeypatch.syspath_prepend(str(site))
    path = lock(tmp_path, "thing==1")
    assert setup.missing_packages(path) == ["thing has lost thing"]
    (site / "thing").mkdir()
    assert setup.missing_packages(path) == []


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one kernel; `warm` writes a line to the file `warmed`."""
    kernel = tmp_path / "storage" / "kernels" / "k.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("from numba import njit\n")
    (tmp_path / "storage" / "plain.py").write_text("# numba is only spoken of\n")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "STAMP", tmp_path / ".make" / "kernels")
    warm = types.ModuleType("service.warm")

    def warmed(report: Callable[[str], None]) -> None:
        report("all")
        with open(tmp_path / "warmed", "a", encoding="utf-8") as file:
            file.write("x")

    warm.__dict__["warm"] = warmed
    monkeypatch.setitem(sys.modules, "service.warm", warm)
    return tmp_path


def test_kernels_are_compiled_after_an_edit_only(tree: Path) -> None:
    assert setup.kernel_sources() == [tree / "storage" / "kernels" / "k.py"]
    cache = tree / "storage" / "kernels" / "__pycache__" / "k.f.nbi"
    cache.parent.mkdir()
    cache.touch()
    said: list[str] = []
    assert setup.kernels(say=said.append) > 0
    assert said == ["kernels: all"]
    assert setup.kernels() == 0
    (tree / "storage" / "plain.py").write_text("# changed\n")
    assert setup.kernels() == 0
    (tree / "storage" / "kernels" / "k.py").write_text("from numba import njit  # changed\n")
    assert setup.kernels() > 0
    assert cache.exists()  # numba itself sees what an edit concerns
    assert setup.kernels(force=True) > 0
    assert not cache.exists()
    assert (tree / "warmed").read_text() == "xxx"


def test_kernels_that_do_not_compile_are_tried_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(report: Callable[[str], None]) -> None:
        raise TypeError("no")

    monkeypatch.setattr(sys.modules["service.warm"], "warm", broken)
    for _ in range(2):
        with pytest.raises(TypeError):
            setup.kernels()


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["what"]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_python_that_is_no_good_is_one_line(root: Path) -> None:
    ran = subprocess.run(
        [root / "tools" / "setup.sh"], capture_output=True, text=True, env={**os.environ, "PYTHON": "/no/python"}
    )
    assert ran.returncode == 1
    assert ran.stderr == "setup: PYTHON=/no/python is not a python 3.11 or newer that runs\n"


def test_no_java_is_one_line(root: Path, tmp_path: Path) -> None:
    """A PATH with what the script needs and an old Java, JAVA_HOME pointing to it."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", encoding="utf-8")
    old.chmod(0o755)
    environment = {**os.environ, "PYTHON": sys.executable, "JAVA_HOME": str(tmp_path)}
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from service import java; java.HOMES = (); sys.exit(java.main())",
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd=root,
    )
    if ran.returncode == 0:
        pytest.skip("a good java is on PATH, too")
    assert ran.stderr.startswith("no java 17 or newer (there is java 11 at ")
    assert len(ran.stderr.splitlines()) == 1


def test_the_project_keeps_no_address_of_a_registry(root: Path) -> None:
    for name in ("requirements.lock", "service/jars.lock"):
        assert "://" not in (root / name).read_text(encoding="utf-8")
