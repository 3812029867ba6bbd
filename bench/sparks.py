"""Spark by itself on the same graph: its stateful aggregation, and a recomputation by joins.

    python -m bench.sparks --rows 100000 --batches 5

*Stateful*: how many edges each of 10,000 nodes has, kept by Structured Streaming with the RocksDB state store, in
update mode, edges in batches of `rows` from files; microseconds a row, medians of the micro-batches after the first. It
is the first of the two counts of the degrees program, without deleted edges. *Recompute*: bfs distances on 1,000 nodes
and 2,000 edges from nothing, with DataFrame joins, a round a job as GraphFrames does it, until nothing changes: the
cost of one answer without incremental maintenance, in seconds. Both in local mode on all cores, after a warm-up. Beside
them the local engine, one worker, on the same edges, by batches of the same size. Answers are compared. One JSON line.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import vernier as vn
from bench.programs import Edge, Root, distances
from bench.record import tell
from bench.stream import Ints, random_graph
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates

NODES = 10_000
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(folder: Path) -> SparkSession:
    """Spark with as many partitions as cores."""
    cores = os.cpu_count() or 1
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("bench")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.sql.adaptive.enabled", False)
        .config("spark.sql.streaming.stateStore.providerClass", STORE)
        .config("spark.ui.enabled", False)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stateful(spark: SparkSession, edges: Ints, rows: int, folder: Path) -> dict[str, Any]:
    """Counts by node, a file a micro-batch."""
    (folder / "in").mkdir()
    for place in range(0, len(edges), rows):
        part = edges[place : place + rows]
        pq.write_table(pa.table({"src": part[:, 0], "dst": part[:, 1]}), folder / "in" / f"{place:012}.parquet")
    read = spark.readStream.schema("src long, dst long").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    found: dict[int, int] = {}

    def take(frame: DataFrame, epoch: int) -> None:
        found.update({row.src: row["count"] for row in frame.collect()})

    query = (
        read.groupBy("src").count().writeStream.outputMode("update").foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    took = [one.durationMs["addBatch"] * 1e3 / rows for one in query.recentProgress if one.numInputRows]
    nodes, counts = np.unique(edges[:, 0], return_counts=True)
    if found != dict(zip(nodes.tolist(), counts.tolist())):
        raise SystemExit("Spark's counts differ from a recount")
    return {"wall_us": round(float(np.median(took[1:])), 3), "batches": len(took) - 1}


def ours(edges: Ints, rows: int) -> dict[str, Any]:
    """The same counts in the local engine."""
    app = vn.App("counts", retain="1us")
    app.view("counts", app.source("edges", Edge).group_by("src").agg(n=vn.count()))
    engine, took, cpu = LocalEngine(compile_app(app)), [], []
    for first in range(0, len(edges), rows):
        part = Updates.of(edges[first : first + rows], np.arange(first, first + rows), 1)
        began, before = time.perf_counter(), time.process_time()
        engine.run_epoch(first if first else MIN_TIME, first + rows, {"edges": part})
        took.append((time.perf_counter() - began) / rows * 1e6)
        cpu.append((time.process_time() - before) / rows * 1e6)
    return {"wall_us": round(float(np.median(took[1:])), 3), "cpu_us": round(float(np.median(cpu[1:])), 3)}


def recompute(spark: SparkSession, edges: Ints) -> tuple[float, dict[int, int]]:
    """Seconds to compute distances from node 0 from scratch, and the distances."""
    frame = spark.createDataFrame(pa.table({"src": edges[:, 0], "dst": edges[:, 1]})).distinct().cache()
    frame.count()
    began = time.perf_counter()
    reached = spark.createDataFrame([(0, 0)], "node long, dist long").localCheckpoint()
    front, known = reached, 1
    while True:
        step = front.join(frame, front.node == frame.src).select(f.col("dst").alias("node"), f.col("dist") + 1)
        fresh = step.toDF("node", "dist").distinct().join(reached, "node", "left_anti").localCheckpoint()
        count = fresh.count()
        if not count:
            break
        reached, front, known = reached.union(fresh).localCheckpoint(), fresh, known + count
    found = {row.node: row.dist for row in reached.collect()}
    return time.perf_counter() - began, found


def expected(edges: Ints) -> dict[int, int]:
    """The distances from our engine."""
    app = vn.App("distances", retain="1us")
    sources = app.source("edges", Edge), app.source("roots", Root)
    app.view("distances", distances(*sources))
    first = {"edges": Updates.of(edges, 0, 1), "roots": Updates.of([[0]], [0], [1])}
    changes = LocalEngine(compile_app(app)).run_epoch(MIN_TIME, 1, first)["distances"]
    return {row[0]: row[1] for row in changes.data.tolist()}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=5)
    args = parser.parse_args()
    before = os.getloadavg()[0]
    edges, graph = random_graph(NODES, args.rows * (args.batches + 1)), random_graph(1000, 2000)
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder))
        try:
            counted = stateful(spark, edges, args.rows, Path(folder))
            recomputed = [recompute(spark, graph) for _ in range(3)]
        finally:
            spark.stop()
    if any(found != expected(graph) for _, found in recomputed):
        raise SystemExit("Spark's distances differ from ours")
    result = {
        "rows": args.rows, "stateful": counted, "ours": ours(edges, args.rows),
        "recompute_s": round(min(seconds for seconds, _ in recomputed[1:]), 3),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }  # fmt: skip
    tell(result)


if __name__ == "__main__":
    main()
