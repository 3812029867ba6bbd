"""TPC-H in SQL, maintained: CPU time of an update by query and size of a batch, beside DuckDB's recomputation.

    python -m bench.sql --scale 0.01 [--queries 1,13] [--sizes 1,1000,100000]

Each query is a program of its own over the tables that it reads, and `all` is one program with all of them, whose
arrangements are shared. All rows come first, in one epoch. Then rows of these tables, drawn by their sizes, go in one
batch and come again in the next; a batch is an epoch with one data time. A time is the least of the batches. DuckDB
computes the query again from its tables, with one thread: what a system without maintenance pays for each batch.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from typing import Any

import duckdb

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
        self.engine = LocalEngine(compile_app(app))
        self.rows = {}
        for name, source in app.sources.items():
            found = connection.execute(f"FROM {name}").fetchall()
            self.rows[name] = source.schema.encode_rows(found, self.engine.heap, whole=False)
        self.at = 0
        self.load_ms = self._epoch({name: Updates.of(words, 0, 1) for name, words in self.rows.items()}) / 1e6

    def batches(self, size: int) -> float:
        """Nanoseconds of CPU of a batch."""
        choose = random.Random(size)
        total = sum(map(len, self.rows.values()))
        size = min(size, total)
        taken = []
        for _ in range(ROUNDS if size < 10_000 else 2):
            drawn = choose.sample(range(total), size)
            for diff in (-1, 1):
                inputs, first = {}, 0
                for name, words in self.rows.items():
                    own = [one - first for one in drawn if first <= one < first + len(words)]
                    inputs[name] = Updates.of(words[own], self.at, diff)
                    first += len(words)
                taken.append(self._epoch(inputs) / size)
        return min(taken)

    def _epoch(self, inputs: dict[str, Updates]) -> int:
        before = time.process_time_ns()
        self.engine.run_epoch(self.at, self.at + 1, inputs)
        self.at += 1
        return time.process_time_ns() - before


def recomputed(connection: duckdb.DuckDBPyConnection, queries: list[str]) -> float:
    """Nanoseconds of CPU in which DuckDB answers."""
    taken = []
    for _ in range(ROUNDS):
        before = time.process_time_ns()
        for one in queries:
            connection.execute(one).fetchall()
        taken.append(time.process_time_ns() - before)
    return min(taken)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--queries", default="")
    parser.add_argument("--sizes", default="1,1000,100000")
    given = parser.parse_args()
    sizes = [int(one) for one in given.sizes.split(",")]
    chosen = [int(one) for one in given.queries.split(",") if one]
    with duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1}) as connection:
        queries = fill(connection, given.scale)
        count = sum(int(connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]) for name in NAMES)
        programs = {f"q{number}": [number] for number in chosen or queries}
        if not chosen:
            programs["all"] = list(queries)
        values: dict[str, Any] = {"rows": count}
        rows = []
        for name, numbers in programs.items():
            views = "".join(view(connection, number, queries[number]) for number in numbers)
            running = Maintained(tables(views) + views, connection)
            again = recomputed(connection, [queries[number] for number in numbers])
            taken = {size: running.batches(size) for size in sizes}
            values[name] = {"load_ms": round(running.load_ms, 1), "duckdb_ms": round(again / 1e6, 2)}
            values[name] |= {f"{size}_us": round(one / 1e3, 2) for size, one in taken.items()}
            rows.append([name, values[name]["load_ms"], *(values[name][f"{size}_us"] for size in sizes),
                         values[name]["duckdb_ms"], *(round(again / 1e3 / size, 2) for size in sizes)])  # fmt: skip
            print(*rows[-1], flush=True)
    head = ["query", "first rows, ms", *(f"batch of {size:,}, µs an update" for size in sizes),
            "DuckDB again, ms", *(f"DuckDB, {size:,}, µs an update" for size in sizes)]  # fmt: skip
    tell(values, tables={"sql": {"head": head, "rows": rows}})


if __name__ == "__main__":
    main()
