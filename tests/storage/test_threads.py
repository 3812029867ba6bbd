"""Background threads: one that fails is seen, logged, counted, and started again by its owner."""

import threading

import pytest

from vernier.storage import threads as threads_module
from vernier.storage.threads import Threads


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "FIRST_PAUSE", 0.001)


def test_a_thread_that_fails_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    threads, runs, works = Threads(), [], threading.Event()

    def run(stopping: threading.Event) -> None:
        runs.append(threading.current_thread().name)
        if len(runs) == 1:
            raise RuntimeError("the first try is broken")
        if len(runs) == 2:
            raise SystemExit  # ends a thread without a word
        works.set()
        stopping.wait()

    loop = threads.start("lag", run)
    assert works.wait(10)
    assert runs == ["vernier-lag"] * 3
    assert threads.restarts == {"lag": 2}
    assert "thread lag failed; it starts again in 0.0 s" in caplog.text
    # Not the text: PySpark, if a test before has loaded it, gives every handler a formatter of its own
    raised = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [repr(error) for error in raised] == ["RuntimeError('the first try is broken')", "SystemExit()"]
    assert loop.alive
    threads.close()
    assert not loop.alive
    assert threads.restarts == {"lag": 2}


def test_work_that_is_due_again_anyway_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    threads = Threads()

    def run(stopping: threading.Event) -> None:
        raise RuntimeError("not now")

    loop = threads.start("collect", run, again=False)
    loop.stop()
    assert not threads.restarts
    assert not loop.alive


def test_an_owner_stops_threads_that_wait_to_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "FIRST_PAUSE", 1_000.0)
    threads, failed = Threads(), threading.Event()

    def run(stopping: threading.Event) -> None:
        failed.set()
        raise RuntimeError("broken")

    loop = threads.start("heartbeat", run)
    assert failed.wait(10)
    threads.close()
    assert not loop.alive


def test_a_thread_may_end_by_itself() -> None:
    threads = Threads()
    loop = threads.start("scrub", lambda stopping: None)
    loop.stop()
    assert not loop.alive
    assert not threads.restarts
