"""Sharing: decides which nodes are the same, so that equal structure is built once, and counts the users of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vernier.operators.language.plan.node import Node, walk


def identity(node: Node) -> tuple[object, ...]:
    """A key that is equal for nodes of one scope with the same meaning."""
    bound = tuple(scope for scope in reversed(node.scope.chain()) if scope.depth > 0)
    return (node.scope, node.digest(bound))


def count_uses(roots: Sequence[Node]) -> Counter[object]:
    """How many nodes use each structure. A structure with a single user can be fused into that user."""
    uses: Counter[object] = Counter()
    seen: set[object] = set()
    for root in roots:
        uses[identity(root)] += 1
    for node in walk(list(roots)):
        structure = identity(node)
        if structure in seen:
            continue
        seen.add(structure)
        for child in node.dependencies:
            uses[identity(child)] += 1
    return uses
