"""NEXMark in SQL: events a second of each query, beside Spark's Structured Streaming where Spark can run the query.

    python -m bench.nexmark [--events 50000] [--files 5] [--queries 0,4,5] [--no-spark]

The events lie in Parquet files, of as many events each; a file is an epoch, or a micro-batch. A query reads the files
of its tables, and its time is that of all files but the first: reading, decoding, maintaining, and making its changes.
Events of all tables count, also for a query that reads one of them, as in Beam's suite. Vernier runs one worker in this
process, each event at its own nanosecond; Spark uses all cores, and the same events in microseconds. Both answers are
compared on two files, and one with events of the next day, which let Spark's watermarks pass: instants to microseconds
and doubles to ten digits. Exit status 1 if one differs.
"""

from __future__ import annotations

import argparse
import decimal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.nexmark.events import LEFT_OUT, QUERIES, TABLES, TIME, TYPES, events
from bench.record import tell
from vernier.operators.engine.local import LocalEngine
from vernier.operators.language.types.scalars import TimestampNs
from vernier.operators.planning.planner import compile_app
from vernier.service.sql.front import FRONT
from vernier.storage.updates import MIN_TIME, Updates

RATE = 10_000
"""Events a second of event time, as in Beam's suite."""
DAY = 86_400
LONG = 10
"""Seconds; a run that takes longer is not repeated."""


class Maintained:
    """A query that Vernier maintains."""

    def __init__(self, number: int) -> None:
        program = f"{TABLES}CREATE MATERIALIZED VIEW v AS {QUERIES[number]};"
        self.app = FRONT.program(program, "nexmark.sql")
        plan = compile_app(self.app)
        self.engine = LocalEngine(plan)
        self.read = [name for name in TYPES if name in plan.sources]
        self.lower = MIN_TIME
        self.rows: Counter[Any] = Counter()

    def epoch(self, folder: Path, at: int, *, keep: bool) -> float:
        """Seconds for the files with this number. keep: whether to add the changes to `rows`, outside of the time."""
        before = time.perf_counter()
        inputs, upper = {}, self.lower
        for name in self.read:
            file = folder / name / f"{at:05}.parquet"
            if not file.exists():
                continue
            table = pq.read_table(file)
            words = self.app.sources[name].schema.encode(
                {one: table[one] for one in table.schema.names}, self.engine.heap
            )
            times = np.zeros(len(words), np.int64)
            if name in TIME:
                times = table["date_time"].cast(pa.int64()).to_numpy()
            inputs[name] = Updates.of(words, times, 1)
            upper = max(upper, int(times.max(initial=0)) + 1)
        changes = self.engine.run_epoch(self.lower, upper, inputs)["v"]
        self.lower = upper
        took = time.perf_counter() - before
        if keep:
            schema = self.app.views["v"].node.schema
            instants = [isinstance(one.type, TimestampNs) for one in schema.fields]
            rows = schema.decode_rows(changes.rows, self.engine.heap)
            for row, diff in zip(rows, changes.diff.tolist(), strict=True):
                self.rows[tuple(v // 1_000 if stamp else v for v, stamp in zip(row, instants, strict=True))] += diff
        return took


def comparable(rows: Counter[Any]) -> Counter[Any]:
    """Rows in the form in which answers are compared; those that are gone are left out."""
    found: Counter[Any] = Counter()
    for row, count in rows.items():
        if count:
            found[tuple(map(_plain, row))] += count
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.10g}")
    return value.normalize() if isinstance(value, decimal.Decimal) and value else value


def write(folder: Path, count: int, files: int) -> dict[str, list[pa.Table]]:
    """Write the files of all tables; returns their rows."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in TYPES}
    for at in range(files):
        made = events(count // files, RATE, first=at * (count // files))
        for name in TYPES:
            if name in TIME or not at:
                parts[name].append(made.table(name))
    for name, tables in parts.items():
        (folder / name).mkdir(parents=True)
        for at, table in enumerate(tables):
            pq.write_table(table, folder / name / f"{at:05}.parquet")
    return parts


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench.nexmark", description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--files", type=int, default=5)
    parser.add_argument("--queries", default="", help="numbers with commas between them; default: all")
    parser.add_argument("--no-spark", action="store_true", help="without Spark beside it")
    given = parser.parse_args()
    chosen = [int(one) for one in given.queries.split(",") if one] or list(QUERIES)
    counted = given.events // given.files * (given.files - 1)
    values: dict[str, Any] = {"events": counted, "left_out": LEFT_OUT, "same": 0, "different": []}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parts = write(folder / "ours", given.events, given.files)
        later = events(50, RATE, first=given.events + DAY * RATE)
        for name in TIME:
            pq.write_table(later.table(name), folder / "ours" / name / "later.parquet")
        streams = None
        if not given.no_spark:
            from bench.nexmark.spark import Streams

            streams = Streams(folder)
            for name in TYPES:
                streams.write("timed", name, parts[name])
                streams.write("compared", name, [*parts[name][:2], *([later.table(name)] if name in TIME else [])])
        for number in chosen:
            ours = timed(number, folder / "ours", given.files)
            found: dict[str, Any] = {"events_per_s": round(counted / ours)}
            beside = streams.answer("compared", QUERIES[number]) if streams else "not started"
            if streams is None or isinstance(beside, str):
                found["spark"] = beside
                rows.append([f"q{number}", found["events_per_s"], "", "", "no"])
            else:
                form, answer = beside
                same = comparable(answer) in answers(number, folder / "ours")
                values["same"] += same
                values["different"] += [] if same else [number]
                seconds = streams.time("timed", QUERIES[number], form)
                found |= {"spark_events_per_s": round(counted / seconds), "spark": str(form)}
                found["ratio"] = round(seconds / ours, 2)
                rows.append([f"q{number}", found["events_per_s"], found["spark_events_per_s"], found["ratio"],
                             found["spark"]])  # fmt: skip
            values[f"q{number}"] = found
            print(*rows[-1], file=sys.stderr, flush=True)
        if streams is not None:
            streams.close()
    head = ["query", "events/s", "Spark, events/s", "ratio", "Spark's output mode"]
    tell(values, tables={"nexmark": {"head": head, "rows": rows}})
    return 1 if values["different"] else 0


def timed(number: int, folder: Path, files: int) -> float:
    """Seconds for all files but the first; the lesser of two runs if they are short."""
    taken: list[float] = []
    while len(taken) < 2 and sum(taken) < LONG:
        running = Maintained(number)
        taken.append(sum([running.epoch(folder, at, keep=False) for at in range(files)][1:]))
        running.engine.close()
    return min(taken)


def answers(number: int, folder: Path) -> list[Counter[Any]]:
    """The rows after two files, and after those of the next day."""
    running, found = Maintained(number), []
    for at in range(2):
        running.epoch(folder, at, keep=True)
    found.append(comparable(running.rows))
    later = folder.parent / "later"
    for name in TIME:
        (later / name).mkdir(parents=True, exist_ok=True)
        (later / name / "00002.parquet").write_bytes((folder / name / "later.parquet").read_bytes())
    running.epoch(later, 2, keep=True)
    found.append(comparable(running.rows))
    return found


if __name__ == "__main__":
    sys.exit(main())
