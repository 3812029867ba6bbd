"""Plans dense ranks: the distinct values of a group are numbered once, and its rows are joined with the numbers.

The dense rank of a row is the row number of its value among the distinct values of the group, so a change costs the
rows whose rank it changes (operators/kernels/stretches.py), and no group is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vernier.operators.group_functions.ordered import DenseRank, RowNumber
from vernier.operators.language.collection.reductions import CopiesNode, ReduceNode
from vernier.operators.language.expr.expression import col
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.node import Node
from vernier.operators.planning.distinct_counts import SHARED, projected
from vernier.operators.planning.sharing import identity

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def as_row_numbers(planner: Planner, node: ReduceNode, spec: DenseRank) -> Node:
    """A node with the rows of `node`, which ranks its input."""
    below, where = node.input, node.where
    names = (*node.keys, *(name for name, _ in spec.by))
    values: Node
    if below.is_positive:
        values = logical.DistinctNode(
            projected(planner, below, tuple((name, col(name)) for name in names)), where=where
        )
    else:
        values = logical.PresentNode(below, names, where=where)
        below = CopiesNode(below, where=where)
    numbered = ReduceNode(values, node.keys, RowNumber(spec.by, spec.label), where=where)
    joined = logical.JoinNode(below, numbered, names, names, null_safe=True, where=where)
    for one in (values, below, numbered, joined):
        planner.uses[identity(one)] += SHARED
    return joined
