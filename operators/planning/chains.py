"""Chains: decides where a row-wise step runs: fused with the steps below, in a join's output pass, or on its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vernier.operators.planning.ops import JoinOp, LinearOp
from vernier.operators.planning.plan import QueuePlan
from vernier.operators.planning.stages import Stage, chain_name, fuse
from vernier.operators.planning.time_ops import TemporalBufferOp

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def chain(
    planner: Planner, below: int, stages: Iterable[Stage], width: int, scope: int, meaning: str, *, alone: bool
) -> int:
    """The operator that runs stages on the output of `below`; its rows have `width` words. meaning: its fingerprint.

    alone: `below` has no other reader, so its work can be fused with this. If `below` is a temporal buffer, the new
    steps run before it, and the buffer then holds the output of the whole chain.
    """
    added = list(stages)
    base = planner.ops[below]
    if alone and isinstance(base, TemporalBufferOp) and base is planner.ops[-1] and base.input == below - 1:
        planner.drop(base)
        del planner.queues[base.queue]
        below, base = base.input, planner.ops[base.input]
    if alone and base is planner.ops[-1]:
        if isinstance(base, LinearOp):
            below, added = base.input, fuse([*base.stages, *added])
            planner.drop(base)
        elif isinstance(base, JoinOp) and base.scope == scope and not any(stage.waits for stage in added):
            return _into_join(planner, base, added, width, meaning)
    op = LinearOp(len(planner.ops), scope, width, chain_name(added), below, tuple(added))
    found = planner.add(op, meaning)
    return _buffer(planner, op) if any(stage.waits for stage in added) else found


def _into_join(planner: Planner, join: JoinOp, stages: list[Stage], width: int, meaning: str) -> int:
    """The join with further row-wise steps on its output, which run before any of it waits for a later round."""
    planner.drop(join)
    name = f"{join.name} → {chain_name(stages)}"
    op = JoinOp(len(planner.ops), join.scope, width, name, join.left, join.right, join.columns, join.key)
    op.stages = tuple(fuse([*join.stages, *stages]))
    op.line = join.line
    return planner.add(op, meaning)


def _buffer(planner: Planner, chain: LinearOp) -> int:
    """The temporal buffer for updates that a chain moves beyond the running slice. Equal chains share one buffer."""
    print_ = planner.hash("hold", planner.prints[chain.id], planner.scope_prints[chain.scope])
    memo = ("hold", print_)
    if memo not in planner.memo:
        queue = f"hold:{print_[:16]}"
        op = TemporalBufferOp(len(planner.ops), chain.scope, chain.width, f"hold {chain.name}", chain.id, queue)
        planner.queues[queue] = QueuePlan(queue, chain.name, chain.width, planner.scopes[chain.scope].depth)
        planner.memo[memo] = planner.add(op, print_)
    return planner.memo[memo]
