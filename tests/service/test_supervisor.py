"""The supervisor's parts: processes that do not outlive it, that come back, and one line for what cannot start."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from vernier.service.config.settings import load
from vernier.service.errors import DiskTooSmall, ProcessFailed, TakenPort
from vernier.service.supervision.child import Child
from vernier.service.supervision.parent_watch import PATIENCE_SECONDS, command
from vernier.service.supervision.supervisor import STOP_SECONDS, Supervisor, check_port, up
from vernier.storage.errors import FileFailed, StateInUse, VernierError
from vernier.storage.state.state import StateDirectory

PATIENCE = 60
SLEEPER = """
import time, pathlib, sys
print('sleeper: here', flush=True)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
HOARDER = """
import gc, time
print("enabled" if gc.isenabled() else "disabled", flush=True)
while not gc.isenabled():
    time.sleep(0.01)
print("enabled", "frozen" if gc.get_freeze_count() > 1000 else "free", flush=True)
before, kept = gc.get_freeze_count(), [[] for _ in range(1000)]
while gc.get_freeze_count() < before + 1000:
    time.sleep(0.01)
print("frozen", flush=True)
"""
PARENT = """
import subprocess, sys, time
print(subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE).pid, flush=True)
time.sleep(600)
"""


STUBBORN = """
import signal, pathlib, sys, time
signal.signal(signal.SIGTERM, lambda *_: print('stubborn: asked', flush=True))
pathlib.Path(sys.argv[1]).touch()
while True:
    time.sleep(600)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules child processes can run."""
    (tmp_path / "sleeper.py").write_text(SLEEPER, "utf-8")
    (tmp_path / "stubborn.py").write_text(STUBBORN, "utf-8")
    (tmp_path / "failer.py").write_text("import sys\nsys.exit('failer: there is no bread')\n", "utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


@pytest.fixture
def sleeper(modules: Path) -> Iterator[Child]:
    """A child that is ready when it has made a file."""
    mark = modules / "ready"
    child = Child("sleeper", "sleeper", [str(mark)], modules / "sleeper.log", mark.exists, stop_seconds=10)
    yield child
    child.stop()


def until(true: object, child: Child, said: list[str]) -> None:
    """Look after the child until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, said
        child.look(said.append)
        threading.Event().wait(0.02)


@pytest.fixture
def stubborn(modules: Path) -> Iterator[Child]:
    """A child that does not stop when it is asked to."""
    mark = modules / "ready"
    child = Child("stubborn", "stubborn", [str(mark)], modules / "stubborn.log", mark.exists)
    until(lambda: child.was_ready, child, [])
    yield child
    child.stop(0)


def test_a_process_that_takes_long_to_start_is_mentioned(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vernier.service.supervision.child.WORD_SECONDS", 0.1)
    mark = modules / "mark"
    child = Child("late", "sleeper", [str(mark)], modules / "late.log", (modules / "ready").exists, stop_seconds=10)
    child.until_ready = f"bread is baked; its log is {child.log}"
    said: list[str] = []
    try:
        until(lambda: len(said) >= 3, child, said)
        assert said[0] == "late: starting"
        assert said[1].startswith("late: not ready yet after 0 s: bread is baked; its log is "), said
        (modules / "ready").touch()
        until(lambda: child.was_ready, child, said)
        assert said[-1] == "late: ready"
    finally:
        child.stop()


def test_what_dies_comes_back(sleeper: Child) -> None:
    said: list[str] = []
    gone: list[bool] = []
    until(lambda: sleeper.was_ready, sleeper, said)
    assert sleeper.process is not None
    first = sleeper.process.pid
    sleeper.ended = lambda: gone.append(not psutil.pid_exists(first))
    sleeper.process.kill()
    until(lambda: sleeper.process is not None and sleeper.process.pid != first and sleeper.running, sleeper, said)
    assert any("killed by SIGKILL, restarting" in line and "sleeper: here" in line for line in said)
    until(lambda: "ready again, " in said[-1], sleeper, said)
    assert gone == [True], "what it held is released once it has surely ended"
    sleeper.stop()
    assert not psutil.pid_exists(first)


def test_a_state_that_cannot_be_read_for_a_while_stops_no_process(sleeper: Child) -> None:
    said: list[str] = []
    until(lambda: sleeper.was_ready, sleeper, said)
    failed: list[str] = []
    made = sleeper.ready

    def fails(what: str) -> Any:
        failed.append(what)
        raise FileFailed(operation="list", name="standby", where="s3://states/a", reason="slow down")

    sleeper.waits = lambda: fails("waits")
    assert not sleeper.stands_by(said.append), "nothing is known yet"
    sleeper.standby, sleeper._look_at = True, 0.0
    assert sleeper.stands_by(said.append), "what was known stays"
    sleeper.started = lambda: fails("started")
    sleeper.ready = lambda: fails("ready")
    assert sleeper.process is not None
    sleeper.process.kill()
    until(lambda: failed.count("started") >= 2, sleeper, said)
    assert not sleeper.running
    sleeper.started = lambda: None
    until(lambda: failed.count("ready") >= 2, sleeper, said)
    sleeper.ready = made
    until(lambda: "ready again, " in said[-1], sleeper, said)
    assert failed.count("waits") == 2


def test_what_left_comes_back_when_its_service_owns_the_state_again(sleeper: Child) -> None:
    said: list[str] = []
    owner = False

    def owns() -> bool:
        if not owner:
            raise FileFailed(operation="list", name="LOCK", where="s3://states/a", reason="slow down")
        return True

    sleeper.final, sleeper.again = -signal.SIGKILL, owns
    until(lambda: sleeper.was_ready, sleeper, said)
    for _ in range(2):
        owner = False
        assert sleeper.process is not None
        sleeper.process.kill()
        until(lambda: sleeper.left, sleeper, said)
        sleeper.look(said.append)
        assert not sleeper.running
        owner = True
        until(lambda: sleeper.running, sleeper, said)
        assert not sleeper.left


def test_what_was_never_ready_stops_all_with_its_own_line(modules: Path) -> None:
    child = Child("failer", "failer", [], modules / "failer.log", lambda: False)
    with pytest.raises(ProcessFailed) as failed:
        until(lambda: False, child, [])
    assert str(failed.value) == "failer: there is no bread"


def test_a_second_wish_to_stop_ends_at_once_what_does_not_stop(
    stubborn: Child, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vernier.service.supervision.supervisor.STOP_SECONDS", 3600)
    flags = {"state.path": str(tmp_path / "state"), "program": str(root / "configs" / "demo.py")}
    supervisor = Supervisor(load(None, flags, {}), None, flags, say=lambda line: None)
    supervisor.children = [stubborn]
    supervisor.stop()
    ending = threading.Thread(target=supervisor._end, daemon=True)
    ending.start()
    process = stubborn.process
    assert process is not None
    until(lambda: stubborn.last_line() == "stubborn: asked", stubborn, [])
    assert ending.is_alive()
    assert process.poll() is None
    supervisor.stop()
    ending.join(PATIENCE)
    assert not ending.is_alive()
    assert process.returncode == -signal.SIGKILL


SIGNALLED = """
import signal, time
from vernier.storage.flag import Flag
flag, until = Flag(), time.monotonic() + 2
signal.signal(signal.SIGALRM, lambda *_: flag.set())
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
while time.monotonic() < until:
    flag.wait(1e-5)
    flag._set = False
signal.setitimer(signal.ITIMER_REAL, 0)
print("went on")
"""


def test_a_signal_at_any_instruction_does_not_stop_the_process_that_waits_for_it() -> None:
    """With threading.Event the handler waits for the lock that the interrupted `wait` holds."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == "went on\n"


class SlowBroker:
    """A broker that has died and whose next start takes until it is killed."""

    running = False

    def __init__(self) -> None:
        self.begun, self.killed = threading.Event(), threading.Event()

    @property
    def pid(self) -> None:
        self.killed.set()

    def start(self, _seconds: float) -> None:
        self.begun.set()
        self.killed.wait(PATIENCE)

    def stop(self, _seconds: float) -> None:
        pass


def test_a_broker_that_starts_again_slowly_holds_nobody_up_who_stops(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"state.path": str(tmp_path / "state"), "program": str(root / "configs" / "demo.py")}
    supervisor = Supervisor(load(None, flags, {}), None, flags, say=lambda line: None)
    broker = SlowBroker()
    for name in ("_check", "_take_scratch", "_start", "_check_program"):
        monkeypatch.setattr(supervisor, name, lambda: None)
    supervisor.broker = broker  # type: ignore[assignment]
    running = threading.Thread(target=supervisor.run, daemon=True)
    running.start()
    assert broker.begun.wait(PATIENCE)
    supervisor.stop()
    running.join(PATIENCE)
    assert not running.is_alive()
    assert broker.killed.is_set()


SLOW_PROGRAM = """
import time
open("{mark}", "w").close()
time.sleep(3600)
"""
CHECKED = """
import sys
from pathlib import Path
from vernier.service.config.settings import load
from vernier.service.supervision import supervisor
for name in ("_check", "_take_scratch", "_start"):
    setattr(supervisor.Supervisor, name, lambda self: None)
flags = {"program": sys.argv[1], "state.path": sys.argv[2]}
supervisor.up(load(None, flags, {}), None, flags)
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_being_checked_does_not_hold_up_a_stop(tmp_path: Path, number: signal.Signals) -> None:
    program, mark = tmp_path / "program.py", tmp_path / "begun"
    program.write_text(SLOW_PROGRAM.format(mark=mark), "utf-8")
    code = [sys.executable, "-c", CHECKED, str(program), str(tmp_path / "state")]
    process = subprocess.Popen(code, stdout=subprocess.PIPE, text=True)
    try:
        while not mark.exists():
            assert process.poll() is None
            threading.Event().wait(0.02)
        process.send_signal(number)
        said, _ = process.communicate(timeout=PATIENCE)
        assert (said, process.returncode) == ("ended\n", 0)
    finally:
        process.kill()
        process.wait()


def test_a_parent_that_is_killed_is_no_reason_to_wait_longer_than_for_one_that_stops() -> None:
    assert PATIENCE_SECONDS < STOP_SECONDS


def test_a_full_garbage_collection_leaves_out_what_a_process_has(modules: Path) -> None:
    (modules / "hoarder.py").write_text(HOARDER, "utf-8")
    watch = "from vernier.service.supervision import parent_watch as one; one.FREEZE_SECONDS = 0.5; one.main()"
    with subprocess.Popen(
        [sys.executable, "-c", watch, "hoarder"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read().split() == [b"disabled", b"enabled", b"frozen", b"frozen"]


@pytest.mark.parametrize("module", ["sleeper", "stubborn"])
def test_children_do_not_outlive_a_parent_that_is_killed(modules: Path, module: str) -> None:
    mark = modules / "ready"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *command(module, [str(mark)])], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    try:
        while not mark.exists():
            assert child.is_running()
            threading.Event().wait(0.02)
        parent.send_signal(signal.SIGKILL)
        parent.wait(PATIENCE)
        child.wait(PATIENCE)
    finally:
        parent.stdout.close()
        if child.is_running():
            child.kill()


def test_a_taken_port_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TakenPort, match=rf"port {port} on 127.0.0.1 is taken .*set http.port"):
            check_port("127.0.0.1", port, "http.port")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "there is no program to run"),
        ({"program": "no/such/program.py"}, "cannot be read"),
    ],
)
def test_what_can_be_said_before_anything_starts(tmp_path: Path, flags: dict[str, str], said: str) -> None:
    flags = {"state.path": str(tmp_path / "state"), **flags}
    with pytest.raises(VernierError, match=said):
        up(load(None, flags, {}), None, flags, say=lambda line: None)


def test_a_full_disk_is_one_line(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vernier.service.supervision.supervisor.LEAST_FREE_BYTES", 1 << 60)
    flags = {"state.path": str(tmp_path / "state"), "program": str(root / "configs" / "demo.py")}
    with pytest.raises(DiskTooSmall, match="disk full"):
        Supervisor(load(None, flags, {}), None, flags).run()


def test_a_second_service_on_one_state_is_refused(tmp_path: Path) -> None:
    with StateDirectory(tmp_path / "state"), pytest.raises(StateInUse, match=f"in use by pid {os.getpid()}"):
        StateDirectory(tmp_path / "state").acquire()
