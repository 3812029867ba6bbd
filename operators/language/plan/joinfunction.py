"""Functions of the program as general linear operators, for `join_function`.

The function gets whole columns, and returns rows with the times and diffs of their updates: it describes the collection
that one input row stands for, and the operator is the join of its input with all these collections. So an update
`(row, time, diff)` becomes `(row', time ∨ time', diff · diff')` for each of them, and OP(x + y) = OP(x) + OP(y) holds
by construction: the function sees no times and no diffs. It runs in Python once per batch of changes, not once per row.
Source: "Generalizing linear operators".
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vernier.operators.errors import BadValue, WrongType, listed, meant
from vernier.operators.failures import UserCodeFailed
from vernier.operators.language.expr.compute.vector import as_arrow
from vernier.operators.language.expr.evaluate import Heap, bind
from vernier.operators.language.expr.expression import Column
from vernier.operators.language.expr.functions import function_name
from vernier.operators.language.expr.running_calls import Call, running
from vernier.operators.language.expr.user_columns import given_column, returned_column, shown_rows
from vernier.operators.language.plan.programfunction import ProgramFunction
from vernier.operators.language.plan.tables import Expanded, Expansion, check_rows
from vernier.operators.language.types.scalars import Words
from vernier.operators.language.types.schema import RowType
from vernier.operators.location import Location
from vernier.storage.time.lattice import CLOSED, MIN_TIME

Times = Literal["own", "at", "after"]
_SECONDS = CLOSED // 10**9 - 1
"""Times at most this many seconds from the epoch have nanoseconds that fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What a function of `join_function` returns: m updates for the n rows that it was given.

    columns: the columns of the rows by name, each with m values. row: integers[m], for each update the position of the
    input row that it comes from (None: m = n, one for each row, in order). diff: integers[m], multiplied with the
    row's (None: 1). time: the data time from which each update counts, integers of nanoseconds or datetime64[m]; the
    row's own time where that is later. after: integers of nanoseconds or timedelta64[m], how much later than the row's
    own time, 0 or more. `time` and `after` need `times="at"` and `times="after"` in join_function.
    """

    columns: Mapping[str, Any]
    row: Any = None
    diff: Any = None
    time: Any = None
    after: Any = None


class JoinFunction(ProgramFunction):
    """`function(rows)` with a named tuple of columns returns a `Produced`."""

    name = "join_function"
    positive = False

    def __init__(self, function: Callable[[Any], Produced], returns: RowType, times: Times, where: Location) -> None:
        super().__init__(function, returns, where, times)
        self.times = times
        self.waits, self.shifts = times != "own", times == "after"

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. Calls the function once for all rows. The compiled function raises UserCodeFailed."""
        # namedtuple refuses names that begin with _; such columns are hidden and programs cannot name them.
        made = namedtuple("Rows", row.names, rename=True)  # type: ignore[misc]
        bound = [bind(Column(name), row) for name in row.names]

        def columns(rows: Words, heap: Heap) -> Any:
            everything = np.ones(len(rows), np.bool_)
            found = []
            for part in bound:
                vector = part.compute(rows, heap)
                whole = as_arrow(vector, part.type) if part.nullable else given_column(vector, part.type, everything)
                found.append(whole)
            return made(*found)

        def expand(rows: Words, heap: Heap) -> Expanded:
            given = columns(rows, heap)
            try:
                with running(Call(self.name, self.where, function_name(self.function), shown_rows), given):
                    result = self.function(given)
            except (Exception, SystemExit) as error:
                raise self._failed(shown_rows(columns(rows, heap)), f"{type(error).__name__}: {error}") from error
            try:
                return self._expanded(result, rows, heap)
            except BadValue as error:
                raise self._failed(shown_rows(columns(rows, heap)), error.problem) from error
            except _BadUpdate as error:
                sample = row.decode_rows(np.ascontiguousarray(rows[error.row : error.row + 1]), heap)[0]
                raise self._failed(repr(sample), error.problem) from error

        return expand

    def _expanded(self, result: object, rows: Words, heap: Heap) -> Expanded:
        """The updates as words, all of them checked. Raises BadValue, _BadUpdate and TooManyRows."""
        if not isinstance(result, Produced):
            raise _bad(f"it returned {type(result).__name__}, not vn.Produced(columns, ...)")
        n, parent = len(rows), None if result.row is None else _integers("row", result.row)
        m = n if parent is None else len(parent)
        check_rows(m)
        if parent is None:
            parent = np.arange(n)
        elif m and not (int(parent.min()) >= 0 and int(parent.max()) < n):
            raise _bad(f"row holds positions from {parent.min()} to {parent.max()}, of {n} rows")
        diff = None if result.diff is None else _integers("diff", result.diff, m)
        time, after = self._times(result, parent, m)
        words = self._words(result.columns, m, heap)
        if diff is not None and not diff.all():  # an update with a diff of 0 is none
            some = np.flatnonzero(diff)
            parent, words, diff = parent[some], words[some], diff[some]
            time, after = (None if part is None else part[some] for part in (time, after))
        return Expanded(parent, words, diff, time, after)

    def _times(self, result: Produced, parent: Words, m: int) -> tuple[Words | None, Words | None]:
        for name, wanted in (("time", "at"), ("after", "after")):
            if (getattr(result, name) is None) == (self.times == wanted):
                said = f"without {name}" if self.times == wanted else f"with {name}"
                raise _bad(f"it returned updates {said}=, but join_function says times={self.times!r}")
        if self.times == "at":
            time = _integers("time", result.time, m)
            if m and int(time.max()) >= CLOSED:
                raise _BadUpdate(int(parent[time.argmax()]), "it returned a time at the end of all times, 2**63 - 1")
            return np.maximum(time, MIN_TIME), None
        if self.times == "after":
            after = _integers("after", result.after, m)
            if m and int(after.min()) < 0:
                said = f"it returned a time before the row's own: after={after.min()}"
                raise _BadUpdate(int(parent[after.argmin()]), said)
            return None, after
        return None, None

    def _words(self, columns: object, m: int, heap: Heap) -> Words:
        names = self.returns.names
        if not isinstance(columns, Mapping):
            raise _bad(f"columns is {type(columns).__name__}, not a dict of the columns {listed(names)}")
        for name in columns:
            if name not in names:
                raise _bad(f"it returned a column {name!r}{meant(str(name), names)}, none of {self.returns}")
        out = np.empty((m, self.returns.width), np.int64)
        for field in self.returns.fields:
            if field.name not in columns:
                raise _bad(f"it returned no column {field.name!r} of {self.returns}")
            try:
                array = returned_column(columns[field.name], field.type, field.nullable, m, field.name)
                out[:, field.offset : field.offset + field.words] = field.encode(array, heap)
            except BadValue as error:
                raise _bad(f"column {field.name}: {error.problem}") from error
        return out

    def _failed(self, sample: str, cause: str) -> UserCodeFailed:
        name = function_name(self.function)
        return UserCodeFailed(operator=self.name, where=str(self.where), function=name, sample=sample, cause=cause)


class _BadUpdate(Exception):
    """An update that cannot be: `row` is the position of the input row that it was made of."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(row, problem)
        self.row, self.problem = row, problem


def _bad(problem: str) -> BadValue:
    return BadValue(column="", problem=problem)


def _integers(name: str, values: Any, n: int | None = None) -> Words:
    """What a function returned as int64[n]; times as their nanoseconds. Raises BadValue."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise _bad(f"{name} is {values!r}, not an array of integers")
    if n is not None and len(array) != n:
        raise _bad(f"{name} has {len(array)} values for {n} rows")
    if len(array) == 0:
        return np.empty(0, np.int64)
    if (array.dtype.kind, name) in (("M", "time"), ("m", "after")):
        if bool(np.isnat(array).any()):
            raise _bad(f"{name} has a time that is none (NaT)")
        kind = "datetime64" if name == "time" else "timedelta64"
        seconds = array.astype(f"{kind}[s]").view(np.int64)
        if int(np.abs(seconds).max()) > _SECONDS:
            raise _bad(f"{name} has times that nanoseconds of 64 bits cannot hold")
        return array.astype(f"{kind}[ns]").view(np.int64)
    if array.dtype.kind not in "iu" or (array.dtype.kind == "u" and int(array.max()) >= 2**63):
        raise _bad(f"{name} is an array of {array.dtype}, not of integers of 64 bits, for example {array[0]!r}")
    return array.astype(np.int64)


def check_times(times: object) -> Times:
    """Raise WrongType for anything but a value of `times`."""
    if times in ("own", "at", "after"):
        return times
    raise WrongType(problem=f'times must be "own", "at" or "after", not {times!r}')
