"""A real Prometheus scrapes a live service in which everything has happened that is counted: every query of dashboard
and alerts has an answer, and what the metrics say is compared with what has happened."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.container.provisioned import RULES, queries
from tests.container.watched import MINUTE, Watched
from tests.live.service import wait_for
from vernier.storage.state.manifest import Manifest
from vernier.storage.state.state import StateDirectory

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.slow]

CHAIN, CUT, TURNS = 40, 20, 5
"""Edges in a row, and from which on they are deleted and inserted again, how often."""
RETAINED = 10 * MINUTE
"""What the demonstration retains."""


@dataclass
class Quiet:
    """What was said of a run while it was paused: the samples by name, labels and value, its manifest and its plan."""

    samples: list[tuple[str, dict[str, str], float]]
    sent: Counter[tuple[str, str]]
    manifest: Manifest
    plan: dict[str, Any]
    folder: Path
    answers: dict[int, int]
    """Status of an as-of read of a view, by data time: around its trace's since."""

    def values(self, metric: str, *labels: str, **wanted: str) -> dict[Any, float]:
        """The samples with the labels wanted, by the values of labels: of one label by itself."""
        found = {
            tuple(about[label] for label in labels): value
            for name, about, value in self.samples
            if name == metric and wanted.items() <= about.items()
        }
        return {key[0] if len(labels) == 1 else key: value for key, value in found.items()}


def quiet(watched: Watched) -> Quiet:
    """Pause, and write down what is said."""
    watched.control("pause")
    state = watched.folder / "state"
    manifest = StateDirectory(state).latest()
    assert manifest is not None
    since = manifest.views["reach"].since
    answers = {
        at: httpx.get(f"{watched.service.url}/v1/views/reach", params={"as_of": str(at)}, timeout=30).status_code
        for at in (since - 1, since, watched.time - 1)
    }
    samples = [(name, dict(labels), value) for (name, labels), value in watched.metrics().items()]
    plan = json.loads((state / "plan.json").read_text("utf-8"))
    return Quiet(samples, watched.sent.copy(), manifest, plan, state, answers)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Watched, Quiet]]:
    """A service after everything has happened, and what was said of it before it had troubles."""
    with Watched(tmp_path_factory.mktemp("watched")) as watched:
        watched.send("roots", ((0,), 1))
        watched.send("edges", *[((node, node + 1), 1) for node in range(CHAIN)])
        watched.final()
        watched.time += 19 * MINUTE
        for _ in range(TURNS):
            for diff in (-1, 1):
                watched.send("edges", *[((node, node + 1), diff) for node in range(CUT, CHAIN)])
                watched.final()
        written = quiet(watched)
        watched.control("resume")
        # A message that kills its worker, so that an attempt fails; one that cannot be read; a late update.
        watched.raw(b"kill")
        watched.raw(b"nonsense")
        watched.raw({"v": 1, "t": "1", "input": "edges", "u": [[[1, 2], "1", 1]]})
        watched.final()
        lost = watched.lose()
        watched.send("edges", ((CHAIN, CHAIN + 1), 1))
        watched.final()
        wait_for(
            "lost messages are counted", lambda: watched.total("source_lost_messages_total", source="edges") == lost
        )
        watched.scrape()
        yield watched, written


def test_every_panel_can_be_answered(run: tuple[Watched, Quiet]) -> None:
    watched, _ = run
    for title, query in queries():
        values = [float(series["value"][1]) for series in watched.asked(query)]
        # Rates of what has ended, and quotients of them, may be no number; not all of them.
        assert any(value == value for value in values), (title, query)


@pytest.mark.parametrize("query", [*(query for _, query in queries()), *(rule["expr"] for rule in RULES)])
def test_every_metric_and_label_that_is_asked_for_has_a_value(run: tuple[Watched, Quiet], query: str) -> None:
    watched, _ = run
    selectors = re.findall(r"\b(?:vernier_\w+|up)\b(?:\{[^}]*\})?", query)
    assert selectors
    grouped = {label.strip() for names in re.findall(r"\bby \(([^)]*)\)", query) for label in names.split(",")}
    for selector in selectors:
        found = watched.asked(selector)
        assert found, selector
        for series in found:
            assert series["value"][1] != "NaN", series
            assert grouped <= series["metric"].keys() | {"le" if "_bucket" not in selector else ""}, series
            assert all(series["metric"][label] for label in grouped if label in series["metric"]), series


def test_rules_are_evaluated_and_fire_for_what_has_happened(run: tuple[Watched, Quiet]) -> None:
    watched, _ = run
    answer = httpx.get(f"{watched.prometheus}/api/v1/rules", trust_env=False)
    (group,) = answer.json()["data"]["groups"]
    rules = {rule["name"]: rule for rule in group["rules"]}
    assert rules.keys() == {rule["alert"] for rule in RULES}
    assert [rule for rule in rules.values() if rule["health"] != "ok"] == []
    firing = {name for name, rule in rules.items() if rule["state"] == "firing"}
    assert firing == {"VernierRefusesMessages", "VernierPoison", "VernierLosesMessages"}
    refused = {(one["labels"]["source"], one["labels"]["reason"]) for one in rules["VernierRefusesMessages"]["alerts"]}
    assert refused == {("graph", "poison"), ("graph", "decode"), ("edges", "late")}


def test_what_was_sent_is_what_was_counted(run: tuple[Watched, Quiet]) -> None:
    watched, written = run
    assert written.values("source_updates_total", "source", "sign") == written.sent
    counted = {
        (source, sign): watched.total("source_updates_total", source=source, sign=sign) for source, sign in watched.sent
    }
    assert counted == watched.sent  # neither what was refused nor what was lost


def test_updates_into_an_operator_are_those_out_of_its_inputs(run: tuple[Watched, Quiet]) -> None:
    _, written = run
    took = written.values("operator_updates_total", "operator", direction="in")
    gave = written.values("operator_updates_total", "operator", direction="out")
    operators = {str(one["id"]): one for one in written.plan["operators"]}
    assert took.keys() == gave.keys() == operators.keys()
    for number, about in operators.items():
        assert took[number] == sum(gave[str(one)] for one in about["inputs"]), about
        if about["kind"] == "input":
            sent = sum(count for (source, _), count in written.sent.items() if source == about["name"])
            assert gave[number] == sent
        elif about["kind"] == "view":
            assert took[number] == sum(written.values("view_changes_total", "sign", view=about["name"]).values()) > 0


def test_merges_have_cancelled_what_traces_hold_no_more(run: tuple[Watched, Quiet]) -> None:
    _, written = run
    gave = written.values("operator_updates_total", "operator", direction="out")
    held = written.values("trace_updates", "trace")
    taken = {one["trace"]: gave[str(one["id"])] for one in written.plan["operators"] if "trace" in one}
    assert taken.keys() == held.keys()
    results = written.values("trace_merge_updates_total", "result")
    assert results.keys() == {"kept", "cancelled"}
    assert results["cancelled"] == sum(taken.values()) - sum(held.values()) > 0
    assert results["kept"] > 0
    # Views keep all times that are retained; the arrangement of edges does not.
    (edges,) = (one for one in written.plan["operators"] if one["name"] == "edges by src")
    turned = 2 * TURNS * (CHAIN - CUT)
    assert taken[edges["trace"]] == CHAIN + turned
    assert CHAIN <= held[edges["trace"]] < CHAIN + turned


def test_bytes_of_traces_are_those_of_their_files_and_of_workers(run: tuple[Watched, Quiet]) -> None:
    watched, written = run
    disk = written.values("trace_bytes", "trace", tier="disk")
    memory = written.values("trace_bytes", "trace", tier="memory")
    refs = {name: [ref for shard in entry.shards for ref in shard] for name, entry in written.manifest.traces.items()}
    assert disk == {name: sum(ref.nbytes for ref in own) for name, own in refs.items()}
    assert memory.keys() == disk.keys()
    segments = {ref.segment for own in refs.values() for ref in own}
    files = [file for file in written.folder.rglob("*") if file.is_file() and file.stem in segments]
    assert len(files) == len(segments)
    assert 0 < sum(disk.values()) <= sum(file.stat().st_size for file in files)
    # Workers that live since the first epoch have in memory all that they have written; others map the files.
    assert memory == disk
    now = {
        tier: {name: watched.total("trace_bytes", trace=name, tier=tier) for name in disk}
        for tier in ("memory", "disk")
    }
    assert all(now["memory"][name] <= now["disk"][name] for name in disk)


def test_since_is_the_time_before_which_nobody_can_read(run: tuple[Watched, Quiet]) -> None:
    _, written = run
    since = written.values("trace_since_timestamp_seconds", "trace")
    assert since.keys() == written.manifest.traces.keys()
    views = {entry.trace: entry.since for entry in written.manifest.views.values()}
    upper = written.manifest.upper
    assert set(views.values()) == {upper - RETAINED}
    assert since == {name: views.get(name, upper) / 1e9 for name in since}
    first, *others = written.answers.values()
    assert (first, others) == (httpx.codes.GONE, [httpx.codes.OK, httpx.codes.OK])
