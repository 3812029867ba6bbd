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
LEAST, MOST = 1 << 11, 1 << 16
"""Bounds of a slice's updates a worker."""
LEAST_ROWS, MOST_ROWS = 1 << 19, 1 << 21
"""Bounds of the rows that a slice should seal: what caches hold with their index, and some hundred megabytes."""


class Pace:
    """How many updates the next slice of this worker should have. It concerns cost alone: answers do not depend on it.

    fixed: this many, always; 0: what suits. `grain`: what it is a multiple of, the same on all workers.
    """

    __slots__ = ("fixed", "grain", "updates")

    def __init__(self, fixed: int = 0) -> None:
        self.fixed = fixed
        self.grain = fixed or LEAST
        self.updates = fixed or FIRST

    def wants(self, taken: int) -> bool:
        """Whether a slice of so many updates says something about slices of this length. One time alone may have any
        number, all of which are in one slice; what such a load seals says nothing of what comes behind it."""
        return not self.fixed and self.updates <= 2 * taken <= 4 * MOST

    def learn(self, taken: int, sealed: int, state: int) -> None:
        """A slice of so many updates, more than none, sealed so many rows, before which the state had `state`.

        What is wanted may double from slice to slice, as rows may come of updates that came of few before.
        """
        wanted = min(max(state, LEAST_ROWS), MOST_ROWS) * taken // max(sealed, 1)
        self.updates = max(LEAST, min(wanted, MOST, 2 * self.updates) // self.grain * self.grain)
