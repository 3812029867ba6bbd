"""Loops: variables, the rounds of a scope, and the results that leave it.

A variable is X0 at round 0, −X0 at round 1, plus the body's output one round later. So the sum over all rounds is the
limit, computed from X0 anew at every data time. A loop is one operator of its parent: at the parent's round i it runs
every round (i, j) that has work, in ascending j. Work that this creates for later outer rounds i' > i makes the parent
visit i'. Source: "High resolution, high throughput".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import cast

import numpy as np

from vernier.operators.failures import LoopDidNotSettle, RoundRepeated
from vernier.operators.kernels.rounds import relocate
from vernier.operators.physical.arrange import Arrange, exchange_updates
from vernier.operators.planning.loop_ops import LeaveOp, LoopOp, LoopRoundsOp, VariableOp
from vernier.operators.planning.op import Op
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Buckets, Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.updates import Ints, consolidate_rows, sort_columns, together

SHOWN = 3
"""Rows that an error shows as examples."""
_COLLECTED, _GROWTH = 1 << 18, 2
"""A loop's result is consolidated while the loop runs, when this number of rows has been collected, and again when as
many times the rows that were left have been."""
_MOVED = 1 << 16
"""Parts are copied one by one from this number of rows on, so that each can go before the next is copied."""


class Variable(Operator):
    """A loop variable: its changes, round by round."""

    def __init__(self, op: VariableOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.variable = op
        self.initial = scope.operator(op.initial)
        self.buckets = Buckets()
        self.columns = sort_columns(0, op.width, self.depth)
        self.feedback: Operator | None = None
        self.later_keyed: tuple[Round, Ints] | None = None

    def pending(self) -> list[Round]:
        """The rounds for which the variable has changes."""
        return list(self.buckets.rows)

    def begin(self, outer: Round) -> None:
        """Take the changes of X0 from the parent's step at `outer`. Every worker must call it."""
        data = self.initial.out
        op = self.variable
        if op.initial_exchange is not None and self.scope.exchange.workers > 1:
            key = np.array(op.initial_exchange, np.int64)
            data = exchange_updates(self.scope, data, key, op.width + self.initial.depth + 2, op.texts)
        if data is not None and len(data):
            first, second = np.array((*outer, 0), np.int64), np.array((*outer, 1), np.int64)
            data = np.ascontiguousarray(data)
            self.buckets.put((*outer, 0), relocate(data, op.width, self.initial.depth, first, 1))
            # Round 1 is not noted here: `collect` notes it at the end of round 0 if −X0 and the body's output do not
            # cancel.
            self.buckets.put((*outer, 1), relocate(data, op.width, self.initial.depth, second, -1))
            self.scope.note((*outer, 0))

    def step(self, now: Round) -> None:
        """Emit the variable's changes at this round."""
        parts = self.buckets.take(now)
        self.out = None if not parts else together(parts)
        later, self.later_keyed = self.later_keyed, None
        self.keyed = later[1] if later is not None and later[0] == now else None

    def collect(self, now: Round, limit: int, truncate: bool, loop: str) -> None:
        """At the end of a round, move the body's output into the next round. The updates are consolidated first, so
        that changes that cancel do not cause another round."""
        op = self.variable
        if self.feedback is None:
            self.feedback = self.scope.operator(op.feedback)
        data = self.feedback.out
        exchanged = op.feedback_exchange is not None and self.scope.exchange.workers > 1
        if exchanged:
            key = np.array(op.feedback_exchange, np.int64)
            data = exchange_updates(self.scope, data, key, op.width + self.depth + 2, op.texts)
        later = (*now[:-1], now[-1] + 1)
        parts = self.buckets.take(later)
        keyed = self.feedback.keyed
        if keyed is not None and not parts and not exchanged and later[-1] < limit:
            # These rows are sorted and consolidated already; only the round differs.
            keyed = keyed.copy()
            keyed[:, -2] = later[-1]
            self.keyed_by = self.feedback.keyed_by
            self.later_keyed = later, keyed
            self.buckets.put(later, keyed[:, 1:])
            self.scope.note(later)
            return
        if data is not None and len(data):
            parts.append(relocate(np.ascontiguousarray(data), op.width, self.depth, np.array(later, np.int64), 1))
        if not parts:
            return
        rows = consolidate_rows(together(parts), self.columns)
        if len(rows) == 0 or (later[-1] >= limit and truncate):
            return
        if later[-1] >= limit:
            raise LoopDidNotSettle(loop=loop, round=later[-1], sample=self._shown(rows[:SHOWN]))
        self.buckets.put(later, rows)
        self.scope.note(later)

    def _shown(self, rows: Ints) -> str:
        """Changes for an error message: variable, row, diff and data time."""
        op = self.variable
        decoded = op.schema.decode_rows(np.ascontiguousarray(rows[:, : op.width]), self.scope.heap)
        times, diffs = rows[:, op.width].tolist(), rows[:, -1].tolist()
        named = zip(decoded, times, diffs, strict=True)
        return "; ".join(f"{op.name} {row} ({diff:+d}) at {time}" for row, time, diff in named)


class Loop(Operator):
    """Runs its inner scope at each round of the parent."""

    nests = True

    def __init__(self, op: LoopOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.loop = op
        self.inner: ScopeRun = scope.inner(op.inner)
        self.rounds = 0

    def step(self, now: Round) -> None:
        """Run every round (now, j) for which any worker has work, in ascending j."""
        inner, (variables, leaves) = self.inner, self._edges
        for leave in leaves:
            leave.begin()
        for variable in variables:
            variable.begin(now)
        if inner.woken(now):
            inner.note((*now, 0))
        done = -1
        while (at := self._run_next(now, done)) is not None:
            if at[-1] <= done:
                raise RoundRepeated(loop=self.loop.label, round=str(at))
            if done < 0:
                self.scope.release_read(self)
            done = at[-1]
            self.rounds += 1
            for variable in variables:
                variable.collect(at, self.loop.max_rounds, self.loop.truncate, self.loop.label)
            for leave in leaves:
                leave.collect(at)

    def _run_next(self, now: Round, done: int) -> Round | None:
        """Run the least round after `done` for which any worker has work. Returns it, or None if there is none.

        Usually that is the next round. So the worker runs the next round up to its first exchange, which also carries
        the round that each worker proposes. If a worker proposed the next round, all go on with it. If none did, no
        worker had anything to send, and the partial run had no effect.
        """
        inner, first = self.inner, self._first_exchange
        inner.proposed = inner.next_round(now)
        if first is None:
            at = self.scope.exchange.agree_min(inner.proposed)
            if at is not None:
                inner.run(at)
            return at
        leader = cast(Arrange, inner.operators[first])
        guess = (*now, done + 1)
        leader.agrees = True
        inner.run(guess, 0, first + 1)
        leader.agrees = False
        at = inner.agreed
        if at == guess:
            inner.run(guess, first + 1)
        elif at is not None:
            inner.run(at)
        return at

    @cached_property
    def _edges(self) -> tuple[list[Variable], list[Leave | LoopRounds]]:
        """The running variables of the loop, and the operators through which its results and its rounds leave."""
        variables = [cast(Variable, self.inner.operator(i)) for i in self.loop.variables]
        leaves = [*self.loop.leaves, *self.loop.rounds]
        return variables, [cast("Leave | LoopRounds", self.scope.operator(i)) for i in leaves]

    @cached_property
    def _first_exchange(self) -> int | None:
        """The position of the first inner operator that communicates with other workers; None if a loop comes before
        it."""
        for place, operator in enumerate(self.inner.operators):
            if operator.nests:
                return None
            if operator.can_agree:
                return place
        return None


class Leave(Operator):
    """The body's output over all rounds of the loop, at the parent's round.

    A row that the loop changes in one round and again in a later one has one change or none at the parent's round. When
    many rows have been collected, they are consolidated, so that memory grows with the changes of the result instead of
    those of all rounds. O(rows log rows) in all, because what is left may grow threefold until the next time.
    """

    def __init__(self, op: LeaveOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.body = scope.operator(op.input)
        self.columns = np.arange(op.width + self.body.depth)
        self.begin()

    def begin(self) -> None:
        """Forget what an earlier attempt collected."""
        self.collected: list[Ints] = []
        self.settled: list[Ints] = []
        self.room = _COLLECTED

    def collect(self, at: Round) -> None:
        """Collect the body's output in the round that has just run."""
        if self.body.out is None:
            return
        self.collected.append(self.body.out)
        self.room -= len(self.body.out)
        if self.room < 0:
            self.settled = [consolidate_rows(self._moved(at[:-1]), self.columns)]
            self.room = max(_COLLECTED, _GROWTH * len(self.settled[0]))

    def step(self, now: Round) -> None:
        """Emit the changes of the loop's result at this round of the parent."""
        self.out = self._moved(now) if self.collected or self.settled else None

    def _moved(self, now: Round) -> Ints:
        """What has been collected, at the parent's round."""
        parts, self.collected = self.collected, []
        moved, self.settled = self.settled, []
        while parts:
            some = [parts.pop()]
            count = len(some[0])
            while parts and count < _MOVED:
                some.append(parts.pop())
                count += len(some[-1])
            data = together(some, contiguous=True)
            moved.append(relocate(data, self.op.width, self.body.depth, np.array(now, np.int64), 1))
        return together(moved)


class LoopRounds(Operator):
    """The changes of a variable by round, at the parent's round: X0 in round 0, −X0 in round 1, and the body's output
    one round later. That is what the variable gets, and in a truncated loop also the change in its last round."""

    def __init__(self, op: LoopRoundsOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.initial, self.body = scope.operator(op.initial), scope.operator(op.body)
        self.collected: list[Ints] = []

    def begin(self) -> None:
        """Forget what an earlier attempt collected."""
        self.collected.clear()

    def collect(self, at: Round) -> None:
        """Collect the body's output in the round that has just run."""
        if self.body.out is not None:
            self.collected.append(_in_round(self.body.out, self.op.width - 1, at[-1] + 1))

    def step(self, now: Round) -> None:
        """Emit the changes at this round of the parent."""
        parts, self.collected = self.collected, []
        width, at = self.op.width, np.array(now, np.int64)
        moved = [relocate(data, width, self.body.depth, at, 1) for data in parts]
        if self.initial.out is not None:
            for place, sign in ((0, 1), (1, -1)):
                start = _in_round(self.initial.out, width - 1, place)
                moved.append(relocate(start, width, self.initial.depth, at, sign))
        self.out = together(moved) if moved else None


def _in_round(data: Ints, width: int, place: int) -> Ints:
    """The updates with their round behind the `width` words of each row."""
    made = np.empty((len(data), data.shape[1] + 1), np.int64)
    made[:, :width], made[:, width], made[:, width + 1 :] = data[:, :width], place, data[:, width:]
    return made


KINDS: dict[type[Op], Callable[..., Operator]] = {
    VariableOp: Variable,
    LoopOp: Loop,
    LeaveOp: Leave,
    LoopRoundsOp: LoopRounds,
}
