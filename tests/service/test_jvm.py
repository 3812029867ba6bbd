"""How JVMs are started: with Spark's own options, with the archive that fits, or by Spark's own launcher."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vernier.service.config.settings import load
from vernier.service.toolchain import jvm


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A class path of two files, and a folder of archives of its own."""
    monkeypatch.setattr(jvm, "cache_folder", lambda: tmp_path / "caches")
    monkeypatch.delenv(jvm.RECORD, raising=False)
    paths = [tmp_path / "one.jar", tmp_path / "two.jar"]
    for path in paths:
        path.write_bytes(b"x")
    return paths


def test_an_archive_belongs_to_one_class_path(jars: list[Path]) -> None:
    first = jvm.archive("spark", jars)
    assert jvm.archive("spark", jars) == first
    assert jvm.archive("spark", jars[::-1]) != first
    jars[0].write_bytes(b"xy")
    assert jvm.archive("spark", jars) != first


def test_archives_are_used_where_there_are_some_and_recorded_on_request(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jvm.class_data("kafka", jars) == []
    wanted = jvm.archive("kafka", jars)
    monkeypatch.setenv(jvm.RECORD, "1")
    assert f"-XX:ArchiveClassesAtExit={wanted.with_suffix('.new')}" in jvm.class_data("kafka", jars)
    assert jvm.class_data("kafka", jars, record=False) == []
    monkeypatch.delenv(jvm.RECORD)
    wanted.touch()
    assert f"-XX:SharedArchiveFile={wanted}" in jvm.class_data("kafka", jars)


@pytest.mark.parametrize(
    "flags",
    [
        {"spark.master": "spark://host:7077"},
        {"spark.master": "local-cluster[2,1,1024]"},
        {"spark.conf": {"spark.driver.extraJavaOptions": "-Dmine=1"}},
        {"spark.conf": {"spark.jars.packages": "a:b:1"}},
    ],
)
def test_what_only_sparks_launcher_understands_is_left_to_it(flags: dict[str, object], tmp_path: Path) -> None:
    before = dict(os.environ)
    try:
        assert jvm.launch_java(load(None, flags, {}).settings, tmp_path) is None
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_people_with_a_spark_of_their_own_keep_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jvm, "prepare_environment", lambda settings: None)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert jvm.launch_java(load(None, {}, {}).settings, tmp_path) is None


def test_a_command_line_that_is_wrong_launches_nothing() -> None:
    assert jvm.early(["--set", "no.such.key=1"]) is None
    assert jvm.early(["--config", "no/such/file.yaml"]) is None


@pytest.mark.spark
def test_the_jvm_has_what_spark_wants_of_java(tmp_path: Path) -> None:
    from vernier.service.coordinator.session import start_session

    session = start_session(load(None, {"state.path": str(tmp_path)}, {}).settings, "options", tmp_path)
    java = session.sparkContext._jvm
    assert java is not None
    wanted = list(java.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptionArray())
    # the vector module serves Spark's machine learning alone
    wanted.remove("--add-modules=jdk.incubator.vector")
    assert wanted == jvm.MODULES
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ
    session.stop()


def test_ctrl_c_and_the_signal_of_set_up_end_the_archives_in_order(tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches the process, and set-up terminates it, too: its `finally` blocks run once, whole."""
    code = (
        "import threading, sys\n"
        "from pathlib import Path\n"
        "from vernier.service.supervision import class_archives as archives\n"
        "def make(say):\n"
        "    try:\n"
        "        print('begun', flush=True)\n"
        "        threading.Event().wait()\n"
        "    finally:\n"
        "        print('ending', flush=True)\n"
        "        sys.stdin.readline()\n"
        "        print('ended', flush=True)\n"
        "archives.make = make\n"
        "sys.exit(archives.main([]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "ended\n"
        assert process.wait(10) == 1
    finally:
        process.kill()
        process.wait()
