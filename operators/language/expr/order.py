"""Orders: the columns that ranks, lags and the like look along, each upwards or downwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vernier.operators.language.expr.expression import Expr

Orders = tuple[tuple[str, bool], ...]
"""(column, descending) pairs, the first one the most important."""


@dataclass(frozen=True)
class Order:
    """A column and its direction, `col("price").desc()`: upwards nulls come first, downwards last, as in Spark."""

    column: Expr
    descending: bool = False

    def __repr__(self) -> str:
        return f"{self.column!r}.{'desc' if self.descending else 'asc'}()"
