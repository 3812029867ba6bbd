"""Reads a view for Spark straight from its state directory, in parts that need no running service.

A batch read is planned at one epoch; each part leases that epoch, or the newest one if it is gone. A stream follows the
epochs (sinks/history.py) in the process that plans it: its micro-batch is the changes between two frontiers, which are
the same however often and wherever they are read. Few changes travel inside the plan; many are read by parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vernier.operators.language.types.schema import RowType
from vernier.service.sinks.history import History, Step
from vernier.service.views.json_rows import RowJson
from vernier.service.views.multiset import Run
from vernier.service.views.part import ViewChanged, ViewPart
from vernier.service.views.query import RowQuery
from vernier.service.views.view import Compacted, UnknownView
from vernier.service.views.view_type import ViewType
from vernier.storage.state.lease import ReadLease
from vernier.storage.state.state import StateDirectory
from vernier.storage.updates import Updates

SMALL = 20_000
"""Updates for which further parts cost more than they save; and changes of a micro-batch that go with its plan."""

QUIET_EPOCHS = 20
"""Epochs without changes after which a stream notes that it has passed them. Its position may not fall behind the
view's history, and a micro-batch for each epoch would be waste."""


@dataclass(frozen=True)
class About:
    """What a reader knows of a view when it plans. updates: about how much there is to read."""

    rows: RowType
    since: int
    frontier: int
    meaning: str = ""
    epoch: int | None = None
    shards: int = 1
    updates: int = 0


@dataclass(frozen=True)
class Piece:
    """What one task reads: rows as of a time, or the changes of an interval, of one part."""

    columns: tuple[str, ...]
    as_of: int | None = None
    interval: tuple[int, int] = (0, 0)
    where: tuple[str, ...] = ()
    index: int = 0
    of: int = 1
    epoch: int | None = None
    meaning: str = ""


class StateOrigin:
    """A view in a state directory. place: a path or a URI."""

    def __init__(self, place: str, view: str) -> None:
        self.place, self.view = place, view

    def about(self) -> About:
        """The view as the newest epoch has it. Raises UnknownView, StorageErrors."""
        with StateDirectory(self.place).lease() as lease:
            manifest = lease.manifest
            entry = manifest.views.get(self.view)
            if entry is None:
                raise UnknownView.of(self.view, list(manifest.views))
            view, shards = ViewType.of(self.view, entry), manifest.traces[entry.trace].shards
            updates = sum(ref.updates for refs in shards for ref in refs)
            return About(view.schema, entry.since, manifest.upper, view.meaning, lease.epoch, len(shards), updates)

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The piece as Arrow: the columns, `_time` for changes, `_diff`.

        Raises Compacted, ViewChanged, StorageErrors.
        """
        state, meaning = StateDirectory(self.place), piece.meaning or None
        with ViewPart(state, self.view, piece.index, piece.of, epoch=piece.epoch, meaning=meaning) as part:
            codec, stored = part.codec(piece.columns), part.view.stored
            if piece.as_of is None:
                changes = part.changes(*piece.interval)
                run = Run(changes.rows, changes.rows, changes.diff)
                if piece.where:
                    found = RowQuery(piece.where).positions(stored, run, self.view, part.heap)
                    changes = changes.take(found)
                yield changes_batch(codec, changes)
                return
            run = part.rows(piece.as_of).flat()
            rows, counts = run.rows, run.counts
            if piece.where:
                found = RowQuery(piece.where).positions(stored, run, self.view, part.heap)
                rows, counts = rows[found], counts[found]
            yield codec.arrow(rows, counts, counted=True)


class StateFollower:
    """Follows a view's changes in the process that plans a stream. For one thread."""

    def __init__(self, origin: StateOrigin) -> None:
        self._state, self._view = StateDirectory(origin.place), origin.view
        self._history = History(self._state)
        self._lease: ReadLease | None = None
        self._steps: list[Step] = []

    def look(self) -> tuple[int, str]:
        """The newest frontier, and the view's meaning. Raises UnknownView, StorageErrors."""
        self._history.poll()
        newest = self._history.newest
        if newest is None or self._view not in newest.views:
            raise UnknownView.of(self._view, [] if newest is None else list(newest.views))
        return newest.upper, newest.views[self._view].meaning

    def reach(self, lower: int, meaning: str, most: int | None) -> int:
        """How far a micro-batch from `lower` on goes: about `most` changes, and `lower` itself if nothing has changed
        in the few epochs since then.

        Raises Compacted if single changes from `lower` on are no longer kept, ViewChanged.
        """
        upper, now = self.look()
        if meaning not in ("", now):
            raise ViewChanged(view=self._view)
        if upper <= lower:
            return lower
        self._steps = self._history.steps(self._view, lower, now, (1 << 62) if most is None else most)
        if any(step.kind == "snapshot" for step in self._steps):
            raise Compacted(view=self._view, as_of=lower, since=self._steps[0].upper)
        if len(self._steps) > QUIET_EPOCHS:
            return self._steps[-1].upper
        changed = [step.upper for step in self._steps if len(step.changes)]
        return max(changed, default=lower)

    def changes(self, lower: int, upper: int, columns: tuple[str, ...]) -> pa.RecordBatch | None:
        """The changes of the micro-batch that `reach` has found, if they are few; None: read them by parts."""
        steps = [step for step in self._steps if step.lower < upper]
        covered = bool(steps) and steps[0].lower == lower and steps[-1].upper == upper
        if not covered or sum(len(step.changes) for step in steps) > SMALL:
            return None
        batches = []
        for step in steps:
            codec = RowJson(step.view.stored, columns or step.view.schema.names, step.heap)
            batches.append(changes_batch(codec, step.changes))
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return whole[0] if whole else batches[0]

    def hold(self) -> int:
        """Hold the newest epoch until the next call, for parts that tasks read; returns it."""
        held, self._lease = self._lease, self._state.lease()
        if held is not None:
            held.release()
        return self._lease.epoch

    def forget(self, frontier: int) -> None:
        """Drop what is before a frontier, which a stream has handled."""
        self._history.forget(frontier)

    def close(self) -> None:
        """Release what is held."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def changes_batch(codec: RowJson, changes: Updates) -> pa.RecordBatch:
    """Changes as Arrow, with `_time` and `_diff`."""
    rows = np.ascontiguousarray(changes.rows)
    return codec.arrow(rows, changes.diff, counted=True, times=changes.time)
