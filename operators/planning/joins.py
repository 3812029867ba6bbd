"""Plans joins of two arrangements by the same key, and half joins, which arrange only their right side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vernier.operators.language.collection.lookup import HalfJoinNode
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Binary, Expr
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.node import Node
from vernier.operators.planning.arrangements import arrange
from vernier.operators.planning.chains import chain
from vernier.operators.planning.ops import HalfJoinOp, JoinOp
from vernier.operators.planning.sharing import identity
from vernier.operators.planning.stages import Keep, Words, texts_among

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def build_join(
    planner: Planner,
    node: logical.JoinNode,
    project: Words | None = None,
    meaning: str = "",
    before: tuple[Sequence[Expr], Sequence[Expr]] = ((), ()),
) -> int:
    """A join. `project` picks words of its output at no cost; `meaning` is then the projection's fingerprint.

    before: filters on the left and on the right rows, applied before the join. Only rows that pass reach it.
    """
    keys, vals, columns = pair_columns(node)
    sides = [
        arrange(planner, child, child.scope, key, val, conditions)
        for child, key, val, conditions in zip((node.left, node.right), keys, vals, before, strict=True)
    ]
    if project is not None:
        columns = [columns[w] for w in project]
    memo = ("join", *sides, tuple(columns), node.scope)
    if memo not in planner.memo:
        label = "join on " + on_keys(node)
        by = node.left.schema.take(node.left_on)
        op = JoinOp(
            len(planner.ops), planner.scope(node.scope), len(columns), label, sides[0], sides[1], tuple(columns), by
        )
        op.line = str(node.where)
        planner.memo[memo] = planner.add(op, meaning or planner.meaning(node))
    return planner.memo[memo]


def build_filtered_join(planner: Planner, node: logical.FilterNode, join: logical.JoinNode) -> int:
    """A join with a filter on its pairs. Conditions on one side only are applied to that side, before its rows are
    kept.

    That is done only if the side has no other reader, which could share its arrangement, and only for conditions that
    cannot raise, because they see rows that the join would have dropped. The other conditions run in the join's output
    pass.
    """
    rest: list[Expr] = []
    before: tuple[list[Expr], list[Expr]] = ([], [])
    for condition in conjuncts(node.predicate):
        pushed = False
        for side, child in enumerate((join.left, join.right)):
            names = condition.columns()
            if names and names <= set(child.schema.names) and planner.uses[identity(child)] == 1:
                if not bind(condition, child.schema).fallible:
                    before[side].append(condition)
                    pushed = True
        if not pushed:
            rest.append(condition)
    meaning = planner.meaning(node)
    found = build_join(planner, join, None, meaning, before)
    if not rest:
        return found
    scope = planner.scope(node.scope)
    alone = planner.ops[found] is planner.ops[-1]
    stages = [Keep(condition, join.schema) for condition in rest]
    return chain(planner, found, stages, node.schema.width, scope, meaning, alone=alone)


def conjuncts(predicate: Expr) -> list[Expr]:
    """The conditions whose conjunction is the predicate."""
    if isinstance(predicate, Binary) and predicate.op == "&":
        return [*conjuncts(predicate.left), *conjuncts(predicate.right)]
    return [predicate]


def pair_columns(node: logical.JoinNode) -> tuple[list[Words], list[Words], list[tuple[int, int]]]:
    """The key words of both sides, their other words, and the (side, position) of each output word; side 0 is the key,
    1 the left val, 2 the right val."""
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


def on_keys(node: logical.JoinNode) -> str:
    """The keys of a join, for display."""
    return ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(node.left_on, node.right_on, strict=True))


def build_half_join(planner: Planner, node: HalfJoinNode) -> int:
    """A half join: the right side is arranged; left rows are sent to the owners of their keys and are not kept."""
    pairs = node.pairs
    keys, vals, columns = pair_columns(pairs)
    left = planner.build(pairs.left)
    right = arrange(planner, pairs.right, pairs.right.scope, keys[1], vals[1])
    first = (0, len(keys[0]), len(keys[0]) + len(vals[0]))
    index = tuple(first[side] + at for side, at in columns)
    by = pairs.left.schema.take(pairs.left_on)
    label = f"lookup on {on_keys(pairs)}"
    op = HalfJoinOp(len(planner.ops), 0, len(index), label, left, right, keys[0], vals[0], index, by)
    op.carried = texts_among((*keys[0], *vals[0]), planner.ops[left].texts)
    return planner.add(op, planner.meaning(node))


BUILDERS: dict[type[Node], Callable[[Planner, Any], int]] = {
    logical.JoinNode: build_join,
    HalfJoinNode: build_half_join,
}
