"""Filter pushdown: moves a filter below a projection of columns, so that it reaches the join underneath."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from vernier.operators.language.expr.expression import Column, Expr
from vernier.operators.language.plan import logical
from vernier.operators.planning.sharing import identity

if TYPE_CHECKING:
    from vernier.operators.planning.planner import Planner


def below_choice(planner: Planner, node: logical.FilterNode) -> logical.ProjectNode | None:
    """Swap a filter with the projection of a join's columns below it: the rows are the same, and the filter is on the
    join.

    None if the node does not have this form, or if the projection or the join has another reader.
    """
    chosen = node.input
    if not isinstance(chosen, logical.ProjectNode) or not isinstance(chosen.input, logical.JoinNode):
        return None
    if planner.uses[identity(chosen)] != 1 or planner.uses[identity(chosen.input)] != 1:
        return None
    names = {name: expr.column for name, expr in chosen.exprs if expr.column is not None}
    if not node.predicate.columns() <= names.keys():
        return None
    condition = logical.FilterNode(chosen.input, renamed(node.predicate, names), where=node.where)
    result = logical.ProjectNode(condition, chosen.exprs, where=chosen.where)
    planner.uses[identity(condition)] = planner.uses[identity(result)] = 1
    return result


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with its columns renamed."""
    if isinstance(expr, Column):
        return Column(names[expr.name])
    tree: Any = expr  # every other expression is a dataclass
    made: Expr = replace(tree, **{field.name: _renamed(getattr(tree, field.name), names) for field in fields(tree)})
    return made


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    if isinstance(part, Expr):
        return renamed(part, names)
    if isinstance(part, tuple):
        return tuple(_renamed(one, names) for one in part)
    return part
