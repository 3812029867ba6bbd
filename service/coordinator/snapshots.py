"""Loads the snapshots of sources, before the query that reads their topics.

Spark reads a few pieces at a time, one per worker, straight into an epoch's stage (service/ingest/loading.py has the
rules for times, and what a kill leaves). All that decides how to go on is in the manifest.

At the first start no query runs meanwhile. A source that is new to a running service loads *beside* the others: its
first epoch migrates the state to the changed program, then the query reads the other topics, and after each of its
epochs the next pieces enter in one of their own (`step`, on the query's thread). So answers of the other views go on,
one short epoch apart. What depends on when rows came (`delay`, `lookup`) must see all rows of the snapshot at once:
sources of such operators load while no query runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pyspark.sql import SparkSession

from vernier.operators.planning.ops import InputOp
from vernier.operators.planning.plan import Plan, upstream
from vernier.service.cluster.process import Job
from vernier.service.codec.instants import parse_instant
from vernier.service.config.settings import Settings
from vernier.service.config.snapshots import Snapshot
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.consumer_lag import LagUnknown
from vernier.service.coordinator.runner import Runner
from vernier.service.coordinator.session import LoadStage
from vernier.service.coordinator.snapshot_frames import Frame, open_frame
from vernier.service.errors import OffsetsBeyond, SnapshotChanged, SnapshotShares
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.ingestion_state import SnapshotState
from vernier.service.ingest.loading import LOADED, SnapshotPart
from vernier.service.ingest.watermarks import NS_PER_MS, round_up_one
from vernier.storage.state.manifest import SourceEntry
from vernier.storage.updates import MIN_TIME

_log = logging.getLogger("vernier.snapshots")


class Snapshots:
    """The snapshots of a service's sources. job: returns what workers need now."""

    def __init__(self, settings: Settings, epochs: Committer, runner: Runner, job: Callable[[], Job]) -> None:
        self._settings, self._epochs, self._runner, self._job = settings, epochs, runner, job
        self._warned: set[str] = set()
        self._beside: dict[str, Frame] = {}
        self._spark: SparkSession | None = None

    @property
    def entering(self) -> frozenset[str]:
        """The topics of the sources whose snapshots enter beside the query, which must not read them yet."""
        return frozenset(self._settings.topic(name) for name in list(self._beside))

    def step(self) -> bool:
        """Make the next epoch of a snapshot that enters beside the query. Returns whether there is more to enter.

        Raises what epochs raise.
        """
        if not self._beside or self._spark is None:
            return False
        name, frame = next(iter(self._beside.items()))
        known = self._epochs.snapshots.get(name)
        if known is not None and name in self._epochs.plan.sources:
            stage = self._stage(self._spark, name)
            self._epoch(frame, self._part(name, known.done, known.pieces), stage, beside=True)
            known = self._epochs.snapshots[name]
            if known.done < known.pieces:
                return True
        self._beside.pop(name)
        return bool(self._beside)

    def load(self, spark: SparkSession, ingestion: IngestionConfig, wanted: Callable[[], bool]) -> bool:
        """Load what is left of the snapshots, up to those that can go on beside the query. Returns whether it has
        loaded anything; it ends early, between two epochs, if they are not `wanted` any more.

        Raises SnapshotUnreadable, SnapshotChanged, SnapshotShares, OffsetsBeyond, LagUnknown, and what epochs raise.
        """
        self._spark, self._beside = spark, {}
        state = self._epochs.snapshots
        fresh = self._fresh(state)
        read = self._read()
        names = [name for name, one in state.items() if one.done < one.pieces and name in read and name not in fresh]
        if not names and not fresh:
            return False
        frames = {name: self._open(spark, name, state.get(name)) for name in (*names, *fresh)}
        begin = self._begin(frames, fresh)
        offsets = {ingestion.sources[name].topic: self._offsets(name, ingestion) for name in fresh}
        left = {name: begin.get(name) or state[name] for name in frames}
        loaded = False
        for name in sorted(left, key=lambda name: (left[name].beside, left[name].time, name)):
            done, pieces = left[name].done, left[name].pieces
            stage: LoadStage | None = None
            while begin or (done < pieces and not left[name].beside):
                if not wanted():
                    return True
                if stage is None:
                    stage = self._stage(spark, name)
                    self._runner.attach(stage)
                part = self._part(name, done, pieces)
                if begin:
                    own = {topic: at for topic, at in offsets.items() if at}
                    part = msgspec.structs.replace(part, begin=begin, offsets=own)
                self._epoch(frames[name], part, stage)
                begin, done, loaded = {}, done + len(part.take), True
            if done < pieces:
                self._beside[name] = frames[name]
        return loaded

    # --- inside -------------------------------------------------------------------------------------------------------

    def _read(self) -> Mapping[str, SourceEntry]:
        """The sources that the state has read."""
        newest = self._epochs.newest
        return {} if newest is None or self._epochs.anew else newest.sources

    def _fresh(self, state: Mapping[str, SnapshotState]) -> list[str]:
        """The sources whose snapshots have not begun. A source that the programs had not had for some time begins
        anew."""
        read = self._read()
        fresh = []
        for name in self._epochs.plan.sources:
            if not self._settings.begins(name) or (name in state and name in read):
                continue
            if name not in read:
                fresh.append(name)
            elif name not in self._warned:
                self._warned.add(name)
                said = (
                    "source %s has been read without its snapshot, which is left out; `vernier up --rebuild` takes it"
                )
                _log.warning(said, name)
        return fresh

    def _open(self, spark: SparkSession, name: str, begun: SnapshotState | None) -> Frame:
        given = self._settings.source(name).snapshot
        if begun is not None and given is None:
            problem = f"sources.{name}.snapshot is gone"
            raise SnapshotChanged(source=name, done=begun.done, pieces=begun.pieces, problem=problem)
        assert given is not None
        workers = self._epochs.workers
        version = None if begun is None else begun.version
        frame = open_frame(spark, name, self._epochs.plan.sources[name], given, workers, version)
        if begun is not None and (frame.print, frame.pieces) != (begun.print, begun.pieces):
            problem = f"what it is read from has changed (it has {frame.pieces} pieces now, or other ones)"
            raise SnapshotChanged(source=name, done=begun.done, pieces=begun.pieces, problem=problem)
        return frame

    def _begin(self, frames: Mapping[str, Frame], fresh: list[str]) -> dict[str, SnapshotState]:
        """The states of the snapshots that begin."""
        newest, anew = self._epochs.newest, self._epochs.anew
        frontier = MIN_TIME if newest is None or anew else newest.upper
        began = newest.epoch + 1 if newest is not None and anew else 0
        found = {}
        for name in fresh:
            mine = self._settings.source(name)
            assert mine.snapshot is not None
            for other in self._read():
                if other in self._epochs.plan.sources and self._settings.topic(other) == self._settings.topic(name):
                    raise SnapshotShares(source=name, other=other, topic=self._settings.topic(name))
            at = mine.snapshot.time_ns
            at = round_up_one(max(time.time_ns(), frontier) if at is None else at, mine.rounding)
            frame, beside = frames[name], frontier >= LOADED and not _by_arrival(self._epochs.plan, name)
            found[name] = SnapshotState(
                at, frame.pieces, frame.print, began=began, version=frame.version, beside=beside
            )
        return found

    def _stage(self, spark: SparkSession, name: str) -> LoadStage:
        return LoadStage(spark, self._job(), self._epochs.workers, list(self._epochs.plan.sources[name].names))

    def _part(self, name: str, done: int, pieces: int) -> SnapshotPart:
        """The next pieces."""
        take = list(range(done, min(done + self._epochs.workers, pieces)))
        return SnapshotPart(source=name, take=take, direct=self._direct(), now_ms=time.time_ns() // NS_PER_MS)

    def _direct(self) -> bool:
        """Whether rows can enter straight into the dataflow: no data time has been seen, and no operator moves one."""
        newest = None if self._epochs.anew else self._epochs.newest
        return not self._epochs.plan.queues and (newest is None or newest.upper < LOADED)

    def _epoch(self, frame: Frame, part: SnapshotPart, stage: LoadStage, *, beside: bool = False) -> None:
        """Make an epoch of some pieces. Tasks that have none read partitions without rows."""
        blanks = range(frame.pieces, frame.pieces + self._epochs.workers - len(part.take))
        stage.take = [*part.take, *blanks]
        began, before = time.perf_counter(), self._rows(part.source)
        self._epochs.loading = part
        try:
            if beside:
                self._runner.beside(frame.rows, stage)
            else:
                self._runner(frame.rows, 0)
        finally:
            self._epochs.loading = None
        now, seconds = self._epochs.snapshots[part.source], time.perf_counter() - began
        rate = (now.rows - before) / seconds
        said = "snapshot of source %s: %d of %d pieces, %d rows (%.0f rows/s)"
        _log.info(said, part.source, now.done, now.pieces, now.rows, rate)

    def _rows(self, name: str) -> int:
        known = self._epochs.snapshots.get(name)
        return 0 if known is None else known.rows

    def _offsets(self, name: str, ingestion: IngestionConfig) -> dict[int, int]:
        """Where the topic of a source is read from; partitions that are not named, from their first message."""
        given = self._settings.source(name).snapshot
        assert given is not None
        topic = ingestion.sources[name].topic
        newest = self._epochs.newest
        again = newest is not None and not self._epochs.anew and topic in newest.offsets
        client, partitions = self._settings.kafka_client(), ingestion.partitions[topic]
        return start_offsets(client, name, topic, partitions, given, again=again)


def start_offsets(
    client: Mapping[str, Any], source: str, topic: str, partitions: int, given: Snapshot, *, again: bool = False
) -> dict[int, int]:
    """The offsets from which a snapshot's source is followed. again: the state has offsets of an earlier source of this
    topic, which must not count. Raises OffsetsBeyond, LagUnknown."""
    if given.follow == "earliest" and not again:
        return {}
    where = [TopicPartition(topic, one) for one in range(partitions)]
    try:
        consumer = KafkaConsumer(**client, group_id=None)
        try:
            ends = {one.partition: end for one, end in consumer.end_offsets(where).items()}
            first = {one.partition: begin for one, begin in consumer.beginning_offsets(where).items()} if again else {}
            if given.follow == "earliest":
                return first
            if given.follow == "latest":
                return ends
            if isinstance(given.follow, str):
                since = max(parse_instant(given.follow) // NS_PER_MS, 0)
                found = consumer.offsets_for_times(dict.fromkeys(where, since))
                return {one.partition: ends[one.partition] if at is None else at.offset for one, at in found.items()}
        finally:
            consumer.close()
    except KafkaError as error:
        raise LagUnknown(reason=f"{type(error).__name__}: {error}".splitlines()[0]) from error
    for partition, offset in given.follow.items():
        if partition not in ends:
            raise OffsetsBeyond(source=source, topic=topic, partition=partition, problem="does not exist")
        if not 0 <= offset <= ends[partition]:
            problem = f"ends at offset {ends[partition]}, so it cannot be read from {offset}"
            raise OffsetsBeyond(source=source, topic=topic, partition=partition, problem=problem)
    return first | given.follow


def _by_arrival(plan: Plan, source: str) -> bool:
    """Whether answers depend on when the rows of a source came: an operator above it delays or looks back."""
    below = {op.id for op in plan.of(InputOp) if op.source == source}
    return any(op.remembers_ns != 0 and below & upstream(plan, [op.id]) for op in plan.ops)
