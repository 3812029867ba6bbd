"""Named files on a real directory: whole or absent, claimed once, and errors that say what the system said."""

import errno
import os
import random
from pathlib import Path

import pytest

from tests.crash.faults import Fault, FaultyDisk
from tests.crash.simdisk import SimDisk
from vernier.storage.blob import disk as disk_module
from vernier.storage.blob.blob import Buffer, Owner
from vernier.storage.blob.disk import MAX_VECTORS, OsDisk, storage_error
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.errors import DiskFull, FileExists, FileFailed, FileMissing, StorageError, SyncFailed


@pytest.fixture
def blob(tmp_path: Path) -> LocalBlob:
    made = LocalBlob(tmp_path / "state")
    made.prepare(["a", "b"])
    return made


def test_a_file_is_written_whole_and_read_back(blob: LocalBlob) -> None:
    chunks: list[Buffer] = [b"", b"one", memoryview(b"two"), b"", bytearray(b"three")]
    assert blob.put("a/x", chunks) == 11
    assert blob.get("a/x") == b"onetwothree"
    assert bytes(blob.map("a/x")) == b"onetwothree"
    assert blob.size("a/x") == 11
    assert blob.list("a") == ["a/x"]
    blob.rename("a/x", "a/y")
    assert (blob.size("a/x"), blob.size("a/y")) == (None, 11)
    blob.delete("a/y")
    blob.delete("a/y")
    assert blob.list("a") == []
    assert blob.list("no such folder") == []


def test_any_number_of_chunks_and_partial_writes(blob: LocalBlob, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    chunks = [rng.randbytes(rng.randrange(40)) for _ in range(3 * MAX_VECTORS)]
    system = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, buffers: system(fd, [b"".join(buffers)[: rng.randrange(1, 900)]]))
    assert blob.put("a/x", chunks) == sum(map(len, chunks))
    assert blob.get("a/x") == b"".join(chunks)


def test_large_chunks_are_written_in_pieces(blob: LocalBlob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "MAX_BYTES", 1000)
    system, sizes = os.writev, list[int]()

    def counted(fd: int, buffers: list[memoryview]) -> int:
        sizes.append(sum(one.nbytes for one in buffers))
        return system(fd, buffers)

    monkeypatch.setattr(os, "writev", counted)
    chunks = [random.Random(at).randbytes(size) for at, size in enumerate((0, 1, 999, 1000, 1001, 0, 5000, 3))]
    assert blob.put("a/x", chunks) == sum(map(len, chunks))
    assert blob.get("a/x") == b"".join(chunks)
    assert sizes == [1000] * 8 + [4]


def test_a_file_whose_link_lost_its_reply_is_created(tmp_path: Path) -> None:
    disk = FaultyDisk(OsDisk(), Fault.LOST_REPLY)
    blob = LocalBlob(tmp_path / "state", disk)
    blob.prepare(["a"])
    disk.fail_next("link")
    blob.create("a/x", b"mine")
    assert blob.get("a/x") == b"mine"
    assert blob.list("a") == ["a/x"]
    blob.delete("a/x")
    disk.fail_next("link")
    blob.put("a/x", [b"of another"])
    with pytest.raises(FileExists):
        blob.create("a/x", b"mine")


def test_everything_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = LocalBlob(tmp_path / "above" / "state")
        made.prepare(["epochs", "leases"])
        made.put("epochs/a", [b"x"])
        made.create("epochs/b", b"y")
        made.overwrite("HEAD", b"z")
        held = [made.lock("LOCK"), made.hold("leases/1")]
    finally:
        os.umask(before)
    found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "above").rglob("*")}
    assert len(found) == 8
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o700
    for one in held:
        assert one is not None
        one.release()


def test_folders_that_exist_keep_their_modes(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    LocalBlob(tmp_path).prepare(["epochs"])
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        LocalBlob(tmp_path).prepare(["file"])


def test_an_empty_file_maps_to_nothing(blob: LocalBlob) -> None:
    blob.put("a/empty", [])
    assert (blob.get("a/empty"), bytes(blob.map("a/empty"))) == (b"", b"")


def test_what_a_dead_process_of_our_id_left_is_in_nobodys_way(blob: LocalBlob, tmp_path: Path) -> None:
    left = tmp_path / "state" / f"x.{os.getpid()}.0.tmp"
    left.write_bytes(b"half")
    blob.put("x", [b"whole"])
    assert blob.get("x") == b"whole"


def test_a_name_is_claimed_once(blob: LocalBlob) -> None:
    blob.create("a/x", b"first")
    with pytest.raises(FileExists, match=r"a/x already exists in .*state"):
        blob.create("a/x", b"second")
    assert blob.get("a/x") == b"first"
    assert blob.list("a") == ["a/x"]


def test_overwriting_is_in_place(blob: LocalBlob, tmp_path: Path) -> None:
    blob.overwrite("HEAD", b"first")
    inode = (tmp_path / "state" / "HEAD").stat().st_ino
    blob.overwrite("HEAD", b"again")
    assert (tmp_path / "state" / "HEAD").stat().st_ino == inode
    assert blob.get("HEAD") == b"again"


def test_what_is_mapped_outlives_its_name_and_keeps_the_file_from_writes(blob: LocalBlob) -> None:
    blob.put("a/x", [b"0123456789"])
    view = blob.map("a/x")
    view[0:1] = b"X"
    assert blob.get("a/x") == b"0123456789"
    blob.delete("a/x")
    assert bytes(view[1:]) == b"123456789"


def test_missing_files_are_named(blob: LocalBlob) -> None:
    for call in (blob.get, blob.map):
        with pytest.raises(FileMissing, match="a/none: no such file in"):
            call("a/none")


def test_locks_exclude_and_end_with_release(blob: LocalBlob) -> None:
    one = blob.lock("a/lock")
    assert one is not None
    assert blob.lock("a/lock") is None
    assert blob.owner("a/lock") == Owner(os.getpid())
    one.check()
    one.release()
    one.release()
    two = blob.lock("a/lock")
    assert two is not None
    two.release()
    assert blob.owner("a/none") is None


def test_what_is_held_is_there_until_it_is_released(blob: LocalBlob) -> None:
    one, two = blob.hold("a/x"), blob.hold("a/x")
    assert list(blob.present("a")) == blob.list("a")
    assert len(blob.list("a")) == 2
    one.release()
    one.release()
    assert len(blob.list("a")) == 1
    two.release()
    blob.put("a/dead", [b""])
    assert (list(blob.present("a")), blob.list("a")) == ([], [])


def test_a_lock_on_an_unlinked_file_is_refused(blob: LocalBlob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector removes the file between our open and our flock: we must not believe that we hold it."""
    system = os.open

    def open_then_lose(path: str, *args: int) -> int:
        fd = system(path, *args)
        os.unlink(path)
        return fd

    monkeypatch.setattr(os, "open", open_then_lose)
    assert blob.lock("a/lock") is None


@pytest.mark.parametrize(
    ("number", "operation", "kind", "says"),
    [
        (errno.ENOSPC, "write", DiskFull, "no space left in /d while writing f; the previous state is intact"),
        (errno.EDQUOT, "sync", DiskFull, "no space left in /d"),
        (errno.ENOENT, "read", FileMissing, "f: no such file in /d"),
        (errno.EEXIST, "link", FileExists, "f already exists in /d"),
        (errno.EACCES, "create", FileFailed, "create of f in /d failed: permission denied"),
        (errno.EIO, "sync", SyncFailed, "only the next start can determine what is durable"),
    ],
)
def test_errors_of_the_system_become_ours(number: int, operation: str, kind: type[StorageError], says: str) -> None:
    error = storage_error(OSError(number, "x"), operation, "f", "/d")
    assert type(error) is kind
    assert says in str(error)
    assert error.may_have_happened == (kind is SyncFailed)


@pytest.mark.parametrize("call", range(1, 6))
def test_a_failed_put_leaves_nothing_behind(tmp_path: Path, call: int) -> None:
    LocalBlob(tmp_path).prepare(["a"])
    disk = FaultyDisk(OsDisk(), Fault.DISK_FULL, call)
    blob = LocalBlob(tmp_path, disk)
    with pytest.raises(DiskFull):
        blob.put("a/x", [b"data"])
    with pytest.raises(DiskFull):
        blob.create("a/y", b"data")
    assert blob.list("a") == []


def test_without_a_folder_sync_a_power_cut_may_lose_a_name_with_it_never() -> None:
    """The model of the disk does lose what it may: else the crash tests would show nothing."""
    lost = 0
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        blob = LocalBlob("/state", disk)
        blob.prepare(["a"])
        blob.put("a/synced", [b"x"])
        blob.sync("a")
        blob.put("a/loose", [b"x"])
        disk.cut_power()
        assert blob.get("a/synced") == b"x"
        lost += blob.size("a/loose") is None
    assert 0 < lost < 50
