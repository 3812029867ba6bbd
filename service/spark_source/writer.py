"""Writes a DataFrame into a source through a sidecar, each task by itself.

The columns are those of the source; `_time` (nanoseconds) and `_diff` may come with them. A task's rows are sent in
requests of about a megabyte, each accepted as a whole once Kafka has acknowledged it. Delivery is at least once: Spark
repeats a failed task or micro-batch as a whole. A source in format `upsert` takes a repeated row without effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from vernier.service.spark_source.options import BadOption, Target


@dataclass
class Sent(WriterCommitMessage):
    """How many rows a task has sent, and the token of its last request."""

    rows: int
    token: str


class BatchWriter(DataSourceArrowWriter):
    """Sends a DataFrame's rows. Raises BadOption for `mode("overwrite")`: a source's updates are not taken back."""

    def __init__(self, target: Target, overwrite: bool) -> None:
        if overwrite:
            problem = "is overwrite, but a source only takes further updates: write with mode append"
            raise BadOption(option="mode", problem=problem)
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send a task's rows. Raises ServerError, Unreachable."""
        return _send(self._target, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send a task's rows of one micro-batch. Raises ServerError, Unreachable."""
        return _send(self._target, iterator)


def _send(target: Target, batches: Iterator[pa.RecordBatch]) -> Sent:
    sent = Sent(0, "")
    with target.sidecar.client() as client:
        for batch in batches:
            if batch.num_rows:
                token = client.send(target.source, pa.Table.from_batches([batch]))
                sent = Sent(sent.rows + batch.num_rows, token)
    return sent
