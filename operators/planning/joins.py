"""Plans of joins: two arrangements by the same key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from operators.language import logical
from operators.language.lookup import Lookup
from operators.planning.arrangements import arrange
from operators.planning.plan import JoinOp, LookupOp, Words, texts_among

if TYPE_CHECKING:
    from operators.planning.planner import Planner


def build_join(planner: Planner, node: logical.Join, project: Words | None = None, meaning: str = "") -> int:
    """A join; `project` chooses words of its output, which costs nothing (`meaning` is then the projection's)."""
    keys, vals, columns = pair_columns(node)
    sides = [
        arrange(planner, child, child.scope, key, val)
        for child, key, val in zip((node.left, node.right), keys, vals, strict=True)
    ]
    if project is not None:
        columns = [columns[w] for w in project]
    memo = ("join", *sides, tuple(columns), node.scope)
    if memo not in planner.memo:
        label = "join on " + on_keys(node)
        op = JoinOp(
            len(planner.ops), planner.scope(node.scope), len(columns), label, sides[0], sides[1], tuple(columns)
        )
        planner.memo[memo] = planner.add(op, meaning or planner.meaning(node))
    return planner.memo[memo]


def pair_columns(node: logical.Join) -> tuple[list[Words], list[Words], list[tuple[int, int]]]:
    """The key words of both sides, their other words, and for each output word (side, position): 0 key, 1 left, 2
    right."""
    keys, vals = [], []
    layouts: list[dict[int, tuple[int, int]]] = []
    sides = ((node.left, node.left_on), (node.right, node.right_on))
    for side, (child, on) in enumerate(sides):
        key = tuple(int(w) for w in child.schema.index(on))
        val = tuple(w for w in range(child.schema.width) if w not in key)
        keys.append(key)
        vals.append(val)
        layout = {w: (0, i) for i, w in enumerate(key)}
        layouts.append(layout | {w: (1 + side, i) for i, w in enumerate(val)})
    columns: list[tuple[int, int]] = []
    if node.merged:
        columns += [layouts[0][w] for w in keys[0]]
    for side, (child, on) in enumerate(sides):
        for field in child.schema.fields:
            if not (node.merged and field.name in on):
                columns += [layouts[side][w] for w in range(field.offset, field.offset + field.words)]
    return keys, vals, columns


def on_keys(node: logical.Join) -> str:
    """The keys of a join, for people."""
    return ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(node.left_on, node.right_on, strict=True))


def build_lookup(planner: Planner, node: Lookup) -> int:
    """A lookup: its right side is arranged, its left side goes to the keys' owners and is not kept."""
    pairs = node.pairs
    keys, vals, columns = pair_columns(pairs)
    left = planner.build(pairs.left)
    right = arrange(planner, pairs.right, pairs.right.scope, keys[1], vals[1])
    first = (0, len(keys[0]), len(keys[0]) + len(vals[0]))
    index = tuple(first[side] + at for side, at in columns)
    op = LookupOp(len(planner.ops), 0, len(index), f"lookup on {on_keys(pairs)}", left, right, keys[0], vals[0], index)
    op.carried = texts_among((*keys[0], *vals[0]), planner.ops[left].texts)
    return planner.add(op, planner.meaning(node))


BUILDERS: dict[type[logical.Node], Callable[[Planner, Any], int]] = {
    logical.Join: build_join,
    Lookup: build_lookup,
}
