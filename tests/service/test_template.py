"""A template lends processes that have everything loaded to daemons, and ends when it is not used."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from vernier.service.cluster import template

PATIENCE = 60.0
DAEMON = """
import os, sys
from vernier.service.cluster import template

def work():
    print(os.environ["WHO"], os.getcwd(), os.getpid(), os.getppid(), len(sys.argv), flush=True)
    if not os.fork():  # a worker, which outlives this process for a while
        import time
        time.sleep(1)
        os._exit(0)
    print(sys.stdin.readline().strip(), flush=True)
    sys.exit(7)

name = b"\\0" + sys.argv[1].encode()
status = template.borrow(name)
if status is None:
    template.leave(name, work, float(sys.argv[2]))
    work()
sys.exit(status)
"""


class Daemons:
    """Starts daemons that use one template."""

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = f"test-{uuid.uuid4().hex}", folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, who: str, *, idle: float = 1.0) -> tuple[subprocess.Popen[str], list[str]]:
        """A daemon, and what it says first: its name, folder, pid, parent, number of arguments."""
        own = self.folder / who
        own.mkdir()
        one = subprocess.Popen(
            [sys.executable, "-c", DAEMON, self.name, str(idle), *("more" for _ in self.started)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=own,
            env={**os.environ, "WHO": who},
        )
        self.started.append(one)
        assert one.stdout is not None
        return one, one.stdout.readline().split()

    def listens(self) -> bool:
        """Whether there is a template."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            return link.connect_ex(b"\0" + self.name.encode()) == 0


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    made = Daemons(tmp_path)
    yield made
    for one in made.started:
        one.kill()
        one.wait(PATIENCE)
        for stream in (one.stdin, one.stdout):
            if stream is not None and not stream.closed:
                stream.close()


def soon(ask: Callable[[], bool]) -> bool:
    """Whether it becomes true."""
    deadline = time.monotonic() + PATIENCE
    while not ask():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.02)
    return True


def test_the_next_daemon_is_a_process_of_the_template_with_its_own_files_and_environment(daemons: Daemons) -> None:
    first, said = daemons.start("first")
    assert said[:3] == ["first", str(daemons.folder / "first"), str(first.pid)]
    first.kill()
    first.wait(PATIENCE)
    second, said = daemons.start("second")
    assert said[:2] == ["second", str(daemons.folder / "second")]
    assert int(said[2]) != second.pid
    assert int(said[3]) != second.pid
    assert said[4] == "4"
    out, _ = second.communicate("bye\n", timeout=PATIENCE)
    assert (out.strip(), second.returncode) == ("bye", 7)


def test_several_daemons_have_processes_of_one_template(daemons: Daemons) -> None:
    daemons.start("first")
    (_, one), (_, other) = daemons.start("second"), daemons.start("third")
    assert one[3] == other[3]
    assert one[2] != other[2]


def test_a_daemon_that_is_asked_to_stop_or_is_killed_ends_the_process_that_works_for_it(daemons: Daemons) -> None:
    daemons.start("first")
    asked, said = daemons.start("asked")
    asked.send_signal(signal.SIGTERM)
    assert soon(lambda: not psutil.pid_exists(int(said[2])))
    assert asked.wait(PATIENCE)
    killed, said = daemons.start("killed")
    assert killed.stdin is not None
    killed.kill()
    killed.stdin.close()  # as Spark does
    assert soon(lambda: not psutil.pid_exists(int(said[2])))


def test_a_template_ends_when_nothing_uses_it(daemons: Daemons) -> None:
    first, _ = daemons.start("first")
    second, _ = daemons.start("second")
    threading.Event().wait(2.5)
    assert daemons.listens()
    for one in (first, second):
        one.communicate("bye\n", timeout=PATIENCE)
    assert daemons.listens()
    assert soon(lambda: not daemons.listens())


def test_a_template_ends_with_its_last_daemon_if_that_was_asked_to_stop(daemons: Daemons) -> None:
    first, _ = daemons.start("first", idle=3600)
    first.kill()
    second, _ = daemons.start("second", idle=3600)
    third, said = daemons.start("third", idle=3600)
    second.send_signal(signal.SIGTERM)
    second.wait(PATIENCE)
    threading.Event().wait(1.5)
    assert psutil.pid_exists(int(said[2]))
    assert psutil.pid_exists(int(said[3])), "it has another daemon"
    third.kill()
    assert third.stdin is not None
    third.stdin.close()
    assert soon(lambda: not daemons.listens())


def test_a_daemon_that_goes_away_too_early_leaves_no_process(daemons: Daemons) -> None:
    first, _ = daemons.start("first")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(b"\0" + daemons.name.encode())
        socket.send_fds(link, [(2).to_bytes(4)], range(3))
        link.sendall(b"{}")
        pid = int.from_bytes(link.recv(4))
        assert psutil.pid_exists(pid)
    assert soon(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert daemons.start("second")[1][0] == "second"
    assert first.poll() is None


def test_a_daemon_whose_template_does_not_go_on_can_be_asked_to_stop(daemons: Daemons) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(b"\0" + daemons.name.encode())
        listening.listen()

        def answer() -> None:
            link, _ = listening.accept()
            with link:
                size, files, *_ = socket.recv_fds(link, 4, 3)
                for file in files:
                    os.close(file)
                left = int.from_bytes(size)
                while left:
                    left -= len(link.recv(left))
                link.shutdown(socket.SHUT_RD)
                link.sendall(os.getpid().to_bytes(4))

        threading.Thread(target=answer, daemon=True).start()
        heard = list[int]()
        before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
        try:
            one, said = daemons.start("own")
            assert said[2] == str(one.pid), "it works itself"
            one.terminate()
            assert one.wait(PATIENCE) == -signal.SIGTERM
        finally:
            signal.signal(signal.SIGTERM, before)
        assert heard == []


def test_other_code_has_another_template(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    file = tmp_path / "storage" / "one.py"
    file.write_text("1")
    before = template.name_of(tmp_path)
    assert template.name_of(tmp_path) == before
    file.write_text("12")
    assert template.name_of(tmp_path) != before
    assert template.borrow(before) is None
