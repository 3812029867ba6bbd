"""Reads the committed changes of views from any frontier on, cut into the steps in which the epochs made them.

A step is the changes of a view in an interval of data times. While an epoch's manifest exists, a step is exactly that
epoch, so a restarted publisher makes the same steps. If the manifest was collected, the view's trace provides the
changes in one step, as far back as it retains them individually. If the trace does not reach back that far, there is a
snapshot: the rows as of the earliest time that the trace distinguishes, followed by the later changes. Everything is
read from the state directory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from vernier.service.ingest.future_times import discarded
from vernier.service.sinks.held_rows import HeldRows
from vernier.service.views.head import Head
from vernier.service.views.view import by_time, changes_between, sum_until
from vernier.service.views.view_type import ViewType
from vernier.storage.blob.segment import Segment
from vernier.storage.errors import EpochGone, StorageError
from vernier.storage.state.manifest import NO_EPOCH, BatchRef, Manifest, ViewEntry
from vernier.storage.state.reshard import open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import MIN_TIME, Updates

MOST_PARTS = 10_000
"""Epochs kept in memory for sinks that are behind (their batches are mapped, not loaded)."""
_log = logging.getLogger("vernier.publisher")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The changes of a view with lower <= time < upper, ordered by time, then row. heap: holds their long texts.

    A snapshot has the rows at a single time, upper - 1, as if they had been inserted then. With `restarts` it replaces
    what was there before `lower` instead of adding to it. held: what keys have at the end, where that is known.
    """

    view: ViewType
    kind: Literal["updates", "snapshot"]
    epoch: int
    lower: int
    upper: int
    changes: Updates
    heap: Heap | None
    restarts: bool = False
    held: HeldRows | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What an epoch changed. batches: its change batches, by view."""

    epoch: int
    app: str
    lower: int
    upper: int
    views: Mapping[str, ViewType]
    batches: Mapping[str, Sequence[Batch]]
    began: int = 0


class History:
    """Follows the committed epochs of a state directory, read-only. For one thread."""

    def __init__(self, state: StateDirectory, most: int = MOST_PARTS) -> None:
        self._state, self._newest = state, Head(state)
        self._parts: deque[Part] = deque(maxlen=most)
        self._types: dict[tuple[str, str, str, int], ViewType] = {}
        self._traces: dict[str, dict[BatchRef, Batch]] = {}
        """The open batches of the traces that `HeldRows` have read."""
        self._seen = NO_EPOCH

    @property
    def newest(self) -> Part | None:
        """The newest epoch that `poll` has found."""
        return self._parts[-1] if self._parts else None

    def poll(self) -> bool:
        """Look for new epochs; returns True if there are any. Raises StorageErrors."""
        head = self._newest.look()
        if head == self._seen:
            return False
        if head < self._seen:
            # The service went back before a damaged manifest and makes those epochs again.
            self._parts.clear()
            self._seen = NO_EPOCH
        first = self._seen + 1 if self._parts else min(self._state.epochs(), default=head)
        before = len(self._parts)
        for epoch in range(first, head + 1):
            try:
                part = self._part(self._state.manifest(epoch))
                if self._parts and part.began != self._parts[-1].began:
                    # The views were rebuilt, so the earlier epochs do not belong to the present state, although they
                    # were final.
                    self._parts.clear()
                self._parts.append(part)
            except (StorageError, EpochGone) as error:
                if epoch == head:
                    raise
                _log.info("epoch %d is skipped: %s", epoch, error)
            self._seen = epoch
        return len(self._parts) > before or head > NO_EPOCH

    def forget(self, frontier: int) -> None:
        """Drop the epochs that end at or before a frontier, except the newest."""
        while len(self._parts) > 1 and self._parts[0].upper <= frontier:
            self._parts.popleft()

    def epoch_at(self, frontier: int) -> int:
        """The newest known epoch that ends at or before a frontier, 0 for none."""
        return max((part.epoch for part in self._parts if part.upper <= frontier), default=NO_EPOCH)

    def steps(self, view: str, frontier: int | None, meaning: str | None, most: int) -> list[Step]:
        """The changes of a view from a frontier on: at least one step if there are any, up to about `most` changes.

        frontier, meaning: where the last step ended and the view's meaning at that step; None to start at the
        beginning. Raises StorageErrors.
        """
        newest = self.newest
        if newest is None or view not in newest.views or newest.upper <= MIN_TIME:
            return []
        wanted, first = newest.views[view].meaning, self._parts[0]
        if frontier is None and first.lower == MIN_TIME and view in first.views:
            frontier = MIN_TIME if first.views[view].meaning == wanted else None
            meaning = wanted
        if frontier is None or meaning != wanted:
            return self._from_trace(view, frontier, True)
        steps: list[Step] = []
        count, reached = 0, frontier
        for part in self._parts:
            if part.upper <= reached:
                continue
            if count >= most:
                break
            own = part.views.get(view)
            if part.lower > reached or own is None or own.meaning != meaning:
                return steps or self._from_trace(view, reached, False)
            steps.append(_step(own, part, reached))
            count, reached = count + len(steps[-1].changes), part.upper
        if steps and reached == newest.upper:
            steps[-1] = replace(steps[-1], held=self._held(steps[-1].view, reached - 1))
        return steps

    # --- inside -------------------------------------------------------------------------------------------------------

    def _part(self, manifest: Manifest) -> Part:
        segments: dict[str, Segment] = {}
        batches = {name: self._open(refs, segments) for name, refs in manifest.changes.items() if refs}
        views = {name: self._type(name, entry) for name, entry in manifest.views.items()}
        began = max((entry.began for entry in manifest.views.values()), default=0)
        return Part(manifest.epoch, manifest.app, manifest.lower, manifest.upper, views, batches, began)

    def _open(self, refs: Sequence[BatchRef], segments: dict[str, Segment]) -> list[Batch]:
        for ref in refs:
            if ref.segment not in segments:
                segments[ref.segment] = self._state.open(ref.segment)
        return [open_batch(segments[ref.segment], ref) for ref in refs]

    def _type(self, name: str, entry: ViewEntry) -> ViewType:
        """The view's type; epochs of one meaning share one object."""
        key = (name, entry.trace, str(entry.schema), entry.began)
        if key not in self._types:
            self._types[key] = ViewType.of(name, entry)
        return self._types[key]

    def _from_trace(self, view: str, frontier: int | None, anew: bool) -> list[Step]:
        """The changes from a frontier on as the newest epoch's trace has them; with `anew`, the whole view."""
        with self._state.lease() as lease:
            manifest = lease.manifest
            entry = manifest.views.get(view)
            if entry is None:
                return []
            refs = [ref for shard in manifest.traces[entry.trace].shards for ref in shard]
            batches = self._open(refs, {})
        own, upper, since = self._type(view, entry), manifest.upper, entry.since
        back = discarded(manifest.ingestion) if anew else None
        if frontier is not None and back is not None and frontier > back:
            # Published data became final too early, and an operator has set the service back (`--discard-after`).
            frontier = back
        if frontier is not None and frontier >= upper:
            return []
        heap = _heap(own, batches)
        lower = MIN_TIME if frontier is None else frontier
        if (not anew and (lower > since or since <= MIN_TIME)) or (frontier is None and since <= MIN_TIME):
            changes = changes_between(batches, own.stored.width, lower, upper)
            held = self._held(own, upper - 1)
            return [Step(own, "updates", manifest.epoch, lower, upper, changes, heap, held=held)]
        return self._snapshot(own, manifest, batches, lower, since, frontier is not None)

    def _held(self, view: ViewType, as_of: int) -> HeldRows:
        """What keys of a view have at a time."""
        return HeldRows(view.stored, as_of, partial(self._trace, view, as_of))

    def _trace(self, view: ViewType, as_of: int) -> list[Batch] | None:
        """The batches of a view's trace as the newest epoch has them; None if they no longer distinguish a time, or
        the view has another meaning by now."""
        with self._state.lease() as lease:
            entry = lease.manifest.views.get(view.name)
            if entry is None or entry.since > as_of or self._type(view.name, entry) is not view:
                self._traces.pop(view.name, None)
                return None
            refs = [ref for shard in lease.manifest.traces[entry.trace].shards for ref in shard]
            known = self._traces.get(view.name, {})
            fresh = [ref for ref in refs if ref not in known]
            known = known | dict(zip(fresh, self._open(fresh, {}), strict=True))
        self._traces[view.name] = {ref: known[ref] for ref in refs}
        return list(self._traces[view.name].values())

    def _snapshot(
        self, own: ViewType, manifest: Manifest, batches: Sequence[Batch], lower: int, since: int, restarts: bool
    ) -> list[Step]:
        width, upper, heap = own.stored.width, manifest.upper, _heap(own, batches)
        as_of = max(min(since, upper - 1), lower)
        rows = sum_until(batches, width, as_of).flat()
        at = np.full(len(rows), as_of, np.int64)
        whole = Updates.of(rows.rows, at, rows.counts)
        steps = [Step(own, "snapshot", manifest.epoch, lower, as_of + 1, whole, heap, restarts)]
        if as_of + 1 < upper:
            later = changes_between(batches, width, as_of + 1, upper)
            steps.append(Step(own, "updates", manifest.epoch, as_of + 1, upper, later, heap))
        return steps


def _step(own: ViewType, part: Part, reached: int) -> Step:
    batches = part.batches.get(own.name, ())
    changes = by_time(Updates.concat([batch.to_updates() for batch in batches], own.stored.width))
    if part.lower < reached:
        changes = changes.take(changes.time >= reached)
    return Step(own, "updates", part.epoch, reached, part.upper, changes, _heap(own, batches))


def _heap(own: ViewType, batches: Sequence[Batch]) -> Heap | None:
    if not own.stored.text_words:
        return None
    heap = Heap()
    heap.attach(batch.texts for batch in batches)
    return heap
