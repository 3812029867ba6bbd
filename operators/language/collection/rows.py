"""The base of Collection: a node of the logical plan, and errors that name what the user probably meant.

The methods are functions of the modules beside this one, and collection.py makes them the methods of one class. They
take and return `C`, the class of the collection on which they are called.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from vernier.operators.errors import UnknownColumn, UnknownName, WrongType
from vernier.operators.language.collection.names import no_method
from vernier.operators.language.expr.expression import Column, Expr, Nullability
from vernier.operators.language.plan.logical import ProjectNode
from vernier.operators.language.plan.node import Node
from vernier.operators.language.types.schema import RowType, check_name


class Rows:
    """A multiset of rows that changes over time: the base of Collection, without the methods that programs call."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def schema(self) -> RowType:
        """The columns with their types."""
        return self.node.schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self.node.schema.names

    def _of(self, node: Node) -> Self:
        """A collection that has another node."""
        return type(self)(node)

    def _project(self, pairs: list[tuple[str, Expr]]) -> Self:
        for name, _ in pairs:
            check_name(name, "a column")
        return self._of(ProjectNode(self.node, tuple(pairs)))

    def _check_columns(self, names: Iterable[str], what: str) -> None:
        for name in names:
            self.schema.field(name, what)

    def _check_texts(self, values: Mapping[str, object], what: str) -> None:
        """Raise UnknownColumn for a value given as text that names no column: often the user meant the text itself."""
        for name, value in values.items():
            if isinstance(value, str) and value not in self.columns:
                unknown = UnknownColumn.of(value, self.columns)
                raise UnknownColumn(
                    problem=f"{unknown.problem}; for the text itself write {what}({name}=lit({value!r}))"
                )

    @classmethod
    def _methods(cls) -> tuple[str, ...]:
        """The names of the public methods, in the order of collection.py; those of a subclass at the end."""
        members = (member for kind in reversed(cls.__mro__) for member in vars(kind).items())
        return tuple(name for name, value in members if callable(value) and name[0] != "_")

    if not TYPE_CHECKING:  # type checkers report methods that do not exist themselves

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_method(name, self._methods(), self.columns)

    def __getitem__(self, name: object) -> NoReturn:
        raise UnknownName(problem=f"collections have no [...]; for the column write col({name!r})")

    def __iter__(self) -> NoReturn:
        raise WrongType(
            problem="a collection changes over time and cannot be iterated over; make it a view and read that"
        )

    def __repr__(self) -> str:
        return f"Collection{self.schema}"


C = TypeVar("C", bound=Rows)
"""The class of the collection on which a method is called, which is the class of its result."""


def conform(node: Node, target: RowType, what: str) -> Node:
    """The collection with exactly the columns of `target`: reordered by name, non-null columns made nullable.

    Raises WrongType, naming `what`, when columns are missing, surplus, of another type, or nullable where those of
    `target` are not.
    """
    found = node.schema
    if found == target:
        return node
    if set(found.names) != set(target.names):
        raise WrongType(problem=f"{what} needs the columns {target}, but one side has {found}")
    exprs: list[tuple[str, Expr]] = []
    for want in target.fields:
        have = found.field(want.name)
        if have.type != want.type or (have.nullable and not want.nullable):
            raise WrongType(problem=f"{what} needs the columns {target}, but one side has {found}; cast {want.name!r}")
        same = have.nullable == want.nullable
        exprs.append((want.name, Column(want.name) if same else Nullability(Column(want.name), True)))
    return ProjectNode(node, tuple(exprs))


def column_name(name: object, what: str) -> str:
    """The name of a column given as text or as `col(...)`. Raises WrongType, naming the method `what`."""
    if isinstance(name, Column):
        return name.name
    if not isinstance(name, str):
        raise WrongType(
            problem=f"{what} takes names of columns, not {name!r}; compute the value with with_columns first"
        )
    return name


def check_collection(value: object, what: str) -> None:
    """Raise WrongType, naming the method `what`, if the value is not a collection."""
    if not isinstance(value, Rows):
        raise WrongType(problem=f"{what} takes collections, not {value!r}")
