"""Functions of the program as expressions: `f = vn.udf(fn, returns=vn.Int64)`, then `f(col("a"), col("b"))`.

They are vectorised: called with whole columns, not row by row. Int64, Float64 and Bool are passed as numpy arrays, Date
and TimestampNs as numpy datetime64 arrays, all other types as Arrow arrays. They return an array (or list) with one
value per row. They must be deterministic, since a retraction calls them again (operators/language/expr/functions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue, WrongType, listed
from vernier.operators.failures import UserCodeFailed
from vernier.operators.language.expr.compute.vector import Bound, Heap, Vector, as_arrow, both, from_arrow, spread
from vernier.operators.language.expr.expression import Expr, Key, as_expr
from vernier.operators.language.expr.functions import check_function, function_key, function_name
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.language.expr.user_columns import given_column, returned_column, shown_rows
from vernier.operators.language.types.scalars import Type, Words, as_type, spell
from vernier.operators.location import Location, here


@dataclass(frozen=True, eq=False)
class Udf:
    """A function of the program with its type. Calling it with expressions makes an expression. `nulls`: it also gets
    nulls."""

    function: Callable[..., Any]
    returns: Type
    nullable: bool
    nulls: bool
    name: str
    key: str

    def __call__(self, *arguments: object) -> Expr:
        if not arguments:
            raise WrongType(problem=f"{self.name} needs columns: its values must follow from the row alone")
        return UserCall(self, tuple(map(as_expr, arguments)), here())

    def __repr__(self) -> str:
        return f"udf({self.name}, returns={spell(self.returns, self.nullable)})"


@overload
def udf(
    function: Callable[..., Any], *, returns: Any, nulls: bool = False, deterministic: bool | None = None
) -> Udf: ...


@overload
def udf(
    function: None = None, *, returns: Any, nulls: bool = False, deterministic: bool | None = None
) -> Callable[[Callable[..., Any]], Udf]: ...


def udf(
    function: Callable[..., Any] | None = None,
    *,
    returns: Any,
    nulls: bool = False,
    deterministic: bool | None = None,
) -> Udf | Callable[[Callable[..., Any]], Udf]:
    """Make a vectorised function of the program usable in expressions: `udf(fn, returns=vn.Int64)`, or as a decorator.

    The function gets the columns that it is called with, and returns as many values of type `returns` (`T | None` when
    it may return nulls). Int64, Float64 and Bool are passed as numpy arrays, Date and TimestampNs as numpy datetime64
    arrays, other types as Arrow arrays. Rows in which an argument is null are left out and give null; with nulls=True
    the function gets all rows, every column as an Arrow array. It is called with any number of rows, but never with
    none.

    It must be deterministic: a retraction calls it again and must get the same result as the insertion. Functions that
    read a clock or use random numbers are refused here, and so is deterministic=False; deterministic=True overrules the
    check. Raises WrongType and NotDeterministic. If the function raises while running, UserCodeFailed names it and
    shows its input.
    """
    kind, nullable = as_type(returns, "what a udf returns")

    def made(function: Callable[..., Any]) -> Udf:
        check_function(function, "udf", deterministic)
        return Udf(function, kind, nullable, nulls, function_name(function), function_key(function))

    return made if function is None else made(function)


@dataclass(frozen=True, eq=False, repr=False)
class UserCall(Expr):
    """A call of a udf; `where` is the program's line."""

    udf: Udf
    arguments: tuple[Expr, ...]
    where: Location

    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def key(self) -> Key:
        kind = spell(self.udf.returns, self.udf.nullable)
        return ("udf", self.udf.key, kind, self.udf.nulls, *(part.key() for part in self.arguments))

    def text(self, level: int = 0) -> str:
        return f"{self.udf.name}({listed(part.text(1) for part in self.arguments)})"


def user_call(expr: UserCall, arguments: Sequence[Bound]) -> Bound:
    """A call with its type. Raises WrongType for an argument that is null of no type."""
    own = expr.udf
    kinds = [bound.type for bound in arguments]

    def run(words: Words, heap: Heap) -> Vector:
        if len(words) == 0:
            return from_arrow(pa.nulls(0, own.returns.arrow), own.returns)
        vectors = [bound.compute(words, heap) for bound in arguments]
        if own.nulls:
            return _called(expr, [as_arrow(v, kind) for v, kind in zip(vectors, kinds, strict=True)], len(words))
        valid = both(*vectors)
        wanted = np.ones(len(words), np.bool_) if valid is None else valid
        if not wanted.any():
            return spread(from_arrow(pa.nulls(0, own.returns.arrow), own.returns), wanted)
        columns = [given_column(vector, kind, wanted) for vector, kind in zip(vectors, kinds, strict=True)]
        result = _called(expr, columns, int(wanted.sum()))
        return result if wanted.all() else spread(result, wanted)

    nullable = own.nullable or (not own.nulls and any(bound.nullable for bound in arguments))
    return Bound(expr, own.returns, nullable, True, run)


def _called(expr: UserCall, columns: Sequence[Any], n: int) -> Vector:
    own = expr.udf
    try:
        with running(Call(expr, expr.where, own.name, shown_rows), columns):
            result = own.function(*columns)
    except (Exception, SystemExit) as error:
        raise _failed(expr, columns, f"{type(error).__name__}: {error}") from error
    try:
        return from_arrow(returned_column(result, own.returns, own.nullable, n, own.name), own.returns)
    except BadValue as error:
        raise _failed(expr, columns, error.problem) from error


def _failed(expr: UserCall, columns: Sequence[Any], cause: str) -> UserCodeFailed:
    name, sample = expr.udf.name, shown_rows(columns)
    return UserCodeFailed(operator=str(expr), where=str(expr.where), function=name, sample=sample, cause=cause)
