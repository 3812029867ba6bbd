"""WITH RECURSIVE as a loop. Spark's UnionLoop has an anchor and a step; the loop's variable holds all rows so far.

The step sees the rows that the last step added; where it is linear in them (no aggregate, DISTINCT, outer or anti join
over the reference), a step over all rows gives the same rows, so `anchor UNION [ALL] step(all)` has the same limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vernier.operators.language.collection.collection import Collection
from vernier.operators.language.collection.fixpoint import fixpoint
from vernier.operators.language.expr.expression import Column
from vernier.operators.language.plan.logical import DistinctNode, ProjectNode, UnionNode
from vernier.operators.sql.expressions import nullable
from vernier.operators.sql.refusals import refuse
from vernier.operators.sql.relations import Relation
from vernier.operators.sql.trees import Tree

if TYPE_CHECKING:
    from vernier.operators.sql.translate import Translation

ROUNDS = 100_000


def loop(translation: Translation, tree: Tree, positional: Callable[..., list[Relation]]) -> Relation:
    """The rows of a UnionLoop."""
    anchor_tree, step_tree = tree.children
    once_each = step_tree.kind == "Except" or anchor_tree.kind == "Distinct"
    number = int(tree.fields["id"]) if not isinstance(tree.fields["id"], dict) else int(tree.fields["id"]["id"])
    step_tree, unique = _step(step_tree)
    once_each = once_each or unique
    _check_linear(step_tree, number)
    numbers = [int(one["id"]) for one in tree.fields["outputAttrIds"]]
    anchor = translation.relation(anchor_tree)
    names = anchor.columns()
    wide = anchor.project([(n, c, Column(c)) for n, c in zip(numbers, names, strict=True)])
    start = ProjectNode(wide.node, tuple((f"c{i}", Column(c)) for i, c in enumerate(wide.columns())))
    nulls: set[str] = set()
    """The columns that only the step has nulls in; they are known once it is built."""

    def body(rows: Collection) -> Collection:
        before = translation.loops.get(number)
        translation.loops[number] = Relation(rows.node, dict(zip(numbers, rows.columns, strict=True)))
        try:
            step = translation.relation(step_tree)
        finally:
            if before is not None:
                translation.loops[number] = before
        one, two = positional(
            [Relation(start, dict(zip(numbers, start.schema.names, strict=True))), step], numbers, start.schema.names
        )
        pairs = zip(start.schema.fields, one.row.fields, strict=True)
        nulls.update(own.name for own, field in pairs if field.nullable and not own.nullable)
        if nulls:
            return rows  # this try only finds out where nulls are
        both = UnionNode((one.node, two.node))
        return Collection(DistinctNode(both) if once_each else both)

    body.__name__ = "recursive"
    while True:
        nulls.clear()
        result: Any = fixpoint(max_rounds=ROUNDS)(body)(Collection(start))
        if not nulls:
            return Relation(result.node, dict(zip(numbers, start.schema.names, strict=True)))
        columns = ((one, Column(one)) for one in start.schema.names)
        start = ProjectNode(start, tuple((one, nullable(to) if one in nulls else to) for one, to in columns))


def reference(translation: Translation, tree: Tree) -> Relation:
    """The rows of the loop so far, inside its step."""
    loop_id = tree.fields["loopId"]
    number = int(loop_id["id"]) if isinstance(loop_id, dict) else int(loop_id)
    rows = translation.loops[number]
    outputs = tree.trees("output")
    return Relation(rows.node, {one.id: column for one, column in zip(outputs, rows.columns(), strict=True)})


def _step(tree: Tree) -> tuple[Tree, bool]:
    """The step without the subtraction by which Spark makes UNION of UNION ALL, and whether there was one."""
    if tree.kind == "Except" and not tree.fields.get("isAll"):
        return tree.children[0], True
    return tree, False


_LINEAR = frozenset(
    {"Project", "Filter", "Join", "SubqueryAlias", "UnionLoopRef", "Union", "Generate", "Expand", "Sort", "View"}
)


def _check_linear(tree: Tree, number: int) -> None:
    below = [one for one in tree.walk() if one.kind == "UnionLoopRef"]
    if not below:
        raise refuse("the recursive part of WITH RECURSIVE does not use its own name", "recursive")
    path = _above(tree)
    for one in path:
        if one.kind not in _LINEAR:
            raise refuse(
                f"WITH RECURSIVE takes steps of joins, filters and projections over its own name, not {one.kind}; "
                "write WITH MUTUALLY RECURSIVE",
                "recursive",
            )
        if one.kind == "Join":
            inside = [any(x.kind == "UnionLoopRef" for x in child.walk()) for child in one.children]
            name = str(one.fields["joinType"].get("object", ""))
            fine = name.endswith(("Inner$", "Cross$")) or (
                inside == [True, False] and name.endswith(("LeftSemi$", "LeftAnti$", "LeftOuter$"))
            )
            if all(inside) or not fine:
                raise refuse(
                    "WITH RECURSIVE uses its own name once, and not on the optional side of a join; write WITH "
                    "MUTUALLY RECURSIVE",
                    "recursive",
                )


def _above(tree: Tree) -> Sequence[Tree]:
    """The nodes from the top down to references."""
    if not any(one.kind == "UnionLoopRef" for one in tree.walk()):
        return []
    return [tree, *(one for child in tree.children for one in _above(child))]
