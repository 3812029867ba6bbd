"""Executors are processes of their own: shards stay in the memory of one process each, and an executor that dies costs
no more than an attempt."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.live.service import Feeder, Service, wait_for
from tests.live.truth import Truth
from vernier.service.kafka.embedded_broker import EmbeddedBroker

PATIENCE = 400.0
"""Seconds that anything may take; never part of a result."""
EPOCHS = 12
_LOADED = re.compile(r" ms\.load=(\d+)")
DAEMON, EXECUTOR = "vernier.service.cluster.daemon", "CoarseGrainedExecutorBackend"

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(1500)]


def running(service: Service, word: str) -> list[psutil.Process]:
    """The service's processes with that in their command."""
    return [one for one, _ in service.family() if any(word in part for part in one.cmdline())]


def test_an_executor_dies_and_the_next_one_has_its_python_from_the_one_before(tmp_path: Path) -> None:
    truth = Truth()
    with EmbeddedBroker(tmp_path / "kafka") as broker:
        broker.create_topics({"graph": 2})
        spark = {"master": "local-cluster[2,2,1024]"}
        with Service(tmp_path, 2, patience=PATIENCE, kafka={"bootstrap": broker.bootstrap}, spark=spark) as service:
            feeder = Feeder(broker.bootstrap, 2, 200, 7, truth)
            feeder.start()
            log = service.folder / "logs" / "driver.log"

            def loads() -> list[int]:
                """Milliseconds that each epoch took to find its shards."""
                return [int(found) for found in _LOADED.findall(log.read_text("utf-8", errors="replace"))]

            def go_on() -> list[int]:
                before = len(loads())
                wait_for("epochs go on", lambda: len(loads()) >= before + EPOCHS, PATIENCE)
                return loads()[before:]

            wait_for("the first answers", lambda: service.frontier() > 0, PATIENCE)
            go_on()
            assert sorted(go_on())[EPOCHS // 2] == 0, "shards are in memory"
            victim = running(service, EXECUTOR)[0]
            os.kill(victim.pid, signal.SIGKILL)
            wait_for("another executor", lambda: victim not in running(service, EXECUTOR), PATIENCE)
            wait_for("another executor", lambda: len(running(service, EXECUTOR)) == 2, PATIENCE)
            lent = lambda: [one for one in running(service, DAEMON) if one.ppid() == 1 or _of_template(one)]  # noqa: E731
            wait_for("its Python", lent, PATIENCE)
            go_on()
            assert sorted(go_on())[EPOCHS // 2] == 0, "shards are in memory again"
            feeder.stop()
            end = feeder.frontier
            wait_for("everything sent is final", lambda: service.frontier() >= end, PATIENCE)
            last = service.read(end - 1)
            assert last is not None
            assert last[1] == truth.answers(end - 1)


def _of_template(process: psutil.Process) -> bool:
    """Whether it was forked from a process that outlives executors: one that has its session for itself."""
    parent = process.parent()
    return parent is not None and DAEMON in parent.cmdline() and os.getsid(parent.pid) == parent.pid
