"""Waiting for a worker: what counts towards a question's time."""

from __future__ import annotations

import asyncio
import time

import pytest

from vernier.service.ask.errors import QueryTimeout
from vernier.service.ask.workers import Starts, Workers
from vernier.service.views.answers import Answers
from vernier.service.views.deadline import Deadline


class Starting(Starts):
    """A worker starts all the time. `read` is set once somebody has read the clock a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.read = asyncio.Event()

    @property
    def seconds(self) -> float:
        self.reads += 1
        if self.reads == 20:
            self.read.set()
        return time.monotonic()


class Fixed(Deadline):
    """A deadline that has always the same time left when it is handed over."""

    @property
    def seconds(self) -> float:
        return 0.05


def test_the_start_of_a_worker_counts_for_no_question_that_waits() -> None:
    async def wait() -> int:
        workers = Workers(1, 64, Answers())
        workers._starts = starting = Starting()
        await workers._free.acquire()
        waiting = asyncio.create_task(workers._acquire(Fixed(50)))
        await starting.read.wait()  # its time has passed several times
        workers._free.release()
        left = await waiting
        workers.close()
        return left.ms

    assert 0 < asyncio.run(wait()) <= 51


def test_waiting_for_a_busy_worker_counts() -> None:
    async def wait() -> None:
        workers = Workers(1, 64, Answers())
        await workers._free.acquire()
        with pytest.raises(QueryTimeout):
            await workers._acquire(Deadline(5))
        workers.close()

    asyncio.run(wait())


def test_starts_beside_each_other_are_counted_once() -> None:
    starts, begun = Starts(), time.monotonic()
    with starts.one(), starts.one():
        assert 0 <= starts.seconds <= time.monotonic() - begun
    stopped = starts.seconds
    assert stopped <= time.monotonic() - begun
    assert starts.seconds == stopped
