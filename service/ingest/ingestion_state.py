"""The ingest state: what the manifest carries from one epoch to the next, so that ingestion continues where it was.

It is JSON in the manifest. Its size is constant per partition, except for counts that are not met yet.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from vernier.service.ingest.future_times import Discard
from vernier.service.ingest.watermarks import PartitionClock
from vernier.storage.updates import MIN_TIME


class SnapshotState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much of a source's snapshot has entered. time: the data time as of which its rows are. pieces: how many there
    are; done: the first ones that have entered, with all their rows. print: of what the pieces are, so that another
    process finds the same ones. began: the epoch that began anew with this snapshot, 0 for the first one of a state.
    version: of a Delta table. beside: epochs of messages go on while it enters. joined: for a source that is new to a
    running service, the data time at which its rows are all there, if that is after `time`."""

    time: int
    pieces: int
    print: str = ""
    done: int = 0
    rows: int = 0
    began: int = 0
    version: int | None = None
    beside: bool = False
    joined: int = MIN_TIME

    @property
    def shown(self) -> int:
        """The earliest data time at which answers have all rows."""
        return max(self.time, self.joined)

    def covers(self, upper: int) -> bool:
        """Whether answers before the frontier `upper` may be shown: all rows are there, and their time is final."""
        return self.done == self.pieces and upper > self.shown


class IngestionState(msgspec.Struct, frozen=True):
    """The ingest state between epochs: the input frontier, and a clock for each partition of each input topic. discard:
    what an operator has discarded from the topics. snapshots: those of sources that have one."""

    frontier: int = MIN_TIME
    topics: dict[str, dict[str, PartitionClock]] = {}
    discard: Discard | msgspec.UnsetType = msgspec.UNSET
    snapshots: dict[str, SnapshotState] | msgspec.UnsetType = msgspec.UNSET

    @property
    def begun(self) -> Mapping[str, SnapshotState]:
        """The snapshots by source."""
        return {} if self.snapshots is msgspec.UNSET else self.snapshots

    @property
    def entering(self) -> Mapping[str, SnapshotState]:
        """The snapshots of which pieces are still to enter."""
        return {name: one for name, one in self.begun.items() if one.done < one.pieces}


def snapshots_in(state: Mapping[str, Any]) -> Mapping[str, SnapshotState]:
    """The snapshots of an ingest state, by source."""
    return msgspec.convert(state.get("snapshots", {}), dict[str, SnapshotState])


def begin_again(state: Mapping[str, Any], topics: Mapping[str, int]) -> dict[str, Any]:
    """The ingest state after topics, with this many partitions each, are read again from their beginning, as if their
    messages followed those of the earlier topics of the same name. Frontiers and arrival stamps stay; counts that were
    promised are no longer waited for."""
    before = msgspec.convert(dict(state), IngestionState)
    own = {
        topic: {
            number: PartitionClock(active_ms=clock.active_ms, frontier=clock.frontier, last=clock.last)
            for number, clock in clocks.items()
            if int(number) < topics[topic]
        }
        if topic in topics
        else clocks
        for topic, clocks in before.topics.items()
    }
    after: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(before, topics=own))
    return after


def set_back(state: Mapping[str, Any], discard: Discard) -> dict[str, Any]:
    """The ingest state with a discard in it; the state must not be past `discard.after`. Partitions that have promised
    more than that time are set back to it and forget their counts."""
    before = msgspec.convert(dict(state), IngestionState)
    topics = {
        topic: {
            number: msgspec.structs.replace(clock, frontier=min(clock.frontier, discard.after), counted=None)
            if clock.frontier > discard.after
            else clock
            for number, clock in own.items()
        }
        for topic, own in before.topics.items()
    }
    after: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(before, topics=topics, discard=discard))
    return after
