"""Table functions that divide a column of times or numbers into intervals: windows, and the buckets of interval
joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from vernier.operators.errors import ArithmeticOverflow, WrongType
from vernier.operators.language.expr.evaluate import Heap
from vernier.operators.language.plan.tables import Expanded, Expansion, TableFunction, spread
from vernier.operators.language.types.scalars import DATE_MAX, DATE_MIN, Date, Int64, TimestampNs, Type, Words
from vernier.operators.language.types.schema import Field, RowType

LEAST, MOST = -(2**63), 2**63 - 1


class Windows(TableFunction):
    """All columns, window_start and window_end (exclusive): a row for each window [k·every, k·every + size) that
    contains the value.

    Windows begin at multiples of `every`, also below 0. Rows whose value is null are in no window.
    """

    name = "window"

    def __init__(self, on: str, size: int, every: int) -> None:
        self.on, self.size, self.every = on, size, every

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return (self.name, self.on, self.size, self.every)

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        kind = ordinal(row.field(self.on), "window").type
        return RowType([*((f.name, f.type, f.nullable) for f in row.fields), *window_columns(kind)])

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return (*range(row.width), -1, -1)

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows in and out); raises ArithmeticOverflow near the ends of the type."""
        field = row.field(self.on)
        size, every = self.size, self.every

        def expand(rows: Words, heap: Heap) -> Expanded:
            alive, times = present(rows, field)
            least, most = ends(field.type)
            low, high = least + size + every, most - size
            if len(times) and (int(times.min()) < low or int(times.max()) > high):
                sample = times[(times < low) | (times > high)][0]
                raise ArithmeticOverflow(expression=f'the window of col("{field.name}")', sample=str(sample))
            first, last = (times - size) // every + 1, times // every
            parent, place = spread(last - first + 1)
            start = (first[parent] + place) * every
            parent = alive[parent]
            return Expanded(parent, np.column_stack((rows[parent], start, start + size)))

        return expand


class Buckets(TableFunction):
    """All columns and `label`: a row for each bucket of `size` that [value + lower, value + upper] touches.

    Results outside 64 bits are clamped to the least or greatest value. Rows whose value is null are in no bucket.
    """

    name = "buckets"

    def __init__(self, on: str, lower: int, upper: int, size: int, label: str) -> None:
        self.on, self.lower, self.upper, self.size, self.label = on, lower, upper, size, label

    def key(self) -> tuple[Any, ...]:
        """See TableFunction."""
        return (self.name, self.on, self.lower, self.upper, self.size, self.label)

    def schema(self, row: RowType) -> RowType:
        """See TableFunction."""
        return RowType([*((f.name, f.type, f.nullable) for f in row.fields), (self.label, Int64(), False)])

    def source_words(self, row: RowType) -> tuple[int, ...]:
        """See TableFunction."""
        return (*range(row.width), -1)

    def compile(self, row: RowType) -> Expansion:
        """See TableFunction. O(rows in and out)."""
        field = row.field(self.on)

        def expand(rows: Words, heap: Heap) -> Expanded:
            alive, times = present(rows, field)
            first, last = (_moved(times, by) // self.size for by in (self.lower, self.upper))
            parent, place = spread(last - first + 1)
            bucket = first[parent] + place
            parent = alive[parent]
            return Expanded(parent, np.column_stack((rows[parent], bucket)))

        return expand


def ordinal(field: Field, what: str) -> Field:
    """The field, if its type has distances. Raises WrongType, naming the method, otherwise."""
    if field.type not in (Int64(), Date(), TimestampNs()):
        raise WrongType(
            problem=f"{what} needs a column of TimestampNs, Date or Int64, but {field.name!r} is {field.type}"
        )
    return field


def ends(kind: Type) -> tuple[int, int]:
    """The least and the greatest value of a type that has distances, as words."""
    return (DATE_MIN, DATE_MAX) if kind == Date() else (LEAST, MOST)


def window_columns(kind: Type) -> list[tuple[str, Type, bool]]:
    """The columns that windows add."""
    return [("window_start", kind, False), ("window_end", kind, False)]


def present(rows: Words, field: Field) -> tuple[Words, Words]:
    """The positions of the rows in which a column of one word is not null, and the column's words there."""
    if not field.nullable:
        return np.arange(len(rows)), rows[:, field.offset]
    alive = np.flatnonzero(rows[:, field.offset])
    return alive, rows[alive, field.value_offset]


def _moved(times: Words, by: int) -> Words:
    """times + by, clamped to 64 bits."""
    if by >= 0:
        return np.where(times > MOST - by, MOST, times + np.int64(by))
    return np.where(times < LEAST - by, LEAST, times + np.int64(by))
