"""Methods that pair the rows of two collections by key."""

from collections.abc import Sequence
from typing import Self

from operators.errors import NameClash, NotInThisRelease, ProgramError, WrongType, listed, meant
from operators.language.expr import Column, ExprLike, Nullability, as_expr
from operators.language.grouping import Grouping
from operators.language.logical import Filter, Join, Node, Project
from operators.language.names import JOINS_LATER
from operators.language.rows import Rows, check_collection, column_name


class Joins(Grouping):
    """The joins."""

    def join(
        self,
        other: Rows,
        on: str | Sequence[str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: str = "inner",
        where: ExprLike = None,
    ) -> Self:
        """Pairs of rows whose keys are equal; multiplicities multiply, null keys match nothing.

        With `on` the key columns come first and once, then the other columns of the left and of the right side; with
        left_on and right_on all columns of the left side, then all of the right. `where` is a further condition on
        the pair. Raises NameClash when both sides have another column of one name, WrongType when key types differ.
        """
        check_collection(other, "join")
        if how != "inner":
            if how in JOINS_LATER:
                raise NotInThisRelease(problem=f"how={how!r} is not in this release; it has how='inner' alone")
            raise WrongType(
                problem=f"join knows no how={how!r}{meant(str(how), ('inner', *JOINS_LATER))}; it has 'inner'"
            )
        left_keys, right_keys = _join_keys(on, left_on, right_on)
        self._check_columns(left_keys, "the left side of the join")
        other._check_columns(right_keys, "the right side of the join")
        if on is None and left_keys == right_keys:
            raise NameClash(
                problem=f"both keys are named {listed(left_keys)}; write on={list(left_keys)} and they come once"
            )
        node: Node = Join(
            _without_nulls(self.node, left_keys), _without_nulls(other.node, right_keys), left_keys, right_keys
        )
        if where is not None:
            node = Filter(node, as_expr(where))
        return self._of(node)


def _join_keys(on: object, left_on: object, right_on: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if (on is None) == (left_on is None and right_on is None):
        raise ProgramError(problem='join needs its keys: either on="column", or left_on="a", right_on="b"')
    left = _key_names(on if on is not None else left_on, "join")
    right = _key_names(on if on is not None else right_on, "join")
    if len(left) != len(right):
        raise ProgramError(
            problem=f"join pairs left_on ({listed(left)}) with right_on ({listed(right)}): as many on each side"
        )
    return left, right


def _key_names(keys: object, what: str) -> tuple[str, ...]:
    names = tuple(keys) if isinstance(keys, (tuple, list)) else () if keys is None else (keys,)
    texts = tuple(column_name(name, what) for name in names)
    if not texts or len(set(texts)) < len(texts):
        raise ProgramError(problem=f"{what} needs at least one key, each once, but has ({listed(texts)})")
    return texts


def _without_nulls(node: Node, keys: Sequence[str]) -> Node:
    """The rows whose key columns are not null, and those columns without their null words: null equals nothing."""
    nullable = [name for name in keys if node.schema.field(name).nullable]
    for name in nullable:
        node = Filter(node, Column(name).is_not_null())
    if not nullable:
        return node
    exprs = [
        (name, Nullability(Column(name), False) if name in nullable else Column(name)) for name in node.schema.names
    ]
    return Project(node, tuple(exprs))
