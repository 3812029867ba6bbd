"""Exchange: how the workers of one dataflow communicate: all to all, in lock step.

Every worker makes the same calls in the same order. `Single` serves a dataflow with one worker. `Threads` connects
workers in one process (tests, replay without Spark). service/cluster/exchange/all_to_all.py connects processes and
hosts.
"""

from __future__ import annotations

import threading
from typing import Protocol

import numpy as np

from vernier.operators.failures import ExchangeBroken
from vernier.operators.runtime.lanes import WORDS, Lanes
from vernier.storage.cpus import usable_cores
from vernier.storage.updates import Ints

Round = tuple[int, ...]


class Exchange(Protocol):
    """The communication that the runtime needs between workers."""

    workers: int
    index: int
    lanes: Lanes | None
    """How kernels exchange rows; None if they cannot, or if there is no other worker."""

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        """Send parts[i], int64[n, c], to worker i. Returns the part from each worker, by worker index."""
        ...

    def allgather(self, payload: bytes) -> list[bytes]:
        """The payloads of all workers, by worker index."""
        ...

    def agree_min(self, value: Round | None) -> Round | None:
        """The least value of all workers; None if no worker has one."""
        ...


def least(values: list[Round | None]) -> Round | None:
    """The least value that is not None, if any."""
    return min((value for value in values if value is not None), default=None)


class Single:
    """The exchange of a single worker: every call returns its own argument."""

    workers = 1
    index = 0
    lanes: Lanes | None = None

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        """The worker's own part."""
        return parts

    def allgather(self, payload: bytes) -> list[bytes]:
        """The worker's own payload."""
        return [payload]

    def agree_min(self, value: Round | None) -> Round | None:
        """The worker's own value."""
        return value


class _Shared:
    """The state that the `Threads` of one dataflow share: a slot per worker, and a barrier that a failure breaks for
    all."""

    def __init__(self, workers: int) -> None:
        self.slots: list[object] = [None] * workers
        self.lanes = np.zeros((workers, workers, WORDS), np.int64)
        self.barrier = threading.Barrier(workers)


class Threads:
    """The exchange of worker threads in one process; created by `Threads.connected(n)`."""

    def __init__(self, shared: _Shared, workers: int, index: int) -> None:
        self._shared, self.workers, self.index = shared, workers, index
        outs = [lane.ctypes.data for lane in shared.lanes[index]]
        ins = [lane.ctypes.data for lane in shared.lanes[:, index]]
        self.lanes: Lanes | None = Lanes(workers, index, (1, 1), self._check, looks=workers <= usable_cores())
        self.lanes.connect(outs, ins)
        self.lanes.agreed = True

    @staticmethod
    def connected(workers: int) -> list[Threads]:
        """One connected exchange for each of n threads."""
        shared = _Shared(workers)
        return [Threads(shared, workers, index) for index in range(workers)]

    def abort(self) -> None:
        """Make the other workers fail instead of waiting for one that will not arrive."""
        self._shared.barrier.abort()

    def _check(self, shares: bool) -> None:
        """While a kernel waits. Raises ExchangeBroken."""
        if self._shared.barrier.broken:
            raise ExchangeBroken(index=self.index, workers=self.workers)

    def _swap(self, value: object) -> list[object]:
        try:
            self._shared.slots[self.index] = value
            self._shared.barrier.wait()
            taken = list(self._shared.slots)
            self._shared.barrier.wait()
        except threading.BrokenBarrierError:
            raise ExchangeBroken(index=self.index, workers=self.workers) from None
        return taken

    def all_to_all(self, parts: list[Ints]) -> list[Ints]:
        """See Exchange."""
        return [np.asarray(theirs[self.index]) for theirs in self._swap(parts)]  # type: ignore[index]

    def allgather(self, payload: bytes) -> list[bytes]:
        """See Exchange."""
        return [theirs for theirs in self._swap(payload) if isinstance(theirs, bytes)]

    def agree_min(self, value: Round | None) -> Round | None:
        """See Exchange."""
        return least(self._swap(value))  # type: ignore[arg-type]
