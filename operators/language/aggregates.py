"""The aggregates of `group_by(...).agg(name=...)`.

`count` and `sum` weigh rows by their multiplicity, whatever its sign; `min` and `max` look at rows that are present
(multiplicity above 0). Nulls are left out; where all values are null, all but count are null. A group none of whose
rows is present has no least or greatest value: of a nullable column that is null, of another one the group has no row.
"""

from operators.errors import WrongType
from operators.language.expr import Expr, as_column
from operators.language.logical import Aggregation


def count(column: str | Expr | None = None) -> Aggregation:
    """The number of rows, or of those whose `column` is not null. Int64."""
    return Aggregation("count", None if column is None else as_column(column))


def sum(column: str | Expr) -> Aggregation:
    """The sum of an Int64 column, exact; ArithmeticOverflow when it does not fit 64 bits. Int64."""
    return Aggregation("sum", _column("sum", column))


def min(column: str | Expr) -> Aggregation:
    """The least value. Of the column's type."""
    return Aggregation("min", _column("min", column))


def max(column: str | Expr) -> Aggregation:
    """The greatest value. Of the column's type."""
    return Aggregation("max", _column("max", column))


def avg(column: str | Expr) -> Aggregation:
    """The mean of an Int64 column: its exact sum divided, once, by its count; null when that is 0. Float64 | None."""
    return Aggregation("avg", _column("avg", column))


def _column(name: str, column: object) -> Expr:
    # Python's own sum([1, 2]) and max(a, b) end here when a program has shadowed them with ours.
    if not isinstance(column, (str, Expr)):
        raise WrongType(problem=f"vn.{name} takes a column, not {column!r}; for Python's own, import builtins")
    return as_column(column)
