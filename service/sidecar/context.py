"""Context: the parts of a running sidecar, and what every route asks of them: a view at a time, and how stale it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from service.answers import Answers
from service.instants import parse_instant
from service.reader import Snapshot
from service.sidecar.changes import ChangeStreams
from service.sidecar.follower import Follower
from service.sidecar.options import Options
from service.sidecar.problems import UnknownView
from service.viewstate import ViewState
from storage.updates import CLOSED


@dataclass(slots=True)
class Context:
    """The parts of a sidecar. started_ns: wall clock."""

    options: Options
    follower: Follower
    answers: Answers
    streams: ChangeStreams
    started_ns: int = field(default_factory=time.time_ns)

    def stale_ms(self, snapshot: Snapshot) -> int:
        """Milliseconds since the newest epoch was committed."""
        return snapshot.age_ns(time.time_ns()) // 1_000_000

    def view(self, name: str) -> tuple[Snapshot, ViewState]:
        """A view at the newest epoch. Raises UnknownView, NoEpoch."""
        snapshot = self.follower.require()
        return snapshot, find_view(snapshot, name)

    async def at(
        self, names: list[str], as_of: str | int | None, wait_ms: int
    ) -> tuple[Snapshot, list[ViewState], int]:
        """Views of one epoch and the data time asked for (the newest final one by default), after waiting for it.

        Raises UnknownView, NoEpoch, Compacted, NotYetFinal, BadInstant.
        """
        snapshot = self.follower.require()
        views = [find_view(snapshot, name) for name in names]
        if as_of is None:
            return snapshot, views, snapshot.frontier - 1
        wanted = parse_instant(as_of)
        deadline = time.monotonic() + min(wait_ms, self.options.max_wait_ms) / 1000
        while wanted >= snapshot.frontier and (left := deadline - time.monotonic()) > 0:
            snapshot = await self.follower.after(snapshot, left) or snapshot
            views = [find_view(snapshot, name) for name in names]
        for view in views:
            view.check(wanted)
        return snapshot, views, wanted


def find_view(snapshot: Snapshot, name: str) -> ViewState:
    """The view of that name. Raises UnknownView."""
    view = snapshot.views.get(name)
    if view is None:
        raise UnknownView.of(name, list(snapshot.views))
    return view


def frontier_list(frontier: int | None) -> list[str] | None:
    """A frontier as JSON: the times that may still come; empty when everything is final, null when unknown."""
    if frontier is None:
        return None
    return [] if frontier >= CLOSED else [str(frontier)]
