"""TPC-H: its 22 queries as SQL, maintained while rows of the eight tables come and go, against duckdb at times."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import duckdb
import pytest

from bench.checkpoints import CHECKPOINTS, LAST, History, Maintained, compared, program
from bench.tpch import fill
from tests.sql.snapshots import Oracle
from vernier.storage.updates import CLOSED

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
LONG = [pytest.mark.nightly, pytest.mark.timeout(14_400)]


@pytest.mark.parametrize(
    ("scale", "times", "epochs", "workers"),
    [
        (0.01, (50, 300, 500, 640, LAST), (100, 101, 500, 650, 900), 1),
        pytest.param(0.01, CHECKPOINTS, sorted(random.Random(1).sample(range(LAST), 100)), 2, marks=LONG),
        pytest.param(0.1, CHECKPOINTS, (100, 101, 500, 650, 900), 1, marks=LONG),
        pytest.param(0.1, CHECKPOINTS, (), 2, marks=LONG),
    ],
)
def test_all_queries_are_what_duckdb_makes_of_the_tables(
    oracle: Oracle, scale: float, times: Sequence[int], epochs: Sequence[int], workers: int
) -> None:
    """epochs: the times at which epochs end; with none there is one."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        queries = fill(connection, scale)
        app = oracle.build(program(connection, queries))
        history = History(connection, 22)
        maintained = Maintained(app, history, workers)
        try:
            seen: Counter[int] = Counter()
            for _, rows in compared(maintained, history, queries, [*epochs, CLOSED], times):
                seen += rows
        finally:
            maintained.engine.close()
    assert all(seen[number] for number in queries), f"queries without any row: {seen}"
