"""Logic of running sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from operators.errors import WrongType
from operators.language.schema import RowType
from operators.language.types import Float64, Int64, Type
from operators.logic import Produced
from operators.logics.ordered import Ordered, OrderedSpec


@dataclass(frozen=True)
class RunningSum(OrderedSpec):
    """The sum of `column` over all copies up to and including this one; nulls add nothing, and only nulls are null.

    A group is summed anew, in its order, whenever it changes: sums of Float64 depend on the rows alone.
    """

    name: ClassVar[str] = "running_sum"
    column: str

    def key(self) -> tuple[Any, ...]:
        return (*super().key(), self.column)

    def added(self, val: RowType) -> tuple[Type, bool]:
        field = val.field(self.column)
        if field.type not in (Int64(), Float64()):
            raise WrongType(problem=f"running_sum adds Int64 or Float64, but {self.column!r} is {field.type}; cast it")
        return field.type, field.nullable

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        from operators.kernels.running import running_float_sums, running_sums  # a program that is built needs no numba

        field = val.field(self.column)
        words = rows.words[:, field.offset : field.offset + field.words]
        valid = np.ascontiguousarray(words[:, 0]) if field.nullable else np.ones(len(rows), np.int64)
        values, counts, offsets = field.type.from_words(words[:, -1:]), rows.counts, rows.groups.offsets
        if field.type == Float64():
            sums, seen = running_float_sums(offsets, counts, np.ascontiguousarray(values), valid)
        else:
            sums, seen, status, fault = running_sums(offsets, counts, np.ascontiguousarray(values), valid)
            if status:
                raise rows.failed(fault)
        new = field.type.to_words(sums)
        if field.nullable:
            new = np.column_stack((seen, np.where(seen[:, None] != 0, new, 0)))
        parents = np.repeat(np.arange(len(rows)), counts)
        return rows.produce(parents, new, np.ones(len(parents), np.int64))
