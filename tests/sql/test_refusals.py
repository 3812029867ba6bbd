"""Wrong programs in SQL, and what is said of each: where it is wrong and what to write instead (a golden file)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql.snapshots import Oracle
from vernier.operators.errors import ProgramError

pytestmark = pytest.mark.spark

HEAD = "CREATE TABLE t (k BIGINT, v DECIMAL(12, 2), s STRING, ts TIMESTAMP);\nCREATE TABLE u (k BIGINT);\n"
WRONG = {
    "a column that does not exist": HEAD + "CREATE MATERIALIZED VIEW a AS\n  SELECT k, prize\n  FROM t;",
    "a table that does not exist": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k FROM tt;",
    "a word that is not SQL": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k FORM t;",
    "types that do not fit": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT ts + v AS x FROM t;",
    "the present time": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k FROM t\nWHERE ts < current_timestamp();",
    "today": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, current_date() AS d FROM t;",
    "chance": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k FROM t WHERE rand() < 0.5;",
    "a name by chance": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT uuid() AS id, k FROM t;",
    "data_time as a value": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, data_time() AS now FROM t;",
    "data_time in arithmetic": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k FROM t WHERE data_time() <> ts;",
    "the first row": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, first(s) AS f FROM t GROUP BY k;",
    "a median": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, median(v) AS m FROM t GROUP BY k;",
    "an approximation": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT approx_count_distinct(k) AS n FROM t;",
    "a pivot by two columns": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT * FROM (SELECT k, v, s FROM t) "
    "PIVOT (sum(v) FOR (s, k) IN (('x', 1) AS x));",
    "a frame": HEAD
    + "CREATE MATERIALIZED VIEW a AS SELECT k, var_pop(v) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING) AS x FROM "
    "t;",
    "a frame with an offset on one side": HEAD
    + "CREATE MATERIALIZED VIEW a AS SELECT sum(k) OVER (ORDER BY k RANGE BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING) "
    "AS x FROM t;",
    "a unit that is none": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT trunc(CAST(ts AS DATE), 'Q') AS q FROM t;",
    "an interval times a column": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT ts + k * INTERVAL 1 SECOND AS x FROM t;",
    "the end of a line": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT regexp_replace(s, 'a$', '') AS x FROM t;",
    "a column without a name": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, v + 1 FROM t;",
    "two columns of one name": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT t.k, u.k FROM t, u;",
    "a name declared twice": HEAD + "CREATE VIEW T AS SELECT k FROM u;",
    "no view": HEAD,
    "a query without a name": HEAD + "SELECT k FROM t;",
    "rows as statements": HEAD + "INSERT INTO t VALUES (1, 2, 'x', NULL);",
    "a type that sources do not have": "CREATE TABLE t (k FLOAT);",
    "a list without a type": "CREATE TABLE t (a ARRAY, b BIGINT);",
    "a list of nothing": "CREATE TABLE t (a ARRAY<>);",
    "a struct without fields": "CREATE TABLE t (a STRUCT<>);",
    "a struct without names": "CREATE TABLE t (a STRUCT<BIGINT>);",
    "a struct with a field twice": "CREATE TABLE t (a STRUCT<x: BIGINT, X: BIGINT>);",
    "a decimal that is too long": "CREATE TABLE t (\n  k BIGINT,\n  a DECIMAL(50, 2));",
    "a decimal with too long a fraction": "CREATE TABLE t (a DECIMAL(5, 10));",
    "a comma too many": "CREATE TABLE t (a BIGINT,);",
    "an option given twice": "CREATE TABLE t (k BIGINT) WITH (topic = 'a', topic = 'b');",
    "a primary key": "CREATE TABLE t (k BIGINT PRIMARY KEY);",
    "an option that does not exist": "CREATE TABLE t (k BIGINT) WITH (topik = 'a');",
    "a key that is no column": HEAD + "CREATE MATERIALIZED VIEW a WITH (key = 'kk') AS SELECT k FROM t;",
    "a text that does not end": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT 'x FROM t;",
    "a binding without columns": HEAD
    + "CREATE MATERIALIZED VIEW a AS WITH MUTUALLY RECURSIVE r AS (SELECT k FROM t) SELECT * FROM r;",
    "a binding of another type": HEAD
    + "CREATE MATERIALIZED VIEW a AS\n  WITH MUTUALLY RECURSIVE r (k STRING) AS (SELECT k FROM t) SELECT * FROM r;",
    "WITH RECURSIVE and UNION": HEAD
    + "CREATE MATERIALIZED VIEW a AS WITH RECURSIVE r (n) AS (SELECT k FROM u UNION SELECT n + 1 FROM r) "
    "SELECT * FROM r;",
    "a recursive step with an aggregate": HEAD
    + "CREATE MATERIALIZED VIEW a AS WITH RECURSIVE r (n) AS (SELECT k FROM u UNION ALL SELECT max(n) FROM r) "
    "SELECT * FROM r;",
    "a function that Spark does not have": HEAD
    + "CREATE MATERIALIZED VIEW a AS SELECT k, summ(v) AS m FROM t GROUP BY k;",
    "a window of another system": HEAD
    + "CREATE MATERIALIZED VIEW a AS SELECT count(*) AS n FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR);",
    "a month": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT ts + INTERVAL '1' MONTH AS later FROM t;",
    "null where a number does not fit": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT try_add(k, 1) AS more FROM t;",
    "a cast to null": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT try_cast(v AS INT) AS i FROM t;",
    "a time out of reach": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k FROM t WHERE ts < TIMESTAMP '9999-12-31';",
    "a day out of reach": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, DATE '+10000-01-01' AS d FROM t;",
    "an ASOF JOIN": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT t.k FROM t ASOF JOIN u ON t.k >= u.k;",
    "a column that is called asof": "CREATE TABLE t (asof BIGINT);\n"
    "CREATE MATERIALIZED VIEW a AS SELECT asof, prize FROM t;",
    "a key of a column": "CREATE TABLE t (k BIGINT PRIMARY KEY);\nCREATE MATERIALIZED VIEW a AS SELECT k FROM t;",
    "NULL of no type": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k,\n  CASE WHEN k > 1 THEN NULL END AS x FROM t;",
    "elements in one text": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT concat_ws(',', array(s)) AS x FROM t;",
    "a word of Python's": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k AS class FROM t;",
    "texts of a group in one": HEAD + "CREATE MATERIALIZED VIEW a AS SELECT k, listagg(s, ',') AS x FROM t GROUP BY k;",
}


def test_wrong_programs_say_what_is_wrong(oracle: Oracle, update_golden: bool) -> None:
    shown = []
    for name, program in WRONG.items():
        with pytest.raises(ProgramError) as caught:
            oracle.build(program)
        at = caught.value.where
        assert (at.line and at.column) or name == "no view", f"{name}: {at}"
        shown.append(f"# {name}\n{program.removeprefix(HEAD).strip()}\n----\n{caught.value}\n")
    text = f"{HEAD}\n" + "\n".join(shown)
    golden = Path(__file__).with_name("refusals.txt")
    if update_golden:
        golden.write_text(text, "utf-8")
    assert golden.read_text("utf-8") == text
