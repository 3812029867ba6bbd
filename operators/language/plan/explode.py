"""explode: a row for each element of a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from vernier.operators.errors import WrongType
from vernier.operators.language.expr.evaluate import Heap
from vernier.operators.language.plan.tables import Expanded, Expansion, TableFunction, spread
from vernier.operators.language.types.scalars import Int64, Words, spell
from vernier.operators.language.types.schema import RowType, check_name
from vernier.operators.language.types.texts import List


class Explode(TableFunction):
    """All columns; the elements replace their list, with their positions if asked for. No rows for null and for []."""

    name = "explode"
    total = True

    def __init__(self, column: str, element: str, index: str | None) -> None:
        check_name(element, "the column of explode")
        if index is not None:
            check_name(index, "the index of explode")
        self.column, self.element, self.index = column, element, index

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return (self.name, self.column, self.element, self.index)

    def reads(self, row: RowType) -> frozenset[str]:
        """See TableFunction."""
        return frozenset((self.column,))

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        field = row.field(self.column)
        if not isinstance(field.type, List):
            raise WrongType(
                problem=f"explode takes a List, but column {field.name!r} is {spell(field.type, field.nullable)}"
            )
        element = field.type.element
        columns = [(f.name, f.type, f.nullable) for f in row.fields]
        at = row.names.index(field.name)
        columns[at] = (self.element, element.type, element.nullable)
        if self.index is not None:
            columns.insert(at + 1, (self.index, Int64(), False))
        return RowType(columns)

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        field, made = row.field(self.column), self.schema(row)
        new = made.field(self.element).words + (self.index is not None)
        behind = field.offset + field.words
        return (*range(field.offset), *(-1 for _ in range(new)), *range(behind, row.width))

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows and elements), vectorised."""
        field, made = row.field(self.column), self.schema(row)
        behind = field.offset + field.words

        def expand(rows: Words, heap: Heap) -> Expanded:
            lists = field.decode(rows[:, field.offset : behind], heap)
            counts = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)
            parent, place = spread(counts)
            parts = [rows[parent, : field.offset], made.field(self.element).encode(lists.flatten(), heap)]
            if self.index is not None:
                parts.append(place.reshape(-1, 1))
            return Expanded(parent, np.hstack([*parts, rows[parent, behind:]]))

        return expand
