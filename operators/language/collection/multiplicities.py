"""What the structure of a plan says about multiplicities: whether they are never negative, or always 0 or 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vernier.operators.language.collection.reductions import CopiesNode, ReduceNode, ThresholdNode
from vernier.operators.language.expr.expression import Nullability
from vernier.operators.language.plan.linear_nodes import ExpandNode, LaterNode
from vernier.operators.language.plan.logical import (
    AggregateNode,
    DistinctNode,
    FilterNode,
    JoinNode,
    PresentNode,
    ProjectNode,
    UnionNode,
)
from vernier.operators.language.plan.loops import LoopResultNode
from vernier.operators.language.plan.node import Node, walk

_SETS = (DistinctNode, ThresholdNode, PresentNode, AggregateNode)


def is_positive(node: Node) -> bool:
    """Whether the structure rules out negative multiplicities, because all inputs are distincts, aggregates and the
    like.

    O(nodes below). A loop's variable counts as not positive, since its body is not known before the loop is built.
    """
    return _holds(node, _makes_positive, _keeps_positive)


def is_set(node: Node) -> bool:
    """Whether the structure rules out multiplicities other than 0 and 1, so that a distinct would change nothing."""
    return _holds(node, lambda one: isinstance(one, _SETS), lambda one: isinstance(one, (FilterNode, LoopResultNode)))


def is_unique(node: Node, keys: Sequence[str]) -> bool:
    """Whether the structure guarantees at most one row per key: these columns determine all others, and multiplicities
    are 0 or 1."""
    if isinstance(node, (AggregateNode, PresentNode)):
        return set(node.keys) <= set(keys)
    if isinstance(node, (DistinctNode, ThresholdNode)) and set(node.schema.names) <= set(keys):
        return True
    if isinstance(node, (FilterNode, DistinctNode)):
        return is_unique(node.input, keys)
    if isinstance(node, ProjectNode):
        plain = {name: expr.part if isinstance(expr, Nullability) else expr for name, expr in node.exprs}
        columns = [plain[key].column for key in keys]
        return is_unique(node.input, [column for column in columns if column is not None])
    return isinstance(node, LoopResultNode) and is_unique(node.loop.bodies[node.index], keys)


def _makes_positive(node: Node) -> bool:
    return isinstance(node, (*_SETS, CopiesNode)) or (isinstance(node, ReduceNode) and node.spec.positive)


def _keeps_positive(node: Node) -> bool:
    if isinstance(node, ExpandNode):
        return node.table.positive
    return isinstance(node, (ProjectNode, FilterNode, UnionNode, JoinNode, LaterNode, LoopResultNode))


def _holds(node: Node, makes: Callable[[Node], bool], keeps: Callable[[Node], bool]) -> bool:
    """Whether `node` has a property that some nodes establish for any input and others preserve."""
    known: dict[int, bool] = {}
    for below in walk([node]):
        inputs = below.loop.bodies if isinstance(below, LoopResultNode) else below.inputs
        known[id(below)] = makes(below) or (keeps(below) and all(known[id(part)] for part in inputs))
    return known[id(node)]
