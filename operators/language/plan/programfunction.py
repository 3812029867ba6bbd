"""Table functions that are functions of the program: what they are known by, and the columns that they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vernier.operators.language.expr.functions import check_function, function_key, function_location
from vernier.operators.language.plan.tables import TableFunction
from vernier.operators.language.types.schema import RowType
from vernier.operators.location import NOWHERE, Location


class ProgramFunction(TableFunction):
    """A table function that calls `function`, which gives rows of the columns `returns` and repeats no word of its
    input. more: what else its meaning depends on."""

    def __init__(self, function: Callable[[Any], Any], returns: RowType, where: Location, *more: object) -> None:
        check_function(function, self.name)
        self.function, self.returns = function, returns
        defined = function_location(function)
        self.where = where if defined is NOWHERE else defined
        self._key = (self.name, function_key(function), tuple(map(tuple, returns.to_json())), *more)

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return self._key

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        return self.returns

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return (-1,) * self.returns.width
