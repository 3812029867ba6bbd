"""Pause, resume and drain over HTTP and from the command line; a driver's bookkeeping runs beside them."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served
from vernier.service.cli.main import run
from vernier.service.client.client import connect
from vernier.service.coordinator.intake_controller import IntakeController
from vernier.service.coordinator.worker_count import WorkerCount
from vernier.service.sidecar.options import Options
from vernier.service.sidecar.readiness import laggards
from vernier.service.status import intake as control
from vernier.service.views.snapshot_reader import Reader
from vernier.storage.blob.local_blob import LocalBlob


@pytest.fixture
def served(builder: StateBuilder, serve: Callable[..., Served]) -> Served:
    """A sidecar over one epoch."""
    builder.commit(10, {"reach": [((1,), 3, 1)]})
    return serve(builder.path)


@pytest.fixture
def driver(builder: StateBuilder) -> Iterator[IntakeController]:
    """Follows wishes as a driver does, and has read everything at its second look."""
    controller = IntakeController(LocalBlob(builder.path), lambda: {"t": {0: 3}})
    stop = threading.Event()

    def follow() -> None:
        read = 1
        while not stop.wait(0.02):
            controller.look()
            controller.passed({"t": {0: read}}, 0)
            controller.settle()
            read += 2 * (controller.observed.left > 0)

    thread = threading.Thread(target=follow)
    thread.start()
    yield controller
    stop.set()
    thread.join()


def test_without_a_driver_it_is_only_asked_for(served: Served) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        assert http.get("/v1/control").json()["intake"] == "running"
        answer = http.post("/v1/control/pause", params={"wait_ms": 150})
        assert answer.status_code == 202
        body = answer.json()
        assert (body["intake"], body["wanted"], body["acknowledged"]) == ("running", "paused", False)
        assert "the driver has not read the request yet" in body["says"]
        assert http.get("/v1/control").json() == body
        assert http.get("/readyz").status_code == 200
        assert http.post("/v1/control/stop").status_code == 404
        assert http.get("/v1/control/pause").status_code == 405
        assert http.post("/v1/control/pause", params={"wait_ms": -1}).status_code == 422


def test_everybody_is_told(served: Served, driver: IntakeController) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        answer = http.post("/v1/control/pause", params={"wait_ms": 30_000})
        assert (answer.status_code, answer.json()["intake"]) == (200, "paused")
        answer = http.get("/readyz")
        assert answer.status_code == 503
        assert [one["laggard"] for one in answer.json()["laggards"]] == ["intake"]
        assert "vernier resume" in answer.text
        assert 'vernier_dataflow_state{dataflow="test",state="paused"} 1.0' in http.get("/metrics").text
        # Answers stay.
        assert http.get("/v1/views/reach").json()["rows"] == [{"node": 1}]
        answer = http.post("/v1/control/drain", params={"wait_ms": 30_000})
        assert (answer.status_code, answer.json()["intake"], answer.json()["left"]) == (200, "drained", 0)
        answer = http.post("/v1/control/resume", params={"wait_ms": 30_000})
        assert (answer.status_code, answer.json()["intake"]) == (200, "running")
        assert http.get("/readyz").status_code == 200
    with connect(served.url) as client:
        assert client.control("pause", wait_ms=30_000)["acknowledged"]
        assert client.status()["laggards"][0]["laggard"] == "intake"


def test_commands(served: Served, driver: IntakeController, capsys: pytest.CaptureFixture[str]) -> None:
    for word, intake in (("pause", "paused"), ("drain", "drained"), ("resume", "running")):
        assert run([word, "--url", served.url]) == 0
        assert control.observed(LocalBlob(Path(str(served.context.options.state)))).intake == intake
    assert "intake is paused" in capsys.readouterr().out


def test_another_number_of_workers_is_asked_for(
    builder: StateBuilder, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    files = LocalBlob(builder.path)
    with httpx.Client(base_url=served.url, trust_env=False) as http:
        found = http.get("/v1/control/workers").json()
        assert found == {"workers": 1, "wanted": 1, "acknowledged": True, "refused": None, "says": "1 worker"}
        answer = http.post("/v1/control/workers", params={"workers": 3, "wait_ms": 50})
        assert answer.status_code == 202
        assert answer.json()["says"] == "1 worker; 3 workers requested, but the driver has not read the request yet"
        count = WorkerCount(files, 1, lambda: 4)
        count.publish()
        assert http.get("/v1/control/workers").json()["says"] == "1 worker; the next epoch is the first one of 3"
        assert run(["rescale", "3", "--wait", "0.1", "--url", served.url]) == 1
        assert "the request stays" in capsys.readouterr().err
        http.post("/v1/control/workers", params={"workers": 1})
        assert count.look()
        count.publish()
        assert http.get("/v1/control/workers").json() == found
        assert "vernier_workers 1.0" in http.get("/metrics").text
        assert http.get("/readyz").status_code == 200
        for wrong in ({}, {"workers": 0}, {"workers": 257}, {"workers": "two"}):
            assert http.post("/v1/control/workers", params=wrong).status_code == 422
    with connect(served.url) as client:
        assert client.rescale(9)["wanted"] == 9
        count.look()
        count.publish()
        assert "fewer than 9" in client.rescale()["refused"]


def test_a_command_that_nobody_follows_fails_and_stays_asked_for(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pause", "--wait", "0.1", "--url", served.url]) == 1
    assert "the request stays" in capsys.readouterr().err


def test_whoever_is_paused_is_not_called_old_as_well(builder: StateBuilder, tmp_path: Path) -> None:
    builder.commit(10, committed_ns=time.time_ns() - 60_000_000_000)
    reader = Reader(builder.path)
    reader.poll()
    options, now = Options(state=tmp_path), time.time_ns()
    paused = control.Observed(intake="paused")
    assert [one["laggard"] for one in laggards(reader.snapshot, None, None, options, now)] == ["pipeline"]
    assert [one["laggard"] for one in laggards(reader.snapshot, None, None, options, now, paused)] == ["intake"]
    reader.close()
