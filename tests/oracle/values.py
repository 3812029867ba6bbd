"""Values of columns as the oracle holds them, their order and the one form of each.

None, bool, int, float, str, bytes, date, Decimal, and tuples for lists and structs. An instant is its nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.oracle.plan import Row


def canonical(value: Any) -> Any:
    """The one form of a value: there is one NaN, no -0.0, and lists and structs are tuples."""
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(canonical(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return tuple(canonical(one) for one in value)
    return value


def rank(value: Any) -> tuple[Any, ...]:
    """A sort key: null before everything, NaN after every number, text by code point, lists and structs by parts."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, tuple):
        return (1, tuple(rank(one) for one in value))
    return (1, value)


def order(row: Row) -> tuple[tuple[Any, ...], ...]:
    """A sort key for whole rows, column by column."""
    return tuple(rank(value) for value in row)


@dataclass(frozen=True)
class By:
    """Rows are ordered by `value(row)`, upwards or downwards; downwards nulls are last."""

    value: Callable[[Row], Any]
    descending: bool = False


def in_order(rows: Iterable[Row], by: Sequence[By]) -> list[Row]:
    """The rows sorted by the first of `by`, then the next …, and where all are equal by the whole row, upwards."""
    ordered = sorted(rows, key=order)
    for one in reversed(by):
        ordered.sort(key=lambda row: rank(one.value(row)), reverse=one.descending)
    return ordered


def nearest(number: Fraction) -> float:
    """The double nearest to an exact number, ties to even; beyond all doubles it is infinite."""
    try:
        return number.numerator / number.denominator + 0.0
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def exact_sum(weighed: Iterable[tuple[float, int]]) -> Fraction | float:
    """The sum of doubles, each as often as its weight says, not rounded; a float when it is NaN or infinite.

    NaN and the infinities are counted, so that what is taken away again leaves nothing behind.
    """
    total = Fraction(0)
    odd = {math.nan: 0, math.inf: 0, -math.inf: 0}
    for value, weight in weighed:
        if math.isfinite(value):
            total += Fraction(value) * weight
        else:
            odd[canonical(value)] += weight
    up, down = odd[math.inf], odd[-math.inf]
    if odd[math.nan] or (up and down and (up > 0) == (down > 0)):
        return math.nan
    if up or down:
        return math.inf if up > 0 or down < 0 else -math.inf
    return total
