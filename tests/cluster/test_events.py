"""Random events in a cluster: what is answered and published stays what a recomputation gives, and all goes on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.chaos.cluster import Pace, run
from bench.chaos.events import deck
from tests.cluster.network import missing

EVENTS, SEED, SPEED = 30, 22, 0.4

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(4 * 3600)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all hosts see, unlike /tmp."""
    if why := missing():
        pytest.skip(why)
    made = Path(tempfile.mkdtemp(prefix="vernier-cluster-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_answers_and_topics_are_exact_through_random_events(folder: Path) -> None:
    report = run([(event,) for event in deck(SEED, EVENTS)], SEED, Pace(SPEED, 500), print, folder)
    assert report.wrong == []
    assert len(report.rows) == EVENTS
    assert report.findings.compared["samples"] > EVENTS
    assert report.findings.compared["published changes"] > 0
