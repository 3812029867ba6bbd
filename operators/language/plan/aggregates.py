"""The aggregates of `group_by(...).agg(name=...)`.

`count`, `sum` and `avg` weight rows by their multiplicity, whatever its sign. All others look at the rows that are
present (multiplicity above 0). Nulls are ignored; where all values are null, the result is null, 0 for counts and empty
for lists. A group without any present row has no least, greatest or most frequent value: for a nullable column the
result is then null, for any other column the group has no row.

Outside loops, `count`, `sum` and `avg` by themselves cost the same for a change, whatever the size of its group, and no
row is kept: the group is the vector of these numbers, and exists while it is not zero. A sum that may be null is null
while the number and the sum of its values are 0. With `min` or `max` beside them, and in loops, each slice of an epoch
(a thousand updates or so) reads every changed group once, O(rows), and then each change is O(1); min and max search
further when their present value is retracted. Outside loops, `count_distinct` alone or with counts and sums counts the
rows of a `distinct`, O(1). The other aggregates read the whole group at each of its changes, O(rows log rows), and so
do all aggregates in the same agg as one of them.
"""

from decimal import Decimal
from fractions import Fraction
from typing import Any

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.columns import as_column
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.plan.aggregation import Aggregation


def count(column: str | Expr | None = None) -> Aggregation:
    """The number of rows, or of rows whose `column` is not null. Int64."""
    return Aggregation("count", None if column is None else as_column(column))


def sum(column: str | Expr) -> Aggregation:
    """The sum of numbers, in their type; for Decimal(p, s) it is Decimal(p + 10, s), with at most 38 digits.

    Exact: whatever the order, retracted values leave no error behind. Doubles are added exactly and rounded once, to
    even. Raises AggregateOverflow when a sum of integers or decimals does not fit. Infinities and NaN as in IEEE 754.
    """
    return Aggregation("sum", _column("sum", column))


def min(column: str | Expr) -> Aggregation:
    """The least value, in the column's type."""
    return Aggregation("min", _column("min", column))


def max(column: str | Expr) -> Aggregation:
    """The greatest value, in the column's type."""
    return Aggregation("max", _column("max", column))


def avg(column: str | Expr) -> Aggregation:
    """The mean: the exact sum divided by the count, rounded once; null when the count is 0.

    The type is Float64 | None; for Decimal(p, s) it is Decimal(p + 4, s + 4) | None, with halves rounded away from
    zero.
    """
    return Aggregation("avg", _column("avg", column))


def arg_min(column: str | Expr, by: str | Expr) -> Aggregation:
    """The value of `column` in the row with the least `by`; of several such rows, the least value (null is the least).

    Rows whose `by` is null are left out. The type is the column's, nullable when either of the two columns is.
    """
    return Aggregation("arg_min", _column("arg_min", column), (_column("arg_min", by),))


def arg_max(column: str | Expr, by: str | Expr) -> Aggregation:
    """The value of `column` in the row with the greatest `by`; of several such rows, the least value (null is the
    least)."""
    return Aggregation("arg_max", _column("arg_max", column), (_column("arg_max", by),))


def mode(column: str | Expr) -> Aggregation:
    """The value with the most copies; of several, the least. The type is the column's."""
    return Aggregation("mode", _column("mode", column))


def count_distinct(column: str | Expr, *more: str | Expr) -> Aggregation:
    """The number of distinct values, or of distinct tuples of values that contain no null. Int64."""
    return Aggregation("count_distinct", _column("count_distinct", column), tuple(map(as_column, more)))


def quantile(column: str | Expr, share: float | Fraction | Decimal) -> Aggregation:
    """The least value such that it and all smaller ones make up at least `share` of all copies: SQL's percentile_disc.

    share: 0 to 1. A float means the decimal number as it is written, so 0.9 is nine tenths. The type is the column's.
    """
    if isinstance(share, bool) or not isinstance(share, (int, float, Fraction, Decimal)) or share != share:
        raise WrongType(problem=f"the share of a quantile is a number from 0 to 1, not {share!r}")
    exact = Fraction(str(share)) if isinstance(share, float) else Fraction(share)
    if not 0 <= exact <= 1 or exact.denominator > _FINEST:
        raise WrongType(problem=f"the share of a quantile is a number from 0 to 1, not {share!r}")
    return Aggregation("quantile", _column("quantile", column), option=exact)


def median(column: str | Expr) -> Aggregation:
    """The least value such that at least half of all copies are not greater: quantile(column, 0.5). The column's
    type."""
    return quantile(column, Fraction(1, 2))


def collect_list(column: str | Expr) -> Aggregation:
    """All values in ascending order, each as often as its multiplicity. List of the column's type; empty when none."""
    return Aggregation("collect_list", _column("collect_list", column))


def collect_set(column: str | Expr) -> Aggregation:
    """All distinct values in ascending order. List of the column's type; empty when there are none."""
    return Aggregation("collect_set", _column("collect_set", column))


_FINEST = 10**18
"""The largest denominator of a share, so that its product with a multiplicity fits 128 bits."""


def _column(name: str, column: Any) -> Expr:
    # A program that has shadowed Python's sum or max with ours gets here with sum([1, 2]) or max(a, b).
    if not isinstance(column, (str, Expr)):
        raise WrongType(problem=f"vn.{name} takes a column, not {column!r}; for Python's own, import builtins")
    return as_column(column)
