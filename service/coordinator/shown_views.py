"""Which views an epoch shows. A view that depends on a source with a snapshot is left out of the manifest until all of
the snapshot has entered and its time is final; it then has no history before that time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from vernier.operators.planning.ops import GivenArrangeOp, InputOp, ViewOp
from vernier.operators.planning.plan import Plan, upstream
from vernier.service.cluster.messages import Report
from vernier.service.ingest.ingestion_state import SnapshotState, snapshots_in
from vernier.service.ingest.loading import LOADED
from vernier.storage.state.manifest import Manifest, ViewEntry
from vernier.storage.updates import MIN_TIME


@dataclass(frozen=True)
class Shown:
    """What an epoch shows. lower: where its interval begins; floors: by view, the earliest time it can be read at;
    began: by view; steady: the views that the previous epoch has shown as well, or that have all their changes in
    this one. The others are read from their traces."""

    plan: Plan
    lower: int
    floors: Mapping[str, int]
    began: Mapping[str, int]
    steady: Collection[str]

    @staticmethod
    def of(plan: Plan, report: Report, newest: Manifest | None, began_at: Callable[[str], int]) -> Shown:
        """What the epoch of a report shows. newest: the commit that it continues; began_at: see ViewEntry.began."""
        snapshots = snapshots_in(report.ingestion)
        if not snapshots:
            none = dict.fromkeys(plan.views, MIN_TIME)
            return Shown(plan, report.lower, none, {name: began_at(name) for name in plan.views}, plan.views)
        if report.upper < LOADED:
            return Shown(plan, report.lower, {}, {}, ())
        feeds = _feeds(plan)
        floors, began, steady = {}, {}, []
        for name in plan.views:
            mine = [snapshots[source] for source in feeds[name] if source in snapshots]
            if all(one.covers(report.upper) for one in mine):
                before = newest is not None and name in newest.views
                floors[name] = max((one.shown for one in mine), default=MIN_TIME)
                began[name] = began_at(name) if before else _anew(snapshots)
                if before:
                    steady.append(name)
        return Shown(plan, max(report.lower, MIN_TIME + 1), floors, began, steady)

    def views(self, reports: Sequence[Report]) -> dict[str, ViewEntry]:
        """The manifest's views."""
        found = {}
        for name, floor in self.floors.items():
            view = self.plan.views[name]
            since = max(floor, *(report.traces[view.trace].since for report in reports))
            found[name] = ViewEntry(view.schema.to_json(), list(view.key), view.trace, since, self.began[name])
        return found


def _anew(snapshots: Mapping[str, SnapshotState]) -> int:
    return max(one.began for one in snapshots.values())


def _feeds(plan: Plan) -> dict[str, set[str]]:
    """The sources that each view depends on."""
    of: dict[int, str] = {op.id: op.source for op in plan.of(InputOp)}
    of |= {op.id: op.source for op in plan.of(GivenArrangeOp)}
    return {op.view: {of[one] for one in upstream(plan, [op.id]) if one in of} for op in plan.of(ViewOp)}
