"""Hot keys of a worker: the most frequent key among the rows that it sends to the workers that own them; for people."""

from __future__ import annotations

import numpy as np

from vernier.operators.engine.worker import Worker
from vernier.operators.planning.ops import JoinOp
from vernier.operators.planning.reduction_ops import ReductionOp
from vernier.operators.runtime.operator import shown_key
from vernier.storage.strings.string_heap import TextMissing


def hot_keys(worker: Worker) -> dict[str, tuple[str, float, int]]:
    """The most frequent key of the rows that a worker has sent to an operator, its share of them, and how many rows
    were looked at, by the operator's number. A key is left out if the content of its text is not in memory any more: a
    sample may be of epochs before this one."""
    types = {op.input: op.key for op in worker.plan.of(ReductionOp)}
    types |= {side: op.key for op in worker.plan.of(JoinOp) for side in op.inputs}
    found = {}
    for operator in worker.operators:
        hot = None if operator.sample is None else operator.sample.most()
        if hot is None:
            continue
        of = operator.op.key if isinstance(operator.op, ReductionOp) else types.get(operator.op.id)
        key = str(hot.words.tolist())
        if of is not None:
            try:
                key = shown_key(of, np.concatenate(([0], hot.words))[None], worker.state.heap)
            except TextMissing:
                continue
        found[str(operator.op.id)] = (key, hot.share, hot.samples)
    return found
