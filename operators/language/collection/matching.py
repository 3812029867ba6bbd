"""The parts from which the kinds of join are built.

A left row is *matched* when a present right row has the same key and the pair satisfies the condition. All kinds but
the inner join are built from matched rows: a semi join returns them, an anti join returns the left side minus them, and
an outer join returns the pairs plus the unmatched rows, padded with nulls.
"""

from typing import NamedTuple

from vernier.operators.language.collection.rows import conform
from vernier.operators.language.expr.expression import Cast, Column, Expr, Literal, Nullability
from vernier.operators.language.plan.logical import (
    AggregateNode,
    DistinctNode,
    FilterNode,
    JoinNode,
    NegateNode,
    PresentNode,
    ProjectNode,
    UnionNode,
)
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.schema import RowType

HOW = ("inner", "left", "right", "full", "semi", "anti")


class Sides(NamedTuple):
    """Two collections with the columns that must be equal, in order, and a further condition on a pair.

    Key columns with the same name on both sides appear once in a pair. Null keys match nothing.
    """

    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    where: Expr | None = None

    def turned(self) -> "Sides":
        """The sides exchanged."""
        return Sides(self.right, self.left, self.right_on, self.left_on, self.where)

    def pairs(self, right: Node | None = None) -> Node:
        """The pairs that match, with multiplicities multiplied; `right` replaces the right side without its null
        keys."""
        right = without_nulls(self.right, self.right_on) if right is None else right
        node: Node = JoinNode(without_nulls(self.left, self.left_on), right, self.left_on, self.right_on)
        return node if self.where is None else FilterNode(node, self.where)

    def matched(self) -> Node:
        """The left rows that match a present right row, with their multiplicity."""
        left, right = without_nulls(self.left, self.left_on), without_nulls(self.right, self.right_on)
        if self.where is None:
            keys = [f"right {name}" for name in self.right_on]
            present = right if right.unique_by(self.right_on) else PresentNode(right, self.right_on)
            present = ProjectNode(present, tuple((key, Column(name)) for key, name in zip(keys, self.right_on)))
            node: Node = JoinNode(left, present, self.left_on, tuple(keys))
        else:
            node = occurring(left, self.pairs(right if right.is_positive else DistinctNode(right)))
        return conform(pick(node, left.schema.names), self.left.schema, "the join")

    def unmatched(self) -> Node:
        """The left rows that match no present right row, with their multiplicity."""
        return UnionNode((self.left, NegateNode(self.matched())))

    def joined(self, how: str) -> Node:
        """The join of one of the kinds in HOW."""
        if how == "semi":
            return self.matched()
        if how == "anti":
            return self.unmatched()
        pairs = self.pairs()
        keep_left, keep_right = how in ("left", "full"), how in ("right", "full")
        target = RowType((f.name, f.type, self._nullable(f.name, keep_left, keep_right)) for f in pairs.schema.fields)
        parts = [conform(pairs, target, "the join")]
        if keep_left:
            parts.append(padded(self.unmatched(), target))
        if keep_right:
            parts.append(padded(self.turned().unmatched(), target))
        return parts[0] if len(parts) == 1 else UnionNode(tuple(parts))

    def _nullable(self, name: str, keep_left: bool, keep_right: bool) -> bool:
        """Whether a column of the pairs may be null when unmatched rows of these sides are kept as well."""
        nullable = False
        for row, kept in ((self.left.schema, keep_left), (self.right.schema, keep_right)):
            if name not in row:
                nullable |= kept
            elif kept or name not in (*self.left_on, *self.right_on):
                nullable |= row.field(name).nullable
        return nullable


def once(node: Node) -> Node:
    """Each present row once."""
    return node if node.is_set else DistinctNode(node)


def occurring(left: Node, pairs: Node) -> Node:
    """The rows of `left` that are part of a pair, with their multiplicity.

    The columns of the pairs include those of `left`, and their multiplicities are those of `left` times positive
    numbers.
    """
    found = pick(pairs, left.schema.names)
    return once(found) if left.is_set else same_rows(left, AggregateNode(found, left.schema.names, ()))


def same_rows(left: Node, right: Node) -> Node:
    """Pairs of equal rows, as one row each, with multiplicities multiplied; nulls are equal. Both sides have the same
    schema."""
    names = left.schema.names
    return JoinNode(left, right, names, names, null_safe=True)


def without_nulls(node: Node, keys: tuple[str, ...]) -> Node:
    """The rows whose key columns are not null; these columns lose their null words, because null equals nothing."""
    nullable = [name for name in keys if node.schema.field(name).nullable]
    if nullable and isinstance(node, ProjectNode):
        # Columns under other names are the same collection, so they share its arrangement.
        columns = {name: expr.column for name, expr in node.exprs}
        if None not in columns.values() and len(set(columns.values())) == len(columns):
            return ProjectNode(without_nulls(node.input, tuple(str(columns[name]) for name in keys)), node.exprs)
    for name in nullable:
        node = FilterNode(node, Column(name).is_not_null())
    if not nullable:
        return node
    exprs = [
        (name, Nullability(Column(name), False) if name in nullable else Column(name)) for name in node.schema.names
    ]
    return ProjectNode(node, tuple(exprs))


def pick(node: Node, names: tuple[str, ...]) -> Node:
    """Columns by name, in this order."""
    return node if node.schema.names == names else ProjectNode(node, tuple((name, Column(name)) for name in names))


def padded(node: Node, target: RowType) -> Node:
    """The rows, with nulls for the columns of `target` that they lack."""
    exprs: list[tuple[str, Expr]] = []
    for field in target.fields:
        if field.name not in node.schema:
            exprs.append((field.name, Nullability(Cast(Literal(None, None), field.type), True)))
        elif field.nullable and not node.schema.field(field.name).nullable:
            exprs.append((field.name, Nullability(Column(field.name), True)))
        else:
            exprs.append((field.name, Column(field.name)))
    return ProjectNode(node, tuple(exprs))
