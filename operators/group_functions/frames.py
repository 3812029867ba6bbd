"""Logic of sums over frames of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vernier.operators.group_functions.logic import Produced
from vernier.operators.group_functions.ordered import Ordered, OrderedSpec
from vernier.operators.group_functions.running import limits_of, narrow, sum_type, wide
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True)
class FrameSums(OrderedSpec):
    """For each copy, the sums of `columns` over the copies from `first` to `last` places behind it (before it, if
    negative), as further columns `label` and `others`; 0 if there are none. The columns are Int64 or Decimal without
    nulls."""

    name: ClassVar[str] = "frame_sums"
    others: tuple[str, ...]
    columns: tuple[str, ...]
    first: int
    last: int

    @property
    def reach(self) -> int:
        # A copy counts for those up to `last` before it and `-first` behind it, and their frames reach as far beyond.
        return max(max(-self.first, 0) + max(self.last, 0), 1)

    def key(self) -> tuple[Any, ...]:
        return (*super().key(), self.others, self.columns, self.first, self.last)

    def schema(self, key: RowType, val: RowType) -> RowType:
        labels = (self.label, *self.others)
        new = [(name, sum_type(val.field(column)), False) for name, column in zip(labels, self.columns, strict=True)]
        return RowType([*((f.name, f.type, f.nullable) for f in val.fields), *new])

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        from vernier.operators.kernels.running import frame_sums  # building a program needs no numba

        parents, made = rows.spread(rows.counts), []
        for column in self.columns:
            field = val.field(column)
            kind, words = sum_type(field), rows.words[:, field.offset : field.offset + field.words]
            high, low, status, fault = frame_sums(
                rows.groups.offsets, rows.counts, *wide(words), self.first, self.last, limits_of(kind)
            )
            if status:
                raise rows.failed(fault)
            made.append(narrow(kind, high, low))
        return rows.produce(parents, np.concatenate(made, axis=1), np.ones(len(parents), np.int64))
