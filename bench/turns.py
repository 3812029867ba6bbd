"""Workers of a dataflow that take turns in one process, and what an epoch of theirs would take side by side.

One worker runs at a time, so the CPU time of each between two calls of the exchange is its own. Each stays on one core
of the machine, so that two workers on two cores do not take each other's caches. `replay` puts these together with what
a call costs: a call ends for a worker when the last message of its peers has arrived.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vernier.operators.engine.worker import Worker
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.exchange import Round, least
from vernier.storage.updates import Ints, Updates


@dataclass
class Trace:
    """What one epoch of one worker was: seconds of CPU before each call and after the last, bytes that each sent."""

    seconds: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)


class Table:
    """Where workers that take turns meet: the baton, and what each has given to its last two calls."""

    def __init__(self, workers: int) -> None:
        self.cores = sorted(os.sched_getaffinity(0))
        self.turns = [threading.Semaphore(0) for _ in range(workers)]
        self.given: list[list[Any]] = [[None] * workers, [None] * workers]


class Turn:
    """One worker's exchange: it passes the baton on with each call and has it back when all have called. No lanes:
    kernels would wait for workers that are not running."""

    lanes = None

    def __init__(self, table: Table, index: int) -> None:
        self.workers, self.index = len(table.turns), index
        self.trace = Trace()
        self._table, self._call, self._began = table, 0, 0.0

    def begin(self) -> None:
        """Wait for the baton at the start of an epoch, on this worker's core."""
        self.trace = Trace()
        os.sched_setaffinity(0, {self._table.cores[self.index % len(self._table.cores)]})
        self._table.turns[self.index].acquire()
        self._began = time.thread_time()

    def end(self) -> None:
        """Pass the baton on at the end of an epoch."""
        self.trace.seconds.append(time.thread_time() - self._began)
        self._table.turns[(self.index + 1) % self.workers].release()

    def _swap(self, value: Any, size: int) -> list[Any]:
        self.trace.seconds.append(time.thread_time() - self._began)
        self.trace.sent.append(size)
        given = self._table.given[self._call % 2]
        given[self.index] = value
        self._table.turns[(self.index + 1) % self.workers].release()
        self._table.turns[self.index].acquire()
        self._call += 1
        self._began = time.thread_time()
        return list(given)

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        """See Exchange."""
        size = sum(part.nbytes for peer, part in enumerate(parts) if peer != self.index)
        return [np.asarray(theirs[self.index]) for theirs in self._swap(parts, size)]

    def allgather(self, payload: bytes) -> list[bytes]:
        """See Exchange."""
        return list(self._swap(payload, len(payload) * (self.workers - 1)))

    def agree_min(self, value: Round | None) -> Round | None:
        """See Exchange."""
        return least(self._swap(value, 0 if value is None else 8 * len(value) * (self.workers - 1)))


class InTurns:
    """All workers of a plan in this process, one at a time."""

    def __init__(self, plan: Plan, workers: int) -> None:
        self.table = Table(workers)
        self.turns = [Turn(self.table, index) for index in range(workers)]
        self.workers = [Worker(plan, turn) for turn in self.turns]
        self._pool = ThreadPoolExecutor(workers)

    def run_epoch(self, lower: int, upper: int, inputs: dict[str, Updates]) -> list[Trace]:
        """Run an epoch; returns each worker's trace of it."""
        count = len(self.workers)

        def one(index: int) -> Trace:
            part = {name: updates.take(slice(index, None, count)) for name, updates in inputs.items()}
            self.turns[index].begin()
            self.workers[index].run_epoch(lower, upper, part)
            self.turns[index].end()
            return self.turns[index].trace

        futures = [self._pool.submit(one, index) for index in range(count)]
        self.table.turns[0].release()
        traces = [future.result() for future in futures]
        self.table.turns[0].acquire()  # which the last one has passed on
        return traces

    @property
    def nbytes(self) -> int:
        """The size of all traces."""
        return sum(worker.state.nbytes for worker in self.workers)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()


def baton(workers: int, calls: int = 500) -> float:
    """Seconds of CPU that passing the baton on takes by itself, a call: the least of some runs' medians."""
    found = []
    for _ in range(3):
        table = Table(workers)
        turns = [Turn(table, index) for index in range(workers)]

        def one(turn: Turn) -> list[float]:
            turn.begin()
            for _ in range(calls):
                turn.agree_min((1, 1))
            turn.end()
            return turn.trace.seconds[calls // 10 : -1]

        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(one, turn) for turn in turns]
            table.turns[0].release()
            found.append(statistics.median(second for future in futures for second in future.result()))
    return min(found)


@dataclass(frozen=True)
class Wire:
    """What a call costs: seconds for sending and for receiving each message, for each byte, and on the way."""

    send: float
    receive: float
    byte: float
    latency: float


def replay(traces: Sequence[Trace], wire: Wire, turn: float = 0.0) -> float:
    """Seconds of an epoch: every call ends for all when the last message has arrived. turn: what of the seconds before
    a call is the baton's."""
    seconds = np.maximum(np.array([trace.seconds for trace in traces]) - turn, 0.0)
    sent = np.array([trace.sent for trace in traces], np.float64)
    others = len(traces) - 1
    ready = np.zeros(len(traces))
    for call in range(sent.shape[1]):
        done = ready + seconds[:, call] + others * wire.send + sent[:, call] * wire.byte
        ready = np.maximum(done, done.max() + wire.latency) + others * wire.receive
    return float((ready + seconds[:, -1]).max())
