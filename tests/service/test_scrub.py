"""The scrub: damage is found before the first epoch and while the service runs, and ends when the file is back."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.test_damage import flip
from vernier.service.coordinator import scrub as scrub_module
from vernier.service.coordinator.scrub import Scrub
from vernier.service.errors import StateDamaged
from vernier.storage.blob.segment import read_and_verify, segment_file
from vernier.storage.errors import Damaged, StorageError
from vernier.storage.state.manifest import BatchRef
from vernier.storage.threads import Threads


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[StateBuilder]:
    """A state of one view; its owner is the test."""
    made = StateBuilder(tmp_path / "state", {"v": (row_type(node="Int64"), ["node"])})
    made.commit(10, {"v": [((node,), 3, 1) for node in range(100)]})
    yield made
    made.close()


def ref_of(builder: StateBuilder) -> BatchRef:
    """The newest batch of the view."""
    found: BatchRef = builder.traces["v"][0][-1].ref
    return found


def test_damage_is_found_before_the_first_epoch(builder: StateBuilder) -> None:
    whole = (builder.path / segment_file(ref_of(builder).segment)).read_bytes()
    file = flip(builder.path, ref_of(builder))
    scrub = Scrub(builder.state, lambda: builder.state.latest(), 0, Threads())
    for _ in range(2):
        with pytest.raises(StateDamaged, match=f"{file.stem}.*restored from a copy") as error:
            scrub.require()
    assert error.value.file == segment_file(ref_of(builder).segment)
    file.write_bytes(whole)
    scrub.require()
    scrub.close()


def test_a_missing_file_is_damage_too(builder: StateBuilder) -> None:
    (builder.path / segment_file(ref_of(builder).segment)).unlink()
    scrub = Scrub(builder.state, lambda: builder.state.latest(), 0, Threads())
    with pytest.raises(StateDamaged, match="no such file"):
        scrub.require()
    # An epoch that does not need it makes all well.
    builder.traces["v"][0].clear()
    builder.commit(20, {"v": [((1,), 13, 1)]})
    scrub.require()
    scrub.close()


def test_after_a_failed_attempt_new_files_are_verified(builder: StateBuilder) -> None:
    scrub = Scrub(builder.state, lambda: builder.state.latest(), 0, Threads())
    scrub.require()
    builder.commit(20, {"v": [((node,), 13, 1) for node in range(200, 300)]})
    flip(builder.path, ref_of(builder))
    scrub.require()
    with pytest.raises(StateDamaged):
        scrub.require(anew=True)
    scrub.close()


def test_what_rots_while_the_service_runs_is_found(builder: StateBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub_module, "ROUND_SECONDS", 0.0)
    scrub = Scrub(builder.state, lambda: builder.state.latest(), 1 << 30, Threads())
    scrub.require()
    flip(builder.path, ref_of(builder))
    while not scrub.damaged:
        pass
    with pytest.raises(StateDamaged):
        scrub.require()
    scrub.close()


def test_a_file_cut_short_under_the_scrub_is_damage_and_not_the_end_of_the_process(
    builder: StateBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SIGBUS would end the whole process, which is what a mapped file did.
    monkeypatch.setattr("vernier.storage.blob.segment._PIECE", 1 << 12)
    builder.commit(20, {"v": [((node,), 13, 1) for node in range(4_000)]})
    file = builder.path / segment_file(ref_of(builder).segment)
    pieces = read_and_verify(builder.state.blob, ref_of(builder).segment)
    next(pieces)
    os.truncate(file, 5_000)
    with pytest.raises(Damaged, match="cut short"):
        list(pieces)


def test_an_empty_state_and_one_that_cannot_be_read_hold_nothing_up(
    builder: StateBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    scrub = Scrub(builder.state, lambda: None, 0, Threads())
    scrub.require(anew=True)
    scrub.close()

    def fail(*_: object) -> None:
        raise StorageError

    monkeypatch.setattr(builder.state.blob, "size", fail)
    scrub = Scrub(builder.state, lambda: builder.state.latest(), 0, Threads())
    scrub.require()
    scrub.close()
