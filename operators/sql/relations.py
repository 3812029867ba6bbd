"""Relations: the collection of a node of Catalyst's plan, and the columns in which its attributes are.

Catalyst refers to columns by numbers; several numbers may mean one column. Columns keep the names that the query gives
them, as long as these differ, and plans that mean the same become equal collections whatever the numbers. So views
share arrangements with one another and with programs in Python.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vernier.operators.language.expr.expression import Column, Expr, Literal
from vernier.operators.language.plan.constants import ConstantNode
from vernier.operators.language.plan.logical import FilterNode, ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import EVERY_ROW, RowType
from vernier.operators.sql.expressions import Expressions
from vernier.operators.sql.trees import Tree


@dataclass(frozen=True)
class Relation:
    """A collection. ids: the column of each attribute, by the attribute's number, in the order of the output.
    known: the columns that hold the values of expressions already, by their forms."""

    node: Node
    ids: Mapping[int, str]
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def row(self) -> RowType:
        """The columns."""
        return self.node.schema

    @property
    def scope(self) -> Expressions:
        """The translator of expressions over this relation."""
        return Expressions(self.row, self.ids, self.known)

    def of(self, tree: Tree) -> Expr:
        """An expression over this relation."""
        return self.scope.of(tree)

    def columns(self) -> list[str]:
        """The columns of the output, in order. One that several attributes share comes several times."""
        return list(self.ids.values())

    def filter(self, *conditions: Expr) -> Relation:
        """The rows for which all conditions are true."""
        node = self.node
        for condition in conditions:
            node = FilterNode(node, condition)
        return replace(self, node=node)

    def project(self, outputs: Iterable[tuple[int, str, Expr]]) -> Relation:
        """Other columns: (number, name, value) for each. Plain columns keep their names, equal values share one."""
        given = list(outputs)
        pairs: list[tuple[str, Expr]] = []
        found: dict[object, str] = {}
        taken = {expr.column for _, _, expr in given if expr.column is not None}
        ids: dict[int, str] = {}
        for number, name, expr in given:
            key = expr.key()
            if key not in found:
                found[key] = expr.column if expr.column is not None else fresh(name, taken)
                taken.add(found[key])
                pairs.append((found[key], expr))
            ids[number] = found[key]
        if not pairs:
            pairs = [(EVERY_ROW, Literal(0, Int64()))]
        return Relation(picked(self.node, pairs), ids)

    def with_columns(self, new: Sequence[tuple[str, Expr]]) -> tuple[Relation, list[str]]:
        """All columns and these values, and the names of the columns that hold the values."""
        taken, names, added = set(self.row.names), [], []
        for name, expr in new:
            if expr.column is not None:
                names.append(expr.column)
                continue
            names.append(fresh(name, taken))
            taken.add(names[-1])
            added.append((names[-1], expr))
        if not added:
            return self, names
        kept: list[tuple[str, Expr]] = [(name, Column(name)) for name in self.row.names]
        return replace(self, node=ProjectNode(self.node, (*kept, *added))), names

    def apart(self, other: Relation) -> Relation:
        """The same rows, with names that differ from those of another relation."""
        taken = {*other.row.names, *self.row.names}
        names = {}
        for name in self.row.names:
            names[name] = name
            if name in other.row.names:
                names[name] = fresh(name, taken)
                taken.add(names[name])
        if all(name == new for name, new in names.items()):
            return self
        node = ProjectNode(self.node, tuple((new, Column(name)) for name, new in names.items()))
        return Relation(node, {number: names[name] for number, name in self.ids.items()})


def usable(name: str) -> str:
    """The name, or another one where operators refuse it: Spark calls parts of an expression _we0 and the like."""
    return name if name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") else "column"


def fresh(name: str, taken: Iterable[object]) -> str:
    """The name, or name_2, name_3 … if that is taken."""
    found, count, used = name, 1, set(taken)
    while found in used:
        count += 1
        found = f"{name}_{count}"
    return found


def picked(node: Node, pairs: Sequence[tuple[str, Expr]]) -> Node:
    """A projection, or the node itself if it has just these columns. Columns picked from a projection become one with
    it, unless an expression would be computed twice: Catalyst's plans have projections that only rename."""
    if isinstance(node, ProjectNode) and all(expr.column is not None for _, expr in pairs):
        inner, used = dict(node.exprs), [str(expr.column) for _, expr in pairs]
        if all(inner[name].column is not None or used.count(name) == 1 for name in used):
            pairs = [(name, inner[column]) for (name, _), column in zip(pairs, used, strict=True)]
            node = node.input
    if tuple(name for name, _ in pairs) == node.schema.names and all(expr.column == name for name, expr in pairs):
        return node
    return ProjectNode(node, tuple(pairs))


def one_row() -> ConstantNode:
    """A relation of one row, which is always there."""
    return ConstantNode(RowType([(EVERY_ROW, Int64(), False)]), ((0,),))
