"""The functions that questions may use, against DuckDB's own catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from vernier.service.ask import question
from vernier.service.ask.database import Database
from vernier.service.ask.errors import BadSql, QueryFailed, SqlRefused
from vernier.service.ask.frames import Run
from vernier.service.ask.functions import ALLOWED, allowed

REFUSED = """
ago current_date current_localtime current_localtimestamp get_current_time get_current_timestamp now today
transaction_timestamp pg_conf_load_time pg_postmaster_start_time sleep_ms pg_sleep
random setseed gen_random_uuid uuid uuidv4 uuidv7 currval nextval
current_setting getvariable current_query current_query_id current_connection_id current_transaction_id txid_current
current_catalog current_database current_schema current_schemas in_search_path
current_role current_user session_user user inet_client_addr inet_client_port inet_server_addr inet_server_port
json_serialize_plan stats vector_type version write_log
array_to_string_comma_default parse_duckdb_log_message sum_no_overflow
col_description format_pg_type format_type get_block_size map_to_pg_oid obj_description shobj_description
pg_get_constraintdef pg_get_expr pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema
"""
"""The clock; chance and sequences; settings and the session; the engine itself; what is for its own use; the
catalogue."""
PREFIXES = ("__internal_", "has_")
SUFFIXES = ("_is_visible",)
OWN = {"data_time"}
WITHOUT_ARGUMENTS = """
pi count count_star row_number rank rank_dense dense_rank percent_rank cume_dist
+ add array_cat array_concat list_cat list_concat array_zip list_zip array_value list_pack list_value unpivot_list
map map_concat row struct_pack struct_concat struct_insert struct_update union_value
json_array json_object json_quote array_to_json row_to_json to_json
"""
"""What is constant, counts rows, or makes something of any number of parts. Any other function that needs no argument
reads a clock or the like."""


@pytest.fixture(scope="module")
def database() -> Database:
    """One DuckDB."""
    return Database(64)


def catalogue(database: Database, *columns: str) -> list[tuple[Any, ...]]:
    """What DuckDB says about the functions that are no tables."""
    listed = ", ".join(columns)
    return database._main.execute(
        f"SELECT DISTINCT lower(function_name), {listed} FROM duckdb_functions() "
        "WHERE function_type IN ('scalar', 'aggregate', 'macro')"
    ).fetchall()


def test_every_function_was_looked_at(database: Database) -> None:
    """A name that is new in DuckDB appears here: read what it does, then add it to one of the two lists."""
    found = {name for name, _ in catalogue(database, "1")}
    left = {name for name in found if not allowed(name, 2)}
    assert left - set(REFUSED.split()) == {one for one in left if one.startswith(PREFIXES) or one.endswith(SUFFIXES)}
    assert set(REFUSED.split()) <= left
    assert ALLOWED - found <= OWN | {"unnest"}


def test_nothing_allowed_is_known_to_vary(database: Database) -> None:
    for name, stability in catalogue(database, "stability"):
        assert stability in ("CONSISTENT", None) or not allowed(name, 2) or name == "error", name


def test_what_needs_no_arguments_is_constant(database: Database) -> None:
    bare = {name for name, given in catalogue(database, "parameters") if not given and allowed(name, 0)}
    assert bare <= set(WITHOUT_ARGUMENTS.split())


def test_macros_use_allowed_functions_and_no_table(database: Database) -> None:
    macros = [row for row in catalogue(database, "function_type", "macro_definition") if row[1] == "macro"]
    assert len(macros) > 90
    for name, _, body in macros:
        if allowed(name, 2):
            for node in nodes(database, f"SELECT {body}"):
                assert node.get("type") not in ("BASE_TABLE", "TABLE_FUNCTION"), name
                if node.get("class") in ("FUNCTION", "WINDOW"):
                    assert allowed(node["function_name"].lower(), len(node["children"])), (name, node["function_name"])


def nodes(database: Database, sql: str) -> Iterator[dict[str, Any]]:
    """All nodes of a parse tree."""
    [(found,)] = database._main.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    waiting = [json.loads(found)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
        waiting.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else [])


SYNTAX = [
    "array(SELECT 1), [1, 2][1], [1, 2][1:2], if(true, 1, 2), ifnull(1, 2), coalesce(1, 2), nullif(1, 2)",
    "[x + 1 FOR x IN [1, 2] IF x > 1], list_transform([1], lambda x: x + 1), '{}'::JSON -> 'a', '{}'::JSON ->> 'a'",
    "TIMESTAMPTZ '2026-01-01 00:00:00+00' AT TIME ZONE 'Europe/Berlin', extract(year FROM DATE '2026-01-01')",
    "position('a' IN 'b'), substring('abc' FROM 1 FOR 2), trim(BOTH 'a' FROM 'aba'), INTERVAL (1) DAY",
    "map {'a': 1}, {'a': 1}, (1, 2), 3!, @(-3), ~1, -1, 2 ^ 3, 2 ** 3, 7 // 2, 1 << 2, 'a' || 'b'",
    "'a' LIKE 'a' ESCAPE 'b', 'a' NOT ILIKE 'b', 'a' SIMILAR TO 'a', 'a' ~ 'a', 'a' GLOB 'a', 'a' COLLATE de < 'b'",
    "1 IN (1, 2), 1 IN [1, 2], 1 = ANY(SELECT 1), 1 BETWEEN 0 AND 2, 1 IS DISTINCT FROM 2, TRY(1 / 0)",
    "count(*), count(DISTINCT i), sum(i) FILTER (i > 1)",
    "list(i ORDER BY i DESC), string_agg(i, ',')",
    "approx_quantile(i, 0.5)",
    "row_number() OVER (), lag(i) OVER (ORDER BY i), sum(i) OVER (ORDER BY i ROWS 1 PRECEDING)",
    "unnest([1, 2]), upper('a'), date_trunc('day', DATE '2026-01-01'), strftime(DATE '2026-01-01', '%Y')",
    "icu_collate_de('a'), error(NULL), hash(1), data_time(), current_user, list_avg([1, 2]), split_part('a b', ' ', 1)",
]


@pytest.mark.parametrize("listed", SYNTAX)
def test_syntax_that_becomes_a_function_is_allowed(database: Database, listed: str) -> None:
    assert database.read(f"SELECT {listed} FROM range(3) AS t(i)").names == []
    with_time = database._main.cursor()
    with_time.execute("CREATE OR REPLACE TEMP MACRO data_time() AS make_timestamp_ns(1)")
    with_time.execute(f"SELECT {listed} FROM range(3) AS t(i)").fetchall()


@pytest.mark.parametrize(
    "call", ["timezone('Europe/Berlin', {})", "main.timezone('Europe/Berlin', {})", "{} AT TIME ZONE 'Europe/Berlin'"]
)
def test_a_time_of_day_has_no_summer_time(database: Database, call: str) -> None:
    """DuckDB takes the offset of today's date."""
    bare, dated = (call.format(one) for one in ("TIMETZ '12:00:00+00'", "TIMESTAMPTZ '2026-07-01 00:00:00+00'"))
    with pytest.raises(QueryFailed, match="a time of day without a date has no offset in a zone but today's"):
        database.run(Run(f"SELECT {bare} AS t", 0, [], "json", 9, 999, 9.0))
    sql = f"SELECT ({dated})::VARCHAR AS t, timezone(TIMESTAMPTZ '2026-07-01') AS o"
    done = database.run(Run(sql, 0, [], "json", 9, 999, 9.0))
    assert json.loads(done.body) == [{"t": "2026-07-01 02:00:00", "o": 0}]
    with pytest.raises(SqlRefused, match="timezone"):
        database.read("SELECT system.main.timezone('Europe/Berlin', TIMETZ '12:00:00+00')")


def test_a_function_that_nobody_knows_is_no_sql(database: Database) -> None:
    with pytest.raises(
        BadSql, match="line 1, column 8: scalar Function with name uper does not exist; did you mean 'upper'"
    ):
        database.read("SELECT uper('a')")
    with pytest.raises(SqlRefused, match=r"pg_sleep\(\) is not known to depend on the data alone"):
        database.read("SELECT pg_sleep(1)")
    assert "pg_sleep" in question.catalogue(database._main)
