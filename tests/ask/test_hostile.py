"""Hostile questions: each is refused or bounded, and the sidecar's other answers come meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.sidecar.builder import StateBuilder
from tests.sidecar.process import SidecarProcess, running
from vernier.service.client.client import Client, connect
from vernier.service.client.errors import ServerError

REFUSED = [
    "COPY (SELECT 1) TO 'out.csv'",
    "ATTACH 'other.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '100GB'",
    "RESET threads",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE TABLE t (n INT)",
    "DROP VIEW reach",
    "DELETE FROM reach",
    "EXPORT DATABASE 'there'",
    "EXPLAIN SELECT 1",
    "SHOW TABLES",
    "DESCRIBE reach",
    "SELECT 1; SELECT 2",
    "PREPARE p AS SELECT 1",
    "BEGIN",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('https://localhost/x')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('reach')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT (SELECT max(value) FROM duckdb_settings())",
    "SELECT random()",
    "SELECT node FROM reach ORDER BY uuid()",
    "SELECT list_transform([1], lambda x: x + random())",
    "SELECT now()",
    "SELECT current_date",
    "SELECT CURRENT_TIMESTAMP",
    "SELECT ago(INTERVAL 1 DAY)",
    "SELECT age(TIMESTAMP '2020-01-01')",
    "SELECT current_setting('memory_limit')",
    "SELECT nextval('s')",
    "SELECT sleep_ms(100000)",
    "SELECT write_log('x')",
    "SELECT * FROM reach TABLESAMPLE 10%",
    "SELECT * FROM reach USING SAMPLE 3",
    "SELECT * FROM reach AT (VERSION => 1)",
    "FROM (PIVOT reach ON node USING count(*))",
    "SELECT pg_postmaster_start_time()",
    "SELECT pg_catalog.pg_conf_load_time()",
    "SELECT current_localtimestamp()",
    'SELECT "main".Current_LocalTime()',
    "SELECT localtime",
    "SELECT pg_sleep(1)",
    "SELECT get_block_size('memory')",
    "SELECT getvariable('x')",
    "SELECT json_serialize_plan('SELECT now()')",
    "SELECT version()",
]
UNKNOWN = [
    "'/etc/passwd'",
    "'https://localhost/x.parquet'",
    "duckdb_settings",
    "sqlite_master",
    "kept.t1",
    "pg_catalog.pg_tables",
    "memory.main.reach",
    '"other.reach"',
]
HIDDEN = [
    'WITH "kept.t1" AS (SELECT 1) SELECT * FROM kept.t1 AS OF 12',
    "WITH sqlite_master AS (SELECT 1) SELECT * FROM main.sqlite_master",
    "WITH sqlite_master AS (SELECT 1) SELECT * FROM MAIN.sqlite_master",
    'WITH "information_schema.tables" AS (SELECT 1) SELECT * FROM information_schema.tables',
    "SELECT (WITH duckdb_tables AS (SELECT 1 AS n) SELECT n FROM duckdb_tables), (SELECT count(*) FROM duckdb_tables)",
    "(WITH duckdb_tables AS (SELECT 1) FROM duckdb_tables) UNION ALL (SELECT count(*) FROM duckdb_tables)",
    "WITH duckdb_tables AS (SELECT * FROM duckdb_tables) SELECT * FROM duckdb_tables",
    "WITH a AS (FROM sqlite_master), sqlite_master AS (SELECT 1) SELECT * FROM a",
    (
        "WITH RECURSIVE sqlite_master AS (SELECT sql FROM sqlite_master UNION ALL SELECT 'x' WHERE false) "
        "SELECT * FROM sqlite_master"
    ),
    'WITH "duc\u212adb_tables" AS (SELECT 1) SELECT * FROM duckdb_tables',
    "WITH x AS (SELECT 1) SELECT * FROM kept.x",
    "WITH x AS (SELECT 1) SELECT * FROM main.x",
    "SELECT 1 ORDER BY (SELECT count(*) FROM (WITH z AS (SELECT 1) FROM z), duckdb_tables)",
]
"""Questions with a common table expression that is not what a name in them means."""
ENDLESS = {
    "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range % 7 = b.range % 5": {
        "query_timeout",
        "query_memory",
    },
    "SELECT count(*) FROM reach a, reach b, reach c, reach d, reach e, reach f, reach g, reach h "
    "WHERE hash(a.node + b.node + c.node + d.node + e.node + f.node + g.node + h.node) = 1": {"query_timeout"},
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r": {
        "query_timeout",
        "query_memory",
    },
    "SELECT list(i) FROM range(1000000000000) t(i)": {"query_memory", "query_timeout"},
    "SELECT length(repeat('x', 4000000000))": {"query_memory", "query_failed"},
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000: {"bad_sql", "query_failed", "query_timeout", "sql_refused"},
    "SELECT " + "[" * 3_000 + "1" + "]" * 3_000: {"bad_sql", "query_failed", "query_timeout", "sql_refused"},
    "SELECT " + "-" * 40_000 + "1": {"bad_sql"},
    "SELECT " + "NOT " * 40_000 + "true": {"bad_sql", "query_failed", "query_timeout", "sql_refused"},
}


@pytest.mark.parametrize("question", REFUSED)
def test_what_is_no_question_about_the_views_is_refused(client: Client, question: str) -> None:
    with pytest.raises(ServerError) as caught:
        client.sql(question)
    assert (caught.value.status, caught.value.problem) == (400, "sql_refused"), caught.value


@pytest.mark.parametrize("name", UNKNOWN)
def test_only_views_can_be_read(client: Client, name: str) -> None:
    with pytest.raises(ServerError) as caught:
        client.sql(f"SELECT * FROM {name}")
    assert (caught.value.status, caught.value.problem) == (404, "unknown_view")


@pytest.mark.parametrize("question", HIDDEN)
def test_a_common_table_expression_hides_no_table(client: Client, question: str) -> None:
    client.sql("SELECT * FROM reach")
    with pytest.raises(ServerError) as caught:
        client.sql(question)
    assert (caught.value.status, caught.value.problem) == (404, "unknown_view"), caught.value


def test_two_arguments_of_age_are_no_clock(client: Client) -> None:
    assert client.sql("SELECT age(DATE '2020-01-03', DATE '2020-01-01') AS a") == [{"a": "2 days"}]


@pytest.mark.slow
@pytest.mark.parametrize("question", ENDLESS, ids=range(len(ENDLESS)))
def test_endless_questions_end(sidecar: SidecarProcess, client: Client, question: str) -> None:
    with pytest.raises(ServerError) as caught:
        client.sql(question)
    assert caught.value.problem in ENDLESS[question], caught.value
    assert client.sql("SELECT count(*) AS n FROM reach") == [{"n": 20}]


def test_other_answers_come_meanwhile(sidecar: SidecarProcess, client: Client) -> None:
    """While all workers are busy with questions that end by time, rows, status and health are answered."""
    problems: list[str] = []

    def ask() -> None:
        with connect(sidecar.url) as own, pytest.raises(ServerError) as caught:
            own.sql("SELECT count(*) FROM range(100000000000) t(i) WHERE hash(i) = 1")
        problems.append(caught.value.problem)

    hostile = [threading.Thread(target=ask) for _ in range(3)]
    for one in hostile:
        one.start()
    answered, slowest = 0, 0.0
    while any(one.is_alive() for one in hostile):
        begun = time.perf_counter()
        assert client.key("reach", 7) == [{"node": 7}]
        assert client.views()[0]["rows"] == 20
        slowest = max(slowest, time.perf_counter() - begun)
        answered += 1
    assert problems == ["query_timeout"] * 3
    assert answered > 20
    assert slowest < 2
    assert client.sql("SELECT count(*) AS n FROM reach") == [{"n": 20}]


def test_a_worker_that_dies_costs_its_question_only(sidecar: SidecarProcess, client: Client) -> None:
    client.sql("SELECT 1 AS n")
    workers = psutil.Process(sidecar.process.pid).children()
    assert workers
    environment = workers[0].environ()
    assert not [name for name in environment if name.startswith(("VERNIER_", "AWS_"))]
    for worker in workers:
        worker.kill()
    with pytest.raises(ServerError) as caught:
        client.sql("SELECT 1 AS n")
    assert (caught.value.status, caught.value.problem) == (422, "query_failed")
    assert client.sql("SELECT 1 AS n") == [{"n": 1}]


STARTED = """
import socket, sys
from vernier.service.ask.frames import Channel, Read, Run
from vernier.service.ask.worker import Worker

ours, theirs = socket.socketpair()
worker = Worker(Channel(ours), 64)
before = set(sys.modules)
worker._reads(Read("SELECT 1 AS n AS OF 3", 9.0))
for form in ("json", "ndjson", "csv", "arrow"):
    worker._database.run(Run("SELECT 1 AS n, [1.5] AS l, DATE '2020-01-01' AS d", 3, [], form, 9, 9_999, 9.0))
print(sorted(set(sys.modules) - before))
"""


def test_the_first_question_loads_nothing_more() -> None:
    """What it loaded would count towards http.query_ms, and on a slow machine no question would be answered."""
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_workers_end_with_their_sidecar(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", {})
    builder.commit(10)
    with running(builder.path, "--log-level", "error") as own:
        with connect(own.url) as client:
            assert client.sql("SELECT 1 AS n") == [{"n": 1}]
        workers = psutil.Process(own.process.pid).children()
        assert len(workers) == 1
        own.process.kill()
        gone, alive = psutil.wait_procs(workers, timeout=20)
        assert (len(gone), alive) == (1, [])
    builder.close()


def test_reading_needs_a_token(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path / "state", {})
    builder.commit(10)
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-a-reader\n")
    options = ("--set", f"http.read_tokens_file={tokens}", "--set", "sql.workers=0")
    with running(builder.path, "--log-level", "error", *options) as own:
        body = {"sql": "SELECT 1"}
        bare = httpx.post(f"{own.url}/v1/sql", json=body, trust_env=False)
        assert (bare.status_code, bare.json()["code"]) == (401, "token_missing")
        with connect(own.url, token="a-token-of-a-reader") as client, pytest.raises(ServerError) as caught:
            client.sql("SELECT 1")
        assert (caught.value.status, caught.value.problem) == (409, "sql_off")
    builder.close()
