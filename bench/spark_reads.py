"""A view as a Spark DataFrame: equal to HTTP's answer, and how fast beside the same rows as Parquet.

    python -m bench.spark_reads --rows 1000000 --turns 3

A state has a view of a number, a value and a name by key, in two shards, with changes before and after the data time
that is read. Read in turns: the state directory (one task for each core), a sidecar over HTTP (one task), Parquet files
with the same rows, one for each core. Each read goes to Spark's sink `noop`, so every row is made in the JVM; the least
of the turns counts. Before, the rows of the three are compared, with those of the Python client, too. One JSON line.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import vernier as vn
from bench.record import tell
from tests.sidecar.builder import StateBuilder, row_type
from tests.sidecar.process import running

NAMES = ("id", "value", "name")
TYPE = row_type(id="Int64", value="Int64", name="String")
AS_OF = 150


def build(path: Path, rows: int) -> None:
    """A state in which the view has `rows` rows as of AS_OF, and other ones later."""
    builder = StateBuilder(path, {"people": (TYPE, ["id"])}, shards=2)

    def row(number: int, value: int) -> tuple[int, int, str]:
        return number, value, f"name {number % 1000}"

    builder.commit(100, {"people": [(row(n, n * 7), n % 100, 1) for n in range(rows)]})
    moved = range(0, rows, 10)
    at = [(row(n, value), 140, diff) for n in moved for value, diff in ((n * 7, -1), (n * 7 + 1, 1))]
    builder.commit(200, {"people": [*at, *((row(n, n * 7 + 1), 190, -1) for n in moved)]})
    builder.close()


def ordered(table: pa.Table) -> pa.Table:
    """The rows in one order and one form."""
    schema = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("name", pa.string())])
    return table.select(NAMES).cast(schema).sort_by("id").combine_chunks()


def read_seconds(frame: DataFrame) -> float:
    """How long Spark takes to read all rows."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    cores = os.cpu_count() or 1
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="reads-") as name:
        folder = Path(name)
        build(folder / "state", args.rows)
        spark = (
            SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", False)
            .config("spark.ui.showConsoleProgress", False)
            .config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
        )  # fmt: skip
        spark.sparkContext.setLogLevel("ERROR")
        vn.register(spark)
        with running(folder / "state") as sidecar, vn.connect(sidecar.url) as client:
            began = time.perf_counter()
            wanted = client.arrow("people", as_of=AS_OF)
            by_client = time.perf_counter() - began
            (folder / "parquet").mkdir()
            each = -(-args.rows // cores)
            for part in range(cores):
                pq.write_table(wanted.slice(part * each, each), folder / "parquet" / f"{part}.parquet")
            view = spark.read.format("vernier").option("view", "people").option("as_of", AS_OF)
            given: dict[str, Any] = {
                "state": lambda: view.option("state", str(folder / "state")).option("partitions", cores).load(),
                "parquet": lambda: spark.read.parquet(str(folder / "parquet")),
                "http": lambda: (
                    spark.read.format("vernier").options(view="people", as_of=AS_OF, url=sidecar.url).load()
                ),
            }
            for what, frame in given.items():
                if ordered(frame().toArrow()) != ordered(wanted):
                    raise SystemExit(f"the rows read from {what} differ from the client's")
            took = {what: [read_seconds(frame()) for _ in range(args.turns)] for what, frame in given.items()}
        spark.stop()
    least = {what: min(seconds) for what, seconds in took.items()}
    tell(
        {
            "rows": wanted.num_rows, "turns": args.turns,
            **{f"{what}_ms": round(seconds * 1e3) for what, seconds in least.items()},
            "client_ms": round(by_client * 1e3),
            "state_of_parquet_ratio": round(least["state"] / least["parquet"], 2),
            "http_of_parquet_ratio": round(least["http"] / least["parquet"], 2),
            "state_rate": round(wanted.num_rows / least["state"]), "load": round(os.getloadavg()[0], 1),
        }
    )  # fmt: skip


if __name__ == "__main__":
    main()
