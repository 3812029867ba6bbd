"""The data source's readers as Spark calls them, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

from vernier.service.spark_source.source import VernierSource, VernierStreamReader


def source(**options: str | Path) -> VernierSource:
    """The source with these options."""
    return VernierSource(CaseInsensitiveDict({name: str(value) for name, value in options.items()}))


def read(*filters: Any, **options: str | Path) -> pa.Table:
    """A batch read: planned, sent to its tasks, read there, put together."""
    made = source(**options)
    schema = made.schema()
    reader = made.reader(schema)
    if filters:
        left = list(reader.pushFilters(list(filters)))
        assert not left, left
    return collected(reader, list(reader.partitions()), schema)


def collected(reader: Any, parts: list[Any], schema: Any) -> pa.Table:
    """What the tasks of a plan read."""
    from pyspark.sql.pandas.types import to_arrow_schema

    elsewhere = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in elsewhere.read(pickle.loads(pickle.dumps(part)))]
    return pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC"))


class Stream:
    """A stream as Spark drives it: `turn` runs a micro-batch; `restart` forgets all but the checkpoint.

    offset: the checkpoint. most: the limit of changes given to each micro-batch.
    """

    def __init__(self, **options: str | Path) -> None:
        self.options = options
        self.offset: dict[str, str] | None = None
        self.restart()

    def restart(self) -> None:
        """Begin anew from the checkpoint."""
        made = source(**self.options)
        self.schema = made.schema()
        self.reader: VernierStreamReader = made.streamReader(self.schema)  # type: ignore[assignment]

    def turn(self, most: int = 1 << 40, *, twice: bool = False) -> list[tuple[Any, ...]]:
        """The rows of the next micro-batch; with `twice`, it is read, lost, and read again after a restart."""
        start = self.offset or self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadMaxRows(most))
        if twice:
            first = self._read(start, end)
            self.restart()
            assert sorted(self._read(start, end), key=repr) == sorted(first, key=repr)
        rows = self._read(start, end)
        self.reader.commit(end)
        self.offset = end
        return rows

    def _read(self, start: dict[str, str], end: dict[str, str]) -> list[tuple[Any, ...]]:
        table = collected(self.reader, list(self.reader.partitions(start, end)), self.schema)
        return [tuple(row.values()) for row in table.to_pylist()]
