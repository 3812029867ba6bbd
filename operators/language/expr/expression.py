"""Expressions over columns, as a program writes them: `col("a") + 1`, `when(col("d") > 3, lit(0)).otherwise(col("d"))`.

Expressions are immutable trees without types. evaluate.py gives them types for a row type and computes them, with the
meaning of Spark SQL (see there). `==` builds an expression, so two trees are compared by `key()`, a hashable tuple that
is equal for equal structure and the same in every process.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from vernier.operators.errors import ProgramError, WrongType, listed
from vernier.operators.language.expr.constants import Stored, constant, shown_moment
from vernier.operators.language.expr.expression_names import no_expression_method
from vernier.operators.language.expr.methods import Methods
from vernier.operators.language.expr.order import Order
from vernier.operators.language.expr.signs import Signs
from vernier.operators.language.types.scalars import Type, as_type

Scalar = (
    int
    | float
    | bool
    | str
    | bytes
    | decimal.Decimal
    | datetime.date
    | datetime.datetime
    | list[Any]
    | dict[str, Any]
    | None
)
Key = tuple[Any, ...]

_LEVEL = {
    "|": 1,
    "&": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "//": 5,
    "%": 5,
}
_ATOM, _PREFIX = 7, 6
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


class Expr(Methods, Signs):
    """A value computed from the columns of one row. Build it with `col`, `lit`, `when` and Python's operators.

    `&`, `|` and `~` are three-valued as in SQL (`and`, `or`, `not` cannot be overloaded and are refused). `//` and `%`
    truncate towards zero like Spark's `div` and `%` (Python's would round down). `/` is Float64. Division by zero is
    null.
    """

    @property
    def column(self) -> str | None:
        """The column that this expression merely repeats, else None; the planner turns it into a word index."""
        return None

    @property
    def output_name(self) -> str | None:
        """The name that `select` gives the value by default: its alias, or the column's name."""
        return self.column

    def children(self) -> tuple[Expr, ...]:
        """The direct parts of this expression."""
        return ()

    def columns(self) -> frozenset[str]:
        """The names of all columns that the value depends on."""
        return frozenset(name for part in self.walk() if isinstance(part, Column) for name in [part.name])

    def walk(self) -> Iterator[Expr]:
        """This expression and all its parts."""
        yield self
        for child in self.children():
            yield from child.walk()

    def key(self) -> Key:
        """A hashable form, equal for equal structure; without locations, the same in every process."""
        raise NotImplementedError

    def text(self, level: int = 0) -> str:
        """The expression as a program writes it, in parentheses when its operator binds more weakly than `level`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    def alias(self, name: str) -> Expr:
        """The same value under a name, for `select` and `with_columns`."""
        return Alias(self, name)

    def cast(self, kind: Any) -> Expr:
        """The value as another type, such as vn.Float64, or `vn.Int64 | None` for a column that may hold nulls.

        Numbers that do not fit raise ArithmeticOverflow or DecimalOverflow. Float64 and Decimal to Int64 truncate
        towards zero; casts to a Decimal round half away from zero. Text that is no value of the type becomes null, so a
        cast from String may give null (as in Spark without ANSI mode; all casts: docs/expressions.md). Date to
        TimestampNs is midnight UTC. TimestampNs and Int64 convert as nanoseconds since 1970 (in Spark: seconds).
        """
        target, nullable = as_type(kind, "the target of cast")
        return Nullability(Cast(self, target), True) if nullable else Cast(self, target)

    def asc(self) -> Order:
        """This column ascending, nulls first: the default direction in an order."""
        return Order(self)

    def desc(self) -> Order:
        """This column descending, nulls last, for `by=` of top_k, rank and the like."""
        return Order(self, descending=True)

    def is_null(self) -> Expr:
        """True where the value is null, else false; never null."""
        return IsNull(self)

    def is_not_null(self) -> Expr:
        """True where the value is not null, else false; never null."""
        return Unary("~", IsNull(self))

    def between(self, low: ExprLike, high: ExprLike) -> Expr:
        """low <= value <= high, both ends included."""
        return (self >= low) & (self <= high)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise WrongType(
            problem=f"{self} has a value for each row, so Python cannot take it for true or false; "
            "put comparisons in parentheses, (a > 1) & (b < 2), and write & | ~ for and, or, not, `if` and a < b < c"
        )

    def __iter__(self) -> Iterator[Any]:
        raise WrongType(problem=f"{self} is one value for each row and cannot be iterated over")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise no_expression_method(name, [method for method in dir(Expr) if not method.startswith("_")])

    def _binary(self, op: str, other: object, swapped: bool = False) -> Expr:
        if other is None and op in _COMPARISONS:
            instead = "is_null" if op == "==" else "is_not_null"
            raise WrongType(problem=f"a comparison with None is never true; write {self.text(_ATOM)}.{instead}()")
        one, two = (as_expr(other), self) if swapped else (self, as_expr(other))
        return Binary(op, one, two)

    def _unary(self, op: str) -> Expr:
        return Unary(op, self)

    def __rpow__(self, other: ExprLike) -> Expr:
        return Call("pow", (as_expr(other), self))

    def _call(self, name: str, *arguments: object) -> Expr:
        return Call(name, (self, *map(as_expr, arguments)))


ExprLike: TypeAlias = Expr | Scalar


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expr):
    """The value of a column."""

    name: str

    @property
    def column(self) -> str | None:
        return self.name

    def key(self) -> Key:
        return ("col", self.name)

    def text(self, level: int = 0) -> str:
        return f'col("{self.name}")'


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expr):
    """A constant. `value`: int, float or bool in the form that the type's numpy array holds; str, bytes and
    decimal.Decimal for their types; None is null, of any type."""

    value: Stored
    type: Type | None

    def key(self) -> Key:
        exact = self.value.hex() if isinstance(self.value, float) else self.value
        return ("lit", "null" if self.type is None else str(self.type), exact)

    def text(self, level: int = 0) -> str:
        moment = shown_moment(self.value, self.type)
        if moment is not None:
            return f"lit({moment})"
        return f"lit({self.value!r})" if self.type is None or level in (0, _ATOM) else repr(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Unary(Expr):
    """`-x` or `~x`."""

    op: str
    part: Expr
    null_text: ClassVar[str] = ".is_not_null()"

    def children(self) -> tuple[Expr, ...]:
        return (self.part,)

    def key(self) -> Key:
        return (self.op, self.part.key())

    def text(self, level: int = 0) -> str:
        if self.op == "~" and isinstance(self.part, IsNull):
            return self.part.part.text(_ATOM) + self.null_text
        return _bracket(self.op + self.part.text(_PREFIX), _PREFIX, level)


@dataclass(frozen=True, eq=False, repr=False)
class Binary(Expr):
    """An operator between two values; `op` is Python's symbol for it."""

    op: str
    left: Expr
    right: Expr

    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    def key(self) -> Key:
        return (self.op, self.left.key(), self.right.key())

    def text(self, level: int = 0) -> str:
        own = _LEVEL[self.op]
        # Python chains comparisons and binds & tighter than them, so both of their operands need more parentheses.
        left = 4 if own <= 3 else own
        return _bracket(f"{self.left.text(left)} {self.op} {self.right.text(max(left, own + 1))}", own, level)


FUNCTIONS = frozenset({"concat", "concat_ws", "coalesce", "greatest", "least", "struct", "array", "hash"})
"""The calls that are written as functions of `vernier`; all others are methods of their first argument."""


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """A named function (operators/language/expr/compute/library.py) of some values. `names`: the fields of a struct."""

    function: str
    arguments: tuple[Expr, ...]
    names: tuple[str, ...] = ()

    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def key(self) -> Key:
        return ("call", self.function, self.names, *(part.key() for part in self.arguments))

    def text(self, level: int = 0) -> str:
        shown = [part.text(1) for part in self.arguments]
        if self.names:
            shown = [f"{name}={part}" for name, part in zip(self.names, shown, strict=True)]
        if self.function in FUNCTIONS:
            return f"{self.function}({listed(shown)})"
        return f"{self.arguments[0].text(_ATOM)}.{self.function}({listed(shown[1:])})"


@dataclass(frozen=True, eq=False, repr=False)
class IsNull(Expr):
    """`x.is_null()`."""

    part: Expr

    def children(self) -> tuple[Expr, ...]:
        return (self.part,)

    def key(self) -> Key:
        return ("is_null", self.part.key())

    def text(self, level: int = 0) -> str:
        return self.part.text(_ATOM) + ".is_null()"


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """`x.cast(type)`."""

    part: Expr
    type: Type

    def children(self) -> tuple[Expr, ...]:
        return (self.part,)

    def key(self) -> Key:
        return ("cast", self.part.key(), str(self.type))

    def text(self, level: int = 0) -> str:
        return f"{self.part.text(_ATOM)}.cast({self.type})"


@dataclass(frozen=True, eq=False, repr=False)
class Nullability(Expr):
    """The same value in a column that may hold nulls or, after a filter that leaves no nulls, in one that may not.

    Programs do not write it; the methods of collections insert it to make column widths equal.
    """

    part: Expr
    nullable: bool

    def children(self) -> tuple[Expr, ...]:
        return (self.part,)

    def key(self) -> Key:
        return ("nullability", self.part.key(), self.nullable)

    def text(self, level: int = 0) -> str:
        return self.part.text(level)


@dataclass(frozen=True, eq=False, repr=False)
class Alias(Expr):
    """`x.alias(name)`: the value of x."""

    part: Expr
    alias_name: str

    @property
    def column(self) -> str | None:
        return self.part.column

    @property
    def output_name(self) -> str | None:
        return self.alias_name

    def children(self) -> tuple[Expr, ...]:
        return (self.part,)

    def key(self) -> Key:
        return self.part.key()

    def text(self, level: int = 0) -> str:
        return f'{self.part.text(_ATOM)}.alias("{self.alias_name}")'


@dataclass(frozen=True, eq=False, repr=False)
class Case(Expr):
    """`when(...).when(...).otherwise(...)`: the first branch whose condition is true; without otherwise, null where
    none is."""

    branches: tuple[tuple[Expr, Expr], ...]
    default: Expr | None = None

    def when(self, condition: ExprLike, value: ExprLike) -> Case:
        """One more branch, tried when no earlier condition is true."""
        if self.default is not None:
            raise ProgramError(problem="when(...) comes before otherwise(...)")
        return Case((*self.branches, (as_expr(condition), as_expr(value))))

    def otherwise(self, value: ExprLike) -> Case:
        """The value where no condition is true."""
        if self.default is not None:
            raise ProgramError(problem="this expression has an otherwise(...) already")
        return Case(self.branches, as_expr(value))

    def children(self) -> tuple[Expr, ...]:
        parts = [part for branch in self.branches for part in branch]
        return (*parts, self.default) if self.default is not None else tuple(parts)

    def key(self) -> Key:
        branches = tuple((condition.key(), value.key()) for condition, value in self.branches)
        return ("case", branches, self.default.key() if self.default is not None else None)

    def text(self, level: int = 0) -> str:
        shown = ".".join(f"when({condition.text(1)}, {value.text(1)})" for condition, value in self.branches)
        return shown + (f".otherwise({self.default.text(1)})" if self.default is not None else "")


def col(name: str) -> Expr:
    """The value of the column `name`."""
    given: object = name
    if not isinstance(given, str):
        raise WrongType(problem=f"col takes the name of a column, not {given!r}")
    return Column(given)


def lit(value: Scalar) -> Expr:
    """A constant: an integer, float, bool, text, bytes, decimal.Decimal, date (Date), datetime (TimestampNs; UTC unless
    it has a time zone), list (List), dict (Struct) or None."""
    given: Any = value.item() if isinstance(value, np.generic) else value
    if isinstance(given, Expr):
        raise WrongType(problem=f"lit takes a Python value, but {given} is an expression already")
    match given:
        case list() | tuple():
            if not given:
                raise WrongType(
                    problem="an empty list has no element type; write lit(None).cast(vn.List(...)) for null"
                )
            return Call("array", tuple(map(as_expr, given)))
        case dict():
            return Call("struct", tuple(map(as_expr, given.values())), tuple(map(str, given)))
    return Literal(*constant(given))


def when(condition: ExprLike, value: ExprLike) -> Case:
    """Begin a conditional: `when(c1, v1).when(c2, v2).otherwise(v)`. A branch is computed only for the rows that reach
    it."""
    return Case(((as_expr(condition), as_expr(value)),))


def as_expr(value: object) -> Expr:
    """An expression unchanged, any other value as a literal. Raises WrongType for a value that no column can hold."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, type) or callable(value):
        way = "did you mean to call it?"
        if getattr(value, "__name__", "") == "<lambda>":
            way = 'write an expression such as col("n") > 1, or use vn.udf for a function in Python'
        raise WrongType(problem=f"{value!r} is not a value for a column; {way}")
    elsewhere = getattr(value, "belongs_in", "")
    if elsewhere:
        raise WrongType(problem=f"{value!r} is not a value for a column; {elsewhere}")
    return lit(cast(Scalar, value))


def _bracket(text: str, own: int, level: int) -> str:
    return f"({text})" if own < level else text
