"""Methods that pair the rows of two collections by key, or keep rows by what the other collection has."""

from collections.abc import Sequence
from typing import Self

from vernier.operators.errors import NameClash, ProgramError, WrongType, listed, meant
from vernier.operators.language.collection.grouping import Grouping
from vernier.operators.language.collection.matching import HOW, Sides, once, same_rows
from vernier.operators.language.collection.names import JOIN_SPELLINGS
from vernier.operators.language.collection.reductions import Copies
from vernier.operators.language.collection.rows import Rows, check_collection, column_name, conform
from vernier.operators.language.expr.expression import Column, ExprLike, as_expr
from vernier.operators.language.plan.logical import Negate, Node, Union
from vernier.operators.language.types.schema import RowType


class Joins(Grouping):
    """The joins, and what SQL calls set operations."""

    def join(
        self,
        other: Rows,
        on: str | Sequence[str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: str = "inner",
        where: ExprLike = None,
        suffix: str | None = None,
    ) -> Self:
        """Pairs of rows whose keys are equal; multiplicities multiply, null keys match nothing.

        With `on` the key columns come first and once, then the other columns of the left and of the right side; with
        left_on and right_on all columns of the left side, then all of the right. `where` is a further condition on
        the pair; where it is not true the two do not match.
        how: "inner"; "left", "right" and "full" add the rows of that side (of both) that no present row of the other
        one matches, as often as they are there, with nulls for the other side; "semi" keeps the rows of the left side
        that a present row of the right one matches, as often as they are there, "anti" those that none does.
        suffix: added to the names of the right side's columns that the left side has, too (`where` sees them so).
        Raises NameClash when both sides have another column of one name, WrongType when key types differ.
        Cost: a change costs what its pairs do. All but "inner" also count the present rows of a key on the side whose
        presence matters; inside a loop they look through those of a changed key, unless they are distinct rows.
        """
        check_collection(other, "join")
        if how not in HOW:
            hint = f"; did you mean {JOIN_SPELLINGS[how]!r}?" if how in JOIN_SPELLINGS else meant(str(how), HOW)
            raise WrongType(problem=f"join knows no how={how!r}{hint} (it has {listed(HOW)})")
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

    def except_all(self, other: Rows) -> Self:
        """The rows with the other collection's copies taken away, down to none: max(0, a − b) copies of each.

        SQL's EXCEPT ALL. Columns go by name and must have equal types; nulls are equal.
        """
        left, right = _alike(self, other, "except_all")
        return self._of(Copies(Union((left, Negate(right)))))

    def intersect(self, other: Rows) -> Self:
        """The rows that are present in both collections, once: SQL's INTERSECT.

        Columns go by name and must have equal types; nulls are equal.
        """
        left, right = _alike(self, other, "intersect")
        return self._of(same_rows(once(left), once(right)))


def join_keys(
    on: object, left_on: object, right_on: object, what: str, needed: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the key columns on each side, from the arguments of the method `what`.

    Raises ProgramError unless there is either `on` or both others, as many on each side; without any of them when
    keys are not `needed`, they are empty.
    """
    if not needed and on is None and left_on is None and right_on is None:
        return (), ()
    if (on is None) == (left_on is None and right_on is None):
        raise ProgramError(problem=f'{what} needs its keys: either on="column", or left_on="a", right_on="b"')
    left = _key_names(on if on is not None else left_on, what)
    right = _key_names(on if on is not None else right_on, what)
    if len(left) != len(right):
        raise ProgramError(
            problem=f"{what} pairs left_on ({listed(left)}) with right_on ({listed(right)}): as many on each side"
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
