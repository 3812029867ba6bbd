"""Logic: what a reduction makes of the rows of a key, as a pure function on many groups at once.

A wave (operators/physical/reduce_batched.py) is a set of groups: one key at one data time and round each, with its
accumulated rows. A logic answers for all of them in one call, on columns rather than on rows. It must be pure: what it
is asked again, it answers again. Groups without rows are never asked for; their answer is nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from vernier.operators.language.types.scalars import Words as Ints
from vernier.operators.language.types.schema import Field, RowType

if TYPE_CHECKING:  # brings numba, which a program that is only built can do without
    from vernier.storage.strings.string_heap import Heap


@dataclass(frozen=True)
class Groups:
    """g groups of one wave; a group is one key at one time.

    keys: int64[g, k] key words; offsets: int64[g + 1]; vals: int64[n, v] val words, within a group in word order, each
    once; counts: int64[n] multiplicities, never 0, negative ones too.
    """

    keys: Ints
    offsets: Ints
    vals: Ints
    counts: Ints
    heap: Heap | None = None
    texts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def sizes(self) -> Ints:
        """int64[g]: how many distinct rows each group has."""
        return np.diff(self.offsets)

    @property
    def group_of(self) -> Ints:
        """int64[n]: the group of each row."""
        return np.repeat(np.arange(len(self.keys), dtype=np.int64), self.sizes)

    @property
    def comparable(self) -> Ints:
        """int64[n, v]: vals whose words order as their values do, long texts too; vals itself where that is so."""
        if self.heap is None or not self.texts:
            return self.vals
        ordered: Ints = self.heap.comparable(self.vals, self.texts)
        return ordered

    def take(self, kept: Ints | np.ndarray[Any, np.dtype[np.bool_]]) -> Groups:
        """The same groups with some of their rows: ascending positions or a mask. Groups may become empty."""
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

    def order(self, by: Sequence[tuple[Field, bool]]) -> Ints:
        """int64[n]: positions of the rows, group after group, in order of columns of val, each (field, descending).

        Ascending order has nulls first, descending order last, as Spark's. Ties are in the order of the whole row.
        """
        vals = self.comparable
        # Rows are in the order of their words already, unless long texts say otherwise.
        keys: list[Ints] = [] if vals is self.vals else list(reversed(vals.T))
        for field, descending in reversed(by):
            words = vals[:, field.offset : field.offset + field.words]
            keys += [~column if descending else column for column in reversed(words.T)]
        order: Ints = np.lexsort([*keys, self.group_of]).astype(np.int64)
        return order


@dataclass(frozen=True)
class Produced:
    """What a logic made of g groups: int64[m, w] rows of output words by offsets int64[g + 1], with multiplicities
    int64[m]. Equal rows of a group add up; their order does not matter."""

    offsets: Ints
    rows: Ints
    counts: Ints

    @staticmethod
    def one(rows: Ints, kept: np.ndarray[Any, np.dtype[np.bool_]] | None = None) -> Produced:
        """One row a group, once: int64[g, w]; `kept`: bool[g], False where a group has none."""
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
    """What a logic means, as part of the plan: an immutable value, usually a frozen dataclass."""

    name: ClassVar[str]
    """For people and fingerprints."""
    positive: ClassVar[bool] = False
    """Whether it never gives a negative multiplicity, whatever it is given."""
    steady: ClassVar[bool] = True
    """Whether what it answered may be computed again instead of kept. User code is not asked twice for one state."""

    @property
    def title(self) -> str:
        """What `explain` and errors call the operator."""
        return self.name

    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """What makes this spec differ from others of its name: plain values, the same in every process."""

    @abstractmethod
    def schema(self, key: RowType, val: RowType) -> RowType:
        """The columns of the output behind those of the key. Raises ProgramErrors."""

    @abstractmethod
    def compile(self, key: RowType, val: RowType) -> Logic:
        """The logic for rows of these types."""
