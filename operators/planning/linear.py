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
    Keep,
    LinearOp,
    Negated,
    Stage,
    Take,
    UnionOp,
)
from operators.planning.sharing import identity
from operators.planning.stages import chain_name, fuse, stage_key

if TYPE_CHECKING:
    from operators.planning.planner import Planner


def build_linear(
    planner: Planner, node: logical.Project | logical.Filter | logical.Negate | linear_nodes.Expand
) -> int:
    """A row-wise step, fused into the chain below it when nothing else reads that."""
    child = node.input
    stages: list[Stage]
    if isinstance(node, logical.Project):
        words = plain_words(node.exprs, child.schema)
        if words is not None and isinstance(child, logical.Join) and planner.uses[identity(child)] == 1:
            return build_join(planner, child, words)
        exprs = tuple(expr for _, expr in node.exprs)
        stages = [Take(words) if words is not None else Compute(exprs, child.schema, node.schema.width)]
    elif isinstance(node, logical.Filter):
        stages = [Keep(node.predicate, child.schema)]
    elif isinstance(node, linear_nodes.Expand):
        stages = [Expand(node.table, child.schema, node.schema.width)]
    else:
        stages = [Negated()]
    below = planner.build(child)
    base = planner.ops[below]
    if isinstance(base, LinearOp) and planner.uses[identity(child)] == 1:
        below, stages = base.input, fuse([*base.stages, *stages])
        planner.drop(base)
    op = LinearOp(
        len(planner.ops), planner.scope(node.scope), node.schema.width, chain_name(stages), below, tuple(stages)
    )
    return planner.add(op, planner.hash("linear", planner.prints[below], [stage_key(stage) for stage in stages]))


def build_union(planner: Planner, node: logical.Union) -> int:
    """All updates of the parts, which a loop brings in where they come from outside."""
    inputs = tuple(planner.into(child, node.scope) for child in node.inputs)
    prints = [planner.prints[i] for i in inputs]
    op = UnionOp(len(planner.ops), planner.scope(node.scope), node.schema.width, "union", inputs=inputs)
    return planner.add(op, planner.hash("union", prints))


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {
    logical.Project: build_linear,
    logical.Filter: build_linear,
    logical.Negate: build_linear,
    logical.Union: build_union,
    linear_nodes.Expand: build_linear,
}
