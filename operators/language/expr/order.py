"""Orders: the columns by which ranks, lags and the like sort, each ascending or descending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vernier.operators.language.expr.expression import Expr

Orders = tuple[tuple[str, bool], ...]
"""(column, descending) pairs, the most significant first."""


@dataclass(frozen=True)
class Order:
    """A column and its direction, `col("price").desc()`: ascending has nulls first, descending last, as in Spark."""

    column: Expr
    descending: bool = False

    def __repr__(self) -> str:
        return f"{self.column!r}.{'desc' if self.descending else 'asc'}()"
