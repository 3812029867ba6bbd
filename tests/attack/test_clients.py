"""Hostile clients: whatever they send, no answer is a 5xx but 503, and the sidecar is the same process at the end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.attack.clients import Hostile
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import VIEWS
from tests.sidecar.process import SidecarProcess, running
from vernier.service.sidecar.app import build
from vernier.service.sidecar.options import Options

PLAN = {"app": "test", "sources": {"edges": [["src", "Int64"], ["dst", "Int64"]]}, "arrangements": []}
SETTINGS = [
    "http.query_ms=5000",
    "http.max_wait_ms=100",
    "http.ingest_ms=200",
    "http.max_body_bytes=20000",
    "kafka.bootstrap=127.0.0.1:1",
]
"""Nothing listens where its Kafka should be, and nothing happens that a request could wait for."""
THREADS = 4
ORDINARY, NIGHTLY, ROUND = 1_000, 96_000, 2_000
"""Requests of the hostile client; in the nightly run schemathesis sends a ninth as many after it."""


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    """A process over twenty rows of each view."""
    builder = StateBuilder(tmp_path / "state", VIEWS)
    (builder.path / "plan.json").write_text(json.dumps(PLAN))
    pairs = [((None, node, node + 1, True, node, date(2026, 1, 1 + node)), node, 1) for node in range(20)]
    builder.commit(20, {"reach": [((node,), node, 1) for node in range(20)], "pairs": pairs}, since=5)
    given = [part for setting in SETTINGS for part in ("--set", setting)]
    with running(builder.path, "--log-level", "error", *given) as process:
        yield process
    builder.close()


def attack(sidecar: SidecarProcess, count: int, first: int = 0) -> Counter[int | None]:
    """Send hostile requests, a few at a time; returns the number of answers by status. first: of the clients' seeds."""
    clients = [Hostile(sidecar.port, first + number) for number in range(THREADS)]
    threads = [threading.Thread(target=client.run, args=(count // THREADS,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for client in clients for one in client.failed] == []
    answers: Counter[int | None] = Counter()
    for client in clients:
        answers.update(client.answers)
    assert answers.total() == count
    return answers


def check_alive(sidecar: SidecarProcess) -> None:
    """The same process answers, and rightly; and it has not complained in its log."""
    with httpx.Client(base_url=sidecar.url, trust_env=False, timeout=30) as client:
        assert client.get("/healthz").json()["pid"] == sidecar.process.pid
        assert [row["node"] for row in client.get("/v1/views/reach").json()["rows"]] == list(range(20))
    assert sidecar.end() == (0, "")


def test_hostile_requests_are_refused_and_the_sidecar_lives(sidecar: SidecarProcess) -> None:
    answers = attack(sidecar, ORDINARY)
    assert {200, 400, 404, 405, 406} <= answers.keys()
    check_alive(sidecar)


def ask(
    sidecar: SidecarProcess, operation: schemathesis.APIOperation, count: int, answers: Counter[int | None]
) -> None:
    """Send valid and invalid requests that schemathesis makes for an operation; adds to the answers."""

    @seed(1)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def sent(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
        case = data.draw(operation.as_strategy(mode))
        if case.operation.path.endswith("/changes"):
            case.query = {**(case.query or {}), "until": "20"}  # else it would never end
        answer = case.call(base_url=sidecar.url, timeout=60)
        answers[answer.status_code] += 1
        if answer.status_code != 503:
            case.validate_response(answer, checks=[not_a_server_error])

    sent()


@pytest.mark.nightly
@pytest.mark.timeout(7_200)
def test_a_hundred_thousand_requests(sidecar: SidecarProcess) -> None:
    answers: Counter[int | None] = Counter()
    for first in range(0, NIGHTLY, ROUND):
        answers.update(attack(sidecar, ROUND, first))
        print(f"{answers.total()} hostile requests", flush=True)
    schema = schemathesis.openapi.from_dict(build(Options(Path("nowhere"))).openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    each = -(-NIGHTLY // 9 // len(operations))
    for operation in operations:
        ask(sidecar, operation, each, answers)
    assert answers.total() >= 100_000
    check_alive(sidecar)
    print(f"{answers.total()} requests, answers by status: {dict(sorted(answers.items(), key=str))}")
