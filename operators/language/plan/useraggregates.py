"""Aggregates that a program brings along: `spread = vn.aggregate(fn, returns=vn.Float64)`, `agg(x=spread("price"))`.

A vectorised one is called with the values of many groups at once; a compiled one is compiled by numba and called group
by group from compiled code. Both see the rows that are present, without nulls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.expression import Expr, as_column
from vernier.operators.language.expr.functions import check_function, function_key, function_name
from vernier.operators.language.plan.logical import Aggregation
from vernier.operators.language.types.scalars import Type, as_type, spell

_MOST_COLUMNS = 3
"""Columns that a compiled aggregate may look at."""


@dataclass(frozen=True, eq=False)
class UserAggregate:
    """An aggregate of the program; calling it with columns makes one for `agg`."""

    function: Callable[..., Any]
    returns: Type
    nullable: bool
    compiled: bool

    def __call__(self, column: str | Expr, *more: str | Expr) -> Aggregation:
        columns = [as_column(one) for one in (column, *more)]
        if self.compiled and len(columns) > _MOST_COLUMNS:
            raise WrongType(problem=f"a compiled aggregate takes {_MOST_COLUMNS} columns at most, not {len(columns)}")
        return Aggregation("user", columns[0], tuple(columns[1:]), self)

    def key(self) -> tuple[Any, ...]:
        """What makes it differ from others."""
        return (function_key(self.function), spell(self.returns, self.nullable), self.compiled)

    def __str__(self) -> str:
        return function_name(self.function)


def aggregate(function: Callable[..., Any] | None = None, *, returns: Any, compiled: bool = False) -> Any:
    """Make a function of the program an aggregate: `vn.aggregate(fn, returns=vn.Float64)`, or as a decorator.

    Vectorised (the default): `fn(values, counts, offsets)` gives one value for each of g groups. values: n values of
    all groups, group after group, as a numpy array (Date and TimestampNs as datetime64), other types as an Arrow array;
    for an aggregate of several columns one such argument each. counts: int64[n], how many copies there are of each, at
    least 1. offsets: int64[g + 1]: group i has the values offsets[i] : offsets[i + 1], one at least. Rows that are
    alike in all columns that the aggregates look at may come as one or as several.

    compiled=True: `fn(values, counts)` gives the value of one group; numba compiles it. Columns and result must be
    Int64, Float64, Bool, Date or TimestampNs (the last two as integers); three columns at most.

    Rows that are not present and rows with a null in one of the columns are left out. A group of which nothing is left
    has null when `returns` allows it (`T | None`), else no row. The function must be pure; when it raises while
    running, UserCodeFailed tells which and on what. O(rows of the group) at each of its changes.
    """
    kind, nullable = as_type(returns, "what an aggregate returns")

    def made(function: Callable[..., Any]) -> UserAggregate:
        check_function(function, "aggregate")
        if compiled and not kind.plain:
            raise WrongType(problem=f"a compiled aggregate returns a number, a truth value or a time, not {kind}")
        return UserAggregate(function, kind, nullable, compiled)

    return made if function is None else made(function)
