"""Temporal buffers: updates that a linear operator moves beyond the running slice wait for the slice with their time.

Each chain that can move updates in time is followed by a temporal buffer. Updates that are due pass. The others go to a
durable queue with their full time, including rounds, and come back at their round in the slice of their data time. A
delayed variable is a temporal buffer without an input: updates set for it go straight to its queue. Slices are no wider
than its delay, so nothing is due in the slice that set it.

Source: "Managing memory with differential dataflow" (delayed variables).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from vernier.operators.failures import HeldTooLate, TimeOverflow
from vernier.operators.kernels.rounds import split_rounds
from vernier.operators.planning.op import Op
from vernier.operators.planning.time_ops import DelayedOp, SetOp, TemporalBufferOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Buckets, Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.time_queue import Queue
from vernier.storage.updates import CLOSED, Ints, together


class TemporalBuffer(Operator):
    """Passes updates of the slice and keeps later ones until they are due. O(updates passed, stored and due)."""

    def __init__(self, op: TemporalBufferOp | DelayedOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.queue: Queue = scope.queues[op.queue]
        self.input = scope.operator(op.inputs[0]) if op.inputs else None
        self.buckets = Buckets()

    def begin_slice(self) -> None:
        """Sort the updates that are due into buckets by round."""
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
        """The rounds at which updates are due."""
        return list(self.buckets.rows)

    def step(self, now: Round) -> None:
        """Emit the updates that are due at this round, both new and held."""
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
    """Assigns a delayed variable: all updates go to the variable's queue, `delay` later."""

    def __init__(self, op: SetOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.set = op
        self.input = scope.operator(op.input)
        self.queue = cast(TemporalBuffer, scope.operator(op.variable)).queue

    def step(self, now: Round) -> None:
        """Put this step's updates into the queue, at the later time."""
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


KINDS: dict[type[Op], Callable[..., Operator]] = {
    TemporalBufferOp: TemporalBuffer,
    DelayedOp: TemporalBuffer,
    SetOp: Set,
}
