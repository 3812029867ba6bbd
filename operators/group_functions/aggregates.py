"""Logic of aggregates that look at whole groups. Incremental aggregates beside them are computed here, too.

All but count, sum and avg see the rows that are present (multiplicity above 0) and ignore nulls. The distinct values of
a group are sorted, with their copies, by numpy and kernels, for all groups of a wave (see logic.py) at once: O(rows log
rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from vernier.operators.failures import AggregateOverflow, ListTooLong
from vernier.operators.group_functions.aggregations import (
    INCREMENTAL,
    Item,
    any_copies,
    compared_texts,
    kernel_rows,
    output,
)
from vernier.operators.group_functions.functions import Caller
from vernier.operators.group_functions.logic import Groups, Logic, LogicSpec, Produced
from vernier.operators.group_functions.variances import VARIANCES, variances
from vernier.operators.kernels.aggregating import FIELDS
from vernier.operators.kernels.choosing import at_share, most_copies, value_runs
from vernier.operators.kernels.reducing import reduce_keys
from vernier.operators.language.types.schema import Field, RowType
from vernier.storage.updates import Ints, order_rows

Mask = np.ndarray[Any, np.dtype[np.bool_]]

LONGEST_LIST = 1 << 24
"""The most values that one list may have."""


@dataclass(frozen=True)
class Aggregates(LogicSpec):
    """Several aggregates of each group, side by side."""

    name: ClassVar[str] = "aggregates"
    items: tuple[Item, ...]

    @property
    def steady(self) -> bool:  # type: ignore[override]
        """False when it calls functions of the program: they are not called twice for the same state."""
        return all(item.kind != "user" for item in self.items)

    def key(self) -> tuple[Any, ...]:
        return tuple(item.key() for item in self.items)

    def schema(self, key: RowType, val: RowType) -> RowType:
        return output(self.items)

    def compile(self, key: RowType, val: RowType) -> Logic:
        return _Run(self.items, key, val)


class _Run:
    def __init__(self, items: Sequence[Item], key: RowType, val: RowType) -> None:
        self.key, self.val, self.made = key, val, output(items)
        # Counts and sums alone would be a vector, and its group gone when they are 0.
        self.rows = np.array((any_copies(), *kernel_rows(items, val)), np.int64).reshape(-1, FIELDS)
        self.compares = bool(compared_texts(items, val))
        self.items = [item for item in items if item.kind not in INCREMENTAL]
        self.callers = {
            item.name: Caller(item.option, [val.field(column) for column in item.columns])
            for item in items
            if item.kind == "user"
        }

    def __call__(self, groups: Groups) -> Produced:
        out, kept = self._following(groups)
        for item in self.items:
            words, found = self._item(item, groups)
            field = self.made.field(item.name)
            out[:, field.value_offset : field.offset + field.words] = words
            if field.nullable:
                out[:, field.offset] = found
            else:
                kept &= found
        return Produced.one(out, kept)

    def _following(self, groups: Groups) -> tuple[Ints, Mask]:
        """The incremental aggregates, computed by their kernel: each group is passed as a key that first appears at
        time 1. Returns int64[g, w], zeros for the other aggregates, and bool[g]: whether the group has a row."""
        g, w = len(groups), self.made.width
        numbers = np.arange(g, dtype=np.int64).reshape(-1, 1)
        ones = np.ones((len(groups.vals), 1), np.int64)
        entries = np.concatenate((groups.vals, ones, groups.counts.reshape(-1, 1)), axis=1)
        ordered = groups.comparable if self.compares else groups.vals
        by_content = ordered is not groups.vals
        nothing = np.zeros((g, 2), np.int64), np.empty((0, w + 2), np.int64)
        spans = np.column_stack((groups.offsets[:-1], groups.offsets[1:]))
        rows, _, status, fault = reduce_keys(
            numbers, 0, spans, entries, ordered if by_content else entries, by_content, groups.vals.shape[1],
            *nothing, w, np.empty(0, np.int64), 0, self.rows, True,
        )  # fmt: skip
        self._check(status, groups, fault)
        out, kept = np.zeros((g, w), np.int64), np.zeros(g, np.bool_)
        out[rows[:, 0]] = rows[:, 1 : 1 + w]
        kept[rows[:, 0]] = True
        return out, kept

    def _item(self, item: Item, groups: Groups) -> tuple[Ints, Mask]:
        """One aggregate of all groups: int64[g, words] without the null word; zeros where bool[g] says that there is
        none."""
        fields = [self.val.field(column) for column in item.columns]
        match item.kind:
            case "user":
                positions = _seen(groups, fields)
                rows = groups.vals[positions], groups.counts[positions], groups.group_of[positions]
                return self.callers[item.name](*rows, len(groups), groups.heap)
            case "arg_min" | "arg_max":
                at = self._extreme(item.kind == "arg_max", fields[0], fields[1], groups)
                value = fields[0]
                words, found = _at(groups.vals[:, value.value_offset : value.offset + value.words], at)
                # A value that is null was found, but the result is null.
                return words, found & (groups.vals[at, value.offset] != 0) if value.nullable and len(at) else found
        first, copies, offsets = self._runs(groups, fields)
        if item.kind == "count_distinct":
            return np.diff(offsets).reshape(-1, 1), np.ones(len(groups), np.bool_)
        (field,) = fields
        if item.kind in ("collect_list", "collect_set"):
            many = copies if item.kind == "collect_list" else np.ones_like(copies)
            return self._lists(item, groups, field, first, many, offsets), np.ones(len(groups), np.bool_)
        if item.kind in VARIANCES:
            words = np.ascontiguousarray(groups.vals[first, field.value_offset : field.offset + field.words])
            values = np.asarray(field.type.from_words(words, groups.heap), np.float64)
            data, there = variances(values, copies, offsets, item.kind == "var_samp")
            return item.type.to_words(data, groups.heap), there
        if item.kind == "mode":
            run = most_copies(offsets, copies)
        else:
            run, status, fault = at_share(offsets, copies, item.option.numerator, item.option.denominator)
            self._check(status, groups, fault)
        at = np.where(run >= 0, first[run], -1) if len(first) else run
        return _at(groups.vals[:, field.value_offset : field.offset + field.words], at)

    def _runs(self, groups: Groups, fields: Sequence[Field]) -> tuple[Ints, Ints, Ints]:
        """Each group's distinct values in order: a row that has the value, its copies, and offsets int64[g + 1]."""
        positions = _seen(groups, fields)
        rows = _side_by_side(groups, positions, fields)
        order = order_rows(rows, np.arange(rows.shape[1]))
        first, copies, status, fault = value_runs(rows, order, groups.counts[positions])
        self._check(status, groups, fault)
        offsets = np.searchsorted(rows[first, 0], np.arange(len(groups) + 1)).astype(np.int64)
        return positions[first], copies, offsets

    def _extreme(self, greatest: bool, value: Field, by: Field, groups: Groups) -> Ints:
        """The row of each group with the least or greatest `by` (of several, the one with the least value), or -1."""
        positions = _seen(groups, [by])
        rows = _side_by_side(groups, positions, [by, value])
        order = order_rows(rows, np.arange(rows.shape[1]))
        ranked = rows[order]
        group = np.arange(len(groups))
        starts, stops = np.searchsorted(ranked[:, 0], group), np.searchsorted(ranked[:, 0], group + 1)
        if greatest:
            until = 1 + by.words
            fresh = np.ones(len(ranked), np.bool_)
            fresh[1:] = (ranked[1:, :until] != ranked[:-1, :until]).any(axis=1)
            begins = np.maximum.accumulate(np.where(fresh, np.arange(len(ranked)), 0))
            starts = np.where(stops > starts, np.append(begins, 0)[stops - 1], 0)
        found = np.full(len(groups), -1, np.int64)
        has = np.isin(group, ranked[:, 0])
        found[has] = positions[order[starts[has]]]
        return found

    def _lists(self, item: Item, groups: Groups, field: Field, first: Ints, copies: Ints, offsets: Ints) -> Ints:
        lengths = np.add.reduceat(np.append(copies.astype(np.float64), 0.0), offsets[:-1]) * (np.diff(offsets) > 0)
        if len(lengths) and lengths.max() > LONGEST_LIST:
            key = self.key.shown_key(groups.keys[int(lengths.argmax())].reshape(1, -1), groups.heap)
            raise ListTooLong(aggregate=item.kind, key=key, values=int(lengths.max()), most=LONGEST_LIST)
        words = groups.vals[:, field.value_offset : field.offset + field.words]
        values = field.type.decode(np.ascontiguousarray(words[np.repeat(first, copies)]), groups.heap)
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths).astype(np.int64)))
        lists = pa.LargeListArray.from_arrays(pa.array(ends), values)
        return item.type.to_words(lists.cast(item.type.arrow), groups.heap)

    def _check(self, status: int, groups: Groups, fault: int) -> None:
        if status != 0:
            key = self.key.shown_key(groups.keys[fault : fault + 1], groups.heap)
            raise AggregateOverflow(operator="group by " + ", ".join(self.key.names), key=key)


def _seen(groups: Groups, fields: Sequence[Field]) -> Ints:
    """The present rows in which none of these columns is null."""
    seen = groups.counts > 0
    for field in fields:
        if field.nullable:
            seen &= groups.vals[:, field.offset] != 0
    return np.flatnonzero(seen).astype(np.int64)


def _side_by_side(groups: Groups, positions: Ints, fields: Sequence[Field]) -> Ints:
    """The group's number and these columns' words of each row, in the form in which they are compared."""
    words = [word for field in fields for word in range(field.offset, field.offset + field.words)]
    return np.ascontiguousarray(np.column_stack((groups.group_of[positions], groups.comparable[positions][:, words])))


def _at(words: Ints, at: Ints) -> tuple[Ints, Mask]:
    """words[at], with zeros where `at` is -1; and a mask that is False there."""
    found = at >= 0
    picked = np.zeros((len(at), words.shape[1]), np.int64)
    picked[found] = words[at[found]]
    return picked, found
