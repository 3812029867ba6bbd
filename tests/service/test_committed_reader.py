"""When a reader of committed records gives up: brokers that say nothing new for too long, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from vernier.service.kafka import reading
from vernier.service.kafka.reading import SILENT_SECONDS, CommittedReader

PART = TopicPartition("changes", 0)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Consumer:
    """A partition of 1000 offsets. turn: called by each poll; returns the position that it reaches."""

    def __init__(self, turn: Callable[[int], int]) -> None:
        self._turn, self._at, self.polls = turn, 0, 0

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0}

    def assign(self, parts: list[TopicPartition]) -> None:
        pass

    def end_offsets(self, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {PART: 1000}

    def beginning_offsets(self, parts: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {PART: 0}

    def seek(self, part: TopicPartition, offset: int) -> None:
        self._at = offset

    def position(self, part: TopicPartition) -> int:
        return self._at

    def poll(self, timeout_ms: int) -> dict[TopicPartition, Any]:
        self.polls += 1
        self._at = self._turn(self._at)
        return {}


def reader(monkeypatch: pytest.MonkeyPatch, clock: Clock, turn: Callable[[int], int]) -> CommittedReader:
    """A reader of that partition."""
    monkeypatch.setattr(reading, "KafkaConsumer", lambda **_: Consumer(turn))
    monkeypatch.setattr(reading, "time", clock)
    return CommittedReader({})


def test_a_long_way_through_aborted_records_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def slowly(at: int) -> int:
        clock.now += 0.5
        return at + 1

    one = reader(monkeypatch, clock, slowly)
    assert list(one.read("changes")) == []
    assert clock.now > 5 * SILENT_SECONDS
    assert one.between(PART, 0, 400) == []


def test_a_process_that_stood_still_goes_on_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, turns = Clock(), iter(range(100))

    def after_a_while(at: int) -> int:
        clock.now += 10 * SILENT_SECONDS if next(turns) == 3 else 0.5
        return 1000 if next(turns) > 20 else at

    assert list(reader(monkeypatch, clock, after_a_while).read("changes")) == []


def test_brokers_that_say_nothing_end_it_and_the_error_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def never(at: int) -> int:
        clock.now += 0.5
        return 7

    one = reader(monkeypatch, clock, never)
    with pytest.raises(KafkaTimeoutError, match="partition 0 at 7 of 1000"):
        list(one.read("changes"))
    assert SILENT_SECONDS < clock.now < SILENT_SECONDS + 5
    with pytest.raises(KafkaTimeoutError, match=r"changes was not read to 9: .* at 7 of 9"):
        one.between(PART, 0, 9)
