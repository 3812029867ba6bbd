"""Holds: the frontiers that the readers of a trace still need, counted, so that the trace can compact everything else.

A reader holds a frontier: it will read only at times at or after it. Times that no reader distinguishes any more may be
compacted (`advance_by`) by the next merge. Releasing or advancing a hold lets the common frontier advance.

Source: "Differential dataflow roadmap", constraint 2 ("union together the frontiers with MutableAntichain").

The fill of a changed program (operators/engine/fill.py) lags behind the epochs, so it takes a hold and a cut on each
trace that it reads.
"""

from __future__ import annotations

from vernier.storage.errors import HoldWentBack
from vernier.storage.time.antichain import Antichain, MutableAntichain
from vernier.storage.trace.changes import Changes

HOLDS = Changes()
"""Counts whenever any hold of this process is taken, advanced or released."""


class Holds:
    """The frontiers of all readers, and the earliest times among them."""

    def __init__(self, coordinates: int) -> None:
        self._counts = MutableAntichain(coordinates)

    @property
    def frontier(self) -> Antichain:
        """What some reader may still read; empty if there are no holds."""
        return self._counts.frontier

    @property
    def earliest(self) -> int | None:
        """The earliest data time that a reader must distinguish from later ones; None if there are no holds."""
        frontier = self._counts.frontier
        return int(frontier.lower_bound()[0]) if len(frontier.elements) else None

    def take(self, frontier: Antichain) -> Hold:
        """Add a reader, for times at or after `frontier`. Raises DepthMismatch."""
        self._counts.update((time, 1) for time in frontier)
        HOLDS.add()
        return Hold(self._counts, frontier)


class Hold:
    """One reader's hold; a context manager that releases it."""

    def __init__(self, counts: MutableAntichain, frontier: Antichain) -> None:
        self._counts = counts
        self.frontier = frontier

    def advance(self, frontier: Antichain) -> None:
        """Hold `frontier` instead. It must not be before the current one, because released times may be compacted
        already: HoldWentBack."""
        if not self.frontier.before(frontier):
            raise HoldWentBack(held=self.frontier.to_list(), wanted=frontier.to_list())
        self._counts.update([*((time, 1) for time in frontier), *((time, -1) for time in self.frontier)])
        self.frontier = frontier
        HOLDS.add()

    def release(self) -> None:
        """Release the hold; idempotent."""
        self.advance(Antichain((), self._counts.coordinates))

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
