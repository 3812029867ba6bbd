"""Whatever is asked, the answer is an answer or a problem that names what is wrong; never a failure of the sidecar."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served

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

fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


@pytest.fixture
def http(builder: StateBuilder, serve: Callable[..., Served]) -> Iterator[httpx.Client]:
    builder.commit(20, {"reach": [((node,), node, 1) for node in range(20)]}, since=5)
    with httpx.Client(base_url=serve(builder.path, max_wait_ms=1).url, trust_env=False) as client:
        yield client


def check(status: int, body: str, kind: str) -> None:
    assert status < 500, body
    if status >= 400:
        assert kind == "application/problem+json"
        assert json.loads(body)["code"]


@fuzzed
@given(st.sampled_from(["reach", "pairs", "päirs"]), QUERIES, ACCEPTS)
def test_rows(http: httpx.Client, view: str, query: dict[str, str], accept: str) -> None:
    answer = http.get(f"/v1/views/{view}", params=query, headers={"accept": accept})
    check(answer.status_code, answer.text if answer.status_code >= 400 else "", answer.headers["content-type"])


@fuzzed
@given(st.sampled_from(["reach", "pairs"]), st.lists(TEXTS, max_size=3), st.booleans())
def test_one_key(http: httpx.Client, view: str, parts: list[str], plain: bool) -> None:
    key = ",".join(quote(part, safe="") for part in parts)
    answer = http.get(f"/v1/views/{view}/rows/{key}" + ("" if plain else "?wait_ms=0"))
    check(answer.status_code, answer.text, answer.headers["content-type"])


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["src", "dst", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@fuzzed
@given(st.sampled_from(["reach", "pairs"]), st.lists(JSON, max_size=4), st.one_of(st.none(), NUMBERS, TEXTS))
def test_many_keys(http: httpx.Client, view: str, keys: list[object], as_of: object) -> None:
    answer = http.post(f"/v1/views/{view}/rows", json={"keys": keys, "as_of": as_of})
    check(answer.status_code, answer.text, answer.headers["content-type"])


@fuzzed
@given(
    st.sampled_from(
        ["frontiers", "latency", "epochs", "sources", "traces", "dead-letters", "config", "dataflow", "read", "views"]
    ),
    st.dictionaries(
        st.sampled_from(["limit", "after", "window_seconds", "points", "views", "as_of"]), TEXTS, max_size=3
    ),
)
def test_status_routes(http: httpx.Client, route: str, query: dict[str, str]) -> None:
    answer = http.get(f"/v1/{route}", params=query)
    check(answer.status_code, answer.text, answer.headers["content-type"])
