"""The door beside Spark's: the same messages decoded and admitted by ingestion, and parsed by Spark to its sink `noop`.

    python -m bench.door --rows 200000 --rounds 5

Two kinds of rows: `narrow` (an integer, a text, a decimal and an instant) and `wide` (TPC-H's lineitem: four integers,
four decimals, three days, five texts). Each becomes messages of each format. Ours is a whole epoch at ingestion for
each `--epoch` messages: sort, decode, advance the frontier, admit. Spark's is a query on the same messages, cached in
its memory: `from_json`, `from_avro` (fetched by Ivy, left out where that fails), or for Arrow streams pyarrow's reader
in `mapInArrow`. Everything runs on one core of the machine, in turns; the least of the rounds counts, after as many
to warm up. Before, all rows that both read are compared. CPU is that of all threads and processes. One JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import msgspec
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.record import ROOT, tell
from bench.tpch import fill
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, Int64, TimestampNs, Type
from vernier.operators.language.types.schema import RowType
from vernier.operators.language.types.texts import String
from vernier.service.ingest.config import IngestionConfig, SourceConfig
from vernier.service.ingest.ingestion import Ingestion
from vernier.service.toolchain.ivy import JarsError, retrieve
from vernier.storage.strings.string_heap import Heap

AVRO = ("org.apache.spark", "spark-avro_2.13", "4.2.0", False)
EACH = 1000
"""Rows of a message that has many."""
NARROW = [("id", Int64()), ("customer", String()), ("price", Decimal(12, 2)), ("paid", TimestampNs())]
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Rows:
    """The rows of one kind as an Arrow table with the columns of a source."""

    name: str
    row_type: RowType
    table: pa.Table

    @cached_property
    def plain(self) -> Columns:
        """Values as JSON has them: days and instants as texts, decimals as texts of digits."""
        return {field.name: spelled(self.table[field.name], field.type).to_pylist() for field in self.row_type.fields}


def spelled(column: pa.ChunkedArray, kind: Type) -> pa.ChunkedArray:
    """A column with texts for what JSON has no type for."""
    if isinstance(kind, TimestampNs):
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    return column if isinstance(kind, Int64) else column.cast(pa.string())


def narrow(count: int) -> Rows:
    """Payments."""
    rng = np.random.default_rng(1)
    cents, moments = rng.integers(-(10**9), 10**9, count), rng.integers(0, 10**14, count)
    arrays = {
        "id": pa.array(rng.integers(-(2**63), 2**63 - 1, count)),
        "customer": pa.array([f"customer {one}" for one in rng.integers(0, 10**6, count).tolist()]),
        "price": decimals(cents, 12),
        "paid": pa.array(1_795_000_000_000_000 + moments).cast(pa.timestamp("us", "UTC")),
    }
    return Rows("narrow", RowType([(name, kind, False) for name, kind in NARROW]), pa.table(arrays))


def decimals(cents: np.ndarray, precision: int) -> pa.Array:
    """Hundredths as decimals."""
    words = np.column_stack((cents, cents >> 63)).astype(np.int64)
    return pa.Array.from_buffers(pa.decimal128(precision, 2), len(cents), [None, pa.py_buffer(words)])


def wide(count: int) -> Rows:
    """Line items."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        fill(connection, max(0.001, count / 5_900_000))
        table = connection.execute(f"SELECT * FROM lineitem LIMIT {count}").to_arrow_table()
    known = {pa.int64(): Int64(), pa.string(): String(), pa.date32(): Date(), pa.decimal128(15, 2): Decimal(15, 2)}
    return Rows("wide", RowType([(one.name, known[one.type], False) for one in table.schema]), table.combine_chunks())


def objects(rows: Rows, columns: Columns) -> list[bytes]:
    """Each row as an object, with decimals as numbers."""
    encode = msgspec.json.encode
    numbers = {field.name for field in rows.row_type.fields if isinstance(field.type, Decimal)}
    given = [map(msgspec.Raw, map(str.encode, one)) if name in numbers else one for name, one in columns.items()]
    return [encode(dict(zip(columns, row, strict=True))) for row in zip(*given, strict=True)]


class Json:
    """A bare row a message."""

    name = "json"
    each = 1

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @property
    def settings(self) -> dict[str, Any]:
        """Of the source."""
        return {}

    def messages(self) -> list[bytes]:
        """All of them."""
        return objects(self.rows, self.rows.plain)

    def read(self, frame: DataFrame) -> DataFrame:
        """The rows as Spark reads them from `value`."""
        return frame.select(f.from_json(f.col("value").cast("string"), self.types()).alias("row"))

    def rows_of(self, frame: DataFrame) -> DataFrame:
        """What `read` returns with a column for each of the row's."""
        return frame.select("row.*")

    def types(self, days: str = "date") -> str:
        """The row's columns as Spark declares them."""
        return ", ".join(f"{one.name} {spark_type(one.type, days)}" for one in self.rows.row_type.fields)


class InsertDelete(Json):
    """An insert a message."""

    name = "insert_delete"

    def messages(self) -> list[bytes]:
        return [b'{"insert":%b}' % row for row in super().messages()]

    def read(self, frame: DataFrame) -> DataFrame:
        row = f"struct<{self.types()}>"
        kind = f"`insert` {row}, `delete` {row}"
        return frame.select(f.from_json(f.col("value").cast("string"), kind).alias("event"))

    def rows_of(self, frame: DataFrame) -> DataFrame:
        return frame.select("event.insert.*")


class Debezium(Json):
    """An insert a message, as Debezium writes it without schemas: days as integers, decimals as texts."""

    name = "debezium"

    def messages(self) -> list[bytes]:
        columns = dict(self.rows.plain)
        for field in self.rows.row_type.fields:
            if isinstance(field.type, Date):
                columns[field.name] = self.rows.table[field.name].cast(pa.int32()).to_pylist()
        source = {
            "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_795_000_000_000,
            "snapshot": "false", "db": "shop", "sequence": '["24023119","24023128"]', "schema": "public",
            "table": self.rows.name, "txId": 556, "lsn": 24_023_128, "xmin": None,
        }  # fmt: skip
        tail = b',"source":%b,"op":"c","ts_ms":1795000000123,"transaction":null}' % msgspec.json.encode(source)
        encode = msgspec.json.encode
        return [
            b'{"before":null,"after":%b%b' % (encode(dict(zip(columns, row, strict=True))), tail)
            for row in zip(*columns.values(), strict=True)
        ]

    def read(self, frame: DataFrame) -> DataFrame:
        row = f"struct<{self.types('int')}>"
        kind = f"before {row}, after {row}, op string, ts_ms bigint, source struct<ts_ms bigint, snapshot string>"
        return frame.select(f.from_json(f.col("value").cast("string"), kind).alias("event"))

    def rows_of(self, frame: DataFrame) -> DataFrame:
        return frame.select("event.after.*")


class Avro(Json):
    """A record a message, without a schema's id."""

    name = "avro"

    @property
    def schema(self) -> str:
        """The schema's text."""
        fields = [{"name": one.name, "type": avro_type(one.type)} for one in self.rows.row_type.fields]
        return json.dumps({"type": "record", "name": "row", "fields": fields})

    @property
    def settings(self) -> dict[str, Any]:
        return {"schemas": ((None, self.schema),)}

    def messages(self) -> list[bytes]:
        parsed, out = fastavro.parse_schema(json.loads(self.schema)), []
        for row in self.rows.table.to_pylist():
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, parsed, row)
            out.append(stream.getvalue())
        return out

    def read(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql.avro.functions import from_avro

        return frame.select(from_avro(f.col("value"), self.schema, {"mode": "FAILFAST"}).alias("row"))


class Arrow(Json):
    """A stream of a thousand rows a message."""

    name = "arrow"
    each = EACH

    def messages(self) -> list[bytes]:
        return [streamed(self.rows.table.slice(start, EACH)) for start in range(0, self.rows.table.num_rows, EACH)]

    def read(self, frame: DataFrame) -> DataFrame:
        kinds = self.rows.table.schema

        def streams(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for value in batch.column(0):
                    yield from pa.ipc.open_stream(value.as_buffer())

        return frame.mapInArrow(streams, ", ".join(f"{one.name} {arrow_type(one.type)}" for one in kinds))

    def rows_of(self, frame: DataFrame) -> DataFrame:
        return frame


FORMATS = (Json, InsertDelete, Debezium, Avro, Arrow)


def streamed(table: pa.Table) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def spark_type(kind: Type, days: str) -> str:
    """A column's type in Spark."""
    if isinstance(kind, Decimal):
        return f"decimal({kind.precision}, {kind.scale})"
    names: dict[type[Type], str] = {Int64: "bigint", String: "string", Date: days, TimestampNs: "timestamp"}
    return names[type(kind)]


def arrow_type(kind: pa.DataType) -> str:
    """A column's type in Spark, by its type in Arrow."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return {pa.int64(): "bigint", pa.string(): "string", pa.date32(): "date"}.get(kind, "timestamp")


def avro_type(kind: Type) -> Any:
    """A column's type in Avro."""
    if isinstance(kind, Decimal):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    names: dict[type[Type], Any] = {
        Int64: "long",
        String: "string",
        Date: {"type": "int", "logicalType": "date"},
        TimestampNs: {"type": "long", "logicalType": "timestamp-micros"},
    }
    return names[type(kind)]


class Ours:
    """Messages through ingestion, an epoch after another."""

    def __init__(self, form: Json, values: pa.Array, epoch: int) -> None:
        source = SourceConfig("topic", format=form.name, **form.settings)
        config = IngestionConfig({"rows": source}, {"topic": 1}, "heartbeat", 1)
        self._ingestion, self._row_type = Ingestion({"rows": form.rows.row_type}, config), form.rows.row_type
        size = max(1, epoch // form.each)
        self._epochs = [self._records(values.slice(at, size), at) for at in range(0, len(values), size)]

    @staticmethod
    def _records(values: pa.Array, at: int) -> list[pa.RecordBatch]:
        """Records as Spark delivers them, ten thousand a batch."""
        count = len(values)
        columns = {
            "key": pa.nulls(count, pa.binary()), "value": values, "topic": pa.array(["topic"] * count),
            "partition": pa.array(np.zeros(count, np.int32)), "offset": pa.array(np.arange(at, at + count)),
            "timestamp": pa.array(np.full(count, 1_795_000_000_000)),
        }  # fmt: skip
        return list(pa.Table.from_pydict(columns).to_batches(max_chunksize=10_000))

    def run(self, keep: bool = False) -> list[pa.RecordBatch]:
        """Decode and admit all messages. keep: return the rows."""
        kept = []
        for batches in self._epochs:
            heap = Heap()
            decoded = self._ingestion.decode(batches, {}, {}, {}, heap)
            admitted = self._ingestion.admit(decoded, {}, self._ingestion.advance({}, [decoded.facts]))
            if admitted.dead:
                raise SystemExit(f"ingestion has refused a message: {admitted.dead[0]}")
            updates = admitted.inputs["rows"]
            held = [one.updates for one in admitted.held["rows"]]
            if keep:
                kept += [self._row_type.decode(one.rows, heap) for one in (updates, *held) if len(one)]
        return kept


def session(folder: Path) -> tuple[SparkSession, bool]:
    """Spark with one core, and whether it reads Avro."""
    home = ROOT / "build" / "spark-avro"
    jar = home / "-".join(AVRO[1:3])
    jar = jar.with_name(f"{jar.name}.jar")
    try:
        if not jar.exists():
            home.mkdir(parents=True, exist_ok=True)
            retrieve(home, home, [AVRO], poms=False)
    except (JarsError, OSError) as error:
        print(f"without Avro in Spark: {error}", file=sys.stderr)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").appName("door")
    settings = {
        "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
        "spark.driver.memory": "3g", "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}", "spark.ui.showConsoleProgress": "false",
        **({"spark.jars": str(jar)} if jar.exists() else {}),
    }  # fmt: skip
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate(), jar.exists()


def seconds_of(spark: SparkSession) -> Callable[[], float]:
    """CPU seconds of Spark's process and of the Python processes below it."""
    handle: Any = spark._jvm
    java = psutil.Process(int(handle.java.lang.ProcessHandle.current().pid()))

    def clock() -> float:
        times = []
        # What a process has used passes to its parent when it ends: parents are read after their children.
        for one in (*reversed(java.children(recursive=True)), java):
            with contextlib.suppress(psutil.NoSuchProcess):
                times.append(one.cpu_times())
        return sum(one.user + one.system + one.children_user + one.children_system for one in times)

    return clock


def ordered(table: pa.Table, like: RowType) -> pa.Table:
    """The rows in one form. They are in the order of the messages."""
    columns = []
    for field in like.fields:
        column = table[field.name]
        if isinstance(field.type, Date) and pa.types.is_integer(column.type):
            column = column.cast(pa.int32())
        columns.append(column.cast(field.type.arrow))
    return pa.Table.from_arrays(columns, names=like.names).combine_chunks()


def timed(run: Callable[[], object], clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds by the wall and of CPU."""
    began, before = time.perf_counter(), clock()
    run()
    return time.perf_counter() - began, clock() - before


def measure(rows: Rows, form: Json, spark: SparkSession | None, given: argparse.Namespace, folder: Path) -> Any:
    """Microseconds of a row, ours beside Spark's."""
    values = pa.array(form.messages(), pa.binary())
    count = rows.table.num_rows
    ours = Ours(form, values, given.epoch)
    found = ordered(pa.Table.from_batches(ours.run(keep=True)), rows.row_type)
    if found != ordered(rows.table, rows.row_type):
        raise SystemExit(f"{form.name}: ingestion reads other rows than were sent")
    took: dict[str, list[tuple[float, float]]] = {"ours": [], "spark": []}
    runs: dict[str, tuple[Callable[[], object], Callable[[], float]]] = {"ours": (ours.run, time.process_time)}
    cached = None
    if spark is not None:
        file = folder / f"{rows.name}-{form.name}.parquet"
        pq.write_table(pa.table({"value": values}), file, row_group_size=count)
        cached = spark.read.parquet(str(file)).coalesce(1).cache()
        cached.count()
        theirs = form.read(cached)
        if ordered(form.rows_of(theirs).toArrow(), rows.row_type) != found:
            raise SystemExit(f"{form.name}: Spark and ingestion read different rows")
        runs["spark"] = (theirs.write.format("noop").mode("overwrite").save, seconds_of(spark))
    for at in range(2 * given.rounds):
        for who, (run, clock) in runs.items():
            spent = timed(run, clock)
            if at >= given.rounds:
                took[who].append(spent)
    if cached is not None:
        cached.unpersist(blocking=True)
    result: dict[str, Any] = {"rows": rows.name, "format": form.name, "bytes": round(values.nbytes / count, 1)}
    for who in runs:
        for place, what in enumerate(("wall", "cpu")):
            result[f"{who}_{what}_us"] = round(min(one[place] for one in took[who]) / count * 1e6, 3)
    if spark is not None:
        for what in ("wall", "cpu"):
            result[f"{what}_ratio"] = round(result[f"spark_{what}_us"] / result[f"ours_{what}_us"], 2)
    print(result, file=sys.stderr, flush=True)
    return result


def tabled(cases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The table for the page."""
    keys = ("ours_wall_us", "spark_wall_us", "wall_ratio", "ours_cpu_us", "spark_cpu_us", "cpu_ratio")
    head = [
        "rows", "messages", "bytes a row", "ours, µs a row", "Spark, µs a row", "throughput of Spark's",
        "ours, µs of CPU", "Spark, µs of CPU", "CPU throughput of Spark's",
    ]  # fmt: skip
    rows = [[one["rows"], one["format"], one["bytes"], *(one.get(key, "") for key in keys)] for one in cases]
    return {"head": head, "rows": rows}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epoch", type=int, default=50_000, help="rows of an epoch")
    parser.add_argument("--kinds", default="narrow,wide")
    parser.add_argument("--formats", default=",".join(form.name for form in FORMATS))
    parser.add_argument("--no-spark", action="store_true", help="without Spark beside it")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # Spark's processes, too
    pa.set_cpu_count(1)
    kinds = {"narrow": narrow, "wide": wide}
    cases = []
    with tempfile.TemporaryDirectory(prefix="door-") as name:
        folder = Path(name)
        spark, avro = (None, True) if given.no_spark else session(folder)
        for kind in given.kinds.split(","):
            rows = kinds[kind](given.rows)
            # As workers do (service/cluster/daemon.py): what is loaded is not collected again.
            gc.collect()
            gc.freeze()
            for form in FORMATS:
                if form.name in given.formats.split(","):
                    reads = avro or form is not Avro
                    cases.append(measure(rows, form(rows), spark if reads else None, given, folder))
        if spark is not None:
            spark.stop()
    result = {"rows": given.rows, "rounds": given.rounds, "cases": cases, "load": round(os.getloadavg()[0], 1)}
    tell(result, tables={"door": tabled(cases)})


if __name__ == "__main__":
    main()
