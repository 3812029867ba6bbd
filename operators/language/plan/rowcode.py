"""Functions of the program that make rows from a row, for `flat_map`.

They run in Python, once for each change of a row, and cost a microsecond or more per call; expressions and the table
functions cost a hundredth of that. They must be deterministic, because a retraction runs them again.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from vernier.operators.failures import UserCodeFailed
from vernier.operators.language.expr.evaluate import Heap
from vernier.operators.language.expr.functions import function_name
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.language.plan.programfunction import ProgramFunction
from vernier.operators.language.plan.tables import Expanded, Expansion, TooManyRows, check_rows
from vernier.operators.language.types.scalars import Words
from vernier.operators.language.types.schema import RowType
from vernier.storage.errors import CallerError

_BLOCK = 1 << 16
"""How many rows are taken from a function at a time."""


class RowFunction(ProgramFunction):
    """`function(row)` returns the rows: an iterable of tuples in the order of `returns`, or of dicts by name."""

    name = "flat_map"
    by_row = True

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. Calls the function once for each row. The compiled function raises UserCodeFailed."""
        # namedtuple refuses names that begin with _; such columns are hidden and programs cannot name them.
        made = namedtuple("Row", row.names, rename=True)  # type: ignore[misc]

        def expand(rows: Words, heap: Heap) -> Expanded:
            with running(Call(self.name, self.where, function_name(self.function))) as call:
                out, counts = called(row.decode_rows(rows, heap), call)
            parent = np.repeat(np.arange(len(rows)), counts)
            return Expanded(parent, self._encode(out, parent, row, rows, heap))

        def called(rows: Sequence[Any], call: Call) -> tuple[list[Any], Words]:
            out: list[Any] = []
            counts = np.empty(len(rows), np.int64)
            for i, values in enumerate(rows):
                before, given = len(out), made(*values)
                call.given = given
                try:
                    rest = iter(self.function(given))
                    # In blocks, so that a function that never ends is noticed before it fills the memory.
                    full = True
                    while full:
                        taken = len(out)
                        out.extend(islice(rest, _BLOCK))
                        full = len(out) == taken + _BLOCK
                        check_rows(len(out))
                except TooManyRows:
                    raise
                except (Exception, SystemExit) as error:
                    raise self._failed(given, f"{type(error).__name__}: {error}") from error
                counts[i] = len(out) - before
            return out, counts

        return expand

    def _encode(self, out: list[Any], parent: Words, row: RowType, rows: Words, heap: Heap) -> Words:
        try:
            for place, item in enumerate(out):
                if not isinstance(item, (tuple, dict)):
                    said = f"it returned {item!r}, but each row must be a tuple or a dict of {self.returns}"
                    raise self._failed(row.decode_rows(rows[parent[place : place + 1]], heap)[0], said)
            return self.returns.encode_rows(out, heap)
        except CallerError as error:
            if isinstance(error, UserCodeFailed):
                raise
            # Find out which row failed: encode them one at a time, which is affordable now that there is an error.
            for place, item in enumerate(out):
                try:
                    self.returns.encode_rows([item], heap)
                except CallerError as problem:
                    sample = row.decode_rows(rows[parent[place : place + 1]], heap)[0]
                    raise self._failed(sample, f"it returned {item!r}: {problem}") from problem
            raise
        except KeyError as error:
            raise self._failed((), f"it returned a dict without {error}, one of {self.returns}") from error

    def _failed(self, sample: object, cause: str) -> UserCodeFailed:
        name = function_name(self.function)
        return UserCodeFailed(
            operator=self.name, where=str(self.where), function=name, sample=repr(sample), cause=cause
        )
