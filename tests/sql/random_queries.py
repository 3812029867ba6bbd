"""Random queries, maintained over random tables, against spark.sql on snapshots.

    python -m tests.sql.random_queries --queries 2000 [--from 0] [--seed 1] [--jobs 2] [--journal FILE] [--only NUMBER]

Queries of a batch are views of one program, so that a snapshot is made once for all of them. A finding is a view that
differs from Spark's answer at a time, an exception, or a refusal that docs/sql.md does not name. Each is printed with
its query; the command exits with 1 if there is one. A query that Spark itself cannot plan, or whose answer it refuses
(ANSI overflow), is counted and no finding.

Batches share nothing, so `--jobs` processes take them in turns. Each batch is a line of the journal when it is done; a
run that was stopped goes on with the batches that its journal does not have.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.sql.generator import Generator
from tests.sql.histories import LAST, TABLES, history
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
    "RANGE with an offset needs an order by",
    "a list without elements cannot be a constant",
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

    def add(self, other: Outcome) -> None:
        """Add what came of other queries."""
        self.queries += other.queries
        self.compared += other.compared
        self.rows += other.rows
        self.refused += other.refused
        self.unplanned += other.unplanned
        self.unanswered += other.unanswered
        self.findings += other.findings
        self.seconds += other.seconds


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
            if type(error) is not ProgramError:  # Spark's own errors have no class of ours
                outcome.findings.append(f"{number} cannot be built: {_said(error)}\n  {text}")
                continue
            outcome.unplanned[re.sub(r"[`\"#(].*", "", error.problem)] += 1
        except Exception as error:
            outcome.findings.append(f"{number} cannot be built: {_said(error)}\n  {text}")
    choose = random.Random(f"{seed} {numbers[0]}")
    times = sorted(choose.sample(range(1, LAST), TIMES))
    epochs = sorted(choose.sample(range(2, LAST), choose.randint(0, 4)))
    workers = choose.choice((1, 1, 2))
    together = Outcome()
    try:
        _run(oracle, f"{seed} {numbers[0]}", queries, times, epochs, workers, together)
        outcome.add(together)
    except Exception:
        # One of them stopped the program: which one is found by running each alone.
        for number, text in queries.items():
            alone = Outcome()
            try:
                _run(oracle, f"{seed} {numbers[0]}", {number: text}, times, epochs, workers, alone)
                outcome.add(alone)
            except Exception as error:
                outcome.findings.append(f"{number} stops: {_said(error)}\n  {text}")
    outcome.seconds += time.monotonic() - begun


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


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
                    except (PySparkException, Py4JJavaError):  # the latter is an internal error of Spark
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


def _batches(first: int, count: int) -> list[range]:
    return [range(at, min(at + BATCH, first + count)) for at in range(first, first + count, BATCH)]


def _done(journal: Path) -> dict[str, Outcome]:
    """The batches of a journal: `seed first last` to what came of them. A line that was cut off is none."""
    found = {}
    for line in journal.read_text("utf-8").splitlines() if journal.exists() else ():
        try:
            given = json.loads(line)
        except ValueError:
            continue
        made = Outcome(**given["outcome"])
        made.refused, made.unplanned = Counter(made.refused), Counter(made.unplanned)
        found[given["batch"]] = made
    return found


def _name(seed: int, batch: range) -> str:
    return f"{seed} {batch.start} {batch.stop}"


def _work(seed: int, batches: Sequence[range], journal: Path) -> None:
    """Compare batches, and write a line for each."""
    done = _done(journal)
    with tempfile.TemporaryDirectory() as scratch, Oracle.started(Path(scratch)) as oracle:
        for batch in batches:
            if _name(seed, batch) in done:
                continue
            outcome = Outcome()
            compare(oracle, seed, batch, outcome)
            with journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"batch": _name(seed, batch), "outcome": vars(outcome)}) + "\n")
            print(f"{batch.start} to {batch.stop}: {outcome.seconds:.0f} s", file=sys.stderr, flush=True)
            for one in outcome.findings:
                print(one, flush=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.sql.random_queries", description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the number of the first query")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a Spark of its own")
    parser.add_argument("--journal", type=Path, help="where finished batches stand; a temporary file by default")
    parser.add_argument("--only", type=int, help="one query, shown")
    parser.add_argument("--turn", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    batches = _batches(given.first, given.queries)
    if given.only is not None:
        outcome = Outcome()
        print(Generator(f"{given.seed} {given.only}").query())
        with tempfile.TemporaryDirectory() as scratch, Oracle.started(Path(scratch)) as oracle:
            first = given.only - given.only % BATCH
            compare(oracle, given.seed, [first, given.only] if first != given.only else [first], outcome)
        print(outcome)
        return 1 if outcome.findings else 0
    with tempfile.TemporaryDirectory() as folder:
        journal: Path = given.journal or Path(folder) / "journal.jsonl"
        if given.turn is not None or given.jobs == 1:
            _work(given.seed, batches[(given.turn or 0) :: given.jobs], journal)
        else:
            command = [sys.executable, "-m", "tests.sql.random_queries", *sys.argv[1:], "--journal", str(journal)]
            running = [subprocess.Popen([*command, "--turn", str(turn)]) for turn in range(given.jobs)]
            for one in running:
                one.wait()
        done, outcome = _done(journal), Outcome()
        for batch in batches:
            outcome.add(done.get(_name(given.seed, batch), Outcome()))
    if given.turn is None:
        print(outcome)
    return 1 if outcome.findings or outcome.queries < given.queries else 0


if __name__ == "__main__":
    sys.exit(main())
