"""Slice sizing: how many updates the dataflow processes together in one slice.

A slice looks up the keys of its updates, round after round, in hash order, the order in which a trace stores them. In a
state larger than the caches each lookup costs several cache misses; it costs fewer if the keys lie closer together,
that is, if a slice has more of them. But a key's history that grew in the slice is read again by each round that
touches it, and the rows that a slice seals stay in memory, with an index, until the slice closes. Both costs depend on
the number of rows that a slice seals. So a slice should seal about as many rows as the state has, within bounds. The
previous slice shows how many rows an update seals.
"""

from __future__ import annotations

FIRST = 1 << 12
"""Updates per worker in the first slice, before anything has been measured."""
LEAST, MOST = 1 << 11, 1 << 21
"""Bounds of a slice's updates per worker."""
LEAST_ROWS, MOST_ROWS = 1 << 19, 1 << 24
"""Bounds of the rows that a slice should seal: about what fits the caches with its index, and what takes a gigabyte or
two with its index."""
_BYTES = 1 << 9
"""Bytes of process memory to allow for each sealed row. The row and its share of the index take about a quarter of
that."""
_GROWTH = 4
"""The next slice may have at most this many times the updates of the previous one, because later updates may produce
more rows each."""


class SliceSizing:
    """The number of updates that the next slice of this worker should have. It affects cost only, never answers.

    fixed: always use this many; 0: adapt. `grain`: slice sizes are multiples of it; the same on all workers. `share`:
    about this worker's part of the running slice's updates, if the code that cuts slices knows it. It matters because
    one worker may read all updates, while the rows they seal are spread over all workers. `rows`: the most rows that a
    slice should seal. `most`: the most updates that a slice should have. `kernel`: up to how many updates one kernel
    call runs a slice, which a somewhat longer slice is not worth losing; 0: none does.
    """

    __slots__ = ("fixed", "grain", "kernel", "most", "rows", "share", "updates")

    def __init__(self, fixed: int = 0) -> None:
        self.fixed = fixed
        self.grain = fixed or LEAST
        self.updates = fixed or FIRST
        self.share = self.kernel = 0
        self.rows = MOST_ROWS
        self.most = MOST

    def keep_to(self, memory: int) -> None:
        """Bound slices for a process that should use at most `memory` bytes."""
        self.rows = min(MOST_ROWS, memory // _BYTES)

    def shorten(self) -> None:
        """Make all slices from now on as short as allowed."""
        if not self.fixed:
            self.updates = self.most = LEAST

    def cuttable(self, taken: int) -> bool:
        """Whether a slice of which this worker read `taken` updates could have been shorter."""
        return not self.fixed and self.most > LEAST and max(taken, self.share) > LEAST

    def wants(self, taken: int) -> bool:
        """Whether a slice of which this worker read `taken` updates is a useful measurement for slices of the current
        size. A single time can have any number of updates, and they are all in one slice; the rows that such a load
        seals say nothing about later slices."""
        return not self.fixed and self.updates <= 2 * (self.share or taken) <= 4 * self.updates

    def learn(self, taken: int, sealed: int, state: int) -> None:
        """Learn from a slice of which this worker read `taken` updates and sealed `sealed` rows. Before it, the state
        had `state` rows."""
        wanted = min(max(state, LEAST_ROWS), self.rows) * (self.share or taken) // max(sealed, 1)
        if self.kernel < wanted < 2 * self.kernel:
            wanted = self.kernel
        self.updates = max(LEAST, min(wanted, self.most, _GROWTH * self.updates) // self.grain * self.grain)
