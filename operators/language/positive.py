"""What a plan's structure says about multiplicities: never negative, or never above 1 either."""

from __future__ import annotations

from collections.abc import Callable

from operators.language.linear_nodes import Expand, Later
from operators.language.logical import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    LoopResult,
    Node,
    Present,
    Project,
    Union,
    walk,
)
from operators.language.reducing import Copies, Reduce, Threshold

_SETS = (Distinct, Threshold, Present, Aggregate)


def is_positive(node: Node) -> bool:
    """Whether the structure rules out negative multiplicities: all stems from distincts, aggregates and their like.

    O(nodes below). A loop's variable counts as not positive, since its body is not known before the loop is built.
    """
    return _holds(node, _makes_positive, _keeps_positive)


def is_set(node: Node) -> bool:
    """Whether the structure rules out multiplicities other than 0 and 1, so that a distinct would change nothing."""
    return _holds(node, lambda one: isinstance(one, _SETS), lambda one: isinstance(one, (Filter, LoopResult)))


def _makes_positive(node: Node) -> bool:
    return isinstance(node, (*_SETS, Copies)) or (isinstance(node, Reduce) and node.spec.positive)


def _keeps_positive(node: Node) -> bool:
    if isinstance(node, Expand):
        return node.table.positive
    return isinstance(node, (Project, Filter, Union, Join, Later, LoopResult))


def _holds(node: Node, makes: Callable[[Node], bool], keeps: Callable[[Node], bool]) -> bool:
    """Whether a property that some nodes have, whatever their inputs, and that others keep, reaches `node`."""
    known: dict[int, bool] = {}
    for below in walk([node]):
        inputs = below.loop.bodies if isinstance(below, LoopResult) else below.inputs
        known[id(below)] = makes(below) or (keeps(below) and all(known[id(part)] for part in inputs))
    return known[id(node)]
