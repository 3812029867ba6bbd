"""Prometheus and Grafana as they are provisioned: rules, dashboard, runbook and manual agree."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from tests.container.provisioned import DASHBOARD, DOCKER, RULES, panels, queries
from tests.container.watched import program
from vernier.service.observability.metrics import CATALOGUE


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
