"""Aggregates that a program defines: `spread = vn.aggregate(fn, returns=vn.Float64)`, `agg(x=spread("price"))`.

A vectorised aggregate is called with the values of many groups at once. A compiled one is compiled by numba and called
group by group from compiled code. Both see the rows that are present, without nulls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.columns import as_column
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.expr.functions import check_function, function_key, function_name
from vernier.operators.language.plan.aggregation import Aggregation
from vernier.operators.language.types.scalars import Type, as_type, spell

_MOST_COLUMNS = 3
"""How many columns a compiled aggregate may read."""


@dataclass(frozen=True, eq=False)
class UserAggregate:
    """An aggregate of the program; calling it with columns gives an aggregation for `agg`."""

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
        """What distinguishes it from other aggregates."""
        return (function_key(self.function), spell(self.returns, self.nullable), self.compiled)

    def __str__(self) -> str:
        return function_name(self.function)


def aggregate(function: Callable[..., Any] | None = None, *, returns: Any, compiled: bool = False) -> Any:
    """Make a function of the program an aggregate: `vn.aggregate(fn, returns=vn.Float64)`, or as a decorator.

    Vectorised (the default): `fn(values, counts, offsets)` returns one value for each of g groups. values: n values of
    all groups, group after group, as a numpy array (Date and TimestampNs as datetime64), other types as an Arrow array;
    an aggregate of several columns gets one such argument for each. counts: int64[n], the number of copies of each
    value, at least 1. offsets: int64[g + 1]: group i has the values offsets[i] : offsets[i + 1], at least one. Rows
    that are equal in all columns that the aggregates read may come as one row or as several.

    compiled=True: `fn(values, counts)` returns the value of one group; numba compiles it. Columns and result must be
    Int64, Float64, Bool, Date or TimestampNs (the last two as integers); three columns at most.

    Rows that are not present and rows with a null in one of the columns are left out. A group without remaining rows is
    null when `returns` allows it (`T | None`), otherwise it has no row. The function must be pure. If it raises while
    running, UserCodeFailed names it and shows its input. Cost: O(rows of the group) at each of its changes.
    """
    kind, nullable = as_type(returns, "what an aggregate returns")

    def made(function: Callable[..., Any]) -> UserAggregate:
        check_function(function, "aggregate")
        if compiled and not kind.plain:
            raise WrongType(problem=f"a compiled aggregate returns a number, a truth value or a time, not {kind}")
        return UserAggregate(function, kind, nullable, compiled)

    return made if function is None else made(function)
