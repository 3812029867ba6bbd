"""Logic of session windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vernier.operators.errors import ArithmeticOverflow
from vernier.operators.group_functions.logic import Groups, Logic, LogicSpec, Produced
from vernier.operators.language.plan.buckets import ends, ordinal, window_columns
from vernier.operators.language.types.schema import RowType


@dataclass(frozen=True)
class Sessions(LogicSpec):
    """Each present row with its session: a run of values, each at most `gap` after the one before. The session lasts
    from its first value to `gap` after its last. Rows with a null value are in no session. Without `ends`, rows have
    only the session's start, which a later row does not change."""

    name: ClassVar[str] = "session"
    positive: ClassVar[bool] = True
    on: str
    gap: int
    ends: bool = True

    @property
    def title(self) -> str:
        return f"sessions of {self.on}"

    def key(self) -> tuple[Any, ...]:
        return (self.on, self.gap) if self.ends else (self.on, self.gap, "starts")

    def schema(self, key: RowType, val: RowType) -> RowType:
        kind = ordinal(val.field(self.on), "window").type
        return RowType([*((f.name, f.type, f.nullable) for f in val.fields), *window_columns(kind)[: 1 + self.ends]])

    def latest(self, val: RowType) -> int:
        """The greatest value of a session: its end must fit the type."""
        return ends(val.field(self.on).type)[1] - self.gap

    def compile(self, key: RowType, val: RowType) -> Logic:
        field = val.field(self.on)

        def run(groups: Groups) -> Produced:
            there = groups.counts > 0
            if field.nullable:
                there &= groups.vals[:, field.offset] != 0
            groups = groups if bool(there.all()) else groups.take(there)
            vals, counts = groups.vals, groups.counts
            if not groups.is_sorted([(field, False)]):
                order = groups.order([(field, False)])
                vals, counts = vals[order], counts[order]
            times, n = vals[:, field.value_offset], len(vals)
            if n == 0:
                return Produced(groups.offsets, np.empty((0, val.width + 1 + self.ends), np.int64), counts)
            if int(times.max()) > self.latest(val):
                raise too_late(self.on, int(times.max()))
            fresh = np.ones(n, np.bool_)
            # Differences of int64 always fit unsigned numbers.
            apart = times[1:].view(np.uint64) - times[:-1].view(np.uint64)
            group_of = groups.group_of
            fresh[1:] = (apart > np.uint64(self.gap)) | (group_of[1:] != group_of[:-1])
            session = np.cumsum(fresh) - 1
            first = np.flatnonzero(fresh)
            columns = [vals, times[first][session]]
            if self.ends:
                columns.append(times[np.append(first[1:], n) - 1][session] + self.gap)
            return Produced(groups.offsets, np.column_stack(columns), counts)

        return run


def too_late(on: str, value: int) -> ArithmeticOverflow:
    """The error for a value whose session would end beyond its type."""
    return ArithmeticOverflow(expression=f'the session of col("{on}")', sample=str(value))
