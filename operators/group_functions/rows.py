"""Logic of `reduce(fn)`: a function of the program computes the output from the rows of one key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vernier.operators.errors import BadValue
from vernier.operators.failures import UserCodeFailed
from vernier.operators.group_functions.logic import Groups, Logic, LogicSpec, Produced
from vernier.operators.language.expr.functions import function_key, function_location, function_name
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.language.plan.tables import TooManyRows, check_rows
from vernier.operators.language.types.schema import RowType

if TYPE_CHECKING:  # these bring numba, which a program that is only built does not need
    from vernier.storage.strings.string_heap import Heap
    from vernier.storage.updates import Ints

RowFunction = Callable[[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]], Iterable[Any]]
"""`fn(key, [(row, multiplicity), ...])` returns rows, or (row, multiplicity) pairs."""

_SAMPLE = 3
"""How many rows of a group an error shows."""
_BLOCK = 1 << 16
"""How many rows are taken from a function at a time."""


@dataclass(frozen=True)
class ReduceRows(LogicSpec):
    """Rows of `returns` for each key, made by `function` from the key's rows."""

    name: ClassVar[str] = "reduce"
    steady: ClassVar[bool] = False
    by_group: ClassVar[bool] = True
    function: RowFunction
    returns: RowType

    @property
    def title(self) -> str:
        return f"reduce by {function_name(self.function)}"

    def key(self) -> tuple[Any, ...]:
        return (function_key(self.function), *map(tuple, self.returns.to_json()))

    def schema(self, key: RowType, val: RowType) -> RowType:
        return self.returns

    def compile(self, key: RowType, val: RowType) -> Logic:
        def run(groups: Groups) -> Produced:
            keys, rows = key.decode_rows(groups.keys, groups.heap), val.decode_rows(groups.vals, groups.heap)
            pairs = list(zip(rows, groups.counts.tolist(), strict=True))
            offsets, made, counts = [0], [], []
            ends = zip(groups.offsets[:-1].tolist(), groups.offsets[1:].tolist())
            with running(Call("reduce", str(function_location(self.function)), function_name(self.function))) as call:
                for group, (start, stop) in enumerate(ends):
                    call.given = keys[group], pairs[start : min(stop, start + _SAMPLE)]
                    for row, count in self._call(keys[group], pairs[start:stop]):
                        made.append(row)
                        counts.append(count)
                    check_rows(len(made))
                    offsets.append(len(made))
            words = self._encode(made, groups.heap)
            return Produced(np.array(offsets, np.int64), words, np.array(counts, np.int64))

        return run

    def _call(self, key: tuple[Any, ...], rows: list[tuple[tuple[Any, ...], int]]) -> list[tuple[tuple[Any, ...], int]]:
        """The function's output for one key, as (row, multiplicity) pairs. An error in it is raised with its input."""
        given: list[tuple[tuple[Any, ...], int]] = []
        try:
            rest, width, full = iter(self.function(key, rows)), len(self.returns.fields), True
            # In blocks, so that a function that never ends is noticed before it fills the memory.
            while full:
                block = list(islice(rest, _BLOCK))
                given += [_pair(one, width) for one in block if one is not None]
                full = len(block) == _BLOCK
                check_rows(len(given))
            return given
        except TooManyRows:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed((key, rows[:_SAMPLE]), f"{type(error).__name__}: {error}") from error

    def _encode(self, rows: list[tuple[Any, ...]], heap: Heap | None) -> Ints:
        try:
            return self.returns.encode_rows(rows, heap)
        except BadValue as error:
            raise self._failed(rows[:_SAMPLE], f"what it returned is not {self.returns}: {error}") from error

    def _failed(self, sample: object, cause: str) -> UserCodeFailed:
        where, name = str(function_location(self.function)), function_name(self.function)
        return UserCodeFailed(operator="reduce", where=where, function=name, sample=repr(sample), cause=cause)


def _pair(one: Any, width: int) -> tuple[tuple[Any, ...], int]:
    """An output row with its multiplicity: 1, unless it comes as a pair of a row and an integer."""
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple):
        row, count = one
        # A tuple of `width` values with an integer is a row with its multiplicity. In a schema of two columns this also
        # holds for a Struct of two fields that the function returns as a tuple; as a dict it is not mistaken.
        if isinstance(count, (int, np.integer)) and not isinstance(count, bool) and len(row) == width:
            return row, int(count)
    if not isinstance(one, tuple):
        raise TypeError(f"it must return tuples, not {one!r}")
    return one, 1
