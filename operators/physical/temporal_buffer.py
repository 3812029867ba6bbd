"""Held updates: what a linear operator puts behind the running slice waits for the slice that covers its time.

A hold stands behind each chain that can move updates in time. What is due passes; the rest goes to a durable queue with
its full time, rounds included, and comes back at its round in the slice of its data time. A delayed variable is a hold
without an input in the order of work: what is set for it goes straight to its queue, and slices no wider than its delay
make sure that nothing of it is due in the slice that made it. Source: DESIGN, "held updates"; seed 003.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from vernier.operators.failures import HeldTooLate, TimeOverflow
from vernier.operators.kernels.rounds import split_rounds
from vernier.operators.planning.plan import DelayedOp, HoldOp, Op, SetOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Buckets, Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.time_queue import Queue
from vernier.storage.updates import CLOSED, Ints, together


class Hold(Operator):
    """Lets updates of the slice pass and keeps later ones until they are due. O(what passes, comes and goes)."""

    def __init__(self, op: HoldOp | DelayedOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.queue: Queue = scope.queues[op.queue]
        self.input = scope.operator(op.input) if isinstance(op, HoldOp) else None
        self.buckets = Buckets()

    def begin_slice(self) -> None:
        """Put what is due into the buckets of its rounds."""
        slice_ = self.scope.slice
        due = self.queue.due(slice_.lower, slice_.upper)
        if len(due) == 0:
            return
        if self.depth == 0:
            self.buckets.put((), due)
            return
        grouped, offsets, rounds = split_rounds(due, self.op.width + 1, self.depth)
        for group, at in enumerate(map(tuple, rounds.tolist())):
            self.buckets.put(at, grouped[offsets[group] : offsets[group + 1]])
            self.scope.note(at)

    def pending(self) -> list[Round]:
        """Rounds that something is due at."""
        return list(self.buckets.rows)

    def step(self, now: Round) -> None:
        """Give what is due at this round, new and held."""
        given = self.buckets.take(now)
        data = None if self.input is None else self.input.out
        if data is not None:
            late = data[:, self.op.width] >= self.scope.slice.upper
            if bool(late.any()):
                self.queue.put(data[late])
                data = data[~late]
            if len(data):
                given.append(data)
        self.out = None if not given else together(given)


class Set(Operator):
    """What a delayed variable is set to: everything goes to its queue, `delay` later."""

    def __init__(self, op: SetOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.set = op
        self.input = scope.operator(op.input)
        self.queue = cast(Hold, scope.operator(op.variable)).queue

    def step(self, now: Round) -> None:
        """Move this step's updates to where they come back."""
        data = self.input.out
        if data is None or len(data) == 0:
            return
        moved: Ints = np.array(data)
        times = moved[:, self.set.width]
        if int(times.max()) >= CLOSED - self.set.ns:
            raise TimeOverflow(operator=self.set.name, time=int(times.max()), ns=self.set.ns)
        times += self.set.ns
        if int(times.min()) < self.scope.slice.upper:
            raise HeldTooLate(operator=self.set.name, time=int(times.min()), upper=self.scope.slice.upper)
        self.queue.put(moved)


KINDS: dict[type[Op], Callable[..., Operator]] = {HoldOp: Hold, DelayedOp: Hold, SetOp: Set}
