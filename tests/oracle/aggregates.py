"""What each aggregate makes of the rows of a group.

Nulls as in SQL: not counted, summed or compared; None if nothing is left. Counts, sums and means weigh by multiplicity
whatever its sign, the others look at rows that are present. Sums of doubles are exact and rounded once.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from tests.oracle.plan import Aggregate, Contents
from tests.oracle.values import exact_sum, nearest, rank

LINEAR = ("count", "sum", "avg")


def weights(aggregate: Aggregate, rows: Contents) -> tuple[Any, ...]:
    """What an aggregate of counts and sums adds to its group's vector: the number and the sum of its values."""
    value = aggregate.value
    if value is None:
        return (sum(rows.values()),)
    weighed = [(value(row), count) for row, count in rows.items() if value(row) is not None]
    number = sum(count for _, count in weighed)
    return (number,) if aggregate.kind == "count" else (number, total(weighed))


def summary(aggregate: Aggregate, rows: Contents, linear: bool = False) -> Any:
    """One aggregate over a group's rows. linear: the group is a vector, so that a sum is None when its column may be
    None and both the number and the sum of its values are zero."""
    value = aggregate.value
    if value is None:
        if aggregate.kind != "count":
            raise ValueError(f"{aggregate.kind} needs a value")
        return sum(rows.values())
    weighed = [(value(row), count) for row, count in rows.items() if value(row) is not None]
    copies: dict[Any, int] = {}
    for one, count in weighed:
        if count > 0:
            copies[one] = copies.get(one, 0) + count
    present = sorted(copies, key=rank)
    match aggregate.kind:
        case "count":
            return sum(count for _, count in weighed)
        case "sum":
            if linear and aggregate.nullable:
                return total(weighed) if any(part != 0 for part in weights(aggregate, rows)) else None
            return total(weighed) if weighed else None
        case "avg":
            return mean(weighed)
        case "min":
            return present[0] if present else None
        case "max":
            return present[-1] if present else None
        case "arg_min" | "arg_max":
            return extreme(aggregate, rows)
        case "mode":
            return min(present, key=lambda one: (-copies[one], rank(one)), default=None)
        case "count_distinct":
            return len(present)
        case "quantile":
            return quantile(copies, aggregate.at)
        case "collect_list":
            return tuple(one for one in present for _ in range(copies[one]))
        case "collect_set":
            return tuple(present)


def total(weighed: list[tuple[Any, int]]) -> Any:
    """The sum of values times weights: exact, of doubles rounded once."""
    if any(isinstance(value, float) for value, _ in weighed):
        exact = exact_sum(weighed)
        return nearest(exact) if isinstance(exact, Fraction) else exact
    if any(isinstance(value, Decimal) for value, _ in weighed):
        with localcontext(prec=200):
            return sum((value * count for value, count in weighed), Decimal(0))
    return sum(value * count for value, count in weighed)


def mean(weighed: list[tuple[Any, int]]) -> float | None:
    """The exact sum divided by the number of values, rounded once; None when that number is 0."""
    count = sum(one for _, one in weighed)
    if count == 0:
        return None
    exact = exact_sum(weighed) if any(isinstance(value, float) for value, _ in weighed) else Fraction(total(weighed))
    if isinstance(exact, Fraction):
        return nearest(exact / count)
    return exact if count > 0 or math.isnan(exact) else -exact


def extreme(aggregate: Aggregate, rows: Contents) -> Any:
    """The value of the present row with the least or greatest `by` that is not null; of several the least value."""
    value, by = aggregate.value, aggregate.by
    if value is None or by is None:
        raise ValueError(f"{aggregate.kind} needs a value and what it goes by")
    present = [row for row, count in rows.items() if count > 0 and by(row) is not None]
    if not present:
        return None
    keys = sorted((by(row) for row in present), key=rank)
    best = rank(keys[0] if aggregate.kind == "arg_min" else keys[-1])
    return min((value(row) for row in present if rank(by(row)) == best), key=rank)


def quantile(copies: dict[Any, int], at: Fraction) -> Any:
    """The least value such that it and those below make up at least the share `at` of all copies."""
    share = at * sum(copies.values())
    below = 0
    for value in sorted(copies, key=rank):
        below += copies[value]
        if below >= share:
            return value
    return None
