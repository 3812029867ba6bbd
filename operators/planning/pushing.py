"""Moves row-wise steps below the joins under them: filters through projections, temporal filters to the sides.

A temporal filter is, at each data time T, the filter `start <= T < stop`. So what holds for filters holds for it at
each time, and two collections that are equal at all times are equal: a bound that reads one side's columns may select
that side's rows before the join, and the two bounds may go to different sides. The side then keeps only rows that are
valid, instead of all that ever were. A table function moves to a side if a filter above it then selects among the rows
that it makes. docs/decisions/0027-what-moves-below-joins.md has the conditions and what does not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vernier.operators.language.collection.structure import ArrangedNode
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr, Literal
from vernier.operators.language.expr.substitution import renamed
from vernier.operators.language.plan import logical
from vernier.operators.language.plan.linear_nodes import ExpandNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.plan.tables import ValidBetween
from vernier.operators.planning.joins import conjuncts
from vernier.operators.planning.sharing import identity

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner

_NULL = Literal(None, None)


def sunk(planner: Planner, node: Node) -> Node | None:
    """The same rows, with the temporal filter that `node` is moved below the join under it; None if it stays.

    It may pass filters and projections on its way. What it passes, and the join, must have no other reader.
    """
    if not planner.push or not isinstance(node, ExpandNode) or not isinstance(node.table, ValidBetween):
        return None
    made: list[Node] = []
    found = _sink(planner, node.input, node.table, node, made)
    # A node that the program has itself may be built already, as part of another operator.
    if found is None or any(planner.uses[identity(one)] for one in made):
        return None
    for one in made:
        planner.uses[identity(one)] = 1
    planner.pushes = True
    return found


def alone(planner: Planner, node: Node) -> bool:
    """Whether the node has a single reader, so that it can become part of it."""
    return planner.uses[identity(node)] == 1


def _sink(planner: Planner, child: Node, table: ValidBetween, top: Node, made: list[Node]) -> Node | None:
    """The rows of `child` with this temporal filter, which is applied below a join; None if there is none to pass."""
    if not alone(planner, child):
        return None
    if isinstance(child, logical.JoinNode):
        return _split(planner, child, table, top, made)
    found: Node | None = None
    if isinstance(child, logical.FilterNode):
        below = _sink(planner, child.input, table, top, made)
        found = None if below is None else logical.FilterNode(below, child.predicate, where=child.where)
    elif isinstance(child, logical.ProjectNode):
        names = {name: expr.column for name, expr in child.exprs if expr.column is not None}
        if names_of(table) <= names.keys():
            through = ValidBetween(renamed(table.start, names), renamed(table.stop, names))
            below = _sink(planner, child.input, through, top, made)
            found = None if below is None else logical.ProjectNode(below, child.exprs, where=child.where)
    elif isinstance(child, (logical.NegateNode, ExpandNode)) and _passes(child, names_of(table)):
        below = _sink(planner, child.input, table, top, made)
        found = None if below is None else replace(child, input=below)
    elif (join := lowered(planner, child, (table.start, table.stop))) is not None:
        return _split(planner, join, table, top, made)
    if found is not None:
        made.append(found)
    return found


def lowered(planner: Planner, node: Node, conditions: Sequence[Expr]) -> logical.JoinNode | None:
    """The join with the table function `node` that is above it moved to one of its sides; None if it stays.

    It moves if one of these conditions (or bounds) can then select among the rows that it makes; otherwise the side
    would only become larger.
    """
    if not planner.push or not isinstance(node, ExpandNode) or not node.table.total or not alone(planner, node):
        return None
    join = node.input
    if not isinstance(join, logical.JoinNode) or not alone(planner, join):
        return None
    reads = node.table.reads(join.schema)
    for side in (join.left, join.right):
        if not reads <= set(side.schema.names) - {*join.left_on, *join.right_on}:
            continue
        if not alone(planner, side) or _kept(planner, side):
            continue
        made = ExpandNode(side, node.table, where=node.where)
        moved = replace(join, left=made) if side is join.left else replace(join, right=made)
        taken = planner.uses[identity(made)] or planner.uses[identity(moved)]
        if moved.schema == node.schema and not taken and any(_selects(made, one) for one in conditions):
            planner.uses[identity(made)] = planner.uses[identity(moved)] = 1
            planner.pushes = True
            return moved
    return None


def _selects(made: ExpandNode, condition: Expr) -> bool:
    """Whether a condition reads what a table function has made, and nothing that is not there, and cannot raise."""
    row, names = made.schema, condition.columns()
    if not names <= set(row.names):
        return False
    source = made.table.source_words(made.input.schema)
    fresh = any(source[word] < 0 for word in row.index(sorted(names)))
    return fresh and not bind(condition, row).fallible


def names_of(table: ValidBetween) -> frozenset[str]:
    """The columns that the bounds read."""
    return table.start.columns() | table.stop.columns()


def _passes(step: logical.NegateNode | ExpandNode, names: frozenset[str]) -> bool:
    """Whether these columns of the step's rows are its input's, unchanged."""
    if isinstance(step, logical.NegateNode):
        return True
    row, given = step.schema, step.input.schema
    if step.table.shifts or not names <= set(given.names):
        return False
    source, read = step.table.source_words(given), sorted(names)
    return [source[word] for word in row.index(read).tolist()] == list(map(int, given.index(read)))


def _split(planner: Planner, join: logical.JoinNode, table: ValidBetween, top: Node, made: list[Node]) -> Node | None:
    """The join of sides that are filtered by the bounds that they can compute, and above it by the others."""
    sides: list[Node] = []
    left_over = [table.start, table.stop]
    for side in (join.left, join.right):
        own = [bound if _fits(planner, side, bound) else _NULL for bound in (table.start, table.stop)]
        if all(bound is _NULL for bound in own):
            sides.append(side)
            continue
        left_over = [_NULL if one is not _NULL else rest for one, rest in zip(own, left_over, strict=True)]
        sides.append(ExpandNode(side, ValidBetween(*own), where=top.where))
        made.append(sides[-1])
    if sides == [join.left, join.right]:
        return None
    found: Node = replace(join, left=sides[0], right=sides[1])
    made.append(found)
    if any(bound is not _NULL for bound in left_over):
        found = ExpandNode(found, ValidBetween(*left_over), where=top.where)
        made.append(found)
    return found


def _fits(planner: Planner, side: Node, bound: Expr) -> bool:
    """Whether the bound may select rows of this side: it reads its columns alone and cannot raise for rows that the
    join drops, and the side is kept for this join only."""
    names = bound.columns()
    if not names or not names <= set(side.schema.names) or not alone(planner, side) or _kept(planner, side):
        return False
    return not bind(bound, side.schema).fallible


def _kept(planner: Planner, side: Node) -> bool:
    """Whether there is an arrangement of the whole side in any case, which a filtered one would only add to."""
    if isinstance(side, logical.SourceNode):
        return planner.keep_sources or side.name in planner.app.kept_sources or side.name in planner.upserts
    return isinstance(side, ArrangedNode)


def below_choice(planner: Planner, node: logical.FilterNode) -> logical.ProjectNode | None:
    """Swap a filter with the projection of a join's columns below it: the rows are the same, and the filter is on the
    join.

    None if the node does not have this form, or if the projection or the join has another reader.
    """
    chosen = node.input
    if not isinstance(chosen, logical.ProjectNode) or not alone(planner, chosen) or not alone(planner, chosen.input):
        return None
    names = {name: expr.column for name, expr in chosen.exprs if expr.column is not None}
    if not node.predicate.columns() <= names.keys():
        return None
    predicate, join = renamed(node.predicate, names), chosen.input
    if not isinstance(join, logical.JoinNode):
        lower = lowered(planner, join, conjuncts(predicate))
        if lower is None:
            return None
        join = lower
    condition = logical.FilterNode(join, predicate, where=node.where)
    result = logical.ProjectNode(condition, chosen.exprs, where=chosen.where)
    planner.uses[identity(condition)] = planner.uses[identity(result)] = 1
    return result
