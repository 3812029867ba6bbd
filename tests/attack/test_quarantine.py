"""Quarantine: messages that kill or hang their decoder are found, and no other message is blamed."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.service.ingest.quarantine import CHUNK, QuarantineBroken, convict

KILLS, EXITS, LOOPS, SLEEPS, RAISES = b"kill", b"exit", b"loop", b"sleep", b"raise"


def planted(message: bytes) -> None:
    """A decoder with every way to fail."""
    if message == KILLS:
        ctypes.string_at(0)
    if message == EXITS:
        os._exit(0 if threading.active_count() > 99 else 7)
    while message == LOOPS:
        pass
    if message == SLEEPS:
        threading.Event().wait()
    if message == RAISES:
        raise RecursionError("too deep")


def over(messages: list[bytes]) -> Callable[[int, int], None]:
    def decode(start: int, stop: int) -> None:
        for message in messages[start:stop]:
            planted(message)

    return decode


def found(messages: list[bytes], seconds: float = 0.3) -> dict[int, str]:
    return convict(len(messages), over(messages), lambda: None, seconds)


def test_each_way_to_fail_is_found_and_told() -> None:
    assert found([b"", KILLS, b"", EXITS, RAISES, LOOPS, b"", SLEEPS]) == {
        1: "died of SIGSEGV",
        3: "ended with status 7",
        4: "raised RecursionError: too deep",
        5: "took more than 0.3 s of processor time",
        7: "slept for more than 0.9 s",
    }


def test_among_many_the_few_are_found() -> None:
    messages = [b""] * (5 * CHUNK)
    for at in (0, CHUNK - 1, CHUNK, 2 * CHUNK + 7, 2 * CHUNK + 8, 5 * CHUNK - 1):
        messages[at] = EXITS
    assert list(found(messages)) == [at for at, message in enumerate(messages) if message == EXITS]
    assert found([b""] * 1000) == {}
    assert found([]) == {}


def test_what_kills_once_is_not_the_message(tmp_path: Path) -> None:
    """The child is killed twice from outside, in the chunk and at the message; alone the message is harmless."""
    deaths = tmp_path / "deaths"
    deaths.write_text("")

    def decode(start: int, stop: int) -> None:
        if start <= 3 < stop and len(deaths.read_text()) < 2:
            deaths.write_text(deaths.read_text() + "x")
            os.kill(os.getpid(), signal.SIGKILL)

    assert convict(8, decode, lambda: None, 1.0) == {}
    assert deaths.read_text() == "xx"


def test_a_child_that_is_stopped_for_a_while_has_not_hung(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"

    def decode(start: int, stop: int) -> None:
        stopped.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)

    def wake() -> None:
        while not stopped.exists() or not stopped.read_text():
            time.sleep(0.01)
        # Longer than a message may take.
        threading.Event().wait(1.0)
        os.kill(int(stopped.read_text()), signal.SIGCONT)

    thread = threading.Thread(target=wake)
    thread.start()
    assert convict(1, decode, lambda: None, 0.1) == {}
    thread.join()


def test_a_decoder_that_cannot_even_do_nothing_convicts_no_message() -> None:
    with pytest.raises(QuarantineBroken, match="its process ended with status 9 before it decoded anything"):
        convict(2, lambda start, stop: None, lambda: os._exit(9), 1.0)


def test_a_child_ends_with_its_worker(tmp_path: Path) -> None:
    """The child ends with its parent, also when it works without end."""
    told = tmp_path / "child"

    def decode(start: int, stop: int) -> None:
        told.write_text(str(os.getpid()))
        while True:
            pass

    worker = os.fork()
    if worker == 0:
        convict(1, decode, lambda: None, 60.0)
        os._exit(0)
    while not told.exists() or not told.read_text():
        time.sleep(0.01)
    child = int(told.read_text())
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
