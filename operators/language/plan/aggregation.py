"""The result types of aggregates, given the types of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.evaluate import Bound
from vernier.operators.language.types.decimals import MAX_PRECISION, Decimal
from vernier.operators.language.types.scalars import Float64, Int64, Type, spell
from vernier.operators.language.types.texts import List


def aggregate_type(kind: str, args: Sequence[Bound], option: Any, text: str) -> tuple[Type, bool]:
    """The type and nullability of an aggregate with these arguments; `text` names it in errors. Raises WrongType.

    As in Spark, a sum of decimals has ten more digits, and their mean four more on either side of the decimal point.
    """
    nullable = any(arg.nullable for arg in args)
    match kind:
        case "count" | "count_distinct":
            for arg in args:
                _ = arg.type
            return Int64(), False
        case "sum":
            return _number(args[0], text, Int64(), 10, 0), nullable
        case "avg":
            return _number(args[0], text, Float64(), 4, 4), True
        case "min" | "max" | "mode" | "quantile" | "arg_min" | "arg_max":
            return args[0].type, nullable
        case "collect_list" | "collect_set":
            return List(args[0].type), False
        case "user":
            return option.returns, option.nullable
    raise WrongType(problem=f"there is no aggregate {kind!r}")


def _number(arg: Bound, text: str, of_integers: Type, digits: int, scale: int) -> Type:
    match arg.type:
        case Int64():
            return of_integers
        case Float64():
            return Float64()
        case Decimal() as kind:
            return Decimal(min(MAX_PRECISION, kind.precision + digits), min(MAX_PRECISION, kind.scale + scale))
    raise WrongType(problem=f"{text} needs numbers (Int64, Float64 or Decimal), but {spell(arg.type, arg.nullable)}")
