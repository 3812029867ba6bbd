"""TPC-H: its 22 queries as SQL, maintained while rows of the eight tables come and go, against duckdb at times."""

from __future__ import annotations

import decimal
import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from bench.tpch import NAMES, TABLES, fill, view
from tests.oracle.model import Change
from tests.sql.snapshots import Oracle, comparable, rows_at
from vernier.operators import testing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

LAST = 1_000
"""Data times are 1 to LAST: a row comes at a random time, one in five goes later and comes again by LAST."""
TIES = {2, 3, 10, 18, 21}
"""Queries with ORDER BY … LIMIT: rows that are equal in their order may differ between systems."""


def history(rows: list[tuple[Any, ...]], choose: random.Random) -> list[Change]:
    """The rows as changes over time."""
    found: list[Change] = []
    for row in rows:
        time = choose.randint(1, LAST // 2)
        found.append((row, time, 1))
        if choose.random() < 0.2:
            time = choose.randint(time + 1, LAST)
            found.append((row, time, -1))
            found.append((row, choose.randint(time, LAST), 1))
    return found


ALL = range(50, LAST + 1, 50)
LONG = [pytest.mark.nightly, pytest.mark.timeout(14_400)]


@pytest.mark.parametrize(
    ("scale", "times", "epochs", "workers"),
    [
        (0.01, (50, 300, 500, 640, LAST), (100, 101, 500, 650, 900), 1),
        pytest.param(0.01, ALL, sorted(random.Random(1).sample(range(LAST), 100)), 2, marks=LONG),
        pytest.param(0.1, ALL, (100, 101, 500, 650, 900), 1, marks=LONG),
        pytest.param(0.1, ALL, (), 2, marks=LONG),
    ],
)
def test_all_queries_are_what_duckdb_makes_of_the_tables(
    oracle: Oracle, scale: float, times: Sequence[int], epochs: Sequence[int], workers: int
) -> None:
    """epochs: the times at which epochs end; with none there is one."""
    choose = random.Random(22)
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as sql:
        queries = fill(sql, scale)
        changes = {name: history(sql.execute(f"FROM {name}").fetchall(), choose) for name in NAMES}
        types = {name: sql.execute(f"FROM {name} LIMIT 0").to_arrow_table().schema for name in NAMES}
        views = "".join(view(sql, number, unlimited(number, query)) for number, query in queries.items())
        app = oracle.build(TABLES + views)
        with testing.run(app, epochs=epochs, workers=workers) as run:
            for name, updates in changes.items():
                run.update(name, updates)
            run.finish()
            seen: Counter[int] = Counter()
            for time in times:
                for name in NAMES:
                    held: Counter[Any] = Counter()
                    for row, at, diff in changes[name]:
                        if at <= time:
                            held[row] += diff
                    rows = list(held.elements())
                    columns = list(zip(*rows, strict=True)) or [()] * len(types[name])
                    arrays = [pa.array(one, field.type) for one, field in zip(columns, types[name], strict=True)]
                    sql.register("given", pa.Table.from_arrays(arrays, schema=types[name]))
                    sql.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
                for number, query in queries.items():
                    answer = sql.execute(unlimited(number, query)).fetchall()
                    found = list(rows_at(run, f"q{number}", time).elements())
                    assert alike(found, answer), f"query {number} at {time}:\n{found[:5]}\n{answer[:5]}"
                    seen[number] += len(answer)
            assert all(seen[number] for number in queries), f"queries without any row: {seen}"


def unlimited(number: int, query: str) -> str:
    """A query without its LIMIT, where rows may be equal in its order: tests of LIMIT are those of test_queries.py."""
    text = query.strip().rstrip(";")
    return text[: text.upper().rindex("LIMIT")] if number in TIES else text


def alike(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> bool:
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
