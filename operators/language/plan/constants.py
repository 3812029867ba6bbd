"""Constant rows: a collection that has them from the beginning of time and never changes."""

from dataclasses import dataclass
from typing import Any, ClassVar

from vernier.operators.language.plan.node import Node, Params
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True, eq=False)
class ConstantNode(Node):
    """Rows that are always there. rows: Python values in the order of the columns."""

    kind: ClassVar[str] = "constant"
    row: RowType
    rows: tuple[tuple[Any, ...], ...]

    def params(self) -> Params:
        return (*map(tuple, self.row.to_json()), *map(repr, self.rows))

    def _schema(self) -> RowType:
        return self.row
