"""Workers that have not begun their tasks are reported for as long as something waits for them."""

import socket
import threading

from vernier.service.cluster.connection import Connection
from vernier.service.cluster.messages import Start
from vernier.service.cluster.rendezvous import Attempt, Rendezvous
from vernier.service.config.settings import load
from vernier.service.coordinator.executors import MissingWorkers

START = Start(epoch=1, base="", offsets={}, ingestion={})


class Reports:
    """What was reported."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.came = threading.Event()

    def __call__(self, attempt: Attempt, missing: int, seconds: float) -> None:
        self.found.append(missing)
        self.came.set()


def test_a_worker_that_has_not_begun_is_reported() -> None:
    assembly = Rendezvous(2, lambda attempt: None)
    attempt = assembly.begin(START)
    worker = Connection(assembly.address, assembly.keys)
    try:
        assert attempt.missing == 2
        worker.introduce("tcp://127.0.0.1:1")
        worker.open(attempt.id, 0, [])
        arrived = threading.Event()
        while attempt.missing == 2:
            arrived.wait(0.01)
        reports = Reports()
        watch = MissingWorkers(attempt, 0.01, reports)
        watch.begin()
        assert reports.came.wait(60)
        watch.cancel()
        assert set(reports.found) == {1}
        worker.open(attempt.id, 1, [])
        while attempt.missing:
            arrived.wait(0.01)
        # A host vanishes without a word, and Spark starts its tasks again.
        worker.open(attempt.id, 0, [])
        assert attempt.ended.wait(60)
        assert attempt.reason == "Spark has lost an executor and begins the tasks again"
    finally:
        worker.close()
        assembly.close()


def test_nothing_is_reported_once_the_attempt_has_ended() -> None:
    assembly = Rendezvous(1, lambda attempt: None)
    try:
        attempt = assembly.begin(START)
        assembly.cancel(attempt, "enough")
        reports = Reports()
        watch = MissingWorkers(attempt, 60, reports)
        watch._look()
        watch.cancel()
        assert reports.found == []
    finally:
        assembly.close()


def test_only_a_cluster_has_executors() -> None:
    masters = {
        None: False,
        "local": False,
        "local[4]": False,
        "local-cluster[2,1,1024]": True,
        f"spark://{socket.gethostname()}:7077": True,
        "k8s://https://cluster": True,
    }
    for master, wanted in masters.items():
        given = {} if master is None else {"spark.master": master}
        assert load(None, given).settings.spark.on_cluster == wanted
