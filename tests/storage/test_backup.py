"""Backup: one epoch, whole, in another place, while the owner goes on."""

from pathlib import Path

import pytest

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import VIEWS
from vernier.storage.errors import NothingCommitted
from vernier.storage.state.audit import audit
from vernier.storage.state.backup import NotEmpty, copy_newest
from vernier.storage.state.state import StateDirectory


def test_the_newest_epoch_is_copied_whole(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    for number in range(1, 6):
        builder.commit(10 * number, {"reach": [((number,), 10 * number - 1, 1)]})
    (tmp_path / "state" / "programs").mkdir()
    (tmp_path / "state" / "programs" / "more.py").write_text("text")
    target = StateDirectory(tmp_path / "copy")
    shown: list[tuple[int, int]] = []

    def meanwhile(done: int, count: int) -> None:
        # The service commits and collects while the copy is made.
        shown.append((done, count))
        builder.commit(1000 + done, {"reach": [((100 + done,), 999 + done, 1)]})
        builder.state.gc(2)

    copied = copy_newest(StateDirectory(tmp_path / "state"), target, ["programs"], meanwhile)
    assert copied.manifest.epoch == 5
    assert copied.segments == len(shown) > 1
    assert target.epochs() == [5]
    found = audit(target)
    assert not found.problems
    assert not found.unused
    assert found.segments == copied.segments
    with target:
        newest = target.latest()
        assert newest is not None
        assert (newest.epoch, newest.upper) == (5, 50)
    assert (tmp_path / "copy" / "programs" / "more.py").read_text() == "text"
    with pytest.raises(NotEmpty, match="already contains a state, at epoch 5"):
        copy_newest(builder.state, target)
    builder.close()


def test_a_copy_that_was_broken_off_is_an_empty_state(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", VIEWS)
    builder.commit(10, {"reach": [((1,), 3, 1)]})
    builder.commit(20, {"reach": [((2,), 13, 1)]})

    def break_off(done: int, count: int) -> None:
        if done:
            raise KeyboardInterrupt

    target = StateDirectory(tmp_path / "copy")
    with pytest.raises(KeyboardInterrupt):
        copy_newest(builder.state, target, show=break_off)
    assert target.epochs() == []
    assert copy_newest(builder.state, target).manifest.epoch == 2
    assert not audit(target).problems
    builder.close()


def test_there_must_be_something_to_copy(tmp_path: Path) -> None:
    with pytest.raises(NothingCommitted):
        copy_newest(StateDirectory(tmp_path / "none"), StateDirectory(tmp_path / "copy"))
