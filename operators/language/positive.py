"""What a plan's structure says about multiplicities: never negative, or never above 1 either."""

from __future__ import annotations

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
from operators.language.reducing import Copies, Threshold

_SETS = (Distinct, Threshold, Present, Aggregate)


def is_positive(node: Node) -> bool:
    """Whether the structure rules out negative multiplicities: all stems from distincts and aggregates.

    O(nodes below). A loop's variable counts as not positive, since its body is not known before the loop is built.
    """
    return _holds(node, (*_SETS, Copies, Project, Filter, Union, Join, LoopResult))


def is_set(node: Node) -> bool:
    """Whether the structure rules out multiplicities other than 0 and 1, so that a distinct would change nothing."""
    return _holds(node, (*_SETS, Filter, LoopResult))


def _holds(node: Node, kinds: tuple[type[Node], ...]) -> bool:
    """Whether a property that distincts and aggregates have, and that these kinds of nodes keep, reaches `node`."""
    known: dict[int, bool] = {}
    for below in walk([node]):
        inputs = below.loop.bodies if isinstance(below, LoopResult) else below.inputs
        known[id(below)] = isinstance(below, _SETS) or (
            isinstance(below, kinds) and all(known[id(part)] for part in inputs)
        )
    return known[id(node)]
