"""A service on several hosts: Spark's master and workers, broker, store, driver and sidecars meet over the network
alone."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.cluster.hosts import cluster
from tests.cluster.network import missing
from tests.live.service import Feeder, wait_for
from tests.live.truth import Truth
from tests.live.watched import Sampler, check

PATIENCE = 240.0
"""Seconds that anything may take; never part of a result."""

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(1500)]


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    """Say what the machine lacks, where it does."""
    if why := missing():
        pytest.skip(why)


def test_a_program_runs_on_hosts_and_goes_on_when_one_of_them_dies(tmp_path: Path) -> None:
    truth = Truth()
    with cluster(tmp_path, {"one": 1, "two": 1}, ["three", "driver", "sidecar"], PATIENCE) as made:
        service = made.service("driver", 2)
        service.launch()
        wait_for("the service is up", service.alive, PATIENCE)
        feeder = Feeder(made.bootstrap, 2, 200, 11, truth)
        feeder.start()
        wait_for("the first answers", lambda: service.frontier() > 0, PATIENCE)
        sampler = Sampler(service, 11)
        sampler.start()
        wait_for("samples", lambda: len(sampler.samples) >= 20 or sampler.failure, PATIENCE)
        made.machines["one"].host.die()
        killed = time.time_ns()

        def said() -> bool:
            return httpx.get(f"{service.url}/readyz", timeout=5).status_code == 503

        wait_for("/readyz says that something is wrong", said, PATIENCE)
        print(f"/readyz said it {(time.time_ns() - killed) / 1e9:.1f} s after a host died")
        made.spark_worker("three", 1)
        wait_for("epochs go on", lambda: service.frontier() > killed + 10**9, PATIENCE)
        print(f"epochs went on {(time.time_ns() - killed) / 1e9:.1f} s after a host died")
        feeder.stop()
        end = feeder.frontier
        wait_for("everything sent is final", lambda: service.frontier() >= end, PATIENCE)
        last = service.read(end - 1)
        assert last is not None
        sampler.finish()
        check(truth, {**sampler.samples, last[0]: last[1]})
        there = made.service("driver", 2)
        there.url = made.sidecar("sidecar")
        wait_for("a sidecar on another host answers alike", lambda: there.read(end - 1) == last, PATIENCE)
        service.stop()
