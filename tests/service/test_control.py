"""Pause, resume, drain: wishes and what a driver makes of them, over files alone."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from vernier.service.coordinator.intake_controller import Steering
from vernier.service.status import intake
from vernier.service.status.intake import Standing
from vernier.storage.blob.blob import LocalBlob
from vernier.storage.errors import StorageError

ENDS = {"t": {0: 10, 1: 4}}


@pytest.fixture
def files(tmp_path: Path) -> LocalBlob:
    """An empty state directory."""
    return LocalBlob(tmp_path)


def test_a_service_that_nobody_has_asked_for_anything_runs(files: LocalBlob) -> None:
    assert intake.wish(files) is None
    assert intake.standing(files) == Standing()
    steering = Steering(files, lambda: ENDS, lambda: 7)
    steering.look()
    steering.passed({}, 0)
    assert steering.open
    found = intake.standing(files)
    assert (found.intake, found.since_ns) == ("running", 7)
    assert found.driver


def test_paused_stays_paused_over_restarts_until_it_is_resumed(files: LocalBlob) -> None:
    steering = Steering(files, lambda: ENDS)
    paused = intake.ask(files, "paused")
    assert steering.open
    steering.look()
    assert not steering.open
    # Nobody is told before the query has ended.
    assert intake.standing(files).intake == "running"
    steering.settle()
    assert intake.standing(files).wish == paused.id
    again = Steering(files, lambda: ENDS)
    again.look()
    assert not again.open
    assert "vernier resume" in again.standing.describe()
    resumed = intake.ask(files, "running")
    again.look()
    assert again.open
    assert intake.standing(files).wish == resumed.id


def test_a_drain_reads_what_was_there_when_it_began(files: LocalBlob) -> None:
    ends: dict[str, dict[int, int]] = {"t": {0: 10, 1: 4}}
    steering = Steering(files, lambda: ends)
    intake.ask(files, "drained")
    steering.look()
    assert steering.open
    assert steering.standing.intake == "draining"
    steering.passed({"t": {0: 8}}, 0)
    assert intake.standing(files).left == 2 + 4
    # Another driver goes on with the same end, whatever has come meanwhile.
    ends["t"][0] = 99
    again = Steering(files, lambda: ends)
    again.look()
    assert again.standing.until == ENDS
    again.passed({"t": {0: 10, 1: 5}, "beat": {0: 3}}, 2)
    assert again.standing.intake == "draining"
    assert (again.standing.left, again.standing.held) == (0, 2)
    again.passed({"t": {0: 10, 1: 5}}, 0)
    assert not again.open
    again.passed({"t": {0: 12, 1: 5}}, 0)
    again.settle()
    assert intake.standing(files).intake == "drained"
    assert not again.open
    # Drained means closed, also for the next driver.
    assert not Steering(files, lambda: ends).open


def test_a_drain_that_cannot_ask_the_brokers_is_tried_again(files: LocalBlob) -> None:
    def away() -> Mapping[str, Mapping[int, int]]:
        raise StorageError()

    steering = Steering(files, away)
    intake.ask(files, "drained")
    with pytest.raises(StorageError):
        steering.look()
    assert steering.standing.intake == "running"
    steering._ends = lambda: ENDS
    steering.look()
    assert steering.standing.intake == "draining"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"wanted": "gone", "id": "", "at_ns": 1}'])
def test_files_that_cannot_be_read_say_nothing(files: LocalBlob, text: bytes) -> None:
    files.put(intake.WISH, [text])
    files.put(intake.STANDING, [text])
    assert intake.wish(files) is None
    assert intake.standing(files) == Standing()
