"""Answers to questions in SQL: the rows of the views at one data time, as bags, with every type exactly."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ask.conftest import INSTANT, VIEWS
from tests.sidecar.builder import StateBuilder
from tests.sidecar.process import SidecarProcess
from vernier.service.ask.database import Database
from vernier.service.ask.errors import BadSql, NegativeMultiplicity, QueryFailed, QueryMemory
from vernier.service.ask.frames import Form, Run, Table
from vernier.service.ask.tables import Contents, stream
from vernier.service.client.client import Client
from vernier.service.client.errors import ServerError
from vernier.service.views.answers import Answers
from vernier.service.views.deadline import Deadline
from vernier.service.views.snapshot_reader import Reader


def test_the_newest_final_time_is_the_default(client: Client) -> None:
    answer = client.sql("SELECT count(*) AS n, max(node) AS most FROM reach")
    assert (answer, answer.as_of, answer.since, answer.frontier) == ([{"n": 20, "most": 19}], 19, 5, 20)
    assert answer.columns == [("n", "BIGINT"), ("most", "BIGINT")]


def test_the_time_stands_in_the_question_the_body_or_the_header(sidecar: SidecarProcess, client: Client) -> None:
    question = "SELECT count(*) AS n FROM reach"
    spelled = ["10", "'10'", "'1970-01-01T00:00:00.000000010Z'", "TIMESTAMP '1970-01-01T00:00:00.000000010Z' ; -- so"]
    assert [client.sql(f"{question} as OF {time}") for time in spelled] == [[{"n": 11}]] * 4
    assert client.sql(question, as_of=10) == client.sql(question + " AS OF 10", as_of="10") == [{"n": 11}]
    post = httpx.post(f"{sidecar.url}/v1/sql", json={"sql": question}, headers={"vernier-as-of": "7"}, trust_env=False)
    assert (post.json()["rows"], post.headers["vernier-as-of"]) == ([{"n": 8}], "7")
    with pytest.raises(ServerError, match="there are several times: 10, 11") as caught:
        client.sql(question + " AS OF 10", as_of=11)
    assert (caught.value.status, caught.value.problem) == (422, "invalid_request")


def test_times_that_are_gone_or_not_final_are_as_elsewhere(client: Client) -> None:
    for time, status, code in ((4, 410, "compacted"), (20, 409, "not_yet_final")):
        with pytest.raises(ServerError) as caught:
            client.sql("SELECT * FROM reach", as_of=time)
        assert (caught.value.status, caught.value.problem) == (status, code)


def test_a_view_is_a_bag(client: Client) -> None:
    assert client.sql("SELECT node, count(*) AS n FROM twice GROUP BY node ORDER BY node", as_of=7) == [
        {"node": 1, "n": 2},
        {"node": 2, "n": 3},
    ]
    assert client.sql("SELECT sum(node) AS n FROM Twice") == [{"n": 6}]
    assert client.sql("SELECT * FROM broken", as_of=6) == [{"node": 1}]
    with pytest.raises(ServerError, match="view broken has rows of negative multiplicity at 19") as caught:
        client.sql("SELECT * FROM broken")
    assert (caught.value.status, caught.value.problem) == (409, "negative_multiplicity")
    assert client.sql("SELECT count(*) AS n FROM reach") == [{"n": 20}]


def test_every_type_is_exact(client: Client) -> None:
    one, two = client.sql("SELECT * FROM every ORDER BY k")
    assert one == {
        "f": "NaN",
        "k": 1,
        "ok": True,
        "t": str(INSTANT),
        "day": "2026-01-01",
        "s": "ü" * 40,
        "b": "/w==",
        "l": [1, None],
        "st": {"a": 1, "t": str(INSTANT)},
        "d": "1.50",
    }
    assert (two["f"], two["ok"], two["t"], two["s"], two["l"], two["d"]) == (None, None, "-1", None, [], "-0.01")
    assert two == client.rows("every", where=["k:eq:2"])[0]
    kinds = dict(client.sql("SELECT * FROM every").columns)
    assert (kinds["t"], kinds["d"], kinds["st"]) == (
        "TIMESTAMP_NS",
        "DECIMAL(20,2)",
        "STRUCT(a BIGINT, t TIMESTAMP_NS)",
    )
    theirs, ours = client.sql_arrow("SELECT * FROM every ORDER BY k"), client.arrow("every", order="k")
    assert theirs.schema.field("t").type == pa.timestamp("ns", "UTC")
    ours = ours.cast(theirs.schema)  # what cannot be null there can be null here
    for name in theirs.column_names:
        if name != "f":
            assert theirs[name].combine_chunks().equals(ours[name].combine_chunks()), name
    assert theirs["f"].to_pylist()[1] is None
    assert theirs.schema.metadata == {b"vernier.as_of": b"19"}


def test_values_that_views_do_not_have(client: Client) -> None:
    (row,) = client.sql(
        "SELECT sum(9223372036854775807) AS huge, [1::HUGEINT] AS hugelist, INTERVAL 2 DAY AS i, TIME '01:02:03' AS c, "
        "map {'a': 1} AS m, NULL AS nothing, -1.5::REAL AS r, '-infinity'::DOUBLE AS f, "
        "TIMESTAMP '1970-01-01 00:00:01' AS t, {'x': [{'y': 1.5}]} AS deep, [1, 2]::INT[2] AS fixed FROM range(3)"
    )
    assert row["huge"] == 3 * (2**63 - 1)
    assert (row["hugelist"], row["i"], row["c"], row["m"]) == ([1], "2 days", "01:02:03", "{a=1}")
    assert (row["nothing"], row["r"], row["f"], row["t"]) == (None, -1.5, "-Infinity", "1000000000")
    assert (row["deep"], row["fixed"]) == ({"x": [{"y": "1.5"}]}, [1, 2])
    assert client.sql("SELECT node, node, 1 AS node_1 FROM reach LIMIT 1") == [{"node": 0, "node_2": 0, "node_1": 1}]


INFINITE = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMPTZ", "DATE")


@pytest.mark.parametrize(
    "value",
    [
        *(f"{kind} '{sign}infinity'" for kind in INFINITE for sign in ("", "-")),
        "[{'t': TIMESTAMP_MS 'infinity'}]",
        "[DATE '-infinity']::DATE[1]",
    ],
)
def test_infinite_times_are_no_numbers(database: Database, value: str) -> None:
    forms: tuple[Form, ...] = ("json", "ndjson", "csv", "arrow")
    for form in forms:
        with pytest.raises(QueryFailed, match="an infinite date or timestamp is no number"):
            database.run(Run(f"SELECT {value} AS t", 0, [], form, 9, 9_999, 9.0))


def test_the_last_instant_of_a_view_is_a_number(database: Database) -> None:
    """The latest TIMESTAMP_NS is what DuckDB prints as infinity."""
    sql = "SELECT TIMESTAMP_NS 'infinity' AS t, NULL::TIMESTAMP AS n, TIMESTAMP '9999-12-31' AS far"
    done = database.run(Run(sql, 0, [], "json", 9, 9_999, 9.0))
    assert json.loads(done.body) == [{"t": "9223372036854775807", "n": None, "far": "253402214400000000000"}]


def test_nulls_and_texts_order_as_in_views(client: Client) -> None:
    assert [row["k"] for row in client.sql("SELECT k FROM every ORDER BY s")] == [2, 1]
    assert [row["k"] for row in client.sql("SELECT k FROM every ORDER BY s DESC")] == [1, 2]
    assert [row["i"] for row in client.sql("SELECT i, INTERVAL 1 DAY AS d FROM range(9) t(i) ORDER BY i DESC")][:3] == [
        8,
        7,
        6,
    ]


def test_the_time_of_the_answer_is_data_time(client: Client) -> None:
    assert client.sql("SELECT data_time() AS t AS OF 12") == [{"t": "12"}]
    assert client.sql("SELECT count(*) AS n FROM every WHERE t < data_time() AS OF 12") == [{"n": 1}]


SCOPES = {
    "WITH reach AS (SELECT 7 AS node) SELECT * FROM reach": [{"node": 7}],
    "WITH reach AS (SELECT 7 AS node) SELECT count(*) AS n FROM main.reach": [{"n": 20}],
    "WITH Reach AS (SELECT max(node) AS node FROM reach) SELECT * FROM reach": [{"node": 19}],
    "WITH a AS (SELECT max(node) AS n FROM reach), reach AS (SELECT 7 AS node) SELECT n, node FROM a, reach": [
        {"n": 19, "node": 7}
    ],
    "WITH a AS (SELECT 1 AS n), b AS (FROM a) SELECT (WITH c AS (FROM b) FROM c) AS n, (FROM b) AS m": [
        {"n": 1, "m": 1}
    ],
    "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL (WITH z AS (FROM r WHERE i < 3) SELECT i + 1 FROM z)) "
    "SELECT sum(i) AS n FROM r": [{"n": 6}],
    "WITH a AS (SELECT 1 AS n) (FROM a) UNION ALL (FROM a)": [{"n": 1}, {"n": 1}],
    "WITH a AS MATERIALIZED (SELECT 5 AS n) SELECT node FROM reach WHERE node IN (SELECT n FROM a)": [{"node": 5}],
    "SELECT node FROM reach, (WITH broken AS (SELECT 5 AS n) FROM broken) WHERE node = n": [{"node": 5}],
}


@pytest.mark.parametrize("question", SCOPES)
def test_common_table_expressions_have_a_scope(client: Client, question: str) -> None:
    """`broken` would be an error if it were read."""
    assert client.sql(question) == SCOPES[question]


PIVOTS = {
    "PIVOT reach ON node IN (1, 2) USING count(*)": [{"1": 1, "2": 1}],
    "SELECT * FROM (PIVOT reach ON node IN (3)) p": [{"3": 1}],
    "SELECT * FROM reach PIVOT (sum(node) FOR node IN (4, 99))": [{"4": 4, "99": None}],
    "WITH w AS (SELECT 1 AS k, 2 AS v) FROM (UNPIVOT w ON k, v INTO NAME n VALUE x) ORDER BY n": [
        {"n": "k", "x": 1},
        {"n": "v", "x": 2},
    ],
}


@pytest.mark.parametrize("question", PIVOTS)
def test_pivots_with_values(client: Client, question: str) -> None:
    assert client.sql(question) == PIVOTS[question]


def test_formats(client: Client, sidecar: SidecarProcess) -> None:
    question = "SELECT k, ok, s IS NULL AS missing, l FROM every ORDER BY k"
    assert client.sql_csv(question) == 'k,ok,missing,l\n1,true,false,"[1,null]"\n2,,true,[]\n'
    lines = httpx.post(
        f"{sidecar.url}/v1/sql", json={"sql": question}, headers={"accept": "application/x-ndjson"}, trust_env=False
    )
    assert [json.loads(line)["k"] for line in lines.text.splitlines()] == [1, 2]
    assert client.sql_csv("SELECT node FROM reach WHERE node < 0") == "node\n"
    assert client.sql_arrow("SELECT node FROM reach WHERE node < 0").schema == pa.schema([("node", pa.int64())])


WRONG = {
    "SELECT * FORM reach": (400, "bad_sql", 'line 1, column 15: syntax error at or near "reach"'),
    "SELECT nod\nFROM reach WHERE nod > 1": (400, "bad_sql", 'line 2, column 18: referenced column "nod" not found'),
    "SELECT 'ü', foo(node) FROM reach": (400, "bad_sql", "line 1, column 13: scalar Function with name foo"),
    "SELECT 1,\n  * FROM reech": (
        404,
        "unknown_view",
        "line 2, column 10: there is no view 'reech'; did you mean 'reach'?",
    ),
    "SELECT * FROM other.reach": (404, "unknown_view", "there is no view 'other.reach'"),
    "": (400, "bad_sql", "there is no statement; write a SELECT"),
    "SELECT 1 AS OF 5 AS OF 6": (400, "bad_sql", "line 1, column 10: AS OF TIME stands once, at the end"),
    "SELECT * FROM (SELECT * FROM reach AS OF 5) r": (400, "bad_sql", "line 1, column 36: AS OF TIME stands once"),
    "SELECT 1 AS OF 'then'": (400, "bad_instant", "'then' is not a time"),
    "SELECT (node || 'x')::INT FROM reach": (422, "query_failed", "line 1, column 21: could not convert string '0x'"),
    "SELECT CASE WHEN i = 50000 THEN 'x' ELSE '1' END::INT AS i FROM range(90000) t(i) LIMIT 60000": (
        422,
        "query_failed",
        "could not convert string 'x'",
    ),
    "SELECT 9223372036854775807 + node FROM reach": (422, "query_failed", "overflow in addition"),
    "SELECT * FROM range(2000)": (413, "too_many_rows", "the answer has more than 1000 rows (http.max_rows)"),
    "SELECT repeat('x', 300) FROM range(900)": (413, "response_too_large", "longer than the 200000 bytes"),
}


@pytest.mark.parametrize("question", WRONG)
def test_mistakes_have_a_code_and_a_place(client: Client, question: str) -> None:
    with pytest.raises(ServerError) as caught:
        client.sql(question)
    status, code, detail = WRONG[question]
    assert (caught.value.status, caught.value.problem) == (status, code)
    assert detail in caught.value.detail


def test_half_of_a_character_is_a_mistake(sidecar: SidecarProcess) -> None:
    body = rb'{"sql": "SELECT 1,\n \"\ud800\""}'
    found = httpx.post(
        f"{sidecar.url}/v1/sql", content=body, headers={"content-type": "application/json"}, trust_env=False
    ).json()
    assert (found["status"], found["code"], found["line"], found["column"]) == (400, "bad_sql", 2, 3)
    assert "U+D800 is half of a character" in found["detail"]


@pytest.fixture(scope="module")
def database() -> Database:
    """One DuckDB for the tests that need no process."""
    return Database(64)


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.sampled_from([1, 1, 2, -1])), max_size=12)


@settings(max_examples=max(10, settings().max_examples // 10), deadline=None)
@given(CHANGES, st.lists(st.integers(1, 9), max_size=3, unique=True))
def test_any_history_at_any_time(database: Database, changes: list[tuple[int, int, int]], cuts: list[int]) -> None:
    """The answer at each time is the sum of the changes until then, however the epochs were cut, and it stays."""
    with TemporaryDirectory() as folder:
        builder = StateBuilder(Path(folder) / "state", {"v": VIEWS["reach"]})
        asked, seen, lower = Asked(builder.path, database), dict[int, object](), 0
        for upper in [*sorted(cuts), 10]:
            builder.commit(upper, {"v": [((n,), time, diff) for n, time, diff in changes if lower <= time < upper]})
            lower = upper
            for time in range(upper):
                counts = {k: sum(diff for n, at, diff in changes if n == k and at <= time) for k in range(4)}
                found = asked.counts("v", time)
                expected: object = [{"node": k, "n": n} for k, n in counts.items() if n]
                assert found == ("negative_multiplicity" if min(counts.values()) < 0 else expected)
                assert seen.setdefault(time, found) == found
        builder.close()


class Asked:
    """The parts of a sidecar and a worker in this process."""

    def __init__(self, path: Path, database: Database) -> None:
        self.reader, self.answers, self.contents, self.database = Reader(path), Answers(), Contents(), database
        self.database.forget([], all_others=True)
        self.kept = 0

    def counts(self, name: str, time: int) -> object:
        """How often each node is in a view, or the code of the error."""
        self.reader.poll()
        assert self.reader.snapshot is not None
        view = self.reader.snapshot.views[name]
        number = self.contents.number(view, time)
        try:
            for one in self.database.missing([number]):
                data = b"".join(stream(self.answers, view, time, Deadline(9_000)))
                self.database.keep(one, pa.ipc.open_stream(data), [number])
                self.kept += 1
        except NegativeMultiplicity as error:
            return error.code
        question = f"SELECT node, count(*) AS n FROM {name} GROUP BY node ORDER BY node"
        done = self.database.run(Run(question, time, [Table(name, number)], "json", 100, 1_000, 9.0))
        return json.loads(done.body)


def test_rows_are_copied_once(tmp_path: Path, database: Database) -> None:
    builder = StateBuilder(tmp_path / "state", {"v": VIEWS["reach"], "w": VIEWS["reach"]})
    builder.commit(10, {"v": [((1,), 3, 1)], "w": [((2,), 3, 1)]})
    asked = Asked(builder.path, database)
    asked.counts("v", 9)
    asked.counts("v", 9)
    assert asked.kept == 1
    builder.commit(20, {"w": [((5,), 13, 1)]})
    # v has not changed, and its rows at 9 were the newest before.
    asked.counts("v", 19)
    asked.counts("v", 9)
    assert asked.kept == 1
    asked.counts("w", 19)
    assert asked.kept == 2
    builder.close()


def test_names_are_compared_as_duckdb_does(database: Database) -> None:
    """Two names of one view may differ in case, two views may not; beyond ASCII, other case is another name."""
    for number, rows in ((101, 1), (102, 2)):
        database.keep(number, pa.table({"n": range(rows)}).to_reader(), [number])

    def ask(sql: str, *tables: Table) -> object:
        return json.loads(database.run(Run(sql, 0, list(tables), "json", 10, 1_000, 9.0)).body)

    sql = "SELECT count(*) AS n FROM v, V"
    assert ask(sql, Table("v", 102), Table("V", 102)) == [{"n": 4}]
    with pytest.raises(BadSql, match="v and V differ only in case, and SQL takes them for one"):
        ask(sql, Table("v", 101), Table("V", 102))
    assert ask('SELECT count(*) AS n FROM "ä", "Ä"', Table("ä", 102), Table("Ä", 101)) == [{"n": 2}]


def test_tables_go_when_memory_is_short(database: Database) -> None:
    database.forget([], all_others=True)
    rows = pa.table({"n": np.arange(500_000)})
    for number in range(12):
        database.keep(number, rows.to_reader(), [number])
    missing = database.missing(list(range(12)))
    assert 0 < len(missing) < 11
    assert 11 not in missing
    with pytest.raises(QueryMemory):
        database.keep(99, pa.table({"n": np.arange(12_000_000)}).to_reader(), [99])
    done = database.run(Run("SELECT count(*) AS n FROM t", 0, [Table("t", 11)], "json", 10, 1_000, 9.0))
    assert json.loads(done.body) == [{"n": 500_000}]
