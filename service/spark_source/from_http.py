"""Reads a view for Spark from a sidecar, one page after the other, in one task.

All pages of a read are of one data time. Changes come as JSON and are decoded by the compiled reader of native
messages, a thousand at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from vernier.operators.language.types.schema import RowType
from vernier.service.client.client import Change
from vernier.service.codec.native import update, updates_message
from vernier.service.ingest.formats.native import Native
from vernier.service.spark_source.from_state import About, Piece
from vernier.service.spark_source.options import BadOption, Sidecar
from vernier.service.views.json_rows import DIFF, RowJson
from vernier.service.views.part import ViewChanged
from vernier.storage.errors import InvariantError
from vernier.storage.strings.string_heap import Heap

_TOGETHER = 1_000


class NotRead(InvariantError):
    """A change that a sidecar sent does not fit the view's columns."""

    message = "a change of view {view} cannot be read: {problem}; the sidecar runs another program or release"
    view: str
    problem: str


class HttpOrigin:
    """A view of a sidecar."""

    def __init__(self, sidecar: Sidecar, view: str) -> None:
        self.sidecar, self.view = sidecar, view

    def about(self) -> About:
        """The view as the sidecar has it now. Raises ServerError, Unreachable."""
        with self.sidecar.client() as client:
            found = client.view(self.view)
        columns = [[one["name"], one["type"]] for one in found["columns"]]
        meaning = xxhash.xxh3_64_hexdigest(msgspec.json.encode([columns, found["key"]]))
        return About(RowType.from_json(columns), int(found["since"]), int(found["frontier"]), meaning)

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The piece as Arrow: the columns, `_time` for changes, `_diff`. Raises ServerError, Unreachable, NotRead."""
        with self.sidecar.client() as client:
            if piece.as_of is not None:
                columns = piece.columns or None
                table = client.arrow(self.view, where=piece.where, columns=columns, as_of=piece.as_of)
                if DIFF not in table.column_names:
                    table = table.append_column(DIFF, pa.array(np.ones(len(table), np.int64)))
                yield from table.to_batches()
                return
            lower, upper = piece.interval
            if lower >= upper:
                return
            about = self.about()
            if piece.meaning not in ("", about.meaning):
                raise ViewChanged(view=self.view)
            for event in client.watch(self.view, since=lower, until=upper, snapshot=False):
                if piece.where and event.changes:
                    raise BadOption(option="where", problem="needs the state directory to filter changes: set state")
                for start in range(0, len(event.changes), _TOGETHER):
                    some = event.changes[start : start + _TOGETHER]
                    yield _decoded(self.view, about.rows, some, piece.columns)


class HttpFollower:
    """Follows a view's frontier in the process that plans a stream."""

    def __init__(self, origin: HttpOrigin) -> None:
        self._origin = origin

    def look(self) -> tuple[int, str]:
        """The newest frontier, and the view's meaning. Raises ServerError, Unreachable."""
        about = self._origin.about()
        return about.frontier, about.meaning

    def reach(self, lower: int, meaning: str, most: int | None) -> int:
        """How far a micro-batch from `lower` on goes: as far as the view is final. Raises ViewChanged."""
        upper, now = self.look()
        if meaning not in ("", now):
            raise ViewChanged(view=self._origin.view)
        return max(lower, upper)

    def changes(self, lower: int, upper: int, columns: tuple[str, ...]) -> pa.RecordBatch | None:
        """None: the task asks the sidecar itself."""
        return None

    def hold(self) -> int | None:
        """None: the sidecar holds what it answers with."""
        return None

    def forget(self, frontier: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is held."""


def _decoded(view: str, rows: RowType, changes: list[Change], columns: tuple[str, ...]) -> pa.RecordBatch:
    updates = [update(msgspec.json.encode(one.row), one.time, one.diff) for one in changes]
    message = updates_message(min(one.time for one in changes), updates)
    heap = Heap()
    parsed = Native({view: rows}).decode(pa.array([message], pa.large_binary()), heap)
    if parsed.refused:
        raise NotRead(view=view, problem=parsed.refused[0].detail)
    codec = RowJson(rows, columns or rows.names, heap)
    return codec.arrow(parsed.words[view], parsed.diff, counted=True, times=parsed.time)
