"""The state directory: who owns it, which epochs it contains, how a new one is committed and old ones are deleted.

    LOCK     flock of the one service that may commit; contains its process id
    HEAD     the newest committed epoch, rewritten in place; readers poll it
    epochs/  one manifest per epoch, which alone decides what exists; segments that manifests name; garbage
    leases/  the leases of readers

A commit syncs each new segment (its writer does this), the manifest, and the folder. The link that gives the manifest
its name is the atomic point: before it nothing has happened; after it the epoch exists, and readers see it once it is
durable. A failure before that point leaves the state as it was, plus garbage that the next start deletes.

One sync of the folder is enough for the manifest and the segments. This relies on journaling file systems, which keep
the order in which names are created in one folder: no power failure leaves a manifest without the segments that were
named before it.
"""

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from vernier.storage.blob import segment
from vernier.storage.blob.blob import Blob, HeldLock, Owner
from vernier.storage.blob.location import BlobLocation
from vernier.storage.blob.segment import (
    Entry,
    Segment,
    checksum,
    open_segment,
    segment_file,
    segment_name,
    write_segment,
)
from vernier.storage.errors import (
    Damaged,
    EpochConflict,
    EpochGone,
    FileExists,
    FileFailed,
    FileMissing,
    NoIntactManifest,
    NotAcquired,
    NothingCommitted,
    SegmentsMissing,
    StateInUse,
    StorageError,
    UnknownFormat,
)
from vernier.storage.state import lease, rollup
from vernier.storage.state.garbage import Collected, Garbage
from vernier.storage.state.lease import Leases, ReadLease
from vernier.storage.state.manifest import (
    EPOCH_DIGITS,
    NO_EPOCH,
    BatchRef,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_epoch,
    manifest_file,
)
from vernier.storage.state.rollups import Rollups

LOCK = "LOCK"
HEAD = "HEAD"
FOLDERS = (segment.FOLDER, lease.FOLDER)
LEAST_KEPT = 2
"""Manifests that are always kept: if the newest is damaged, the one before it can be used."""

ALONE = segment.LARGE
"""From this size in bytes on, an entry gets a segment of its own, so that its disk space is freed as soon as it is
merged away."""

_DAMAGED = ".damaged"
_log = logging.getLogger("vernier.storage")


def _epochs_of(files: Iterable[str]) -> list[int]:
    """The epochs whose manifests are among the files, ascending."""
    return sorted(epoch for epoch in map(manifest_epoch, files) if epoch is not None)


class StateDirectory:
    """A state directory: for its owner (`acquire`, `commit`, `gc`), workers (`write`) and readers (`head`, `lease`)."""

    def __init__(self, path: str | os.PathLike[str] | BlobLocation, blob: Blob | None = None) -> None:
        self._blob: Blob = blob or BlobLocation.of(path).open()
        self._leases = Leases(self._blob)
        self._lock: HeldLock | None = None
        self._prepared = False
        self._newest: Manifest | None = None
        self._shown: int | None = None
        """What HEAD says; None while the directory has no owner here."""
        self._showing = threading.Lock()
        self._rollups = Rollups(self._blob)
        self._garbage = Garbage(self._blob, self._leases)
        self._unread: list[int] = []
        self._recalling = threading.Lock()
        self._broken: StorageError | None = None
        self.damaged: list[StorageError] = []

    @property
    def path(self) -> str:
        """The directory's path or URI."""
        return self._blob.where

    @property
    def blob(self) -> Blob:
        """The Blob that stores the files."""
        return self._blob

    # --- the owner ----------------------------------------------------------------------------------------------------

    def acquire(self) -> Manifest | None:
        """Become the owner of the directory (created if needed), find the newest intact epoch, and delete garbage.
        The owner itself may call it again; that only returns the newest epoch.

        Intact means: the manifest's checksum is right, and so are the length and directory of every segment that it
        names. Newer epochs that are not intact are renamed (`*.damaged`), logged, and listed in `damaged`. Opens
        O(batches) files. Raises StateInUse, which names the owner's process id, NoIntactManifest, and FileFailed if a
        file cannot be read: the directory then has no owner, and a later call may succeed.
        """
        if self._lock is not None:
            return self._newest
        if not self._prepared:
            self._blob.prepare(FOLDERS)
            self._prepared = True
        held = self._blob.lock(LOCK)
        if held is None:
            owner = self._blob.owner(LOCK) or Owner(0)
            raise StateInUse(path=self.path, pid=owner.pid, host=owner.host, left_ms=owner.left_ms)
        self._lock = held
        try:
            self._recover()
        except BaseException:
            self.release()
            raise
        return self._newest

    def release(self) -> None:
        """Stop owning the directory; idempotent. What is committed is shown before."""
        self.show()
        with self._showing:
            held, self._lock = self._lock, None
            self._newest, self._broken, self._shown = None, None, None
        if held is not None:
            held.release()
        # The next owner's first sweep deletes a rollup that no manifest came to name.
        self._rollups = Rollups(self._blob)
        self._garbage = Garbage(self._blob, self._leases)

    def __enter__(self) -> "StateDirectory":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def commit(self, new: Manifest, *, show: bool = True) -> Manifest:
        """Commit an epoch: it is durable when this returns, and is then shown to readers. Returns its manifest, which
        may name a rollup besides (rollup.py). show: False if the caller calls `show` soon.

        new.epoch must be the newest epoch + 1 (1 in an empty directory). Segments that it names for the first time must
        be written. A commit whose outcome is unknown may be repeated. Two syncs, the manifest and the folder, and
        a third one if the epoch begins a rollup. Raises
        EpochConflict, SegmentsMissing and DiskFull (then nothing has happened), and SyncFailed (then it may have
        happened, and the directory refuses further commits until it is acquired again).
        """
        self._require("commit")
        if self._broken is not None:
            raise self._broken
        latest = self._newest.epoch if self._newest else NO_EPOCH
        if new.epoch != latest + 1:
            raise EpochConflict(path=self.path, epoch=new.epoch, attempt=new.attempt, latest=latest)
        written, delta_bytes = self._rollups.written(new, self._newest)
        new = msgspec.structs.replace(new, rollup=written.rollup)
        names = new.segments()
        unknown = sorted(segment_file(name) for name in names if not self._garbage.uses(name))
        lost = [segment_name(file) or file for file in self._blob.absent(unknown)]
        if lost and self._blob.size(manifest_file(new.epoch)) is not None:  # an owner after this one has removed them
            raise EpochConflict(path=self.path, epoch=new.epoch, attempt=new.attempt, latest=new.epoch)
        if lost:
            raise SegmentsMissing(path=self.path, epoch=new.epoch, segments=", ".join(lost))
        data = encode_manifest(written)
        try:
            self._blob.create(manifest_file(new.epoch), data)
        except FileExists:
            if self._blob.get(manifest_file(new.epoch)) != data:
                raise EpochConflict(path=self.path, epoch=new.epoch, attempt=new.attempt, latest=new.epoch) from None
            self._blob.sync(segment.FOLDER)
        except StorageError as problem:
            if problem.may_have_happened:
                self._broken = problem
            raise
        self._refuse_overtaken(new.epoch)
        self._rollups.committed(new, self._newest, delta_bytes)
        self._garbage.add(new.epoch, names)
        self._newest = new
        if show:
            self.show()
        if not self._unread:
            self._garbage.sweep_after_takeover(new.epoch)
        return new

    def show(self) -> None:
        """Show the newest epoch to readers, if they do not see it yet. Any thread may call this.

        It is one small write, which nevertheless takes some milliseconds when the file system's journal is just being
        written, so the owner's next epoch does not wait for it.
        """
        with self._showing:
            newest = self._newest
            if self._lock is None or newest is None or self._shown in (None, newest.epoch):
                return
            try:
                self._lock.check()
                self._show(newest.epoch)
            except StorageError as problem:
                # The epoch exists nevertheless. Readers see it with the next commit or after the next start.
                _log.warning("epoch %d is committed but not shown to readers: %s", newest.epoch, problem)

    def gc(self, keep: int) -> Collected:
        """Delete the manifests of all but the newest `keep` epochs, and the segments that no remaining manifest needs.

        Leased epochs are kept. This is cheap: the manifests tell which segments become unused, and no folder is listed
        except the leases. It may run in a thread beside `commit` (deletes wait for the file system's journal), but not
        beside another gc.
        """
        self._require("collect")
        self._recall()
        return self._garbage.collect(max(keep, LEAST_KEPT))

    def sweep(self) -> int:
        """Delete segment files that no manifest names and that no running attempt can still commit; returns their
        number.

        It lists the folder, so call it at starts and after failed attempts, not in every epoch.
        """
        self._require("sweep")
        self._recall()
        return self._garbage.sweep(self._newest.epoch if self._newest else NO_EPOCH)

    # --- workers ------------------------------------------------------------------------------------------------------

    def write(self, epoch: int, attempt: str, shard: int, entries: Sequence[Entry]) -> list[BatchRef]:
        """Write one worker's entries of an epoch; returns their references, in order.

        Small entries share one segment (one sync); each large entry gets its own. Their meta must contain `updates`,
        `lower`, `upper` and `since`. Labels must be distinct. The entries are not part of the state until a manifest
        that names the references is committed.
        """
        groups: dict[str, list[Entry]] = {}
        stem = f"{epoch:0{EPOCH_DIGITS}d}-{attempt}-{shard}"
        owners = []
        for number, entry in enumerate(entries):
            name = f"{stem}-{number}" if entry.nbytes >= ALONE else stem
            groups.setdefault(name, []).append(entry)
            owners.append(name)
        for name, group in groups.items():
            write_segment(self._blob, name, group)
        return [BatchRef.of(name, entry) for name, entry in zip(owners, entries, strict=True)]

    # --- readers ------------------------------------------------------------------------------------------------------

    def head(self) -> int:
        """The newest committed epoch, 0 if there is none. One small read, so it can be polled every few milliseconds.

        Callers test for a difference, not for growth: recovery from a damaged manifest goes back to an earlier epoch.
        """
        try:
            mark, _, check = self._blob.get(HEAD).rstrip().partition(b" ")
        except FileMissing:
            return max(self.epochs(), default=NO_EPOCH)
        if check.decode("ascii", "replace") == f"{checksum(mark):016x}":
            return int(mark)
        return max(self.epochs(), default=NO_EPOCH)

    def epochs(self) -> list[int]:
        """The epochs that have a manifest, ascending. Lists the folder."""
        return _epochs_of(self._blob.list(segment.FOLDER))

    def latest(self) -> Manifest | None:
        """The newest manifest whose checksum is right; None in an empty directory.

        Damaged manifests are logged and listed in `damaged`. Raises UnknownFormat, and NoIntactManifest if all are
        damaged.
        """
        if self._lock is not None:
            return self._newest
        self.damaged.clear()
        epochs = self.epochs()
        for epoch in reversed(epochs):
            try:
                return self.manifest(epoch)
            except EpochGone:
                continue
            except Damaged as problem:
                self._complain(problem)
        if epochs and self.damaged:
            raise self._none_intact()
        return None

    def manifest(self, epoch: int) -> Manifest:
        """The manifest of an epoch. Raises EpochGone, Damaged, UnknownFormat."""
        try:
            data = self._blob.get(manifest_file(epoch))
        except FileMissing:
            raise EpochGone(path=self.path, epoch=epoch, latest=self.head()) from None
        return self._manifest(epoch, data)

    def _manifest(self, epoch: int, data: bytes) -> Manifest:
        """The manifest of an epoch that a file contains. Raises EpochGone, Damaged, UnknownFormat."""
        name = manifest_file(epoch)
        found = decode_manifest(name, data)
        if found.epoch != epoch:
            raise Damaged(kind="manifest", name=name, problem=f"is of epoch {found.epoch}, expected {epoch}")
        if found.rollup is None or found.delta is None:
            return rollup.plain(found)
        try:
            return self._rollups.find(found.rollup).whole(found, found.delta)
        except FileMissing as missing:
            if self._blob.size(name) is None:  # collected meanwhile
                raise EpochGone(path=self.path, epoch=epoch, latest=self.head()) from None
            raise Damaged(kind="manifest", name=name, problem=str(missing)) from missing
        except (LookupError, ValueError, StopIteration, msgspec.DecodeError) as problem:
            raise Damaged(kind="manifest", name=name, problem=f"does not fit its rollup: {problem}") from problem

    def lease(self, epoch: int | None = None) -> ReadLease:
        """Hold an epoch's files (by default the newest epoch's) until the lease is released or this process ends.

        Raises EpochGone, NothingCommitted (no epoch exists yet), Damaged.
        """
        wanted = self.head() if epoch is None else epoch
        while True:
            if wanted == NO_EPOCH:
                raise NothingCommitted(path=self.path)
            held = self._leases.take(wanted)
            try:
                return ReadLease(held, self.manifest(wanted))
            except EpochGone:
                held.release()
                if epoch is not None:
                    raise
                # Collected before the lease was taken, or HEAD is out of date after a power failure. A list that is
                # read while epochs come and go may lack all of them but a leased one: it counts only while HEAD stays.
                listed = max(self.epochs(), default=NO_EPOCH)
                head = self.head()
                wanted = listed if head == wanted else head
            except BaseException:
                held.release()
                raise

    def open(self, name: str) -> Segment:
        """Open a segment by its name. The caller must hold a lease on an epoch that names it."""
        return open_segment(self._blob, name)

    def segments(self) -> dict[str, int]:
        """The size in bytes of every segment file, by name, including those that no manifest needs. Lists the
        folder."""
        found = {}
        for file in self._blob.list(segment.FOLDER):
            name = segment_name(file)
            size = self._blob.size(file) if name else None
            if name and size is not None:
                found[name] = size
        return found

    def check_owned(self) -> None:
        """Raises OwnershipLost if another process may have taken the directory from this one, which has acquired it."""
        self._require("the check of its owner")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _none_intact(self) -> NoIntactManifest:
        said = "; the one before: ".join(map(str, self.damaged[:2]))
        return NoIntactManifest(path=self.path, count=len(self.damaged), problem=said)

    def _require(self, operation: str) -> None:
        if self._lock is None:
            raise NotAcquired(path=self.path, operation=operation)
        self._lock.check()

    def _refuse_overtaken(self, epoch: int) -> None:
        """Take back a manifest that this owner created after it had been overtaken. Raises OwnershipLost.

        The owners behind it may have collected the epoch and so freed its name. Then there are newer epochs, because
        the newest are never collected. While the lock holds, no process can have taken over, so this costs nothing.
        """
        assert self._lock is not None
        try:
            self._lock.check()
        except StorageError:
            if max(self.epochs(), default=epoch) > epoch:
                self._blob.delete(manifest_file(epoch))
            raise

    def _recover(self) -> None:
        self.damaged.clear()
        self._newest = None
        there = frozenset(self._garbage.restore())
        self._unread = _epochs_of(there)[::-1]
        broken = []
        while self._newest is None and self._unread:
            epoch = self._unread.pop(0)
            found = self._intact(epoch, self._blob.get_each([manifest_file(epoch)])[0], there)
            if found is None:
                broken.append(epoch)
            else:
                self._newest = found
                self._garbage.add(epoch, found.segments())
        if self._newest is None and self.damaged:
            raise self._none_intact()
        for epoch in broken:
            self._set_aside(epoch)
        # An owner that was overtaken may be about to commit one more epoch. Its segments must stay until that epoch's
        # name is taken, so that the commit is complete whichever process makes it.
        alone = self._lock is None or self._lock.alone
        self._garbage.taken_over = not alone
        if alone:
            self._recall()
            self._garbage.sweep(None)
            self._leases.epochs()
        self._blob.sync(segment.FOLDER)
        self._show(self._newest.epoch if self._newest else NO_EPOCH)

    def _recall(self) -> None:
        """Read the manifests before the newest one and count what they name. Nothing may be deleted before that; but
        commits need only the newest one, so after a takeover from an owner that fell silent the first collection does
        this, beside the epochs."""
        with self._recalling:
            files = [*map(manifest_file, self._unread)]
            for epoch, data in zip(tuple(self._unread), self._blob.get_each(files), strict=True):
                found = self._intact(epoch, data, None)
                if found is None:
                    self._set_aside(epoch)
                else:
                    self._garbage.add(epoch, found.segments())
                self._unread.remove(epoch)

    def _intact(self, epoch: int, data: bytes | StorageError, there: frozenset[str] | None) -> Manifest | None:
        """A manifest if it is intact, also in the segments that it names if `there` has the files that exist. None,
        after a complaint, if it is not. A file that cannot be read just now may well be intact, and what it commits may
        be published: then this raises FileFailed. Raises UnknownFormat."""
        try:
            if isinstance(data, StorageError):
                raise data
            found = self._manifest(epoch, data)
            if there is not None:
                self._check_segments(found, there)
        except (UnknownFormat, FileFailed):
            raise
        except StorageError as problem:
            self._complain(problem)
            return None
        return found

    def _set_aside(self, epoch: int) -> None:
        with suppress(FileMissing):  # an overtaken owner has collected it
            self._blob.rename(manifest_file(epoch), manifest_file(epoch) + _DAMAGED)

    def _check_segments(self, found: Manifest, there: frozenset[str]) -> None:
        """Open every segment that a manifest names and look up its labels. A copy in a local cache alone is not
        enough."""
        labels: dict[str, set[str]] = {}
        for ref in found.refs():
            labels.setdefault(ref.segment, set()).add(ref.label)
        for name, wanted in labels.items():
            try:
                if segment_file(name) not in there:
                    raise FileMissing(name=segment_file(name), where=self.path)
                opened = self.open(name)
                for label in wanted:
                    opened.meta(label)
            except (UnknownFormat, FileFailed):
                raise
            except StorageError as problem:
                raise Damaged(kind="manifest", name=manifest_file(found.epoch), problem=str(problem)) from problem

    def _complain(self, problem: StorageError) -> None:
        self.damaged.append(problem)
        _log.warning("%s", problem)

    def _show(self, epoch: int) -> None:
        mark = f"{epoch:020d}".encode()
        self._blob.overwrite(HEAD, b"%b %016x\n" % (mark, checksum(mark)))
        self._shown = epoch
