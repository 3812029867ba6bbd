"""Nodes of reductions: those with a logic (any function of the rows of a key), and those that depend on multiplicities
alone."""

from dataclasses import dataclass
from typing import ClassVar

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.language.plan.node import Node, Params
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True, eq=False)
class ThresholdNode(Node):
    """Each row whose multiplicity is at least `copies` (1 or more), once."""

    kind: ClassVar[str] = "threshold"
    input: Node
    copies: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return (self.copies,)


@dataclass(frozen=True, eq=False)
class CopiesNode(Node):
    """The rows whose multiplicity is above 0, with their multiplicity."""

    kind: ClassVar[str] = "copies"
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class ReduceNode(Node):
    """The rows that the logic makes from the rows of each key: the key's columns, then those that the logic adds.

    `keys` are columns of the input, at least one. The logic sees all other columns, in order.
    """

    kind: ClassVar[str] = "reduce"
    input: Node
    keys: tuple[str, ...]
    spec: LogicSpec

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def params(self) -> Params:
        return (self.keys, self.spec.name, self.spec.key())

    @property
    def key_row(self) -> RowType:
        """The key's columns."""
        return self.input.schema.take(self.keys)

    @property
    def val_row(self) -> RowType:
        """The columns that the logic sees."""
        row = self.input.schema
        return row.take([name for name in row.names if name not in self.keys])

    def _schema(self) -> RowType:
        key, val = self.key_row, self.val_row
        parts = (*key.fields, *self.spec.schema(key, val).fields)
        return RowType((f.name, f.type, f.nullable) for f in parts)
