"""The nodes of a program in the columns that its sources had before: what moves through a node, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from vernier.operators.errors import ProgramError
from vernier.operators.language.expr.expression import Cast, Column, Expr, Nullability
from vernier.operators.language.expr.substitution import substituted
from vernier.operators.language.plan import linear_nodes, logical
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.plan.node import ROOT, Node, walk
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True)
class Form:
    """A node over the former columns, and the present node's columns as expressions of its columns, in order."""

    node: Node
    columns: Mapping[str, Expr]

    @property
    def same(self) -> bool:
        """Whether both nodes have the same rows and names."""
        return self.node.schema.names == tuple(self.columns) and all(
            expr.column == name for name, expr in self.columns.items()
        )

    def plain(self, names: Sequence[str]) -> tuple[str, ...] | None:
        """The former names of columns, if they are all former columns."""
        found = [self.columns[name].column for name in names]
        return None if None in found else tuple(map(str, found))


Changed = Mapping[str, tuple[RowType, Mapping[str, Expr]]]
"""For sources whose columns have changed, the former row type, and the present columns as expressions of it."""


def forms(roots: Sequence[Node], changed: Changed) -> dict[int, Form]:
    """The forms, by id, of all nodes below `roots` that have one."""
    found: dict[int, Form] = {}
    for node in walk(list(roots)):
        if node.scope is not ROOT or list(node.inputs) != list(node.dependencies):
            continue
        if any(id(one) not in found for one in node.inputs):
            continue
        try:
            form = _form(node, [found[id(one)] for one in node.inputs], changed)
        except ProgramError:  # the former columns do not fit together where the present ones do
            continue
        if form is not None:
            found[id(node)] = form
    return found


def _form(node: Node, inputs: list[Form], changed: Changed) -> Form | None:
    if isinstance(node, logical.SourceNode):
        return _source(node, changed)
    if all(form.node is one for form, one in zip(inputs, node.inputs, strict=True)):
        return Form(node, _itself(node.schema))
    if all(form.same for form in inputs):
        found = _with_inputs(node, {id(one): form.node for one, form in zip(node.inputs, inputs, strict=True)})
        return Form(found, _itself(found.schema)) if found.schema == node.schema else None
    rule = _RULES.get(type(node))
    return None if rule is None else rule(node, inputs)


def _source(node: logical.SourceNode, changed: Changed) -> Form | None:
    if node.name not in changed:
        return Form(node, _itself(node.schema))
    former, columns = changed[node.name]
    return Form(logical.SourceNode(node.name, former, where=node.where), columns)


def _itself(row: RowType) -> dict[str, Expr]:
    return {name: Column(name) for name in row.names}


def _with_inputs(node: Any, inputs: Mapping[int, Node]) -> Node:
    """The node over other inputs of the same columns."""

    def other(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(other(one) for one in value)
        return inputs.get(id(value), value) if isinstance(value, Node) else value

    changed = {one.name: other(getattr(node, one.name)) for one in fields(node) if one.init}
    made: Node = replace(node, **changed)
    return made


def _filter(node: logical.FilterNode, inputs: list[Form]) -> Form:
    (below,) = inputs
    return Form(replace(node, input=below.node, predicate=substituted(node.predicate, below.columns)), below.columns)


def _project(node: logical.ProjectNode, inputs: list[Form]) -> Form:
    """Expressions of former columns stay in the node. Those of other columns are computed from its rows, which have the
    former columns for that."""
    (below,) = inputs
    made: dict[str, Expr] = {}
    columns: dict[str, Expr] = {}
    later: dict[str, Expr] = {}
    for name, expr in node.exprs:
        if all(below.columns[one].column is not None for one in expr.columns()):
            was = below.columns[name].column if expr.column == name else None
            columns[name] = Column(was or name)
            made[was or name] = substituted(expr, below.columns)
        else:
            columns[name] = later[name] = substituted(expr, below.columns)
    for expr in later.values():
        for name in expr.columns():
            if made.setdefault(name, Column(name)).column != name:
                return Form(below.node, {name: substituted(expr, below.columns) for name, expr in node.exprs})
    if not made:
        return Form(below.node, columns)
    return Form(logical.ProjectNode(below.node, tuple(made.items()), where=node.where), columns)


def _passing(node: Any, inputs: list[Form]) -> Form:
    (below,) = inputs
    return Form(replace(node, input=below.node), below.columns)


def _distinct(node: logical.DistinctNode, inputs: list[Form]) -> Form | None:
    """Rows are distinct in both forms if each present row is made of another former row."""
    (below,) = inputs
    shown = {name for expr in below.columns.values() if (name := _told(expr)) is not None}
    if shown >= set(below.node.schema.names):
        return Form(replace(node, input=below.node), below.columns)
    if not shown:
        return None
    order = [name for name in below.node.schema.names if name in shown]
    chosen = logical.ProjectNode(below.node, tuple((name, Column(name)) for name in order), where=node.where)
    if any(not expr.columns() <= shown for expr in below.columns.values()):
        return None
    return Form(replace(node, input=chosen), below.columns)


def _told(expr: Expr) -> str | None:
    """The former column that a present one tells apart as well: it is that column, or the same values in another
    type. (A cast of the program stands around such an expression.)"""
    inner = expr.part if isinstance(expr, Nullability) else expr
    return (inner.part if isinstance(inner, Cast) else inner).column


def _union(node: logical.UnionNode, inputs: list[Form]) -> Form | None:
    first = inputs[0]
    for other in inputs[1:]:
        if [expr.key() for expr in other.columns.values()] != [expr.key() for expr in first.columns.values()]:
            return None
    return Form(replace(node, parts=tuple(form.node for form in inputs)), first.columns)


def _aggregate(node: logical.AggregateNode, inputs: list[Form]) -> Form | None:
    (below,) = inputs
    keys = below.plain(node.keys)
    if keys is None:
        return None
    aggs = tuple((name, _aggregation(agg, below.columns)) for name, agg in node.aggs)
    made = replace(node, input=below.node, keys=keys, aggs=aggs)
    columns: dict[str, Expr] = {name: Column(key) for name, key in zip(node.keys, keys, strict=True)}
    return Form(made, columns | {name: Column(name) for name, _ in aggs})


def _aggregation(agg: Aggregation, columns: Mapping[str, Expr]) -> Aggregation:
    expr = None if agg.expr is None else substituted(agg.expr, columns)
    return replace(agg, expr=expr, more=tuple(substituted(one, columns) for one in agg.more))


def _join(node: logical.JoinNode, inputs: list[Form]) -> Form | None:
    left, right = inputs
    left_on, right_on = left.plain(node.left_on), right.plain(node.right_on)
    if left_on is None or right_on is None or (left_on == right_on) != node.merged:
        return None
    made = replace(node, left=left.node, right=right.node, left_on=left_on, right_on=right_on)
    names = node.schema.names
    return Form(made, {one: (left if one in node.left.schema else right).columns[one] for one in names})


_RULES: dict[type[Node], Callable[[Any, list[Form]], Form | None]] = {
    logical.FilterNode: _filter,
    logical.ProjectNode: _project,
    logical.NegateNode: _passing,
    linear_nodes.LaterNode: _passing,
    logical.DistinctNode: _distinct,
    logical.UnionNode: _union,
    logical.AggregateNode: _aggregate,
    logical.JoinNode: _join,
}
"""How the nodes that read rows column by column look in former columns. Other nodes have a form if their inputs have
the same columns as before."""
