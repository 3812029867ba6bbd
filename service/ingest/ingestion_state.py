"""The ingest state: what the manifest carries from one epoch to the next, so that ingestion continues where it was.

It is JSON in the manifest. Its size is constant per partition, except for counts that are not met yet.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from vernier.service.ingest.future_times import Discard
from vernier.service.ingest.watermarks import PartitionClock
from vernier.storage.updates import MIN_TIME


class IngestionState(msgspec.Struct, frozen=True):
    """The ingest state between epochs: the input frontier, and a clock for each partition of each input topic. discard:
    what an operator has discarded from the topics."""

    frontier: int = MIN_TIME
    topics: dict[str, dict[str, PartitionClock]] = {}
    discard: Discard | msgspec.UnsetType = msgspec.UNSET


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
