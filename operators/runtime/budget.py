"""Budget: how much memory a worker may hold while a slice runs, and who asks for more than there is.

Operators that give more than they take (joins, tables of rows, reductions by a logic) make what they give in pieces.
They count what they hold, and before it grows by much more the budget compares what the process has with what it may
have. So the comparison is a matter of bytes that grow, never of rows or steps: small slices never come to it.

What a step gives goes on to the next operators, which sort and keep it, so a step must leave room for that:
`DOWNSTREAM` times what it gives.
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
"""Rows that an operator gives in one piece, about."""
DOWNSTREAM = 2
"""Times its own bytes that what a step gives takes in the operators behind it."""
SHARE = 0.75
"""The part of what the machine has that the workers of a process may take, where nobody says how much."""
_LEFT = 0.03
"""The part of what the machine has that a worker leaves for others."""
_SAMPLE = 1 << 15
"""Rows of a part of which it is tried whether they add up."""
_SCATTER = 2_654_435_761
"""Steps in which a sample goes through a part: a prime, so that it meets no pattern of the rows."""


@cache
def _usable() -> int:
    return memory.usable_bytes()


class Budget:
    """What the process of a worker may hold. limit: bytes of its own memory, None for the most of what the machine has.

    held, left: how much the process has, and how much more the machine has for it.
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

    def check(self, more: int, who: Any, sizes: Callable[[], str]) -> None:
        """Raises EpochTooLarge or MachineFull when `more` bytes are beyond what there is. who: the operator of the plan
        that wants them; sizes: what it is at, for a person. Some ten microseconds, a hundred when it is near the limit.
        """
        held = self._held()
        if held + more <= self.limit and not self._scarce(more):
            return
        # What has been freed may still be in the allocator's hands.
        spill.give_back()
        held = self._held()
        if held + more > self.limit:
            raise EpochTooLarge(
                operator=who.name, line=who.line, sizes=sizes(), more=more, held=held, limit=self.limit
            )  # fmt: skip
        if self._scarce(more):
            raise MachineFull(operator=who.name, line=who.line, sizes=sizes(), more=more, held=held)

    def refused(self, who: Any) -> EpochTooLarge:
        """The error for an operator that the system has given no memory, as an rlimit does."""
        sizes, held = "the system gives the process no more", self._held()
        return EpochTooLarge(operator=who.name, line=who.line, sizes=sizes, more=0, held=held, limit=self.limit)

    def _scarce(self, more: int) -> bool:
        """Whether the machine itself has too little for so many bytes more."""
        left = self._left()
        return left is not None and more + _LEFT * _usable() > left


class Yield:
    """The parts of what a step gives, kept small: rows that add up are added up as they come, and the rest is counted.

    columns: by which rows are equal; who: the operator of the plan. Small steps, of less than a piece, cost nothing.
    """

    def __init__(self, budget: Budget, columns: Ints, who: Any) -> None:
        self._budget, self._columns, self._who = budget, columns, who
        self._rows = 0
        self._look_at = PIECE

    def begin(self) -> None:
        """Begin a step."""
        self._rows, self._look_at = 0, PIECE

    def add(self, given: list[Ints], sizes: Callable[[], str]) -> None:
        """A part has been put at the end of `given`, which are all parts of the step. Raises what `Budget.check` does.

        O(1); each few million rows a sample, and where that says that rows add up the sort of what is there.
        """
        self._rows += len(given[-1])
        if self._rows < self._look_at:
            return
        if _adds_up(given[-1], self._columns):
            given[:] = [consolidate_rows(np.ascontiguousarray(together(given)), self._columns)]
            self._rows = len(given[0])
        self._look_at = max(PIECE, min(2 * self._rows, self._rows + 4 * PIECE))
        self.check(8 * given[-1].shape[1], sizes)

    def wait(self, rows: Ints, sizes: Callable[[], str]) -> None:
        """Rows of the step wait for a later round."""
        self._rows += len(rows)
        if self._rows >= self._look_at:
            self._look_at = self._rows + 4 * PIECE
            self.check(8 * rows.shape[1], sizes)

    def check(self, row_bytes: int, sizes: Callable[[], str]) -> None:
        """Compare what is there with the budget."""
        rows = self._rows
        self._budget.check(DOWNSTREAM * rows * row_bytes, self._who, lambda: f"{sizes()}, {rows:,} rows so far")


def _adds_up(part: Ints, columns: Ints) -> bool:
    """Whether a part's rows add up to half as many, by a sample: so many equal ones meet in it by chance then."""
    if len(part) <= _SAMPLE:
        return len(part) > 0 and 2 * len(consolidate_rows(np.ascontiguousarray(part), columns)) <= len(part)
    sample = part[np.arange(_SAMPLE) * _SCATTER % len(part)]
    return _SAMPLE - len(consolidate_rows(sample, columns)) >= _SAMPLE * _SAMPLE // len(part)
