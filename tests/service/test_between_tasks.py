"""Between tasks: a worker process serves the driver while Spark wants nothing, and stops as soon as it does."""

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.service.test_rendezvous import START, report
from vernier.service.cluster import between_tasks, worker
from vernier.service.cluster.connection import Connection
from vernier.service.cluster.messages import Assign, Start
from vernier.service.cluster.rendezvous import Attempt, Rendezvous

PATIENCE = 30


class Idle:
    """A rendezvous of one worker, which is this process, and a pipe on which Spark would speak."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rendezvous = Rendezvous(1, lambda attempt: None)
        self.link = Connection(self.rendezvous.address, self.rendezvous.keys)
        self.link.introduce("tcp://unused")
        self.process = SimpleNamespace(link=self.link)
        self.heard, self.spark = os.pipe()
        self.ran: list[Assign] = []
        monkeypatch.setattr(worker, "_process", self.process)
        monkeypatch.setattr(worker, "run_handed", self.run)

    def run(self, process: Any, assigned: Assign) -> None:
        """What the worker does with messages that are handed out."""
        assert process is self.process
        self.ran.append(assigned)
        self.link.report(report(assigned.attempt, 0))

    def commit(self) -> str:
        """An epoch of Spark's; returns its attempt."""
        attempt = self.rendezvous.begin(START)
        self.link.open(attempt.id, 0, [])
        self.link.assigned(attempt.id, PATIENCE)
        self.link.report(report(attempt.id, 0))
        assert attempt.ended.wait(PATIENCE)
        return attempt.id

    def attend(self) -> threading.Thread:
        """Attend, in a thread of its own."""
        thread = threading.Thread(target=between_tasks.attend, args=(self.heard,))
        thread.start()
        return thread

    def hand_out(self, base: str, rows: bytes = b"rows") -> Attempt:
        """An attempt without a task of Spark's."""
        attempt = self.rendezvous.begin(Start(epoch=6, base=base, ingestion={}, offsets={}))
        assert self.rendezvous.hand_out(attempt, [rows])
        return attempt

    def close(self) -> None:
        """Close all."""
        self.link.close()
        self.rendezvous.close()
        os.close(self.spark)
        os.close(self.heard)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    """A process that has had a task."""
    made = Idle(monkeypatch)
    yield made
    made.close()


def test_work_comes_until_spark_speaks(idle: Idle) -> None:
    base = idle.commit()
    thread = idle.attend()
    for at in range(3):
        attempt = idle.hand_out(base, b"%d" % at)
        assert attempt.ended.wait(PATIENCE)
        base = attempt.id
    os.write(idle.spark, b"task")
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [one.rows for one in idle.ran] == [b"0", b"1", b"2"]
    assert os.read(idle.heard, 10) == b"task"  # nothing of Spark's was taken


def test_work_waits_while_spark_has_a_task(idle: Idle) -> None:
    base = idle.commit()
    os.write(idle.spark, b"task")
    attempt = idle.hand_out(base)
    idle.attend().join(PATIENCE)
    assert idle.ran == []
    idle.rendezvous.cancel(attempt, "for a test")
    assert idle.commit()  # the task ignores what was handed out


def test_an_attempt_that_is_over_is_no_work(idle: Idle) -> None:
    idle.commit()
    attempt = idle.rendezvous.begin(START)
    idle.link.open(attempt.id, 0, [])
    idle.rendezvous.cancel(attempt, "for a test")
    thread = idle.attend()
    os.write(idle.spark, b"task")
    thread.join(PATIENCE)
    assert idle.ran == []


def test_a_driver_that_is_gone_is_left_to_the_next_task(idle: Idle) -> None:
    thread = idle.attend()
    idle.rendezvous.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_the_first_task_comes_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_process", None)
    called: list[bytes] = []
    heard, spark = os.pipe()
    main = between_tasks.attending(lambda infile, outfile: called.append(infile.read(4)))
    os.write(spark, b"task")
    with os.fdopen(heard, "rb") as infile, os.fdopen(spark, "wb") as outfile:
        main(infile, outfile)
    assert called == [b"task"]
