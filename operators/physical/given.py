"""Rows that a trace holds, in place of the operator that would compute them (operators/engine/fill.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.physical.arrange import Arrange, exchange_updates
from vernier.operators.physical.linear import Input
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ArrangeOp, GivenArrangeOp, GivenOp, InputOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun


class Given(Input):
    """The rows that the worker has set, sent to where the operator that they stand for would have put them."""

    def __init__(self, op: GivenOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.route = None if op.route is None or scope.exchange.workers == 1 else np.array(op.route, np.int64)

    def step(self, now: Round) -> None:
        """Emit the updates that the worker has set, once."""
        super().step(now)
        if self.route is not None:
            data = exchange_updates(self.scope, self.out, self.route, self.op.width + 2, self.op.texts)
            self.out = data if len(data) else None


class GivenArrange(Arrange):
    """The rows that the worker has set in `rows`, arranged."""

    def __init__(self, op: GivenArrangeOp, scope: ScopeRun) -> None:
        self.rows = Input(InputOp(op.id, op.scope, op.width, op.name, op.source), scope)
        super().__init__(op, scope)

    def read(self, op: ArrangeOp, scope: ScopeRun) -> Operator:
        """The operator whose output it arranges."""
        return self.rows

    def step(self, now: Round) -> None:
        """Arrange the updates that the worker has set, once."""
        self.rows.step(now)
        super().step(now)


KINDS: dict[type[Op], Callable[..., Operator]] = {GivenOp: Given, GivenArrangeOp: GivenArrange}
