"""Edges of SQL where a plausible translation is wrong: each query has Spark's rows while its tables change."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import ArithmeticException

from tests.oracle.model import Change
from tests.sql.snapshots import Oracle, check, tables_at
from vernier.operators import testing
from vernier.operators.errors import ArithmeticOverflow, ProgramError
from vernier.service.config.programs import Program, compiled

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TABLES = """
CREATE TABLE t (k BIGINT, s STRING, f DOUBLE);
CREATE TABLE u (k BIGINT, w BIGINT NOT NULL);
"""
CHANGES: dict[str, list[Change]] = {
    "t": [
        ((1, " a ", 0.5), 1, 1),
        ((2, "b", -2.25), 1, 2),
        ((None, "b", 3.125), 1, 1),
        ((None, " a ", None), 1, 1),
        ((3, None, 1.5), 1, 1),
        ((2, "xbx", -2.25), 2, 1),
        ((2, "b", -2.25), 3, -1),
        ((4, "", 1e9), 3, 1),
        ((-7, "xx", 1.0), 4, 1),
        ((2**62, "y", 1.0), 5, 1),
        ((-(2**63), "z", 1.0), 5, 1),
    ],
    "u": [((1, 5), 1, 1), ((2, 6), 1, 1), ((None, 7), 2, 1), ((3, 8), 2, 1), ((4, -9), 3, 1)],
}
WINDOWS = {
    "rank_of_key": "SELECT k, s, rank() OVER (PARTITION BY k ORDER BY k) AS r FROM t",
    "rank_of_keys": "SELECT k, s, dense_rank() OVER (PARTITION BY k, s ORDER BY s DESC, k) AS r FROM t",
    "rank_of_constant": "SELECT k, s, rank() OVER (ORDER BY 1) AS r, dense_rank() OVER (ORDER BY 'x') AS d FROM t",
    "rank_of_constants": "SELECT k, rank() OVER (PARTITION BY s ORDER BY 1 + 1, s) AS r FROM t",
    "rank_of_null": "SELECT k, rank() OVER (PARTITION BY s ORDER BY CAST(NULL AS INT)) AS r FROM t",
    "sum_of_peers": "SELECT k, sum(w) OVER (PARTITION BY k ORDER BY k) AS r, count(*) OVER (ORDER BY 1) AS n FROM u",
    "lead_backwards": "SELECT w, lead(w, -1, 77) OVER (ORDER BY w) AS a, lag(w, -1, 77) OVER (ORDER BY w) AS b FROM u",
    "lead_by_name": "SELECT w, lead(w) OVER (ORDER BY w) AS a, lead(w, 2) OVER (ORDER BY w) AS b, "
    "lead(w, 0) OVER (ORDER BY w) AS c, lag(w, 2) OVER (ORDER BY w) AS d FROM u",
}
EXPRESSIONS = {
    "pmod": "SELECT w, pmod(w, 3) AS a, pmod(w, -3) AS b, pmod(-w, 3) AS c, pmod(-w, -3) AS d, pmod(w, w) AS e, "
    "pmod(CAST(w AS DOUBLE), -2.5D) AS f, pmod(CAST(w AS DECIMAL(10, 1)), -2.5) AS g FROM u",
    "pmod_largest": "SELECT k, pmod(k, 9223372036854775807) AS a FROM t",
    "trims": "SELECT k, trim(s) AS a, ltrim(s) AS b, rtrim(s) AS c, trim(BOTH 'x' FROM s) AS d, "
    "trim(LEADING 'x' FROM s) AS e, rtrim('x', s) AS f, trim(s, s) AS g FROM t",
    "shifts": "SELECT k, shiftright(k, 1) AS a, shiftright(k, 63) AS b, shiftright(k, 65) AS c, "
    "shiftright(k, -1) AS d, shiftright(k, 0) AS e, shiftright(k, 64) AS f, k >> 62 AS g FROM t",
    "narrow_shifts": "SELECT w, shiftright(CAST(w AS INT), 1) AS a, shiftright(CAST(w AS INT), 33) AS b FROM u",
}
FLOATS = {
    "whole": "SELECT k, floor(f) AS a, ceil(f) AS b, floor(f * 1e300D) AS c, floor(-f) AS d, isnan(f) AS e FROM t",
    "decimals": "SELECT k, CAST(f AS DECIMAL(20, 3)) AS a FROM t",
    "spread": "SELECT k, var_pop(f) AS a, stddev_samp(f) AS b FROM t GROUP BY k",
}
DATES = {
    "dates": "SELECT date_format(timestamp_micros(w * 400000000123456), 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS a, "
    "date_format(timestamp_millis(w * 1234567890), 'yy/M/d H:m:s') AS b, date_format(timestamp_millis(w), '') AS e, "
    "date_format(timestamp_millis(-w), \"d'th of' MM, ''yyyy'' S\") AS c, "
    "date_format(DATE '2024-02-09', 'dd.MM.') AS d FROM u",
    "parts": "SELECT s, split_part(s, 'x', 1) AS a, split_part(s, 'x', 2) AS b, split_part(s, 'x', -1) AS c, "
    "split_part(s, 'x', -3) AS d, split_part(s, '', 1) AS e, split_part(s, '', 2) AS f, split_part(s, 'bx', 2) AS g, "
    "split_part(s, ' ', 3) AS h, split_part('1.2.3', '.', 2) AS i, split_part('a|\\\\b', '\\\\', 2) AS j FROM t",
}
FIRSTS = {
    name: "SELECT * FROM (SELECT k, s, f, row_number() OVER (PARTITION BY s ORDER BY f DESC, k) AS n FROM t) "
    f"WHERE {test}"
    for name, test in (
        ("two", "n <= 2"), ("below", "n < 3 AND k IS NOT NULL"), ("turned", "2 >= n AND n > 1"), ("second", "n = 2"),
        ("one", "n = 1"), ("none", "n < 1"), ("either", "n <= 1 OR k = 2"), ("of_all", "n <= 5 AND n <= 1"),
    )
} | {
    "best_numbers": "SELECT * FROM (SELECT w, row_number() OVER (ORDER BY w DESC) AS n, "
    "row_number() OVER (ORDER BY w DESC) AS m FROM u) WHERE n <= 2 AND m <= 1",
    "with_sum": "SELECT * FROM (SELECT w, row_number() OVER (ORDER BY w) AS n, sum(w) OVER (ORDER BY w) AS x FROM u) "
    "WHERE n <= 2",
}  # fmt: skip
NEAR = "PARTITION BY k ORDER BY w"
FRAMES = {
    "extremes": f"SELECT k, w, min(w) OVER ({NEAR} ROWS 1 PRECEDING) AS a, max(w) OVER (ORDER BY w ROWS BETWEEN 1 "
    "FOLLOWING AND 2 FOLLOWING) AS b, min(k) OVER (ORDER BY w DESC ROWS UNBOUNDED PRECEDING) AS c, max(k) OVER "
    "(ORDER BY w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS d FROM u",
    "ends": "SELECT k, w, first_value(k) OVER (ORDER BY w ROWS 1 PRECEDING) AS a, last_value(w) OVER (ORDER BY w DESC "
    "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS b, nth_value(w, 2) OVER (ORDER BY w) AS c, last_value(k) OVER "
    "(ORDER BY w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS d FROM u",
    "distances": "SELECT k, w, sum(w) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS a, count(*) OVER "
    "(ORDER BY k DESC RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING) AS b, min(w) OVER (ORDER BY w RANGE BETWEEN "
    "3 PRECEDING AND 1 FOLLOWING) AS c, first_value(w) OVER (ORDER BY w DESC RANGE BETWEEN 2 PRECEDING AND "
    "CURRENT ROW) AS d FROM u",
    "doubles": "SELECT k, sum(f) OVER (ORDER BY k, f, s ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS a, "
    "var_pop(f) OVER (ORDER BY k, f, s ROWS 2 PRECEDING) AS b FROM t",
    "distances_of_the_partition": "SELECT k, w, count(*) OVER (PARTITION BY k ORDER BY k RANGE BETWEEN 1 FOLLOWING AND "
    "2 FOLLOWING) AS a, sum(w) OVER (PARTITION BY k ORDER BY k RANGE 1 PRECEDING) AS b FROM u",
    "distances_of_constants": "SELECT w, count(*) OVER (ORDER BY c RANGE INTERVAL 10 SECONDS PRECEDING) AS a, count(*) "
    "OVER (ORDER BY c DESC RANGE BETWEEN INTERVAL 9 SECONDS PRECEDING AND INTERVAL 1 SECOND PRECEDING) AS b, sum(w) "
    "OVER (ORDER BY n RANGE BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS d FROM (SELECT w, TIMESTAMP '2024-01-01 00:00:19' "
    "AS c, CAST(NULL AS BIGINT) AS n FROM u)",
    "lists": "SELECT w, size(collect_set(k) OVER ()) AS a, size(collect_list(w) OVER (PARTITION BY 1)) AS b FROM u",
    "folded": "SELECT k, count(CAST(NULL AS INT)) OVER (ORDER BY w RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING) AS a, "
    "max(CAST(NULL AS STRING)) OVER (PARTITION BY k) AS b, count_if(3 IS NULL) OVER (ORDER BY w) AS d FROM u",
    "peers": "SELECT k, s, max(s) OVER (ORDER BY k RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS a, "
    "min(f) OVER (ORDER BY k DESC) AS b, collect_list(k) OVER (ORDER BY k RANGE CURRENT ROW) AS c FROM t",
    "copies": "SELECT lag(s) OVER (PARTITION BY k ORDER BY f) AS a, lead(f) OVER (PARTITION BY k ORDER BY f) AS b, "
    "row_number() OVER (PARTITION BY k ORDER BY f) AS c FROM t WHERE k = 2",
}
READS = {
    "crossed_twice": "SELECT count(*) AS n FROM u a CROSS JOIN u b CROSS JOIN u c",
    "exploded_after_pruning": "SELECT x FROM (SELECT q.w AS a, y.x AS x FROM u q LATERAL VIEW OUTER explode(array(1, "
    "q.k)) y AS x WHERE q.w > 5 OR q.k < q.w)",
    "sessions_of_nothing": "SELECT e FROM (SELECT session_window.end AS e, k FROM (SELECT timestamp_millis(w) AS ts, k "
    "FROM u) GROUP BY session_window(ts, '5 seconds'), k) g JOIN t ON g.k = 0 WHERE g.k >= 4",
    "rollup_of_a_union": "SELECT max(a.w) AS m, count(*) AS n FROM (SELECT k > 1 AS b, k FROM u UNION ALL SELECT "
    "nullif(true, true) AS b, k FROM t) q FULL JOIN u a ON q.k <=> a.k WHERE a.w > 4 GROUP BY ROLLUP (q.b AND q.b)",
    "explodes_copied": "SELECT min(1) AS m FROM (SELECT g FROM (SELECT y.x AS g, q.k AS v FROM t q LATERAL VIEW OUTER "
    "explode(split(q.s, 'b')) y AS x WHERE q.f > 0 OR q.f <=> q.f) GROUP BY g, v) p JOIN LATERAL (SELECT sum(c.k) AS z "
    "FROM t c WHERE c.s = p.g) ON true",
    "pivot_of_a_constant": "SELECT n0_n, n1_s FROM (SELECT k, 2 AS p, w FROM u) PIVOT (sum(w) AS s, count(*) AS n "
    "FOR p IN (1 AS n0, 2 AS n1))",
}
PATTERNS = {
    "signs": "SELECT s, s RLIKE 'a.b' AS a, s RLIKE '(?s)a.b' AS b, s RLIKE 'a(?s:.)b' AS c, s RLIKE '^a\\\\sb' AS d, "
    "s RLIKE 'a\\\\Sb' AS e, s RLIKE 'a[\\\\s]b' AS f, s RLIKE 'a[\\\\s\\\\S]b' AS g, s RLIKE 'a[.$]b' AS h FROM p",
    "ends": "SELECT s, s RLIKE 'b$' AS a, s RLIKE '(a|b$)' AS b, s RLIKE 'b\\\\z' AS c, s RLIKE '^.b$' AS d FROM p",
    "parts": "SELECT regexp_replace(s, '.', 'x') AS a, regexp_extract(s, '(a.*)', 1) AS b, split(s, '\\\\s') AS c "
    "FROM p",
}
FOLDED = ("k", "K", "\u212a", "s", "S", "\u017f", "é", "É", "kS", "ſK", "Ks-", "z")
WITHOUT_CASE = {
    "tests": "SELECT s, s RLIKE '(?i)^k' AS a, s RLIKE '(?i:s)' AS b, s RLIKE '(?i)[j-l]' AS c, "
    "s RLIKE '(?i)[^ks]' AS d, s RLIKE '(?i)k(?-i)S' AS e, s RLIKE '(?i)é' AS f, "
    "s RLIKE '(?i)\\\\Qks\\\\E' AS g FROM p",
    "parts": "SELECT s, regexp_replace(s, '(?i)[ks]', '<$0>') AS a, regexp_extract(s, '(?i)(k)(s)?', 1) AS b, "
    "split(s, '(?i)s') AS c, regexp_replace(s, 'x*k*', '') AS d, regexp_replace(s, '^k*', '-') AS e FROM p",
}
SIGNS = (" ", "\n", "\r", "\x0b", "\x85", "\u2028", "\u2029", "\f", "\r\n", "\x1c", "\xa0", "$", ".", "")
SPREADS = {
    "far": "SELECT stddev_samp(1000000000 + w) AS a, var_pop(1000000000 + w) AS b, variance(1e9 + w) AS c FROM u",
    "groups": "SELECT s, var_pop(f + 1e9D) AS a, stddev_pop(f) AS b, var_samp(f) AS c, stddev(1e7D + f) AS d FROM t "
    "GROUP BY s",
    "filtered": "SELECT var_pop(1e9D + w) FILTER (WHERE w > 5) AS a, var_pop(DISTINCT 1e9D + w % 2) AS b, "
    "stddev(CAST(w AS DECIMAL(12, 2)) + 100000000.25) AS c FROM u",
    "over": "SELECT k, var_pop(1e9D + w) OVER () AS a FROM u",
    "none": "SELECT var_pop(w) AS a, var_samp(w) AS b FROM u WHERE w > 1000",
}
SINGLE = {
    "grouped": "SELECT k, (SELECT max(w) FROM u WHERE u.k = t.k GROUP BY u.k) AS x FROM t",
    "distinct": "SELECT k, (SELECT DISTINCT u.k FROM u WHERE u.k = t.k) AS x FROM t",
    "first": "SELECT k, (SELECT w FROM u WHERE u.k = t.k ORDER BY w LIMIT 1) AS x, "
    "(SELECT w FROM u ORDER BY w DESC LIMIT 1) AS y FROM t",
    "of_groups": "SELECT k, (SELECT n FROM (SELECT k, count(*) AS n FROM u GROUP BY k) g WHERE g.k = t.k) AS x FROM t",
    "having": "SELECT k, (SELECT max(w) FROM u HAVING count(*) > 2) AS x, (SELECT 7) AS y FROM t",
    "numbered": "SELECT k, (SELECT w FROM (SELECT w, row_number() OVER (ORDER BY w) AS n FROM u) WHERE n = 1) AS x "
    "FROM t",
    "several_in_filter": "SELECT k FROM t WHERE k < (SELECT max(w) FROM u) AND k > (SELECT min(w) FROM u)",
}
BESIDE = {
    "after": "SELECT (SELECT max(w) FROM u) AS a, m AS b FROM (SELECT min(k) AS m, count(*) AS n FROM t)",
    "after_groups": "SELECT n, (SELECT w FROM u ORDER BY w LIMIT 1) AS x, s FROM (SELECT s, count(*) AS n FROM t "
    "GROUP BY s)",
    "of_all_rows": "SELECT count(*) + (SELECT count(*) FROM u) AS n, (SELECT max(w) FROM u WHERE w > 6) AS m FROM t "
    "WHERE k > 3",
    "within": "SELECT s, count(*) FILTER (WHERE k < (SELECT max(w) FROM u)) AS n, max(k + (SELECT count(*) FROM u)) AS "
    "m, count(*) + (SELECT count(*) FROM u) AS c, count(DISTINCT k % (SELECT max(w) FROM u)) AS d FROM t GROUP BY s",
    "by": "SELECT k < (SELECT max(w) FROM u) AS small, count(*) AS n FROM t GROUP BY k < (SELECT max(w) FROM u)",
    "distinct": "SELECT DISTINCT s, k > (SELECT min(w) FROM u) AS x FROM t",
    "after_distinct": "SELECT s, (SELECT max(w) FROM u) AS x FROM (SELECT DISTINCT s FROM t)",
    "having": "SELECT s, count(*) AS n FROM t GROUP BY s HAVING count(*) + 2 > (SELECT count(*) FROM u)",
    "in": "SELECT m, s IN (SELECT 'b' FROM u WHERE w > 7) AS a, s NOT IN (SELECT 'x' FROM u) AS b FROM (SELECT s, "
    "min(k) AS m FROM t GROUP BY s)",
    "in_of_all": "SELECT 7 IN (SELECT w FROM u) AS a, 'y' NOT IN (SELECT s FROM t WHERE k > 3) AS b, n FROM (SELECT "
    "count(*) AS n FROM t)",
    "exists": "SELECT g.k, EXISTS (SELECT 1 FROM u WHERE u.k = g.k AND u.w > 5) AS a, n FROM (SELECT k, count(*) AS n "
    "FROM t GROUP BY k) g",
    "sessions": "SELECT e, n, (SELECT max(k) FROM u) AS x FROM (SELECT session_window.end AS e, count(*) AS n FROM "
    "(SELECT timestamp_millis(w * 1000) AS ts FROM u) GROUP BY session_window(ts, '2 seconds'))",
}
SEVERAL = {
    "all rows": "SELECT k, (SELECT w FROM u) AS x FROM t",
    "rows of a key": "SELECT k, (SELECT w FROM u WHERE u.k = t.k) AS x FROM t",
    "in a filter": "SELECT k FROM t WHERE k > (SELECT w FROM u WHERE u.k = t.k)",
    "several groups": "SELECT k, (SELECT max(w) FROM u GROUP BY k) AS x FROM t",
    "groups of more": "SELECT k, (SELECT max(w) FROM u WHERE u.k = t.k GROUP BY w % 2) AS x FROM t",
    "the first two": "SELECT k, (SELECT w FROM u ORDER BY w LIMIT 2) AS x FROM t",
    "several constants": "SELECT k, (SELECT c FROM VALUES (1), (2) AS v (c)) AS x FROM t",
    "a union": "SELECT k, (SELECT max(w) FROM u UNION ALL SELECT 1) AS x FROM t",
}


@pytest.mark.parametrize(
    "queries",
    [WINDOWS, FIRSTS, FRAMES, EXPRESSIONS, DATES, SPREADS, SINGLE, BESIDE, READS],
    ids=["over", "firsts", "frames", "values", "dates", "spread", "single", "beside", "reads"],
)
def test_queries_have_sparks_rows(oracle: Oracle, queries: dict[str, str]) -> None:
    changes = CHANGES
    if (
        queries is WINDOWS or queries is SPREADS or queries is FRAMES
    ):  # sums of the largest integers leave their type, in Spark, too
        changes = {**CHANGES, "t": [one for one in CHANGES["t"] if abs(one[0][0] or 0) < 2**40]}
    check(oracle, TABLES, queries, changes, (0, 1, 3, 5), epochs=(2, 4))


@pytest.mark.parametrize("pattern", ["EEE", "yyy", "MMM d", "a", "yyyy[MM]", "SSSSSSSSSS"])
def test_patterns_of_dates_that_need_a_language_are_refused(oracle: Oracle, pattern: str) -> None:
    query = f"SELECT date_format(timestamp_millis(w), '{pattern}') AS x FROM u"
    with pytest.raises(ProgramError, match=r":38: date_format\(\) takes"):
        oracle.build(f"{TABLES}CREATE MATERIALIZED VIEW v AS {query};")


def test_regular_expressions_are_javas(oracle: Oracle) -> None:
    rows: list[Change] = [((f"a{sign}b{end}",), 1, 1) for sign in SIGNS for end in ("", *SIGNS[:4], "\r\n", "\n\n")]
    check(oracle, "CREATE TABLE p (s STRING);", PATTERNS, {"p": rows}, (1,))


def test_only_letters_of_ascii_ignore_case(oracle: Oracle) -> None:
    """Java's flag i does not know the long s and the Kelvin sign."""
    rows: list[Change] = [((text,), 1, 1) for text in FOLDED]
    check(oracle, "CREATE TABLE p (s STRING);", WITHOUT_CASE, {"p": rows}, (1,))


def test_lookups_need_the_key_that_messages_have(oracle: Oracle, tmp_path: Path) -> None:
    """A lookup by a declared key has one row only if the source takes upserts by it."""
    file = tmp_path / "shop.sql"
    table = "CREATE TABLE c (id BIGINT, name STRING) WITH (format = 'upsert', key = 'id');\n"
    view = "CREATE VIEW d AS SELECT id, upper(name) AS name FROM c;\n"
    lookup = "CREATE MATERIALIZED VIEW v AS SELECT k, (SELECT name FROM d WHERE d.id = t.k) AS name FROM t;"
    text = oracle.front.packed(f"CREATE TABLE t (k BIGINT);\n{table}{view}{lookup}", str(file))
    programs = [Program(str(file), text)]
    compiled(programs, keep_sources=False, upserts={"c": ["id"]})
    for given in ({}, {"c": ["name"]}):
        with pytest.raises(ProgramError, match=r"a lookup depends on the key \(id\) of table 'c'") as caught:
            compiled(programs, keep_sources=False, upserts=given)
        assert caught.value.where.line == 2
    with pytest.raises(ProgramError, match="may have several rows"):
        oracle.build(f"CREATE TABLE t (k BIGINT);\n{table.replace('upsert', 'json')}{view}{lookup}")
    single = "CREATE MATERIALIZED VIEW v AS SELECT k, (SELECT max(name) FROM c WHERE c.id = t.k) AS name FROM t;"
    text = oracle.front.packed(f"CREATE TABLE t (k BIGINT);\n{table}{single}", str(file))
    compiled([Program(str(file), text)], keep_sources=False, upserts={})


def test_a_lookup_by_a_declared_key_has_one_row(oracle: Oracle) -> None:
    tables = (
        "CREATE TABLE t (k BIGINT);\nCREATE TABLE c (id BIGINT, name STRING) WITH (format = 'upsert', key = 'id');\n"
    )
    queries = {
        "by_key": "SELECT k, (SELECT name FROM c WHERE c.id = t.k) AS name FROM t",
        "through": "SELECT k, (SELECT upper(name) FROM (SELECT * FROM c WHERE name <> 'b') AS d WHERE d.id = t.k) AS n "
        "FROM t",
        "filtered": "SELECT k FROM t WHERE (SELECT name FROM c WHERE c.id = t.k) = 'a'",
    }
    changes: dict[str, list[Change]] = {
        "t": [((1,), 1, 1), ((2,), 1, 2), ((None,), 1, 1), ((3,), 2, 1)],
        "c": [((1, "a"), 1, 1), ((2, "b"), 1, 1), ((2, "b"), 2, -1), ((2, "a"), 2, 1), ((3, None), 3, 1)],
    }
    check(oracle, tables, queries, changes, (1, 2, 3), epochs=(2,))
    with pytest.raises(ProgramError, match="may have several rows"):
        oracle.build(f"{tables}CREATE MATERIALIZED VIEW a AS SELECT (SELECT id FROM c WHERE c.name = 'a') AS x FROM t;")


def test_a_scalar_subquery_of_several_rows_is_refused(oracle: Oracle) -> None:
    for name, query in SEVERAL.items():
        with pytest.raises(ProgramError, match=r"may have several rows.*LIMIT 1.*join") as caught:
            oracle.build(f"{TABLES}CREATE MATERIALIZED VIEW a AS {query};")
        assert caught.value.where.line, name


def test_doubles_that_are_no_numbers(oracle: Oracle) -> None:
    values = (float("nan"), float("inf"), float("-inf"), 1.5, -1.5, None)
    rows: list[Change] = [((k, "", value), 1 + k, 1) for k, value in enumerate(values)]
    queries = {**FLOATS, "spread": FLOATS["spread"].replace("var_pop(f)", "var_pop(f) IS NULL")}
    check(oracle, TABLES, queries, {"t": rows, "u": []}, (1, 3, 7), epochs=(2,))


def test_a_double_that_is_no_integer_stops_the_program_as_it_stops_spark(oracle: Oracle) -> None:
    query = "SELECT CAST(f AS BIGINT) AS a FROM t"
    app = oracle.build(f"{TABLES}CREATE MATERIALIZED VIEW a AS {query};")
    rows: list[Change] = [((1, "", float("nan")), 1, 1)]
    with (
        oracle.snapshot(tables_at(app, {"t": rows, "u": []}, 1)),
        pytest.raises(ArithmeticException, match="CAST_OVERFLOW"),
    ):
        oracle.answer(query)
    with testing.run(app) as run:
        run.update("t", rows)
        with pytest.raises(ArithmeticOverflow):
            run.finish()
