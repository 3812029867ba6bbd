"""Reduce to the starts of sessions, where time is total.

Each row gets the start of its session. A trace of all starts tells in which session the rows around a changed one are
(kernels/sessions.py), so a change costs the rows whose start it changes, however long the session and the group are.
Sessions with their ends, and those inside loops, are a logic of operators/physical/reduce_batched.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.group_functions.sessions import too_late
from vernier.operators.kernels.sessions import LATE, follow_sessions
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import SessionsOp
from vernier.operators.runtime.chunking import parts
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.errors import DiffOverflow
from vernier.storage.updates import together


class FollowSessions(Reduction):
    """Rows with the starts of their sessions. O((changes of the input and of the output) x log rows) a step."""

    def __init__(self, op: SessionsOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.flag, self.gap, self.most, self.on = int(op.flag), op.gap, op.most, op.on
        self.words = np.array(op.words, np.int64)
        self.starts = scope.traces[op.state]

    def step(self, now: Round) -> None:
        """Follow the sessions of the keys that changed. Raises ArithmeticOverflow, DiffOverflow."""
        self.fresh = self.keyed = self.out = None
        fresh = self.input.fresh
        if fresh is None:
            return
        slice_, source, v = self.scope.slice, self.input.trace, self.input.val_width
        given, changed = [], []
        for rows in parts(fresh):
            rows = np.ascontiguousarray(rows)
            made, changes, status, fault = follow_sessions(
                self.starts.settled, source.settled, rows, self.key_width, v, self.flag, self.gap, self.most, self.words
            )
            if status == LATE:
                raise too_late(self.on, int(rows[fault, 1 + self.key_width + self.flag]))
            if status != 0:
                raise DiffOverflow(operation=f"addition in {source.name}")
            given.append(made)
            changed.append(changes)
        self.starts.seal(together(changed), slice_.lower, slice_.upper)
        self.give(together(given))


KINDS: dict[type[Op], Callable[..., Operator]] = {SessionsOp: FollowSessions}
