"""Plans row-wise nodes: a chain of them becomes one operator, and a projection of plain columns costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vernier.operators.language.plan import linear_nodes, logical
from vernier.operators.language.plan.node import Node
from vernier.operators.planning.chains import chain
from vernier.operators.planning.joins import build_filtered_join, build_join
from vernier.operators.planning.ops import UnionOp
from vernier.operators.planning.pushing import below_choice
from vernier.operators.planning.sharing import identity
from vernier.operators.planning.stages import Compute, Expand, Keep, Move, Negated, Stage, Take, plain_words

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner

RowWise = (
    logical.ProjectNode | logical.FilterNode | logical.NegateNode | linear_nodes.ExpandNode | linear_nodes.LaterNode
)


def build_linear(planner: Planner, node: RowWise) -> int:
    """A row-wise step, fused with the steps or the join below it if those have no other reader."""
    child = node.input
    alone = planner.uses[identity(child)] == 1
    stages: list[Stage]
    if isinstance(node, logical.ProjectNode):
        words = plain_words(node.exprs, child.schema)
        if words is not None and isinstance(child, logical.JoinNode) and alone:
            return build_join(planner, child, words, planner.meaning(node))
        exprs = tuple(expr for _, expr in node.exprs)
        stages = [Take(words) if words is not None else Compute(exprs, child.schema, node.schema.width)]
    elif isinstance(node, logical.FilterNode):
        if isinstance(child, logical.JoinNode) and alone:
            return build_filtered_join(planner, node, child)
        if (moved := below_choice(planner, node)) is not None:
            return build_linear(planner, moved)
        stages = [Keep(node.predicate, child.schema)]
    elif isinstance(node, linear_nodes.ExpandNode):
        stages = [Expand(node.table, child.schema, node.schema.width)]
    elif isinstance(node, linear_nodes.LaterNode):
        stages = [Move(node.ns, node.delay)]
    else:
        stages = [Negated()]
    scope = planner.scope(node.scope)
    return chain(planner, planner.build(child), stages, node.schema.width, scope, planner.meaning(node), alone=alone)


def build_union(planner: Planner, node: logical.UnionNode) -> int:
    """All updates of the inputs. Inputs from an outer scope enter the loop first."""
    inputs = tuple(planner.into(child, node.scope) for child in node.inputs)
    op = UnionOp(len(planner.ops), planner.scope(node.scope), node.schema.width, "union", parts=inputs)
    return planner.add(op, planner.meaning(node))


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    logical.ProjectNode: build_linear,
    logical.FilterNode: build_linear,
    logical.NegateNode: build_linear,
    logical.UnionNode: build_union,
    linear_nodes.ExpandNode: build_linear,
    linear_nodes.LaterNode: build_linear,
}
