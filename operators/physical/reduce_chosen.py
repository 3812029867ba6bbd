"""Reduce of what ranks choose from groups (quantiles, modes), where time is total.

Of a group of quantiles of one column, the rows around the chosen ranks are read (kernels/ranks.py); of other groups all
rows, once a slice. Then each change costs O(log values) (kernels/chosen.py). Inside loops, and beside other aggregates
of whole groups, operators/physical/reduce_batched.py does it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vernier.operators.failures import AggregateOverflow, MultiplicityOverflow
from vernier.operators.kernels.chosen import COLUMN_FIELDS, ITEM, TOO_MANY, choose_keys
from vernier.operators.physical.reduce_base import Reduction
from vernier.operators.planning.op import Op
from vernier.operators.planning.reduction_ops import ChosenOp
from vernier.operators.runtime.operator import Operator
from vernier.operators.runtime.scope import ScopeRun
from vernier.storage.trace.spine import Selection
from vernier.storage.updates import Ints

_NO_VISITS = np.empty((0, 1), np.int64)


class Chosen(Reduction):
    """Quantiles, modes and their like. O(rows read of the groups + changes x log values) a step."""

    def __init__(self, op: ChosenOp, scope: ScopeRun) -> None:
        super().__init__(op, scope)
        self.texts = op.compared
        self.of = np.array(op.columns, np.int64).reshape(-1, COLUMN_FIELDS)
        self.items = np.array(op.items, np.int64).reshape(-1, ITEM)

    def correct(self, keys: Ints, inputs: Selection, outputs: Selection, now: Ints, fold: int) -> tuple[Ints, Ints]:
        """Follow what is chosen of the keys. Raises AggregateOverflow, MultiplicityOverflow."""
        inputs, ordered = self.by_content(inputs, self.texts)
        entries = inputs.entries
        rows, status, fault = choose_keys(
            keys, self.key_width, inputs.spans, entries, ordered, ordered is not entries, self.input.val_width, self.of,
            self.items, self.val_width, fold,
        )  # fmt: skip
        if status == TOO_MANY:
            raise MultiplicityOverflow(operator=self.op.name, key=self.key_of(keys, fault))
        if status != 0:
            raise AggregateOverflow(operator=self.op.name, key=self.key_of(keys, fault))
        return rows, _NO_VISITS


KINDS: dict[type[Op], Callable[..., Operator]] = {ChosenOp: Chosen}
