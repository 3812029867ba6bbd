"""A value of each type, to stand where there is none: beside a column that says that it is null."""

from __future__ import annotations

import decimal

from vernier.operators.language.expr.expression import Cast, Expr, Literal
from vernier.operators.language.types.decimals import Decimal
from vernier.operators.language.types.scalars import Bool, Date, Float64, Int64, TimestampNs, Type
from vernier.operators.language.types.texts import String
from vernier.operators.sql.refusals import refuse


def default_of(kind: Type) -> Expr:
    """A constant of the type."""
    match kind:
        case Int64() | Date() | TimestampNs():
            return Literal(0, kind)
        case Float64():
            return Literal(0.0, kind)
        case Bool():
            return Literal(False, kind)
        case String():
            return Literal("", kind)
        case Decimal():
            return Cast(Literal(decimal.Decimal(0), Decimal(1, 0)), kind)
    raise refuse(
        f"values of type {kind} cannot be compared with nulls equal; compare their parts", "intersect", "except"
    )
