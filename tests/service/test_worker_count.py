"""How many workers there are: the setting, a request for others, restarts, over files alone."""

from pathlib import Path

import pytest

from vernier.service.coordinator.worker_count import WorkerCount
from vernier.service.sidecar.scaling import describe
from vernier.service.status import workers as status
from vernier.service.status.workers import Observed
from vernier.storage.blob.local_blob import LocalBlob


@pytest.fixture
def files(tmp_path: Path) -> LocalBlob:
    """An empty state directory."""
    return LocalBlob(tmp_path)


def started(files: LocalBlob, configured: int = 2, room: int | None = 4) -> WorkerCount:
    """The count of a driver that has just started and owns the state."""
    count = WorkerCount(files, configured, lambda: room)
    count.publish()
    return count


def says(files: LocalBlob, committed: int | None) -> str:
    """What the sidecar says when the newest epoch has this many workers."""
    said: str = describe(status.DESIRED.read(files), status.OBSERVED.read(files), committed)["says"]
    return said


def test_the_setting_counts_until_another_number_is_requested(files: LocalBlob) -> None:
    count = started(files)
    assert count.workers == 2
    assert not count.look()
    assert status.OBSERVED.read(files) is None
    assert says(files, 2) == "2 workers"
    asked = status.request(files, 3)
    assert says(files, 2) == "2 workers; 3 workers requested, but the driver has not read the request yet"
    assert count.look()
    assert count.workers == 3
    count.publish()
    assert status.OBSERVED.read(files) == Observed(workers=3, configured=2, desired=asked.id)
    assert says(files, 2) == "2 workers; the next epoch is the first one of 3"
    assert not describe(status.DESIRED.read(files), status.OBSERVED.read(files), 2)["acknowledged"]
    assert describe(status.DESIRED.read(files), status.OBSERVED.read(files), 3)["acknowledged"]
    assert not count.look()


def test_a_number_stays_over_restarts_until_the_setting_changes(files: LocalBlob) -> None:
    count = started(files)
    status.request(files, 3)
    assert count.look()
    count.publish()
    assert started(files).workers == 3
    # The operator has edited the settings; the request is old then.
    assert started(files, configured=1).workers == 1
    assert started(files, configured=1).workers == 1
    assert says(files, 1) == "1 worker"
    assert started(files, configured=2).workers == 2


def test_a_request_that_no_driver_has_seen_counts_at_the_next_start(files: LocalBlob) -> None:
    status.request(files, 1)
    assert started(files).workers == 1
    status.request(files, 3)
    # A driver that waits for the lock reads, and writes nothing.
    assert WorkerCount(files, 2, lambda: 4).workers == 3
    found = status.OBSERVED.read(files)
    assert found is not None
    assert found.workers == 1
    assert started(files, configured=1).workers == 3


def test_more_than_spark_can_run_is_refused(files: LocalBlob) -> None:
    count = started(files)
    status.request(files, 5)
    assert not count.look()
    count.publish()
    found = describe(status.DESIRED.read(files), status.OBSERVED.read(files), 2)
    assert (found["workers"], found["wanted"], found["acknowledged"]) == (2, 2, True)
    assert "Spark can run 4 tasks at once, fewer than 5" in found["refused"]
    assert found["says"].startswith("2 workers; 5 workers refused: Spark can run 4 tasks")
    # It is not asked for again, and the number stays.
    assert started(files, room=8).workers == 2
    status.request(files, 2)
    count.look()
    count.publish()
    assert says(files, 2) == "2 workers"
    # A cluster that has not started yet may have room.
    status.request(files, 9)
    assert started(files, room=None).workers == 9


def test_a_request_waits_for_what_must_end_first(files: LocalBlob) -> None:
    count = started(files)
    status.request(files, 3)
    assert not count.look("a change of programs has to end first")
    count.publish()
    assert says(files, 2) == "2 workers; 3 workers requested, but a change of programs has to end first"
    assert count.look()
    assert count.workers == 3


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"workers": "two", "id": "", "at_ns": 1}'])
def test_files_that_cannot_be_read_say_nothing(files: LocalBlob, text: bytes) -> None:
    for name in ("rescale.json", "workers.json"):
        files.put(name, [text])
    assert started(files).workers == 2
    assert status.OBSERVED.read(files) is None
    status.request(files, 3)
    assert started(files).workers == 3
    assert status.OBSERVED.read(files) is not None
