"""Runs a replay on Spark: the service's own epochs (barrier stage, ingestion, exchange, commit), fed from memory.

A replay looks like a topic to which only the replay writes. The updates of each epoch are its next messages, spread
over one partition per worker, and a progress record in each partition says that nothing before the epoch's end follows.
The changes are read back from what the epoch committed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from vernier.operators.language.collection.app import App
from vernier.operators.planning.plan import Plan
from vernier.service.cluster.process import Job
from vernier.service.config.programs import Program
from vernier.service.config.settings import Settings, load
from vernier.service.coordinator.committer import Committer
from vernier.service.coordinator.dead_letter_sender import DeadLetterSender
from vernier.service.coordinator.runner import Runner
from vernier.service.coordinator.session import COLUMNS, Stage, start_session
from vernier.service.files.changefiles import json_lines
from vernier.storage.errors import CallerError
from vernier.storage.state.manifest import BatchRef, Manifest
from vernier.storage.state.reshard import open_batch
from vernier.storage.state.state import StateDirectory
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.updates import Updates

_TOPIC = "replay"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_KINDS = (pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.int64(), _HEADERS)
_SCHEMA = pa.schema(zip(COLUMNS, _KINDS))


class StateNotEmpty(CallerError):
    """The state directory of a replay is not empty."""

    message = "state directory {path} contains epoch {epoch} already; a replay starts empty: give it a new directory"
    path: str
    epoch: int


class SparkEngine:
    """Runs epochs as the service does.

    state: a new directory to keep; None for a temporary one. heap: the contents of long texts in the inputs, added when
    they were encoded, and in the changes of the newest epoch. Raises SparkFailed, JavaMissing, JarsError and
    StateNotEmpty if it cannot start. An epoch raises EpochFailed, ProgramFailed and StorageErrors.
    """

    def __init__(self, program: Path, app: App, plan: Plan, workers: int, state: Path | None) -> None:
        self._plan = plan
        self.heap = Heap()
        self._next = [0] * workers
        self._open = ExitStack()
        try:
            self._start(program, app, workers, state)
        except BaseException:
            self.close()
            raise

    def _start(self, program: Path, app: App, workers: int, state: Path | None) -> None:
        scratch = Path(tempfile.mkdtemp(prefix="vernier-replay-"))
        self._open.callback(shutil.rmtree, scratch, ignore_errors=True)
        state = state or scratch / "state"
        settings = _settings(app, program, workers, state)
        ingestion = settings.ingestion(app, {_TOPIC: workers})
        self._epochs = epochs = Committer(StateDirectory(state), self._plan, ingestion, workers, settings.state.keep)
        self._open.callback(epochs.close)
        if epochs.newest is not None:
            raise StateNotEmpty(path=str(state), epoch=epochs.newest.epoch)
        self._runner = runner = Runner(settings, epochs, DeadLetterSender(settings, app.name, epochs.directory), None)
        self._open.callback(runner.close)
        with _standard_error_to(scratch / "spark.log"):
            self._spark = spark = start_session(settings, app.name, scratch)
        self._open.callback(_stop, spark)
        job = Job(
            address=runner.rendezvous.address,
            keys=runner.rendezvous.keys,
            programs=(Program.of(program),),
            fingerprint=self._plan.fingerprint,
            state=settings.state.place,
            ingestion=ingestion,
            slice_updates=settings.epoch.slice_updates,
            seconds=settings.epoch.timeout_ms / 1000,
            most_bytes=settings.most_bytes,
        )
        runner.attach(Stage(spark, job, workers))
        # Run an empty stage, which starts the Python processes and lets Spark load its classes.
        frame = spark.createDataFrame(self._messages(0, {}))
        frame.mapInArrow(_nothing, frame.schema, barrier=True).count()
        self._next = [0] * workers

    def run_epoch(self, lower: int, upper: int, inputs: Mapping[str, Updates]) -> Mapping[str, Updates]:
        """Run and commit an epoch; returns the changes of all views."""
        frame = self._spark.createDataFrame(self._messages(upper, inputs))
        self._runner(frame, 0)
        newest = self._epochs.newest
        assert newest is not None  # the runner has just committed it
        self.heap.detach()
        return {view: self._changes(newest, view) for view in self._plan.views}

    def state_bytes(self) -> int:
        """The size in bytes of all batches of the newest epoch."""
        newest = self._epochs.newest
        traces = newest.traces.values() if newest else ()
        return sum(ref.nbytes for trace in traces for shard in trace.shards for ref in shard)

    def close(self) -> None:
        """Stop Spark and close the state."""
        self._open.close()

    def _messages(self, upper: int, inputs: Mapping[str, Updates]) -> pa.Table:
        """The epoch's Kafka rows, the same number in each partition, so that each becomes one of Spark's partitions."""
        lines = [
            json_lines("input", name, self._plan.sources[name], np.ascontiguousarray(updates.data), self.heap)
            for name, updates in inputs.items()
            if len(updates)
        ]
        values = pa.chunked_array(lines, pa.large_string()).cast(pa.binary()).combine_chunks()
        workers = len(self._next)
        each = -(-len(values) // workers) + 1
        resolved = f'{{"resolved":"{upper}"}}'.encode()
        batches = []
        for partition in range(workers):
            mine = values.take(pa.array(np.arange(partition, len(values), workers)))
            promises = pa.array([resolved] * (each - len(mine)), pa.binary())
            first = self._next[partition]
            self._next[partition] += each
            columns = [
                pa.nulls(each, pa.binary()),
                pa.concat_arrays([mine, promises]),
                pa.array([_TOPIC] * each),
                pa.array(np.full(each, partition, np.int32)),
                pa.array(np.arange(first, first + each)),
                pa.array(np.zeros(each, np.int64)),
                pa.nulls(each, _HEADERS),
            ]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        return pa.Table.from_batches(batches)

    def _changes(self, manifest: Manifest, view: str) -> Updates:
        plan = self._plan.views[view]
        width = plan.schema.width
        order = [*plan.words, width, width + 1]
        batches = [self._batch(ref) for ref in manifest.changes.get(view, ())]
        self.heap.attach(batch.texts for batch in batches)
        parts = [batch.to_updates().data[:, order] for batch in batches]
        return Updates.concat([Updates(np.ascontiguousarray(part), width, 0) for part in parts], width)

    def _batch(self, ref: BatchRef) -> Batch:
        return open_batch(self._epochs.directory.open(ref.segment), ref)


def _settings(app: App, program: Path, workers: int, state: Path) -> Settings:
    """Settings for the replay; those of Spark are the user's own, from the environment."""
    exact = {"topic": _TOPIC, "format": "json", "clock": "event", "rounding": "exact", "on_late": "reject"}
    flags: dict[str, object] = {"program": str(program), "workers": workers, "state.path": str(state), "state.keep": 2}
    flags |= {
        f"sources.{name}": exact | {"lateness": None, "max_ahead": None, "idle_timeout_ms": None}
        for name in app.sources
    }
    return load(None, flags).settings


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(())


def _stop(spark: SparkSession) -> None:
    # After Ctrl-C, which Java receives as well, Spark may be gone already.
    with suppress(Py4JError, OSError):
        spark.stop()


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """Redirect the standard error of Java, and of all that it starts, to a file, because a command prints only one
    line.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
