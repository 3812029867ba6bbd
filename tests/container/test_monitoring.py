"""Prometheus and Grafana as they are provisioned: every query is put to a real Prometheus that reads our /metrics."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from service.stats import CATALOGUE
from tests import debian
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served

DOCKER = Path(__file__).resolve().parents[2] / "docker"
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/vernier.json").read_text("utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DOCKER / "prometheus/alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
QUIET = {
    # Nothing is counted by them in the state that the test builds.
    "vernier_subscribers",
}
PATIENCE = 60


def panels() -> list[dict[str, Any]]:
    """All panels that ask something."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """(panel, query) of the dashboard; Grafana's own variable is filled in as it would be."""
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "20s"))
        for panel in panels()
        for target in panel["targets"]
    ]


def program(name: str) -> str:
    """Prometheus, or its tool."""
    return debian.program(lambda: shutil.which(name), "prometheus", name)


@pytest.fixture
def prometheus(tmp_path: Path, builder: StateBuilder, serve: Callable[..., Served]) -> Iterator[str]:
    """The address of a Prometheus that scrapes a sidecar whose state has a number for every metric."""
    fill(builder)
    sidecar = serve(builder.path)
    config = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{sidecar.port}"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    shutil.copy(DOCKER / "prometheus/alerts.yml", tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with open(tmp_path / "prometheus.log", "wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait(lambda: len(asked(url, "vernier_commit_timestamp_seconds")) == 1, tmp_path / "prometheus.log")
        # A rate needs two samples that differ in time, and an epoch between them to be more than 0.
        for _ in range(3):
            fill(builder)
            before = asked(url, "scrape_samples_scraped")[0]["value"][0]
            wait(lambda: asked(url, "timestamp(up)")[0]["value"][1] > str(before + 1), tmp_path / "prometheus.log")  # noqa: B023
        yield url
    finally:
        process.terminate()
        process.wait(30)


def fill(builder: StateBuilder) -> None:
    """Commit an epoch that counts something everywhere."""
    for metric in CATALOGUE.values():
        labels = tuple({"outcome": "committed", "direction": "out"}.get(label, "1") for label in metric.labels)
        if metric.kind == "counter":
            builder.stats.add(metric.name, *labels, by=2)
        elif metric.kind == "gauge":
            builder.stats.set(metric.name, *labels, value=1_700_000_000)
        else:
            builder.stats.observe(metric.name, *labels, value=0.02)
    at = max(builder.frontier, time.time_ns() - 1_000_000_000) + 1
    builder.commit(at + 1, {"reach": [((at,), at, 1)]})


def asked(url: str, query: str) -> list[Any]:
    """What an instant query gives; nothing while Prometheus starts."""
    try:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, trust_env=False, timeout=10)
    except httpx.HTTPError:
        return []
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return []  # It listens before it has read its log.
    body = answer.json()
    assert body["status"] == "success", (query, body)
    found: list[Any] = body["data"]["result"]
    return found


def wait(what: Callable[[], bool], log: Path) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, log.read_text("utf-8", "replace")[-2000:]
        threading.Event().wait(0.1)


def test_every_panel_and_every_alert_can_be_answered(prometheus: str) -> None:
    empty = []
    for title, query in queries():
        found = asked(prometheus, query)
        if not found and not any(name in query for name in QUIET):
            empty.append((title, query))
        for series in found:
            assert series["value"][1] != "NaN" or "quantile" in query or "/" in query, (title, query)
    assert not empty
    rules = httpx.get(f"{prometheus}/api/v1/rules", trust_env=False).json()["data"]["groups"][0]["rules"]
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in RULES}
    assert [rule for rule in rules if rule["health"] == "err"] == []


def test_the_rules_and_the_configuration_pass_prometheus_own_check() -> None:
    tool = program("promtool")
    ended = subprocess.run(
        [tool, "check", "config", str(DOCKER / "prometheus/prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_queries_name_metrics_that_there_are() -> None:
    derived = {"dataflow_state", "subscribers", "http_request_duration_seconds"}
    known = {f"vernier_{name}" for name in [*CATALOGUE, *derived]}
    known |= {f"{name}{end}" for name in known for end in ("_bucket", "_sum", "_count")}
    for query in [*(query for _, query in queries()), *(rule["expr"] for rule in RULES)]:
        named = set(re.findall(r"\bvernier_\w+", query))
        assert named <= known, query


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    assert DASHBOARD["uid"] == "vernier"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert places.isdisjoint(cells), panel["title"]
        places |= cells
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text("utf-8"))
    (named,) = source["datasources"]
    for panel in panels():
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["datasource"]["uid"] == named["uid"] for target in panel["targets"])


def test_grafanas_own_schema_knows_all_of_the_dashboard() -> None:
    """What its models do not know is lost on the way through them."""
    plugins.register_default_plugins()
    read = GrafanaDashboard.from_json(DASHBOARD)
    written = json.loads(JSONEncoder().encode(read))
    assert lost(DASHBOARD, written) == []
    mistaken = DASHBOARD | {"refesh": "5s"}
    assert lost(mistaken, written) == [".refesh"]


def lost(before: Any, after: Any, where: str = "") -> list[str]:
    """The places of what is not in `after`, or not the same there."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [one for key, value in before.items() for one in lost(value, after.get(key), f"{where}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [one for place, (left, right) in pairs for one in lost(left, right, f"{where}[{place}]")]
    return [] if before == after else [where]


def test_each_alert_has_a_section_in_the_runbook() -> None:
    text = (DOCKER.parent / "docs/operations.md").read_text("utf-8")
    titles = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    for rule in RULES:
        page, _, section = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md"
        assert section in titles, rule["alert"]


def test_the_manual_has_every_metric() -> None:
    text = (DOCKER.parent / "docs/operations.md").read_text("utf-8")
    missing = [name for name in CATALOGUE if not re.search(rf"`{name}[`{{]", text)]
    assert not missing
