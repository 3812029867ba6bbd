"""Frontiers as antichains: sets of times in which no time precedes another.

A frontier promises that only times at or after one of its elements can still appear. `Antichain` is such a set as a
value. `MutableAntichain` counts the times of many parties (readers' holds, capabilities) and maintains the frontier of
the times that are counted. Frontiers form a lattice themselves: one is before another if it allows every time that the
other allows.

Sources: "Differential dataflow roadmap", section "Compaction" and constraint 2; timely dataflow's `progress::frontier`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vernier.storage.errors import CountUnderflow, DepthMismatch
from vernier.storage.time.lattice import Flags, Times, join, lower_bound, minimal, reached

Time = tuple[int, ...]


class Antichain:
    """An immutable set of pairwise incomparable times: `elements`, int64[k, d], sorted, read-only.

    It can be constructed from any times; only the minimal ones are kept. The empty antichain allows no time.
    """

    __slots__ = ("elements",)

    def __init__(self, times: npt.ArrayLike, coordinates: int | None = None) -> None:
        """times: [n, d]; `coordinates` gives d if there are no times."""
        given = np.asarray(times, np.int64)
        if given.size == 0 and coordinates is not None:
            given = given.reshape(len(given), coordinates)
        if given.ndim != 2:
            raise ValueError(f"times must be a table with a row for each time, got shape {given.shape}")
        if coordinates is not None and given.shape[1] != coordinates:
            raise DepthMismatch(left=given.shape[1], right=coordinates)
        self.elements: Times = minimal(given)
        self.elements.setflags(write=False)

    @property
    def coordinates(self) -> int:
        """The number of coordinates of a time."""
        return int(self.elements.shape[1])

    def less_equal(self, times: Times) -> Flags:
        """Which of times[n, d] the frontier still allows: those at or after one of its elements. bool[n]."""
        return reached(times, self.elements)

    def before(self, other: "Antichain") -> bool:
        """Whether this frontier allows every time that the other allows (true of itself and of the empty frontier)."""
        return bool(self.less_equal(other.elements).all())

    def meet(self, other: "Antichain") -> "Antichain":
        """The latest frontier before both: it allows what either allows."""
        _check(self, other)
        return Antichain(np.concatenate((self.elements, other.elements)))

    def join(self, other: "Antichain") -> "Antichain":
        """The earliest frontier after both: it allows what both allow."""
        _check(self, other)
        pairs = join(self.elements[:, None], other.elements[None]).reshape(-1, self.coordinates)
        return Antichain(pairs)

    def lower_bound(self) -> Times:
        """The latest single time at or before all elements; int64[d], all `TOP` if there are no elements."""
        return lower_bound(self.elements)

    def to_list(self) -> list[list[int]]:
        """The elements, for JSON."""
        return [[int(coordinate) for coordinate in element] for element in self.elements]

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[Time]:
        return map(tuple, self.to_list())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Antichain):
            return NotImplemented
        return bool(np.array_equal(self.elements, other.elements))

    def __hash__(self) -> int:
        return hash((self.coordinates, self.elements.tobytes()))

    def __repr__(self) -> str:
        return f"Antichain({self.to_list()})"


class MutableAntichain:
    """A multiset of times, and the frontier of those whose count is not zero.

    Each holder adds the times it needs and removes them when it is done. Counts distinguish several holders of the same
    time from one. The frontier changes only if the last holder of one of its elements goes, or if a time before it is
    added. Adding a time costs O(frontier); removing the last count of a frontier element costs O(distinct times);
    everything else is O(1).
    """

    def __init__(self, coordinates: int) -> None:
        self.coordinates = coordinates
        self._counts: Counter[Time] = Counter()
        self._frontier = Antichain((), coordinates)

    @property
    def frontier(self) -> Antichain:
        """The frontier of the counted times."""
        return self._frontier

    def count(self, time: Sequence[int]) -> int:
        """How often a time is held."""
        return self._counts[tuple(time)]

    def __len__(self) -> int:
        """The number of distinct times held."""
        return len(self._counts)

    def update(self, changes: Iterable[tuple[Sequence[int], int]]) -> list[tuple[Time, int]]:
        """Add (positive) and remove (negative) counts of times, as one step.

        Returns how the frontier changed: (time, -1) for elements that left it, (time, +1) for elements that were added.
        Counts may be negative within the step but not at its end: that raises CountUnderflow and changes nothing.
        Raises DepthMismatch.
        """
        total: Counter[Time] = Counter()
        for time, change in changes:
            if len(time) != self.coordinates:
                raise DepthMismatch(left=len(time), right=self.coordinates)
            total[tuple(time)] += change
        for time, change in total.items():
            if self._counts[time] + change < 0:
                raise CountUnderflow(time=time, removed=-change, held=self._counts[time])
        came, went = [], False
        before = set(self._frontier)
        for time, change in total.items():
            count = self._counts[time] + change
            if count == 0:
                del self._counts[time]
                went |= time in before
            else:
                if time not in self._counts:
                    came.append(time)
                self._counts[time] = count
        if went:
            self._frontier = Antichain(list(self._counts), self.coordinates)
        elif came:
            self._frontier = self._frontier.meet(Antichain(came, self.coordinates))
        after = set(self._frontier)
        return [(time, -1) for time in sorted(before - after)] + [(time, 1) for time in sorted(after - before)]

    def insert(self, time: Sequence[int]) -> list[tuple[Time, int]]:
        """Add one count of a time."""
        return self.update([(time, 1)])

    def remove(self, time: Sequence[int]) -> list[tuple[Time, int]]:
        """Remove one count of a time. Raises CountUnderflow."""
        return self.update([(time, -1)])


def _check(left: Antichain, right: Antichain) -> None:
    if left.coordinates != right.coordinates:
        raise DepthMismatch(left=left.coordinates, right=right.coordinates)
