"""A driver whose Spark has lost its cores for good ends, and one whose Spark gets them back goes on."""

from types import SimpleNamespace
from typing import Any

import pytest

from vernier.service.config.sections import Epoch
from vernier.service.coordinator.executors import Executors
from vernier.service.coordinator.failures import Failures
from vernier.service.errors import CoresLost, SparkFailed
from vernier.storage.threads import Threads


class Scripted(Executors):
    """Executors of a Spark that says one number of cores after another, a second apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nothing: Any = None
        super().__init__(nothing, 2, Threads(), on_cluster=True)
        self.said: int | None = 0
        self.now = 0.0
        # The clock of that module alone: other threads of the process keep theirs.
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("vernier.service.coordinator.executors.time", clock)

    def slots(self) -> int | None:
        """What it says now."""
        return self.said

    def pass_by(self, *said: int | None) -> None:
        """Check after each of them, with a limit of three seconds."""
        for one in said:
            self.said = one
            self.now += 1.0
            self.check(3.0)


def test_cores_that_do_not_come_back_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    executors = Scripted(monkeypatch)
    executors.pass_by(2, 1, 0, 1, 1)
    with pytest.raises(CoresLost, match=r"cores for 0 of 2 tasks for 4 s \(spark.gone_ms\)"):
        executors.pass_by(0)


def test_cores_that_come_back_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch).pass_by(2, 0, 0, 0, 2, 1, 1, 1, 3, 0, 0, 0, None, 0, 0, 0)


def test_a_spark_that_has_not_had_enough_may_take_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    executors = Scripted(monkeypatch)
    executors.pass_by(*[0, 1] * 6)
    with pytest.raises(CoresLost, match=r"cores for 1 of 2 tasks for 13 s \(spark.gone_ms\), and never had enough"):
        executors.pass_by(0, 1)


def test_a_driver_that_took_over_expects_the_cores_of_its_predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby whose application was forgotten before it had an executor."""
    executors = Scripted(monkeypatch)
    executors.pass_by(*[0] * 11)
    executors.expect()
    executors.pass_by(0, 0, 0, 0)
    with pytest.raises(CoresLost, match="for 4 s"):
        executors.pass_by(0)


def test_another_process_takes_over_at_once() -> None:
    class Silent:
        def report(self, trouble: object) -> None:
            """Nothing."""

    silent: Any = Silent()
    failures = Failures(Epoch(), silent, 0, lambda: None)
    assert failures.after(SparkFailed(problem="a task died"), 0) > 0
    with pytest.raises(CoresLost):
        failures.after(CoresLost(slots=0, workers=2, seconds=90.0, why="where it had enough before"), 0)
