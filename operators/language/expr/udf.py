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
from vernier.operators.language.types.scalars import DATE_MAX, DATE_MIN, Date, Type, Values, Words, as_type, spell
from vernier.operators.location import Location, here

_SAMPLE = 3
"""How many input rows an error shows."""
_TIMES = {"Date": "datetime64[D]", "TimestampNs": "datetime64[ns]"}


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
        columns = [_column(vector, kind, wanted) for vector, kind in zip(vectors, kinds, strict=True)]
        result = _called(expr, columns, int(wanted.sum()))
        return result if wanted.all() else spread(result, wanted)

    nullable = own.nullable or (not own.nulls and any(bound.nullable for bound in arguments))
    return Bound(expr, own.returns, nullable, True, run)


def _column(vector: Vector, kind: Type, wanted: Values) -> Any:
    """The argument that the function gets: a copy, which it may modify."""
    if not kind.plain:
        return vector.data if wanted.all() else vector.data.filter(pa.array(wanted))
    data = np.ascontiguousarray(vector.data[wanted])
    return data.astype(_TIMES[kind.name]) if kind.name in _TIMES else data


def _called(expr: UserCall, columns: Sequence[Any], n: int) -> Vector:
    own = expr.udf
    try:
        with running(Call(expr, expr.where, own.name, _shown), columns):
            result = own.function(*columns)
    except Exception as error:
        raise _failed(expr, columns, f"{type(error).__name__}: {error}") from error
    try:
        if not isinstance(result, (pa.Array, pa.ChunkedArray)):
            if not isinstance(result, (list, tuple)) and getattr(result, "ndim", 0) != 1:
                raise BadValue(column=own.name, problem=f"it returned {result!r}, not an array of {n} values")
            result = pa.array(result, from_pandas=False)
        array = own.returns.to_arrow(result)
        if len(array) != n:
            raise BadValue(column=own.name, problem=f"it returned {len(array)} values for {n} rows")
        if array.null_count and not own.nullable:
            said = f"it returned null, but returns={own.returns}; say returns={own.returns} | None"
            raise BadValue(column=own.name, problem=said)
        array.validate(full=True)  # refuses text that is not UTF-8
        vector = from_arrow(array, own.returns)
        if own.returns == Date():
            _check_days(own.name, vector)
    except BadValue as error:
        raise _failed(expr, columns, error.problem) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise _failed(expr, columns, f"what it returned is not {own.returns}: {error}") from error
    return vector


def _check_days(name: str, vector: Vector) -> None:
    days = vector.data if vector.valid is None else vector.data[vector.valid]
    if len(days) and (days.min() < DATE_MIN or days.max() > DATE_MAX):
        raise BadValue(column=name, problem="it returned a date outside the years 1 to 9999")


def _failed(expr: UserCall, columns: Sequence[Any], cause: str) -> UserCodeFailed:
    name, sample = expr.udf.name, _shown(columns)
    return UserCodeFailed(operator=str(expr), where=str(expr.where), function=name, sample=sample, cause=cause)


def _shown(columns: Sequence[Any]) -> str:
    """The first few rows of the input."""
    shown = [column[:_SAMPLE].tolist() for column in columns]
    return listed(repr(row) for row in zip(*shown, strict=True))
