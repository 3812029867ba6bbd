"""What the sidecar tells about the service: health, readiness, frontiers, latency, sources, traces, settings, metrics,
OpenAPI.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

import vernier as vn
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import VIEWS, Served
from vernier.operators.planning.planner import compile_app
from vernier.service.cli.display import status_text
from vernier.service.client.client import connect
from vernier.service.observability.metrics import CATALOGUE, Histogram, Stats, UnknownMetric
from vernier.service.observability.recent_latency import followed, recent
from vernier.service.sidecar.options import Options
from vernier.service.sidecar.readiness import laggards
from vernier.service.status import publisher as told
from vernier.service.status import trouble
from vernier.service.status.trouble import Trouble
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.blob.local_blob import LocalBlob
from vernier.storage.blob.segment import Entry, segment_file
from vernier.storage.state.manifest import sources_of
from vernier.storage.state.state import FOLDERS
from vernier.storage.updates import CLOSED, MIN_TIME

SOURCES = {
    "edges": {
        "topic": "edges",
        "frontier": "12",
        "held": 0,
        "partitions": {"0": {"frontier": "12", "lag": 0}, "1": {"frontier": None, "lag": 3}},
    }
}
LETTERS = [{"reason": "decode", "detail": "line 1", "topic": "edges", "partition": 0, "offset": n} for n in (4, 9)]


@pytest.fixture
def http(builder: StateBuilder, serve: Callable[..., Served]) -> httpx.Client:
    builder.sources = sources_of(SOURCES)
    builder.stats.add("source_updates_total", "edges", "insert", by=7)
    builder.stats.add("source_errors_total", "edges", "decode", by=2)
    builder.stats.observe("view_latency_seconds", "reach", value=[0.12, 0.18, 4.0], count=[10, 9, 1])
    dead = [Entry("dead", {"updates": 2, "lower": 0, "upper": 10, "since": 0, "letters": LETTERS})]
    builder.commit(10, {"reach": [((1,), 3, 1)]}, dead=dead)
    settings = {"kafka": {"brokers": "x:1", "sasl_password": "hush", "url": "kafka://me:hush@x"}, "tokens": ["hush"]}
    served = serve(builder.path, settings=settings)
    client = httpx.Client(base_url=served.url, trust_env=False)
    builder.stats.observe("view_latency_seconds", "reach", value=0.2, count=5)
    builder.commit(20, {"reach": [((2,), 13, 1)]})
    assert client.get("/v1/views/reach?as_of=19&wait_ms=30000").status_code == 200
    return client


def test_health_and_readiness(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "ok"
    ready = http.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["views"] == {"reach": ["20"], "pairs": ["20"]}


def test_no_epoch_yet(tmp_path: Path, serve: Callable[..., Served]) -> None:
    url = serve(tmp_path / "none").url
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
    for path in (
        "/readyz",
        "/v1/views",
        "/v1/views/reach",
        "/v1/frontiers",
        "/v1/traces",
        "/v1/sources",
        "/v1/views/reach/rows/1",
    ):
        answer = httpx.get(url + path, trust_env=False)
        assert (path, answer.status_code, answer.json()["code"]) == (path, 503, "no_epoch")
        assert answer.headers["retry-after"] == "1"
    assert "vernier_build_info" in httpx.get(f"{url}/metrics", trust_env=False).text
    assert httpx.get(f"{url}/", trust_env=False).status_code == 200


def test_views_are_known_before_the_first_epoch(tmp_path: Path, serve: Callable[..., Served]) -> None:
    state = tmp_path / "state"
    plan = compile_app(vn.load_program(Path("tests/programs/bfs.py"))).explain()
    LocalBlob(state).prepare(FOLDERS)
    LocalBlob(state).put("plan.json", [json.dumps(plan).encode()])
    url = serve(state).url
    answer = httpx.get(f"{url}/v1/views", trust_env=False)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["app"], body["epoch"], body["stale_ms"]) == (plan["app"], 0, None)
    for view in body["views"]:
        about = plan["views"][view["name"]]
        assert [[column["name"], column["type"]] for column in view["columns"]] == about["schema"]
        assert (view["key"], view["rows"], view["since"], view["frontier"]) == (about["key"], 0, None, None)
    assert body["views"]
    known = body["views"][0]["name"]
    assert httpx.get(f"{url}/v1/views/{known}", trust_env=False).json()["code"] == "no_epoch"
    unknown = httpx.get(f"{url}/v1/views/{known}x", trust_env=False)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_view")


def test_a_stopped_pipeline_leaves_answers_that_say_how_old_they_are(
    builder: StateBuilder, serve: Callable[..., Served]
) -> None:
    builder.commit(10, {"reach": [((1,), 3, 1)]}, committed_ns=time.time_ns() - 60_000_000_000)
    url = serve(builder.path, stale_after_ms=5_000).url
    answer = httpx.get(f"{url}/v1/views/reach", trust_env=False)
    assert answer.json()["rows"] == [{"node": 1}]
    assert answer.json()["stale_ms"] >= 60_000
    assert int(answer.headers["vernier-stale-ms"]) >= 60_000
    ready = httpx.get(f"{url}/readyz", trust_env=False)
    assert (ready.status_code, ready.json()["code"]) == (503, "not_ready")
    assert ready.json()["laggards"][0]["laggard"] == "pipeline"
    assert "epoch 1 was committed " in ready.json()["detail"]
    assert 'state="stalled"} 1.0' in httpx.get(f"{url}/metrics", trust_env=False).text


def test_readiness_names_the_source_that_lags(tmp_path: Path) -> None:
    builder = StateBuilder(tmp_path, VIEWS)
    now = time.time_ns()
    # The gauge is for monitoring; nothing decides by it.
    builder.stats.set("source_lag_messages", "roots", "0", value=999)
    edges = {"frontier": "12", "held": 40, "partitions": {"1": {"frontier": "20", "state": "active", "lag": 501}}}
    builder.sources = sources_of({"edges": edges, "roots": {"frontier": "99", "held": 0}})
    builder.commit(10, committed_ns=now - 30_000_000_000)
    reader = Reader(tmp_path)
    assert reader.poll()
    builder.commit(12, committed_ns=now - 20_000_000_000)
    assert reader.poll()
    builder.commit(12, committed_ns=now)
    assert reader.poll()
    options = Options(state=tmp_path, stale_after_ms=5_000, lag_limit=500)
    reasons = {reason["laggard"]: reason["why"] for reason in laggards(reader.snapshot, None, None, options, now)}
    assert list(reasons) == ["source edges"]
    found = [reason["why"] for reason in laggards(reader.snapshot, None, None, options, now)]
    assert "partition 1 has 501 unread messages" in found[0]
    assert "frontier has been at 12" in found[1]
    assert "40 updates wait" in found[1]
    assert laggards(reader.snapshot, "segment s: gone", None, options, now)[0] == {
        "laggard": "sidecar",
        "why": "segment s: gone",
    }
    reader.close()
    builder.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_program_that_fails_on_its_data_is_named_until_the_next_commit(
    builder: StateBuilder, serve: Callable[..., Served], stopped: bool
) -> None:
    builder.commit(10, {"reach": [((1,), 3, 1)]})
    url = serve(builder.path).url
    assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    reason = "udf 'half' in program.py:9 raised ZeroDivisionError for (1, 0)"
    told = Trouble(epoch=2, reason=reason, program=True, tries=3, since_ns=1, stopped=stopped)
    trouble.write(builder.state.blob, told)
    ready = httpx.get(f"{url}/readyz", trust_env=False)
    assert ready.status_code == 503
    (found,) = ready.json()["laggards"]
    assert found["laggard"] == "program"
    assert found["why"].startswith(f"epoch 2 failed 3 times in the program ({reason})")
    assert found["why"].endswith(
        "the driver has stopped (epoch.on_error is stop)" if stopped else "the driver tries again"
    )
    state = "stopped" if stopped else "failing"
    assert f'state="{state}"}} 1.0' in httpx.get(f"{url}/metrics", trust_env=False).text
    assert httpx.get(f"{url}/v1/views/reach", trust_env=False).json()["rows"] == [{"node": 1}]
    trouble.delete(builder.state.blob)
    assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200


def test_views_and_frontiers(http: httpx.Client) -> None:
    views = {view["name"]: view for view in http.get("/v1/views").json()["views"]}
    assert views["reach"] == {
        "name": "reach",
        "columns": [{"name": "node", "type": "Int64"}],
        "key": ["node"],
        "rows": 2,
        "since": views["reach"]["since"],
        "frontier": "20",
    }
    assert views["pairs"]["key"] == ["src", "dst"]
    assert views["pairs"]["columns"][0] == {"name": "weight", "type": "Float64 | None"}
    body = http.get("/v1/frontiers").json()
    assert (body["lower"], body["upper"], body["views"]) == (["10"], ["20"], {"reach": ["20"], "pairs": ["20"]})
    assert body["sources"] == {"edges": {"frontier": ["12"], "partitions": {"0": ["12"], "1": None}}}


def test_everything_final_is_an_empty_frontier(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(CLOSED, {"reach": [((1,), 3, 1)]})
    url = serve(builder.path).url
    assert httpx.get(f"{url}/v1/frontiers", trust_env=False).json()["upper"] == []
    body = httpx.get(f"{url}/v1/views/reach", trust_env=False).json()
    assert (body["rows"], body["as_of"]) == ([{"node": 1}], str(CLOSED - 1))
    assert "view_frontier_timestamp" not in httpx.get(f"{url}/metrics", trust_env=False).text


def test_latency(http: httpx.Client) -> None:
    body = http.get("/v1/latency").json()
    reach = body["views"]["reach"]
    assert (reach["count"], sum(reach["histogram"])) == (25, 25)
    assert len(body["bounds"]) == len(reach["histogram"]) - 1
    assert 0.1 <= reach["quantiles"]["0.5"] <= 0.2
    assert 3.0 <= reach["quantiles"]["0.99"] <= 5.0
    (point,) = reach["series"]  # what was observed while the sidecar looked on
    assert point["count"] == 5
    assert 0.15 <= point["p50"] <= 0.2
    assert "pairs" not in body["views"]


def test_latency_of_the_last_minutes_stands_beside_that_of_all_time(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    """A slow start, then quick minutes: what happens now is the headline, in the answer and in the metrics."""
    builder, now = StateBuilder(tmp_path / "state", VIEWS), time.time_ns()
    builder.stats.observe("view_latency_seconds", "reach", value=57.0, count=1_000)
    builder.commit(10, committed_ns=now - 400_000_000_000)
    builder.commit(20, committed_ns=now - 290_000_000_000)
    builder.stats.observe("view_latency_seconds", "reach", value=0.3, count=100)
    builder.commit(30, committed_ns=now)
    served = serve(builder.path)
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        body = client.get("/v1/latency").json()
        reach = body["views"]["reach"]
        assert (reach["count"], reach["recent"]["count"]) == (1_100, 100)
        assert reach["quantiles"]["0.5"] > 50
        assert 0.2 <= reach["recent"]["quantiles"]["0.99"] <= 0.3
        assert reach["recent"]["mean"] == pytest.approx(0.3)
        assert 285 < body["recent_seconds"] <= 300
        metrics = client.get("/metrics").text
        assert 'vernier_view_recent_latency_seconds{quantile="0.5",view="reach"} 0.2' in metrics
        shown = connect(served.url).status()
        assert shown["latency"]["reach"]["0.5"] < 1 < shown["latency"]["reach"]["all_time"]["0.5"]
        line = next(line for line in status_text(shown).splitlines() if line.startswith("reach"))
        assert " 250" in line
        assert " 5" in line.partition(" 250")[2]
    builder.close()


def test_marks_are_few_and_reach_back_five_minutes() -> None:
    stats, marks = Stats(), ()
    for second in range(3_000):
        stats.observe("view_latency_seconds", "v", value=0.1)
        marks = followed(marks, second * 10**9, Stats.from_json(stats.to_json()))
    assert len(marks) <= 62
    seconds, found = recent(marks, stats, 2_999 * 10**9)
    assert seconds == 300
    assert 295 <= found["v"].observations <= 305
    assert recent((), stats, 5)[1]["v"].observations == 3_000
    assert recent(marks, stats, 9_999 * 10**9)[1]["v"].observations <= 5


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=1&limit=2", "the query parameter 'limit' was given 2 times, but has one value"),
        ("where=node:lt:9&where=node:gt:1", None),
        ("where=node:eq:%ff", "the query parameter 'where' is not UTF-8"),
        ("order=node&cursor=%EF%BF%BD", "cursor"),
    ],
)
def test_query_parameters_that_can_be_read_in_two_ways(http: httpx.Client, query: str, says: str | None) -> None:
    answer = http.get(f"/v1/views/reach?{query}")
    assert answer.status_code == (200 if says is None else 400), answer.text
    if says is not None:
        assert says in answer.json()["detail"]
        assert (answer.json()["code"] == "bad_parameter") == ("query parameter" in says)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/views/reach?lmit=3", "/v1/views/{view} has no query parameter 'lmit'; did you mean 'limit'?"),
        ("/v1/views/reach/rows/1?asof=3", "did you mean 'as_of'?"),
        ("/v1/views/reach/changes?sinc=3", "did you mean 'since'?"),
        ("/v1/read?view=reach", "did you mean 'views'?"),
        ("/v1/dead-letters?sorce=x", "did you mean 'source'?"),
        ("/healthz?verbose=1", "has no query parameter 'verbose'; it has none"),
        ("/metrics?name[]=x", "it has none"),
        ("/v1/views/reach?", None),
        ("/v1/views/reach?limit=1", None),
    ],
)
def test_unknown_query_parameters_are_refused(http: httpx.Client, path: str, says: str | None) -> None:
    answer = http.get(path)
    if says is None:
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()["code"]) == (400, "unknown_parameter")
        assert says in answer.json()["detail"]


def test_every_route_refuses_unknown_query_parameters(http: httpx.Client) -> None:
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            answer = http.request(method, path.format(view="reach", key="1", source="x", token="x") + "?nonsense=1")
            assert (path, method, answer.status_code) == (path, method, 400)
            assert answer.json()["code"] == "unknown_parameter"


def _stalled(state: Path, sources: dict[str, Any]) -> list[dict[str, Any]]:
    """What /readyz complains of when these sources' frontiers have stood for 30 s."""
    builder, reader, now = StateBuilder(state, VIEWS), Reader(state), time.time_ns()
    builder.sources = sources_of(sources)
    for upper, age in ((10, 30), (12, 20), (12, 0)):
        builder.commit(upper, committed_ns=now - age * 1_000_000_000)
        assert reader.poll()
    return laggards(reader.snapshot, None, None, Options(state=state, stale_after_ms=5_000), now)


def test_readiness_names_the_partitions_that_are_waited_for_and_the_ways_out(tmp_path: Path) -> None:
    parts = {"0": {"frontier": "900", "state": "active"}, "9": {"frontier": None, "state": "idle"}}
    silent = {str(n): {"frontier": str(MIN_TIME), "state": "active"} for n in range(1, 9)}
    about = {"topic": "graph", "clock": "event", "held": 40, "frontier": str(MIN_TIME), "partitions": parts | silent}
    roots = {"frontier": "12", "held": 0, "partitions": {"0": {"frontier": "12", "state": "active"}}}
    (found,) = _stalled(tmp_path, {"edges": about, "roots": roots})
    assert found["laggard"] == "source edges"
    for words in (
        "at the beginning for 30.0 s while 40 updates wait for partitions 1, 2, 3, 4, 5 and 3 more of topic graph; ",
        "progress messages",
        "sources.edges.lateness",
        "sources.edges.idle_timeout_ms",
        '"upper": []',
    ):
        assert words in found["why"]


@pytest.mark.parametrize(("clock", "ways"), [("event", True), ("arrival", False)])
def test_only_partitions_with_the_event_clock_have_ways_out(tmp_path: Path, clock: str, ways: bool) -> None:
    parts = {"0": {"frontier": "12", "state": "active"}, "1": {"frontier": "40", "state": "active"}}
    about = {"edges": {"topic": "graph", "clock": clock, "held": 4, "frontier": "12", "partitions": parts}}
    (why,) = [one["why"] for one in _stalled(tmp_path, about)]
    assert " at 12 for 30.0 s while 4 updates wait for partition 0 of topic graph" in why
    assert ("ways out" in why) == ways


def test_readiness_names_a_full_disk(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    builder.commit(10)
    served = serve(builder.path)
    assert httpx.get(f"{served.url}/readyz", trust_env=False).status_code == 200
    served.context.disk_free = lambda folder: 4096
    ready = httpx.get(f"{served.url}/readyz", trust_env=False)
    assert ready.status_code == 503
    (found,) = ready.json()["laggards"]
    assert found["laggard"] == "disk"
    assert f"no space left in {builder.path}: 4096 bytes are free" in found["why"]


def test_epochs_sources_traces_letters_and_plan(http: httpx.Client, builder: StateBuilder) -> None:
    epochs = http.get("/v1/epochs").json()["epochs"]
    assert [(one["epoch"], one["lower"], one["upper"], one["changes"]["reach"]) for one in epochs][-1] == (
        2,
        "10",
        "20",
        1,
    )
    assert http.get("/v1/epochs?after=2").json()["epochs"] == []
    edges = http.get("/v1/sources").json()["sources"]["edges"]
    assert (edges["updates"], edges["errors"]) == ({"insert": 7}, {"decode": 2})
    traces = {trace["trace"]: trace for trace in http.get("/v1/traces").json()["traces"]}
    assert traces["view:reach"]["updates"] == 2
    assert sum(len(shard) for shard in traces["view:reach"]["shards"]) == 2
    letters = http.get("/v1/dead-letters").json()
    assert [(one["offset"], one["epoch"]) for one in letters["dead_letters"]] == [(9, 1), (4, 1)]
    assert letters["totals"] == [{"source": "edges", "reason": "decode", "value": 2}]
    assert http.get("/v1/dataflow").json()["code"] == "no_plan"
    (builder.path / "plan.json").write_text(json.dumps({"app": "test", "operators": []}))
    assert http.get("/v1/dataflow").json()["plan"]["app"] == "test"


def test_settings_are_masked(http: httpx.Client) -> None:
    answer = http.get("/v1/config")
    assert "hush" not in answer.text
    assert answer.json()["service"]["kafka"]["brokers"] == "x:1"
    assert answer.json()["sidecar"]["max_rows"] == 100_000


def test_metrics_in_both_formats(http: httpx.Client) -> None:
    http.get("/v1/views/reach/rows/1")
    plain = http.get("/metrics")
    families = {family.name: family for family in prometheus(plain.text)}
    assert families["vernier_source_updates"].samples[0].value == 7
    assert {s.labels["view"]: s.value for s in families["vernier_view_rows"].samples} == {"reach": 2, "pairs": 0}
    latency = [s for s in families["vernier_view_latency_seconds"].samples if s.name.endswith("_count")]
    assert [(s.labels, s.value) for s in latency] == [({"view": "reach"}, 25)]
    assert families["vernier_trace_layers"].samples[0].labels.keys() == {"trace"}
    assert {s.labels["route"] for s in families["vernier_http_request_duration_seconds"].samples} >= {
        "/v1/views/{view}/rows/{key}",
        "/v1/views/{view}",
    }
    known = {f"vernier_{name.removesuffix('_total')}" for name in CATALOGUE}
    own = {"build_info", "subscribers", "subscribers_dropped", "dataflow_state", "http_request_duration_seconds"}
    others = {f"vernier_{name}" for name in own} | {"vernier_http_request_duration_seconds_created"}
    assert set(families) <= known | others
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = http.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(answer.text)} >= {"vernier_epochs", "vernier_view_latency_seconds"}


def test_openapi_names_every_route(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    paths = set(document["paths"])
    assert paths >= {
        "/healthz", "/readyz", "/metrics", "/v1/views", "/v1/views/{view}", "/v1/views/{view}/rows/{key}",
        "/v1/views/{view}/rows", "/v1/views/{view}/changes", "/v1/read", "/v1/frontiers", "/v1/latency", "/v1/dataflow",
        "/v1/traces", "/v1/sources", "/v1/dead-letters", "/v1/config", "/v1/epochs",
    }  # fmt: skip
    references = set(_references(document))
    assert references
    for reference in references:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in _references(value)]
    return [found for value in node for found in _references(value)] if isinstance(node, list) else []


def test_quantiles_and_totals() -> None:
    histogram = Histogram.empty((1.0, 2.0, 4.0))
    assert histogram.quantile(0.5) is None
    for value, count in ((0.5, 1), (1.5, 2), (3.0, 1), (9.0, 4)):
        histogram.observe(value, count)
    assert histogram.counts == [1, 2, 1, 4]
    assert histogram.quantile(0.25) == pytest.approx(1.5)
    assert histogram.quantile(0.99) == 4.0
    earlier = Histogram((1.0, 2.0, 4.0), [1, 0, 0, 0], 0.5)
    assert histogram.minus(earlier).counts == [0, 2, 1, 4]
    stats = Stats()
    stats.observe("view_latency_seconds", "v", value=[0.001, 0.0011], count=[1, 2])
    stats.set("worker_memory_bytes", "0", value=5)
    again = Stats.from_json(json.loads(json.dumps(stats.to_json() | {"more": 1})))
    assert again.to_json() == stats.to_json()
    assert again.histograms["view_latency_seconds"]["v",].counts[:2] == [1, 2]
    for wrong in (lambda: stats.add("view_rows", "v"), lambda: stats.add("nope"), lambda: stats.add("epochs_total")):
        with pytest.raises(UnknownMetric):
            wrong()


def test_a_state_that_cannot_be_read_says_why(builder: StateBuilder, serve: Callable[..., Served]) -> None:
    manifest = builder.commit(10, {"reach": [((1,), 3, 1)]})
    (builder.path / segment_file(manifest.changes["reach"][0].segment)).write_bytes(b"not a segment")
    url = serve(builder.path).url
    answer = httpx.get(f"{url}/v1/views/reach", trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (503, "damaged")
    assert "too short" in answer.json()["detail"]
    ready = httpx.get(f"{url}/readyz", trust_env=False).json()
    file = segment_file(manifest.changes["reach"][0].segment)
    assert (ready["code"], ready["laggards"][0]["laggard"]) == ("damaged", f"file {file}")


def test_sinks(builder: StateBuilder, http: httpx.Client) -> None:
    assert http.get("/v1/sinks").json() == {"sinks": {}, "behind_epochs": None, "problem": None}
    sent = told.Sink("test.reach", "vernier", 10, {"updates": 3, "progress": 7})
    stuck = told.Sink("test.pairs", "upsert", None, {}, "several rows")
    told.write(builder.state.blob, told.PublisherStatus(1, time.time_ns(), {"reach": sent, "pairs": stuck}))
    found = http.get("/v1/sinks").json()
    assert found["behind_epochs"] == 1
    assert found["sinks"]["reach"] == {
        "topic": "test.reach", "format": "vernier", "frontier": ["10"], "messages": {"updates": 3, "progress": 7},
        "problem": None,
    }  # fmt: skip
    assert found["sinks"]["pairs"]["frontier"] is None
    text = http.get("/metrics").text
    assert 'vernier_sink_messages_total{kind="updates",sink="reach"} 3.0' in text
    assert 'vernier_sink_frontier_timestamp_seconds{sink="reach"} 1e-08' in text
    assert 'vernier_sink_lag_seconds{sink="reach"} 1e-08' in text
