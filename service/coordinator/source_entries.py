"""The state of each source as an epoch's reports describe it, for its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vernier.service.cluster.messages import Report
from vernier.service.ingest.config import SourceConfig
from vernier.service.ingest.former import Columns
from vernier.service.ingest.ingestion_state import snapshots_in
from vernier.storage.state.manifest import PartitionEntry, SnapshotEntry, SourceEntry
from vernier.storage.updates import MIN_TIME


def source_entry(
    name: str,
    config: SourceConfig,
    reports: Sequence[Report],
    unread: Mapping[int, int],
    columns: list[list[str]],
    earlier: list[Columns],
) -> SourceEntry:
    """A source as the epoch of these reports has read it. unread: the lag of its partitions, where it is known."""
    one = reports[0]
    frontiers = one.frontiers.get(config.topic, {})
    known = [frontier for frontier in frontiers.values() if frontier is not None]
    clocks = one.ingestion.get("topics", {}).get(config.topic, {})
    begun = snapshots_in(one.ingestion).get(name)
    return SourceEntry(
        topic=config.topic,
        format=config.format,
        clock=config.clock,
        on_late=config.on_late,
        rounding=config.rounding,
        frontier=min(known, default=None),
        idle=bool(frontiers) and not known,
        partitions={
            int(partition): partition_entry(frontier, clocks.get(partition, {}), unread.get(int(partition)))
            for partition, frontier in frontiers.items()
        },
        held=sum(report.waiting.get(name, 0) for report in reports),
        snapshot=None if begun is None else SnapshotEntry(begun.shown, begun.pieces, begun.done, begun.rows),
        columns=columns,
        earlier=[[list(column) for column in one] for one in earlier],
    )


def partition_entry(frontier: int | None, clock: Mapping[str, Any], lag: int | None = None) -> PartitionEntry:
    """The state of a partition. A partition without a frontier (None) is idle: it no longer holds back the others, and
    its own clock gives the time it had reached."""
    if frontier is not None:
        return PartitionEntry(frontier, lag=lag)
    last = clock.get("frontier", MIN_TIME)
    return PartitionEntry(None if last == MIN_TIME else last, idle=True, lag=lag)
