"""Joins, which pair the rows of two collections by key, and what SQL calls set operations."""

from collections.abc import Sequence

from vernier.operators.errors import NameClash, ProgramError, WrongType, listed, meant
from vernier.operators.language.collection.matching import HOW, Sides, once, same_rows
from vernier.operators.language.collection.names import JOIN_SPELLINGS
from vernier.operators.language.collection.reductions import CopiesNode
from vernier.operators.language.collection.rows import C, Rows, check_collection, column_name, conform
from vernier.operators.language.expr.expression import Column, ExprLike, as_expr
from vernier.operators.language.plan.logical import NegateNode, UnionNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.schema import RowType


def join(
    self: C,
    other: Rows,
    on: str | Sequence[str] | None = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    how: str = "inner",
    where: ExprLike = None,
    suffix: str | None = None,
) -> C:
    """Pairs of rows with equal keys. Multiplicities multiply; null keys match nothing.

    With `on`, the key columns come first and appear once, then the other columns of the left side and of the right
    side. With left_on and right_on, all columns of the left side come first, then all of the right side. `where` is
    a further condition on the pair; rows match only where it is true.

    how: "inner"; "left", "right" and "full" also keep the rows of that side (of both) that match no present row of
    the other side, with their multiplicity and with nulls for the other side; "semi" keeps the rows of the left
    side that match a present row of the right side, with their multiplicity; "anti" keeps those that match none.

    suffix: appended to the names of right-side columns that also exist on the left (`where` sees the new names).

    Raises NameClash when both sides have another column with the same name, WrongType when key types differ.

    Cost: a change costs time proportional to its pairs. All kinds but "inner" also count the present rows of a key
    on the side whose presence matters. Inside a loop they scan the rows of each changed key of that side, unless
    its rows are known to be distinct.
    """
    check_collection(other, "join")
    if how not in HOW:
        hint = f"; did you mean {JOIN_SPELLINGS[how]!r}?" if how in JOIN_SPELLINGS else meant(str(how), HOW)
        raise WrongType(problem=f"join has no how={how!r}{hint} (it has {listed(HOW)})")
    left_keys, right_keys = join_keys(on, left_on, right_on, "join")
    self._check_columns(left_keys, "the left side of the join")
    other._check_columns(right_keys, "the right side of the join")
    if suffix is not None:
        shared = () if on is None else right_keys
        names = {name: name + suffix for name in other.columns if name in self.columns and name not in shared}
        other = other._project([(names.get(name, name), Column(name)) for name in other.columns])
        right_keys = tuple(names.get(name, name) for name in right_keys)
    if on is None and left_keys == right_keys and (how not in ("semi", "anti") or where is not None):
        raise NameClash(
            problem=f"both keys are named {listed(left_keys)}; write on={list(left_keys)} and they come once"
        )
    condition = None if where is None else as_expr(where)
    return self._of(Sides(self.node, other.node, left_keys, right_keys, condition).joined(how))


def except_all(self: C, other: Rows) -> C:
    """The rows minus the copies that the other collection has, never below zero: max(0, a − b) copies of each row.

    SQL's EXCEPT ALL. Columns are matched by name and must have equal types; nulls are equal.
    """
    left, right = _alike(self, other, "except_all")
    return self._of(CopiesNode(UnionNode((left, NegateNode(right)))))


def intersect(self: C, other: Rows) -> C:
    """The rows that are present in both collections, once each: SQL's INTERSECT.

    Columns are matched by name and must have equal types; nulls are equal.
    """
    left, right = _alike(self, other, "intersect")
    return self._of(same_rows(once(left), once(right)))


def join_keys(
    on: object, left_on: object, right_on: object, what: str, needed: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the key columns on each side, from the arguments of the method `what`.

    Raises ProgramError unless the caller gives either `on`, or left_on and right_on with equally many columns. When
    keys are not `needed` and none of the three is given, both results are empty.
    """
    if not needed and on is None and left_on is None and right_on is None:
        return (), ()
    if (on is None) == (left_on is None and right_on is None):
        raise ProgramError(problem=f'{what} needs its keys: either on="column", or left_on="a", right_on="b"')
    left = _key_names(on if on is not None else left_on, what)
    right = _key_names(on if on is not None else right_on, what)
    if len(left) != len(right):
        raise ProgramError(
            problem=f"{what} pairs left_on ({listed(left)}) with right_on ({listed(right)}); both need the same number "
            "of keys"
        )
    return left, right


def _key_names(keys: object, what: str) -> tuple[str, ...]:
    names = tuple(keys) if isinstance(keys, (tuple, list)) else () if keys is None else (keys,)
    texts = tuple(column_name(name, what) for name in names)
    if not texts or len(set(texts)) < len(texts):
        raise ProgramError(problem=f"{what} needs at least one key, each once, but has ({listed(texts)})")
    return texts


def _alike(left: Rows, right: Rows, what: str) -> tuple[Node, Node]:
    """Both collections with the columns of the left one, nullable where either side is. Raises WrongType."""
    check_collection(right, what)
    target = RowType(
        (f.name, f.type, f.nullable or (f.name in right.schema and right.schema.field(f.name).nullable))
        for f in left.schema.fields
    )
    return conform(left.node, target, what), conform(right.node, target, what)
