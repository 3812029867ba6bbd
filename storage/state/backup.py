"""Backup: copies the newest epoch of a state directory completely to another one while its service keeps running.

Copying a folder's files one after another may miss files that are garbage-collected meanwhile. Here a lease protects
the epoch, as for any reader. Segments are copied first and the manifest, which makes them an epoch, last; so an
interrupted copy is an empty state. Either side may be a directory or an object store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vernier.storage.blob.segment import FOLDER, segment_file
from vernier.storage.errors import CallerError, FileMissing
from vernier.storage.state.manifest import Manifest, manifest_file
from vernier.storage.state.state import FOLDERS, StateDirectory


class NotEmpty(CallerError):
    """The target of a copy already contains a state."""

    message = "{path} already contains a state, at epoch {epoch}; choose another place for the copy"
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
    """Copy the newest epoch. folders: further folders whose files are copied, too. show: called with the number of
    segments done and their total.

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
        return  # deleted since it was listed
