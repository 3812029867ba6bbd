"""Parts of dates and instants, in UTC and the proleptic Gregorian calendar, computed by numpy on whole columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vernier.operators.errors import WrongType, listed, meant
from vernier.operators.language.expr import arithmetic
from vernier.operators.language.expr.compute.calling import literal, need
from vernier.operators.language.expr.compute.vector import Bound, Heap, Vector
from vernier.operators.language.expr.expression import Call, Expr
from vernier.operators.language.types.scalars import Int64, Type, Values, Words

Binder = Callable[[Call, Sequence[Bound]], Bound]
_INT = Int64()
_DAY = 86_400_000_000_000
_SPANS = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
}
_UNITS = ("year", "quarter", "month", "week", "day", *reversed(_SPANS))


def _days(kind: Type, data: Values) -> Values:
    days: Values = data // _DAY if kind.name == "TimestampNs" else data
    return days


def _months(days: Values) -> Values:
    """Months since January 1970."""
    months: Values = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return months


def _first_day(months: Values) -> Values:
    """The day (since 1970-01-01) on which a month begins."""
    days: Values = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return days


def _week(days: Values) -> Values:
    # A week belongs to the year of its Thursday.
    thursday = days - (days + 3) % 7 + 3
    week: Values = (thursday - _first_day(_months(thursday) // 12 * 12)) // 7 + 1
    return week


_OF_DAYS: dict[str, Callable[[Values], Values]] = {
    "year": lambda days: _months(days) // 12 + 1970,
    "quarter": lambda days: _months(days) % 12 // 3 + 1,
    "month": lambda days: _months(days) % 12 + 1,
    "week": _week,
    "day": lambda days: days - _first_day(_months(days)) + 1,
    "day_of_week": lambda days: (days + 4) % 7 + 1,
    "day_of_year": lambda days: days - _first_day(_months(days) // 12 * 12) + 1,
}
_OF_CLOCK: dict[str, Callable[[Values], Values]] = {
    "hour": lambda ns: ns % _DAY // _SPANS["hour"],
    "minute": lambda ns: ns // _SPANS["minute"] % 60,
    "second": lambda ns: ns // _SPANS["second"] % 60,
    "nanosecond": lambda ns: ns % _SPANS["second"],
}


def _part(name: str) -> Binder:
    def bind(expr: Call, arguments: Sequence[Bound]) -> Bound:
        part = arguments[0]
        kind = need(expr, part, *(("Date", "TimestampNs") if name in _OF_DAYS else ("TimestampNs",)))

        def run(words: Words, heap: Heap) -> Vector:
            data, valid = part.compute(words, heap)
            if name in _OF_DAYS:
                return Vector(_OF_DAYS[name](_days(kind, data)), valid)
            return Vector(_OF_CLOCK[name](data), valid)

        return Bound(expr, _INT, part.nullable, part.fallible, run)

    return bind


def _date_trunc(expr: Call, arguments: Sequence[Bound]) -> Bound:
    part = arguments[0]
    kind = need(expr, part, "Date", "TimestampNs")
    unit = literal(expr, arguments[1], "a unit", str).lower()
    known = _UNITS if kind.name == "TimestampNs" else _UNITS[:5]
    if unit not in known:
        raise WrongType(problem=f"{expr} has no unit {unit!r}{meant(unit, known)} (units are {listed(known)})")

    def run(words: Words, heap: Heap) -> Vector:
        data, valid = part.compute(words, heap)
        if kind.name == "Date":
            days = _day_trunc(unit, data)
            arithmetic.check_date(days, valid, expr)
            return Vector(days, valid)
        if unit in _SPANS:
            return Vector(_checked(data - data % _SPANS[unit], data, valid, expr), valid)
        first = _day_trunc(unit, data // _DAY)
        # Only the first days of the range can begin before it.
        early = first < -(2**63) // _DAY + 1
        arithmetic.check(early, valid, expr, data)
        return Vector(np.where(early, 0, first) * _DAY, valid)

    return Bound(expr, kind, part.nullable, True, run)


def _checked(begins: Values, data: Values, valid: Values | None, expr: Expr) -> Values:
    arithmetic.check(begins > data, valid, expr, data)
    return begins


def _day_trunc(unit: str, days: Values) -> Values:
    if unit == "week":
        monday: Values = days - (days + 3) % 7
        return monday
    if unit == "day":
        return days
    size = {"year": 12, "quarter": 3, "month": 1}[unit]
    return _first_day(_months(days) // size * size)


TIME_CALLS: dict[str, Binder] = {**{name: _part(name) for name in (*_OF_DAYS, *_OF_CLOCK)}, "date_trunc": _date_trunc}
"""Functions by name."""
