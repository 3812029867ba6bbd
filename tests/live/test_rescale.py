"""A live service gets other numbers of workers while updates come, and its processes are killed in the middle of it."""

import random
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.live.service import Service, wait_for
from tests.live.truth import Truth
from tests.live.watched import Watched
from tests.profiles import NIGHTLY
from tests.sinks.topic import changes, committed
from vernier.service.cli.main import run
from vernier.service.client.client import connect

VIEWS = ("reach", "distances", "histogram")
PLAIN = [3, 2, 1, 2]
"""Numbers of workers, one after the other, from two on."""
KILLED = ["worker", "driver", "jvm", "worker", "driver", "worker"] if NIGHTLY else ["worker", "driver"]
"""What is killed in the middle of further switches."""


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_other_numbers_of_workers_lose_nothing_and_repeat_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth, chance = Truth(), random.Random(11)
    with Service(tmp_path, 2) as service:
        watched = Watched(service, truth, partitions=2, rate=200, seed=11)
        for workers in PLAIN:
            assert run(["rescale", str(workers), "--url", service.url, "--wait", "120"]) == 0
            assert capsys.readouterr().out == f"{workers} worker{'s' if workers > 1 else ''}\n"
            assert _workers(service) == workers
            watched.goes_on(f"with {workers} workers")
            assert len(service.processes("worker")) == workers
        assert run(["rescale", "200", "--url", service.url]) == 1
        assert "200 workers refused: Spark can run" in capsys.readouterr().err
        with connect(service.url) as client:
            for role in KILLED:
                workers = chance.choice([one for one in (1, 2, 3) if one != _workers(service)])
                client.rescale(workers)
                # Any moment will do, from before the driver knows of it until after the switch.
                threading.Event().wait(1.5 * chance.random())
                service.kill(role, chance)
                wait_for(f"{workers} workers after the kill of a {role}", lambda: _workers(service) == workers)  # noqa: B023
                watched.goes_on("after it")
        end = watched.finish(len(PLAIN) + len(KILLED))
        with connect(service.url) as client:
            wait_for("everything is published", lambda: all(_sent(client.sinks(), view) >= end for view in VIEWS))
        wanted: dict[str, Counter[tuple[tuple[int, ...], int]]] = {view: Counter() for view in VIEWS}
        for time, view, row, diff in truth.changes(end):
            wanted[view][row, time] += diff
        for view in VIEWS:
            assert changes(committed(service.bootstrap, f"demo.{view}")) == wanted[view], view
        assert "vernier_source_errors_total{" not in httpx.get(f"{service.url}/metrics").text


def _workers(service: Service) -> int:
    with connect(service.url) as client:
        return int(client.rescale()["workers"])


def _sent(sinks: dict[str, dict[str, object]], view: str) -> int:
    frontier = sinks[view]["frontier"]
    assert isinstance(frontier, list)
    return int(frontier[0])
