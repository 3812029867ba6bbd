"""Rows over HTTP: times, filters, order, pages, keys, several views, formats and errors."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable
from datetime import date
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from vernier.service.sidecar.problems import MEDIA_TYPE

DAY = date(2026, 2, 3)
BIG = 2**63 - 1


def pair(src: int, dst: int, weight: float | None = None) -> tuple[Any, ...]:
    return (weight, src, dst, src < dst, 1_700_000_000_123_456_789 + src, DAY)


@pytest.fixture
def http(builder: StateBuilder, serve: Callable[..., Served]) -> httpx.Client:
    """Two epochs: frontier 20, history from 5; reach 0..9 at their own times, 3 gone at 12."""
    pairs = [
        (pair(1, 2, 0.5), 3, 1),
        (pair(1, 3), 4, 1),
        (pair(2, 1, float("nan")), 6, 2),
        (pair(-1, BIG, -1.5), 7, -1),
    ]
    builder.commit(10, {"reach": [((node,), node, 1) for node in range(10)], "pairs": pairs}, since=5)
    builder.commit(20, {"reach": [((3,), 12, -1)], "pairs": [(pair(1, 2, 0.5), 15, -1), (pair(1, 2, 7.25), 15, 1)]})
    return httpx.Client(base_url=serve(builder.path, max_rows=100).url, trust_env=False)


def nodes(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [row["node"] for row in answer.json()["rows"]]


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == MEDIA_TYPE
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["detail"]
    return body


def test_newest_rows_by_default(http: httpx.Client) -> None:
    body = http.get("/v1/views/reach").json()
    assert body | {"rows": None, "stale_ms": None} == {
        "view": "reach", "as_of": "19", "since": "5", "frontier": "20", "rows": None, "next_cursor": None,
        "stale_ms": None,
    }  # fmt: skip
    assert body["rows"] == [{"node": node} for node in (0, 1, 2, 4, 5, 6, 7, 8, 9)]
    assert body["stale_ms"] >= 0


def test_every_type_as_json_with_multiplicities(http: httpx.Client) -> None:
    rows = http.get("/v1/views/pairs").json()["rows"]
    assert list(rows[0]) == ["weight", "src", "dst", "ok", "at", "day", "_diff"]
    assert rows == [
        {
            "weight": -1.5,
            "src": -1,
            "dst": BIG,
            "ok": True,
            "at": "1700000000123456788",
            "day": "2026-02-03",
            "_diff": -1,
        },
        {"weight": 7.25, "src": 1, "dst": 2, "ok": True, "at": "1700000000123456790", "day": "2026-02-03"},
        {"weight": None, "src": 1, "dst": 3, "ok": True, "at": "1700000000123456790", "day": "2026-02-03"},
        {
            "weight": "NaN",
            "src": 2,
            "dst": 1,
            "ok": False,
            "at": "1700000000123456791",
            "day": "2026-02-03",
            "_diff": 2,
        },
    ]


def test_as_of_every_final_time_in_the_window(http: httpx.Client) -> None:
    for as_of in range(5, 20):
        expected = [node for node in range(10) if node <= as_of and not (node == 3 and as_of >= 12)]
        assert nodes(http.get("/v1/views/reach", params={"as_of": as_of})) == expected
        assert nodes(http.get(f"/v1/views/reach/rows/3?as_of={as_of}")) == ([3] if as_of < 12 else [])
    assert nodes(http.get("/v1/views/reach", params={"as_of": "1970-01-01T00:00:00.000000011Z"})) == list(range(10))


def test_times_outside_the_window(http: httpx.Client) -> None:
    assert problem(http.get("/v1/views/reach?as_of=4"), 410, "compacted")["since"] == "5"
    assert problem(http.get("/v1/views/reach?as_of=20"), 409, "not_yet_final")["frontier"] == "20"
    assert problem(http.get("/v1/views/reach?as_of=20&wait_ms=30"), 409, "not_yet_final")["as_of"] == "20"
    problem(http.get("/v1/views/reach?as_of=tomorrow"), 400, "bad_instant")
    for asked in ("reach?as_of", "reach/changes?since", "reach/changes?since=5&until", "reach/rows/3?as_of"):
        naive = problem(http.get(f"/v1/views/{asked}=2026-01-31T12:00:00"), 400, "bad_instant")
        assert "append Z for UTC (2026-01-31T12:00:00Z)" in naive["detail"]
    problem(http.get(f"/v1/views/reach?as_of={2**70}"), 400, "instant_out_of_range")
    problem(http.get("/v1/views/reach?wait_ms=-1"), 422, "invalid_request")


def test_wait_ends_when_the_time_is_final(http: httpx.Client, builder: StateBuilder) -> None:
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.get(f"{http.base_url}/v1/views/reach/rows/77?as_of=25&wait_ms=30000", trust_env=False))

    waiting = threading.Thread(target=ask)
    waiting.start()
    builder.commit(24)
    assert not answers
    builder.commit(30, {"reach": [((77,), 25, 1), ((77,), 26, 5)]})
    waiting.join(30)
    assert answers[0].json()["rows"] == [{"node": 77}]
    assert answers[0].json()["as_of"] == "25"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["node:eq:4"], [4]),
        (["node:4"], [4]),
        (["node:ne:4"], [0, 1, 2, 5, 6, 7, 8, 9]),
        (["node:lt:2"], [0, 1]),
        (["node:ge:8"], [8, 9]),
        (["node:in:9,1,77"], [1, 9]),
        (["node:gt:2", "node:le:5"], [4, 5]),
        (["node:notnull"], [0, 1, 2, 4, 5, 6, 7, 8, 9]),
        (["node:null"], []),
    ],
)
def test_where(http: httpx.Client, where: list[str], expected: list[int]) -> None:
    assert nodes(http.get("/v1/views/reach", params={"where": where})) == expected


def test_where_on_every_type(http: httpx.Client) -> None:
    def keys(*where: str) -> list[tuple[int, int]]:
        rows = http.get("/v1/views/pairs", params={"where": list(where)}).json()["rows"]
        return [(row["src"], row["dst"]) for row in rows]

    assert keys("weight:null") == [(1, 3)]
    assert keys("weight:gt:0") == [(1, 2), (2, 1)]  # NaN is the greatest
    assert keys("weight:lt:0") == [(-1, BIG)]
    assert keys("weight:ne:7.25") == [(-1, BIG), (2, 1)]  # a comparison with null is not true
    assert keys("ok:false") == [(2, 1)]
    assert keys("day:ge:2026-02-03", "at:lt:1700000000123456790") == [(-1, BIG)]
    assert keys("at:eq:2023-11-14T22:13:20.123456791Z") == [(2, 1)]


def test_order_and_columns(http: httpx.Client) -> None:
    def ordered(order: str) -> list[Any]:
        return [row["weight"] for row in http.get(f"/v1/views/pairs?order={order}&columns=weight").json()["rows"]]

    assert ordered("weight") == [None, -1.5, 7.25, "NaN"]
    assert ordered("-weight") == ["NaN", 7.25, -1.5, None]
    assert http.get("/v1/views/pairs?order=ok,-dst&columns=dst,src&limit=2").json()["rows"] == [
        {"dst": 1, "src": 2, "_diff": 2},
        {"dst": BIG, "src": -1, "_diff": -1},
    ]


@pytest.mark.parametrize(
    ("query", "expected"), [("", [0, 1, 2, 4, 5, 6, 7, 8, 9]), ("where=node:gt:3&order=-node", [9, 8, 7, 6, 5, 4])]
)
def test_a_cursor_pins_the_time(http: httpx.Client, builder: StateBuilder, query: str, expected: list[int]) -> None:
    answer = http.get(f"/v1/views/reach?limit=2&{query}")
    found, times = nodes(answer), {answer.json()["as_of"]}
    frontier = builder.frontier
    while (cursor := answer.json()["next_cursor"]) is not None:
        frontier += 10
        builder.commit(frontier, {"reach": [((5,), frontier - 1, -1), ((frontier,), frontier - 1, 1)]})
        assert http.get(f"/v1/views/reach?as_of={frontier - 1}&wait_ms=30000&limit=1").status_code == 200
        answer = http.get("/v1/views/reach", params={"cursor": cursor, "limit": 2})
        found += nodes(answer)
        times.add(answer.json()["as_of"])
    assert found == expected
    assert times == {"19"}


def test_bad_questions(http: httpx.Client) -> None:
    assert "did you mean 'reach'" in problem(http.get("/v1/views/raech"), 404, "unknown_view")["detail"]
    assert (
        "did you mean 'node'" in problem(http.get("/v1/views/reach?order=nodde"), 400, "unknown_view_column")["detail"]
    )
    problem(http.get("/v1/views/reach?columns=x"), 400, "unknown_view_column")
    problem(http.get("/v1/views/reach?where=node"), 400, "bad_filter")
    assert "did you mean eq" in problem(http.get("/v1/views/reach?where=node:eqq:1"), 400, "bad_filter")["detail"]
    problem(http.get("/v1/views/reach?where=node:eq:x"), 400, "bad_value")
    problem(http.get("/v1/views/pairs?where=ok:eq:maybe"), 400, "bad_value")
    problem(http.get("/v1/views/reach?cursor=%25"), 400, "bad_cursor")
    cursor = http.get("/v1/views/reach?limit=1").json()["next_cursor"]
    problem(http.get(f"/v1/views/pairs?cursor={cursor}"), 400, "bad_cursor")
    problem(http.get(f"/v1/views/reach?cursor={cursor}&order=-node"), 400, "bad_cursor")
    problem(http.get("/v1/views/reach?limit=0"), 422, "invalid_request")
    problem(http.get("/v1/views/reach", headers={"accept": "image/png"}), 406, "not_acceptable")
    problem(http.get("/v1/views/reach/rows/1,2"), 400, "bad_key")
    problem(http.get("/v1/views/reach/rows/x"), 400, "bad_value")
    problem(http.get(f"/v1/views/reach/rows/{2**63}"), 400, "bad_value")
    problem(http.get("/v1/nothing"), 404, "not_found")
    problem(http.put("/v1/views"), 405, "method_not_allowed")
    problem(http.post("/v1/views/reach/rows", json={"key": 1}), 422, "invalid_request")
    problem(http.post("/v1/views/reach/rows", json={"keys": list(range(10_001))}), 413, "too_many_keys")
    problem(http.get("/v1/read?views=reach,x"), 404, "unknown_view")
    problem(http.get("/v1/read"), 422, "invalid_request")


def test_keys(http: httpx.Client) -> None:
    assert nodes(http.get("/v1/views/reach/rows/4")) == [4]
    assert nodes(http.get("/v1/views/reach/rows/3")) == []
    assert http.get(f"/v1/views/pairs/rows/-1,{BIG}").json()["rows"][0]["_diff"] == -1
    assert http.get("/v1/views/pairs/rows/1,2?as_of=14").json()["rows"][0]["weight"] == 0.5
    many = http.post(
        "/v1/views/pairs/rows", json={"keys": [[2, 1], {"dst": 3, "src": 1}, ["7", 7]], "as_of": "14"}
    ).json()
    assert [(row["src"], row["dst"]) for row in many["rows"]] == [(2, 1), (1, 3)]
    assert many["missing"] == [["7", 7]]
    assert http.post("/v1/views/reach/rows", json={"keys": []}).json()["rows"] == []
    assert [row["node"] for row in http.post("/v1/views/reach/rows", json={"keys": [9, [1]]}).json()["rows"]] == [9, 1]
    problem(http.post("/v1/views/pairs/rows", json={"keys": [{"src": 1, "x": 2}]}), 400, "bad_value")
    problem(http.post("/v1/views/pairs/rows", json={"keys": [1]}), 400, "bad_key")


def test_the_short_way_and_the_long_way_to_a_key_agree(http: httpx.Client) -> None:
    short, long = http.get("/v1/views/pairs/rows/1,2").json(), http.get("/v1/views/pairs/rows/1%2C2?wait_ms=0")
    problem(long, 400, "bad_key")
    long = http.get("/v1/views/pairs/rows/1,2?wait_ms=0").json()
    assert short | {"stale_ms": 0} == long | {"stale_ms": 0}


def test_several_views_at_one_time(http: httpx.Client) -> None:
    body = http.get("/v1/read?views=reach,pairs,reach&as_of=14&limit=3").json()
    assert (body["as_of"], body["frontier"], list(body["views"])) == ("14", "20", ["reach", "pairs"])
    assert [row["node"] for row in body["views"]["reach"]["rows"]] == [0, 1, 2]
    rest = nodes(http.get("/v1/views/reach", params={"cursor": body["views"]["reach"]["next_cursor"]}))
    assert rest == [4, 5, 6, 7, 8, 9]
    assert {view["as_of"] for view in body["views"].values()} == {"14"}


def test_other_formats(http: httpx.Client) -> None:
    def ask(accept: str, query: str = "") -> httpx.Response:
        answer = http.get(f"/v1/views/pairs?{query}", headers={"accept": accept})
        assert answer.status_code == 200
        assert answer.headers["vernier-as-of"] == "19"
        return answer

    expected = http.get("/v1/views/pairs").json()["rows"]
    lines = ask("application/x-ndjson").text.splitlines()
    assert [httpx.Response(200, text=line).json() for line in lines] == expected
    table = list(csv.DictReader(io.StringIO(ask("text/csv;q=0.9, image/png").text)))
    assert [row["_diff"] for row in table] == ["-1", "1", "1", "2"]
    assert table[2]["weight"] == ""
    assert table[1]["ok"] == "true"
    answer = ask("application/vnd.apache.arrow.stream", "limit=3&where=src:gt:0")
    frame = pa.ipc.open_stream(answer.content).read_all()
    assert frame.schema.field("at").type == pa.timestamp("ns", tz="UTC")
    assert frame.column("src").to_pylist() == [1, 1, 2]
    assert frame.column("_diff").to_pylist() == [1, 1, 2]
    assert frame.schema.metadata[b"vernier.as_of"] == b"19"
    cursor = ask("text/csv", "limit=1").headers["vernier-next-cursor"]
    assert len(ask("text/csv", f"cursor={cursor}").text.splitlines()) == 4


def test_limit_has_a_roof(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10, {"reach": [((node,), 1, 1) for node in range(300)]})
    answer = httpx.get(f"{serve(builder.path, max_rows=100).url}/v1/views/reach?limit=250", trust_env=False)
    assert nodes(answer) == list(range(100))
    assert answer.json()["next_cursor"] is not None
