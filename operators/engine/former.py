"""States of earlier versions, to which a group of counts and sums existed while any of its rows had copies, and a sum
while any of its values had (decision 26). Today such a group is a vector, and no row of it is kept."""

from __future__ import annotations

import numpy as np

from vernier.operators.engine.worker import WorkerState
from vernier.operators.failures import NeedsHistory
from vernier.operators.planning.plan import Plan
from vernier.storage.trace.batch import key_updates


def check_former(plan: Plan, state: WorkerState) -> None:
    """Check that every group that an earlier version kept in `state` still exists. If copies of different
    rows cancel, it may not, and its output would have to change at a time that is final: raises NeedsHistory. O(rows
    log rows), once, when such a state is opened."""
    for former in plan.former:
        if not {former.trace, former.lanes} <= state.traces.keys() or not state.traces[former.trace].batches:
            continue
        data = np.concatenate([batch.to_updates().data for batch in state.traces[former.trace].batches])
        data[:, -2] = state.upper - 1
        words = np.arange(data.shape[1] - 2)
        rows = key_updates(data, words[: former.key_width], words[former.key_width :], 0)
        if len(rows) == 0:
            continue
        keys, copies = rows[:, : 1 + former.key_width], rows[:, -1]
        starts = np.flatnonzero(np.concatenate(([True], (keys[1:] != keys[:-1]).any(axis=1))))
        gone = bool((np.add.reduceat(copies, starts) == 0).any())
        for flag in former.flags:
            there = rows[:, 1 + flag]
            values, some = np.add.reduceat(copies * there, starts), np.maximum.reduceat(there, starts)
            gone = gone or bool(((values == 0) & (some != 0)).any())
        if gone:
            label = next((op.name for op in plan.ops if op.arrangement == former.trace), "a group of counts and sums")
            why = "an earlier version kept groups whose rows cancel each other, and these do not exist any longer"
            raise NeedsHistory(what=label, why=why)
