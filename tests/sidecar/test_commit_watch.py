"""The watch for commits: hears of a commit, looks for it where it hears nothing, and in another folder."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.builder import StateBuilder, row_type
from vernier.service.sidecar import commit_watch
from vernier.service.sidecar.commit_watch import CommitWatch
from vernier.service.views.snapshot_reader import Reader

VIEWS = {"reach": (row_type(node="Int64"), ["node"])}
FOREVER_S = 3600.0
"""A pause that no test survives if nothing is heard."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is written")


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[StateBuilder]:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    yield builder
    builder.close()


def commit(builder: StateBuilder, upper: int) -> None:
    builder.commit(upper, {"reach": [((upper,), upper - 1, 1)]})


def test_a_commit_ends_the_wait(builder: StateBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(builder, 10)
    monkeypatch.setattr(commit_watch, "LONGEST_S", FOREVER_S)
    watch = CommitWatch(builder.path, 0.001)
    reader = Reader(builder.path)
    assert reader.poll()
    waiting = threading.Event()
    ended: list[bool] = []

    def wait() -> None:
        waiting.set()
        watch.wait(threading.Event())
        ended.append(reader.poll())

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    upper = 10
    while thread.is_alive():  # the first of these may come before the watch does
        upper += 10
        commit(builder, upper)
        thread.join(0.05)
    assert ended == [True]
    watch.close()
    reader.close()


def test_files_are_looked_at_often_from_an_unheard_commit_to_the_next_that_is_heard_of(
    builder: StateBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_watch, "_AGAIN_S", 0.0)
    watch = CommitWatch(builder.path, 0.001)
    stopping = threading.Event()
    watch.wait(stopping)  # nothing to hear: ends after LONGEST_S
    monkeypatch.setattr(commit_watch, "LONGEST_S", FOREVER_S)
    watch.found()  # as if there were a commit
    for _ in range(3):
        watch.wait(stopping)  # ends after a millisecond
    commit(builder, 10)
    watch.wait(stopping)
    watch.found()
    later = threading.Timer(0.05, commit, (builder, 20))
    later.start()
    watch.wait(stopping)  # ends with the commit, because the time it may take is over after the test
    later.join()
    watch.close()


def test_a_folder_that_comes_later_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_watch, "_AGAIN_S", 0.0)
    watch = CommitWatch(tmp_path / "state", 0.001)
    watch.wait(threading.Event())
    builder = StateBuilder(tmp_path / "state", VIEWS)
    watch.wait(threading.Event())
    commit(builder, 10)
    monkeypatch.setattr(commit_watch, "LONGEST_S", FOREVER_S)
    watch.wait(threading.Event())
    builder.close()
    watch.close()


def test_another_folder_in_its_place_is_watched(builder: StateBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_watch, "_AGAIN_S", 0.0)
    watch = CommitWatch(builder.path, 0.001)
    watch.wait(threading.Event())  # ends after LONGEST_S, as the next one does
    builder.path.rename(builder.path.with_name("before"))
    other = StateBuilder(builder.path, VIEWS)
    commit(other, 10)
    watch.wait(threading.Event())
    watch.found()  # and it was not heard of
    watch.wait(threading.Event())
    commit(other, 20)
    watch._poll_s = FOREVER_S
    watch.wait(threading.Event())
    other.close()
    watch.close()


def test_without_a_watch_the_wait_ends_when_it_is_time_to_stop(tmp_path: Path) -> None:
    watch = CommitWatch(tmp_path / "nothing", FOREVER_S)
    stopping = threading.Event()
    threading.Timer(0.02, stopping.set).start()
    watch.wait(stopping)
    watch.close()
