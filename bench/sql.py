"""TPC-H in SQL, maintained: CPU time of an update by query and size of a batch, beside DuckDB and Spark.

    python -m bench.sql --scale 0.01 [--queries 1,13] [--sizes 1,1000,100000] [--no-spark]
    python -m bench.sql --scale 1 --queries 1,13 --sizes "" --loads 1000,10000,100000

Each query is a program of its own over the tables that it reads, and `all` is one program with all of them, whose
arrangements are shared. All rows come first, in one epoch; the state is measured after it. Then rows of these tables,
drawn by their sizes, go in one batch and come again in the next; a batch is an epoch with one data time. A time is the
least of the batches. DuckDB, with one thread, and Spark, with one core, compute the query again from tables in their
memory: what a system without maintenance pays for each batch. All times are CPU times, Spark's of its whole JVM.
`--loads` measures what the article on counts does (docs/seeds.md): all rows come in batches of such a size.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from bench.record import tell
from bench.tpch import NAMES, TABLES, fill, view
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.planner import compile_app
from vernier.service.sql.front import FRONT
from vernier.storage.updates import Updates

ROUNDS = 7


def tables(queries: str) -> str:
    """The declarations of the tables that these queries name."""
    return "".join(f"{one};\n" for one in TABLES.split(";") if one.strip() and re.search(rf"\b{_name(one)}\b", queries))


def _name(declaration: str) -> str:
    return declaration.split()[2]


class Maintained:
    """A program over the tables of DuckDB, which it reads once."""

    def __init__(self, program: str, connection: duckdb.DuckDBPyConnection) -> None:
        app = FRONT.program(program, "tpch.sql")
        self.plan = compile_app(app)
        self.engine = LocalEngine(self.plan)
        self.rows = {}
        for name, source in app.sources.items():
            found = connection.execute(f"FROM {name}").to_arrow_table()
            columns = {one: found[one] for one in found.schema.names}
            self.rows[name] = source.schema.encode(columns, self.engine.heap)
        self.at = 0

    def load(self) -> float:
        """Milliseconds of CPU for all rows in one epoch."""
        return self._epoch({name: Updates.of(words, self.at, 1) for name, words in self.rows.items()}) / 1e6

    def load_by(self, size: int) -> float:
        """Seconds of CPU for all rows in batches of this size of the largest table, on an engine of its own."""
        heap = self.engine.heap
        self.engine, self.at = LocalEngine(self.plan), 0
        self.engine.heap = heap
        count = -(-max(map(len, self.rows.values())) // size)
        parts = {name: np.array_split(words, count) for name, words in self.rows.items()}
        return sum(
            self._epoch({name: Updates.of(each[at], self.at, 1) for name, each in parts.items()}) / 1e9
            for at in range(count)
        )

    def batches(self, size: int) -> float:
        """Nanoseconds of CPU of an update in batches of this size."""
        choose = random.Random(size)
        total = sum(map(len, self.rows.values()))
        size = min(size, total)
        taken = []
        for _ in range(ROUNDS if size < 10_000 else 2):
            drawn = np.sort(np.array(choose.sample(range(total), size)))
            for diff in (-1, 1):
                inputs, first = {}, 0
                for name, words in self.rows.items():
                    own = drawn[(drawn >= first) & (drawn < first + len(words))] - first
                    inputs[name] = Updates.of(words[own], self.at, diff)
                    first += len(words)
                taken.append(self._epoch(inputs) / size)
        return min(taken)

    def state_mb(self) -> float:
        """The arrangements, with their texts."""
        return self.engine.workers[0].state.nbytes / 2**20

    def _epoch(self, inputs: dict[str, Updates]) -> int:
        before = time.process_time_ns()
        self.engine.run_epoch(self.at, self.at + 1, inputs)
        self.at += 1
        return time.process_time_ns() - before


def recomputed(answer: Callable[[str], Any], text: str, clock: Callable[[], float], rounds: int) -> float:
    """Milliseconds of CPU in which a database answers: the least."""
    taken = []
    for _ in range(rounds):
        before = clock()
        answer(text)
        taken.append(clock() - before)
    return min(taken) * 1e3


class Sparks:
    """Spark on one core, with the tables in its memory."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        from pyspark.sql import SparkSession

        settings = {
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
        }
        builder = SparkSession.builder.master("local[1]").appName("tpch")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self._folder = tempfile.TemporaryDirectory()
        for name in NAMES:
            file = Path(self._folder.name) / f"{name}.parquet"
            connection.execute(f"COPY {name} TO '{file}'")
            self.spark.read.parquet(str(file)).createOrReplaceTempView(name)
            self.spark.sql(f"CACHE TABLE {name}")

    def answer(self, query: str) -> None:
        """Compute a query."""
        self.spark.sql(query).write.format("noop").mode("overwrite").save()

    def clock(self) -> float:
        """Seconds of CPU of Spark's process so far."""
        handle: Any = self.spark._jvm
        return float(handle.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()) / 1e3

    def close(self) -> None:
        """Stop Spark."""
        self.spark.stop()
        self._folder.cleanup()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--queries", default="", help="numbers, or all: the program of all 22; default: each, and all")
    parser.add_argument("--sizes", default="1,1000,100000")
    parser.add_argument("--loads", default="", help="sizes of batches in which all rows come, in place of the rest")
    parser.add_argument("--no-spark", action="store_true", help="without Spark beside it")
    given = parser.parse_args()
    sizes = [int(one) for one in given.sizes.split(",") if one]
    loads = [int(one) for one in given.loads.split(",") if one]
    chosen = [int(one) for one in given.queries.split(",") if one.isdigit()]
    with duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1}) as connection:
        queries = fill(connection, given.scale)
        sparks = None if given.no_spark or loads else Sparks(connection)
        count = sum(int(connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]) for name in NAMES)
        programs = {f"q{number}": [number] for number in (chosen or queries if given.queries != "all" else ())}
        if not chosen:
            programs["all"] = list(queries)
        values: dict[str, Any] = {"rows": count}
        rows = []
        alone: dict[tuple[str, int], float] = {}
        for name, numbers in programs.items():
            views = "".join(view(connection, number, queries[number]) for number in numbers)
            running = Maintained(tables(views) + views, connection)
            found: dict[str, float] = {}
            if loads:
                found = {f"by_{size}_s": round(running.load_by(size), 2) for size in loads}
            else:
                found["load_ms"] = round(running.load(), 1)
                found["state_mb"] = round(running.state_mb(), 3)
                found |= {f"{size}_us": round(running.batches(size) / 1e3, 2) for size in sizes}
            for number in numbers if not loads else ():
                text = queries[number].strip().rstrip(";")
                if ("duckdb", number) not in alone:
                    alone["duckdb", number] = recomputed(
                        lambda one: connection.execute(one).fetchall(), text, time.process_time, ROUNDS
                    )
                    if sparks is not None:
                        alone["spark", number] = recomputed(sparks.answer, text, sparks.clock, 3)
            for peer in ("duckdb", "spark"):
                if (peer, numbers[0]) in alone:
                    again = sum(alone[peer, number] for number in numbers)
                    found[f"{peer}_ms"] = round(again, 2)
                    found |= {f"{peer}_{size}_us": round(again * 1e3 / size, 2) for size in sizes}
            running.engine.close()
            values[name] = found
            shown = [key for key in found if key.startswith(("load", "state", "by"))]
            shown += [
                f"{who}{size}_us" for size in sizes for who in ("", "duckdb_", "spark_") if f"{who}{size}_us" in found
            ]
            rows.append([name, *(found[key] for key in shown)])
            print(name, found, file=sys.stderr, flush=True)
        if sparks is not None:
            sparks.close()
    tell(values, tables={"sql": {"head": ["query", *map(title, shown)], "rows": rows}})


def title(key: str) -> str:
    """A value as the head of a column: 1000_us is 1,000, µs; duckdb_1000_us is DuckDB, 1,000, µs."""
    *names, unit = key.split("_")
    shown = {"us": "µs", "ms": "ms", "mb": "MB", "s": "s"}[unit]
    words = {"duckdb": "DuckDB", "spark": "Spark", "load": "first rows", "by": "batches of"}
    return ", ".join([*(f"{int(one):,}" if one.isdigit() else words.get(one, one) for one in names), shown])


if __name__ == "__main__":
    main()
