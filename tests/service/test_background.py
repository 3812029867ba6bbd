"""The driver's heartbeat and lag threads: one that fails is logged, counted and started again."""

import threading
from typing import Any

import pytest

from vernier.service.config.settings import load
from vernier.service.coordinator import consumer_lag, heartbeat
from vernier.service.coordinator.consumer_lag import Lag
from vernier.service.coordinator.heartbeat import Heartbeat
from vernier.storage import threads as threads_module
from vernier.storage.threads import Threads


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """An owner whose threads start again at once."""
    monkeypatch.setattr(threads_module, "FIRST_PAUSE", 0.001)
    return Threads()


def test_the_lag_is_known_again_after_its_thread_has_failed(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, polled = [], threading.Event()

    class Consumer:
        def __init__(self, **given: Any) -> None:
            made.append(self)
            if len(made) == 1:
                raise ValueError("the broker speaks of something new")

        def beginning_offsets(self, where: list[Any]) -> dict[Any, int]:
            return dict.fromkeys(where, 0)

        def end_offsets(self, where: list[Any]) -> dict[Any, int]:
            return dict.fromkeys(where, 7)

        def close(self) -> None:
            pass

    monkeypatch.setattr(consumer_lag, "KafkaConsumer", Consumer)
    lag = Lag({}, {"edges": 2}, threads, polled.set)
    assert polled.wait(10)
    assert lag.unread("edges", {"edges": {0: 4}}) == {0: 3, 1: 7}
    lag.close()
    assert threads.restarts == {"lag": 1}
    assert "thread lag failed" in caplog.text


def test_heartbeats_go_on_after_their_thread_has_failed(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    places: list[int] = []
    sent = threading.Event()

    class Producer:
        def __init__(self, **given: Any) -> None:
            made.append(self)
            if len(made) == 1:
                raise ValueError("the broker speaks of something new")

        def partitions_for(self, topic: str) -> set[int]:
            # A broker that does not know the partitions yet: a producer of its own asks again.
            return set(range(len(made) - 2))

        def send(self, topic: str, value: bytes, partition: int) -> None:
            places.append(partition)
            if partition == 1:
                sent.set()

        def flush(self, seconds: float) -> None:
            pass

        def close(self, timeout: float) -> None:
            pass

    monkeypatch.setattr(heartbeat, "KafkaProducer", Producer)
    settings = load(None, {"epoch.heartbeat_ms": 10, "workers": 2}, {}).settings
    beats = Heartbeat(settings, "reach", threads)
    assert sent.wait(10)
    beats.close()
    assert len(made) == 4
    assert places[:3] == [0, 0, 1], "a partition that is known gets its heartbeat before the others are"
    assert threads.restarts == {"heartbeat": 1}
