"""Spark's own answers: a query runs on the snapshot of its tables at a time; the maintained view has the same rows.

Rows are compared as bags. Doubles are compared to ten digits, because Spark adds them in any order.
"""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tests.oracle.model import Change, collection_at
from tests.spark_session import session
from vernier.operators import testing
from vernier.operators.language.collection.app import App
from vernier.operators.sql.statements import CreateView, Source, read_statements
from vernier.service.sql.catalyst import Catalyst
from vernier.service.sql.front import Front
from vernier.service.sql.kept import Kept, key_of
from vernier.service.sql.planner import Planner

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class InProcess(Planner):
    """Plans with a Catalyst of this process, and keeps nothing."""

    def __init__(self, catalyst: Catalyst) -> None:
        super().__init__()
        self.catalyst = catalyst
        self.planned: dict[str, dict[str, Any]] = {}

    def plan(self, query: str, leaves: Mapping[str, Any], kept: Kept) -> dict[str, Any]:
        key = key_of(query, leaves)
        if key not in self.planned:
            self.planned[key] = self.catalyst.plan(query, dict(leaves))
        return self.planned[key]


class Oracle:
    """A Spark session, a front end that plans with it, and answers on snapshots."""

    def __init__(self, spark: SparkSession) -> None:
        self.catalyst = Catalyst(spark)
        self.spark = self.catalyst.spark
        self.front = Front(InProcess(self.catalyst))

    @staticmethod
    @contextmanager
    def started(scratch: Path) -> Iterator[Oracle]:
        """Start Spark."""
        settings = {
            "spark.app.name": "oracle",
            "spark.sql.warehouse.dir": str(scratch),
            "spark.sql.shuffle.partitions": "1",
            # Queries run once on a few rows, so compiling them would take most of the time.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
            "spark.log.level": "OFF",
            "spark.ui.showConsoleProgress": "false",
        }
        with session(1, settings) as spark:
            yield Oracle(spark)

    def build(self, program: str, file: str = "program.sql") -> App:
        """The app of a program in SQL."""
        return self.front.program(program, file)

    @contextmanager
    def snapshot(self, tables: Mapping[str, tuple[StructType, Sequence[tuple[Any, ...]]]]) -> Iterator[None]:
        """Tables with these rows, which `answer` reads. They are Spark's local relations, so a query takes few jobs."""
        for name, (schema, rows) in tables.items():
            columns = list(zip(*rows, strict=True)) or [()] * len(schema.fields)
            types = to_arrow_schema(schema, timezone="UTC")
            arrays = [pa.array(values, field.type) for values, field in zip(columns, types, strict=True)]
            frame = self.spark.createDataFrame(pa.Table.from_arrays(arrays, schema=types), schema)
            frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            for name in tables:
                self.spark.catalog.dropTempView(name)

    def declare(self, program: str) -> None:
        """Declare the views of a program, except its queries, as views of Spark over the snapshot."""
        for one in read_statements(Source(program, "program.sql")):
            if isinstance(one, CreateView) and not one.name.startswith("query_"):
                columns = f"({', '.join(one.columns)}) " if one.columns else ""
                self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {one.name} {columns}AS {one.query.text}")

    def answer(self, query: str) -> Counter[Any]:
        """Spark's rows of a query on the snapshot."""
        return Counter(tuple(map(comparable, row)) for row in self.spark.sql(query).collect())


def comparable(value: Any) -> Any:
    """A value in the form in which answers are compared."""
    if isinstance(value, datetime.datetime):
        span = value.replace(tzinfo=datetime.UTC) - _EPOCH
        return ((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds) * 1_000
    if isinstance(value, float):
        return float(f"{value:.10g}") + 0.0
    if isinstance(value, decimal.Decimal):
        return value.normalize() if value else decimal.Decimal(0)
    if isinstance(value, (list, tuple)):
        return tuple(map(comparable, value))
    if isinstance(value, dict):
        return tuple(map(comparable, value.values()))
    return value


def rows_at(run: testing.Run, view: str, time: int) -> Counter[Any]:
    """The rows of a view at a time."""
    found: Counter[Any] = Counter()
    for row, count in run.counts(view, at=time).items():
        found[tuple(map(comparable, row))] += count
    return found


def check(
    oracle: Oracle,
    tables: str,
    queries: Mapping[str, str],
    changes: Mapping[str, Sequence[Change]],
    times: Sequence[int],
    *,
    epochs: Sequence[int] = (),
    workers: int = 1,
) -> None:
    """Each query, maintained over the changes, has Spark's rows at each of the times. tables: CREATE TABLE."""
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {query};\n" for name, query in queries.items())
    app = oracle.build(tables + views)
    with testing.run(app, epochs=epochs, workers=workers) as run:
        for name, updates in changes.items():
            run.update(name, updates)
        run.finish()
        for time in times:
            with oracle.snapshot(tables_at(app, changes, time)):
                for name, query in queries.items():
                    wanted, found = oracle.answer(query), rows_at(run, name, time)
                    assert found == wanted, (
                        f"{name} at {time}: {query}\nvernier {found - wanted}\nspark {wanted - found}"
                    )


def tables_at(
    app: App, changes: Mapping[str, Sequence[Change]], time: int
) -> dict[str, tuple[StructType, list[tuple[Any, ...]]]]:
    """The rows of an app's sources at a time, with their schemas in Spark."""
    found = {}
    for name, source in app.sources.items():
        schema = StructType.fromJson({"type": "struct", "fields": _fields(source.schema)})
        found[name] = schema, [_for_spark(row, schema) for row in _bag(changes.get(name, ()), time)]
    return found


def _fields(row: Any) -> list[dict[str, Any]]:
    from vernier.operators.sql.columns import spark_of

    return [
        {"name": one.name, "type": spark_of(one.type), "nullable": one.nullable, "metadata": {}} for one in row.fields
    ]


def _bag(changes: Sequence[Change], time: int) -> list[tuple[Any, ...]]:
    return [row for row, count in collection_at(changes, time).items() for _ in range(count)]


def _for_spark(row: tuple[Any, ...], schema: StructType) -> tuple[Any, ...]:
    found = []
    for value, field in zip(row, schema.fields, strict=True):
        if field.dataType.typeName() == "timestamp" and isinstance(value, int):
            value = _EPOCH + datetime.timedelta(microseconds=value // 1000)
        found.append(value)
    return tuple(found)
