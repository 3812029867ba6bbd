"""Backup: the newest epoch of a state directory, whole, in another one, while its service goes on.

A copy of a folder's files, taken one after another, may miss what was collected meanwhile. Here a lease holds the
epoch as any reader's does, segments go first, and the manifest, which makes them an epoch, last: a copy that was
broken off is an empty state. Either side may be a directory or an object store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vernier.storage.blob.segment import FOLDER, segment_file
from vernier.storage.errors import CallerError, FileMissing
from vernier.storage.state.manifest import Manifest, manifest_file
from vernier.storage.state.state import FOLDERS, StateDirectory


class NotEmpty(CallerError):
    """There is a state already where a copy should go."""

    message = "{path} has a state already, at epoch {epoch}; give the copy a place of its own"
    path: str
    epoch: int


@dataclass(frozen=True)
class Copied:
    """What was copied."""

    manifest: Manifest
    segments: int
    bytes: int


def copy_newest(
    source: StateDirectory,
    target: StateDirectory,
    folders: Sequence[str] = (),
    show: Callable[[int, int], None] = lambda done, all_: None,
) -> Copied:
    """Copy the newest epoch. folders: others whose files go along. show: segments done, and all of them.

    Reads and writes every byte of the epoch once. Raises NotEmpty, NothingCommitted and other StorageErrors.
    """
    if there := target.epochs():
        raise NotEmpty(path=target.path, epoch=max(there))
    total = 0
    target.blob.prepare([*FOLDERS, *folders])
    with source.lease() as lease:
        names = sorted(lease.manifest.segments())
        for done, name in enumerate(names):
            show(done, len(names))
            file = segment_file(name)
            total += target.blob.put(file, [source.blob.map(file)])
        for folder in folders:
            for file in source.blob.list(folder):
                _copy_small(source, target, file)
        file = manifest_file(lease.epoch)
        target.blob.sync(FOLDER)
        target.blob.create(file, source.blob.get(file))
        return Copied(lease.manifest, len(names), total)


def _copy_small(source: StateDirectory, target: StateDirectory, file: str) -> None:
    try:
        target.blob.put(file, [source.blob.get(file)])
    except FileMissing:
        return  # it has just gone
