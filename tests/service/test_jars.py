"""Fetching jars: whole or not at all, and each failure in one line. A shell script plays Java and Ivy."""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vernier.service.toolchain import ivy as ivy_program
from vernier.service.toolchain import jars, java

ROOT = Path(__file__).parents[2]


class FakeIvy:
    """A `java` that copies prepared archives to where Ivy's -retrieve pattern says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served = folder / "served"
        self.served.mkdir(parents=True)
        self.calls = folder / "calls"
        self.home = folder / "jars"

    def serve(self, name: str, content: bytes) -> str:
        """Have the next run bring this archive; returns its sha256."""
        (self.served / name).write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    def script(self, body: str) -> Path:
        """Write the program; `$out` is the folder, `$cache` the cache, `$n` counts the runs from 1."""
        path = self.folder / "java"
        path.write_text(
            f"""#!/bin/bash
echo run >> {self.calls}
n=$(wc -l < {self.calls})
while [ $# -gt 0 ]; do
  case $1 in -retrieve) out=$(dirname "$2");; -cache) cache=$2;; esac
  shift
done
bring() {{ cp {self.served}/"$1".jar "$out"/ && echo "	[SUCCESSFUL ] g#${{1%-*}};${{1##*-}}!x.jar (1ms)"; }}
{body}
""",
            encoding="utf-8",
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    @property
    def runs(self) -> int:
        """How often it was started."""
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIvy:
    """Two sets of one archive each, `one` and `two`, and an Ivy that serves them."""
    fake = FakeIvy(tmp_path)
    lock = tmp_path / "jars.lock"
    one, two = fake.serve("one-1.jar", b"1" * 100), fake.serve("two-2.jar", b"2" * 200)
    lock.write_text(f"# comment\nspark g:one:1 sha256:{one}\nkafka g:two:2 sha256:{two}\n")
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setattr(jars, "NEEDED_BYTES", 0)
    monkeypatch.setattr(ivy_program, "find_java", lambda: fake.folder / "java")
    monkeypatch.setenv("VERNIER_JARS_DIR", str(fake.home))
    fake.script("case $out in */spark) bring one-1;; */kafka) bring two-2;; esac")
    return fake


def left_over(home: Path) -> set[str]:
    """What is in the folder besides the sets."""
    return {path.name for path in home.iterdir()} - {"spark", "kafka", ".lock"}


def test_both_sets_are_fetched_once(ivy: FakeIvy) -> None:
    said: list[str] = []
    jars.fetch(said.append)
    assert jars.spark_jars() == [ivy.home / "spark" / "one-1.jar"]
    assert jars.kafka_jars() == [ivy.home / "kafka" / "two-2.jar"]
    assert said == ["jars: spark 1/1 one-1.jar", "jars: kafka 1/1 two-2.jar"]
    assert not left_over(ivy.home)
    jars.fetch()
    assert ivy.runs == 2


def test_nothing_there_says_what_to_run(ivy: FakeIvy) -> None:
    with pytest.raises(jars.JarsError, match=r"the spark jars are not in .*; run `make setup`"):
        jars.spark_jars()


def test_a_lost_or_cut_archive_is_fetched_again(ivy: FakeIvy) -> None:
    jars.fetch()
    (ivy.home / "spark" / "one-1.jar").write_bytes(b"1")
    with pytest.raises(jars.JarsError):
        jars.spark_jars()
    jars.fetch()
    (ivy.home / "kafka" / "two-2.jar").unlink()
    jars.fetch()
    assert jars.kafka_jars()[0].read_bytes() == b"2" * 200
    assert ivy.runs == 4


def test_a_broken_cache_is_emptied_once(ivy: FakeIvy) -> None:
    ivy.home.mkdir()
    (ivy.home / ".ivy").mkdir()
    (ivy.home / ".ivy" / "bad").touch()
    body = "[ -e $cache/bad ] && { echo 'problem while parsing'; exit 1; }\n"
    ivy.script(body + "case $out in */spark) bring one-1;; */kafka) bring two-2;; esac")
    said: list[str] = []
    jars.fetch(said.append)
    assert said[0] == "ivy ended with status 1: problem while parsing; trying again with an empty cache"
    assert ivy.runs == 3
    assert not left_over(ivy.home)


def test_an_archive_that_is_not_the_locked_one_is_refused(ivy: FakeIvy) -> None:
    ivy.serve("one-1.jar", b"evil")
    with pytest.raises(jars.JarsError, match=r"one-1.jar has sha256 \w{64}, service/toolchain/jars.lock wants"):
        jars.fetch()
    assert not (ivy.home / "spark").exists()
    assert ivy.runs == 2


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("java.net.UnknownHostException: repo.example", r"no network for the jars \(.*UnknownHost.*HTTPS_PROXY"),
        ("Server access error at url x (java.net.ConnectException: Connection refused)", "Connection refused"),
        ("java.io.IOException: No space left on device", "disk full: .* MB are free"),
        (":: g#one;1: not found", "does not serve g#one;1"),
    ],
)
def test_failures_are_one_line(ivy: FakeIvy, printed: str, message: str) -> None:
    ivy.script(f"echo '{printed}'; exit 1")
    with pytest.raises(jars.JarsError, match=message) as failed:
        jars.fetch()
    assert "\n" not in str(failed.value)
    assert not (left_over(ivy.home) - {".ivy"})


def test_too_little_room_is_said_before_anything_starts(ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "NEEDED_BYTES", 2**62)
    with pytest.raises(jars.JarsError, match="disk full"):
        jars.fetch()
    assert ivy.runs == 0


def test_a_fetch_that_was_killed_leaves_nothing_that_looks_whole(ivy: FakeIvy) -> None:
    # the archive is there, its stamp is not
    (ivy.home / "spark").mkdir(parents=True)
    (ivy.home / "spark" / "one-1.jar").write_bytes(b"1" * 100)
    (ivy.home / ".fetch-dead").mkdir()
    with pytest.raises(jars.JarsError):
        jars.spark_jars()
    jars.fetch()
    assert jars.spark_jars()
    assert not left_over(ivy.home)


def test_the_lock_covers_what_is_asked_for() -> None:
    for which, roots in jars.ROOTS.items():
        locked = {(jar.group, jar.artifact, jar.version) for jar in jars.locked(which)}
        assert {root[:3] for root in roots} <= locked
        assert all(len(jar.sha256) == 64 for jar in jars.locked(which))


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert jars.main(["what"]) == 2
    assert "usage" in capsys.readouterr().err


# --- java ------------------------------------------------------------------------------------------------------------


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that only tells its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No Java but those that the test makes below tmp_path."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'path' / 'bin'}:/usr/bin-none:/bin-none")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "HOMES", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setattr(java, "java_version", lambda program: versions(Path(program)))
    java.find_java.cache_clear()
    return monkeypatch


def versions(program: Path) -> int | None:
    """The version in a fake's text, without a shell on PATH to run it."""
    if not program.exists():
        return None
    number = program.read_text().split('"')[1].removeprefix("1.").split(".")[0]
    return int(number)


def test_java_home_comes_first(only: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "path", "17.0.1")
    chosen = fake_java(tmp_path / "home", "21")
    only.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.find_java() == chosen
    assert java.java_home() == tmp_path / "home"
    java.find_java.cache_clear()


def test_an_old_java_is_passed_over(only: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "path", "1.8.0_402")
    good = fake_java(tmp_path / "jvm" / "seventeen", "17.0.15")
    assert java.find_java() == good
    java.find_java.cache_clear()


def test_only_old_java_is_named(only: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = fake_java(tmp_path / "path", "11.0.2")
    with pytest.raises(java.JavaMissing, match=f"no java 17 or newer .there is java 11 at {old}.: install one"):
        java.find_java()
    assert java.main() == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_version_is_read_from_a_program_that_runs(tmp_path: Path) -> None:
    assert java.java_version(fake_java(tmp_path / "a", "1.8.0_402")) == 8
    assert java.java_version(fake_java(tmp_path / "b", "25")) == 25
    assert java.java_version(tmp_path / "missing") is None


def test_java_is_found_without_any_installed_package(root: Path) -> None:
    """Set-up looks for Java before .venv exists, so service/toolchain/java.py must need the standard library only."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); from vernier.service.toolchain import java; java.find_java()"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(root)], capture_output=True, text=True, env=dict(os.environ)
    )
    assert ran.returncode == 0, ran.stderr


def test_the_image_copies_all_that_its_jars_need(tmp_path: Path) -> None:
    """The Dockerfile fetches jars before it copies the project, so that they are not fetched again for each change."""
    step = re.compile(r"COPY (.+) app/(\S*)$")
    for line in (ROOT / "docker/Dockerfile").read_text().splitlines():
        if line.startswith("RUN cd app && ../venv/bin/python -m vernier.service.toolchain.jars"):
            break
        if copy := step.match(line):
            for file in copy[1].split():
                (tmp_path / copy[2]).mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, tmp_path / copy[2])
    else:
        pytest.fail("docker/Dockerfile has no step that fetches jars")
    imported = "import sys; sys.path.insert(0, '.'); import vernier.service.toolchain.jars"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-I", "-S", "-c", imported],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
