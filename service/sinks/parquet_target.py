"""A view's changes as Parquet files in a folder or an object store, each change once, by a log of commits.

    FOLDER/epoch=41/000000000007-0.parquet     the changes of some epochs up to 41, with _time and _diff
    FOLDER/_vernier/000000000007.json          commit 7: the files it added, and the position after them
    FOLDER/_vernier/staged-7-0-9f03c1.parquet  a file before its commit

The way of the data: a file is staged under a name that readers of Parquet skip; the commit, a new log entry that only
one process can create, names the file and the position; then the file moves to its place. Invariant: the log says what
is there, and what lies in place is in the log. Failure in the middle: before the commit, the staged file is nothing and
is deleted; after it, the next start moves the file. A start commits an empty entry first: the entry is the fence, since
a process that still believes to be the writer cannot create the same one. Which staged files are committed the entries
of their own numbers say, however many starts have failed since. Cost: a file, an entry and a move per turn, independent
of what is there already; a start lists the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from vernier.service.config.streams import Sink
from vernier.service.sinks.position import Position
from vernier.service.sinks.table import change_batches
from vernier.service.sinks.target import CannotContinue, Steps, TargetFailed, TargetTaken
from vernier.storage.blob.blob import TEMPORARY, Blob
from vernier.storage.blob.disk import OsDisk
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.location import BlobLocation
from vernier.storage.errors import FileExists, FileMissing
from vernier.storage.state.state import StateDirectory

LOG = "_vernier"
_STAGED = f"{LOG}/staged-"
_DIGITS = 12


class File(msgspec.Struct, frozen=True):
    """A file of a commit. rows: its changes, at data times with lower <= time < upper."""

    name: str
    staged: str
    rows: int
    lower: int
    upper: int


class Commit(msgspec.Struct, frozen=True):
    """An entry of the log. position: after it; None before the first change. writer: the process that made it."""

    position: Position | None
    writer: str
    files: list[File] = []


class ParquetFolder:
    """A folder of Parquet files. place: its name in messages and in the position."""

    def __init__(self, blob: Blob, place: str) -> None:
        self._blob, self._place = blob, place
        self._writer = os.urandom(6).hex()
        self._entry = 0
        self._position: Position | None = None

    def position(self) -> Position | None:
        """Fence other writers, end what the last one left half done, and return how far it came. Raises StorageErrors,
        TargetTaken.
        """
        self._blob.prepare([LOG])
        entries = sorted(name for name in self._blob.list(LOG) if name.endswith(".json"))
        self._entry = int(entries[-1][len(LOG) + 1 : -len(".json")]) if entries else 0
        last = self._read(entries[-1]) if entries else Commit(None, "")
        self._position = last.position
        self._append(Commit(self._position, self._writer))
        self._settle(last.files)
        self._end_staged(frozenset(entries))
        return self._position

    def write(self, steps: Steps) -> Position:
        """Add the steps' changes as one file, and commit it. Raises StorageErrors, TargetTaken, CannotContinue."""
        for step in steps:
            if step.restarts:
                raise CannotContinue(view=step.view.name, frontier=step.lower, place=self._place)
        last, before = steps[-1], {} if self._position is None else self._position.messages
        batches = [one for one in change_batches(steps) if one.num_rows]
        files = []
        if batches:
            number = self._entry + 1
            name = f"epoch={last.epoch}/{number:0{_DIGITS}d}-0.parquet"
            staged = f"{_STAGED}{number}-0-{self._writer}.parquet"
            self._blob.put(staged, [_parquet(batches, last.view.name)])
            self._blob.sync(LOG)
            files = [File(name, staged, sum(one.num_rows for one in batches), steps[0].lower, last.upper)]
        counts = dict(before)
        for step in steps:
            counts[step.kind] = counts.get(step.kind, 0) + len(step.changes)
        view = last.view.name
        position = Position(self._place, "parquet", last.upper, last.view.meaning, counts, view)
        self._append(Commit(position, self._writer, files))
        self._settle(files)
        self._position = position
        return position

    def close(self) -> None:
        """Nothing is open between turns."""

    def _append(self, commit: Commit) -> None:
        try:
            self._blob.create(_entry(self._entry + 1), msgspec.json.encode(commit))
        except FileExists:
            raise TargetTaken(place=self._place) from None
        self._entry += 1

    def _end_staged(self, entries: frozenset[str]) -> None:
        """Move the staged files that one of these entries names, and delete the other ones. Files with a number above
        this process's fence belong to a writer that has fenced this one, and stay.
        """
        for name in self._blob.list(LOG):
            if name.endswith(TEMPORARY):
                self._blob.delete(name)
            elif name.startswith(_STAGED):
                number = int(name.removeprefix(_STAGED).partition("-")[0])
                entry = _entry(number)
                files = self._read(entry).files if entry in entries else []
                committed = [file for file in files if file.staged == name]
                self._settle(committed)
                if not committed and number <= self._entry:
                    self._blob.delete(name)

    def _settle(self, files: Sequence[File]) -> None:
        """Move committed files to their places."""
        for file in files:
            folder = file.name.rpartition("/")[0]
            self._blob.prepare([folder])
            if self._blob.size(file.staged) is not None:
                self._blob.rename(file.staged, file.name)
                self._blob.sync(folder)
            elif self._blob.size(file.name) is None:
                raise TargetFailed(place=self._place, problem=f"{file.name} is missing, although its commit names it")

    def _read(self, name: str) -> Commit:
        try:
            return msgspec.json.decode(self._blob.get(name), type=Commit)
        except (msgspec.DecodeError, FileMissing) as error:
            raise TargetFailed(place=self._place, problem=f"{name} cannot be read: {error}") from error


def _entry(number: int) -> str:
    return f"{LOG}/{number:0{_DIGITS}d}.json"


def _parquet(batches: Sequence[pa.RecordBatch], view: str) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    schema = batches[0].schema.with_metadata({"vernier.view": view})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def open_folder(name: str, given: Sink, app: str, state: StateDirectory) -> ParquetFolder:
    """The folder of a sink. Files in a local one are as readable as the process's umask allows."""
    assert given.path is not None
    place = BlobLocation(given.path)
    blob = place.open() if place.folder is None else LocalBlob(place.folder, OsDisk(0o666, 0o777))
    return ParquetFolder(blob, given.path)
