"""Logic of running sums, and of running least and greatest values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from vernier.operators.errors import WrongType
from vernier.operators.group_functions.logic import Produced
from vernier.operators.group_functions.ordered import Ordered, OrderedSpec
from vernier.operators.language.types.decimals import MAX_PRECISION, Decimal
from vernier.operators.language.types.scalars import Float64, Int64, Type, Words
from vernier.operators.language.types.schema import Field, RowType

LEAST = np.int64(-(2**63))


@dataclass(frozen=True)
class RunningSum(OrderedSpec):
    """The sum of `column` over all copies up to and including this one. Nulls add nothing; the sum over only nulls is
    null.

    Sums of Float64 depend on the order in which values are added: a group is summed again, in its order, whenever it
    changes.
    """

    name: ClassVar[str] = "running_sum"
    column: str

    @property
    def summed(self) -> str:
        return self.column

    def adds_up(self, val: RowType) -> bool:
        return not isinstance(self.added(val)[0], Float64)

    def key(self) -> tuple[Any, ...]:
        return (*super().key(), self.column)

    def added(self, val: RowType) -> tuple[Type, bool]:
        field = val.field(self.column)
        if field.type not in (Int64(), Float64()) and not isinstance(field.type, Decimal):
            raise WrongType(
                problem=f"running_sum adds Int64, Decimal or Float64, but {self.column!r} is {field.type}; cast it"
            )
        return sum_type(field), field.nullable

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        from vernier.operators.kernels.running import (  # building a program needs no numba
            running_float_sums,
            running_sums,
        )

        field = val.field(self.column)
        words = rows.words[:, field.value_offset : field.offset + field.words]
        valid = np.ascontiguousarray(rows.words[:, field.offset]) if field.nullable else np.ones(len(rows), np.int64)
        counts, offsets = rows.counts, rows.groups.offsets
        kind, nullable = self.added(val)
        parents = rows.spread(counts)
        if isinstance(kind, Float64):
            values = np.ascontiguousarray(kind.from_words(words))
            sums, seen = running_float_sums(offsets, counts, values, valid)
            new = kind.to_words(sums)
        else:
            high, low = wide(words)
            high, low, seen, status, fault = running_sums(
                offsets, counts, high, low, valid, limits_of(kind), rows.ahead
            )
            if status:
                raise rows.failed(fault)
            new = narrow(kind, high, low)
        if nullable:
            new = np.column_stack((seen, np.where(seen[:, None] != 0, new, 0)))
        return rows.produce(parents, new, np.ones(len(parents), np.int64))


@dataclass(frozen=True)
class RunningExtreme(OrderedSpec):
    """The least value of `column`, or the greatest, over all copies up to and including this one. Nulls are left out;
    over only nulls it is null. Values of all types have an order.

    single: no two present rows of a group are equal in the columns of the order.
    """

    name: ClassVar[str] = "running_extreme"
    column: str
    greatest: bool
    single: bool = False

    @property
    def title(self) -> str:
        return super().title.replace(self.name, "running max" if self.greatest else "running min", 1)

    def key(self) -> tuple[Any, ...]:
        return (*super().key(), self.column, self.greatest)

    def added(self, val: RowType) -> tuple[Type, bool]:
        field = val.field(self.column)
        return field.type, field.nullable

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        field = val.field(self.column)
        n = len(rows)
        values = rows.comparable[:, field.value_offset : field.offset + field.words]
        ranks = np.empty(n, np.int64)
        ranks[np.lexsort(values.T[::-1])] = np.arange(n)
        if self.greatest:
            ranks = n - 1 - ranks
        if field.nullable:
            ranks[rows.words[:, field.offset] == 0] = n
        # Groups count down, so that no rank of an earlier group is less than one of its own.
        spread = ranks + (rows.group_of[-1:] - rows.group_of) * (n + 1)
        best = np.minimum.accumulate(spread) % (n + 1)
        row_of = np.empty(n + 1, np.int64)
        row_of[ranks] = np.arange(n)
        found = rows.words[row_of[best] if n else best, field.offset : field.offset + field.words]
        return rows.produce(np.arange(n), found, rows.counts)


def narrow(kind: Type, high: Words, low: Words) -> Words:
    """The words of sums that fit their type."""
    return low[:, None] if kind.words == 1 else np.column_stack((high, low ^ LEAST))


def sum_type(field: Field) -> Type:
    """The type of a sum of a column of Int64, Float64 or Decimal: as in Spark, ten more digits for decimals."""
    if isinstance(field.type, Decimal):
        return Decimal(min(MAX_PRECISION, field.type.precision + 10), field.type.scale)
    return field.type


def wide(words: Words) -> tuple[Words, Words]:
    """The high and the low halves of integers: of one word each, or of the two words of a Decimal."""
    if words.shape[1] == 1:
        return np.ascontiguousarray(words[:, 0] >> 63), np.ascontiguousarray(words[:, 0])
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1] ^ LEAST)


@cache
def limits_of(kind: Type) -> Words:
    """The halves of the least and the greatest value of a type."""
    most = 10**kind.precision - 1 if isinstance(kind, Decimal) else 2**63 - 1
    least = -most if isinstance(kind, Decimal) else -(2**63)
    halves = [half for value in (least, most) for half in divmod(value, 2**64)]
    return np.array([high if i % 2 == 0 else high - (high >> 63 << 64) for i, high in enumerate(halves)], np.int64)
