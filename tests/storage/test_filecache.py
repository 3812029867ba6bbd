"""Local copies: fetched once, whole or fetched again, bounded."""

import os
from pathlib import Path

import pytest

from vernier.storage.blob.filecache import FileCache
from vernier.storage.errors import CacheUnsafe


class Far:
    """Files far away, and how often each was fetched."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def map(self, cache: FileCache, name: str, size: int = 100) -> bytes:
        def fetch() -> bytes:
            self.fetched.append(name)
            return name.encode() * size

        return bytes(cache.map(name, fetch))


@pytest.fixture
def far() -> Far:
    return Far()


def test_a_file_is_fetched_once(tmp_path: Path, far: Far) -> None:
    cache = FileCache(tmp_path / "c", 1 << 20)
    assert far.map(cache, "a/x") == far.map(cache, "a/x") == b"a/x" * 100
    assert far.map(FileCache(tmp_path / "c", 1 << 20), "a/x") == b"a/x" * 100
    cache.add("a/y", [b"a/", b"", b"y" * 3])
    assert far.map(cache, "a/y") == b"a/yyy"
    assert far.fetched == ["a/x"]
    cache.drop("a/x")
    cache.drop("a/x")
    far.map(cache, "a/x")
    assert far.fetched == ["a/x", "a/x"]


@pytest.mark.parametrize("damage", ["cut", "zeros", "bit", "empty", "trailer"])
def test_a_torn_copy_is_fetched_again(tmp_path: Path, far: Far, damage: str) -> None:
    good = far.map(FileCache(tmp_path, 1 << 20), "a/x")
    path = tmp_path / "a" / "x"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-30:]
    elif damage == "zeros":
        data[100:200] = bytes(100)
    elif damage == "bit":
        data[7] ^= 4
    elif damage == "empty":
        data.clear()
    else:
        data[-1] ^= 1
    path.write_bytes(data)
    later = FileCache(tmp_path, 1 << 20)
    assert far.map(later, "a/x") == good
    assert far.map(FileCache(tmp_path, 1 << 20), "a/x") == good
    assert far.fetched == ["a/x", "a/x"]


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, far: Far) -> None:
    cache = FileCache(tmp_path, 1_000)
    for number, name in enumerate(("aa", "bb", "cc")):
        far.map(cache, name)
        os.utime(tmp_path / name, ns=(number, number))
    kept = cache.map("aa", lambda: b"")
    far.map(cache, "dd", 200)
    assert sorted(os.listdir(tmp_path)) == ["aa", "cc", "dd"]
    far.map(cache, "ee", 4_000)
    assert os.listdir(tmp_path) == ["ee"]
    assert bytes(kept) == b"aa" * 100
    assert far.fetched == ["aa", "bb", "cc", "dd", "ee"]


def test_without_room_files_are_in_memory(tmp_path: Path, far: Far) -> None:
    (tmp_path / "c").write_bytes(b"in the way")
    assert far.map(FileCache(tmp_path / "c", 1 << 20), "a/x") == b"a/x" * 100


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, far: Far) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(CacheUnsafe, match=f"other users can write to the cache {tmp_path}: remove it"):
        far.map(FileCache(tmp_path, 1 << 20), "x")
    # Nor is a folder in which another user may replace the file.
    with pytest.raises(CacheUnsafe, match=f"other users can write to the cache {tmp_path}/c: remove it"):
        far.map(FileCache(tmp_path / "c", 1 << 20), "x")
    tmp_path.chmod(0o1777)
    assert far.map(FileCache(tmp_path / "c", 1 << 20), "x") == b"x" * 100


def test_a_copy_that_another_process_evicts_at_once_is_fetched_into_memory(
    tmp_path: Path, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def renamed_and_evicted(old: str, new: str) -> None:
        rename(old, new)
        os.unlink(new)

    monkeypatch.setattr(os, "rename", renamed_and_evicted)
    cache = FileCache(tmp_path / "cache", 1 << 20)
    assert bytes(cache.map("a", lambda: b"bytes")) == b"bytes"
