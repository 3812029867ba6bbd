"""Plans of row-wise nodes: chains fuse into one operator, and mere choices of words cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators.language import linear_nodes, logical
from operators.planning.joins import build_join
from operators.planning.placement import plain_words
from operators.planning.plan import (
    Compute,
    Expand,
    HoldOp,
    HoldPlan,
    Keep,
    LinearOp,
    Move,
    Negated,
    Stage,
    Take,
    UnionOp,
)
from operators.planning.sharing import identity
from operators.planning.stages import chain_name, fuse, waits

if TYPE_CHECKING:
    from operators.planning.planner import Planner

RowWise = logical.Project | logical.Filter | logical.Negate | linear_nodes.Expand | linear_nodes.Later


def build_linear(planner: Planner, node: RowWise) -> int:
    """A row-wise step, fused into the chain below it when nothing else reads that.

    A chain that moves updates in time has a hold behind it; steps that follow run before the hold, which then keeps
    what comes out of all of them.
    """
    child = node.input
    stages: list[Stage]
    if isinstance(node, logical.Project):
        words = plain_words(node.exprs, child.schema)
        if words is not None and isinstance(child, logical.Join) and planner.uses[identity(child)] == 1:
            return build_join(planner, child, words, planner.meaning(node))
        exprs = tuple(expr for _, expr in node.exprs)
        stages = [Take(words) if words is not None else Compute(exprs, child.schema, node.schema.width)]
    elif isinstance(node, logical.Filter):
        stages = [Keep(node.predicate, child.schema)]
    elif isinstance(node, linear_nodes.Expand):
        stages = [Expand(node.table, child.schema, node.schema.width)]
    elif isinstance(node, linear_nodes.Later):
        stages = [Move(node.ns, node.delay)]
    else:
        stages = [Negated()]
    below = planner.build(child)
    if planner.uses[identity(child)] == 1:
        base = planner.ops[below]
        if isinstance(base, HoldOp) and base.input == below - 1 and base is planner.ops[-1]:
            planner.drop(base)
            del planner.holds[base.queue]
            below, base = base.input, planner.ops[base.input]
        if isinstance(base, LinearOp):
            below, stages = base.input, fuse([*base.stages, *stages])
            planner.drop(base)
    width, scope = node.schema.width, planner.scope(node.scope)
    op = LinearOp(len(planner.ops), scope, width, chain_name(stages), below, tuple(stages))
    chain = planner.add(op, planner.meaning(node))
    return hold(planner, op) if any(waits(stage) for stage in stages) else chain


def hold(planner: Planner, chain: LinearOp) -> int:
    """The operator that keeps what a chain puts behind the running slice; chains that do the same share one."""
    print_ = planner.hash("hold", planner.prints[chain.id], planner.scope_prints[chain.scope])
    memo = ("hold", print_)
    if memo not in planner.memo:
        queue = f"hold:{print_[:16]}"
        op = HoldOp(len(planner.ops), chain.scope, chain.width, f"hold {chain.name}", chain.id, queue)
        planner.holds[queue] = HoldPlan(queue, chain.name, chain.width, planner.scopes[chain.scope].depth)
        planner.memo[memo] = planner.add(op, print_)
    return planner.memo[memo]


def build_union(planner: Planner, node: logical.Union) -> int:
    """All updates of the parts, which a loop brings in where they come from outside."""
    inputs = tuple(planner.into(child, node.scope) for child in node.inputs)
    op = UnionOp(len(planner.ops), planner.scope(node.scope), node.schema.width, "union", inputs=inputs)
    return planner.add(op, planner.meaning(node))


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {
    logical.Project: build_linear,
    logical.Filter: build_linear,
    logical.Negate: build_linear,
    logical.Union: build_union,
    linear_nodes.Expand: build_linear,
    linear_nodes.Later: build_linear,
}
