"""The parts of a running sidecar, and what all routes need from them: a view at a data time, and its staleness."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vernier.service.codec.instants import parse_instant
from vernier.service.sidecar.changes import ChangeStreams
from vernier.service.sidecar.encoding import Budget
from vernier.service.sidecar.follower import Follower
from vernier.service.sidecar.options import Options
from vernier.service.sidecar.queries import Queries
from vernier.service.views.answers import Answers
from vernier.service.views.deadline import Deadline
from vernier.service.views.snapshot_reader import Snapshot
from vernier.service.views.view import UnknownView, View
from vernier.storage.blob.location import BlobLocation
from vernier.storage.errors import StorageError
from vernier.storage.updates import CLOSED

Result = TypeVar("Result")

SMALL_ROWS = 1_000
"""Answers of up to this number of rows are made on the event loop."""
_SMALL_VIEW = 20_000
_PLAN_FILE = "plan.json"


@dataclass(slots=True)
class Context:
    """The parts of a sidecar. started_ns: wall clock. disk_free: returns the free bytes of the disk that holds a
    folder."""

    options: Options
    follower: Follower
    answers: Answers
    streams: ChangeStreams
    queries: Queries
    started_ns: int = field(default_factory=time.time_ns)
    disk_free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free

    def stale_ms(self, snapshot: Snapshot) -> int:
        """Milliseconds since the newest epoch was committed."""
        return snapshot.age_ns(time.time_ns()) // 1_000_000

    def free_bytes(self) -> int | None:
        """Free bytes for the state; None if unknown, as for an object store."""
        folder = BlobLocation.of(self.options.state).folder
        try:
            return None if folder is None else self.disk_free(folder)
        except OSError:
            return None

    def budget(self, deadline: Deadline) -> Budget:
        """The limits of one answer."""
        return Budget(self.options.max_response_bytes, deadline)

    async def run(self, view: View, as_of: int, rows: int, work: Callable[[Deadline], Result]) -> Result:
        """Run work on a view for an answer of up to `rows` rows: at once if it is small, else in a thread.

        Raises TooSlow, and what the work raises.
        """
        undone = view.undone(as_of)
        small = undone is not None and rows <= SMALL_ROWS and len(view.rows) + undone <= _SMALL_VIEW
        return await self.queries.run(small, work)

    def plan(self) -> dict[str, Any] | None:
        """The service's explanation of its program; None if there is no readable plan file."""
        try:
            plan: dict[str, Any] = msgspec.json.decode(self.follower.files.get(_PLAN_FILE))
        except (StorageError, msgspec.DecodeError):
            return None
        return plan

    def announced(self) -> dict[str, Any] | None:
        """The views that the service announces before its first epoch, by name; None if it has not done so yet."""
        plan = None if self.follower.snapshot is not None or self.follower.failure is not None else self.plan()
        return None if plan is None else plan.get("views")

    def require(self, names: list[str]) -> Snapshot:
        """The newest epoch, for views of these names. Raises NoEpoch, or UnknownView if a view is not
        even announced.
        """
        if self.follower.snapshot is None and (announced := self.announced()) is not None:
            for name in names:
                if name not in announced:
                    raise UnknownView.of(name, list(announced))
        return self.follower.require()

    def view(self, name: str) -> tuple[Snapshot, View]:
        """A view at the newest epoch. Raises UnknownView, NoEpoch."""
        snapshot = self.require([name])
        return snapshot, find_view(snapshot, name)

    async def at(self, names: list[str], as_of: str | int | None, wait_ms: int) -> tuple[Snapshot, list[View], int]:
        """Views of one epoch and the requested data time (by default the newest final one), after waiting for it.

        Raises UnknownView, NoEpoch, Compacted, NotYetFinal, BadInstant.
        """
        snapshot = self.require(names)
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


def find_view(snapshot: Snapshot, name: str) -> View:
    """The view of that name. Raises UnknownView, or Damaged if a file that it needs is damaged."""
    view = snapshot.views.get(name)
    if view is None:
        if name in snapshot.damaged:
            raise snapshot.damaged[name]
        raise UnknownView.of(name, [*snapshot.views, *snapshot.damaged])
    return view


def frontier_list(frontier: int | None) -> list[str] | None:
    """A frontier as JSON: the times that may still come; empty if everything is final, null if unknown."""
    if frontier is None:
        return None
    return [] if frontier >= CLOSED else [str(frontier)]
