"""Whatever is asked, the answer is what the OpenAPI document says: of a status, type and schema that it names, and
never a failure of the sidecar. Schemathesis asks everything that the document allows and forbids; beside it stand
requests with values that are hard for this program.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from vernier.service.config.settings import load
from vernier.service.sidecar.app import build
from vernier.service.sidecar.options import Options
from vernier.storage.blob.segment import Entry
from vernier.storage.state.manifest import sources_of

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PLAN = {"app": "test", "sources": {"edges": [["src", "Int64"], ["dst", "Int64"]]}, "arrangements": []}
SOURCE = {"topic": "edges", "format": "json", "clock": "event", "frontier": "5", "partitions": {}, "held": 0}
NAMES = {"view": ["reach", "pairs"], "source": ["edges"], "key": ["1", "1,2"], "token": ["x"]}

SCHEMA = schemathesis.openapi.from_dict(build(Options(Path("nowhere"))).openapi())
OPERATIONS = {operation.label: operation for operation in (found.ok() for found in SCHEMA.get_all_operations())}

NUMBERS = st.sampled_from([0, 1, -1, 5, 19, 20, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30])
TEXTS = st.one_of(
    st.text(max_size=8), NUMBERS.map(str), st.sampled_from(["null", "NaN", "-0.0", "1e400", "true", "2026-02-30"])
)
COLUMNS = st.one_of(
    st.sampled_from(["weight", "src", "dst", "ok", "at", "day", "-src", "+dst", ""]), st.text(max_size=4)
)
OPERATORS = st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge", "in", "null", "notnull", "like", ""])
CONDITIONS = st.one_of(st.tuples(COLUMNS, OPERATORS, TEXTS).map(":".join), TEXTS)
CURSORS = st.one_of(
    TEXTS,
    st.fixed_dictionaries({"view": st.just("pairs"), "as_of": NUMBERS, "offset": NUMBERS}).map(
        lambda made: base64.urlsafe_b64encode(json.dumps(made).encode()).decode().rstrip("=")
    ),
)
QUERIES = st.fixed_dictionaries(
    {},
    optional={
        "where": st.lists(CONDITIONS, max_size=2),
        "order": st.lists(COLUMNS, max_size=3).map(",".join),
        "columns": st.lists(COLUMNS, max_size=3).map(",".join),
        "limit": st.one_of(NUMBERS, TEXTS),
        "cursor": CURSORS,
        "as_of": st.one_of(NUMBERS.map(str), TEXTS),
        "wait_ms": st.sampled_from(["0", "1", "-1", "x", "99999999999"]),
    },
)
ACCEPTS = st.sampled_from(
    ["*/*", "text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream", ";q=x,,", "a/b;q="]
)

PARTS = st.sampled_from(
    [
        "reach",
        "pairs",
        '"päirs"',
        "src",
        "node",
        "*",
        "count(*)",
        "1",
        "NULL",
        "'x'",
        "range(9)",
        "[1]",
        "now()",
        "(",
        ")",
    ]
)
QUESTIONS = st.one_of(
    st.text(max_size=20),
    st.tuples(PARTS, PARTS, PARTS).map(lambda made: "SELECT {} FROM {} WHERE {} IS NULL".format(*made)),
    st.tuples(PARTS, PARTS).map(lambda made: "SELECT {} AS n FROM reach ORDER BY {} LIMIT 3".format(*made)),
    st.tuples(PARTS, TEXTS).map(lambda made: "FROM {} AS OF {}".format(*made)),
    st.sampled_from(
        [
            "ATTACH 'x'",
            "COPY (SELECT 1) TO 'x'",
            "SELECT * FROM read_csv('x')",
            "SET threads = 9",
            "SELECT 9223372036854775807 + node FROM reach",
            "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 99) SELECT max(i) FROM r",
        ]
    ),
)

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["src", "dst", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


fuzzed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
    deadline=None,
    max_examples=max(20, settings().max_examples // 10),
)


@pytest.fixture
def url(builder: StateBuilder, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> str:
    """A sidecar over twenty rows, sources, letters and a plan, whose Kafka takes everything."""
    monkeypatch.setattr(
        "vernier.service.sidecar.writes.delivery.Delivery.deliver",
        lambda _, topic, messages: {place: 1 for place, value in messages(2) if isinstance(value, bytes)},
    )
    (builder.path / "plan.json").write_text(json.dumps(PLAN))
    builder.sources = sources_of({"edges": SOURCE})
    builder.stats.observe("view_latency_seconds", "reach", value=0.1, count=3)
    builder.stats.add("source_errors_total", "edges", "decode", by=2)
    letter = {"reason": "decode", "detail": "no", "topic": "edges", "partition": 0, "offset": 1}
    dead = [Entry("dead", {"updates": 1, "lower": 0, "upper": 10, "since": 0, "letters": [letter]})]
    builder.commit(20, {"reach": [((node,), node, 1) for node in range(20)]}, since=5, dead=dead)
    return serve(
        builder.path, max_wait_ms=1, stale_after_ms=10**9, max_body_bytes=4_000, service=load(None, {}, {}).settings
    ).url


def check(case: schemathesis.Case, url: str) -> None:
    if case.operation.path.endswith("/changes"):
        # Else it would never end.
        case.query = {**(case.query or {}), "until": "20"}
    case.call_and_validate(base_url=url, checks=CHECKS, timeout=60)


@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_what_the_document_says(label: str, url: str) -> None:
    operation = OPERATIONS[label]
    names = {one.name: st.sampled_from(NAMES[one.name]) for one in operation.path_parameters}

    @fuzzed
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
        real = data.draw(st.fixed_dictionaries(names)) if names and data.draw(st.integers(0, 2)) else {}
        case = data.draw(operation.as_strategy(mode, **({"path_parameters": real} if real else {})))
        check(case, url)

    ask()


def test_methods_that_there_are_not(url: str) -> None:
    for label, operation in OPERATIONS.items():
        case = operation.Case(path_parameters={one.name: NAMES[one.name][0] for one in operation.path_parameters})
        case.method = "PATCH"
        answer = case.call(base_url=url, timeout=60)
        assert (label, answer.status_code, answer.json()["code"]) == (label, 405, "method_not_allowed")


@fuzzed
@given(st.sampled_from(["reach", "pairs", "päirs"]), QUERIES, ACCEPTS)
def test_rows(url: str, view: str, query: dict[str, Any], accept: str) -> None:
    operation = OPERATIONS["GET /v1/views/{view}"]
    check(operation.Case(path_parameters={"view": view}, query=query, headers={"accept": accept}), url)


@fuzzed
@given(st.sampled_from(["reach", "pairs"]), st.lists(TEXTS, max_size=3), st.booleans())
def test_one_key(url: str, view: str, parts: list[str], plain: bool) -> None:
    operation = OPERATIONS["GET /v1/views/{view}/rows/{key}"]
    query = {} if plain else {"wait_ms": 0}
    check(operation.Case(path_parameters={"view": view, "key": ",".join(parts) or ","}, query=query), url)


@fuzzed
@given(st.sampled_from(["reach", "pairs"]), st.lists(JSON, max_size=4), st.one_of(st.none(), NUMBERS, TEXTS))
def test_many_keys(url: str, view: str, keys: list[object], as_of: object) -> None:
    operation = OPERATIONS["POST /v1/views/{view}/rows"]
    body = {"keys": keys, "as_of": as_of}
    check(operation.Case(path_parameters={"view": view}, body=body, media_type="application/json"), url)


@fuzzed
@given(QUESTIONS, st.one_of(st.none(), NUMBERS, TEXTS), ACCEPTS)
def test_questions_in_sql(url: str, sql: str, as_of: object, accept: str) -> None:
    operation = OPERATIONS["POST /v1/sql"]
    body = {"sql": sql, "as_of": as_of}
    check(operation.Case(body=body, media_type="application/json", headers={"accept": accept}), url)


@fuzzed
@given(
    st.lists(st.fixed_dictionaries({}, optional={"data": JSON, "time": NUMBERS, "diff": NUMBERS}) | JSON, max_size=3)
)
def test_updates(url: str, updates: list[object]) -> None:
    operation = OPERATIONS["POST /v1/sources/{source}"]
    case = operation.Case(path_parameters={"source": "edges"}, body=updates, media_type="application/json")
    check(case, url)
