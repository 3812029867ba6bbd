"""Filling: a worker's part of a change of programs, beside the epochs of the old ones.

In each attempt, after the epoch's own work, the worker fills what is new from the committed state, for about as long as
that work took. When all workers have caught up with the newest commit, the driver's next start says so, and the worker
continues with the new plan's state. What is filled is in memory alone: a worker that has died, or that has lost the
state it had held, makes all of them begin again, which they agree on at the start of each attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from vernier.operators.engine.migrate import Change
from vernier.operators.engine.worker import WorkerState
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import Budget
from vernier.operators.runtime.exchange import Exchange
from vernier.service.cluster.messages import Filled, Target

FIRST, LEAST, MOST = 5_000, 1_000, 1 << 22
"""How many rows the first piece of a fill has, and how few and how many a later one may have."""
SECONDS = 0.1
"""A piece may take this long, or as long as the epoch's own work if that is longer."""


class Filling:
    """The change that a worker process works on, if any. busy: code of the new programs is running, or has just
    failed, in this attempt."""

    def __init__(self) -> None:
        self.busy = False
        self._change: Change | None = None
        self._of = ("", -1)
        self._rows = FIRST

    def open(
        self,
        target: Target,
        shard: int,
        state: WorkerState,
        exchange: Exchange,
        plan: Callable[[Target], Plan],
        *,
        slice_updates: int,
        budget: Budget,
    ) -> None:
        """Go on with the change to `target`, or begin it, if one of the workers cannot go on. Raises NeedsHistory."""
        with self._guarded():
            name, change = (target.fingerprint, shard), self._change
            steps = change.steps if change is not None and self._of == name and change.follows(state) else -1
            said = {msgspec.json.decode(one) for one in exchange.allgather(msgspec.json.encode(steps))}
            if len(said) == 1 and steps >= 0:
                return
            self.drop()
            self._change = Change(plan(target), state, exchange, slice_updates=slice_updates, budget=budget)
            self._of, self._rows = name, FIRST

    def step(self, state: WorkerState, exchange: Exchange, seconds: float) -> Filled:
        """Fill a piece from `state`, in about `seconds`; returns how far this worker is."""
        with self._guarded():
            change = self._opened()
            began = time.perf_counter()
            change.step(state, exchange, self._rows)
            took = time.perf_counter() - began
            wanted = self._rows * max(seconds, SECONDS) / max(took, 1e-3)
            self._rows = int(min(max(wanted, self._rows / 4, LEAST), 4 * self._rows, MOST))
            fill = change.fill
            rows, taken = (0, 0) if fill is None else (fill.rows, fill.taken)
            return Filled(rows, taken, change.ready(state))

    def switch(self, state: WorkerState, exchange: Exchange) -> tuple[Plan, WorkerState]:
        """The new plan and its state. `state` does not change."""
        with self._guarded():
            change = self._opened()
            self._change = None  # if the attempt fails, the next one begins again
            try:
                return change.plan, change.switch(state, exchange)
            finally:
                change.close()

    def drop(self) -> None:
        """Give up the change, if there is one."""
        if self._change is not None:
            self._change.close()
            self._change = None

    def _opened(self) -> Change:
        if self._change is None:
            raise RuntimeError("a change was not opened")
        return self._change

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Mark the time in which code of the new programs runs. After a failure, the change begins again."""
        self.busy = True
        try:
            yield
        except BaseException:
            self.drop()
            raise
        self.busy = False
