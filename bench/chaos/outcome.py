"""Outcome: what a run has left in topics and in the state, and its comparison with the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.chaos import topics
from bench.chaos.sources import SETTINGS, Record, odd_settings
from bench.chaos.truth import VIEWS, Truth
from bench.chaos.verify import APP, ARRIVING, Findings, check, check_audits, check_letters, moved_up, updates_of
from bench.chaos.watch import Watch
from vernier.service.cli.commands.states import open_state
from vernier.service.config.settings import load
from vernier.service.sinks.audit import TopicAudit, audit_topics

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """All messages of input topics, output topics and dead-letter queues, by topic or view. skewed: arrivals that were
    moved up to the frontier, by source; audits: the findings of the service's own tool."""

    inputs: Mapping[str, Sequence[Record]]
    outputs: Mapping[str, Sequence[Record]]
    letters: Mapping[str, Sequence[Record]]
    skewed: Mapping[str, int]
    audits: Sequence[TopicAudit]

    @staticmethod
    def read(url: str, bootstrap: str, config: Path) -> Outcome:
        """Read everything. url: of a sidecar; config: the service's settings."""
        present = topics.names(bootstrap)
        inputs = topics.read(bootstrap, sorted(present & (SETTINGS.keys() | odd_settings(config.parent).keys())))
        sinks = topics.read(bootstrap, [f"{APP}.{view}" for view in VIEWS])
        letters = topics.read(bootstrap, sorted(name for name in present if name.endswith(".dlq")))
        outputs = {view: sinks[f"{APP}.{view}"] for view in VIEWS}
        return Outcome(inputs, outputs, letters, skewed(url), audit(config))

    def compare(self, watch: Watch, findings: Findings, say: Say) -> int:
        """Compare topics, dead letters and samples with a recomputation. Returns the number of updates."""
        say(
            f"comparing {_count(self.inputs)} messages, {len(watch.samples)} samples, {_count(self.outputs)} messages "
            f"of output and {_count(self.letters)} dead letters"
        )
        check_audits(self.audits, findings)
        updates = moved_up(updates_of(self.inputs), self.outputs, self.skewed, findings)
        check(Truth(updates), watch.samples, self.outputs, findings)
        check_letters(self.inputs, self.letters, findings)
        for problem in watch.wrong[:20]:
            findings.add(problem)
        return len(updates)


def audit(config: Path) -> list[TopicAudit]:
    """The findings of the service's own tool (`vernier sinks verify`): each message once, no progress left out, each
    change of the state's history in its view's topic."""
    settings = load(config, {}).settings
    return audit_topics(settings.kafka_client(), open_state(settings.state.path))


def ready(url: str) -> bool:
    """Whether /readyz says yes."""
    return httpx.get(f"{url}/readyz", timeout=5).status_code == 200


def published(url: str, end: int) -> bool:
    """Whether all output topics are complete before a data time."""
    answer = httpx.get(f"{url}/v1/sinks", timeout=10)
    if answer.status_code != 200:
        return False
    sinks = answer.json()["sinks"]
    return len(sinks) == len(VIEWS) and all(_reaches(sink["frontier"], end) for sink in sinks.values())


def skewed(url: str) -> dict[str, int]:
    """Arrivals that were moved up to the frontier, by source."""
    found = {}
    for line in httpx.get(f"{url}/metrics", timeout=10).text.splitlines():
        if line.startswith("vernier_source_late_updates_total{") and 'action="skewed"' in line:
            name = line.split('source="')[1].split('"')[0]
            found[name] = int(float(line.rsplit(" ", 1)[1]))
    return {name: found.get(name, 0) for name in ARRIVING}


def _count(records: Mapping[str, Sequence[Record]]) -> int:
    return sum(map(len, records.values()))


def _reaches(frontier: list[str] | None, end: int) -> bool:
    """None: not known yet. An empty frontier: everything is complete."""
    return frontier is not None and (not frontier or int(frontier[0]) >= end)
