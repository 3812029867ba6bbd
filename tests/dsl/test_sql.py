"""Joins, set operations and ordered groups against what DuckDB makes of the same tables with the same words of SQL."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import vernier as vn
from tests.oracle.model import Change, Collection, collection_at
from vernier import col

Build = Callable[[vn.Collection, vn.Collection], vn.Collection]


class Table(vn.Schema):
    k: vn.Int64 | None
    n: vn.Int64 | None
    s: vn.String


ALL = "k NULLS FIRST, n NULLS FIRST, s"
DOWN = f"n DESC NULLS LAST, {ALL}"
down = [col("n").desc()]

CASES: dict[str, tuple[Build, str]] = {
    "inner": (lambda a, b: a.join(other(b), on="k"), "SELECT k, a.n, a.s, m, t FROM a JOIN c USING (k)"),
    "left": (
        lambda a, b: a.join(other(b), on="k", how="left", where=col("n") < col("m")),
        "SELECT a.k, n, s, m, t FROM a LEFT JOIN c ON a.k = c.k AND n < m",
    ),
    "right": (
        lambda a, b: a.join(other(b), on="k", how="right", where=col("n") < col("m")),
        "SELECT c.k, n, s, m, t FROM a RIGHT JOIN c ON a.k = c.k AND n < m",
    ),
    "full": (
        lambda a, b: a.join(other(b), on="k", how="full"),
        "SELECT coalesce(a.k, c.k), n, s, m, t FROM a FULL JOIN c ON a.k = c.k",
    ),
    "semi": (
        lambda a, b: a.join(other(b), on="k", how="semi", where=col("s") == col("t")),
        "SELECT * FROM a WHERE EXISTS (SELECT * FROM c WHERE a.k = c.k AND s = t)",
    ),
    "anti": (
        lambda a, b: a.join(other(b), on="k", how="anti", where=col("s") == col("t")),
        "SELECT * FROM a WHERE NOT EXISTS (SELECT * FROM c WHERE a.k = c.k AND s = t)",
    ),
    "except_all": (lambda a, b: a.except_all(b), "SELECT * FROM a EXCEPT ALL SELECT * FROM b"),
    "intersect": (lambda a, b: a.intersect(b), "SELECT * FROM a INTERSECT SELECT * FROM b"),
    "top_k": (
        lambda a, b: a.top_k(3, by=down, within="k"),
        f"SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY k ORDER BY {DOWN}) <= 3",
    ),
    "top_k of all": (lambda a, b: a.top_k(4, by=["s", *down]), f"SELECT * FROM a ORDER BY s, {DOWN} LIMIT 4"),
    "rank": (
        lambda a, b: a.rank(by=down, within="k"),
        "SELECT *, rank() OVER (PARTITION BY k ORDER BY n DESC NULLS LAST) FROM a",
    ),
    "dense_rank": (
        lambda a, b: a.dense_rank(by=["n", col("s").desc()]),
        "SELECT *, dense_rank() OVER (ORDER BY n NULLS FIRST, s DESC) FROM a",
    ),
    "row_number": (
        lambda a, b: a.row_number(by=down, within="k"),
        f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY {DOWN}) FROM a",
    ),
    "lag": (
        lambda a, b: a.lag("s", 2, by=down, within="k"),
        f"SELECT *, lag(s, 2) OVER (PARTITION BY k ORDER BY {DOWN}) FROM a",
    ),
    "lead": (
        lambda a, b: a.lead("n", by=down, default=-1),
        f"SELECT *, lead(n, 1, -1) OVER (ORDER BY {DOWN}) FROM a",
    ),
    "running_sum": (
        lambda a, b: a.running_sum("n", by="s", within="k"),
        f"SELECT *, sum(n) OVER (PARTITION BY k ORDER BY s, {ALL} ROWS UNBOUNDED PRECEDING)::BIGINT FROM a",
    ),
    "prefix_sum": (
        lambda a, b: a.prefix_sum("k", at=b, by="n", within="s"),
        "SELECT *, coalesce((SELECT sum(a.k) FROM a WHERE a.s = b.s AND a.n <= b.n), 0)::BIGINT FROM b",
    ),
    "as_of_join": (
        lambda a, b: a.as_of_join(
            b.group_by("n").agg(m=vn.count()).rename(n="then"), left_time="n", right_time="then", how="left"
        ),
        "SELECT a.*, d.n, d.m FROM a ASOF LEFT JOIN (SELECT n, count(*) AS m FROM b GROUP BY n) AS d ON a.n >= d.n",
    ),
    "interval_join": (
        lambda a, b: a.interval_join(other(b), on="k", left_time="n", right_time="m", lower=-1, upper=2),
        "SELECT k, n, s, m, t FROM a JOIN c USING (k) WHERE m - n BETWEEN -1 AND 2",
    ),
    "sessions": (
        lambda a, b: a.window("n", session=1, by="k").drop("s"),
        """SELECT k, n, min(n) OVER w, max(n) OVER w + 1 FROM (
             SELECT *, sum(fresh) OVER (PARTITION BY k ORDER BY n RANGE UNBOUNDED PRECEDING) AS nth FROM (
               SELECT *, coalesce(n - lag(n) OVER (PARTITION BY k ORDER BY n) > 1, true)::INT AS fresh
               FROM a WHERE n IS NOT NULL))
           WINDOW w AS (PARTITION BY k, nth)""",
    ),
}


def other(table: vn.Collection) -> vn.Collection:
    """Table b under names that do not clash."""
    return table.rename(n="m", s="t")


def history(seed: int) -> list[Change]:
    """Rows that come, come again and go, never below none."""
    choose = random.Random(seed)
    held: Collection = {}
    found: list[Change] = []
    for time in range(1, 40):
        row = (choose.choice((None, 1, 2)), choose.choice((None, *range(8))), choose.choice("xyz"))
        if (held.get(row, 0) and choose.random() < 0.5) or sum(held.values()) > 25:
            row = choose.choice([row for row, count in held.items() if count])
            found.append((row, time, -1))
        else:
            found.append((row, time, 1))
        held[row] = held.get(row, 0) + found[-1][2]
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_what_sql_says(name: str) -> None:
    build, query = CASES[name]
    app = vn.App("sql")
    app.view("v", build(app.source("a", Table), app.source("b", Table)))
    tables = {"a": history(1), "b": history(2)}
    with vn.testing.run(app, epochs=(9, 20), workers=2) as t, duckdb.connect() as sql:
        for source, changes in tables.items():
            t.update(source, changes)
        t.finish()
        for time in (3, 8, 9, 15, 21, 28, 39):
            for source, changes in tables.items():
                sql.execute(f"CREATE OR REPLACE TABLE {source} (k BIGINT, n BIGINT, s VARCHAR)")
                rows = [row for row, count in collection_at(changes, time).items() for _ in range(count)]
                if rows:
                    sql.executemany(f"INSERT INTO {source} VALUES (?, ?, ?)", rows)
            sql.execute("CREATE OR REPLACE VIEW c AS SELECT k, n AS m, s AS t FROM b")
            wanted: Counter[tuple[Any, ...]] = Counter(sql.execute(query).fetchall())
            assert t.counts("v", at=time) == dict(wanted), f"at {time}"
