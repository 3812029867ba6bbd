"""Filters that Spark pushes down, as the conditions of a view's readers.

A filter becomes a condition only if both mean the same for every value; all others stay with Spark. Conditions are
evaluated on words, before a row becomes Arrow.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from vernier.operators.language.types.scalars import Bool, Date, Int64, TimestampNs
from vernier.operators.language.types.schema import Field, RowType
from vernier.operators.language.types.texts import String

_COMPARED: dict[type[Filter], str] = {
    EqualTo: "eq",
    GreaterThan: "gt",
    GreaterThanOrEqual: "ge",
    LessThan: "lt",
    LessThanOrEqual: "le",
}


def pushed(filters: Iterable[Filter], rows: RowType) -> tuple[tuple[str, ...], list[Filter]]:
    """The conditions `column:operator:value` that replace filters, and the filters that stay with Spark."""
    where, left = [], []
    for one in filters:
        condition = _condition(one, rows)
        if condition is None:
            left.append(one)
        else:
            where.append(condition)
    return tuple(where), left


def _condition(one: Filter, rows: RowType) -> str | None:
    negated = isinstance(one, Not)
    inner = one.child if isinstance(one, Not) else one
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in rows or ":" in attribute[0]:
        return None
    field = rows.field(attribute[0])
    if negated:
        # Both leave out nulls: a null is neither equal nor different.
        text = _text(field, inner.value) if isinstance(inner, EqualTo) else None
        return None if text is None else f"{field.name}:ne:{text}"
    if isinstance(inner, IsNull):
        return f"{field.name}:null"
    if isinstance(inner, IsNotNull):
        return f"{field.name}:notnull"
    if isinstance(inner, In):
        texts = [_text(field, value) for value in inner.value]
        if not texts or None in texts or any("," in str(text) for text in texts):
            return None
        return f"{field.name}:in:{','.join(map(str, texts))}"
    operator = _COMPARED.get(type(inner))
    text = _text(field, getattr(inner, "value", None))
    return None if operator is None or text is None else f"{field.name}:{operator}:{text}"


def _text(field: Field, value: Any) -> str | None:
    """A value as conditions spell it; None if the column's type or the value has no such spelling."""
    match field.type:
        case Int64() | TimestampNs() if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        case Bool() if isinstance(value, bool):
            return str(value).lower()
        case Date() if type(value) is datetime.date:
            return value.isoformat()
        case String() if isinstance(value, str) and value != "null":
            return value
    return None
