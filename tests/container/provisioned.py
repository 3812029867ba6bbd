"""What Prometheus and Grafana are provisioned with: panels, their queries, rules."""

import json
from typing import Any

import yaml

from tests.live.service import ROOT

DOCKER = ROOT / "docker"
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/vernier.json").read_text("utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DOCKER / "prometheus/alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]


def panels() -> list[dict[str, Any]]:
    """All panels that ask something."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """(panel, query) of the dashboard; Grafana's own variable is filled in as it would be."""
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "1m"))
        for panel in panels()
        for target in panel["targets"]
    ]
