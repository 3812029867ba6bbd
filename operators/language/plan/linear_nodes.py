"""Nodes of the row-wise operators that can turn one row into many, or move it in time."""

from dataclasses import dataclass
from typing import ClassVar

from vernier.operators.language.plan.node import Node, Params
from vernier.operators.language.plan.tables import TableFunction
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True, eq=False)
class ExpandNode(Node):
    """The rows that a table function makes from each row; multiplicities multiply, and times are joined (least upper
    bound)."""

    kind: ClassVar[str] = "expand"
    input: Node
    table: TableFunction

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return self.table.key()

    def _schema(self) -> RowType:
        return self.table.schema(self.input.schema)


@dataclass(frozen=True, eq=False)
class LaterNode(Node):
    """The same rows at later times: rounded up to multiples of `ns` or, for a `delay`, later by `ns`."""

    kind: ClassVar[str] = "later"
    input: Node
    ns: int
    delay: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return (self.ns, self.delay)
