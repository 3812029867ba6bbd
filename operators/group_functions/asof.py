"""Logic of as-of joins: each left row with the right row that was the newest at its time, or that comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vernier.operators.group_functions.logic import Groups, Logic, LogicSpec, Produced
from vernier.operators.language.types.scalars import Words
from vernier.operators.language.types.schema import Field, RowType


@dataclass(frozen=True)
class AsOf(LogicSpec):
    """Groups hold the rows of both sides: a column `side` (0 left, 1 right), then the left and the right columns, all
    nullable; the columns of the other side are null. `left` and `right` are the columns of the output.

    A left row meets the present right row with the greatest time <= its own (backward) or the least time >= it, at most
    `tolerance` away; of several at that time, the greatest in the order of the columns. Left rows keep their
    multiplicity, negative ones included. Left rows without a match are kept only when `outer`, with nulls. A null time
    matches nothing.
    """

    name: ClassVar[str] = "as_of_join"
    left: RowType
    right: RowType
    left_time: str
    right_time: str
    backward: bool
    tolerance: int | None
    outer: bool

    def key(self) -> tuple[Any, ...]:
        columns = (*map(tuple, self.left.to_json()), *map(tuple, self.right.to_json()))
        return (*columns, self.left_time, self.right_time, self.backward, self.tolerance, self.outer)

    def schema(self, key: RowType, val: RowType) -> RowType:
        right = ((f.name, f.type, f.nullable or self.outer) for f in self.right.fields)
        return RowType([*((f.name, f.type, f.nullable) for f in self.left.fields), *right])

    def compile(self, key: RowType, val: RowType) -> Logic:
        split = 1 + len(self.left.fields)
        inputs = val.fields[1:split], val.fields[split:]
        outputs = self.schema(key, val).fields
        times = [val.field(_side(self.left_time, 0)), val.field(_side(self.right_time, 1))]
        picked = [_pick(have, want) for have, want in zip((*inputs[0], *inputs[1]), outputs, strict=True)]
        left_words = np.concatenate([*picked[: split - 1], np.empty(0, np.int64)])
        right_words = np.concatenate([*picked[split - 1 :], np.empty(0, np.int64)])

        def run(groups: Groups) -> Produced:
            is_right = groups.vals[:, 0] == 1
            groups = groups.take(~is_right | (groups.counts > 0))
            is_right = groups.vals[:, 0] == 1
            flags = np.where(is_right, groups.vals[:, times[1].offset], groups.vals[:, times[0].offset])
            time = np.where(is_right, groups.vals[:, times[1].value_offset], groups.vals[:, times[0].value_offset])
            # Rows without a time sort before all others, and a right row without a time is no candidate.
            along = time if self.backward else ~time
            rows = groups.order(())
            keys = (~is_right, along, flags, groups.group_of)
            order = rows[np.lexsort([key[rows] for key in keys])]
            candidate = np.where((is_right & (flags != 0))[order], np.arange(len(order)), -1)
            newest = np.maximum.accumulate(candidate) if len(order) else candidate
            met = newest >= np.repeat(groups.offsets[:-1], groups.sizes)
            met &= (flags != 0)[order]
            partner = order[np.maximum(newest, 0)]
            if self.tolerance is not None:
                first, second = (time[order], time[partner]) if self.backward else (time[partner], time[order])
                # Differences of int64 always fit unsigned numbers.
                met &= first.view(np.uint64) - second.view(np.uint64) <= np.uint64(self.tolerance)
            kept = np.flatnonzero(~is_right[order] & (met | self.outer))
            lefts, found = order[kept], met[kept]
            made = groups.vals[partner[kept]][:, right_words]
            made[~found] = 0
            rows = np.concatenate((groups.vals[lefts][:, left_words], made), axis=1)
            offsets = np.searchsorted(kept, groups.offsets).astype(np.int64)
            return Produced(offsets, rows, groups.counts[lefts])

        return run


def side_columns(left: RowType, right: RowType) -> list[tuple[str, str, int]]:
    """The columns of the groups after `side`: (name in the group, name of the column, side)."""
    return [(_side(f.name, side), f.name, side) for side, row in enumerate((left, right)) for f in row.fields]


def _side(name: str, side: int) -> str:
    return f"{('left', 'right')[side]} {name}"


def _pick(have: Field, want: Field) -> Words:
    """The words of a nullable column of the group that make up a column of the output."""
    return np.arange(have.offset if want.nullable else have.value_offset, have.offset + have.words)
