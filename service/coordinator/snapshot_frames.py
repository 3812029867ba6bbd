"""The frame that reads a source's snapshot, in the columns and types of the source, and the pieces that it consists of.

A piece is a partition of Spark's. Files are cut into pieces of `piece_mb`, whatever the number of workers; a database
is read in the partitions that the options ask for (`numPartitions`, `partitionColumn`, …). The print of the pieces says
whether another process finds the same ones.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, lit, unix_micros
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType, TimestampType

from vernier.operators.language.types.scalars import TimestampNs
from vernier.operators.language.types.schema import RowType
from vernier.service.codec.spark_types import spark_type
from vernier.service.config.snapshots import Snapshot
from vernier.service.coordinator.session import cause_of
from vernier.service.errors import SnapshotUnreadable

_TYPELESS = ("csv", "json", "text")
"""Formats whose files have no types: Spark reads them as those of the source."""


@dataclass(frozen=True)
class Frame:
    """A snapshot's rows. rows: its pieces, then one partition per worker that is there to be discarded. version: of a
    Delta table."""

    rows: DataFrame
    pieces: int
    print: str
    version: int | None = None


def open_frame(
    spark: SparkSession, source: str, row_type: RowType, given: Snapshot, workers: int, version: int | None = None
) -> Frame:
    """Open a snapshot. Reads no rows. version: of a Delta table, if an earlier process has begun to read it. Raises
    SnapshotUnreadable."""
    session = spark.newSession()
    for key, value in {
        # Many rows go through one plan here, so its code is worth generating.
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "FALLBACK",
        "spark.sql.files.maxPartitionBytes": str(given.piece_mb << 20),
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        session.conf.set(key, value)
    if not any(field.text_words for field in row_type.fields):
        # Spark adds up the sizes of a batch's buffers after each row, which costs a fifth of the time of reading. Rows
        # of numbers are bounded by their count (session.py).
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(2**31 - 1))
    try:
        if given.format == "delta":
            table, version = _read_delta(session, source, given, version)
        else:
            table = _read(session, row_type, given)
        found = _columns(table, source, row_type)
        parts = list(found._jdf.queryExecution().toRdd().partitions())
        nulls = [lit(None).cast(spark_type(field.slot)).alias(field.name) for field in row_type.fields]
        blank = session.range(0, workers, 1, workers).select(*nulls)
        rows = found.union(blank)
        count = rows._jdf.queryExecution().toRdd().getNumPartitions()
    except (PySparkException, Py4JError) as error:
        raise SnapshotUnreadable(source=source, problem=cause_of(error)) from error
    if count != len(parts) + workers:
        raise SnapshotUnreadable(source=source, problem=f"spark makes {count} partitions of {len(parts)} pieces")
    described = "\n".join(_described(part) for part in parts)
    return Frame(rows, len(parts), xxhash.xxh3_64_hexdigest(described.encode()), version)


def _read(spark: SparkSession, row_type: RowType, given: Snapshot) -> DataFrame:
    reader = spark.read.format(given.format).options(**given.options)
    if given.format in _TYPELESS:
        reader = reader.schema(StructType([StructField(one.name, spark_type(one.slot)) for one in row_type.fields]))
    if given.path is not None:
        return reader.load(_absolute(given.path))
    if given.query is not None:
        return reader.option("query", given.query).load()
    if given.table is None:
        return reader.load()
    return reader.option("dbtable", given.table).load() if given.format == "jdbc" else reader.table(given.table)


def _read_delta(spark: SparkSession, source: str, given: Snapshot, version: int | None) -> tuple[DataFrame, int]:
    """A version of a Delta table: the package deltalake knows its files, and Spark reads them. Raises
    SnapshotUnreadable."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as missing:
        problem = "it needs the package deltalake: pip install 'vernier[delta]'"
        raise SnapshotUnreadable(source=source, problem=problem) from missing
    if given.path is None:
        raise SnapshotUnreadable(source=source, problem="a Delta table needs its path")
    wanted = given.options.get("versionAsOf")
    try:
        table = DeltaTable(given.path, version=version if wanted is None else int(wanted))
        features = table.protocol().reader_features or []
        if features:
            problem = f"spark cannot read its files alone: it has {', '.join(features)}"
            raise SnapshotUnreadable(source=source, problem=problem)
        files = table.file_uris()
    except (DeltaError, OSError, ValueError) as error:
        raise SnapshotUnreadable(source=source, problem=str(error).splitlines()[0]) from error
    path = _absolute(given.path)
    if not files:
        kinds = StructType([StructField(name, StringType()) for name in (one.name for one in table.schema().fields)])
        return spark.createDataFrame([], kinds), table.version()
    return spark.read.option("basePath", path).parquet(*sorted(files)), table.version()


def _columns(found: DataFrame, source: str, row_type: RowType) -> DataFrame:
    """The source's columns, in Spark's types for them."""
    chosen: list[Column] = []
    for field in row_type.fields:
        if field.name in found.columns:
            chosen.append(_typed(found, field).alias(field.name))
        elif field.nullable:
            chosen.append(lit(None).cast(spark_type(field.slot)).alias(field.name))
        else:
            there = ", ".join(found.columns)
            raise SnapshotUnreadable(source=source, problem=f"it has no column {field.name!r} (it has {there})")
    return found.select(*chosen)


def _typed(found: DataFrame, field: Any) -> Column:
    kind = found.schema[field.name].dataType
    if isinstance(field.type, TimestampNs) and isinstance(kind, (TimestampType, TimestampNTZType)):
        return unix_micros(col(field.name).cast(TimestampType())) * 1000
    return col(field.name).cast(spark_type(field.slot))


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


def _described(part: Any) -> str:
    """What Spark says about a piece: files with their ranges, or a condition."""
    with contextlib.suppress(Py4JError):
        return ";".join(f"{one.toString()} {one.fileSize()} {one.modificationTime()}" for one in part.files())
    with contextlib.suppress(Py4JError):
        return str(part.whereClause())
    return f"{part.getClass().getSimpleName()} {part.index()}"
