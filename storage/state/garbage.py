"""The garbage of a state directory: the manifests of old epochs, and segments that no manifest names any more.

Its owner counts in memory which kept manifests name a segment. So a collection knows what to delete without listing any
folder except the leases.
"""

import logging
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from vernier.storage.blob import segment
from vernier.storage.blob.blob import TEMPORARY, Blob
from vernier.storage.blob.segment import segment_file, segment_name
from vernier.storage.errors import FileMissing, StorageError
from vernier.storage.state.lease import Leases
from vernier.storage.state.manifest import EPOCH_DIGITS, manifest_epoch, manifest_file

_SWEEPS = (1, 8, 64, 512, 4096)
"""The commits after a takeover that sweep: attempts of the overtaken owner may write for as long as they last."""

_GOING = ".going"
_log = logging.getLogger("vernier.storage")


@dataclass(frozen=True)
class Collected:
    """What a garbage collection deleted, and the old epochs that it kept because readers hold leases on them."""

    manifests: int
    segments: int
    leased: frozenset[int]


class Garbage:
    """What keeps the files of a state directory, and the deletion of the others. taken_over: an earlier owner may still
    write files."""

    def __init__(self, blob: Blob, leases: Leases) -> None:
        self._blob, self._leases = blob, leases
        self._kept: dict[int, frozenset[str]] = {}
        self._uses: Counter[str] = Counter()
        self._garbage: set[str] = set()
        self._hidden: set[int] = set()
        self.taken_over = False
        self._commits = 0
        # Guards `_kept` and `_uses`, because commit and collect may run in different threads.
        self._books = threading.Lock()

    def add(self, epoch: int, names: frozenset[str]) -> None:
        """Keep an epoch, whose manifest names these segments."""
        with self._books:
            self._kept[epoch] = names
            self._uses.update(names)

    def uses(self, name: str) -> bool:
        """Whether a kept manifest names the segment."""
        return name in self._uses

    def restore(self) -> list[str]:
        """Give manifests that an interrupted collection has hidden their names back; the next collection decides
        again. Lists the folder; returns the files that it has now."""
        files = []
        for found in self._blob.list(segment.FOLDER):
            name = found.removesuffix(_GOING)
            if found != name:
                try:
                    self._blob.rename(found, name)
                except FileMissing:  # an overtaken owner has deleted it, or given it its name back
                    if self._blob.size(name) is None:
                        continue
            files.append(name)
        return files

    def collect(self, keep: int) -> Collected:
        """Delete the manifests of all but the newest `keep` epochs and of leased ones, and the segments that no
        remaining manifest names. It may run in a thread beside `add`, but not beside another collection."""
        with self._books:
            old = sorted(self._kept)[:-keep]
        leased = self._leases.epochs() & set(old) if old else set()
        for epoch in sorted(leased & self._hidden):
            self._unhide(epoch)
        going = [epoch for epoch in old if epoch not in leased]
        for epoch in going:
            self._hidden.add(epoch)
            # Missing means that an earlier collection failed after hiding it.
            with suppress(FileMissing):
                self._blob.rename(manifest_file(epoch), manifest_file(epoch) + _GOING)
        # A reader takes its lease first and looks for the manifest afterwards. If it saw the manifest, its lease is
        # visible here. If the manifest was hidden first, the reader gets EpochGone.
        saved = self._leases.epochs() & set(going) if going else set()
        for epoch in going:
            if epoch in saved:
                self._unhide(epoch)
            else:
                self._blob.delete(manifest_file(epoch) + _GOING)
                self._forget(epoch)
        # Segments that an earlier collection failed to delete are still in `_garbage`.
        garbage = sorted(self._garbage)
        for name in garbage:
            self._blob.delete(segment_file(name))
            self._garbage.discard(name)
        return Collected(len(going) - len(saved), len(garbage), frozenset(leased | saved))

    def sweep(self, through: int | None) -> int:
        """Delete unused segments of epochs up to `through` (None: of all epochs, if no attempt can be running yet), and
        manifests of such epochs that an overtaken owner has left. Returns the number of files."""
        count = 0
        for file in self._blob.list(segment.FOLDER):
            name = segment_name(file)
            made = manifest_epoch(file)
            if made is not None and through is not None and made <= through and made not in self._kept:
                # Its owner ended between making it and finding that the name had been freed (`_refuse_overtaken`).
                self._blob.delete(file)
                count += 1
                continue
            # A file that is being written has the name of its target as a prefix.
            epoch = file.removeprefix(f"{segment.FOLDER}/")[:EPOCH_DIGITS]
            old = through is None or (epoch.isdecimal() and int(epoch) <= through)
            if old and (file.endswith(TEMPORARY) or (name and name not in self._uses)):
                self._blob.delete(file)
                count += 1
        return count

    def sweep_after_takeover(self, epoch: int) -> None:
        """Called by each commit. Delete what an overtaken owner has left, which nothing names or counts: some commits
        after a takeover pay for a list of the folder. Between two epochs, because a segment that a worker has written
        beside them counts as unused until a manifest names it; it is written again."""
        if not self.taken_over:
            return
        self._commits += 1
        self.taken_over = self._commits < _SWEEPS[-1]
        if self._commits in _SWEEPS:
            try:
                self.sweep(epoch)
            except StorageError as problem:
                _log.warning("files of the earlier owner are left until the next sweep: %s", problem)

    def _unhide(self, epoch: int) -> None:
        """Restore a manifest's name. An earlier try may have done it and failed afterwards."""
        with suppress(FileMissing):
            self._blob.rename(manifest_file(epoch) + _GOING, manifest_file(epoch))
        self._hidden.discard(epoch)

    def _forget(self, epoch: int) -> None:
        """Stop counting an epoch's segments as used; segments without uses become garbage."""
        self._hidden.discard(epoch)
        with self._books:
            for name in self._kept.pop(epoch):
                self._uses[name] -= 1
                if not self._uses[name]:
                    del self._uses[name]
                    self._garbage.add(name)
