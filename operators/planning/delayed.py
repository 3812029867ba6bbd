"""Plans delayed variables: one operator emits updates from a queue, and another, elsewhere in the plan, fills it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vernier.operators.language.collection.variable import DelayedNode
from vernier.operators.language.plan.node import Node
from vernier.operators.planning.op import Op
from vernier.operators.planning.plan import QueuePlan
from vernier.operators.planning.time_ops import DelayedOp, SetOp

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def build_delayed(planner: Planner, node: DelayedNode) -> int:
    """The operator that emits the variable's rows. `feed` builds the other half after all other nodes are built."""
    print_ = planner.hash("delayed", node.params(), *planner.definitions([node]))
    queue = f"hold:{print_[:16]}"
    name = f"variable {node.name}"
    op = DelayedOp(len(planner.ops), 0, node.schema.width, name, queue, node.schema, node.ns, node.max_steps)
    planner.queues[queue] = QueuePlan(queue, name, node.schema.width, 0)
    return planner.add(op, print_)


def feed(planner: Planner) -> None:
    """Build the definitions of all variables and the operators that feed them back."""
    for node in planner.delayed:
        variable = planner.build(node)
        below = planner.build(node.body)
        op = SetOp(len(planner.ops), 0, node.schema.width, f"set {node.name}", below, variable, node.ns)
        planner.add(op, planner.hash("set", planner.prints[variable], planner.prints[below]))


def mark_cycles(ops: list[Op], queues: Mapping[str, QueuePlan]) -> dict[str, QueuePlan]:
    """The queues, with `cyclic` set on those through which a delayed variable feeds itself."""
    users: dict[int, list[int]] = {op.id: [] for op in ops}
    feeds: dict[int, list[int]] = {op.id: list(op.inputs) for op in ops}
    for op in ops:
        if op.feeds is not None:
            feeds[op.feeds].append(op.id)
    for user, inputs in feeds.items():
        for i in inputs:
            users[i].append(user)
    variables = [op.feeds for op in ops if op.feeds is not None]
    around = _reached(variables, users) & _reached(variables, feeds)
    cyclic = {queue for op in ops if op.id in around for queue in op.queues}
    return {name: replace(shape, cyclic=name in cyclic) for name, shape in queues.items()}


def _reached(start: list[int], edges: Mapping[int, list[int]]) -> set[int]:
    """All nodes that are one or more edges away from the start."""
    seen: set[int] = set()
    todo = [after for at in start for after in edges[at]]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += edges[at]
    return seen


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {DelayedNode: build_delayed}
