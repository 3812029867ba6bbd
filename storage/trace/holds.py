"""Holds: what the readers of a trace still need, counted, so that the trace can forget all else.

A reader holds a frontier: it will ask only about times at or after it. What no reader holds any more may be folded
(`advance_by`) as soon as a merge comes by. Dropping a hold, or moving it on, lets the common frontier move.
Source: seed 000, constraint 2 ("union together the frontiers with MutableAntichain").
"""

from __future__ import annotations

from vernier.storage.errors import HoldWentBack
from vernier.storage.time.antichain import Antichain, MutableAntichain


class Holds:
    """The frontiers of all readers, and the earliest times among them."""

    def __init__(self, coordinates: int) -> None:
        self._counts = MutableAntichain(coordinates)

    @property
    def frontier(self) -> Antichain:
        """What some reader may still ask about; empty where nobody holds anything."""
        return self._counts.frontier

    @property
    def earliest(self) -> int | None:
        """The earliest data time that a reader needs told apart from later ones; None where nobody holds anything."""
        frontier = self._counts.frontier
        return int(frontier.lower_bound()[0]) if len(frontier.elements) else None

    def take(self, frontier: Antichain) -> Hold:
        """One more reader, for times at or after `frontier`. DepthMismatch."""
        self._counts.update((time, 1) for time in frontier)
        return Hold(self._counts, frontier)


class Hold:
    """One reader's hold; a context manager that releases it."""

    def __init__(self, counts: MutableAntichain, frontier: Antichain) -> None:
        self._counts = counts
        self.frontier = frontier

    def advance(self, frontier: Antichain) -> None:
        """Hold `frontier` instead, which must not be before the one held: what was let go may be gone. HoldWentBack."""
        if not self.frontier.before(frontier):
            raise HoldWentBack(held=self.frontier.to_list(), wanted=frontier.to_list())
        self._counts.update([*((time, 1) for time in frontier), *((time, -1) for time in self.frontier)])
        self.frontier = frontier

    def release(self) -> None:
        """Hold nothing any more; doing so twice is fine."""
        self.advance(Antichain((), self._counts.coordinates))

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
