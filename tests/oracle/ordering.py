"""Rules of what depends on order among the rows of a key: the first rows, ranks, neighbours, running sums, sessions.

Each rule makes rows of the rows of one key, as PerKey wants them, when its key is `nothing`; rows keep all their
columns. Only present rows are seen, each as often as its multiplicity says. Rows that are equal in `by` are ordered
by the whole row, except by the ranks, which are equal for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.plan import Contents, Row
from tests.oracle.values import By, in_order, rank

Rows = Iterator[tuple[Row, int]]


def copies(rows: Contents, by: Sequence[By]) -> list[Row]:
    """Every copy of every present row, in order."""
    present = [row for row, count in rows.items() if count > 0]
    return [row for row in in_order(present, by) for _ in range(rows[row])]


def place(row: Row, by: Sequence[By]) -> tuple[Any, ...]:
    """What rows that are equal in `by` have in common."""
    return tuple(rank(one.value(row)) for one in by)


@dataclass(frozen=True)
class TopK:
    """The first n copies."""

    n: int
    by: Sequence[By]

    def __call__(self, rows: Contents) -> Rows:
        for row in copies(rows, self.by)[: self.n]:
            yield row, 1


@dataclass(frozen=True)
class Rank:
    """Each row with 1 + the number of copies before it; dense: 1 + the number of different places before it."""

    by: Sequence[By]
    dense: bool = False

    def __call__(self, rows: Contents) -> Rows:
        ordered = copies(rows, self.by)
        places = [place(row, self.by) for row in ordered]
        for row in ordered:
            before = places[: places.index(place(row, self.by))]
            yield (*row, 1 + (len(set(before)) if self.dense else len(before))), 1


@dataclass(frozen=True)
class RowNumber:
    """Each copy with its number, from 1."""

    by: Sequence[By]

    def __call__(self, rows: Contents) -> Rows:
        for number, row in enumerate(copies(rows, self.by), 1):
            yield (*row, number), 1


@dataclass(frozen=True)
class Shifted:
    """Each copy with a value of the copy n before it, or after it when n is negative; `default` where there is none."""

    value: Callable[[Row], Any]
    n: int
    by: Sequence[By]
    default: Any = None

    def __call__(self, rows: Contents) -> Rows:
        ordered = copies(rows, self.by)
        for at, row in enumerate(ordered):
            other = at - self.n
            inside = 0 <= other < len(ordered)
            yield (*row, self.value(ordered[other]) if inside else self.default), 1


@dataclass(frozen=True)
class RunningSum:
    """Each copy with the sum of its and all earlier copies' values that are not null; None before the first of them."""

    value: Callable[[Row], Any]
    by: Sequence[By]

    def __call__(self, rows: Contents) -> Rows:
        total = None
        for row in copies(rows, self.by):
            if self.value(row) is not None:
                total = self.value(row) + (0 if total is None else total)
            yield (*row, total), 1


@dataclass(frozen=True)
class RunningExtreme:
    """Each copy with the least, or greatest, of its and all earlier copies' values that are not null, None before the
    first of them."""

    value: Callable[[Row], Any]
    by: Sequence[By]
    greatest: bool

    def __call__(self, rows: Contents) -> Rows:
        best = None
        for row in copies(rows, self.by):
            value = self.value(row)
            if value is not None and (best is None or (value > best) == self.greatest):
                best = value
            yield (*row, best), 1


@dataclass(frozen=True)
class Sessions:
    """Each present row with the start and the end of its session: rows less than a gap apart are in one session.

    A session ends a gap after its last row; one that begins as another ends is another one when `apart`.
    """

    time: Callable[[Row], int]
    gap: int

    def __call__(self, rows: Contents) -> Rows:
        present = sorted((row for row, count in rows.items() if count > 0), key=self.time)
        sessions: list[list[Row]] = []
        for row in present:
            if sessions and self.time(row) - self.time(sessions[-1][-1]) <= self.gap:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for session in sessions:
            for row in session:
                yield (*row, self.time(session[0]), self.time(session[-1]) + self.gap), rows[row]


def windows(time: int, size: int, every: int) -> list[tuple[int, int]]:
    """The windows [start, end) of a size that begin at multiples of `every` and have this time in them."""
    first = time // every * every
    return [(start, start + size) for start in range(first, time - size, -every)]
