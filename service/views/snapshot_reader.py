"""Follows the committed epochs of a state directory, read-only.

The reader does not need the service that writes: it works while the service is down and never blocks it. A snapshot is
immutable. Following an epoch only maps its new segments and applies its changes. A lease holds the newest manifest, so
garbage collection removes no file that the reader still has to open; files that are already mapped stay readable
anyway.

No data is used before its checksum has been compared. That happens when the file is opened; for a large batch that only
reads of the past need, at the first such read. If a new epoch is damaged, the snapshot stays at the last intact epoch.
A reader that has no snapshot yet omits the views that need a damaged file (`Snapshot.damaged`). In both cases the
reader checks every few seconds whether the file has been restored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from vernier.operators.language.types.schema import RowType
from vernier.service.observability.metrics import Stats
from vernier.service.observability.recent_latency import LATENCY, WINDOW_NS, Mark, followed
from vernier.service.views.head import Head
from vernier.service.views.multiset import Multiset
from vernier.service.views.recent_dead_letters import RecentDeadLetters
from vernier.service.views.view import Interval, View, changes_between, matrix_of, sum_until
from vernier.storage.blob.blob import Blob
from vernier.storage.blob.location import BlobLocation
from vernier.storage.blob.segment import Segment
from vernier.storage.errors import Damaged, EpochGone, StorageError
from vernier.storage.state.lease import ReadLease
from vernier.storage.state.manifest import NO_EPOCH, BatchRef, Manifest, ViewEntry
from vernier.storage.state.reshard import open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import CLOSED, Ints

_HISTORY = 1200
_AGAIN_NS = 5_000_000_000
"""How long to wait before damaged files are checked again."""
_log = logging.getLogger("vernier.reader")


@dataclass(frozen=True, slots=True, eq=False)
class EpochNote:
    """What the reader remembers of an epoch: its interval of data times, its commit, and per view its changes and
    latencies.

    noticed_ns: wall clock when this reader saw the epoch; None if it was committed before the reader started. latency:
    int64[buckets] observations of the epoch, in the buckets of vernier.service.observability.metrics.
    """

    epoch: int
    lower: int
    upper: int
    committed_ns: int
    noticed_ns: int | None
    changes: Mapping[str, int]
    latency: Mapping[str, Ints]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A committed epoch as readers see it.

    history: the epochs that this reader saw, oldest first, this one last. damaged: the views that cannot be read, each
    with its damage. marks: latency totals of the last minutes.
    """

    manifest: Manifest
    views: Mapping[str, View]
    stats: Stats
    history: tuple[EpochNote, ...]
    damaged: Mapping[str, Damaged] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()

    @property
    def frontier(self) -> int:
        """Data times before it are final."""
        return self.manifest.upper

    def age_ns(self, now_ns: int) -> int:
        """How long ago the epoch was committed, by the wall clock."""
        return max(0, now_ns - self.manifest.committed_ns)


class Reader:
    """Follows a state directory. One thread calls `poll`; any thread may read `snapshot`, `failure`, `problem` and
    `damage`.

    snapshot: the newest readable epoch, None before the first. failure: why the newest state cannot be read, None if it
    can; problem: the corresponding error. damage: the damaged files, by segment. log_bytes: memory for each view's
    recent changes, which serves subscribers and reads of the recent past.
    """

    def __init__(self, path: str | Path | BlobLocation, *, log_bytes: int = 16 << 20, blob: Blob | None = None) -> None:
        self.snapshot: Snapshot | None = None
        self.failure: str | None = None
        self.problem: StorageError | EpochGone | None = None
        self.damage: dict[str, Damaged] = {}
        self._looked_ns = 0
        self._log_bytes = log_bytes
        self._state = StateDirectory(path, blob)
        self._newest = Head(self._state)
        self._lease: ReadLease | None = None
        self._segments: dict[str, Segment] = {}
        self._batches: dict[BatchRef, Batch] = {}
        self.letters = RecentDeadLetters()
        self.dead_letters_damaged: Damaged | None = None
        """The damage of a file that holds some of the dead letters."""

    @property
    def files(self) -> Blob:
        """The state directory's files."""
        return self._state.blob

    def poll(self) -> bool:
        """Read a new epoch if there is one; returns True if the snapshot changed. Otherwise costs one small read.

        A problem with the files is kept in `failure` and the snapshot stays, so readers continue with what was final.
        """
        try:
            restored = (bool(self.damage) or self.dead_letters_damaged is not None) and self._look_again()
            epoch = self._newest.look()
            if epoch == NO_EPOCH or (self._lease is not None and epoch == self._lease.epoch):
                return restored
            self._follow(epoch)
        except (StorageError, EpochGone) as error:
            if self.failure != str(error):
                _log.warning("cannot read the newest state: %s", error)
            self.failure, self.problem = str(error), error
            return False
        self.failure = self.problem = None
        return True

    def close(self) -> None:
        """Release the lease and close the files. Existing references to the snapshot stay readable."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        self._segments.clear()
        self._batches.clear()

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, epoch: int) -> None:
        lease = self._state.lease(epoch)
        try:
            snapshot = self._read(lease.manifest)
        except BaseException:
            lease.release()
            raise
        held, self._lease, self.snapshot = self._lease, lease, snapshot
        if held is not None:
            held.release()
        self._release(lease.manifest)

    def _read(self, newest: Manifest) -> Snapshot:
        """Build the snapshot of a leased manifest: from the previous snapshot if the manifest continues it, else from
        the traces.
        """
        before = self.snapshot
        steps = [] if before is None else self._steps(before.manifest, newest)
        # Another program may have run in between, and its epochs lack some of the views.
        others = any(manifest.program != newest.program for manifest, _ in steps)
        if before is None or others or not _continues(before.manifest, newest):
            views, damaged = self._each(newest, lambda name, entry: self._load(name, newest))
            stats = Stats.from_json(newest.stats)
            self._collect_all_letters(newest)
            history = [_note(newest, stats, Stats(), None)]
            return Snapshot(newest, views, stats, tuple(history), damaged, (self._first_mark(newest),))
        noticed = time.time_ns()
        stats, history, marks = before.stats, list(before.history), before.marks

        def advance(name: str, entry: ViewEntry) -> View:
            if name in before.views:
                return self._advance(before.views[name], entry, newest, [(m, parts[name]) for m, parts in steps])
            known = before.damaged[name]
            # Load again only if the damaged file is no longer a part of this epoch's state. Retrying a file that is
            # still damaged would cost a read of the whole view each time.
            if known.name in newest.segments():
                raise known
            return self._load(name, newest)

        views, damaged = self._each(newest, advance, before.views)
        for manifest, _ in steps or [(newest, {})]:
            self._collect_letters(manifest)
            after = Stats.from_json(manifest.stats)
            history.append(_note(manifest, after, stats, noticed))
            stats = after
        marks = followed(marks, newest.committed_ns, stats)
        return Snapshot(newest, views, stats, tuple(history[-_HISTORY:]), damaged, marks)

    def _first_mark(self, newest: Manifest) -> Mark:
        """The totals at the oldest epoch of the last minutes that still exists. They are zero if that is the first
        epoch.
        """
        begun = newest
        for manifest in self._kept(newest):
            if manifest.committed_ns < newest.committed_ns - WINDOW_NS:
                break
            begun = manifest
        first = begun.epoch == NO_EPOCH + 1
        return Mark.of(begun.committed_ns, Stats() if first else Stats.from_json(begun.stats))

    def _each(
        self, manifest: Manifest, make: Callable[[str, ViewEntry], View], readable: Container[str] = ()
    ) -> tuple[dict[str, View], dict[str, Damaged]]:
        """Build each view of a manifest with `make`; returns the views and the damage of those that failed.

        readable: views that an older snapshot still has intact, which is better than losing them. Raises Damaged for
        these.
        """
        views, damaged = {}, {}
        for name, entry in manifest.views.items():
            try:
                views[name] = make(name, entry)
            except Damaged as problem:
                damaged[name] = self._note_damage(problem)
                if name in readable:
                    raise
        return views, damaged

    def _note_damage(self, problem: Damaged) -> Damaged:
        if problem.name not in self.damage:
            _log.error("%s", problem)
        self.damage[problem.name] = problem
        return problem

    def _look_again(self) -> bool:
        """Check every few seconds whether damaged files were restored, and reload what needs them.
        Returns True if so.
        """
        now, snapshot = time.monotonic_ns(), self.snapshot
        if now - self._looked_ns < _AGAIN_NS or snapshot is None:
            return False
        self._looked_ns = now
        restored = set()
        for name in list(self.damage):
            with suppress(StorageError):
                self._state.open(name).verify()
                restored.add(name)
        if self.dead_letters_damaged is not None:
            self._collect_all_letters(snapshot.manifest)
        if not restored:
            return False
        for name in restored:
            _log.warning("segment %s is intact again", name)
            del self.damage[name]
            self._segments.pop(name, None)
        self._batches = {ref: batch for ref, batch in self._batches.items() if ref.segment not in restored}
        manifest = snapshot.manifest

        def reopen(name: str, entry: ViewEntry) -> View:
            if name in snapshot.views:
                return replace(snapshot.views[name], batches=tuple(self._trace(manifest, entry)))
            return self._load(name, manifest)

        views, damaged = self._each(manifest, reopen)
        self.snapshot = replace(snapshot, views=views, damaged=damaged)
        return True

    def _steps(self, old: Manifest, newest: Manifest) -> list[tuple[Manifest, dict[str, list[Batch]]]]:
        """The epochs after `old`, each with its change batches by view; empty if one of them was already collected."""
        found: list[tuple[Manifest, dict[str, list[Batch]]]] = []
        for epoch in range(newest.epoch, old.epoch, -1):
            try:
                manifest = newest if epoch == newest.epoch else self._state.manifest(epoch)
                refs = {name: manifest.changes.get(name, []) for name in newest.views}
                found.append((manifest, {name: [self._batch(ref) for ref in part] for name, part in refs.items()}))
            except Damaged:
                return []
            except (StorageError, EpochGone):
                if epoch == newest.epoch:
                    raise
                return []
        return found[::-1]

    def _kept(self, newest: Manifest) -> Iterator[Manifest]:
        """The manifest and its predecessors that still exist, newest first."""
        yield newest
        for epoch in range(newest.epoch - 1, NO_EPOCH, -1):
            try:
                yield self._state.manifest(epoch)
            except Damaged as error:
                self.dead_letters_damaged = error
                return
            except (StorageError, EpochGone):
                return

    def _collect_all_letters(self, newest: Manifest) -> None:
        """Collect the dead letters of all epochs that still exist."""
        self.letters.clear()
        self.dead_letters_damaged = None
        for manifest in reversed(list(self._kept(newest))):
            self._collect_letters(manifest)

    def _collect_letters(self, manifest: Manifest) -> None:
        for ref in manifest.dead:
            try:
                self.letters.add(manifest.epoch, self._state.open(ref.segment).meta(ref.label).get("letters", ()))
            except Damaged as error:
                self.dead_letters_damaged = error
            except StorageError as error:
                _log.warning("cannot read the dead letters of epoch %d: %s", manifest.epoch, error)

    def _advance(
        self, view: View, entry: ViewEntry, newest: Manifest, steps: list[tuple[Manifest, list[Batch]]]
    ) -> View:
        """A view's next state: epoch by epoch, or, if epochs are missing, by the changes that its trace
        has since then.
        """
        batches = self._trace(newest, entry)
        width = view.stored.width
        for manifest, parts in steps:
            sums = sum_until(parts, width, CLOSED)  # reads, and so verifies, all parts
            interval = Interval.of(view.frontier, manifest.upper, parts, width, manifest.committed_ns)
            view = view.follow(interval, sums, entry.since, batches, self._log_bytes)
        if view.frontier < newest.upper:
            if view.frontier <= entry.since:
                return View.load(view.name, view.schema, view.key, entry.since, newest.upper, batches)
            missed = changes_between(batches, width, view.frontier, newest.upper)
            interval = Interval(view.frontier, newest.upper, missed, newest.committed_ns)
            sums = Multiset.of(width, matrix_of(missed))
            return view.follow(interval, sums, entry.since, batches, self._log_bytes)
        # Epochs that no longer exist may have compacted the view although nothing became final in between.
        return view if steps else replace(view, since=entry.since, batches=tuple(batches))

    def _load(self, name: str, manifest: Manifest) -> View:
        entry = manifest.views[name]
        schema = RowType.from_json(entry.schema)
        return View.load(name, schema, entry.key, entry.since, manifest.upper, self._trace(manifest, entry))

    def _trace(self, manifest: Manifest, entry: ViewEntry) -> list[Batch]:
        return [self._batch(ref) for shard in manifest.traces[entry.trace].shards for ref in shard]

    def _batch(self, ref: BatchRef) -> Batch:
        batch = self._batches.get(ref)
        if batch is None:
            segment = self._segments.get(ref.segment)
            if segment is None:
                segment = self._segments[ref.segment] = self._state.open(ref.segment)
            batch = open_batch(segment, ref, lazy=True)
            if batch.texts is not None and len(batch.texts):
                # Answers read texts one at a time, so the whole entry is verified now.
                segment.verify_entry(ref.label)
            elif not segment.is_verified(ref.label):
                batch.check = partial(self._verify, segment, ref.label)
            self._batches[ref] = batch
        return batch

    def _verify(self, segment: Segment, label: str) -> None:
        try:
            segment.verify_entry(label)
        except Damaged as problem:
            raise self._note_damage(problem) from None

    def _release(self, manifest: Manifest) -> None:
        """Unmap the files that the manifest no longer needs. A state that still uses a batch keeps its
        mapping alive.
        """
        needed = manifest.segments()
        self._segments = {name: segment for name, segment in self._segments.items() if name in needed}
        self._batches = {ref: batch for ref, batch in self._batches.items() if ref.segment in needed}
        for name in self.damage.keys() - needed:
            # The file belonged to an older epoch, or to no epoch any more.
            self.damage.pop(name, None)


def _continues(old: Manifest, new: Manifest) -> bool:
    """Whether the new manifest is a later epoch of the same program on the same data."""
    return (
        new.epoch > old.epoch
        and new.upper >= old.upper
        and (new.app, new.program) == (old.app, old.program)
        and {name: (view.schema, view.key, view.began) for name, view in new.views.items()}
        == {name: (view.schema, view.key, view.began) for name, view in old.views.items()}
    )


def _note(manifest: Manifest, stats: Stats, before: Stats, noticed_ns: int | None) -> EpochNote:
    earlier = before.histograms.get(LATENCY, {})
    latency = {
        labels[0]: np.array((histogram.minus(earlier[labels]) if labels in earlier else histogram).counts, np.int64)
        for labels, histogram in stats.histograms.get(LATENCY, {}).items()
    }
    return EpochNote(
        epoch=manifest.epoch,
        lower=manifest.lower,
        upper=manifest.upper,
        committed_ns=manifest.committed_ns,
        noticed_ns=noticed_ns,
        changes={name: sum(ref.updates for ref in refs) for name, refs in manifest.changes.items()},
        latency=latency if noticed_ns is not None else {},
    )
