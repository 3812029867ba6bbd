"""Segment files: the new batches of one worker in one epoch, written once and read by mmap.

    header     64 bytes: magic, format version, directory length and checksum, file length, checksum of the header
    directory  JSON: for each entry its label, its meta, and each array's name, dtype, shape, offset, bytes, checksum,
               and, if its numbers are stored narrow, what to add to each
    arrays     raw little-endian bytes, each at a multiple of 64; offsets count from the end of the directory

Format 1 has no narrow arrays. A segment without any is written in that format.

Opening a segment maps the file and reads only the header and the directory. The header contains the directory's
checksum and the directory those of the arrays, so the header covers every byte (xxh3_64). A segment verifies the arrays
of an entry the first time the entry is read. Callers that read a few pages of a large entry, and know that another
process has verified it (service/coordinator/scrub.py), pass `lazy` and load only those pages.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from vernier.storage.blob.blob import Blob, Buffer
from vernier.storage.errors import Damaged, EntryMissing, FileMissing, UnknownFormat

FORMAT = 2
_PLAIN = 1
ALIGNMENT = 64
LARGE = 1 << 22
"""From this size in bytes on, an entry gets a segment of its own, and verifying it takes longer than opening it."""
FOLDER = "epochs"
"""Segments and manifests share a folder, so that one sync makes the names of both durable."""
SUFFIX = ".seg"

MAGIC = b"VNSEGMNT"
# magic, format, reserved, directory bytes, directory checksum, file bytes, reserved; then the checksum of these.
_HEADER = struct.Struct("<8sIIQQQQ")
_CHECKSUM = struct.Struct("<Q")
_HEADER_BYTES = 64
_PADDING = bytes(ALIGNMENT)
_NARROW = 1 << 16
"""From this size in bytes on, it is worth while to store the numbers of an array narrow."""
_PIECE = 1 << 20
"""Bytes verified at a time; other threads can run between two pieces."""

AnyArray = NDArray[Any]


@dataclass(frozen=True)
class Entry:
    """What a segment stores under one label: a batch, a stash (updates held back until their time) or dead letters.

    meta: any JSON object. arrays: fixed-size dtypes, any shape, including empty ones; they are stored unchanged.
    bases: for arrays that `narrow` has made, what was taken from each of their numbers.
    """

    label: str
    meta: dict[str, Any]
    arrays: Mapping[str, AnyArray] = field(default_factory=dict)
    bases: Mapping[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without padding."""
        return sum(array.nbytes for array in self.arrays.values())

    def narrow(self) -> "Entry":
        """The entry with large arrays of int64 in as few bytes a number as their range needs. A segment gives them out
        as they were, in copies. O(bytes)."""
        arrays, bases = dict(self.arrays), dict(self.bases)
        for name, array in self.arrays.items():
            if array.dtype != np.int64 or array.nbytes < _NARROW:
                continue
            base = int(array.min())
            dtype = np.min_scalar_type(int(array.max()) - base)
            if dtype.itemsize < array.itemsize:
                arrays[name], bases[name] = (array - base).astype(dtype), base
        return Entry(self.label, self.meta, arrays, bases)


class SegmentInfo(NamedTuple):
    """A written segment: its name, its file size in bytes, and the checksum of its directory (which covers the
    rest)."""

    name: str
    bytes: int
    checksum: int


class _ArrayRecord(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    checksum: int
    base: int | None = None


class _EntryRecord(msgspec.Struct, frozen=True):
    label: str
    meta: dict[str, Any]
    arrays: list[_ArrayRecord]


class _Directory(msgspec.Struct, frozen=True):
    entries: list[_EntryRecord]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Directory).decode


def segment_file(name: str) -> str:
    """A segment's file name in the blob."""
    return f"{FOLDER}/{name}{SUFFIX}"


def segment_name(file: str) -> str | None:
    """The segment's name from its file name; None if the file is not a segment."""
    name = file.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    return name if file == segment_file(name) else None


def damaged_file(problem: Damaged) -> str:
    """The name of the damaged file in the blob."""
    return segment_file(problem.name) if problem.kind == "segment" else problem.name


def checksum(data: Buffer) -> int:
    """The xxh3_64 of some bytes."""
    return xxhash.xxh3_64_intdigest(data)


def write_segment(blob: Blob, name: str, entries: Sequence[Entry]) -> SegmentInfo:
    """Write a segment, whole or not at all. Its bytes are synced; its name becomes durable with the next commit.

    name: new in this blob. Labels must be distinct. One sync. The cost is writing the arrays, plus a copy of those that
    are not contiguous. Raises DiskFull and other StorageErrors; then no file is left behind.
    """
    records, chunks, offset = [], [], 0
    for entry in entries:
        arrays = []
        for array_name, array in entry.arrays.items():
            data = _bytes_of(array)
            gap = -offset % ALIGNMENT
            if gap:
                chunks.append(memoryview(_PADDING)[:gap])
                offset += gap
            where = offset, data.nbytes, checksum(data), entry.bases.get(array_name)
            arrays.append(_ArrayRecord(array_name, array.dtype.str, array.shape, *where))
            chunks.append(data)
            offset += data.nbytes
        records.append(_EntryRecord(entry.label, entry.meta, arrays))
    labels = [entry.label for entry in entries]
    if len(set(labels)) != len(labels):
        raise ValueError(f"segment {name}: the labels of its entries must differ, got {labels}")
    directory = _encode(_Directory(records))
    gap = -len(directory) % ALIGNMENT
    mark = checksum(directory)
    length = _HEADER_BYTES + len(directory) + gap + offset
    version = FORMAT if any(entry.bases for entry in entries) else _PLAIN
    header = _HEADER.pack(MAGIC, version, 0, len(directory), mark, length, 0)
    header += bytes(_HEADER_BYTES - _CHECKSUM.size - len(header))
    header += _CHECKSUM.pack(checksum(header))
    written = blob.put(segment_file(name), [header, directory, memoryview(_PADDING)[:gap], *chunks])
    return SegmentInfo(name, written, mark)


def open_segment(blob: Blob, name: str) -> "Segment":
    """Open a segment: checks the header and the directory, reads no array.

    Raises FileMissing, UnknownFormat, and Damaged if the file is truncated or its header or directory has changed.
    """
    return Segment(name, blob.map(segment_file(name)))


def read_and_verify(blob: Blob, name: str) -> Iterator[int]:
    """Compare all checksums of a segment by reading its file; yields the number of bytes compared at each step.

    Reading is safer than mapping here. If another process truncates a mapped file (as `cp` over it does for a moment),
    SIGBUS kills every process that touches the missing pages; a file that is read is reported as Damaged. Raises what
    `open_segment` raises.
    """
    size = blob.size(segment_file(name))
    if size is None:
        raise FileMissing(name=segment_file(name), where=blob.where)
    return Segment(name, _File(blob, name, size)).verify_by_pieces()


class _File:
    """Stands in for the memoryview of a Segment, but reads the file instead of mapping it."""

    def __init__(self, blob: Blob, name: str, size: int) -> None:
        self._blob, self._name, self.nbytes = blob, name, size

    def __getitem__(self, piece: slice) -> memoryview:
        start, stop, _ = piece.indices(self.nbytes)
        data = self._blob.get(segment_file(self._name), start, stop - start)
        if len(data) < stop - start:
            raise Damaged(kind="segment", name=self._name, problem=f"was cut short to {start + len(data)} bytes")
        return memoryview(data)


class Segment:
    """An open segment. Its arrays are views of the mapped file and keep the mapping alive."""

    def __init__(self, name: str, view: "memoryview | _File") -> None:
        self.name = name
        self._view = view
        self._verified: set[str] = set()
        length, mark = self._read_header()
        stop = _HEADER_BYTES + length
        directory = view[_HEADER_BYTES:stop]
        found = checksum(directory)
        if found != mark:
            raise self._damaged(f"directory: checksum {found:016x}, expected {mark:016x}")
        self.checksum = mark
        self._base = stop + (-length % ALIGNMENT)
        try:
            self._entries = {entry.label: entry for entry in _decode(directory).entries}
        except msgspec.DecodeError as problem:
            raise self._damaged(f"directory: {problem}") from problem

    @property
    def nbytes(self) -> int:
        """The file's size in bytes."""
        return self._view.nbytes

    @property
    def labels(self) -> list[str]:
        """The labels of the entries, in the order they were written."""
        return list(self._entries)

    def meta(self, label: str) -> dict[str, Any]:
        """The meta of one entry. Raises EntryMissing."""
        return self._record(label).meta

    def entry(self, label: str, *, lazy: bool = False) -> Entry:
        """One entry. Its arrays are views of the file, but copies of those that are stored narrow. Their checksums are
        compared once per open segment.

        lazy: a large entry is returned unverified, for callers that verify it later (`verify_entry`) or know that it is
        intact. O(bytes) the first time, then O(1). Raises EntryMissing, Damaged.
        """
        record = self._record(label)
        if not lazy or self.nbytes_of(label) < LARGE:
            self.verify_entry(label)
        return Entry(label, record.meta, {array.name: self._array(array) for array in record.arrays})

    def entries(self) -> Iterator[Entry]:
        """All entries in the order they were written."""
        return map(self.entry, self._entries)

    def nbytes_of(self, label: str) -> int:
        """Bytes of one entry's arrays. Raises EntryMissing."""
        return sum(array.bytes for array in self._record(label).arrays)

    def verify_entry(self, label: str) -> None:
        """Compare the checksums of one entry's arrays, once per Segment object. Raises EntryMissing, Damaged."""
        if label not in self._verified:
            for _ in self._pieces(self._record(label)):
                pass
            self._verified.add(label)

    def is_verified(self, label: str) -> bool:
        """Whether this object has verified an entry."""
        return label in self._verified

    def verify(self) -> None:
        """Read every array and compare its checksum. Raises Damaged, which names the entry and the array."""
        for _ in self.verify_by_pieces():
            pass

    def verify_by_pieces(self) -> Iterator[int]:
        """Like `verify`, piece by piece: yields the number of bytes compared at each step. Raises Damaged."""
        for record in self._entries.values():
            yield from self._pieces(record)

    def _record(self, label: str) -> _EntryRecord:
        try:
            return self._entries[label]
        except KeyError:
            raise EntryMissing(name=self.name, label=label) from None

    def _array(self, record: _ArrayRecord) -> AnyArray:
        assert isinstance(self._view, memoryview)
        stored: AnyArray = np.ndarray(record.shape, np.dtype(record.dtype), self._view, self._base + record.offset)
        return stored if record.base is None else stored.astype(np.int64) + record.base

    def _pieces(self, record: _EntryRecord) -> Iterator[int]:
        for array in record.arrays:
            start = self._base + array.offset
            digest = xxhash.xxh3_64()
            for at in range(start, start + array.bytes, _PIECE):
                piece = self._view[at : min(at + _PIECE, start + array.bytes)]
                digest.update(piece)
                yield piece.nbytes
            found = digest.intdigest()
            if found != array.checksum:
                where = f"entry {record.label!r}: array {array.name}"
                raise self._damaged(f"{where}: checksum {found:016x}, expected {array.checksum:016x}")

    def _read_header(self) -> tuple[int, int]:
        """The directory's length and checksum, after checking the header itself and the file's length."""
        view = self._view
        if view.nbytes < _HEADER_BYTES:
            raise self._damaged(f"is {view.nbytes} bytes long, too short for its header of {_HEADER_BYTES}")
        magic, version, _, directory, mark, length, _ = _HEADER.unpack(view[: _HEADER.size])
        if magic != MAGIC:
            raise self._damaged(f"starts with {bytes(magic)!r}, expected {MAGIC!r}: not a segment")
        (expected,) = _CHECKSUM.unpack(view[_HEADER_BYTES - _CHECKSUM.size : _HEADER_BYTES])
        found = checksum(view[: _HEADER_BYTES - _CHECKSUM.size])
        if found != expected:
            raise self._damaged(f"header: checksum {found:016x}, expected {expected:016x}")
        if version not in (_PLAIN, FORMAT):
            raise UnknownFormat(kind="segment", name=self.name, found=version, supported=FORMAT)
        if view.nbytes != length:
            raise self._damaged(f"is {view.nbytes} bytes long, expected {length}")
        return directory, mark

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(kind="segment", name=self.name, problem=problem)


def _bytes_of(array: AnyArray) -> memoryview:
    """An array's bytes in C order, without a copy if it is contiguous."""
    if array.dtype.hasobject:
        raise TypeError(f"a segment stores fixed-size numbers, not {array.dtype}")
    if array.size == 0:
        return memoryview(b"")
    return np.ascontiguousarray(array).data.cast("B")
