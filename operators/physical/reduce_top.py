"""Reduce of the first copies of groups (`top_k`), where time is total.

Of a group the operator reads what its first copies depend on (kernels/ends.py), and follows them change by change
(kernels/tops.py). So a change costs the same in a group of a million rows as in one of a hundred. If the order begins
with a text, the rows of the group are read whole. Inside loops, operators/physical/reduce_batched.py does it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.failures import MultiplicityOverflow
from vernier.operators.kernels.tops import top_keys
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import TopOp
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints

_NO_VISITS = np.empty((0, 1), np.int64)


class Top(Reduction):
    """The first copies of each group. O((changes of the input and of the output) x log changes) a step."""

    def __init__(self, op: TopOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.most, self.texts = op.most, op.compared
        self.by, self.flips, self.words = (np.array(words, np.int64) for words in (op.by, op.flips, op.words))

    def correct(self, keys: Ints, inputs: Selection, outputs: Selection, now: Ints, fold: int) -> tuple[Ints, Ints]:
        """Follow the first copies of the keys. Raises MultiplicityOverflow."""
        inputs, ordered = self.by_content(inputs, self.texts)
        entries = inputs.entries
        rows, status, fault = top_keys(
            keys, self.key_width, inputs.spans, entries, ordered, self.input.val_width, self.by, self.flips, self.most,
            self.words, fold,
        )  # fmt: skip
        if status != 0:
            raise MultiplicityOverflow(operator=self.op.name, key=self.key_of(keys, fault))
        return rows, _NO_VISITS


KINDS: dict[type[Op], Callable[..., Operator]] = {TopOp: Top}
