"""The parts of `make setup` that can be tried without a second environment."""

import importlib.metadata
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.service.toolchain import install, packages, setup


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
    assert setup.missing_packages(path) == ["thing lacks thing"]
    (site / "thing").mkdir()
    assert setup.missing_packages(path) == []


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one kernel; compiling writes a letter to the file `compiled`."""
    kernel = tmp_path / "storage" / "kernels" / "k.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("from numba import njit\n")
    (tmp_path / "storage" / "plain.py").write_text("# numba is only spoken of\n")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "STAMP", tmp_path / ".make" / "kernels")
    warm = types.ModuleType("vernier.service.cluster.precompile")

    def prepare(report: Callable[[str], None]) -> int:
        report("all")
        with open(tmp_path / "compiled", "a", encoding="utf-8") as file:
            file.write("x")
        return 1

    warm.__dict__["prepare"] = prepare
    monkeypatch.setitem(sys.modules, "vernier.service.cluster.precompile", warm)
    return tmp_path


def test_kernels_are_compiled_after_an_edit_or_for_another_processor_only(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (tree / "compiled").read_text() == "xxx"
    # As on another machine, to which the tree was copied.
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert setup.kernels() > 0
    assert setup.kernels() == 0


def test_kernels_that_do_not_compile_are_tried_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(report: Callable[[str], None]) -> int:
        raise RuntimeError("no")

    monkeypatch.setattr(sys.modules["vernier.service.cluster.precompile"], "prepare", broken)
    for _ in range(2):
        with pytest.raises(RuntimeError):
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
            "import sys; from vernier.service.toolchain import java; java.HOMES = (); sys.exit(java.main())",
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


def test_this_environment_is_one_to_run_in() -> None:
    assert install.broken("run") == ""


def test_an_environment_to_run_in_lacks_the_tools_of_developers() -> None:
    run, every = (install.locks(group)[0].read_text(encoding="utf-8") for group in ("run", "dev"))
    names = set(re.findall(r"^([A-Za-z0-9._-]+)==", run, re.MULTILINE))
    assert {"numba", "pyspark", "setuptools", "packaging"} <= names
    assert not names & {"pytest", "mypy", "ruff", "uv"}
    assert all(f"\n{name}==" in f"\n{every}" for name in names)


def test_entries_of_a_lock_keep_their_hashes(tmp_path: Path) -> None:
    path = lock(
        tmp_path, "uv==1 \\", "    --hash=sha256:a \\", "    --hash=sha256:b", "uvicorn==2 \\", "    --hash=sha256:c"
    )
    assert packages.block(path, ["uv"]) == "uv==1 \\\n    --hash=sha256:a \\\n    --hash=sha256:b\n"
    assert packages.block(path, ["uv"], but=True) == "uvicorn==2 \\\n    --hash=sha256:c\n"


def test_what_pip_is_configured_with_goes_to_uv(tmp_path: Path) -> None:
    listing = f"""\
:env:.index-url='https://env.example/simple'
:env:.default-timeout='180'
global.cert='/a/ca.pem'
global.index-url='https://file.example/simple'
global.proxy='proxy.example:3128'
global.trusted-host='one.example two.example'
install.extra-index-url='https://more.example/simple\\nhttps://again.example/simple'
install.find-links='{tmp_path} /no/such/folder'
freeze.timeout='3'
no equals sign
"""
    options = packages.pip_options(listing)
    assert packages.uv_environment(options, {}) == {
        "UV_DEFAULT_INDEX": "https://env.example/simple",
        "UV_INDEX": "https://more.example/simple https://again.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": str(tmp_path),
        "UV_INSECURE_HOST": "one.example two.example",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/a/ca.pem",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HTTP_PROXY": "http://proxy.example:3128",
    }
    own = {"UV_INDEX_URL": "https://mine.example", "SSL_CERT_FILE": "/b.pem", "https_proxy": "x", "HTTP_PROXY": "y"}
    passed = packages.uv_environment(options, own)
    assert not passed.keys() & {"UV_DEFAULT_INDEX", "SSL_CERT_FILE", "HTTPS_PROXY", "HTTP_PROXY"}


@pytest.mark.parametrize(
    ("printed", "message", "another"),
    [
        (
            "error: Failed\n  Caused by: Hash mismatch for `click==8`\n",
            r"not the one in requirements.lock: click==8",
            False,
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES from f",
            r"a package is not the one in requirements.lock",
            False,
        ),
        ("error: write failed: No space left on device (os error 28)", r"disk full while installing: \d+ MB", False),
        ("  Caused by: client error (Connect)\n  Caused by: dns error: no such", r"no network for pip: check", True),
        ("error: invalid peer certificate: UnknownIssuer", r"no network for pip: check", True),
        ("× No solution found\n╰─▶ because it has no wheel", r"packages cannot be installed: ╰─▶ because", True),
        ("", r"packages cannot be installed: no output", True),
    ],
)
def test_failures_of_an_installer_are_one_line(root: Path, printed: str, message: str, another: bool) -> None:
    found = packages.explain(printed, root / ".make" / "uv.log")
    assert re.search(message, str(found))
    assert "\n" not in str(found)
    assert isinstance(found, packages.PackagesError) == another


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], packages.Installer]:
    """An installer whose uv is a script, and whose `.venv` has a python that writes its arguments to `python`."""
    (tmp_path / "make").mkdir()
    monkeypatch.setattr(packages, "MAKE", tmp_path / "make")
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    monkeypatch.setattr(packages, "PYTHON", program(tmp_path / "python", f'echo "$@" >> {tmp_path}/asked'))

    def made(body: str) -> packages.Installer:
        said: list[str] = []
        one = packages.Installer(sys.executable, packages.Commands(), say=said.append)
        one.uv = program(tmp_path / "uv", body)
        one.__dict__["said"] = said
        return one

    return made


def program(path: Path, body: str) -> Path:
    """A shell script that can be run."""
    path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_pip_goes_on_where_uv_cannot(uv: Callable[[str], packages.Installer], tmp_path: Path) -> None:
    path = lock(tmp_path, "click==1 \\", "    --hash=sha256:a", "pyspark==2 \\", "    --hash=sha256:b")
    installer = uv("echo 'error: tcp connect error' >&2; exit 2")
    installer.wheels(path)
    (said,) = installer.__dict__["said"]
    assert said.startswith("uv failed (no network for pip: ")
    assert installer.uv is None
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert "--require-hashes" in asked[-1]
    assert (tmp_path / "make" / f"wheels-{path.name}").read_text(encoding="utf-8").startswith("click==1")


def test_a_package_that_is_not_the_locked_one_is_not_tried_with_pip(
    uv: Callable[[str], packages.Installer], tmp_path: Path
) -> None:
    installer = uv("echo '  Caused by: Hash mismatch for `click==1`'; exit 1")
    with pytest.raises(packages.SetupError, match=r"not the one in requirements\.lock: click==1"):
        installer.wheels(lock(tmp_path, "click==1"))
    assert not (tmp_path / "asked").exists()


def test_when_one_part_fails_the_others_end(tmp_path: Path) -> None:
    commands, started = packages.Commands(), threading.Event()
    command = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
    ended: list[BaseException] = []

    def run() -> None:
        try:
            commands.run(command, tmp_path / "log", lambda line: started.set())
        except packages.Stopped as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    commands.end()
    thread.join(60)
    assert len(ended) == 1
    with pytest.raises(packages.Stopped):
        commands.run(command, tmp_path / "log")


def test_the_board_tells_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    board = install.Board(("packages", "kernels"))
    board.tell("kernels", "12 of 177")
    board.done("packages")
    board.done("kernels")
    said = [re.sub(r"^setup: +\d+ s, ", "", line) for line in capsys.readouterr().out.splitlines()]
    assert said == ["packages done; left: kernels 12 of 177", "kernels done; all done"]


def test_the_project_keeps_no_address_of_a_registry(root: Path) -> None:
    for name in ("requirements.lock", "service/toolchain/jars.lock"):
        assert "://" not in (root / name).read_text(encoding="utf-8")
