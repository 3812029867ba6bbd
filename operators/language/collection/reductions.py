"""Nodes of reductions: those with a logic (any function of the rows of a key), and those that depend on multiplicities
alone."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from vernier.operators.group_functions.logic import LogicSpec
from vernier.operators.language.plan.node import Multiplicity, Params, UnaryNode
from vernier.operators.language.types.scalars import Int64
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True, eq=False)
class ThresholdNode(UnaryNode):
    """Each row whose multiplicity is at least `copies` (1 or more), once."""

    kind: ClassVar[str] = "threshold"
    copies: int

    def params(self) -> Params:
        return (self.copies,)

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.SET

    def unique_by(self, keys: Collection[str]) -> bool:
        return set(self.schema.names) <= set(keys)


@dataclass(frozen=True, eq=False)
class ExistsNode(UnaryNode):
    """Each key with a row whose multiplicity is not 0, once. Its column `name` is 1 if a row of the key is present
    (multiplicity above 0), else 0. `keys` are columns of the input."""

    kind: ClassVar[str] = "exists"
    keys: tuple[str, ...]
    name: str

    def params(self) -> Params:
        return (self.keys, self.name)

    def _schema(self) -> RowType:
        fields = self.input.schema.take(self.keys).fields
        return RowType((*((f.name, f.type, f.nullable) for f in fields), (self.name, Int64(), False)))

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.SET

    def unique_by(self, keys: Collection[str]) -> bool:
        return set(self.keys) <= set(keys)


@dataclass(frozen=True, eq=False)
class CopiesNode(UnaryNode):
    """The rows whose multiplicity is above 0, with their multiplicity."""

    kind: ClassVar[str] = "copies"

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.POSITIVE


@dataclass(frozen=True, eq=False)
class ReduceNode(UnaryNode):
    """The rows that the logic makes from the rows of each key: the key's columns, then those that the logic adds.

    `keys` are columns of the input, at least one. The logic sees all other columns, in order.
    """

    kind: ClassVar[str] = "reduce"
    keys: tuple[str, ...]
    spec: LogicSpec

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

    def _multiplicity(self) -> Multiplicity:
        return Multiplicity.POSITIVE if self.spec.positive else Multiplicity.ANY
