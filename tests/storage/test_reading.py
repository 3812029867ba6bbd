"""Readers of a state directory: leases against collection, damage and how far back it sends the service."""

import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage.epochs import commit, names, numbers, start
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import segment_file
from vernier.storage.errors import (
    Damaged,
    EpochGone,
    NoIntactManifest,
    NothingCommitted,
    UnknownFormat,
)
from vernier.storage.state.manifest import FORMAT, BatchRef, manifest_file
from vernier.storage.state.state import HEAD, StateDirectory


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[StateDirectory]:
    with StateDirectory(tmp_path) as state:
        yield state


# --- reading ----------------------------------------------------------------------------------------------------------


def test_before_the_first_commit_there_is_nothing_to_read(tmp_path: Path) -> None:
    reader = StateDirectory(tmp_path)
    assert (reader.head(), reader.latest()) == (0, None)
    with pytest.raises(NothingCommitted, match="holds no epoch yet"):
        reader.lease()
    with StateDirectory(tmp_path):
        with pytest.raises(NothingCommitted):
            reader.lease()
        assert reader.head() == 0


def test_a_lease_keeps_an_epoch_and_only_that(owner: StateDirectory, tmp_path: Path) -> None:
    reader = StateDirectory(tmp_path)
    for epoch in (1, 2):
        commit(owner, epoch)
    with reader.lease() as lease, reader.lease(2):
        for epoch in (3, 4, 5):
            commit(owner, epoch)
            collected = owner.gc(2)
        assert collected.leased == {2}
        assert owner.epochs() == [2, 4, 5]
        assert (lease.epoch, numbers(reader, lease.manifest)) == (2, [2])
        with pytest.raises(EpochGone):
            reader.lease(3)
        assert len(names(tmp_path, "leases")) == 2
    lease.release()
    assert names(tmp_path, "leases") == []
    assert owner.gc(2).segments == 1
    assert owner.epochs() == [4, 5]


READER = """
import sys
from vernier.storage.state.state import StateDirectory
lease = StateDirectory(sys.argv[1]).lease()
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lease_of_a_killed_reader_expires_by_itself(owner: StateDirectory, tmp_path: Path) -> None:
    commit(owner, 1)
    with start(READER, tmp_path) as process:
        for epoch in (2, 3, 4):
            commit(owner, epoch)
        assert owner.gc(2).leased == {1}
        assert names(tmp_path, "leases")[0].startswith(f"000000000001.{process.pid}.")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert owner.gc(2).leased == frozenset()
        assert names(tmp_path, "leases") == []
        assert owner.epochs() == [3, 4]


def test_a_list_from_before_newer_epochs_does_not_lead_back(
    owner: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader finds its epoch collected; the list that it reads then has the one that another reader holds."""
    reader = StateDirectory(tmp_path)
    for epoch in (1, 2):
        commit(owner, epoch)
    with reader.lease(1):
        for epoch in (3, 4, 5):
            commit(owner, epoch)
            owner.gc(2)
        heads = iter([2])
        monkeypatch.setattr(reader, "head", lambda: next(heads, 5))
        monkeypatch.setattr(reader, "epochs", lambda: [1])
        with reader.lease() as lease:
            assert lease.epoch == 5


def test_readers_with_the_same_process_id_hold_leases_of_their_own(owner: StateDirectory, tmp_path: Path) -> None:
    """As two containers may have it, or two readers in one process."""
    commit(owner, 1)
    with StateDirectory(tmp_path).lease() as one, StateDirectory(tmp_path).lease():
        assert len(names(tmp_path, "leases")) == 2
        one.release()
        for epoch in (2, 3):
            commit(owner, epoch)
        assert owner.gc(2).leased == {1}


class Interleaved(LocalBlob):
    """A blob that does something once, just before or after a named call, as another process might."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.actions: dict[tuple[str, str], Callable[[], object]] = {}

    def meet(self, call: str, when: str) -> None:
        self.actions.pop((call, when), lambda: None)()

    def rename(self, old: str, new: str) -> None:
        self.meet("rename", "before")
        super().rename(old, new)
        self.meet("rename", "after")


def test_a_lease_taken_while_collection_decides_holds_or_is_refused(tmp_path: Path) -> None:
    """Collection has looked for leases; before it hides the manifest a reader comes, and after it another."""
    blob = Interleaved(tmp_path)
    with StateDirectory(tmp_path, blob) as state:
        for epoch in (1, 2, 3):
            commit(state, epoch)
        reader = StateDirectory(tmp_path)
        early = []
        late: list[EpochGone] = []

        def come_late() -> None:
            with pytest.raises(EpochGone) as refused:
                reader.lease(1)
            late.append(refused.value)

        blob.actions["rename", "before"] = lambda: early.append(reader.lease(1))
        blob.actions["rename", "after"] = come_late
        collected = state.gc(2)
        assert len(late) == 1
        assert (collected.manifests, collected.leased) == (0, frozenset({1}))
        assert numbers(reader, early[0].manifest) == [1]
        assert reader.lease(1).manifest == early[0].manifest


def test_a_reader_that_is_overtaken_reads_the_newest(
    owner: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3, 4):
        commit(owner, epoch)
    owner.gc(2)
    reader = StateDirectory(tmp_path)
    monkeypatch.setattr(reader, "head", lambda: 2)
    assert reader.lease().epoch == 4
    assert len(names(tmp_path, "leases")) == 1


@pytest.mark.parametrize("head", [b"", b"00000000000000000007 0123456789abcdef\n", b"\xff\xfe rubbish", None])
def test_without_a_sound_head_the_folder_is_asked(owner: StateDirectory, tmp_path: Path, head: bytes | None) -> None:
    commit(owner, 1)
    if head is None:
        (tmp_path / HEAD).unlink()
    else:
        (tmp_path / HEAD).write_bytes(head)
    assert StateDirectory(tmp_path).head() == 1
    commit(owner, 2)
    assert StateDirectory(tmp_path).head() == 2


# --- damage -----------------------------------------------------------------------------------------------------------


def three_epochs(path: Path) -> list[BatchRef]:
    with StateDirectory(path) as state:
        refs: list[BatchRef] = []
        for epoch in (1, 2, 3):
            refs = commit(state, epoch, refs)
    return refs


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink], ids=["cut", "flipped", "gone"])
def test_a_damaged_segment_of_the_newest_epoch_sends_the_service_back(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    last = three_epochs(tmp_path)[-1].segment
    damage(tmp_path / segment_file(last))
    with caplog.at_level(logging.WARNING), StateDirectory(tmp_path) as state:
        newest = state.latest()
        assert newest is not None
        assert numbers(state, newest) == [1, 2]
        assert state.head() == 2
        assert len(state.damaged) == 1
        assert f"manifest {manifest_file(3)}: " in caplog.text
        assert last in caplog.text
        assert (tmp_path / f"{manifest_file(3)}.damaged").exists()
        assert state.epochs() == [1, 2]
        commit(state, 3, list(newest.refs()))
        assert numbers(state, state.manifest(3)) == [1, 2, 3]


@pytest.mark.parametrize("damage", [cut, flip], ids=["cut", "flipped"])
def test_a_damaged_manifest_is_named_and_the_one_before_it_read(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    three_epochs(tmp_path)
    damage(tmp_path / manifest_file(3))
    reader = StateDirectory(tmp_path)
    with caplog.at_level(logging.WARNING):
        latest = reader.latest()
    assert latest is not None
    assert latest.epoch == 2
    assert [type(problem) for problem in reader.damaged] == [Damaged]
    assert "manifest epochs/000000000003.json: " in caplog.text
    with pytest.raises(Damaged, match=r"manifest epochs/000000000003.json: "):
        reader.lease()
    with StateDirectory(tmp_path) as state:
        assert state.head() == 2
        assert reader.lease().epoch == 2


def test_an_old_damaged_manifest_is_set_aside(tmp_path: Path) -> None:
    three_epochs(tmp_path)
    flip(tmp_path / manifest_file(1))
    with StateDirectory(tmp_path) as state:
        assert (state.epochs(), len(state.damaged)) == ([2, 3], 1)


def test_a_manifest_under_the_wrong_name_is_damage(tmp_path: Path) -> None:
    three_epochs(tmp_path)
    (tmp_path / manifest_file(3)).write_bytes((tmp_path / manifest_file(2)).read_bytes())
    with pytest.raises(Damaged, match="is of epoch 2, expected 3"):
        StateDirectory(tmp_path).manifest(3)


def test_nothing_whole_is_an_error_not_an_empty_state(tmp_path: Path) -> None:
    first = three_epochs(tmp_path)[0].segment
    (tmp_path / segment_file(first)).unlink()
    with pytest.raises(NoIntactManifest, match=r"none of its 3 manifests is intact; .*: .*000000000001-a-0"):
        StateDirectory(tmp_path).acquire()
    for epoch in (1, 2, 3):
        flip(tmp_path / manifest_file(epoch))
    with pytest.raises(NoIntactManifest):
        StateDirectory(tmp_path).latest()


def test_a_newer_format_is_not_taken_for_damage(tmp_path: Path) -> None:
    three_epochs(tmp_path)
    path = tmp_path / manifest_file(3)
    path.write_bytes(path.read_bytes().replace(b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1), 1))
    for call in (StateDirectory(tmp_path).acquire, StateDirectory(tmp_path).latest):
        with pytest.raises(UnknownFormat, match="open it with the release that wrote it"):
            call()
    assert path.exists()
