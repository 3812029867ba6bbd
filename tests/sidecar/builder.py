"""States made through storage alone: epochs of view changes as the service commits them, without Spark or Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.storage.merging import merge_batches
from vernier.operators.language.types.scalars import parse
from vernier.operators.language.types.schema import RowType
from vernier.service.observability.metrics import Stats
from vernier.service.views.view import View
from vernier.storage.blob.location import BlobLocation
from vernier.storage.blob.segment import Entry
from vernier.storage.kernels.hashing import key_rows, partition_rows
from vernier.storage.state.manifest import BatchRef, Manifest, SourceEntry, TraceEntry, ViewEntry
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import MIN_TIME, Ints, Updates

Change = tuple[tuple[Any, ...], int, int]
"""A row in the program's column order, its data time, its diff."""


def row_type(**columns: str) -> RowType:
    """A row type by the types' spelling: row_type(node="Int64", note="Int64 | None")."""
    return RowType((name, *parse(spelled)) for name, spelled in columns.items())


class StateBuilder:
    """Commits epochs to a state directory. views: name -> (row type, key columns)."""

    def __init__(
        self,
        path: Path,
        views: Mapping[str, tuple[RowType, Sequence[str]]],
        *,
        program: str = "p1",
        app: str = "test",
        shards: int = 1,
        place: BlobLocation | None = None,
    ) -> None:
        self.path, self.views, self.program, self.shards = path, dict(views), program, shards
        self.app = app
        self.state = StateDirectory(place or path)
        latest = self.state.acquire()
        self.epoch = latest.epoch if latest else 0
        self.frontier = latest.upper if latest else MIN_TIME
        self.stats = Stats()
        self.sources: dict[str, SourceEntry] = {}
        self.offsets: dict[str, dict[int, int]] = {}
        self.heap = Heap()
        self.traces: dict[str, list[list[Batch]]] = {name: [[] for _ in range(shards)] for name in views}
        self.since = dict.fromkeys(views, MIN_TIME)

    def close(self) -> None:
        """Release the directory, as a service that ends does."""
        self.state.release()

    def stored(self, view: str) -> RowType:
        """The row type of the view's trace."""
        schema, key = self.views[view]
        return View.stored_type(schema, key)

    def updates(self, view: str, changes: Iterable[Change]) -> Updates:
        """Changes as stored updates."""
        schema, stored = self.views[view][0], self.stored(view)
        listed = list(changes)
        rows = schema.encode_rows([row for row, _, _ in listed], self.heap)[:, schema.index(stored.names)]
        return Updates.of(rows, [at for _, at, _ in listed], [diff for _, _, diff in listed]).consolidate()

    def commit(
        self,
        upper: int,
        changes: Mapping[str, Iterable[Change]] | None = None,
        *,
        since: int | None = None,
        merge: bool = False,
        keep: int = 3,
        committed_ns: int | None = None,
        dead: Sequence[Entry] = (),
        offsets: Mapping[str, dict[int, int]] | None = None,
        ingestion: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Commit one epoch [frontier, upper); `since` compacts the traces (with `merge`, into one batch a shard).
        offsets, ingestion: as the manifest has them."""
        self.epoch += 1
        attempt = f"a{self.epoch}"
        lower, fresh = self.frontier, {}
        for view in self.views:
            given = self.updates(view, (changes or {}).get(view, ()))
            owners = self._owners(view, given)
            for shard in range(self.shards):
                part = given.take(owners == shard)
                if len(part):
                    batch = Batch.build(part, self._key_width(view), lower, upper, lower)
                    fresh[view, shard] = batch
                    self.traces[view][shard].append(batch)
        for view in self.views:
            if since is not None:
                self.since[view] = max(self.since[view], since)
            for shard, batches in enumerate(self.traces[view]):
                if merge and batches:
                    self.traces[view][shard] = [merge_batches(batches, self.since[view])]
        for (view, _), batch in fresh.items():
            batch.settle(self.stored(view).text_words, self.heap)
        for view, shards in self.traces.items():
            for batch in (batch for batches in shards for batch in batches if batch.ref is None):
                batch.settle(self.stored(view).text_words, self.heap)
        self._write(
            [*fresh.values(), *(batch for t in self.traces.values() for shard in t for batch in shard)], attempt
        )
        self.stats.add("epochs_total", "committed")
        manifest = Manifest(
            epoch=self.epoch,
            attempt=attempt,
            lower=lower,
            upper=upper,
            committed_ns=committed_ns or time.time_ns(),
            workers=self.shards,
            app=self.app,
            program=self.program,
            traces={f"view:{view}": self._trace_entry(view) for view in self.views},
            views={
                view: ViewEntry(schema.to_json(), list(key), f"view:{view}", self.since[view])
                for view, (schema, key) in self.views.items()
            },
            changes={
                view: [fresh[view, shard].ref for shard in range(self.shards) if (view, shard) in fresh]
                for view in self.views
            },
            dead=self.state.write(self.epoch, attempt, 99, dead) if dead else [],
            stats=self.stats.to_json(),
            sources=self.sources,
            offsets=dict(self.offsets if offsets is None else offsets),
            ingestion=dict(ingestion or {}),
        )
        self.state.commit(manifest)
        self.state.gc(keep)
        self.frontier = upper
        return manifest

    def _owners(self, view: str, updates: Updates) -> Ints:
        """The shard of each update: the one that owns its key's hash."""
        numbered = np.column_stack((updates.rows, np.arange(len(updates))))
        keyed = key_rows(numbered, np.arange(self._key_width(view)), np.empty(0, np.int64), 1)
        placed, offsets = partition_rows(keyed, self.shards)
        owners = np.empty(len(placed), np.int64)
        for shard in range(self.shards):
            owners[placed[offsets[shard] : offsets[shard + 1], -1]] = shard
        return owners

    def _key_width(self, view: str) -> int:
        return sum(self.stored(view).field(name).words for name in self.views[view][1])

    def _trace_entry(self, view: str) -> TraceEntry:
        width = self._key_width(view)
        shards: list[list[BatchRef]] = [[batch.ref for batch in batches] for batches in self.traces[view]]
        return TraceEntry(width, self.stored(view).width - width, 0, shards)

    def _write(self, batches: Iterable[Batch], attempt: str) -> None:
        loose = list({id(batch): batch for batch in batches if batch.ref is None}.values())
        entries = [Entry(f"layer-{i}", batch.meta(), batch.arrays()) for i, batch in enumerate(loose)]
        for batch, ref in zip(loose, self.state.write(self.epoch, attempt, 0, entries) if entries else [], strict=True):
            batch.ref = ref


def by_time_and_row(changes: Iterable[Change]) -> list[Change]:
    """Changes in the order of time, then row; nulls first, as the view orders them."""

    def order(change: Change) -> tuple[Any, ...]:
        return change[1], tuple((value is not None, value if value is not None else 0) for value in change[0])

    return sorted(changes, key=order)


class ViewModel:
    """What a view should be, by dictionaries: all changes ever, and sums over them."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def rows(self, as_of: int) -> dict[tuple[Any, ...], int]:
        """Row -> multiplicity at a data time."""
        total: dict[tuple[Any, ...], int] = {}
        for row, at, diff in self.changes:
            if at <= as_of:
                total[row] = total.get(row, 0) + diff
        return {row: count for row, count in total.items() if count}

    def between(self, lower: int, upper: int) -> list[Change]:
        """The consolidated changes with lower <= time < upper, by time, then row."""
        total: dict[tuple[tuple[Any, ...], int], int] = {}
        for row, at, diff in self.changes:
            if lower <= at < upper:
                total[row, at] = total.get((row, at), 0) + diff
        found = [(row, at, diff) for (row, at), diff in total.items() if diff]
        return by_time_and_row(found)
