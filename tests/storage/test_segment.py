"""Segment files: what comes back, where it lies, and damage that is found and named."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.crash.faults import Fault, FaultyDisk
from tests.crash.simdisk import SimDisk
from vernier.storage.blob import segment as segment_module
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import (
    ALIGNMENT,
    Entry,
    Segment,
    checksum,
    open_segment,
    segment_file,
    segment_name,
    write_segment,
)
from vernier.storage.errors import Damaged, DiskFull, EntryMissing, FileMissing, UnknownFormat

ENTRIES = [
    Entry("rows/0", {"updates": 3, "name": "köln"}, {"hashes": np.arange(10), "vals": np.ones((4, 3), np.int64)}),
    Entry("empty", {}, {}),
    Entry("odd", {}, {"none": np.empty((0, 3), np.int64), "one": np.full(1, -1, np.int8), "bits": np.eye(3) > 0}),
]


@pytest.fixture
def blob(tmp_path: Path) -> LocalBlob:
    made = LocalBlob(tmp_path)
    made.prepare(["epochs"])
    return made


def same(left: Entry, right: Entry) -> bool:
    return (
        left.label == right.label
        and left.meta == right.meta
        and list(left.arrays) == list(right.arrays)
        and all(
            a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            for a, b in zip(left.arrays.values(), right.arrays.values(), strict=True)
        )
    )


def test_entries_come_back_aligned_and_without_a_copy(blob: LocalBlob) -> None:
    info = write_segment(blob, "s", ENTRIES)
    segment = open_segment(blob, "s")
    segment.verify()
    assert (info.name, info.bytes, info.checksum) == ("s", segment.nbytes, segment.checksum)
    assert info.bytes == blob.size(segment_file("s"))
    assert segment.labels == ["rows/0", "empty", "odd"]
    assert all(same(entry, found) for entry, found in zip(ENTRIES, segment.entries(), strict=True))
    assert same(segment.entry("odd"), ENTRIES[2])
    for entry in segment.entries():
        for array in entry.arrays.values():
            assert array.nbytes == 0 or array.ctypes.data % ALIGNMENT == 0
            # The same type as an array in memory, else every kernel would be compiled twice.
            assert array.flags.writeable
            assert not array.flags.owndata


def test_arrays_live_on_after_segment_and_file(blob: LocalBlob) -> None:
    write_segment(blob, "s", ENTRIES)
    array = open_segment(blob, "s").entry("rows/0").arrays["hashes"]
    blob.delete(segment_file("s"))
    assert array.tolist() == list(range(10))


arrays = hnp.arrays(
    st.sampled_from([np.int64, np.uint64, np.int8, np.bool_, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
)
entries = st.lists(
    st.builds(
        Entry,
        st.text(max_size=5),
        st.dictionaries(st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), max_size=3),
        st.dictionaries(st.text(max_size=3), arrays, max_size=4),
    ),
    max_size=4,
    unique_by=lambda entry: entry.label,
)


@given(entries)
def test_any_entries_come_back(written: list[Entry]) -> None:
    blob = LocalBlob("/state", SimDisk(random.Random(0)))
    blob.prepare(["epochs"])
    write_segment(blob, "s", written)
    segment = open_segment(blob, "s")
    segment.verify()
    assert all(same(entry, found) for entry, found in zip(written, segment.entries(), strict=True))


NUMBERS = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1), st.integers(2**63 - 2**17, 2**63 - 1))
columns = st.tuples(st.integers(-(2**63), 2**63 - 1), st.lists(NUMBERS, min_size=1, max_size=20)).map(
    lambda drawn: np.array([max(-(2**63), min(2**63 - 1, drawn[0] + one)) for one in drawn[1]], np.int64)
)


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(columns, arrays)))
def test_narrow_numbers_come_back_as_they_were(given: dict[str, Any]) -> None:
    blob = LocalBlob("/state", SimDisk(random.Random(0)))
    blob.prepare(["epochs"])
    entry = Entry("e", {}, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_module, "_NARROW", 1)
        narrow = entry.narrow()
    write_segment(blob, "s", [narrow])
    segment = open_segment(blob, "s")
    segment.verify()
    assert same(segment.entry("e"), entry)
    assert segment.nbytes_of("e") == narrow.nbytes <= entry.nbytes
    for name, array in given.items():
        if array.dtype == np.int64 and array.size and int(array.max()) - int(array.min()) < 256:
            assert narrow.arrays[name].nbytes == array.size


def test_only_large_arrays_are_narrow(blob: LocalBlob) -> None:
    assert ENTRIES[0].narrow().bases == {}
    large = Entry("large", {}, {"times": 10**18 + np.arange(10_000), "hashes": np.arange(10_000) << 40})
    narrow = large.narrow()
    assert narrow.bases == {"times": 10**18}
    assert narrow.nbytes == 20_000 + 80_000
    # A release that does not know of them can read other segments.
    write_segment(blob, "s", [large])
    write_segment(blob, "t", [narrow])
    assert [blob.get(segment_file(name))[8] for name in "st"] == [1, 2]
    assert same(open_segment(blob, "t").entry("large"), large)


def test_slices_and_other_layouts_are_stored_in_order(blob: LocalBlob) -> None:
    table = np.arange(12).reshape(3, 4)
    parts = {"columns": table.T, "some": table[:, 1:3], "alike": np.broadcast_to(np.int64(7), 5)}
    write_segment(blob, "s", [Entry("e", {}, parts)])
    found = open_segment(blob, "s").entry("e").arrays
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in parts.items()
    }


def test_an_entry_is_verified_when_it_is_given_out(
    blob: LocalBlob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening does not look at arrays; the first use of an entry does, unless it is large and the caller is lazy."""
    write_segment(blob, "s", ENTRIES)
    path = tmp_path / segment_file("s")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    segment = open_segment(blob, "s")
    assert segment.meta("odd") == ENTRIES[2].meta
    segment.entry("rows/0")
    for _ in range(2):
        with pytest.raises(Damaged, match=r"segment s: entry 'odd': array bits: checksum \w{16}, expected \w{16}"):
            segment.entry("odd")
    with pytest.raises(Damaged):
        segment.entry("odd", lazy=True)
    monkeypatch.setattr(segment_module, "LARGE", 1)
    segment.entry("odd", lazy=True)
    assert segment.is_verified("rows/0")
    assert not segment.is_verified("odd")


def test_every_flipped_bit_that_matters_is_found(blob: LocalBlob) -> None:
    write_segment(blob, "s", ENTRIES)
    data = bytearray(blob.get(segment_file("s")))
    used = used_bytes(data)
    assert 400 < len(used) < len(data)
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        if at in used:
            with pytest.raises((Damaged, UnknownFormat), match="segment s: "):
                Segment("s", memoryview(data)).verify()
        else:
            Segment("s", memoryview(data)).verify()
        data[at] ^= 1 << at % 8
    Segment("s", memoryview(data)).verify()


def used_bytes(data: bytearray) -> set[int]:
    """All but the padding between arrays, which means nothing."""
    used = set(range(64 + int.from_bytes(data[16:24], "little")))
    start = np.frombuffer(data, np.uint8).ctypes.data
    for entry in Segment("s", memoryview(data)).entries():
        for array in entry.arrays.values():
            first = array.ctypes.data - start
            used |= set(range(first, first + array.nbytes))
    return used


def test_every_cut_is_found(blob: LocalBlob) -> None:
    write_segment(blob, "s", ENTRIES)
    whole = blob.get(segment_file("s"))
    for length in range(len(whole)):
        with pytest.raises(Damaged, match=f"segment s: is {length} bytes long, "):
            Segment("s", memoryview(whole[:length]))
    with pytest.raises(Damaged, match=f"is {len(whole) + 1} bytes long, expected {len(whole)}"):
        Segment("s", memoryview(whole + b"\0"))


def test_other_files_and_newer_formats_are_told_apart(blob: LocalBlob) -> None:
    blob.put(segment_file("s"), [bytes(100)])
    with pytest.raises(Damaged, match="not a segment"):
        open_segment(blob, "s")
    write_segment(blob, "s", ENTRIES)
    data = bytearray(blob.get(segment_file("s")))
    data[8] = 9
    data[56:64] = checksum(data[:56]).to_bytes(8, "little")
    blob.put(segment_file("s"), [data])
    with pytest.raises(UnknownFormat, match="segment s: format 9, this release reads 2"):
        open_segment(blob, "s")


def test_what_is_not_there_is_named(blob: LocalBlob) -> None:
    with pytest.raises(FileMissing, match=r"epochs/none\.seg"):
        open_segment(blob, "none")
    write_segment(blob, "s", ENTRIES)
    for call in (open_segment(blob, "s").entry, open_segment(blob, "s").meta):
        with pytest.raises(EntryMissing, match="segment s has no entry 'rows/9'"):
            call("rows/9")


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        ([Entry("a", {}), Entry("a", {})], ValueError, "labels of its entries must differ"),
        ([Entry("a", {}, {"x": np.array([{}], object)})], TypeError, "fixed-size numbers, not object"),
    ],
)
def test_what_cannot_be_stored_is_refused(blob: LocalBlob, bad: list[Entry], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        write_segment(blob, "s", bad)
    assert blob.list("epochs") == []


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    LocalBlob(tmp_path).prepare(["epochs"])
    blob = LocalBlob(tmp_path, FaultyDisk(OsDisk(), Fault.DISK_FULL, 2))
    with pytest.raises(DiskFull, match=r"while writing epochs/s\.seg"):
        write_segment(blob, "s", ENTRIES)
    assert blob.list("epochs") == []


@pytest.mark.parametrize("name", ["", "a", "000000000001-x-0", "a.seg"])
def test_names_and_files(name: str) -> None:
    assert segment_name(segment_file(name)) == name
    assert segment_name("epochs/a.seg.7.0.tmp") is None
