"""Plans of joins: two arrangements by the same key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators.language import logical
from operators.planning.arrangements import arrange
from operators.planning.plan import (
    JoinOp,
    Words,
)

if TYPE_CHECKING:
    from operators.planning.planner import Planner


def build_join(planner: Planner, node: logical.Join, project: Words | None = None, meaning: str = "") -> int:
    """A join; `project` chooses words of its output, which costs nothing (`meaning` is then the projection's)."""
    sides = []
    layouts: list[dict[int, tuple[int, int]]] = []
    for side, (child, on) in enumerate(((node.left, node.left_on), (node.right, node.right_on))):
        key = tuple(int(w) for w in child.schema.index(on))
        val = tuple(w for w in range(child.schema.width) if w not in key)
        sides.append(arrange(planner, child, child.scope, key, val))
        layout = {w: (0, i) for i, w in enumerate(key)}
        layout |= {w: (1 + side, i) for i, w in enumerate(val)}
        layouts.append(layout)
    columns: list[tuple[int, int]] = []
    if node.merged:
        columns += [layouts[0][int(w)] for w in node.left.schema.index(node.left_on)]
    for side, (child, on) in enumerate(((node.left, node.left_on), (node.right, node.right_on))):
        for field in child.schema.fields:
            if not (node.merged and field.name in on):
                columns += [layouts[side][w] for w in range(field.offset, field.offset + field.words)]
    if project is not None:
        columns = [columns[w] for w in project]
    memo = ("join", *sides, tuple(columns), node.scope)
    if memo not in planner.memo:
        label = "join on " + ", ".join(
            a if a == b else f"{a} = {b}" for a, b in zip(node.left_on, node.right_on, strict=True)
        )
        op = JoinOp(
            len(planner.ops), planner.scope(node.scope), len(columns), label, sides[0], sides[1], tuple(columns)
        )
        planner.memo[memo] = planner.add(op, meaning or planner.meaning(node))
    return planner.memo[memo]


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {logical.Join: build_join}
