"""Row-wise operators: inputs, fused chains, unions, and the entry into a loop.

Source: "Generalizing linear operators": linear operators change rows, keep times, and need no state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.kernels.rounds import relocate
from vernier.operators.physical.stages import compile_chain
from vernier.operators.planning.constants import ConstantOp
from vernier.operators.planning.loop_ops import EnterOp
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import InputOp, LinearOp, UnionOp
from vernier.operators.runtime.exchange import Round
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.updates import Ints, Updates, together


class Input(Operator):
    """The updates of a source in the current slice, as set by the worker."""

    def __init__(self, op: InputOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.waiting: Ints | None = None

    def step(self, now: Round) -> None:
        """Emit the updates that the worker has set, once."""
        self.out, self.waiting = self.waiting, None


class Constant(Input):
    """Constant rows: an input that the worker sets in its first epoch."""

    def __init__(self, op: ConstantOp, scope: ScopeRun) -> None:
        Operator.__init__(self, op, scope)
        self.waiting: Ints | None = None
        self.rows, self.schema, self.heap = op.rows, op.schema, scope.heap

    def updates(self, time: int) -> Updates:
        """The rows as updates of one time."""
        words = self.schema.encode_rows(self.rows, self.heap)
        return Updates.of(words, [time] * len(words), [1] * len(words))


class Linear(Operator):
    """A fused chain of row-wise steps (operators/physical/stages.py). O(rows) numpy work a stage."""

    def __init__(self, op: LinearOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = scope.operator(op.input)
        self.chain = compile_chain(op.stages, self.input.op.width, self.depth + 2, scope, op)

    def step(self, now: Round) -> None:
        """Run the input's updates through all stages."""
        data = self.input.out
        found = None if data is None else self.chain(data)
        self.out = found if found is not None and len(found) else None


class Union(Operator):
    """All updates of its inputs."""

    def __init__(self, op: UnionOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.inputs = [scope.operator(i) for i in op.inputs]

    def step(self, now: Round) -> None:
        """Concatenate the outputs of the inputs."""
        full = [data for data in (operator.out for operator in self.inputs) if data is not None]
        self.out = None if not full else together(full)


class Enter(Operator):
    """Brings a collection of the parent scope into a loop: updates at the parent's round i appear at round (i, 0)."""

    def __init__(self, op: EnterOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.input = scope.operator(op.input)

    def step(self, now: Round) -> None:
        """At round 0 of the loop, emit the output of the parent's step."""
        data = self.input.out
        self.out = None
        if data is not None and now[-1] == 0:
            data = np.ascontiguousarray(data)
            self.out = relocate(data, self.op.width, self.input.depth, np.array(now, np.int64), 1)


KINDS: dict[type[Op], Callable[..., Operator]] = {
    InputOp: Input,
    ConstantOp: Constant,
    LinearOp: Linear,
    UnionOp: Union,
    EnterOp: Enter,
}
