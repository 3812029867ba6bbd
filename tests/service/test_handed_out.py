"""Epochs without a job of Spark's, in a running driver: they are made, and nothing is lost when their workers die."""

import json
import signal
import time
from typing import Any

import pytest

from tests.service.driven import Service

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]


def epochs(service: Service) -> list[dict[str, Any]]:
    """What the driver has logged of its epochs."""
    lines = (service.folder / "log").read_text("utf-8").splitlines()
    return [values for line in lines if line.startswith("{") and "ms" in (values := json.loads(line))]


def handed_out(service: Service) -> int:
    """The number of epochs whose tasks did not have to open."""
    return sum(one["ms"]["open"] == 0 for one in epochs(service))


def test_small_epochs_have_no_job_of_sparks(service: Service) -> None:
    service.start(log__format="json")
    reached = service.send((1, 10))
    service.final(reached)
    assert handed_out(service) == 0  # tasks bring the programs
    for at in range(20):
        reached = service.send((at % 3, at), partition=at % 2)
        service.wait(lambda reached=reached: service.frontier() >= reached)
    service.final(reached)
    assert handed_out(service) >= 10
    # A large epoch has one, and small ones follow again.
    before = handed_out(service)
    for at in range(3000):
        service.producer.send(service.topic, key=b"k", value=b"", partition=at % 2)
    service.producer.flush()
    service.final(service.send((7, 7)))
    for at in range(5):
        service.final(service.send((8, at)))
    assert handed_out(service) > before
    assert service.stop() == 0


def test_tasks_that_do_nothing_keep_the_processes(service: Service) -> None:
    service.module = "tests.service.keeping_driver"
    service.start(log__format="json")
    service.final(service.send((1, 10)))
    while handed_out(service) == 0:
        service.final(service.send((2, 1)))
    workers, before = service.workers(), len(epochs(service))
    for at in range(20):
        service.final(service.send((at % 3, at), partition=at % 2))
        service.wait(lambda at=at: (service.folder / "log").read_text("utf-8").count("kept") > at)
    assert service.workers() == workers
    assert all(one["ms"]["open"] == 0 for one in epochs(service)[before:])  # all follow one micro-batch
    # Without its task Spark makes the next epoch.
    workers[0].send_signal(signal.SIGKILL)
    for at in range(5):
        service.final(service.send((4, at)))
    assert service.stop() == 0


def test_workers_may_die_at_any_time(service: Service) -> None:
    service.start(log__format="json")
    service.final(service.send((1, 10)))
    for at in range(12):
        for more in range(8):
            reached = service.send((more, at), partition=more % 2)
            if more == at % 8:
                before = handed_out(service)
                service.wait(lambda before=before: handed_out(service) > before)
                service.workers()[at % 2].send_signal(signal.SIGKILL)
    service.final(reached)
    service.final(service.send((8, 12)))  # the workers that replaced the last one go on without a job
    assert handed_out(service) > 12
    assert service.stop() == 0


def test_workers_that_stand_still_are_replaced(service: Service) -> None:
    service.start(epoch__timeout_ms=15_000)
    service.final(service.send((1, 10)))
    for at in range(5):
        service.final(service.send((2, at)))
    for worker in service.workers():
        worker.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    service.final(service.send((3, 1)))
    assert time.monotonic() - began < 120
    assert service.stop() == 0


def test_full_epochs_are_handed_out_if_the_rate_limit_allows_no_larger_ones(service: Service) -> None:
    service.start(log__format="json", epoch__max_messages=40)
    service.final(service.send((1, 10)))
    for at in range(5):
        reached = service.send((2, at))
        service.wait(lambda reached=reached: service.frontier() >= reached)
    before = handed_out(service)
    for at in range(400):
        reached = service.send((at % 7, at), partition=at % 2)
        if at in (150, 300):
            service.workers()[at % 4 // 2].send_signal(signal.SIGKILL)
    service.final(reached)
    full = sum(one["updates"] >= 10 for one in epochs(service))
    assert full > 5
    assert handed_out(service) - before > full / 2
    assert service.stop() == 0
