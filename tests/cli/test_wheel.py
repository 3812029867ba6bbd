"""The wheel in an environment of its own, without the checkout: a new program, a replay, a live service."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.live.service import free_port, wait_for
from vernier.service.toolchain import first_use, jars

FOLDERS = ("storage", "operators", "service")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "vernier.py")


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it, which finds the wheel's dependencies in ours."""
    folder = tmp_path_factory.mktemp("wheel")
    source, made, venv = folder / "source", folder / "dist", folder / "venv"
    source.mkdir()
    for name in FOLDERS:
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(root / name, source)
    uv = [str(Path(sys.executable).with_name("uv"))]
    build = ["build", "--wheel", "--offline", "--no-build-isolation", "--python", sys.executable]
    run([*uv, *build, "--out-dir", str(made), str(source)])
    run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    (wheel,) = made.glob("vernier-*.whl")
    run([*uv, "pip", "install", "--offline", "--no-deps", "--python", str(venv / "bin" / "python"), str(wheel)])
    (site,) = venv.glob("lib/python3*/site-packages")
    # only this line of it is read, not the links there: the checkout stays unknown
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.rmtree(source)
    return venv


def run(command: list[str], **more: object) -> str:
    """What a program prints; it must succeed."""
    ran = subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(ran.stdout)


@pytest.fixture
def environment(installed: Path, root: Path, tmp_path: Path) -> dict[str, str]:
    """A user's environment. Among the user's caches are the jars and the kernels of the checkout already, as after a
    first use."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VERNIER_", "NUMBA_", "PYTHON"))}
    caches = tmp_path / "caches"
    shutil.copytree(jars.jars_dir(), caches / "vernier" / "jars", copy_function=os.link)
    if (root / ".make" / "kernels").exists():
        shutil.copy(root / ".make" / "kernels", caches / "vernier" / "kernels")
    (site,) = installed.glob("lib/python3*/site-packages")
    for folder in FOLDERS:
        for compiled in (root / folder).rglob("*.nb[ic]"):
            package = compiled.parent.parent.relative_to(root)
            own = str(site / "vernier" / package)
            place = caches / "vernier" / "compiled" / f"{package.name}_{hashlib.sha1(own.encode()).hexdigest()}"
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(compiled, place)
    return {**kept, "XDG_CACHE_HOME": str(caches), "PATH": f"{installed / 'bin'}{os.pathsep}{kept['PATH']}"}


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(1200)
def test_the_wheel_runs_without_the_checkout(installed: Path, environment: dict[str, str], tmp_path: Path) -> None:
    vernier, work = str(installed / "bin" / "vernier"), tmp_path / "work"
    work.mkdir()
    where = run([str(installed / "bin" / "python"), "-c", "import vernier.service as s; print(s.__file__)"], cwd=work)
    assert where.startswith(str(installed))
    (site,) = installed.glob("lib/python3*/site-packages")
    folder = "from vernier.service.toolchain.home import import_folder as f; print(f())"
    assert run([str(installed / "bin" / "python"), "-c", folder], cwd=work).strip() == str(site)
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"dependencies.pth", "vernier"}
    assert (site / "vernier" / "py.typed").exists()

    run([vernier, "new", "totals"], cwd=work, env=environment)
    work = work / "totals"
    tested = run(
        [str(installed / "bin" / "python"), "-m", "pytest", "-p", "no:cacheprovider"], cwd=work, env=environment
    )
    assert "2 passed" in tested
    replay = [vernier, "replay", "totals.py", "--updates", "totals.jsonl", "--out", "changes.jsonl"]
    run(replay, cwd=work, env=environment)
    changes = [json.loads(line) for line in (work / "changes.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {"view": "totals", "data": [1, 1, 250], "time": 10, "diff": 1} in changes

    http, kafka = free_port(), free_port()
    words = ["--set", f"http.port={http}", "--set", f"kafka.bootstrap=127.0.0.1:{kafka}"]
    words += ["--set", "kafka.embedded=true", "--set", "state.path=state"]
    with open(work / "up.log", "wb") as log:
        up = subprocess.Popen([vernier, "up", "totals.py", *words], cwd=work, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{http}"

        def ready() -> bool:
            assert up.poll() is None, (work / "up.log").read_text("utf-8", "replace")
            return httpx.get(f"{url}/readyz").status_code == 200

        wait_for("the service", ready, 900)
        (view,) = httpx.get(f"{url}/v1/views").json()["views"]
        assert view["name"] == "totals"
        assert "<html" in httpx.get(f"{url}/").text
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
    assert not list(installed.rglob("*.nbi")), "compiled kernels belong among the user's caches"


@pytest.fixture
def nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An installed package whose `python` is a shell script."""
    monkeypatch.setattr(first_use, "checkout", lambda: None)
    monkeypatch.setattr(first_use.setup, "compiled", lambda: False)
    monkeypatch.setattr(first_use.jars, "present", lambda: False)
    monkeypatch.setattr(first_use, "cache_folder", lambda: tmp_path)

    def python(body: str) -> None:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return python


def test_a_first_use_says_what_it_does(nothing_there: Callable[[str], None], tmp_path: Path) -> None:
    said: list[str] = []
    nothing_there("echo 'kernels: 1 of 2'; echo 'kernels: 2 of 2'")
    first_use.have_kernels(said.append)
    assert said[0] == f"kernels: compiling into {tmp_path}, once; a minute or two"
    assert said[1:] == ["kernels: 1 of 2", "kernels: 2 of 2"]


def test_kernels_that_do_not_compile_at_a_first_use_are_one_line(nothing_there: Callable[[str], None]) -> None:
    nothing_there("echo 'kernels: 1 of 2'; echo 'no such processor' >&2; exit 1")
    with pytest.raises(first_use.KernelsFailed, match="the kernels do not compile: no such processor"):
        first_use.have_kernels(lambda line: None)


def test_a_checkout_has_all_from_its_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use.setup, "compiled", lambda: False)
    monkeypatch.setattr(first_use.jars, "present", lambda: False)
    said: list[str] = []
    first_use.have_kernels(said.append)
    first_use.have_jars(said.append)
    assert said == []
