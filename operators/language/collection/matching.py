"""What the kinds of join are made of.

A row of the left side is *matched* when a row of the right side that is present has its key and, with it, satisfies
the condition. Everything but the pairs themselves is built from matched rows: semi joins are those, anti joins the
left side minus those, outer joins the pairs and, padded with nulls, the rows that nothing matches.
"""

from typing import NamedTuple

from vernier.operators.language.collection.multiplicities import is_positive, is_set, is_unique
from vernier.operators.language.collection.rows import conform
from vernier.operators.language.expr.expression import Cast, Column, Expr, Literal, Nullability
from vernier.operators.language.plan.logical import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Negate,
    Node,
    Present,
    Project,
    Union,
)
from vernier.operators.language.types.schema import RowType

HOW = ("inner", "left", "right", "full", "semi", "anti")


class Sides(NamedTuple):
    """Two collections with the columns that must be equal, in order, and a further condition on a pair.

    Where the names of the keys are equal, they come once in a pair. Null keys equal nothing.
    """

    left: Node
    right: Node
    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    where: Expr | None = None

    def turned(self) -> "Sides":
        """The sides the other way round."""
        return Sides(self.right, self.left, self.right_on, self.left_on, self.where)

    def pairs(self, right: Node | None = None) -> Node:
        """The pairs that match, multiplicities multiplied; `right` stands for the right side without null keys."""
        right = without_nulls(self.right, self.right_on) if right is None else right
        node: Node = Join(without_nulls(self.left, self.left_on), right, self.left_on, self.right_on)
        return node if self.where is None else Filter(node, self.where)

    def matched(self) -> Node:
        """The rows of the left side that a present row of the right side matches, as often as they are there."""
        left, right = without_nulls(self.left, self.left_on), without_nulls(self.right, self.right_on)
        if self.where is None:
            keys = [f"right {name}" for name in self.right_on]
            present = right if is_unique(right, self.right_on) else Present(right, self.right_on)
            present = Project(present, tuple((key, Column(name)) for key, name in zip(keys, self.right_on)))
            node: Node = Join(left, present, self.left_on, tuple(keys))
        else:
            node = occurring(left, self.pairs(right if is_positive(right) else Distinct(right)))
        return conform(pick(node, left.schema.names), self.left.schema, "the join")

    def unmatched(self) -> Node:
        """The rows of the left side that no present row of the right side matches, as often as they are there."""
        return Union((self.left, Negate(self.matched())))

    def joined(self, how: str) -> Node:
        """The join of one of the kinds HOW."""
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
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    def _nullable(self, name: str, keep_left: bool, keep_right: bool) -> bool:
        """Whether a column of the pairs may be null, when also rows of these sides without a partner are kept."""
        nullable = False
        for row, kept in ((self.left.schema, keep_left), (self.right.schema, keep_right)):
            if name not in row:
                nullable |= kept
            elif kept or name not in (*self.left_on, *self.right_on):
                nullable |= row.field(name).nullable
        return nullable


def once(node: Node) -> Node:
    """Each present row once."""
    return node if is_set(node) else Distinct(node)


def occurring(left: Node, pairs: Node) -> Node:
    """The rows of `left` that are part of a pair, as often as they are there.

    The pairs have the columns of `left` among theirs, and its multiplicities times positive ones.
    """
    found = pick(pairs, left.schema.names)
    return once(found) if is_set(left) else same_rows(left, Aggregate(found, left.schema.names, ()))


def same_rows(left: Node, right: Node) -> Node:
    """Pairs of equal rows, as one row each, multiplicities multiplied; nulls are equal. Both sides have one schema."""
    names = left.schema.names
    return Join(left, right, names, names, null_safe=True)


def without_nulls(node: Node, keys: tuple[str, ...]) -> Node:
    """The rows whose key columns are not null, and those columns without their null words: null equals nothing."""
    nullable = [name for name in keys if node.schema.field(name).nullable]
    if nullable and isinstance(node, Project):
        # Columns under other names are the same collection, and share what keeps it.
        columns = {name: expr.column for name, expr in node.exprs}
        if None not in columns.values() and len(set(columns.values())) == len(columns):
            return Project(without_nulls(node.input, tuple(str(columns[name]) for name in keys)), node.exprs)
    for name in nullable:
        node = Filter(node, Column(name).is_not_null())
    if not nullable:
        return node
    exprs = [
        (name, Nullability(Column(name), False) if name in nullable else Column(name)) for name in node.schema.names
    ]
    return Project(node, tuple(exprs))


def pick(node: Node, names: tuple[str, ...]) -> Node:
    """Columns by name, in this order."""
    return node if node.schema.names == names else Project(node, tuple((name, Column(name)) for name in names))


def padded(node: Node, target: RowType) -> Node:
    """The rows with nulls for the columns that they do not have."""
    exprs: list[tuple[str, Expr]] = []
    for field in target.fields:
        if field.name not in node.schema:
            exprs.append((field.name, Nullability(Cast(Literal(None, None), field.type), True)))
        elif field.nullable and not node.schema.field(field.name).nullable:
            exprs.append((field.name, Nullability(Column(field.name), True)))
        else:
            exprs.append((field.name, Column(field.name)))
    return Project(node, tuple(exprs))
