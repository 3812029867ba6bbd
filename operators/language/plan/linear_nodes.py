"""Nodes of the row-wise operators that can turn one row into many, or move it in time."""

from dataclasses import dataclass
from typing import ClassVar

from vernier.operators.language.plan.node import Multiplicity, Params, UnaryNode
from vernier.operators.language.plan.tables import TableFunction
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True, eq=False)
class ExpandNode(UnaryNode):
    """The rows that a table function makes from each row; multiplicities multiply, and times are joined (least upper
    bound)."""

    kind: ClassVar[str] = "expand"
    table: TableFunction

    def params(self) -> Params:
        return self.table.key()

    def _schema(self) -> RowType:
        return self.table.schema(self.input.schema)

    def _multiplicity(self) -> Multiplicity:
        return min(Multiplicity.POSITIVE, self.input.multiplicity) if self.table.positive else Multiplicity.ANY


@dataclass(frozen=True, eq=False)
class LaterNode(UnaryNode):
    """The same rows at later times: rounded up to multiples of `ns` or, for a `delay`, later by `ns`."""

    kind: ClassVar[str] = "later"
    ns: int
    delay: bool

    def params(self) -> Params:
        return (self.ns, self.delay)

    def _multiplicity(self) -> Multiplicity:
        return min(Multiplicity.POSITIVE, self.input.multiplicity)
