"""A part of a view, read straight from the state directory, for readers that take a view whole and in parallel.

The way of the data: a view's trace is sorted by hash, and a part is the rows of one range of hashes. Every row is in
exactly one part with all of its changes, whatever the number of parts and of workers. A part needs a lease and its
batches, nothing of the other parts and nothing of a running service. Cost: one pass over the part's updates and a sort
of what it returns; memory holds the result. A lease keeps the files until the part is closed; if the wanted epoch is
gone, any later one answers alike for the same data time, as long as the view's history reaches back to it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from vernier.service.views.json_rows import RowJson
from vernier.service.views.multiset import Multiset
from vernier.service.views.view import Compacted, NotYetFinal, UnknownView, changes_between, sum_until
from vernier.service.views.view_type import ViewType
from vernier.storage.blob.segment import Segment
from vernier.storage.errors import CallerError, EpochGone
from vernier.storage.state.reshard import reshard
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME, Updates


class ViewChanged(CallerError):
    """A program has redefined a view while somebody read it."""

    message = (
        "view {view} has been redefined or rebuilt, so its rows do not continue those that were read before; "
        "read it from its beginning (a stream: with a new checkpoint)"
    )
    view: str


class ViewPart:
    """The rows of a view in the `index`-th of `of` ranges of hashes, as one committed epoch has them.

    epoch: the epoch to read; if it is gone, or None: the newest. meaning: the view's meaning (ViewType) that the caller
    expects, if any. since, frontier: the readable data times are since <= time < frontier. A context manager, which
    holds a lease. Raises UnknownView, ViewChanged, StorageErrors.
    """

    def __init__(
        self,
        state: StateDirectory,
        view: str,
        index: int = 0,
        of: int = 1,
        *,
        epoch: int | None = None,
        meaning: str | None = None,
    ) -> None:
        try:
            self._lease = state.lease(epoch)
        except EpochGone:
            self._lease = state.lease()
        try:
            manifest = self._lease.manifest
            entry = manifest.views.get(view)
            if entry is None:
                raise UnknownView.of(view, list(manifest.views))
            self.view = ViewType.of(view, entry)
            if meaning not in (None, self.view.meaning):
                raise ViewChanged(view=view)
            self.epoch, self.since, self.frontier = manifest.epoch, entry.since, manifest.upper
            segments: dict[str, Segment] = {}

            def opened(name: str) -> Segment:
                if name not in segments:
                    segments[name] = state.open(name)
                return segments[name]

            self._batches = reshard(manifest.traces[entry.trace].shards, index, of, opened)
        except BaseException:
            self._lease.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the lease. What has been read stays readable."""
        self._lease.release()

    def rows(self, as_of: int) -> Multiset:
        """The part's rows at a data time. O(updates of the part). Raises Compacted, NotYetFinal, DiffOverflow."""
        if as_of >= self.frontier:
            raise NotYetFinal(view=self.view.name, as_of=as_of, frontier=self.frontier)
        if as_of < self.since and self.since > MIN_TIME:
            raise Compacted(view=self.view.name, as_of=as_of, since=self.since)
        return sum_until(self._batches, self.view.stored.width, as_of)

    def changes(self, lower: int, upper: int) -> Updates:
        """The part's changes with lower <= time < upper, by time, then row. Raises Compacted, NotYetFinal."""
        if upper > self.frontier:
            raise NotYetFinal(view=self.view.name, as_of=upper - 1, frontier=self.frontier)
        if lower <= self.since and self.since > MIN_TIME:
            raise Compacted(view=self.view.name, as_of=lower, since=self.since + 1)
        width = self.view.stored.width
        if lower >= upper:
            return Updates(np.empty((0, width + 2), np.int64), width, 0)
        return changes_between(self._batches, width, lower, upper)

    @property
    def heap(self) -> Heap | None:
        """Finds the part's long texts; None if the view has no texts."""
        if not self.view.stored.text_words:
            return None
        heap = Heap()
        heap.attach(batch.texts for batch in self._batches)
        return heap

    def codec(self, columns: tuple[str, ...] = ()) -> RowJson:
        """Turns the part's rows into Arrow; by default with all columns, in the program's order."""
        return RowJson(self.view.stored, columns or self.view.schema.names, self.heap)
