"""State in an object store: the calls, commits, a real S3 server."""

import errno
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crash.faults import Fault, FaultyStore
from tests.crash.simstore import SimStore
from tests.storage.clock import Clock, blob_of
from tests.storage.epochs import commit, entry, manifest, numbers
from tests.storage.s3 import BUCKET, s3_server
from vernier.storage.blob.blob import Blob
from vernier.storage.blob.filecache import FileCache
from vernier.storage.blob.leases import LOCK_MS
from vernier.storage.blob.location import BlobLocation
from vernier.storage.blob.object_store import FsspecStore, ObjectBlob
from vernier.storage.blob.segment import segment_file
from vernier.storage.errors import (
    CreateUnknown,
    EpochConflict,
    FileExists,
    FileFailed,
    FileMissing,
    NoFileSystem,
    OwnershipLost,
    StateInUse,
    StorageError,
)
from vernier.storage.state.manifest import encode_manifest, manifest_file
from vernier.storage.state.state import StateDirectory

# --- calls ------------------------------------------------------------------------------------------------------------


def test_objects_are_files(store: SimStore, clock: Clock) -> None:
    blob = blob_of(store, clock)
    blob.prepare(["a"])
    assert blob.put("a/x", [b"one", memoryview(b"two")]) == 6
    assert (blob.get("a/x"), bytes(blob.map("a/x")), blob.size("a/x")) == (b"onetwo", b"onetwo", 6)
    blob.rename("a/x", "a/y")
    assert (blob.list("a"), blob.list("none"), blob.size("a/x")) == (["a/y"], [], None)
    blob.overwrite("a/y", b"z")
    blob.delete("a/x")
    blob.create("a/x", b"new")
    with pytest.raises(FileExists, match="a/x already exists in sim://state"):
        blob.create("a/x", b"newer")
    with pytest.raises(FileMissing, match="a/none: no such file in sim://state"):
        blob.get("a/none")


def test_a_create_whose_reply_was_lost_is_looked_for(store: SimStore, clock: Clock) -> None:
    faulty = FaultyStore(store, Fault.LOST_REPLY)
    blob = blob_of(faulty, clock)
    faulty.fail_next("create")
    blob.create("a/x", b"ours")
    assert blob.get("a/x") == b"ours"


class Dark(SimStore):
    """A store that fails from some moment on."""

    def create(self, name: str, data: bytes) -> None:
        raise OSError(errno.EIO, "")

    def read(self, name: str, large: bool = False) -> bytes:
        raise OSError("timed out")


def test_a_create_of_which_nothing_can_be_learned(clock: Clock) -> None:
    with pytest.raises(
        CreateUnknown, match=r"creation of a/x in sim://state may have succeeded .* only the next start"
    ):
        blob_of(Dark(), clock).create("a/x", b"ours")
    with pytest.raises(FileFailed, match="read of a/x in sim://state failed: timed out"):
        blob_of(Dark(), clock).get("a/x")


# --- commits ----------------------------------------------------------------------------------------------------------


def test_an_owner_that_was_overtaken_commits_nothing(store: SimStore, clock: Clock) -> None:
    late = Clock()
    old = StateDirectory("sim://state", blob_of(store, late))
    old.acquire()
    refs = commit(old, 1)
    fresh = old.write(2, "old", 0, [entry("t", 2)])
    new = StateDirectory("sim://state", blob_of(store, clock))
    with pytest.raises(
        StateInUse, match=r"sim://state is in use by pid \d+ on .* \(for 2 s more, unless it renews its lock"
    ):
        new.acquire()
    assert clock.acquired(new) == manifest(1, refs)
    # What the old owner may still commit stays whole; the name of the epoch decides who did.
    assert numbers(new, manifest(2, [*refs, *fresh])) == [1, 2]
    commit(new, 2, refs)
    with pytest.raises(EpochConflict):
        old.commit(manifest(2, [*refs, *fresh], attempt="old"))
    assert new.sweep() == 0, "the commit has deleted what the old owner wrote"
    late.ms += LOCK_MS
    for operation in (lambda: old.commit(manifest(3, refs)), lambda: old.gc(2), old.sweep):
        with pytest.raises(OwnershipLost):
            operation()
    commit(new, 3, refs)
    new.release()
    with StateDirectory("sim://state", blob_of(store, clock)) as third:
        assert third.epochs() == [1, 2, 3]


def test_an_old_owner_that_is_quicker_makes_a_whole_epoch(store: SimStore, clock: Clock) -> None:
    late = Clock()
    old = StateDirectory("sim://state", blob_of(store, late))
    old.acquire()
    fresh = old.write(1, "old", 0, [entry("t", 1)])
    new = StateDirectory("sim://state", blob_of(store, clock))
    clock.acquired(new)
    old.commit(manifest(1, fresh, attempt="old"))
    with pytest.raises(EpochConflict, match="the newest epoch there is 1"):
        commit(new, 1)
    new.release()
    with StateDirectory("sim://state", blob_of(store, clock)) as third:
        found = third.latest()
        assert found is not None
        assert numbers(third, found) == [1]


def test_what_an_overtaken_owner_leaves_is_deleted_by_later_commits(store: SimStore, clock: Clock) -> None:
    """Segments that its workers write after the takeover, and the manifest of a number that had been freed."""
    old = StateDirectory("sim://state", blob_of(store, Clock()))
    old.acquire()
    refs = commit(old, 1)
    new = StateDirectory("sim://state", blob_of(store, clock))
    clock.acquired(new)
    old.write(2, "old", 0, [entry("t", 2)])
    for epoch in range(2, 9):
        refs = commit(new, epoch, refs[-1:])
        new.gc(2)
    assert sorted(name for name in new.segments() if "-old-" in name) == []
    left = old.write(2, "old", 1, [entry("t", 2)])
    ahead = old.write(10, "old", 1, [entry("t", 2)])
    store.put(manifest_file(2), encode_manifest(manifest(2, left, attempt="old")))
    assert new.epochs() == [2, 7, 8]
    commit(new, 9, refs[-1:])
    assert new.epochs() == [7, 8, 9]
    assert sorted(name for name in new.segments() if "-old-" in name) == [ahead[0].segment]
    assert numbers(new, new.manifest(9)) == [8, 9]


@pytest.mark.parametrize("saved", [False, True])
def test_an_overtaken_owner_may_still_be_collecting(store: SimStore, clock: Clock, saved: bool) -> None:
    """A manifest that it has hidden is gone, or has its name back, when its successor wants to give it the name."""
    with StateDirectory("sim://state", blob_of(store, clock)) as old:
        refs = commit(old, 3, commit(old, 2, commit(old, 1)))
    name = manifest_file(1)
    hidden = store.objects.pop(name)
    store.objects[f"{name}.going"] = hidden
    blob = blob_of(store, clock)
    rename = blob.rename

    def renamed(file: str, to: str) -> None:
        store.remove(file)
        if saved:
            store.put(to, hidden)
        rename(file, to)

    blob.rename = renamed  # type: ignore[method-assign]
    with StateDirectory("sim://state", blob) as new:
        assert new.damaged == []
        assert new.epochs() == [1, 2, 3] if saved else [2, 3]
        commit(new, 4, refs)
        new.gc(2)
        assert new.epochs() == [3, 4]


@pytest.mark.parametrize("lost", [manifest_file(2), "segment"])
def test_a_file_that_cannot_be_read_now_is_not_damage(store: SimStore, clock: Clock, lost: str) -> None:
    """The newest epoch may be published: an owner that went back to the one before it would publish it again."""
    with StateDirectory("sim://state", blob_of(store, clock)) as state:
        refs = commit(state, 2, commit(state, 1))
    name = segment_file(refs[-1].segment) if lost == "segment" else lost
    blob = blob_of(store, clock)
    refused = FileFailed(operation="read", name=name, where=blob.where, reason="503 Slow Down")
    get, read_each, map_ = blob.get, blob.get_each, blob.map

    def mapped(file: str) -> memoryview:
        if file == name:
            raise refused
        return map_(file)

    blob.map = mapped  # type: ignore[method-assign]
    blob.get_each = lambda files: [refused if file == name else get(file) for file in files]  # type: ignore[method-assign]
    state = StateDirectory("sim://state", blob)
    with pytest.raises(FileFailed, match="503 Slow Down"):
        state.acquire()
    assert (state.epochs(), state.damaged) == ([1, 2], [])
    blob.map, blob.get_each = map_, read_each  # type: ignore[method-assign]
    assert clock.acquired(state) == manifest(2, refs)


def test_a_successor_reads_older_manifests_at_its_first_collection(store: SimStore, clock: Clock) -> None:
    """Its first epoch does not wait for them, and nothing is deleted before."""
    old = StateDirectory("sim://state", blob_of(store, Clock()))
    old.acquire()
    refs = commit(old, 1)
    for epoch in range(2, 6):
        refs = commit(old, epoch, refs[-1:])
    blob = blob_of(store, clock)
    read = list[str]()
    get_each = blob.get_each

    def counted(names: Sequence[str]) -> Sequence[bytes | StorageError]:
        read.extend(names)
        return get_each(names)

    blob.get_each = counted  # type: ignore[method-assign]
    new = StateDirectory("sim://state", blob)
    clock.acquired(new)
    left = old.write(6, "old", 0, [entry("t", 777)])
    refs = commit(new, 6, refs[-1:])
    assert read == [manifest_file(5)]
    assert {ref.segment for ref in left} <= set(new.segments()), "nothing is swept yet"
    flip = bytearray(store.read(manifest_file(2)))
    flip[-1] ^= 4
    store.put(manifest_file(2), bytes(flip))
    new.gc(3)
    assert sorted(read) == [manifest_file(epoch) for epoch in range(1, 6)]
    assert (new.epochs(), len(new.damaged)) == ([4, 5, 6], 1)
    refs = commit(new, 7, refs[-1:])
    assert sorted(name for name in new.segments() if "-old-" in name) == []
    assert numbers(new, new.manifest(4)) == [3, 4]
    assert numbers(new, new.manifest(7)) == [6, 7]


@pytest.mark.parametrize("epochs", [0, 1, 6])
def test_an_owner_that_is_stopped_before_its_commit_shows_nothing(store: SimStore, clock: Clock, epochs: int) -> None:
    """It looks at its lock, is stopped, and goes on when the epoch's name has been used and, after six, freed again."""
    blob = blob_of(store, clock)
    old = StateDirectory("sim://state", blob)
    old.acquire()
    refs = commit(old, 1)
    fresh = old.write(2, "old", 0, [entry("t", 777)])
    new = StateDirectory("sim://state", blob_of(store, clock))
    create = blob.create

    def stopped(name: str, data: bytes) -> None:
        clock.acquired(new)
        kept = refs
        for epoch in range(2, 2 + epochs):
            kept = commit(new, epoch, kept)
            new.gc(2)
        create(name, data)

    blob.create = stopped  # type: ignore[method-assign]
    with pytest.raises(EpochConflict if epochs == 1 else OwnershipLost):
        old.commit(manifest(2, [*refs, *fresh], attempt="old"))
    reader = StateDirectory("sim://state", blob_of(store, clock))
    assert (reader.head(), reader.epochs()) == {0: (1, [1, 2]), 1: (2, [1, 2]), 6: (7, [6, 7])}[epochs]
    with reader.lease() as lease:
        assert lease.manifest.attempt == "a"
        assert 777 not in numbers(reader, lease.manifest)


def test_a_segment_that_only_a_cache_has_is_missed(store: SimStore, clock: Clock, tmp_path: Path) -> None:
    blob = ObjectBlob("sim://state", store, clock, FileCache(tmp_path, 1 << 20), beating=False)
    with StateDirectory("sim://state", blob) as state:
        commit(state, 1)
        commit(state, 2)
    store.remove("epochs/000000000002-a-0.seg")
    with StateDirectory("sim://state", blob) as state:
        assert state.epochs() == [1]
        assert "000000000002-a-0.seg: no such file" in str(state.damaged[0])


@pytest.mark.parametrize("name", ["epochs/000000000003.json", "epochs/000000000003-a-0.seg"])
@pytest.mark.parametrize("damage", ["cut", "bit", "gone"])
def test_damage_in_a_store_is_named_and_the_epoch_before_it_taken(
    store: SimStore, clock: Clock, name: str, damage: str
) -> None:
    with StateDirectory("sim://state", blob_of(store, clock)) as state:
        refs = commit(state, 1)
        for epoch in (2, 3):
            refs = commit(state, epoch, refs)
    data = bytearray(store.read(name))
    if damage == "gone":
        store.remove(name)
    elif damage == "cut":
        store.put(name, bytes(data[:-9]))
    else:
        data[40] ^= 16
        store.put(name, bytes(data))
    with StateDirectory("sim://state", blob_of(store, clock)) as state:
        latest = state.latest()
        assert latest is not None
        assert (latest.epoch, numbers(state, latest)) == (2, [1, 2])
        if not (damage == "gone" and name.endswith(".json")):
            assert "000000000003" in str(state.damaged[0])
            assert ("epochs/000000000003.json.damaged" in store.objects) == (damage != "gone" or ".seg" in name)
        assert "epochs/000000000003-a-0.seg" not in store.objects


# --- a real server ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture
def uri(server: dict[str, str]) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/state"


def opened(uri: str, cache: Path) -> Blob:
    return BlobLocation(uri, str(cache)).open()


def test_a_state_in_s3(uri: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with StateDirectory(uri, opened(uri, cache)) as state:
        refs = commit(state, 1)
        for epoch in range(2, 6):
            refs = commit(state, epoch, refs[-2:])
        with pytest.raises(StateInUse, match=f"state directory {uri} is in use by pid"):
            StateDirectory(uri, opened(uri, cache)).acquire()
        with StateDirectory(uri, opened(uri, cache)).lease(2) as lease:
            collected = state.gc(2)
            assert (collected.manifests, sorted(collected.leased)) == (2, [2])
            assert numbers(state, lease.manifest) == [1, 2]
        assert state.gc(2).manifests == 1
        assert state.epochs() == [4, 5]
        with pytest.raises(FileExists):
            state.blob.create(manifest_file(5), b"another")
    # Another machine has no copies yet.
    with StateDirectory(uri, opened(uri, tmp_path / "other")) as state:
        latest = state.latest()
        assert latest is not None
        assert (numbers(state, latest), state.head()) == ([3, 4, 5], 5)
        assert sorted(state.segments()) == [f"{epoch:012d}-a-0" for epoch in range(2, 6)]


def test_large_objects_and_odd_names(uri: str, tmp_path: Path) -> None:
    blob = opened(uri, tmp_path)
    blob.prepare(["epochs"])
    data = np.arange(1 << 21).tobytes()
    assert blob.put("epochs/large", [data[:100], data[100:]]) == len(data)
    assert blob.map("epochs/large") == data
    assert opened(uri, tmp_path / "other").map("epochs/large") == data
    assert blob.size("epochs/none") is None
    blob.delete("epochs/none")
    assert blob.list("none") == []


def test_a_small_object_takes_one_request(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(uri, tmp_path).put("epochs/one", [b"a manifest"])
    store = FsspecStore(uri)
    client, calls = store._open(), list[str]()
    call = client._call_s3

    async def counted(method: str, *args: Any, **options: Any) -> Any:
        calls.append(method)
        return await call(method, *args, **options)

    monkeypatch.setattr(client, "_call_s3", counted)
    assert store.read("epochs/one") == b"a manifest"
    assert calls == ["get_object"]
    assert store.read("epochs/one", large=True) == b"a manifest"
    assert calls == ["get_object", "head_object", "get_object"]


def test_many_objects_are_read_at_once_and_each_tells_its_own_error(uri: str, tmp_path: Path) -> None:
    for blob in (opened(uri, tmp_path), opened(str(tmp_path / "state"), tmp_path)):
        blob.prepare(["epochs"])
        for number in range(40):
            blob.put(f"epochs/{number}", [b"%d" % number])
        found = blob.get_each([f"epochs/{number}" for number in range(41)])
        assert found[:40] == [b"%d" % number for number in range(40)]
        assert isinstance(found[40], FileMissing)
        assert blob.get_each([]) == []


def test_two_processes_and_a_crash(uri: str, server: dict[str, str], tmp_path: Path) -> None:
    """For other machines, a process that is killed holds the lock for a while, and then no more; no other epochs
    suffer. On its own machine it holds nothing."""
    program = (
        "import os, sys\n"
        "from vernier.storage.state.state import StateDirectory\n"
        "from tests.storage.epochs import commit\n"
        "state = StateDirectory(sys.argv[1])\n"
        "state.acquire()\n"
        "commit(state, 1)\n"
        "os._exit(9)\n"
    )
    soon = Clock()
    assert subprocess.run([sys.executable, "-c", program, uri], check=False).returncode == 9
    other = StateDirectory(uri, ObjectBlob(uri, FsspecStore(uri), soon, beating=False, machine="another"))
    with pytest.raises(StateInUse) as refused:
        other.acquire()
    assert refused.value.left_ms == LOCK_MS
    found = soon.acquired(other)
    assert found is not None
    assert numbers(other, found) == [1]
    other.release()
    uri = f"{uri}-alone"
    assert subprocess.run([sys.executable, "-c", program, uri], check=False).returncode == 9
    with StateDirectory(uri, ObjectBlob(uri, FsspecStore(uri), soon, beating=False)) as taken:
        assert taken.epochs() == [1]


def test_places_that_are_none(server: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NoFileSystem, match="cannot open nofs://x: protocol not known: nofs"):
        BlobLocation("nofs://x").open()
    with pytest.raises(FileFailed, match=r"use of s3://absent/x in s3://absent/x failed: there is no bucket absent"):
        StateDirectory("s3://absent/x", opened("s3://absent/x", tmp_path)).acquire()


def test_any_file_system_of_fsspec_will_do(tmp_path: Path) -> None:
    uri = f"memory://{uuid.uuid4().hex}"
    with StateDirectory(uri, opened(uri, tmp_path)) as state:
        commit(state, 1)
        commit(state, 2)
        assert state.gc(2).manifests == 0
    with StateDirectory(uri, opened(uri, tmp_path)) as state:
        assert (state.epochs(), state.head()) == ([1, 2], 2)
