"""Loads the snapshots of sources, before the query that reads their topics.

Spark reads a few pieces at a time, one per worker, straight into an epoch's stage (service/ingest/loading.py has the
rules for times, and what a kill leaves). No query runs meanwhile. All that decides how to go on is in the manifest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pyspark.sql import SparkSession

from vernier.service.cluster.process import Job
from vernier.service.codec.instants import parse_instant
from vernier.service.config.settings import Settings
from vernier.service.config.snapshots import Snapshot
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.consumer_lag import LagUnknown
from vernier.service.coordinator.runner import Runner
from vernier.service.coordinator.session import LoadStage
from vernier.service.coordinator.snapshot_frames import Frame, open_frame
from vernier.service.errors import OffsetsBeyond, SnapshotChanged, SnapshotTooEarly
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.ingestion_state import SnapshotState
from vernier.service.ingest.loading import LOADED, SnapshotPart
from vernier.service.ingest.watermarks import NS_PER_MS, round_up_one
from vernier.storage.updates import MIN_TIME

_log = logging.getLogger("vernier.snapshots")


class Snapshots:
    """The snapshots of a service's sources. job: returns what workers need now."""

    def __init__(self, settings: Settings, epochs: Committer, runner: Runner, job: Callable[[], Job]) -> None:
        self._settings, self._epochs, self._runner, self._job = settings, epochs, runner, job
        self._warned: set[str] = set()

    def load(self, spark: SparkSession, ingestion: IngestionConfig, wanted: Callable[[], bool]) -> bool:
        """Load what is left of the snapshots. Returns whether it has loaded anything; it ends early, between two
        epochs, if they are not `wanted` any more.

        Raises SnapshotUnreadable, SnapshotChanged, SnapshotTooEarly, OffsetsBeyond, LagUnknown, and what epochs raise.
        """
        state = self._epochs.snapshots
        names = [name for name, one in state.items() if one.done < one.pieces]
        fresh = self._fresh(state)
        if not names and not fresh:
            return False
        frames = {name: self._open(spark, name, state.get(name)) for name in (*names, *fresh)}
        begin = self._begin(frames, fresh)
        offsets = {ingestion.sources[name].topic: self._offsets(name, ingestion) for name in fresh}
        left = {name: state.get(name) or begin[name] for name in frames}
        for name in sorted(left, key=lambda name: (left[name].time, name)):
            stage = LoadStage(spark, self._job(), self._settings.workers, list(self._epochs.plan.sources[name].names))
            self._runner.attach(stage)
            done, pieces = left[name].done, left[name].pieces
            while done < pieces or begin:
                if not wanted():
                    return True
                part = SnapshotPart(
                    source=name,
                    take=list(range(done, min(done + self._settings.workers, pieces))),
                    direct=self._direct(),
                    now_ms=time.time_ns() // NS_PER_MS,
                    begin=begin,
                    offsets={topic: own for topic, own in offsets.items() if own} if begin else {},
                )
                self._epoch(frames[name], part, stage)
                begin, done = {}, done + len(part.take)
        return True

    # --- inside -------------------------------------------------------------------------------------------------------

    def _fresh(self, state: Mapping[str, SnapshotState]) -> list[str]:
        """The sources whose snapshots have not begun."""
        newest = None if self._epochs.anew else self._epochs.newest
        fresh = []
        for name in self._epochs.plan.sources:
            if self._settings.source(name).snapshot is None or name in state:
                continue
            if newest is None or name not in newest.sources:
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
        workers = self._settings.workers
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
            at = mine.snapshot.time_ns
            if at is not None and at < frontier:
                raise SnapshotTooEarly(source=name, time=at, frontier=frontier)
            at = round_up_one(max(time.time_ns(), frontier) if at is None else at, mine.rounding)
            frame = frames[name]
            found[name] = SnapshotState(at, frame.pieces, frame.print, began=began, version=frame.version)
        return found

    def _direct(self) -> bool:
        """Whether rows can enter straight into the dataflow: no data time has been seen, and no operator moves one."""
        newest = None if self._epochs.anew else self._epochs.newest
        return not self._epochs.plan.queues and (newest is None or newest.upper < LOADED)

    def _epoch(self, frame: Frame, part: SnapshotPart, stage: LoadStage) -> None:
        """Make an epoch of some pieces. Tasks that have none read partitions without rows."""
        blanks = range(frame.pieces, frame.pieces + self._settings.workers - len(part.take))
        stage.take = [*part.take, *blanks]
        began, before = time.perf_counter(), self._rows(part.source)
        self._epochs.loading = part
        try:
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
        return start_offsets(self._settings.kafka_client(), name, topic, ingestion.partitions[topic], given)


def start_offsets(
    client: Mapping[str, Any], source: str, topic: str, partitions: int, given: Snapshot
) -> dict[int, int]:
    """The offsets from which a snapshot's source is followed. Raises OffsetsBeyond, LagUnknown."""
    if given.follow == "earliest":
        return {}
    where = [TopicPartition(topic, one) for one in range(partitions)]
    try:
        consumer = KafkaConsumer(**client, group_id=None)
        try:
            ends = {one.partition: end for one, end in consumer.end_offsets(where).items()}
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
    return dict(given.follow)
