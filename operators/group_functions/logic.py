"""Logic: a pure function that computes a reduction's output from the rows of a key, for many groups at once.

A wave (operators/physical/reduce_batched.py) is a set of groups. A group is one key at one data time and round, with
its accumulated rows. One call of a logic computes all groups of a wave, on columns rather than on rows. A logic must be
pure: the same input always gives the same output. It is never called for groups without rows; their output is empty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from vernier.operators.language.types.scalars import Words as Ints
from vernier.operators.language.types.schema import Field, RowType

if TYPE_CHECKING:  # brings numba, which a program that is only built does not need
    from vernier.storage.strings.string_heap import Heap


@dataclass(frozen=True)
class Groups:
    """g groups of one wave; a group is one key at one time.

    keys: int64[g, k] key words; offsets: int64[g + 1]; vals: int64[n, v] val words, distinct and in word order within a
    group; counts: int64[n] multiplicities, never 0, possibly negative. ahead: int64[g, 4], what the rows of each group
    that come before these in the order, and are not among them, add up to (storage/kernels/prefix_sums.py); None if
    the groups are whole, or what is missing does not matter.
    """

    keys: Ints
    offsets: Ints
    vals: Ints
    counts: Ints
    heap: Heap | None = None
    texts: tuple[int, ...] = ()
    ahead: Ints | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def sizes(self) -> Ints:
        """int64[g]: the number of distinct rows of each group."""
        return np.diff(self.offsets)

    @property
    def group_of(self) -> Ints:
        """int64[n]: the group of each row."""
        return np.repeat(np.arange(len(self.keys), dtype=np.int64), self.sizes)

    @property
    def comparable(self) -> Ints:
        """int64[n, v]: vals in words that sort as their values do, also for long texts; `vals` itself where it already
        does."""
        if self.heap is None or not self.texts:
            return self.vals
        ordered: Ints = self.heap.comparable(self.vals, self.texts)
        return ordered

    def take(self, kept: Ints | np.ndarray[Any, np.dtype[np.bool_]]) -> Groups:
        """The same groups with some of their rows, given as ascending positions or a mask. Groups may become empty."""
        positions = np.flatnonzero(kept) if kept.dtype == np.bool_ else kept
        return replace(
            self,
            offsets=np.searchsorted(positions, self.offsets).astype(np.int64),
            vals=self.vals[positions],
            counts=self.counts[positions],
        )

    def present(self) -> Groups:
        """Only the rows that are present (multiplicity above 0). Groups may become empty."""
        here = self.counts > 0
        return self if bool(here.all()) else self.take(here)

    def is_sorted(self, by: Sequence[tuple[Field, bool]]) -> bool:
        """Whether the rows are in this order already, because vals begin with its columns. See `order`."""
        at = 0
        for field, descending in by:
            if descending or field.offset != at:
                return False
            at += field.words
        return self.heap is None or not self.texts

    def order(self, by: Sequence[tuple[Field, bool]]) -> Ints:
        """int64[n]: positions of the rows, group after group, sorted by columns of val, each (field, descending).

        Ascending order has nulls first, descending order last, as in Spark. Ties are broken by the whole row.
        """
        vals = self.comparable
        # Rows are already in the order of their words, which is the order of values unless there are long texts.
        keys: list[Ints] = [] if vals is self.vals else list(reversed(vals.T))
        for field, descending in reversed(by):
            words = vals[:, field.offset : field.offset + field.words]
            keys += [~column if descending else column for column in reversed(words.T)]
        order: Ints = np.lexsort([*keys, self.group_of]).astype(np.int64)
        return order


@dataclass(frozen=True)
class Produced:
    """The output of a logic for g groups: int64[m, w] rows of output words, split by offsets int64[g + 1], with
    multiplicities int64[m]. Equal rows of a group add up; their order does not matter."""

    offsets: Ints
    rows: Ints
    counts: Ints

    @staticmethod
    def one(rows: Ints, kept: np.ndarray[Any, np.dtype[np.bool_]] | None = None) -> Produced:
        """One row per group, once: int64[g, w]; `kept`: bool[g], False for groups without a row."""
        if kept is None or bool(kept.all()):
            offsets = np.arange(len(rows) + 1, dtype=np.int64)
        else:
            offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))
            rows = rows[kept]
        return Produced(offsets, np.ascontiguousarray(rows), np.ones(len(rows), np.int64))


class Logic(Protocol):
    """A compiled logic, made once per worker."""

    def __call__(self, groups: Groups) -> Produced:
        """The output rows of every group."""


class LogicSpec(ABC):
    """The meaning of a logic, as part of the plan: an immutable value, usually a frozen dataclass."""

    name: ClassVar[str]
    """Shown to people, and part of fingerprints."""
    positive: ClassVar[bool] = False
    """Whether it never returns a negative multiplicity, for any input."""
    by_group: ClassVar[bool] = False
    """Whether it calls a function of the program once for each group."""
    steady: ClassVar[bool] = True
    """Whether its output may be computed again instead of stored. User code is not called twice for the same state."""

    @property
    def title(self) -> str:
        """The operator's name in `explain` and errors."""
        return self.name

    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """What distinguishes this spec from others with its name: plain values, the same in every process."""

    @abstractmethod
    def schema(self, key: RowType, val: RowType) -> RowType:
        """The columns of the output after those of the key. Raises subclasses of ProgramError."""

    @abstractmethod
    def compile(self, key: RowType, val: RowType) -> Logic:
        """The logic for rows of these types."""
