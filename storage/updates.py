"""Updates: changes to a collection as one int64 matrix.

A row of the matrix is `[row words | time | rounds... | diff]`. The row's values are encoded as words (see
docs/architecture.md); the schema says what they mean. The time is a data time in nanoseconds. It is followed by `depth`
round coordinates, one per enclosing loop, outermost first. With one matrix, concatenating, filtering and exchanging
updates is a single numpy call each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vernier.storage.errors import DiffOverflow
from vernier.storage.kernels.cells import copy_rows
from vernier.storage.kernels.consolidating import consolidate, consolidate_in, sort_order
from vernier.storage.time.lattice import CLOSED as CLOSED
from vernier.storage.time.lattice import MIN_TIME as MIN_TIME

Ints = npt.NDArray[np.int64]

_COPIED = 1 << 7
"""Below this number of rows, copying them is cheaper than checking whether a copy is needed."""
_LARGE = 1 << 19
"""From this number of rows on, arrays with one word per row are allocated on large pages."""


def together(parts: Sequence[Ints], *, contiguous: bool = False) -> Ints:
    """The rows of all parts, of which there must be at least one. A single part is returned itself, without a copy,
    unless it must be `contiguous` and is not."""
    if len(parts) == 1 and (not contiguous or parts[0].flags.c_contiguous):
        return parts[0]
    count = sum(map(len, parts))
    if count < _COPIED or all(part.flags.c_contiguous for part in parts):
        return np.ascontiguousarray(np.concatenate(parts))
    # numpy takes three times as long for rows of a few words that are apart.
    rows = np.empty((count, parts[0].shape[1]), np.int64)
    at = 0
    for part in parts:
        whole, first = whole_of(part)
        copy_rows(whole, first, len(part), rows, at)
        at += len(part)
    return rows


def whole_of(data: Ints) -> tuple[Ints, int]:
    """A contiguous matrix whose last columns are `data`, and the number of the first of them; a copy of `data` if no
    such matrix is known. Operators pass the tail of keyed rows, that is all columns but the hash."""
    if len(data) < _COPIED or data.flags.c_contiguous:
        return np.ascontiguousarray(data), 0
    whole = data.base
    if not isinstance(whole, np.ndarray) or whole.dtype != data.dtype or not whole.flags.c_contiguous:
        return np.ascontiguousarray(data), 0
    if whole.strides != data.strides or len(whole) != len(data):
        return np.ascontiguousarray(data), 0
    first = whole.shape[1] - data.shape[1]
    if _address(data) != _address(whole) + 8 * first:
        return np.ascontiguousarray(data), 0
    return whole, first


def _address(array: Ints) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def order_rows(data: Ints, columns: Ints) -> Ints:
    """The stable order of the rows of `data` by `columns`. O(n) where the first column is uniform, else O(n log n)."""
    order: Ints = sort_order(data, columns)
    return order


def consolidate_rows(data: Ints, columns: Ints) -> Ints:
    """`data` sorted by `columns`, equal rows summed in the last column, zeros dropped. Raises DiffOverflow."""
    if len(data) == 0:
        return data
    if len(data) < _LARGE:
        rows, status = consolidate(data, columns)
    else:
        # Arrays that numpy allocates are on large pages; those that a kernel allocates are not. This causes a tenth of
        # the page faults.
        one, two, groups = (np.empty(len(data), np.int64) for _ in range(3))
        rows, status = consolidate_in(data, columns, one, two, groups, np.empty(data.shape, np.int64))
    if status != 0:
        raise DiffOverflow(operation="addition")
    result: Ints = rows
    return result


def distinct(values: Ints) -> Ints:
    """The distinct values, ascending. O(n log n). numpy's `unique` hashes them, which takes 80 times as long for a
    hundred thousand different times."""
    ordered = np.sort(values, kind="stable")  # most are in runs, which it merges
    return ordered[first_of_runs(ordered)]


def distinct_counts(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values, ascending, and how often each is there. O(n log n)."""
    ordered = np.sort(values, kind="stable")
    first = first_of_runs(ordered)
    return ordered[first], np.diff(first, append=len(ordered))


def first_of_runs(values: Ints) -> Ints:
    """Where each run of equal values begins. O(n)."""
    fresh = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=fresh[1:])
    return np.flatnonzero(fresh)


@dataclass(frozen=True, slots=True)
class Updates:
    """n changes. data: int64[n, width + 1 + depth + 1]; width: words per row; depth: round coordinates per time."""

    data: Ints
    width: int
    depth: int

    @staticmethod
    def empty(width: int, depth: int = 0) -> Updates:
        """An empty set of changes with this width and depth."""
        return Updates(np.empty((0, width + depth + 2), np.int64), width, depth)

    @staticmethod
    def of(
        rows: npt.ArrayLike, time: npt.ArrayLike, diff: npt.ArrayLike, rounds: npt.ArrayLike | None = None
    ) -> Updates:
        """From columns: rows int64[n, width], time int64[n], diff int64[n], rounds int64[n, depth]. Copies once."""
        words = np.asarray(rows, np.int64)
        coordinates = np.empty((len(words), 0), np.int64) if rounds is None else np.asarray(rounds, np.int64)
        times = np.broadcast_to(np.asarray(time, np.int64), (len(words),))
        diffs = np.broadcast_to(np.asarray(diff, np.int64), (len(words),))
        data = np.column_stack((words, times, coordinates, diffs))
        return Updates(np.ascontiguousarray(data), words.shape[1], coordinates.shape[1])

    @staticmethod
    def concat(parts: Iterable[Updates], width: int, depth: int = 0) -> Updates:
        """All changes of the parts, which must share width and depth."""
        full = [part.data for part in parts if len(part.data)]
        if not full:
            return Updates.empty(width, depth)
        return Updates(together(full), width, depth)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def rows(self) -> Ints:
        """int64[n, width]: the words of the rows (a view)."""
        return self.data[:, : self.width]

    @property
    def time(self) -> Ints:
        """int64[n]: data times in ns (a view)."""
        return self.data[:, self.width]

    @property
    def rounds(self) -> Ints:
        """int64[n, depth]: round coordinates, outermost loop first (a view)."""
        return self.data[:, self.width + 1 : -1]

    @property
    def diff(self) -> Ints:
        """int64[n]: signed changes of multiplicity (a view)."""
        return self.data[:, -1]

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> Updates:
        """The changes at `index` (positions, a mask or a slice)."""
        return Updates(self.data[index], self.width, self.depth)

    def consolidate(self) -> Updates:
        """Sorted by (row, rounds, time), with one non-zero change per row and time. O(n log n). Raises DiffOverflow."""
        columns = sort_columns(0, self.width, self.depth)
        return Updates(consolidate_rows(self.data, columns), self.width, self.depth)


def sort_columns(first: int, stop: int, depth: int) -> Ints:
    """The columns that sort a matrix whose words `first .. stop-1` are followed by time and rounds: words, rounds,
    time.

    Rounds come before time so that the rows stay sorted when compaction advances old times to a common one.
    """
    return np.array([*range(first, stop), *range(stop + 1, stop + 1 + depth), stop], np.int64)
