"""Runs the program's own aggregates (operators/language/plan/useraggregates.py) on the groups of a wave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from vernier.operators.errors import BadValue
from vernier.operators.failures import UserCodeFailed
from vernier.operators.kernels.calling import LOOPS
from vernier.operators.language.expr.functions import function_location, function_name
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.language.plan.useraggregates import UserAggregate
from vernier.operators.language.types.scalars import Values, spell
from vernier.operators.language.types.schema import Field
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import Ints

Mask = np.ndarray[Any, np.dtype[np.bool_]]

_TIMES = {"Date": "datetime64[D]", "TimestampNs": "datetime64[ns]"}
_SAMPLE = 5
"""How many input values an error shows."""


class Caller:
    """One aggregate of the program on its columns. A compiled one is compiled here, once per worker."""

    def __init__(self, user: UserAggregate, fields: Sequence[Field]) -> None:
        self.user, self.fields = user, fields
        self.result = Field("result", user.returns, user.nullable, 0)
        function = user.function
        self._named = str(function_location(function)), function_name(function)
        self.compiled = function if not user.compiled or hasattr(function, "py_func") else numba.njit(function)

    def __call__(self, vals: Ints, counts: Ints, group_of: Ints, groups: int, heap: Heap | None) -> tuple[Ints, Mask]:
        """The aggregate of `groups` groups: rows int64[n, v] with copies int64[n], group after group.

        Returns (int64[groups, words] without the null word, bool[groups]: whether there is a value). The function is
        not called for groups without rows. Raises UserCodeFailed.
        """
        words = np.zeros((groups, self.user.returns.words), np.int64)
        found = np.zeros(groups, np.bool_)
        if len(vals) == 0:
            return words, found
        full, starts = np.unique(group_of, return_index=True)
        offsets = np.append(starts, len(vals)).astype(np.int64)
        columns = [self._column(field, vals, heap) for field in self.fields]
        try:
            with running(Call("aggregate", *self._named, _shown), columns):
                given = self._call(columns, counts, offsets)
            values = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else _array(given)
            if len(values) != len(full):
                raise ValueError(f"it returned {len(values)} values for {len(full)} groups")
            result = self.result.encode(values, heap)
        except BadValue as error:
            kind = spell(self.user.returns, self.user.nullable)
            raise self._failed(columns, f"what it returned is not {kind}: {error.problem}") from error
        except (Exception, SystemExit) as error:
            raise self._failed(columns, f"{type(error).__name__}: {error}") from error
        words[full] = result[:, int(self.user.nullable) :]
        found[full] = result[:, 0] != 0 if self.user.nullable else True
        return words, found

    def _call(self, columns: Sequence[Any], counts: Ints, offsets: Ints) -> Any:
        if not self.user.compiled:
            return self.user.function(*columns, counts, offsets)
        given = np.empty(len(offsets) - 1, self.user.returns.numpy)
        LOOPS[len(columns)](self.compiled, *columns, counts, offsets, given)
        return given

    def _column(self, field: Field, vals: Ints, heap: Heap | None) -> Any:
        """The values of a column without nulls, in the form that the function takes."""
        kind = field.type
        words = np.ascontiguousarray(vals[:, field.value_offset : field.offset + field.words])
        values = kind.from_words(words, heap)
        if isinstance(values, pa.Array):
            return values
        if kind.name in _TIMES and not self.user.compiled:
            return values.astype(_TIMES[kind.name])
        return np.ascontiguousarray(values)

    def _failed(self, columns: Sequence[Any], cause: str) -> UserCodeFailed:
        where, name = self._named
        return UserCodeFailed(operator="aggregate", where=where, function=name, sample=_shown(columns), cause=cause)


def _shown(columns: Sequence[Any]) -> str:
    """The first few values of each column."""
    return repr([list(column[:_SAMPLE]) for column in columns])


def _array(given: Any) -> pa.Array | Values:
    values = np.asarray(given)
    return pa.array(given) if values.dtype == object else values
