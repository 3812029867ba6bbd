"""The data source that Spark calls: `spark.read`, `readStream`, `write` and `writeStream` with format `vernier`.

The way of the data: Spark's planner calls `schema`, `pushFilters` and `partitions` in one Python process, and `read` in
one task per partition. A batch read is pinned to one data time when it is planned, so all tasks read the same answer.
A stream's offset is a frontier: a micro-batch is the changes with start <= time < end, so Spark's checkpoint makes each
change arrive once per micro-batch, and a repeated micro-batch is the same rows. The offset also has the view's meaning,
because the changes of a redefined view do not continue the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from vernier.service.spark_source.filters import pushed
from vernier.service.spark_source.from_http import HttpFollower, HttpOrigin
from vernier.service.spark_source.from_state import SMALL, About, Piece, StateFollower, StateOrigin
from vernier.service.spark_source.options import BadOption, Target, Wanted
from vernier.service.spark_source.schema import as_spark, repeated, spark_schema
from vernier.service.spark_source.writer import BatchWriter, StreamWriter
from vernier.service.views.json_rows import DIFF, TIME
from vernier.service.views.part import ViewChanged
from vernier.service.views.query import Condition, find_column
from vernier.service.views.view import Compacted, NotYetFinal
from vernier.storage.updates import MIN_TIME

FORMAT = "vernier"
_BEGIN = "begin"
"""The offset before a view's rows."""


class Follower(Protocol):
    """Follows a view in the process that plans a stream."""

    def look(self) -> tuple[int, str]: ...
    def reach(self, lower: int, meaning: str, most: int | None) -> int: ...
    def changes(self, lower: int, upper: int, columns: tuple[str, ...]) -> pa.RecordBatch | None: ...
    def hold(self) -> int | None: ...
    def forget(self, frontier: int) -> None: ...
    def close(self) -> None: ...


class Task(InputPartition):
    """What one task reads: a piece of the view, or changes that came with the plan."""

    def __init__(self, piece: Piece, ready: pa.RecordBatch | None = None) -> None:
        super().__init__(piece)
        self.piece, self.ready = piece, ready


class VernierReader(DataSourceReader):
    """A batch read: rows as of one data time, or the changes of an interval."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self._wanted, self._schema = wanted, schema
        self._where = wanted.where
        self._about = _origin(wanted).about()
        for text in wanted.where:
            find_column(self._about.rows, Condition.parse(text).column, wanted.view)

    def partitions(self) -> Sequence[InputPartition]:
        """One task per range of hashes, all pinned to one data time. Raises Compacted, NotYetFinal."""
        wanted, about = self._wanted, self._about
        if not wanted.changes:
            as_of = about.frontier - 1 if wanted.as_of is None else wanted.as_of
            _check(wanted.view, about, as_of, as_of)
            return _tasks(Piece(_columns(self._schema), as_of, where=self._where), wanted, about)
        first = MIN_TIME if about.since <= MIN_TIME else about.since + 1
        interval = (
            first if wanted.since is None else wanted.since,
            about.frontier if wanted.until is None else wanted.until,
        )
        _check(wanted.view, about, interval[0] if interval[0] < first else None, interval[1] - 1)
        return _tasks(Piece(_columns(self._schema), interval=interval, where=self._where), wanted, about)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's rows."""
        assert isinstance(partition, Task)
        return _read(partition, self._wanted, self._schema)


class PushingReader(VernierReader):
    """A batch read that takes Spark's filters.

    Spark 4.2 keeps what the first query of a DataFrame has pushed down for its later queries, even if they filter
    otherwise: their rows would be missing. So this reader is used only with option pushdown=true.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take the filters that the view's readers can evaluate; return the others."""
        taken, left = pushed(filters, self._about.rows)
        self._where = (*self._where, *taken)
        return left


class VernierStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of changes, which begins with the view's rows unless it begins at a frontier."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        if not wanted.changes:
            problem = "is missing; a stream has changes, with the columns _time and _diff: set changes=true"
            raise BadOption(option="changes", problem=problem)
        if wanted.until is not None:
            raise BadOption(option="until", problem="ends a batch read; a stream goes on, give it since alone")
        self._wanted, self._schema = wanted, schema
        self._follower: Follower | None = None
        self._last: int | None = None

    def initialOffset(self) -> dict[str, str]:
        """Where a new stream begins."""
        since, meaning = self._wanted.since, self._follow().look()[1]
        return _offset(_BEGIN if since is None or self._wanted.snapshot else since, meaning)

    def getDefaultReadLimit(self) -> ReadLimit:
        """About `max_changes` changes in a micro-batch."""
        return ReadMaxRows(self._wanted.max_changes)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """How far the next micro-batch goes. Raises Compacted, ViewChanged."""
        follower, meaning = self._follow(), start["meaning"]
        if start["frontier"] == _BEGIN:
            since = self._wanted.since
            return _offset(follower.look()[0] if since is None else since, meaning)
        lower = int(start["frontier"])
        most = None if isinstance(limit, ReadAllAvailable) else self._wanted.max_changes
        upper = follower.reach(lower, meaning, most)
        if self._last is not None:
            upper = max(lower, min(upper, self._last))
        return _offset(upper, meaning)

    def prepareForTriggerAvailableNow(self) -> None:
        """End where the view is final now."""
        self._last = self._follow().look()[0]

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        if start["frontier"] == end["frontier"]:
            return []
        wanted, follower, upper = self._wanted, self._follow(), int(end["frontier"])
        about = _origin(wanted).about()
        if about.meaning != end["meaning"]:
            raise ViewChanged(view=wanted.view)
        columns = _columns(self._schema)
        if start["frontier"] == _BEGIN:
            piece = Piece(columns, upper - 1, where=wanted.where, epoch=follower.hold(), meaning=about.meaning)
            return _tasks(piece, wanted, about)
        lower = int(start["frontier"])
        # Changes that come with the plan have not been filtered.
        ready = None if wanted.where else follower.changes(lower, upper, columns)
        piece = Piece(columns, interval=(lower, upper), where=wanted.where, meaning=about.meaning)
        if ready is not None:
            return [Task(piece, ready)]
        return _tasks(replace(piece, epoch=follower.hold()), wanted, about)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A task's changes. The rows that a stream begins with are changes at their data time."""
        assert isinstance(partition, Task)
        return _read(partition, self._wanted, self._schema)

    def commit(self, end: dict[str, str]) -> None:
        """Everything before this offset has been handled."""
        if self._follower is not None and end["frontier"] != _BEGIN:
            self._follower.forget(int(end["frontier"]))

    def stop(self) -> None:
        """The stream has ended."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _follow(self) -> Follower:
        """The follower, made in the process that plans: a reader that travels to a task has none."""
        if self._follower is None:
            origin = _origin(self._wanted)
            self._follower = StateFollower(origin) if isinstance(origin, StateOrigin) else HttpFollower(origin)
        return self._follower

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_follower": None}


class VernierSource(DataSource):
    """Views as DataFrames, and DataFrames into sources. Its options: docs/lakehouse.md."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a read, which for changes are followed by `_time` and `_diff`."""
        wanted = Wanted.of(self.options)
        rows = _origin(wanted).about().rows
        diffs = wanted.changes or wanted.diff
        return spark_schema(rows, wanted.view, wanted.columns, times=wanted.changes, diffs=diffs)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        wanted = Wanted.of(self.options)
        return (PushingReader if wanted.pushdown else VernierReader)(wanted, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of changes."""
        return VernierStreamReader(Wanted.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch write."""
        return BatchWriter(Target.of(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """A stream into a source."""
        return StreamWriter(Target.of(self.options))


def _origin(wanted: Wanted) -> StateOrigin | HttpOrigin:
    if wanted.state is not None:
        return StateOrigin(wanted.state, wanted.view)
    return HttpOrigin(wanted.sidecar, wanted.view)


def _offset(frontier: int | str, meaning: str) -> dict[str, str]:
    return {"frontier": str(frontier), "meaning": meaning}


def _columns(schema: StructType) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in (TIME, DIFF))


def _check(view: str, about: About, first: int | None, last: int) -> None:
    """Refuse times that cannot be read before any task starts. Raises Compacted, NotYetFinal."""
    if last >= about.frontier:
        raise NotYetFinal(view=view, as_of=last, frontier=about.frontier)
    if first is not None and first < about.since and about.since > MIN_TIME:
        raise Compacted(view=view, as_of=first, since=about.since)


def _tasks(piece: Piece, wanted: Wanted, about: About) -> list[InputPartition]:
    """The piece, cut into ranges of hashes if there is enough to read. A sidecar answers one task."""
    if wanted.state is None:
        return [Task(replace(piece, meaning=about.meaning))]
    of = wanted.partitions or (about.shards if about.updates > SMALL else 1)
    epoch = about.epoch if piece.epoch is None else piece.epoch
    return [Task(replace(piece, index=i, of=of, epoch=epoch, meaning=about.meaning)) for i in range(of)]


def _read(task: Task, wanted: Wanted, schema: StructType) -> Iterator[pa.RecordBatch]:
    batches = iter([task.ready]) if task.ready is not None else _origin(wanted).read(task.piece)
    for batch in batches:
        if TIME in schema.names and TIME not in batch.schema.names:
            at = pa.array(np.full(batch.num_rows, task.piece.as_of, np.int64))
            batch = batch.append_column(TIME, at)
        yield from as_spark(batch if DIFF in schema.names else repeated(batch, wanted.view), schema)
