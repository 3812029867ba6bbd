"""TPC-H's 22 queries in SQL, maintained while rows of the eight tables come and go, and DuckDB's answers at data times.

    python -m bench.checkpoints --scale 1 [--workers 2] [--epochs 40]

Data times are 1 to 1,000: each row comes at a random time of the first half; one in five goes later and comes again by
the end, so inserts and deletes of all tables are interleaved. Epochs end at random times; every 50th time is a
checkpoint. There DuckDB answers all queries from the rows that its tables have then, and the views' rows as of that
time are compared with its answers. The run fails if they differ, or if a query has no row at any checkpoint.
"""

from __future__ import annotations

import argparse
import decimal
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np

from bench.record import tell
from bench.tpch import NAMES, TABLES, fill, view
from tests.sql.snapshots import comparable
from vernier.operators.engine.local import LocalEngine
from vernier.operators.language.collection.app import App
from vernier.operators.planning.planner import compile_app
from vernier.service.sql.front import FRONT
from vernier.storage.updates import CLOSED, MIN_TIME, Ints, Updates

LAST = 1_000
CHECKPOINTS = range(50, LAST + 1, 50)
TIES = {2, 3, 10, 18, 21}
"""Queries with ORDER BY … LIMIT: rows that are equal in their order may differ between systems."""
Rows = list[tuple[Any, ...]]


def unlimited(number: int, query: str) -> str:
    """A query without its LIMIT, where rows may be equal in its order: tests of LIMIT are those of test_queries.py."""
    text = query.strip().rstrip(";")
    return text[: text.upper().rindex("LIMIT")] if number in TIES else text


class History:
    """The tables of a DuckDB connection as changes over data times, and their rows as of each of these."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, seed: int) -> None:
        self._sql = connection
        self._columns: dict[str, list[str]] = {}
        choose = np.random.default_rng(seed)
        for name in NAMES:
            described = connection.execute(f"FROM {name} LIMIT 0").description or []
            self._columns[name] = [str(column[0]) for column in described]
            rows = connection.execute(f"FROM {name}").to_arrow_table()
            comes = choose.integers(1, LAST // 2 + 1, len(rows))
            goes = choose.integers(comes, LAST) + 1
            again = choose.integers(goes, LAST + 1)
            stays = choose.random(len(rows)) >= 0.2
            goes[stays], again[stays] = CLOSED, CLOSED
            for column, times in (("comes", comes), ("goes", goes), ("again", again)):
                rows = rows.append_column(f"_{column}", [times])
            connection.register("given", rows)
            connection.execute(f"DROP TABLE {name}; CREATE TABLE all_{name} AS FROM given")
            connection.unregister("given")
        self.at(LAST)

    def at(self, data_time: int) -> None:
        """Let each table have the rows of this data time."""
        for name, columns in self._columns.items():
            present = f"_comes <= {data_time} AND (_goes > {data_time} OR _again <= {data_time})"
            self._sql.execute(
                f"CREATE OR REPLACE VIEW {name} AS SELECT {', '.join(columns)} FROM all_{name} WHERE {present}"
            )

    def answer(self, query: str) -> Rows:
        """DuckDB's rows of a query."""
        return self._sql.execute(query).fetchall()

    def updates(self, name: str, lower: int, upper: int, app: App, engine: LocalEngine) -> Updates:
        """A table's changes with lower <= data time < upper."""
        chosen = [
            f"SELECT *, {time} AS _time, {diff} AS _diff FROM all_{name} WHERE {time} >= {lower} AND {time} < {upper}"
            for time, diff in (("_comes", 1), ("_goes", -1), ("_again", 1))
        ]
        rows = self._sql.execute(" UNION ALL ".join(chosen)).to_arrow_table()
        words = app.sources[name].schema.encode({one: rows[one] for one in self._columns[name]}, engine.heap)
        return Updates.of(words, rows["_time"].to_numpy(), rows["_diff"].to_numpy())


class Maintained:
    """A program with all queries as views, that has run up to a data time."""

    def __init__(self, app: App, history: History, workers: int) -> None:
        self._app, self._history = app, history
        self.engine = LocalEngine(compile_app(app), workers)
        self._changes: dict[str, list[Updates]] = {name: [] for name in app.views}
        self._frontier = MIN_TIME
        self.updates = 0

    def advance(self, upper: int) -> None:
        """Run one epoch up to a data time."""
        history, lower = self._history, self._frontier
        inputs = {name: history.updates(name, lower, upper, self._app, self.engine) for name in self._app.sources}
        self.updates += sum(map(len, inputs.values()))
        for name, changes in self.engine.run_epoch(lower, upper, inputs).items():
            self._changes[name].append(changes)
        self._frontier = upper

    def rows(self, name: str, at: int) -> Rows:
        """A view's rows as of a data time, which never goes back."""
        schema = self._app.views[name].node.schema
        changes = Updates.concat(self._changes[name], schema.width)
        past = changes.time <= at
        held = Updates.of(changes.rows[past], at, changes.diff[past]).consolidate()
        self._changes[name] = [held, changes.take(~past)]
        counts: Ints = held.diff
        if (counts < 0).any():
            raise SystemExit(f"bench: {name} has a row of negative multiplicity at {at}")
        return list(schema.decode_rows(np.repeat(held.rows, counts, axis=0), self.engine.heap))


def compared(
    maintained: Maintained, history: History, queries: Mapping[int, str], epochs: Sequence[int], times: Sequence[int]
) -> Iterator[tuple[int, Counter[int]]]:
    """Run the epochs, and compare at each of the times; yields the time and the rows of each query then.

    epochs: the times at which epochs end, in order, and the last one after all data times. Raises AssertionError with
    the query, the time and some rows of both where answers differ.
    """
    waiting = sorted(times)
    for upper in epochs:
        maintained.advance(upper)
        while waiting and waiting[0] < upper:
            at = waiting.pop(0)
            history.at(at)
            seen: Counter[int] = Counter()
            for number, query in queries.items():
                wanted = history.answer(unlimited(number, query))
                found = maintained.rows(f"q{number}", at)
                assert alike(found, wanted), f"query {number} at {at}:\n{found[:5]}\n{wanted[:5]}"
                seen[number] = len(wanted)
            yield at, seen


def program(connection: duckdb.DuckDBPyConnection, queries: Mapping[int, str]) -> str:
    """All queries as views of one program."""
    return TABLES + "".join(view(connection, number, unlimited(number, query)) for number, query in queries.items())


def alike(found: Rows, wanted: Rows) -> bool:
    """Whether both have the same rows. Numbers may differ by a ten-thousandth: duckdb divides decimals as doubles, and
    Spark to as few as six digits behind the point."""
    pairs = zip(sorted(map(split, found)), sorted(map(split, wanted)), strict=False)
    return len(found) == len(wanted) and all(
        one[0] == two[0]
        and all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in zip(one[1], two[1], strict=True))
        for one, two in pairs
    )


def split(row: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The texts, dates and whole numbers of a row, and its other numbers."""
    values = [comparable(value) for value in row]
    exact = tuple(str(int(one) if whole(one) else one) for one in values if whole(one) or not number(one))
    return exact, tuple(float(one) for one in values if number(one) and not whole(one))


def number(value: Any) -> bool:
    """Whether it is a decimal or a double."""
    return isinstance(value, (float, decimal.Decimal))


def whole(value: Any) -> bool:
    """Whether it is an integer."""
    return isinstance(value, int)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    settings: dict[str, Any] = {"allow_unsigned_extensions": "true", "memory_limit": "3GB"}
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(f"{folder}/tables", config=settings) as connection:
        queries = fill(connection, given.scale)
        text = program(connection, queries)
        history = History(connection, given.seed)
        maintained = Maintained(FRONT.program(text, "tpch.sql"), history, given.workers)
        cuts = sorted(random.Random(given.seed).sample(range(2, LAST + 1), given.epochs - 1))
        seen: Counter[int] = Counter()
        wall, checked = time.perf_counter(), 0
        for at, rows in compared(maintained, history, queries, [*cuts, CLOSED], CHECKPOINTS):
            seen += rows
            checked += 1
            print(
                f"time {at}: {rows.total():,} rows equal, {time.perf_counter() - wall:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        maintained.engine.close()
    empty = [number for number in queries if not seen[number]]
    if empty:
        raise SystemExit(f"bench: queries without a row at any checkpoint: {empty}")
    tell(
        {
            "updates": maintained.updates,
            "checkpoints": checked,
            "answers": checked * len(queries),
            "rows_compared": seen.total(),
            "seconds": round(time.perf_counter() - wall, 1),
            "highest_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "load": round(os.getloadavg()[0], 1),
        }
    )


if __name__ == "__main__":
    main()
