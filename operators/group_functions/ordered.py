"""Logics of ordered groups: the first rows, ranks, neighbours.

All of them see the rows that are present (multiplicity above 0), and count a row as often as its multiplicity. Rows
that are equal in the order are sorted by all their columns, so answers never depend on the order of arrival. Everything
is computed by numpy on all groups of a wave (see logic.py): O(rows log rows), and O(copies) where each copy gets its
own value.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vernier.operators.failures import AggregateOverflow, TooManyCopies
from vernier.operators.group_functions.logic import Groups, Logic, LogicSpec, Produced
from vernier.operators.language.expr.evaluate import bind
from vernier.operators.language.expr.expression import Expr
from vernier.operators.language.expr.order import Orders
from vernier.operators.language.types.scalars import Int64, Type
from vernier.operators.language.types.scalars import Words as Ints
from vernier.operators.language.types.schema import RowType

COPIES, HIGH, LOW, VALUES = range(4)
"""Columns of what is ahead of a group's rows, as in storage/kernels/prefix_sums.py."""
MOST_COPIES = 1 << 26
"""The most copies of a group that may become a row each; more are treated as a mistake in the data."""


class Ordered:
    """The present rows of groups in an order, n rows. `words`: int64[n, v]. `counts`: int64[n], the copies of the
    row."""

    def __init__(self, groups: Groups, by: Orders, key: RowType, val: RowType, operator: str) -> None:
        groups, fields = groups.present(), [(val.field(name), descending) for name, descending in by]
        self.groups, self.key, self.operator = groups, key, operator
        self.words, self.counts = groups.vals, groups.counts
        self._order: Ints | None = None
        if not groups.is_sorted(fields):
            self._order = order = groups.order(fields)
            self.words, self.counts = groups.vals[order], groups.counts[order]
        self.fields = [field for field, _ in fields]
        self._check_copies()

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def most(self) -> int:
        """The most copies of a row, 0 if there are no rows."""
        return int(self.counts.max()) if len(self) else 0

    @cached_property
    def group_of(self) -> Ints:
        """int64[n]: the group of each row."""
        return self.groups.group_of

    @cached_property
    def starts(self) -> Ints:
        """int64[n]: the first row of each row's group."""
        return self.groups.offsets[:-1][self.group_of]

    @cached_property
    def stops(self) -> Ints:
        """int64[n]: one past the last row of each row's group."""
        return self.groups.offsets[1:][self.group_of]

    @cached_property
    def reached(self) -> Ints:
        """int64[n + 1]: the copies of all rows before each row, whatever their group, and of all rows."""
        # Sums over several groups may wrap around; their differences do not.
        found: Ints = np.zeros(len(self) + 1, np.int64)
        self.counts.cumsum(out=found[1:])
        return found

    @cached_property
    def before(self) -> Ints:
        """int64[n]: the copies of all earlier rows of the group."""
        found: Ints = self.reached[:-1] - self.reached[self.starts]
        return found

    @property
    def ahead(self) -> Ints:
        """int64[g, 4]: what the rows add up to that come before those of each group and are not given; zeros if all
        are."""
        found = self.groups.ahead
        return np.zeros((len(self.groups), 4), np.int64) if found is None else found

    @property
    def comparable(self) -> Ints:
        """int64[n, v]: `words` as words that sort as their values do."""
        words = self.groups.comparable
        return words if self._order is None else words[self._order]

    def first_of_value(self) -> Ints:
        """int64[n]: the first row of the group with the same values in the columns of the order."""
        by = [word for field in self.fields for word in range(field.offset, field.offset + field.words)]
        values = self.words.take(by, axis=1)
        fresh = np.ones(len(self) + 1, np.bool_)
        fresh[1:-1] = (values[1:] != values[:-1]).any(axis=1)
        fresh[self.groups.offsets] = True
        fresh = fresh[:-1]
        heads: Ints = fresh.nonzero()[0][fresh.cumsum() - 1]
        return heads

    def produce(self, parents: Ints, columns: Ints, counts: Ints) -> Produced:
        """The rows at ascending positions `parents`, each with further words and its number of copies."""
        offsets = np.searchsorted(parents, self.groups.offsets).astype(np.int64)
        rows = np.concatenate((self.words[parents], columns), axis=1)
        return Produced(offsets, rows, counts)

    def spread(self, pieces: Ints) -> Ints:
        """Repeats the index of each row pieces[i] times: int64[n] -> int64[sum of pieces]. Raises TooManyCopies."""
        if len(self) and (self.most if pieces is self.counts else int(pieces.max())) > MOST_COPIES // len(self):
            for start, stop in {*zip(self.starts.tolist(), self.stops.tolist())}:
                copies = sum(pieces[start:stop].tolist())
                if copies > MOST_COPIES:
                    key = self.key_of(start)
                    raise TooManyCopies(operator=self.operator, key=key, copies=copies, most=MOST_COPIES)
        return np.repeat(np.arange(len(self)), pieces)

    def key_of(self, row: int) -> str:
        """The key of a row's group, for messages."""
        keys = self.groups.keys[self.group_of[row] : self.group_of[row] + 1]
        return self.key.shown_key(keys, self.groups.heap)

    def failed(self, row: int) -> AggregateOverflow:
        """The error for the group of a row."""
        return AggregateOverflow(operator=self.operator, key=self.key_of(row))

    def _check_copies(self) -> None:
        """Checks that a group has few enough copies for positions in int64."""
        if self.most > 2**62 // max(len(self), 1):
            ahead = 0 if self.groups.ahead is None else int(self.groups.ahead[:, COPIES].max())
            for start, stop in {*zip(self.starts.tolist(), self.stops.tolist())}:
                if ahead + sum(self.counts[start:stop].tolist()) >= 2**63:
                    raise self.failed(start)


@dataclass(frozen=True)
class OrderedSpec(LogicSpec):
    """A logic on ordered groups; `label` is the name of the column that it adds."""

    positive: ClassVar[bool] = True
    by: Orders
    label: str

    @property
    def title(self) -> str:
        return f"{self.name} {_in_order(self.by)}"

    def key(self) -> tuple[Any, ...]:
        return (self.by, self.label)

    def schema(self, key: RowType, val: RowType) -> RowType:
        new = (self.label, *self.added(val))
        return RowType([*((f.name, f.type, f.nullable) for f in val.fields), new])

    @property
    def reach(self) -> int | None:
        """How many copies on either side of a changed row the changes of the output depend on, at least 1; None if it
        is the whole group."""
        return None

    @property
    def summed(self) -> str | None:
        """The column whose sum over the earlier rows matters to a row, if `adds_up`; None if that is their number."""
        return None

    def adds_up(self, val: RowType) -> bool:
        """Whether the output of a row depends on earlier rows by their number or a sum alone: `answer` then adds what
        is `ahead` of the groups."""
        return False

    def added(self, val: RowType) -> tuple[Type, bool]:
        """The type and nullability of the column that is added."""
        return Int64(), False

    def compile(self, key: RowType, val: RowType) -> Logic:
        def run(groups: Groups) -> Produced:
            return self.answer(Ordered(groups, self.by, key, val, self.title), val)

        return run

    @abstractmethod
    def answer(self, rows: Ordered, val: RowType) -> Produced:
        """The rows with the new column."""


@dataclass(frozen=True)
class TopK(LogicSpec):
    """The first `count` copies in order."""

    name: ClassVar[str] = "top_k"
    positive: ClassVar[bool] = True
    by: Orders
    count: int

    @property
    def title(self) -> str:
        return f"top {self.count} {_in_order(self.by)}"

    def key(self) -> tuple[Any, ...]:
        return (self.by, self.count)

    def schema(self, key: RowType, val: RowType) -> RowType:
        return val

    def compile(self, key: RowType, val: RowType) -> Logic:
        def run(groups: Groups) -> Produced:
            # Further copies of a row change nothing, and the capped numbers cannot add up to too many.
            few = replace(groups, counts=np.minimum(groups.counts, self.count))
            rows = Ordered(few, self.by, key, val, self.title)
            taken = np.clip(self.count - rows.before, 0, rows.counts)
            kept = np.flatnonzero(taken)
            return rows.produce(kept, np.empty((len(kept), 0), np.int64), taken[kept])

        return run


@dataclass(frozen=True)
class Rank(OrderedSpec):
    """1 + the number of copies that sort before: equal rows share a rank, and a gap follows them."""

    name: ClassVar[str] = "rank"

    def adds_up(self, val: RowType) -> bool:
        return True

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        ahead = rows.ahead[:, COPIES] + 1 - rows.reached[rows.groups.offsets[:-1]]
        rank = rows.reached[rows.first_of_value()] + ahead.repeat(rows.groups.sizes)
        return rows.produce(np.arange(len(rows)), rank[:, None], rows.counts)


@dataclass(frozen=True)
class DenseRank(OrderedSpec):
    """1 + the number of distinct smaller values of the order, without gaps."""

    name: ClassVar[str] = "dense_rank"

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        fresh = rows.first_of_value() == np.arange(len(rows))
        values = np.cumsum(fresh)
        rank = values - values[rows.starts] + 1
        return rows.produce(np.arange(len(rows)), rank[:, None], rows.counts)


@dataclass(frozen=True)
class RowNumber(OrderedSpec):
    """1, 2, 3 … in order; each copy has its own number."""

    name: ClassVar[str] = "row_number"

    def adds_up(self, val: RowType) -> bool:
        return True

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        parents = rows.spread(rows.counts)
        begins = rows.reached[rows.groups.offsets]
        sizes = begins[1:] - begins[:-1]
        number = np.arange(1, len(parents) + 1) + (rows.ahead[:, COPIES] - begins[:-1]).repeat(sizes)
        return rows.produce(parents, number[:, None], np.ones(len(parents), np.int64))


@dataclass(frozen=True)
class Shift(OrderedSpec):
    """The value of `column` in the copy `step` places earlier (later, if negative); `default` where there is none.

    `default` has the column's type; None is null.
    """

    name: ClassVar[str] = "lag"
    column: str
    step: int
    default: Expr | None

    @property
    def title(self) -> str:
        way = "lag" if self.step >= 0 else "lead"
        return f"{way} of {self.column} {_in_order(self.by)}"

    @property
    def reach(self) -> int:
        return max(abs(self.step), 1)

    def key(self) -> tuple[Any, ...]:
        return (*super().key(), self.column, self.step, None if self.default is None else self.default.key())

    def added(self, val: RowType) -> tuple[Type, bool]:
        field = val.field(self.column)
        return field.type, field.nullable or self.default is None or bind(self.default, val).nullable

    def answer(self, rows: Ordered, val: RowType) -> Produced:
        from vernier.operators.kernels.shifting import shifted_copies  # building a program needs no numba

        distance = abs(self.step)
        if len(rows) and min(int(rows.counts.max()), distance) >= MOST_COPIES // len(rows):
            alone = np.minimum(rows.counts, distance)
            rows.spread(alone + (rows.counts > alone))
        parents, sources, counts = shifted_copies(rows.groups.offsets, rows.counts, self.step)
        return rows.produce(parents, self._values(rows, parents, sources, val), counts)

    def _values(self, rows: Ordered, parents: Ints, sources: Ints, val: RowType) -> Ints:
        """The words of the new column; a source of -1 means that there is no such copy."""
        field = val.field(self.column)
        none = sources < 0
        words = rows.words[np.maximum(sources, 0), field.offset : field.offset + field.words]
        _, nullable = self.added(val)
        if nullable and not field.nullable:
            words = np.concatenate((np.ones((len(words), 1), np.int64), words), axis=1)
        words[none] = 0
        if self.default is not None and bool(none.any()):
            default = bind(self.default, val)
            value = default.words(rows.words[parents[none]], rows.groups.heap)
            words[none, words.shape[1] - value.shape[1] :] = value
            if nullable and not default.nullable:
                words[none, 0] = 1
        return words


def _in_order(by: Orders) -> str:
    return "by " + ", ".join(name + (" desc" if down else "") for name, down in by)
