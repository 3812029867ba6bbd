"""Spark's own Structured Streaming on the queries of NEXMark: which of them it runs, how fast, and its rows.

A query is tried as it stands, then with watermarks of its sources; in append mode, then in complete mode. What the
analyzer refuses in every form, Spark cannot run as a stream. Files are read one a micro-batch. For the time, rows go to
the noop sink (in update mode instead of complete, where Spark takes it); for the answer, to the memory sink.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import TimestampType

from bench.nexmark.events import TIME
from bench.sparks import STORE

SETTINGS = {
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": STORE,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


@dataclass(frozen=True)
class Form:
    """How Spark runs a query: with watermarks, and the output mode for the memory sink."""

    watermarks: bool
    mode: str

    def __str__(self) -> str:
        return f"{self.mode}, watermarks" if self.watermarks else self.mode


FORMS = (Form(False, "append"), Form(False, "complete"), Form(True, "append"))


class Streams:
    """A Spark session, and folders with the files of each table."""

    def __init__(self, folder: Path) -> None:
        builder = SparkSession.builder.master(f"local[{os.cpu_count() or 1}]").appName("nexmark")
        for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # refusals are what the benchmark tells
        self.folder = folder
        self._names = itertools.count()

    def write(self, name: str, table: str, parts: Sequence[pa.Table]) -> None:
        """Write the files of a table for the set of inputs `name`, in microseconds, which is all that Spark has."""
        folder = self.folder / name / table
        folder.mkdir(parents=True)
        for at, part in enumerate(parts):
            file = folder / f"{at:05}.parquet"
            pq.write_table(part, file, coerce_timestamps="us", allow_truncated_timestamps=True)
            os.utime(file, (at + 1, at + 1))  # Spark reads files in the order of their times.

    def answer(self, inputs: str, query: str) -> tuple[Form, Counter[Any]] | str:
        """The rows that Spark ends with, and the form that it took; or why it does not run the query."""
        why: list[str] = []
        for form in FORMS:
            name = f"answer{next(self._names)}"
            try:
                frame = self._frame(inputs, query, form)
                instants = [one.name for one in frame.schema if isinstance(one.dataType, TimestampType)]
                columns = (f.unix_micros(one).alias(one) if one in instants else f.col(one) for one in frame.columns)
                self._run(frame.select(*columns), form.mode, "memory", name)
            except (AnalysisException, StreamingQueryException) as error:
                why.append(str(error).partition(";")[0].splitlines()[0])
                continue
            return form, Counter(tuple(row) for row in self.spark.table(name).collect())
        return why[0]

    def time(self, inputs: str, query: str, form: Form) -> float:
        """Seconds of all micro-batches but the first."""
        for mode in ("update", "complete") if form.mode == "complete" else (form.mode,):
            try:
                progress = self._run(self._frame(inputs, query, form), mode, "noop").recentProgress
            except AnalysisException:
                continue  # sessions have no update mode
            return sum([one.durationMs["triggerExecution"] / 1e3 for one in progress if one.numInputRows][1:])
        raise AssertionError(f"Spark took {form} to memory, but not to noop")

    def _frame(self, inputs: str, query: str, form: Form) -> DataFrame:
        for folder in (self.folder / inputs).iterdir():
            schema = self.spark.read.parquet(str(folder)).schema
            if folder.name in TIME:
                rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
                if form.watermarks:
                    rows = rows.withWatermark("date_time", "0 seconds")
            else:
                rows = self.spark.read.parquet(str(folder))
            rows.createOrReplaceTempView(folder.name)
        return self.spark.sql(query)

    def _run(self, frame: DataFrame, mode: str, sink: str, name: str = "") -> StreamingQuery:
        writer = frame.writeStream.outputMode(mode).format(sink).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint{next(self._names)}"))
        query = (writer.queryName(name) if name else writer).start()
        query.awaitTermination()
        return query

    def close(self) -> None:
        """Stop Spark."""
        self.spark.stop()
