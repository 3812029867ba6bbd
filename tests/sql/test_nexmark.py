"""NEXMark: its queries in SQL over nanosecond event times, against plain Python that shares no code with ours.

Each event comes at its own event time as data time, in any order within an epoch. Queries: bench/nexmark/q*.sql.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from bench.nexmark.events import BEGIN, LEFT_OUT, QUERIES, TABLES, TIME, Events, events
from tests.oracle import nexmark as reference
from tests.sql.snapshots import Oracle, comparable, rows_at
from vernier.operators import testing

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_all_queries_are_there() -> None:
    assert {*QUERIES, *LEFT_OUT} == set(range(23))
    assert QUERIES.keys() == reference.QUERIES.keys()


@pytest.mark.parametrize(
    ("count", "rate", "cuts", "workers", "looks"),
    [
        pytest.param(2_600, 40, (7, 100, 101, 1_350), 2, 3, marks=pytest.mark.slow),
        pytest.param(20_000, 100, range(1_000, 20_000, 1_700), 1, 20, marks=[pytest.mark.slow, pytest.mark.nightly]),
        pytest.param(20_000, 1_000, (12_345,), 2, 20, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_queries_are_what_plain_python_makes_of_the_events(
    oracle: Oracle, count: int, rate: int, cuts: Sequence[int], workers: int, looks: int
) -> None:
    """cuts: the numbers of events at whose times epochs end; looks: at how many times answers are compared."""
    made = events(count, rate)
    views = "".join(f"CREATE MATERIALIZED VIEW q{number} AS {query};\n" for number, query in QUERIES.items())
    choose = random.Random(count)
    step = 10**9 // rate
    with testing.run(oracle.build(TABLES + views), epochs=[BEGIN + cut * step for cut in cuts], workers=workers) as run:
        run.update("side_input", [(row, 0, 1) for row in made.side_input])
        for name, place in TIME.items():
            rows = getattr(made, name)
            run.update(name, [(row, row[place], 1) for row in choose.sample(rows, len(rows))])
        run.finish()
        times = [*(BEGIN + choose.randrange(count * step) for _ in range(looks - 1)), BEGIN + count * step]
        seen: Counter[int] = Counter()
        for time in sorted(times):
            site = site_at(made, time)
            for number, query in reference.QUERIES.items():
                wanted = Counter(tuple(map(comparable, row)) for row in query(site))
                found = rows_at(run, f"q{number}", time)
                assert found == wanted, f"query {number} at {time}:\n{found - wanted}\n{wanted - found}"
                seen[number] += len(wanted)
    assert all(seen[number] for number in QUERIES), f"queries without any row: {seen}"


def site_at(made: Events, time: int) -> reference.Site:
    """The rows that are there at a time."""
    there: dict[str, list[Any]] = {
        name: [row for row in getattr(made, name) if row[place] <= time] for name, place in TIME.items()
    }
    return reference.Site(**there, side_input=made.side_input)
