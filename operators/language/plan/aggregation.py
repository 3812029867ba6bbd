"""Aggregations as parts of a node, and their result types, given the types of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.evaluate import Bound
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.types.decimals import MAX_PRECISION, Decimal
from vernier.operators.language.types.scalars import Float64, Int64, Type, spell
from vernier.operators.language.types.texts import List


@dataclass(frozen=True, eq=False)
class Aggregation:
    """One aggregate. `kind` as in aggregates.py; `expr` is its argument, None to count rows; `more` are further
    arguments; `option` is a further parameter, with a key() where str() does not determine it."""

    hidden: ClassVar[frozenset[str]] = frozenset(("parts",))
    """Kinds that have no column in the output."""
    belongs_in: ClassVar[str] = 'an aggregate belongs in .group_by("key").agg(name=...)'
    """The hint for an aggregate that is used as a value of each row."""

    kind: str
    expr: Expr | None = None
    more: tuple[Expr, ...] = ()
    option: Any = None

    @property
    def args(self) -> tuple[Expr, ...]:
        """All expressions that it reads."""
        return (() if self.expr is None else (self.expr,)) + self.more

    def key(self) -> tuple[Any, ...]:
        """A hashable form, equal for equal meaning."""
        option = self.option.key() if hasattr(self.option, "key") else str(self.option)
        return (self.kind, tuple(expr.key() for expr in self.args), option)

    def __repr__(self) -> str:
        option = () if self.option is None else (self.option,)
        return f"{self.kind}({', '.join(map(str, (*self.args, *option)))})"


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
        case "component":
            return Int64(), False
        case "only":
            return args[0].type, option
        case "sum":
            return _number(args[0], text, Int64(), 10, 0), nullable
        case "avg":
            return _number(args[0], text, Float64(), 4, 4), True
        case "var_pop" | "var_samp":
            return Float64(), True
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
