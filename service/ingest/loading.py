"""Loading: a snapshot's rows enter epochs of their own, before the source's first message.

The driver lists the pieces of all snapshots (Spark's partitions of the frame that reads one). Each epoch takes a few,
one per worker, and its manifest says how many have entered. So whatever is killed, a piece enters once or is read
again; the pieces' print shows that they are the same ones.

- *Straight into the dataflow*, while the state has seen no data time: the rows enter at the first times that there
  are, one for each epoch, far before any message. Memory is bounded by a piece per worker. Nothing may see these
  times, so this is only for plans that move no update in time.
- *Held* otherwise: as updates at the snapshot's time, in the stash, until the frontier passes that time. They then
  enter together.

When the last piece has entered, the topic's partitions are complete up to the snapshot's time. Updates of an event
clock up to that time are in the snapshot, so they are dropped; arrival clocks stamp later times. Views that depend on
the source are shown from the frontier on that passes the time, and have no history before it (`SnapshotState.covers`).

A source that is new to a running service: its rows are held until the frontier moves, piece by piece, between epochs of
the other sources' messages. Its own topic is not read meanwhile and does not hold the frontier back. When the last
piece is there, the source *joins* at a data time just after the frontier (`SnapshotState.joined`), unless the
snapshot's own time is later. Messages of an event clock between the two times count as of `joined`; the frontier waits
until the topic's own clock is there. So from `joined` on, answers have all that they would have had.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from vernier.operators.language.types.schema import RowType
from vernier.service.ingest.config import IngestionConfig, by_topic
from vernier.service.ingest.counts import SourceCounts
from vernier.service.ingest.formats.columns import rows_of
from vernier.service.ingest.ingestion import Admitted, Advanced
from vernier.service.ingest.ingestion_state import IngestionState, SnapshotState
from vernier.service.ingest.lateness import Lateness
from vernier.service.ingest.rejects import Refusal
from vernier.service.ingest.stash import HeldUpdates
from vernier.service.ingest.watermarks import PartitionClock, round_up_one
from vernier.storage.errors import CallerError
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import MIN_TIME, Updates

LOADED = MIN_TIME + (1 << 40)
"""Data times before this one are those at which snapshots load."""


class SnapshotMisfit(CallerError):
    """A row of a snapshot does not fit its source, so the snapshot cannot enter."""

    message = "the snapshot of source {source} does not fit: {problem}"
    source: str
    problem: str


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one epoch loads. take: the pieces of the source's snapshot. direct: straight into the dataflow. begin: the
    snapshots that begin with this epoch, by source. offsets: where their topics are read from, by topic and partition.
    now_ms: the driver's clock."""

    source: str
    take: list[int]
    direct: bool
    now_ms: int
    begin: dict[str, SnapshotState] = {}
    offsets: dict[str, dict[int, int]] = {}


class Loading:
    """The steps of an epoch that loads, in place of those of Ingestion. Immutable."""

    def __init__(self, sources: Mapping[str, RowType], config: IngestionConfig) -> None:
        self._sources, self._config = dict(sources), config
        self._topics = by_topic(sources, config)

    def decode(self, source: str, batch: pa.RecordBatch, heap: Heap) -> Updates:
        """The rows of an Arrow batch of the source's columns, as inserts without a time. Raises SnapshotMisfit."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        try:
            words, time, diff = rows_of(columns, batch.num_rows, self._sources[source], heap)
        except Refusal as refusal:
            raise SnapshotMisfit(source=source, problem=refusal.detail) from refusal
        return Updates.of(words, time, diff)

    def advance(self, state: Mapping[str, Any], part: SnapshotPart, rows: int) -> Advanced:
        """The step of an epoch that takes `rows` rows on all workers."""
        before = msgspec.convert(dict(state), IngestionState)
        snapshots = {name: one for name, one in before.begun.items() if name in self._sources} | part.begin
        mine, lower = snapshots[part.source], before.frontier
        snapshots[part.source] = msgspec.structs.replace(
            mine, done=mine.done + len(part.take), rows=mine.rows + rows, joined=self._joined(part, mine, lower)
        )
        clocks = {topic: self._clocks(topic, before, part, snapshots) for topic in self._topics}
        reached = min(
            (at for own in clocks.values() for one in own.values() if (at := one.reached) is not None), default=lower
        )
        upper = max(lower, reached, self._time(lower) + 1 if part.direct else lower)
        after = msgspec.structs.replace(before, frontier=upper, topics=clocks, snapshots=snapshots)
        frontiers: dict[str, dict[str, int | None]] = {
            topic: {number: clock.reached for number, clock in own.items()} for topic, own in clocks.items()
        }
        offsets = {topic: {str(one): at for one, at in own.items()} for topic, own in part.offsets.items()}
        return Advanced(dict(state), msgspec.to_builtins(after), lower, upper, offsets, frontiers, {})

    def admit(
        self, part: SnapshotPart, rows: Updates, held: Mapping[str, Sequence[HeldUpdates]], step: Advanced
    ) -> Admitted:
        """This worker's rows, at their time, and what else is due."""
        counts = {name: SourceCounts() for name in self._sources}
        inputs, still = {}, {}
        for name, row_type in self._sources.items():
            config = self._config.sources[name]
            one = Lateness(name, row_type.width, config, step.lower, step.upper, counts[name])
            if name == part.source and not part.direct:
                at = step.state["snapshots"][name]["time"]
                one.pass_rows(_at(rows, at), part.now_ms)
            inputs[name], still[name] = one.close(held.get(name, ()))
            if name == part.source and part.direct:
                counts[name].inserted += len(rows)
                inputs[name] = Updates.concat([_at(rows, self._time(step.lower)), inputs[name]], row_type.width)
        none = np.empty(0, np.int64)
        return Admitted(inputs, still, [], counts, (none, none))

    @staticmethod
    def _time(lower: int) -> int:
        """The data time of the rows that enter straight into the dataflow."""
        return max(lower, MIN_TIME + 1)

    def _joined(self, part: SnapshotPart, mine: SnapshotState, lower: int) -> int:
        """From which data time on all rows are there, if this epoch brings the last ones: those that come after the
        snapshot's time are held at the frontier."""
        if part.direct or lower <= mine.time:
            return mine.joined
        rounding = self._config.sources[part.source].rounding
        return round_up_one(round_up_one(lower, rounding) + 1, rounding)

    def _clocks(
        self, topic: str, before: IngestionState, part: SnapshotPart, snapshots: Mapping[str, SnapshotState]
    ) -> dict[str, PartitionClock]:
        """The clocks of a topic's partitions. Once the snapshots of all its sources have entered, they are complete up
        to the least time of these."""
        known, names, now_ms = before.topics.get(topic, {}), self._topics[topic], part.now_ms
        if any(name in part.begin for name in names):
            known = {}  # an earlier source of this name may have read the topic
        found = [one for name in names if (one := snapshots.get(name)) is not None]
        entered = [one for one in found if one.done == one.pieces]
        whole = [one.time for one in entered]
        clocks = {}
        for number in sorted({*range(self._config.partitions.get(topic, 1)), *map(int, known)}):
            clock = known.get(str(number)) or PartitionClock(active_ms=now_ms)
            if whole:
                clock = msgspec.structs.replace(clock, last=max(clock.last, *(one.shown for one in entered)))
            if len(whole) == len(names):
                frontier = max(clock.frontier, min(whole) + 1)
                active_ms = now_ms if clock.idle else clock.active_ms
                clock = msgspec.structs.replace(clock, frontier=frontier, idle=False, active_ms=active_ms)
            clocks[str(number)] = clock
        return clocks


def _at(updates: Updates, time: int) -> Updates:
    return Updates.of(updates.rows, np.full(len(updates), time, np.int64), updates.diff)
