"""Pace: how many updates go through the dataflow together, in a slice.

A slice looks up the keys that its updates concern, round after round, in the order of hashes, in which a trace has
them. In a state beyond the caches each look-up costs several misses, and the less the nearer the keys lie: the more of
them come at once. But a history that grew in the slice is gone through again by each round that touches it, and what a
slice has sealed stays in memory, with an index, until it closes. Both are a matter of the rows that a slice seals, so a
slice should seal as many as the state has, within bounds. How many that is for an update was seen in the slice before.
"""

from __future__ import annotations

FIRST = 1 << 12
"""Updates a worker of the first slice, of which nothing is known yet."""
LEAST, MOST = 1 << 11, 1 << 21
"""Bounds of a slice's updates a worker."""
LEAST_ROWS, MOST_ROWS = 1 << 19, 1 << 24
"""Bounds of the rows that a slice should seal: what caches hold with their index, and a gigabyte or two with it."""
_BYTES = 1 << 9
"""Bytes of a process's memory for each of them: a row and its part of the index take a quarter of that, about."""
_GROWTH = 4
"""How many times what a slice had the next one may have: rows may come of updates that came of few before."""


class Pace:
    """How many updates the next slice of this worker should have. It concerns cost alone: answers do not depend on it.

    fixed: this many, always; 0: what suits. `grain`: what it is a multiple of, the same on all workers. `share`: a
    worker's part of the running slice's updates, about, where who cuts knows it. One worker may read them all, but what
    they seal is spread over all workers. `rows`: the most that a slice should seal. `most`: the most updates that it
    should have.
    """

    __slots__ = ("fixed", "grain", "most", "rows", "share", "updates")

    def __init__(self, fixed: int = 0) -> None:
        self.fixed = fixed
        self.grain = fixed or LEAST
        self.updates = fixed or FIRST
        self.share = 0
        self.rows = MOST_ROWS
        self.most = MOST

    def keep_to(self, memory: int) -> None:
        """Let slices be short enough for a process that should have so many bytes of memory."""
        self.rows = min(MOST_ROWS, memory // _BYTES)

    def shorten(self) -> None:
        """From now on slices are as short as they may be."""
        if not self.fixed:
            self.updates = self.most = LEAST

    def cuttable(self, taken: int) -> bool:
        """Whether a slice of which this worker read so many updates could have been shorter."""
        return not self.fixed and self.most > LEAST and max(taken, self.share) > LEAST

    def wants(self, taken: int) -> bool:
        """Whether a slice of which this worker read so many updates says something about slices of its length. One
        time alone may have any number, all in one slice; what such a load seals says nothing of what comes behind."""
        return not self.fixed and self.updates <= 2 * (self.share or taken) <= 4 * self.updates

    def learn(self, taken: int, sealed: int, state: int) -> None:
        """A slice, of which this worker read so many updates, sealed so many rows here; before it the state had
        `state`."""
        wanted = min(max(state, LEAST_ROWS), self.rows) * (self.share or taken) // max(sealed, 1)
        self.updates = max(LEAST, min(wanted, self.most, _GROWTH * self.updates) // self.grain * self.grain)
