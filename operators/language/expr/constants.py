"""Constants: the values of Python that a column can hold, and how they are stored."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from vernier.operators.errors import WrongType
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.texts import Binary, String

Stored = int | float | bool | str | bytes | decimal.Decimal | None

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def constant(given: Any) -> tuple[Stored, Type | None]:
    """A Python value as it is stored, and its type (None for null). Raises WrongType for other values."""
    match given:
        case None:
            return None, None
        case bool():
            return given, Bool()
        case int():
            if not -(2**63) <= given < 2**63:
                raise WrongType(problem=f"the integer {given} does not fit 64 bits")
            return given, Int64()
        case float():
            return given + 0.0, Float64()
        case datetime.datetime():
            aware = given if given.tzinfo else given.replace(tzinfo=datetime.UTC)
            span = aware - _EPOCH
            nanoseconds = ((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds) * 1_000
            if not -(2**63) <= nanoseconds < 2**63:
                raise WrongType(problem=f"{given} is outside the years 1677 to 2262 that TimestampNs holds")
            return nanoseconds, TimestampNs()
        case datetime.date():
            return (given - _EPOCH.date()).days, Date()
        case str():
            return given, String()
        case bytes() | bytearray():
            return bytes(given), Binary()
        case decimal.Decimal():
            return given, decimal_type(given)
    raise WrongType(problem=f"{given!r} of type {type(given).__name__} is not a value for a column")


def shown_moment(value: Stored, kind: Type | None) -> str | None:
    """A stored Date or TimestampNs as a program writes it; None for other types."""
    if kind == Date() and isinstance(value, int):
        return repr(_EPOCH.date() + datetime.timedelta(value))
    if kind == TimestampNs() and isinstance(value, int):
        return repr(_EPOCH + datetime.timedelta(microseconds=value // 1000))
    return None


def decimal_type(value: decimal.Decimal) -> Decimal:
    """The narrowest Decimal that holds a constant."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise WrongType(problem=f"a Decimal cannot hold {value}")
    scale = max(0, -exponent)
    return Decimal(max(1, scale, len(digits) + max(0, exponent)), scale)
