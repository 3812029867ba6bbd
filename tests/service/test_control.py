"""Pause, resume, drain: wishes and what a driver makes of them, over files alone."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from vernier.service.coordinator.intake_controller import IntakeController
from vernier.service.status import intake
from vernier.service.status.intake import Observed
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.errors import StorageError

ENDS = {"t": {0: 10, 1: 4}}


@pytest.fixture
def files(tmp_path: Path) -> LocalBlob:
    """An empty state directory."""
    return LocalBlob(tmp_path)


def test_a_service_that_nobody_has_asked_for_anything_runs(files: LocalBlob) -> None:
    assert intake.DESIRED.read(files) is None
    assert intake.observed(files) == Observed()
    controller = IntakeController(files, lambda: ENDS, lambda: 7)
    controller.look()
    controller.passed({}, 0)
    assert controller.open
    found = intake.observed(files)
    assert (found.intake, found.since_ns) == ("running", 7)
    assert found.driver


def test_paused_stays_paused_over_restarts_until_it_is_resumed(files: LocalBlob) -> None:
    controller = IntakeController(files, lambda: ENDS)
    paused = intake.request(files, "paused")
    assert controller.open
    controller.look()
    assert not controller.open
    # The state is not reported before the query has ended.
    assert intake.observed(files).intake == "running"
    controller.settle()
    assert intake.observed(files).desired == paused.id
    again = IntakeController(files, lambda: ENDS)
    again.look()
    assert not again.open
    assert "vernier resume" in again.observed.describe()
    resumed = intake.request(files, "running")
    again.look()
    assert again.open
    assert intake.observed(files).desired == resumed.id


def test_a_drain_reads_what_was_there_when_it_began(files: LocalBlob) -> None:
    ends: dict[str, dict[int, int]] = {"t": {0: 10, 1: 4}}
    controller = IntakeController(files, lambda: ends)
    intake.request(files, "drained")
    controller.look()
    assert controller.open
    assert controller.observed.intake == "draining"
    controller.passed({"t": {0: 8}}, 0)
    assert intake.observed(files).left == 2 + 4
    # Another driver goes on with the same end, whatever has come meanwhile.
    ends["t"][0] = 99
    again = IntakeController(files, lambda: ends)
    again.look()
    assert again.observed.until == ENDS
    again.passed({"t": {0: 10, 1: 5}, "beat": {0: 3}}, 2)
    assert again.observed.intake == "draining"
    assert (again.observed.left, again.observed.held) == (0, 2)
    again.passed({"t": {0: 10, 1: 5}}, 0)
    assert not again.open
    again.passed({"t": {0: 12, 1: 5}}, 0)
    again.settle()
    assert intake.observed(files).intake == "drained"
    assert not again.open
    # Drained means closed, also for the next driver.
    assert not IntakeController(files, lambda: ends).open


def test_a_drain_that_cannot_ask_the_brokers_is_tried_again(files: LocalBlob) -> None:
    def away() -> Mapping[str, Mapping[int, int]]:
        raise StorageError()

    controller = IntakeController(files, away)
    intake.request(files, "drained")
    with pytest.raises(StorageError):
        controller.look()
    assert controller.observed.intake == "running"
    controller._ends = lambda: ENDS
    controller.look()
    assert controller.observed.intake == "draining"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"wanted": "gone", "id": "", "at_ns": 1}'])
def test_files_that_cannot_be_read_say_nothing(files: LocalBlob, text: bytes) -> None:
    files.put(intake.DESIRED.name, [text])
    files.put(intake.OBSERVED.name, [text])
    assert intake.DESIRED.read(files) is None
    assert intake.observed(files) == Observed()
