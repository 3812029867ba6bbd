"""Plans row-wise nodes: a chain of them becomes one operator, and a projection of plain columns costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from vernier.operators.language.plan import linear_nodes, logical
from vernier.operators.language.plan.node import Node, UnaryNode
from vernier.operators.planning.chains import chain
from vernier.operators.planning.joins import build_filtered_join, build_join, conjuncts
from vernier.operators.planning.ops import UnionOp
from vernier.operators.planning.pushing import alone, below_choice, lowered, sunk
from vernier.operators.planning.stages import Compute, Expand, Keep, Move, Negated, Stage, Take, plain_words

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def build_project(planner: Planner, node: logical.ProjectNode) -> int:
    """Plain columns of a join without another reader are picked by the join itself, at no cost."""
    node = _over_sunk(planner, node)
    child = node.input
    words = plain_words(node.exprs, child.schema)
    if words is not None and isinstance(child, logical.JoinNode) and alone(planner, child):
        return build_join(planner, child, words, planner.meaning(node))
    exprs = tuple(expr for _, expr in node.exprs)
    return _step(planner, node, Take(words) if words is not None else Compute(exprs, child.schema, node.schema.width))


def build_filter(planner: Planner, node: logical.FilterNode) -> int:
    """A filter goes into the join below it, also through a projection, if the join has no other reader."""
    node = _over_sunk(planner, node)
    if isinstance(node.input, logical.JoinNode) and alone(planner, node.input):
        return build_filtered_join(planner, node, node.input)
    if (join := lowered(planner, node.input, conjuncts(node.predicate))) is not None:
        return build_filtered_join(planner, replace(node, input=join), join)
    if (moved := below_choice(planner, node)) is not None:
        return build_project(planner, moved)
    return _step(planner, node, Keep(node.predicate, node.input.schema))


def build_negate(planner: Planner, node: logical.NegateNode) -> int:
    """A step that negates diffs."""
    return _step(planner, node, Negated())


def build_expand(planner: Planner, node: linear_nodes.ExpandNode) -> int:
    """A step that makes any number of rows of each row. A temporal filter goes below a join under it."""
    if (moved := sunk(planner, node)) is not None:
        return planner.build(moved)
    return _step(planner, node, Expand(node.table, node.input.schema, node.schema.width))


def build_later(planner: Planner, node: linear_nodes.LaterNode) -> int:
    """A step that moves rows in time."""
    return _step(planner, node, Move(node.ns, node.delay))


def _step(planner: Planner, node: UnaryNode, stage: Stage) -> int:
    """A row-wise step, fused with the steps or the join below it if those have no other reader."""
    child = node.input
    single, scope = alone(planner, child), planner.scope(node.scope)
    below = planner.build(child)
    return chain(planner, below, [stage], node.schema.width, scope, planner.meaning(node), alone=single)


U = TypeVar("U", bound=UnaryNode)


def _over_sunk(planner: Planner, node: U) -> U:
    """The node over the join that a temporal filter below it has been moved under, if there is one."""
    moved = sunk(planner, node.input) if alone(planner, node.input) else None
    return node if moved is None else replace(node, input=moved)


def build_union(planner: Planner, node: logical.UnionNode) -> int:
    """All updates of the inputs. Inputs from an outer scope enter the loop first."""
    inputs = tuple(planner.into(child, node.scope) for child in node.inputs)
    op = UnionOp(len(planner.ops), planner.scope(node.scope), node.schema.width, "union", parts=inputs)
    return planner.add(op, planner.meaning(node))


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    logical.ProjectNode: build_project,
    logical.FilterNode: build_filter,
    logical.NegateNode: build_negate,
    logical.UnionNode: build_union,
    linear_nodes.ExpandNode: build_expand,
    linear_nodes.LaterNode: build_later,
}
