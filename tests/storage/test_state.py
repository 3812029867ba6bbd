"""The state directory: one owner, commits one after the other, collection of what is old."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.faults import Fault, FaultyDisk
from tests.storage.epochs import commit, entry, manifest, names, numbers, start
from vernier.storage.blob.blob import Blob
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.errors import (
    DiskFull,
    EpochConflict,
    EpochGone,
    NoIntactManifest,
    NotAcquired,
    SegmentsMissing,
    StateInUse,
    SyncFailed,
)
from vernier.storage.state import state as state_module
from vernier.storage.state.manifest import BatchRef, manifest_file
from vernier.storage.state.state import StateDirectory


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[StateDirectory]:
    with StateDirectory(tmp_path) as state:
        yield state


# --- owning -----------------------------------------------------------------------------------------------------------


def test_a_second_owner_is_refused_with_the_pid_of_the_first(owner: StateDirectory, tmp_path: Path) -> None:
    with pytest.raises(
        StateInUse, match=f"state directory {tmp_path} is in use by pid {os.getpid()}; stop that service"
    ):
        StateDirectory(tmp_path).acquire()
    commit(owner, 1)
    owner.release()
    owner.release()
    with StateDirectory(tmp_path) as second:
        assert second.latest() == manifest(1, list(second.manifest(1).refs()))


HOLDER = """
import sys
from vernier.storage.state.state import StateDirectory
state = StateDirectory(sys.argv[1])
state.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_killed_owner_holds_nothing(tmp_path: Path) -> None:
    with start(HOLDER, tmp_path) as process:
        with pytest.raises(StateInUse) as refused:
            StateDirectory(tmp_path).acquire()
        assert refused.value.pid == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
        with StateDirectory(tmp_path) as state:
            assert state.latest() is None


def test_only_the_owner_changes_anything(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    for operation in (lambda: state.commit(manifest(1, [])), lambda: state.gc(2), state.sweep):
        with pytest.raises(NotAcquired, match=r"needs its lock: call acquire\(\) first"):
            operation()


def test_acquiring_that_fails_lets_go_of_the_lock(tmp_path: Path) -> None:
    with StateDirectory(tmp_path) as state:
        commit(state, 1)
    (tmp_path / manifest_file(1)).write_bytes(b"rubbish")
    for _ in range(2):
        with pytest.raises(NoIntactManifest, match="none of its 1 manifests is intact; the newest: manifest"):
            StateDirectory(tmp_path).acquire()


# --- committing -------------------------------------------------------------------------------------------------------


def test_epochs_follow_each_other(owner: StateDirectory, tmp_path: Path) -> None:
    assert (owner.latest(), owner.head(), owner.epochs()) == (None, 0, [])
    for wrong in (0, 2):
        with pytest.raises(
            EpochConflict, match=f"cannot commit epoch {wrong} of attempt a to .* newest epoch there is 0"
        ):
            owner.commit(manifest(wrong, []))
    refs = commit(owner, 1)
    commit(owner, 2, refs)
    with pytest.raises(EpochConflict, match="newest epoch there is 2"):
        owner.commit(manifest(2, [], attempt="b"))
    reader = StateDirectory(tmp_path)
    assert (owner.head(), reader.head(), reader.epochs()) == (2, 2, [1, 2])
    latest = reader.latest()
    assert latest is not None
    assert numbers(reader, latest) == [1, 2]


def unshown(owner: StateDirectory, epoch: int) -> None:
    """Commit an epoch that readers do not see yet."""
    owner.commit(manifest(epoch, owner.write(epoch, "a", 0, [entry("t", epoch)])), show=False)


def test_an_epoch_may_be_shown_later(owner: StateDirectory, tmp_path: Path) -> None:
    reader = StateDirectory(tmp_path)
    commit(owner, 1)
    unshown(owner, 2)
    assert (reader.head(), reader.epochs()) == (1, [1, 2])
    owner.show()
    assert reader.head() == 2
    unshown(owner, 3)
    unshown(owner, 4)
    owner.show()
    assert reader.head() == 4
    unshown(owner, 5)
    owner.release()
    assert reader.head() == 5
    with StateDirectory(tmp_path) as second:
        commit(second, 6)
        owner.show()  # no longer its business
        assert reader.head() == 6


def test_epochs_are_shown_in_order_whichever_threads_do_it(owner: StateDirectory, tmp_path: Path) -> None:
    reader, seen, over = StateDirectory(tmp_path), list[int](), threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append(reader.head())

    looking = threading.Thread(target=look)
    looking.start()
    showing = []
    for epoch in range(1, 40):
        unshown(owner, epoch)
        showing.append(threading.Thread(target=owner.show))
        showing[-1].start()
    for one in showing:
        one.join()
    over.set()
    looking.join()
    assert seen == sorted(seen)
    assert reader.head() == 39


def test_an_epoch_that_somebody_else_has_committed_is_a_conflict(owner: StateDirectory, tmp_path: Path) -> None:
    """Should the lock ever fail to exclude, the claim of the name still does."""
    (tmp_path / manifest_file(1)).write_bytes(b"theirs")
    with pytest.raises(EpochConflict, match="newest epoch there is 1"):
        commit(owner, 1)
    assert (tmp_path / manifest_file(1)).read_bytes() == b"theirs"


def test_segments_must_be_there_before_the_manifest(owner: StateDirectory) -> None:
    ghost = BatchRef("000000000001-x-0", "t", 1, 8, 0, 1, 0)
    with pytest.raises(SegmentsMissing, match="these segments do not exist: 000000000001-x-0"):
        owner.commit(manifest(1, [ghost]))
    assert owner.epochs() == []


def test_large_entries_get_files_of_their_own(owner: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "ALONE", 80)
    refs = owner.write(1, "a", 3, [entry("small", 1), entry("large", 2, 10), entry("other", 3)])
    assert [(ref.segment, ref.label, ref.nbytes) for ref in refs] == [
        ("000000000001-a-3", "small", 8),
        ("000000000001-a-3-1", "large", 80),
        ("000000000001-a-3", "other", 8),
    ]
    assert owner.write(1, "a", 4, []) == []
    assert sorted(owner.segments()) == ["000000000001-a-3", "000000000001-a-3-1"]


def test_a_commit_whose_reply_was_lost_has_happened(tmp_path: Path) -> None:
    disk = FaultyDisk(OsDisk(), Fault.LOST_REPLY)
    with StateDirectory(tmp_path, LocalBlob(tmp_path, disk)) as state:
        refs = state.write(1, "a", 0, [entry("t", 1)])
        disk.fail_next("link")
        state.commit(manifest(1, refs))
        assert numbers(state, state.manifest(1)) == [1]
        commit(state, 2)


def test_after_a_failed_folder_sync_nothing_is_committed_until_the_next_start(tmp_path: Path) -> None:
    disk = FaultyDisk(OsDisk(), Fault.LOST_REPLY)
    blob = LocalBlob(tmp_path, disk)
    with StateDirectory(tmp_path, blob) as state:
        refs = state.write(1, "a", 0, [entry("t", 1)])
        disk.fail_next("sync_folder")
        for _ in range(2):
            with pytest.raises(SyncFailed, match=r"sync of epochs in .* only the next start can determine"):
                state.commit(manifest(1, refs))
    with StateDirectory(tmp_path, blob) as state:
        assert state.epochs() == [1]
        commit(state, 2)


def test_a_full_disk_is_one_clear_error_and_the_state_stays(tmp_path: Path) -> None:
    disk = FaultyDisk(OsDisk(), Fault.DISK_FULL)
    with StateDirectory(tmp_path, LocalBlob(tmp_path, disk)) as state:
        refs = commit(state, 1)
        before = names(tmp_path, "epochs")
        disk.fail_next("write")
        with pytest.raises(DiskFull, match=f"no space left in {tmp_path} while writing epochs/.*: free some space"):
            commit(state, 2, refs)
        assert names(tmp_path, "epochs") == before
        disk.repair()
        new = [*refs, *state.write(2, "b", 0, [entry("t", 2)])]
        disk.fail_next("write")
        with pytest.raises(DiskFull, match=r"while writing epochs/000000000002.json"):
            state.commit(manifest(2, new))
        assert names(tmp_path, "epochs") == [*before, "000000000002-b-0.seg"]
        assert (state.head(), state.gc(2).manifests) == (1, 0)
        disk.repair()
        state.commit(manifest(2, new))
        assert numbers(state, state.manifest(2)) == [1, 2]


# --- collecting -------------------------------------------------------------------------------------------------------


def test_collection_keeps_what_the_newest_epochs_need(owner: StateDirectory, tmp_path: Path) -> None:
    first = commit(owner, 1)
    for epoch in range(2, 7):
        commit(owner, epoch, first)
    assert owner.gc(10).manifests == 0
    collected = owner.gc(3)
    assert (collected.manifests, collected.segments, collected.leased) == (3, 2, frozenset())
    assert owner.epochs() == [4, 5, 6]
    assert [int(name[:12]) for name in owner.segments()] == [1, 4, 5, 6]
    assert numbers(owner, owner.manifest(4)) == [1, 4]
    with pytest.raises(EpochGone, match=r"epoch 3 is no longer in state directory .*; the newest is 6"):
        owner.manifest(3)
    # Two epochs always stay, should the newest be damaged.
    assert owner.gc(0).manifests == 1
    assert owner.epochs() == [5, 6]


def test_collection_lists_no_folder_of_history(
    owner: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in range(1, 30):
        commit(owner, epoch)
    listed = []
    system = os.listdir

    def listdir(path: str) -> list[str]:
        listed.append(os.path.basename(path))
        return system(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert owner.gc(5).manifests == 24
    assert set(listed) == {"leases"}


def test_collection_may_run_beside_commits(owner: StateDirectory) -> None:
    done = threading.Event()
    problems: list[BaseException] = []

    def collect() -> None:
        try:
            while not done.is_set():
                owner.gc(2)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=collect)
    thread.start()
    refs: list[BatchRef] = []
    for epoch in range(1, 101):
        refs = commit(owner, epoch, refs[-3:])
    done.set()
    thread.join()
    assert problems == []
    owner.gc(2)
    assert owner.epochs() == [99, 100]
    batches = [f"{epoch:012d}-a-0" for epoch in range(96, 101)]
    assert sorted(owner.segments()) == sorted([*batches, "000000000096-a-rollup"])
    assert numbers(owner, owner.manifest(99)) == [96, 97, 98, 99]


def test_a_start_sweeps_what_nobody_names(tmp_path: Path) -> None:
    with StateDirectory(tmp_path) as state:
        refs = commit(state, 1)
        state.write(2, "failed", 0, [entry("t", 2)])
    (tmp_path / "epochs" / "000000000002.json.7.0.tmp").write_bytes(b"half")
    (tmp_path / "epochs" / "000000000002-a-0.seg.7.1.tmp").write_bytes(b"half")
    (tmp_path / "leases" / "000000000001.7.0").write_bytes(b"")
    with StateDirectory(tmp_path) as state:
        assert names(tmp_path, "epochs") == ["000000000001-a-0.seg", "000000000001.json"]
        assert numbers(state, state.manifest(1)) == [1]
        assert [ref.segment for ref in refs] == ["000000000001-a-0"]
        assert names(tmp_path, "leases") == []


def test_a_sweep_leaves_the_running_epoch_alone(owner: StateDirectory, tmp_path: Path) -> None:
    owner.write(1, "failed", 0, [entry("t", 9)])
    (tmp_path / "epochs" / "000000000001-dead-0.seg.7.1.tmp").write_bytes(b"half")
    commit(owner, 1)
    running = owner.write(2, "a", 0, [entry("t", 2)])
    (tmp_path / "epochs" / "000000000002-a-1.seg.7.1.tmp").write_bytes(b"half")
    (tmp_path / "epochs" / "foreign.seg").write_bytes(b"")
    assert owner.sweep() == 2
    assert sorted(owner.segments()) == ["000000000001-a-0", "000000000002-a-0", "foreign"]
    owner.commit(manifest(2, running))
    assert numbers(owner, owner.manifest(2)) == [2]


def test_a_blob_of_another_kind_will_do(tmp_path: Path) -> None:
    blob: Blob = LocalBlob(tmp_path)
    with StateDirectory("ignored", blob) as state:
        commit(state, 1)
        assert state.path == str(tmp_path)
        assert state.blob is blob
