"""The aggregates of `group_by(...).agg(name=...)`.

`count`, `sum` and `avg` weigh rows by their multiplicity, whatever its sign; all others look at rows that are present
(multiplicity above 0). Nulls are left out; where all values are null, the result is null, 0 for the counts and empty
for the lists. A group none of whose rows is present has no least, greatest or most frequent value: of a nullable column
that is null, of another one the group has no row.

Outside loops `count`, `sum` and `avg` alone take the same time for a change whatever the size of its group. With `min`
or `max` beside them, and in loops, a slice of the epoch (a thousand updates or so) reads a group that changed once,
O(rows), and each change is O(1) then; min and max look further when the value they had leaves. The others look at the
whole group at each of its changes, O(rows log rows), and so do all aggregates that stand beside one of them.
"""

from decimal import Decimal
from fractions import Fraction
from typing import Any

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.expression import Expr, as_column
from vernier.operators.language.plan.logical import Aggregation


def count(column: str | Expr | None = None) -> Aggregation:
    """The number of rows, or of those whose `column` is not null. Int64."""
    return Aggregation("count", None if column is None else as_column(column))


def sum(column: str | Expr) -> Aggregation:
    """The sum of numbers, of their type; of Decimal(p, s) it is Decimal(p + 10, s), 38 digits at most.

    Exact: whatever the order, what is taken back leaves nothing. Doubles are added up exactly and rounded once, to
    even. AggregateOverflow when a sum of integers or decimals does not fit. Infinities and NaN as in IEEE 754.
    """
    return Aggregation("sum", _column("sum", column))


def min(column: str | Expr) -> Aggregation:
    """The least value. Of the column's type."""
    return Aggregation("min", _column("min", column))


def max(column: str | Expr) -> Aggregation:
    """The greatest value. Of the column's type."""
    return Aggregation("max", _column("max", column))


def avg(column: str | Expr) -> Aggregation:
    """The mean: the exact sum divided by the count, rounded once; null when the count is 0.

    Float64 | None; of Decimal(p, s) it is Decimal(p + 4, s + 4) | None, halves rounded away from zero.
    """
    return Aggregation("avg", _column("avg", column))


def arg_min(column: str | Expr, by: str | Expr) -> Aggregation:
    """The value of `column` in the row with the least `by`; of several such rows the least value (null comes first).

    Rows whose `by` is null are left out. Of the column's type, nullable when either of the two is.
    """
    return Aggregation("arg_min", _column("arg_min", column), (_column("arg_min", by),))


def arg_max(column: str | Expr, by: str | Expr) -> Aggregation:
    """The value of `column` in the row with the greatest `by`; of several such rows the least value (null first)."""
    return Aggregation("arg_max", _column("arg_max", column), (_column("arg_max", by),))


def mode(column: str | Expr) -> Aggregation:
    """The value with the most copies; of several the least. Of the column's type."""
    return Aggregation("mode", _column("mode", column))


def count_distinct(column: str | Expr, *more: str | Expr) -> Aggregation:
    """How many different values, or tuples of values without a null in them, there are. Int64."""
    return Aggregation("count_distinct", _column("count_distinct", column), tuple(map(as_column, more)))


def quantile(column: str | Expr, share: float | Fraction | Decimal) -> Aggregation:
    """The least value such that it and all below it make up at least `share` of all copies: SQL's percentile_disc.

    share: 0 to 1; a float means the decimal number that it is written as, so 0.9 is nine tenths. Of the column's type.
    """
    if isinstance(share, bool) or not isinstance(share, (int, float, Fraction, Decimal)) or share != share:
        raise WrongType(problem=f"the share of a quantile is a number from 0 to 1, not {share!r}")
    exact = Fraction(str(share)) if isinstance(share, float) else Fraction(share)
    if not 0 <= exact <= 1 or exact.denominator > _FINEST:
        raise WrongType(problem=f"the share of a quantile is a number from 0 to 1, not {share!r}")
    return Aggregation("quantile", _column("quantile", column), option=exact)


def median(column: str | Expr) -> Aggregation:
    """The least value that at least half of all copies do not exceed: quantile(column, 0.5). Of the column's type."""
    return quantile(column, Fraction(1, 2))


def collect_list(column: str | Expr) -> Aggregation:
    """All values in ascending order, each as often as its multiplicity. List of the column's type; empty when none."""
    return Aggregation("collect_list", _column("collect_list", column))


def collect_set(column: str | Expr) -> Aggregation:
    """All values in ascending order, each once. List of the column's type; empty when there is none."""
    return Aggregation("collect_set", _column("collect_set", column))


_FINEST = 10**18
"""The largest denominator of a share, so that its product with a multiplicity fits 128 bits."""


def _column(name: str, column: Any) -> Expr:
    # Python's own sum([1, 2]) and max(a, b) end here when a program has shadowed them with ours.
    if not isinstance(column, (str, Expr)):
        raise WrongType(problem=f"vn.{name} takes a column, not {column!r}; for Python's own, import builtins")
    return as_column(column)
