"""Budget: how much memory a worker may hold while a slice runs, and which operator wants more than there is.

Operators whose output may be larger than their input (joins, table functions, reductions with a logic) produce it in
pieces. They count what they hold, and before that grows much further the budget compares the process's memory with its
limit. The comparison is triggered by growth in bytes, not by a number of rows or steps, so small slices never reach it.

The output of a step goes to the next operators, which sort and keep it. A step must leave memory for that: `DOWNSTREAM`
times the size of its output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from vernier.operators.failures import EpochTooLarge, MachineFull
from vernier.storage import memory
from vernier.storage.trace import spill
from vernier.storage.updates import Ints, consolidate_rows, together

PIECE = 1 << 20
"""About how many rows an operator produces in one piece."""
COUNTED = 1 << 12
"""Rows from which operators count a part of their output. Smaller parts, of which a step has few, are not worth it."""
DOWNSTREAM = 2
"""The memory that downstream operators need for the output of a step, as a multiple of its size."""
SHARE = 0.75
"""The part of the machine's memory that the workers of a process may use if no limit is set."""
_LEFT = 0.03
"""The part of the machine's memory that a worker leaves to other processes."""
_SAMPLE = 1 << 15
"""Rows in a sample that estimates whether the rows of a part add up."""
_SCATTER = 2_654_435_761
"""The step between sampled rows of a part: a prime, so that the sample does not follow a pattern of the rows."""


@cache
def _usable() -> int:
    return memory.usable_bytes()


class Budget:
    """What the process of a worker may hold. limit: bytes of its own memory; None for `SHARE` of the machine's memory.

    held, left: functions that measure how much the process has and how much more the machine can give it.
    """

    def __init__(
        self,
        limit: int | None = None,
        *,
        held: Callable[[], int] = memory.private_bytes,
        left: Callable[[], int | None] = memory.available_bytes,
    ) -> None:
        self.limit = int(SHARE * _usable()) if limit is None else limit
        self._held, self._left = held, left

    def check(self, more: int, op: Any, sizes: Callable[[], str]) -> None:
        """Raises EpochTooLarge or MachineFull if `more` bytes exceed what is left. op: the plan's operator that needs
        them; sizes: describes its current work for the error message. Takes about ten microseconds, a hundred near the
        limit.
        """
        held = self._held()
        if held + more <= self.limit and not self._scarce(more):
            return
        # The allocator may still hold memory that has been freed.
        spill.return_memory()
        held = self._held()
        if held + more > self.limit:
            raise EpochTooLarge(
                operator=op.name, line=op.line, sizes=sizes(), more=more, held=held, limit=self.limit
            )  # fmt: skip
        if self._scarce(more):
            raise MachineFull(operator=op.name, line=op.line, sizes=sizes(), more=more, held=held)

    def refused(self, op: Any) -> EpochTooLarge:
        """The error for an operator to which the system refused memory, for example because of an rlimit."""
        sizes, held = "the system refused to give the process more", self._held()
        return EpochTooLarge(operator=op.name, line=op.line, sizes=sizes, more=0, held=held, limit=self.limit)

    def _scarce(self, more: int) -> bool:
        """Whether the machine itself has too little memory for `more` additional bytes."""
        left = self._left()
        return left is not None and more + _LEFT * _usable() > left


class Yield:
    """Keeps the parts of a step's output small: consolidates rows that add up as they arrive, and counts the rest.

    columns: the columns that decide whether rows are equal; op: the plan's operator. Steps of less than a piece cost
    nothing. `sizes(*of)` describes the work that a part came from, for error messages.
    """

    def __init__(self, budget: Budget, columns: Ints, op: Any) -> None:
        self._budget, self._columns, self._op = budget, columns, op
        self._rows = self._largest = 0
        self._look_at = PIECE
        self._source: tuple[Callable[..., str], tuple[Any, ...]] | None = None

    @property
    def sizes(self) -> str | None:
        """The work that the largest part of the step came from."""
        if self._source is None:
            return None
        sizes, of = self._source
        return sizes(*of)

    def begin(self) -> None:
        """Begin a step."""
        if self._rows:
            self._rows, self._look_at = 0, PIECE
            self._largest, self._source = 0, None

    def add(self, rows: Ints, given: list[Ints], sizes: Callable[..., str], *of: Any) -> None:
        """Account for more rows. Those of this step were just appended to `given`, the list of all parts of the step;
        the others wait for a later round. Raises as `Budget.check`.

        O(1). Every few million rows it takes a sample and, if the sample shows that rows add up, sorts all rows given.
        """
        count = len(rows)
        self._rows += count
        if count > self._largest:
            self._largest, self._source = count, (sizes, of)
        if self._rows < self._look_at:
            return
        if given and _adds_up(given[-1], self._columns):
            before = sum(map(len, given))
            given[:] = [consolidate_rows(np.ascontiguousarray(together(given)), self._columns)]
            self._rows = max(len(given[0]), self._rows - before + len(given[0]))
        self._look_at = max(PIECE, min(2 * self._rows, self._rows + 4 * PIECE))
        self._check(8 * rows.shape[1], sizes, of)

    def _check(self, row_bytes: int, sizes: Callable[..., str], of: tuple[Any, ...]) -> None:
        """Check the rows held against the budget."""
        rows = self._rows
        self._budget.check(DOWNSTREAM * rows * row_bytes, self._op, lambda: f"{sizes(*of)}, {rows:,} rows so far")


def _adds_up(part: Ints, columns: Ints) -> bool:
    """Whether consolidation would at least halve a part, estimated from a sample: if it would, about this many equal
    rows meet in the sample by chance."""
    if len(part) <= _SAMPLE:
        return len(part) > 0 and 2 * len(consolidate_rows(np.ascontiguousarray(part), columns)) <= len(part)
    sample = part[np.arange(_SAMPLE) * _SCATTER % len(part)]
    return _SAMPLE - len(consolidate_rows(sample, columns)) >= _SAMPLE * _SAMPLE // len(part)
