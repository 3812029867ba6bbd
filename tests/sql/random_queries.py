"""Random queries, maintained over random tables, against spark.sql on snapshots.

    python -m tests.sql.random_queries --queries 2000 [--seed 1] [--only NUMBER]

Queries of a batch are views of one program, so that a snapshot is made once for all of them. A finding is a view that
differs from Spark's answer at a time, an exception, or a refusal that docs/sql.md does not name. Each is printed with
its query; the command exits with 1 if there is one. A query that Spark itself cannot plan, or whose answer it refuses
(ANSI overflow), is counted and no finding.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException

from tests.sql.generator import LAST, TABLES, Generator, history
from tests.sql.snapshots import Oracle, rows_at, tables_at
from vernier.operators import testing
from vernier.operators.errors import ProgramError
from vernier.operators.sql.refusals import Refused

BATCH = 25
TIMES = 2
REASONS = (
    "this frame cannot be maintained",
    "this correlated subquery cannot be turned into a join",
    "this subquery cannot be turned into a join",
)
"""Refusals that docs/sql.md names, by how they begin."""


@dataclass
class Outcome:
    """What came of queries. refused: by reason; unplanned: those that Spark cannot plan; unanswered: those whose answer
    Spark refuses at a time; rows: how many rows were compared."""

    queries: int = 0
    compared: int = 0
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unplanned: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        first = (
            f"{self.queries} queries in {self.seconds:.0f} s: {self.compared} compared ({self.rows} rows), "
            f"{self.refused.total()} refused, {self.unplanned.total()} not planned by Spark, "
            f"{self.unanswered} answers refused by Spark, {len(self.findings)} findings"
        )
        lines = [first]
        lines += [f"  refused {count}: {reason}" for reason, count in self.refused.most_common()]
        lines += [f"  not planned {count}: {reason}" for reason, count in self.unplanned.most_common(12)]
        return "\n".join([*lines, *self.findings])


def compare(oracle: Oracle, seed: int, numbers: Sequence[int], outcome: Outcome) -> None:
    """Make the queries of these numbers, and add what came of them to the outcome."""
    begun = time.monotonic()
    queries: dict[int, str] = {}
    for number in numbers:
        text = Generator(f"{seed} {number}").query()
        outcome.queries += 1
        try:
            oracle.build(_program({number: text}))
            queries[number] = text
        except Refused as error:
            outcome.refused[error.problem] += 1
            if not error.problem.startswith(REASONS):
                outcome.findings.append(f"{number} is refused, undocumented: {error.problem}\n  {text}")
        except ProgramError as error:
            outcome.unplanned[re.sub(r"[`\"#(].*", "", error.problem)] += 1
        except Exception as error:
            outcome.findings.append(f"{number} cannot be built: {type(error).__name__}: {error}\n  {text}")
    choose = random.Random(f"{seed} {numbers[0]}")
    times = sorted(choose.sample(range(1, LAST), TIMES))
    epochs = sorted(choose.sample(range(2, LAST), choose.randint(0, 4)))
    workers = choose.choice((1, 1, 2))
    try:
        _run(oracle, f"{seed} {numbers[0]}", queries, times, epochs, workers, outcome)
    except Exception:
        # One of them stopped the program: which one is found by running each alone.
        for number, text in queries.items():
            try:
                _run(oracle, f"{seed} {numbers[0]}", {number: text}, times, epochs, workers, outcome)
            except Exception as error:
                outcome.findings.append(f"{number} stops: {type(error).__name__}: {error}\n  {text}")
    outcome.seconds += time.monotonic() - begun


def _program(queries: dict[int, str]) -> str:
    views = (f"CREATE MATERIALIZED VIEW v{number} AS {text};\n" for number, text in queries.items())
    return TABLES + "".join(views)


def _run(
    oracle: Oracle,
    seed: str,
    queries: dict[int, str],
    times: Sequence[int],
    epochs: Sequence[int],
    workers: int,
    outcome: Outcome,
) -> None:
    if not queries:
        return
    changes = history(seed)
    app = oracle.build(_program(queries))
    with testing.run(app, epochs=epochs, workers=workers) as run:
        for name, updates in changes.items():
            run.update(name, updates)
        run.finish()
        outcome.compared += len(queries)
        wrong: set[int] = set()
        for at in times:
            with oracle.snapshot(tables_at(app, changes, at)):
                for number, text in queries.items():
                    try:
                        wanted = oracle.answer(text)
                    except PySparkException:
                        outcome.unanswered += 1
                        continue
                    outcome.rows += wanted.total()
                    found = rows_at(run, f"v{number}", at)
                    if found != wanted and number not in wrong:
                        wrong.add(number)
                        outcome.findings.append(
                            f"{number} at {at} (epochs {list(epochs)}, {workers} workers)\n  {text}\n"
                            f"  vernier: {dict(found - wanted)}\n  spark: {dict(wanted - found)}"
                        )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.sql.random_queries", description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one query, shown")
    given = parser.parse_args()
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as scratch, Oracle.started(Path(scratch)) as oracle:
        if given.only is not None:
            first = given.only - given.only % BATCH
            print(Generator(f"{given.seed} {given.only}").query())
            compare(oracle, given.seed, [first, given.only] if first != given.only else [first], outcome)
        else:
            for first in range(0, given.queries, BATCH):
                before = len(outcome.findings)
                compare(oracle, given.seed, range(first, min(first + BATCH, given.queries)), outcome)
                print(f"to {first + BATCH}: {outcome.seconds:.0f} s", file=sys.stderr, flush=True)
                for one in outcome.findings[before:]:
                    print(one, flush=True)
    print(outcome)
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
