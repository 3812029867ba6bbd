"""Constants of Catalyst's plans as expressions of ours. Spark writes their values as text."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import re
from collections.abc import Sequence
from typing import Any

from vernier.operators.language.expr.expression import Call, Cast, Expr, Literal, Nullability
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.structs import Struct
from vernier.operators.language.types.texts import Binary, List, String
from vernier.operators.sql.columns import type_of
from vernier.operators.sql.refusals import Refused, refuse

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECONDS = 1_000


def literal(text: str | None, spark: Any, elements: Sequence[Any] | None = None) -> Expr:
    """A constant of a type in Spark's JSON. elements: the members of a list or struct, as service/sql/completion.py
    adds them: texts of literals, or such lists again."""
    if spark == "void" or (text is None and not _known(spark)):
        return Literal(None, None)
    name = spark if isinstance(spark, str) else str(spark.get("type"))
    if name.startswith("interval") and text is not None:
        if name == "interval":
            return Literal(interval(text), Int64())
        if "year" in name or "month" in name:
            return Literal(int(text), Int64())
        return Literal(int(text) * MICROSECONDS, Int64())
    kind = kind_of(spark)
    if text is None:
        return Cast(Literal(None, None), kind)
    if isinstance(kind, (List, Struct)):
        if elements is None:
            raise refuse(f"this constant of type {kind} cannot be read from the plan; make it a column of a table")
        return _nested(elements, spark, kind)
    if isinstance(kind, Binary):
        raise refuse("a constant of type BINARY cannot be written here; make it a column of a table", "x", "binary")
    return Literal(_value(text, kind), kind)


def _nested(elements: Sequence[Any], spark: Any, kind: List | Struct) -> Expr:
    """A constant list or struct, built of its members."""
    if isinstance(kind, Struct):
        kinds = [(one["type"], one["nullable"]) for one in spark["fields"]]
        return Call("struct", tuple(map(_member, elements, kinds)), tuple(kind.fields))
    if not elements:
        raise refuse("a list without elements cannot be a constant; write one with elements, or a filter", "array")
    return Call("array", tuple(_member(one, (spark["elementType"], spark["containsNull"])) for one in elements))


def _member(element: Any, of: tuple[Any, bool]) -> Expr:
    spark, nulls = of
    if element is None:
        made: Expr = Cast(Literal(None, None), kind_of(spark))
    elif isinstance(element, list):
        made = literal("", spark, element)
    else:
        made = literal(element, spark)
    return Nullability(made, True) if nulls else made


def interval(text: str) -> int:
    """Nanoseconds of an interval as Spark writes it: "1 days 2 hours 0.5 seconds"."""
    total = decimal.Decimal(0)
    for number, unit in re.findall(r"(-?[\d.]+) (\w+?)s?\b", text):
        if unit not in _UNITS:
            raise refuse(
                f"an interval of {unit}s has no fixed length; write days, hours, minutes or seconds", "interval"
            )
        total += decimal.Decimal(number) * _UNITS[unit]
    return int(total)


_UNITS = {
    "day": 86_400 * 10**9,
    "hour": 3_600 * 10**9,
    "minute": 60 * 10**9,
    "second": 10**9,
    "millisecond": 10**6,
    "microsecond": 10**3,
}


def python_value(value: Any, kind: Type) -> Any:
    """A value of a constant row, as JSON has it, in the form in which rows take it."""
    if value is None:
        return None
    if isinstance(kind, Decimal):
        return decimal.Decimal(str(value))
    if isinstance(kind, TimestampNs):
        return _instant(str(value))
    if isinstance(kind, Date):
        return _day(str(value))
    return float(value) if isinstance(kind, Float64) else value


def kind_of(spark: Any) -> Type:
    """Our type for Spark's. Raises Refused where there is none."""
    try:
        return type_of(spark)
    except KeyError as error:
        name = str(error.args[0])
        hint = {
            "float": "; cast to DOUBLE",
            "map": "; use a table with a column for the key",
            "variant": "; use columns",
        }
        raise refuse(f"values of the type {name} cannot be maintained{hint.get(name, '')}", name) from error


def _known(spark: Any) -> bool:
    try:
        type_of(spark)
    except KeyError:
        return False
    return True


def _value(text: str, kind: Type) -> Any:
    match kind:
        case Int64():
            return int(text)
        case Float64():
            return float(text) + 0.0
        case Decimal():
            return decimal.Decimal(text)
        case Date():
            return (_day(text) - _EPOCH.date()).days
        case TimestampNs():
            return _fitting(int(text) * MICROSECONDS, text) if text.lstrip("-").isdigit() else _instant(text)
        case String():
            return text
    return text == "true"


def _instant(text: str) -> int:
    """Nanoseconds since 1970 of an instant in UTC, as Spark writes it."""
    try:
        read = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    except ValueError as error:
        raise _too_far(text) from error
    span = read - _EPOCH
    return _fitting(((span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds) * MICROSECONDS, text)


def _fitting(instant: int, text: str) -> int:
    """An instant that is one of ours. Raises Refused."""
    if not -(2**63) <= instant < 2**63:
        raise _too_far(text)
    return instant


def _too_far(text: str) -> Refused:
    shown = text
    if text.lstrip("-").isdigit():
        with contextlib.suppress(OverflowError):
            shown = str(_EPOCH + datetime.timedelta(microseconds=int(text))).removesuffix("+00:00")
    return refuse(
        f"the timestamp {shown} does not fit 64 bits of nanoseconds, which reach from 1677-09-22 to 2262-04-11; "
        "write a time between them",
        "timestamp",
    )


def _day(text: str) -> datetime.date:
    """A date, as Spark writes it. Raises Refused."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise refuse(f"the date {text} does not lie in the years 1 to 9999", "date") from error
