"""Queries of every kind, maintained over changing tables, against spark.sql on snapshots."""

from __future__ import annotations

import datetime
import decimal
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.model import Change, Collection
from tests.sql.logic import read_records, rewritten, script, shown
from tests.sql.random_queries import BATCH, Outcome, compare
from tests.sql.snapshots import Oracle, check, rows_at, tables_at
from vernier.operators import testing
from vernier.operators.errors import ProgramError
from vernier.operators.sql.columns import spark_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = """
CREATE TABLE t (k BIGINT, v DECIMAL(12, 2), s STRING, d DATE, f DOUBLE, b BOOLEAN, ts TIMESTAMP);
CREATE TABLE u (k BIGINT, w BIGINT NOT NULL, s STRING);
CREATE TABLE e (src BIGINT NOT NULL, dst BIGINT NOT NULL);
"""

EXPRESSIONS = {
    "arithmetic": "SELECT k + 1 AS a, k * 2 - 3 AS b, -k AS c, k / 2 AS x, k div 2 AS y, k % 3 AS z FROM t",
    "decimals": "SELECT v + 1 AS a, v * v AS b, v / 3 AS c, v - 0.05 AS d, round(v, 1) AS e FROM t",
    "comparisons": "SELECT k FROM t WHERE k >= 2 AND v < 7.5 OR s = 'b' AND NOT b",
    "nulls": "SELECT coalesce(k, -1) AS a, nullif(k, 2) AS b, k <=> 2 AS c, k IS NULL AS d FROM t",
    "cases": "SELECT CASE WHEN k > 2 THEN 'big' WHEN k IS NULL THEN 'none' ELSE s END AS c, if(b, 1, 2) AS i FROM t",
    "texts": "SELECT upper(s) AS a, concat(s, '-', s) AS b, substring(s, 1, 2) AS c, length(s) AS d, s || 'x' AS e "
    "FROM t WHERE s LIKE '%b%' OR s RLIKE '^a'",
    "dates": "SELECT year(d) AS y, month(d) AS m, day(d) AS q, d + 3 AS n, datediff(d, DATE '2024-01-01') AS g, "
    "extract(quarter FROM d) AS r, dayofweek(d) AS w, weekday(d) AS x FROM t",
    "instants": "SELECT date_trunc('hour', ts) AS h, ts + INTERVAL 90 SECONDS AS p, hour(ts) AS o, "
    "CAST(ts AS DATE) AS c, unix_millis(ts) AS u FROM t",
    "casts": "SELECT CAST(k AS STRING) AS a, CAST(v AS BIGINT) AS b, CAST(k AS DECIMAL(20, 3)) AS c, "
    "CAST(b AS INT) AS d, CAST(f AS DECIMAL(20, 2)) AS g, CAST(ts AS BIGINT) AS h FROM t",
    "lists": "SELECT k IN (1, 2, NULL) AS a, k NOT IN (1, 2) AS b, k BETWEEN 1 AND 3 AS c, greatest(k, 2) AS d FROM t",
}
OPERATORS = {
    "inner": "SELECT t.k, t.s, u.w FROM t JOIN u ON t.k = u.k",
    "natural": "SELECT * FROM (SELECT k, s FROM t) NATURAL JOIN (SELECT k, w FROM u)",
    "outer_left": "SELECT t.k, t.s, u.w FROM t LEFT JOIN u ON t.k = u.k AND u.w > 2",
    "outer_right": "SELECT t.k AS tk, u.k AS uk, u.w FROM t RIGHT JOIN u ON t.k = u.k",
    "outer_full": "SELECT t.k AS tk, u.k AS uk, t.v FROM t FULL JOIN u ON t.k = u.k",
    "theta": "SELECT t.k, u.w FROM t JOIN u ON t.k < u.w",
    "theta_left": "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k < u.w AND u.s = 'a'",
    "crossed": "SELECT t.k, u.w FROM t, u WHERE t.k + u.w = 5",
    "null_safe": "SELECT t.k, u.w FROM t JOIN u ON t.k <=> u.k",
    "self": "SELECT a.src, b.dst FROM e a JOIN e b ON a.dst = b.src",
    "semi": "SELECT * FROM t WHERE k IN (SELECT k FROM u WHERE w > 1)",
    "anti": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "not_in": "SELECT k, s FROM t WHERE k NOT IN (SELECT k FROM u WHERE w > 3)",
    "not_in_correlated": "SELECT k, s FROM t WHERE k NOT IN (SELECT u.k FROM u WHERE u.s = t.s)",
    "existence": "SELECT k, k IN (SELECT w FROM u) OR b AS f FROM t",
    "scalar": "SELECT k, (SELECT max(w) FROM u) AS m FROM t WHERE k > (SELECT avg(w) FROM u) - 2",
    "scalar_correlated": "SELECT k, (SELECT count(*) FROM u WHERE u.k = t.k) AS c FROM t",
    "lateral": "SELECT t.k, x.m FROM t, LATERAL (SELECT max(w) AS m FROM u WHERE u.k = t.k) AS x",
    "groups": "SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS a, min(s) AS lo, max(d) AS hi FROM t GROUP BY k",
    "having": "SELECT s, sum(k) AS x FROM t GROUP BY s HAVING count(*) > 1",
    "everything": "SELECT count(*) AS n, sum(k) AS s, avg(f) AS a, max(s) AS m FROM t",
    "everything_none": "SELECT count(k) AS n, min(k) AS m FROM t WHERE k > 1000",
    "computed_keys": "SELECT k % 2 AS p, count(*) + 1 AS n FROM t GROUP BY k % 2",
    "distinct": "SELECT DISTINCT k, b FROM t",
    "distinct_counts": "SELECT b, count(DISTINCT k) AS n, sum(DISTINCT k) AS s, count(*) AS c FROM t GROUP BY b",
    "filtered": "SELECT b, count(*) FILTER (WHERE k > 1) AS n, sum(k) FILTER (WHERE s = 'a') AS s FROM t GROUP BY b",
    "spread": "SELECT b, stddev_pop(k) AS p, var_samp(k) AS v FROM t GROUP BY b",
    "rollup": "SELECT k, b, count(*) AS n FROM t GROUP BY ROLLUP (k, b)",
    "cube": "SELECT k, b, sum(v) AS n, grouping(k) AS g FROM t GROUP BY CUBE (k, b)",
    "sets": "SELECT k, s, count(*) AS n FROM t GROUP BY GROUPING SETS ((k), (s), ())",
    "united": "SELECT k, s FROM t UNION ALL SELECT w, s FROM u",
    "united_once": "SELECT k FROM t UNION SELECT w FROM u",
    "except_all": "SELECT k FROM t EXCEPT ALL SELECT w FROM u",
    "excepted": "SELECT k FROM t EXCEPT SELECT k FROM u",
    "intersected": "SELECT k FROM t INTERSECT SELECT k FROM u",
    "intersect_all": "SELECT k FROM t INTERSECT ALL SELECT w FROM u",
    "top": "SELECT k, w, s FROM u ORDER BY w DESC, k, s LIMIT 3",
    "top_offset": "SELECT k, w, s FROM u ORDER BY w NULLS LAST, k NULLS LAST, s LIMIT 3 OFFSET 2",
    "ranks": "SELECT w, rank() OVER (PARTITION BY k ORDER BY w DESC) AS r, dense_rank() OVER (ORDER BY w) AS d FROM u",
    "numbers": "SELECT * FROM (SELECT src, dst, row_number() OVER (PARTITION BY src ORDER BY dst) AS n FROM e) "
    "WHERE n <= 2",
    "shares": "SELECT src, dst, sum(dst) OVER (PARTITION BY src) AS s, count(*) OVER () AS n FROM e",
    "exploded": "SELECT k, x FROM t LATERAL VIEW explode(array(k, 7)) AS x",
    "values": "SELECT t.k, x.name FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS x (k, name) ON t.k = x.k",
    "hopping": "SELECT window.start AS a, window.end AS b, count(*) AS n FROM t "
    "GROUP BY window(ts, '10 seconds', '5 seconds')",
    "tumbling": "SELECT window.start AS a, k, count(*) AS n FROM t GROUP BY window(ts, '10 seconds'), k",
}


def history(seed: int) -> dict[str, list[Change]]:
    """Rows of the three tables that come, come again and go, never below none."""
    choose = random.Random(seed)

    def row(table: str) -> tuple[object, ...]:
        number = choose.choice((None, 1, 2, 3, 4))
        text = choose.choice((None, "a", "b", "ab", "cab"))
        if table == "e":
            return choose.randint(1, 4), choose.randint(1, 4)
        if table == "u":
            return number, choose.randint(0, 5), text
        day = datetime.date(2024, choose.randint(1, 12), choose.randint(1, 28))
        amount = decimal.Decimal(choose.randint(-900, 900)) / 100
        instant = (1_700_000_000_000_000 + choose.randint(0, 40_000_000)) * 1000
        chance = choose.random()
        return (
            number,
            None if chance < 0.1 else amount,
            text,
            None if 0.1 < chance < 0.2 else day,
            choose.choice((None, 0.5, -2.25, 3.125)),
            choose.choice((None, True, False)),
            None if 0.2 < chance < 0.3 else instant,
        )

    found: dict[str, list[Change]] = {}
    for table in ("t", "u", "e"):
        held: Collection = {}
        changes: list[Change] = []
        for time in range(1, 60):
            there = [one for one, count in held.items() if count]
            if there and (choose.random() < 0.45 or len(there) > 14):
                one, diff = choose.choice(there), -1
            else:
                one, diff = choose.choice(there) if there and choose.random() < 0.2 else row(table), 1
            held[one] = held.get(one, 0) + diff
            changes.append((one, time, diff))
        found[table] = changes
    return found


@pytest.mark.slow
def test_expressions_mean_what_they_do_in_spark(oracle: Oracle) -> None:
    check(oracle, TABLES, EXPRESSIONS, history(1), (0, 30, 59), epochs=(20,))


def test_some_of_them_in_every_run(oracle: Oracle) -> None:
    chosen = {name: OPERATORS[name] for name in ("outer_left", "not_in", "everything", "top", "scalar_correlated")}
    check(oracle, TABLES, chosen, history(5), (40,), epochs=(20,))


@pytest.mark.slow
def test_operators_mean_what_they_do_in_spark(oracle: Oracle) -> None:
    check(oracle, TABLES, OPERATORS, history(2), (0, 31), epochs=(9, 20))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_operators_mean_the_same_with_any_epochs_and_workers(oracle: Oracle, seed: int) -> None:
    check(oracle, TABLES, OPERATORS, history(seed), (11, 24, 41, 59), epochs=(7, 8, 30, 44), workers=2)


FILES = sorted((Path(__file__).parent / "slt").glob("*.slt"))
SHORT = "joins"
"""The file that every run reads."""


@pytest.mark.parametrize(
    "file", [pytest.param(one, id=one.stem, marks=[] if one.stem == SHORT else pytest.mark.slow) for one in FILES]
)
def test_a_file_has_the_rows_that_it_shows(oracle: Oracle, file: Path, update_golden: bool) -> None:
    """And Spark has them, where it knows the construct, too."""
    records = read_records(file.read_text("utf-8"))
    made = script(records)
    for record, program in made.refused:
        with pytest.raises(ProgramError) as caught:
            oracle.build(program, f"{file.name}:{record.line}")
        assert record.head in str(caught.value), f"{file.name}:{record.line}"
    app = oracle.build(made.program, file.name)
    rows: dict[int, list[str]] = {}
    with testing.run(app, epochs=sorted({one.time for one in made.asked})[::2]) as run:
        for name, updates in made.changes.items():
            run.update(name, updates)
        run.finish()
        for one in made.asked:
            types = [str(spark_of(field.type)) for field in app.views[one.view].node.schema.fields]
            rows[one.record.line] = shown(Counter(run.counts(one.view, at=one.time)), types)
            if not any(word in one.record.text for word in OURS) and "ours" not in one.record.head.split():
                with oracle.snapshot(tables_at(app, made.changes, one.time)):
                    oracle.declare(made.program)
                    wanted = oracle.answer(one.record.text)
                assert rows_at(run, one.view, one.time) == wanted, f"{file.name}:{one.record.line}"
    if update_golden:
        file.write_text(rewritten(file.read_text("utf-8"), records, rows), "utf-8")
    for one in () if update_golden else made.asked:
        assert rows[one.record.line] == list(one.record.wanted), f"{file.name}:{one.record.line}"


OURS = ("MUTUALLY", "data_time")
"""Words of queries that Spark does not know."""


@pytest.mark.parametrize("queries", [5, pytest.param(BATCH, marks=pytest.mark.slow)])
def test_random_queries_have_the_rows_of_spark(oracle: Oracle, queries: int) -> None:
    outcome = Outcome()
    compare(oracle, 1, range(queries), outcome)
    assert not outcome.findings, str(outcome)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_thousand_random_queries_have_the_rows_of_spark(oracle: Oracle) -> None:
    outcome = Outcome()
    for first in range(0, 2000, BATCH):
        compare(oracle, 1, range(first, first + BATCH), outcome)
    assert not outcome.findings, str(outcome)
    assert outcome.refused.total() <= outcome.queries // 20, str(outcome)
