"""Table functions: from one row to any number of rows, each with a factor for its multiplicity and a time until which
it waits.

They are general linear operators: `(row, time, diff) → (row', time ∨ time', diff · diff')`. A table function declares
its columns, and compiles to a function of many rows at once; chains of them fuse with other row-wise operators.
`flat_map` accepts them, as well as functions of the program (operators/language/plan/rowcode.py). Source: "Generalizing
linear operators".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np

from vernier.operators.errors import ProgramError, WrongType
from vernier.operators.failures import SeriesTooLong
from vernier.operators.language.expr.columns import as_column
from vernier.operators.language.expr.evaluate import Heap, bind
from vernier.operators.language.expr.expression import Expr, ExprLike, Literal
from vernier.operators.language.types.duration import nanoseconds
from vernier.operators.language.types.scalars import Date, Int64, TimestampNs, Words
from vernier.operators.language.types.schema import RowType, check_name
from vernier.storage.time.lattice import CLOSED, MIN_TIME

SERIES_ROWS = 1 << 26
"""How many rows one call of generate_series may make from a batch; more is treated as a mistake in the data."""


class Expanded(NamedTuple):
    """m output rows of n input rows. parent: int64[m], the input row of each; words: int64[m, width]; factor: int64[m],
    multiplied with the diff (None: 1); time: int64[m], the time until which the row waits (None: no waiting); after:
    int64[m], how much later than its input it is, 0 or more (None: 0)."""

    parent: Words
    words: Words
    factor: Words | None = None
    time: Words | None = None
    after: Words | None = None


Expansion = Callable[[Words, Heap], Expanded]


class TooManyRows(Exception):
    """A call would make more rows than `PIECE`; the caller repeats it with fewer input rows. rows: at least how
    many."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


PIECE = 1 << 20
"""The approximate number of rows that a call may make at most."""


class _Allowed(threading.local):
    rows = PIECE


_allowed = _Allowed()


@contextmanager
def allow(rows: int) -> Iterator[None]:
    """Let calls of this thread make up to `rows` rows at once: needed for a single row that makes more than a piece."""
    before, _allowed.rows = _allowed.rows, rows
    try:
        yield
    finally:
        _allowed.rows = before


def check_rows(rows: int) -> None:
    """Announce that a call is about to make `rows` rows. Raises TooManyRows if that is too many."""
    if rows > _allowed.rows:
        raise TooManyRows(rows)


class TableFunction:
    """A linear operator on one row, as an immutable value. `waits`: its output rows may be later than their input;
    `shifts`: how late they are depends on when the input came."""

    name: ClassVar[str] = "table function"
    waits: bool = False
    shifts: bool = False
    positive: ClassVar[bool] = True
    """Whether its factors are never negative."""
    by_row: ClassVar[bool] = False
    """Whether it calls a function of the program once for each row."""
    total: bool = False
    """Whether it raises for no row, so that it may see rows that the program would drop before."""

    def reads(self, row: RowType) -> frozenset[str]:
        """The columns of the rows that it reads, other than to repeat them."""
        return frozenset(row.names)

    def key(self) -> tuple[Any, ...]:
        """A hashable form, equal for equal meaning, the same in every process."""
        raise NotImplementedError

    def schema(self, row: RowType) -> RowType:
        """The columns of the output for rows of this type. Raises errors of the program."""
        raise NotImplementedError

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """For each output word, the input word that it repeats; -1 for a new one."""
        raise NotImplementedError

    def compile(self, row: RowType) -> Expansion:
        """A vectorised function of rows int64[n, width]. It raises TooManyRows where it would make too many rows at
        once."""
        raise NotImplementedError


class GenerateSeries(TableFunction):
    """All columns and one more, which counts from `start` to `stop` inclusive by `step`; no rows for nulls."""

    name = "generate_series"

    def __init__(self, start: Expr, stop: Expr, step: Expr | int, column: str) -> None:
        check_name(column, "the column of generate_series")
        if isinstance(step, int):
            step = Literal(step, Int64())
        if isinstance(step, Literal) and step.value == 0:
            raise ProgramError(problem="generate_series with step 0 would never end; give another step")
        self.start, self.stop, self.step, self.column = start, stop, step, column

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return (self.name, self.start.key(), self.stop.key(), self.step.key(), self.column)

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        start, stop, step = (bind(expr, row) for expr in (self.start, self.stop, self.step))
        if start.type not in (Int64(), Date(), TimestampNs()) or stop.type != start.type or step.type != Int64():
            raise WrongType(
                problem="generate_series takes a start and a stop of one type (Int64, Date or TimestampNs) and a step "
                f"of Int64 (days for Date, nanoseconds for TimestampNs), but {start}, {stop} and {step}"
            )
        return RowType([*((f.name, f.type, f.nullable) for f in row.fields), (self.column, start.type, False)])

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return (*range(row.width), -1)

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows in and out)."""
        parts = [bind(expr, row) for expr in (self.start, self.stop, self.step)]

        def expand(rows: Words, heap: Heap) -> Expanded:
            alive = np.ones(len(rows), np.bool_)
            values = []
            for part in parts:
                data, valid = part.run(rows, heap)
                values.append(part.type.to_words(data)[:, 0])
                if valid is not None:
                    alive &= valid
            start, stop, step = values
            if bool((alive & (step == 0)).any()):
                raise SeriesTooLong(problem="a step of 0", limit=SERIES_ROWS)
            up = step > 0
            alive &= np.where(up, start <= stop, start >= stop) & (step != 0)
            # Distances and steps of int64 always fit unsigned numbers.
            low, high = np.where(up, start, stop).view(np.uint64), np.where(up, stop, start).view(np.uint64)
            stride = np.where(up, step, -step).view(np.uint64)
            more = np.where(alive, (high - low) // np.maximum(stride, np.uint64(1)), 0)
            if int(more.max(initial=0)) > SERIES_ROWS or int(more.sum()) + int(alive.sum()) > SERIES_ROWS:
                worst = int(np.argmax(more))
                problem = f"the series from {start[worst]} to {stop[worst]} by {step[worst]}"
                raise SeriesTooLong(problem=problem, limit=SERIES_ROWS)
            counts = np.where(alive, more.astype(np.int64) + 1, 0)
            parent, place = spread(counts)
            made = start[parent] + place * step[parent]
            return Expanded(parent, np.column_stack((rows[parent], made)))

        return expand


class RepeatRow(TableFunction):
    """The same columns; the multiplicity is multiplied by an Int64 expression, which may be negative (null counts as
    0)."""

    name = "repeat_row"
    positive = False

    def __init__(self, factor: Expr) -> None:
        self.factor = factor

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return (self.name, self.factor.key())

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        bound = bind(self.factor, row)
        if bound.type != Int64():
            raise WrongType(problem=f"a multiplicity is multiplied by an Int64, but {bound}")
        return row

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return tuple(range(row.width))

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows)."""
        bound = bind(self.factor, row)

        def expand(rows: Words, heap: Heap) -> Expanded:
            data, valid = bound.run(rows, heap)
            factor = np.array(data, np.int64)
            if valid is not None:
                factor[~valid] = 0
            alive = np.flatnonzero(factor)
            return Expanded(alive, rows[alive], factor[alive])

        return expand


class ValidBetween(TableFunction):
    """The same columns; the row is present from the later of its own time and `start` until `stop`.

    A null start is the beginning of time, a null stop its end. A row whose stop is not after its start is never
    present.
    """

    name = "valid_between"
    waits = True
    positive = False

    def __init__(self, start: Expr, stop: Expr) -> None:
        self.start, self.stop = start, stop

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return (self.name, self.start.key(), self.stop.key())

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        for expr in (self.start, self.stop):
            bound = bind(expr, row)
            if bound.kind not in (None, Int64(), TimestampNs()):
                raise WrongType(problem=f"valid_between takes times, TimestampNs or Int64 of nanoseconds, but {bound}")
        return row

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return tuple(range(row.width))

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows)."""
        starts, stops = _times(self.start, row, MIN_TIME), _times(self.stop, row, CLOSED)

        def expand(rows: Words, heap: Heap) -> Expanded:
            start, stop = starts(rows, heap), stops(rows, heap)
            alive = start < np.minimum(stop, CLOSED)
            begins, ends = np.flatnonzero(alive), np.flatnonzero(alive & (stop < CLOSED))
            parent = np.concatenate((begins, ends))
            factor = np.repeat(np.array([1, -1], np.int64), (len(begins), len(ends)))
            return Expanded(parent, rows[parent], factor, np.concatenate((start[begins], stop[ends])))

        return expand


def _times(expr: Expr, row: RowType, missing: int) -> Callable[[Words, Heap], Words]:
    """The data times that an expression gives, with `missing` for null."""
    bound = bind(expr, row)

    def run(rows: Words, heap: Heap) -> Words:
        data, valid = bound.run(rows, heap)
        times = np.array(data, np.int64) if bound.kind is None else bound.type.to_words(data)[:, 0]
        return np.maximum(times if valid is None else np.where(valid, times, missing), MIN_TIME)

    return run


def spread(counts: Words) -> tuple[Words, Words]:
    """For counts int64[n]: for each of the sum(counts) items its parent, and its position within the parent. Raises
    TooManyRows."""
    check_rows(int(counts.sum()))
    parent = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    return parent, np.arange(len(parent)) - first[parent]


def generate_series(
    start: str | ExprLike, stop: str | ExprLike, step: str | ExprLike = 1, *, name: str = "value"
) -> TableFunction:
    """For `flat_map`: each row once for every number from `start` to `stop` (inclusive) by `step`, in column `name`.

    Text names a column, except that a step such as "1h" for TimestampNs is a duration. Nulls give no rows. A step may
    be negative; a step of 0, or more than 2**26 rows from one batch, is an error. SQL's LATERAL generate_series.
    """
    if isinstance(step, str) and step[:1].isdigit():
        step = nanoseconds(step, "the step of generate_series")
    return GenerateSeries(as_column(start), as_column(stop), as_column(step), name)


def repeat_row(count: str | ExprLike) -> TableFunction:
    """For `flat_map`: each row `count` times (text names a column). The multiplicity is multiplied, so any count costs
    the same, and a negative one removes rows."""
    return RepeatRow(as_column(count))
