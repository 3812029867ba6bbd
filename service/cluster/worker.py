"""Worker: what one task of an epoch's barrier stage does, inside Spark's Python worker process.

It connects to the rendezvous, decodes the task's messages in the meantime, agrees with its peers on the new frontier,
runs the dataflow, writes what is new and reports. The process outlives the task: connections, compiled plans and shards
stay in module globals, and the next task of any attempt that runs in this process may find its shard hot (still in
memory).

If a task fails but the process survives (an attempt that was cancelled, a program that cannot go on), the worker
reports the failure and the task ends normally, because an exception would cost the process and with it everything that
is hot. The driver then decides what to do.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from vernier.operators.engine.migrate import migrate
from vernier.operators.engine.worker import EpochResult, Worker
from vernier.operators.failures import EpochTooLarge
from vernier.operators.planning.plan import Plan
from vernier.operators.runtime.budget import Budget
from vernier.service.cluster.call_watch import Watch
from vernier.service.cluster.connection import Connection
from vernier.service.cluster.credentials import Keys
from vernier.service.cluster.exchange.all_to_all import Exchange
from vernier.service.cluster.exchange.transport import Mailbox
from vernier.service.cluster.filling import Filling
from vernier.service.cluster.memory import relieve
from vernier.service.cluster.messages import DECODED, DECODING, Assign, Hot, Poisoned, Report, Target, TraceReport
from vernier.service.cluster.shard import Shard, Stored, store
from vernier.service.config.programs import Program, compiled
from vernier.service.errors import AttemptCancelled, DriverGone, NoAttempt, OtherPlan
from vernier.service.ingest.config import IngestionConfig
from vernier.service.ingest.ingestion import Admitted, Advanced, Ingestion
from vernier.service.ingest.partition_report import Facts
from vernier.storage.blob.location import BlobLocation
from vernier.storage.errors import CallerError, VernierError
from vernier.storage.memory import resident_bytes
from vernier.storage.state.background_writer import BackgroundWriter
from vernier.storage.state.state import StateDirectory
from vernier.storage.trace import spill

ATTEMPT = "vernier.attempt"
"""The Spark local property that tells an attempt's tasks which attempt they work for."""

_FREEZE_AFTER = 3
"""After this many tasks, the objects in memory are once more excluded from garbage collection (see
service/cluster/daemon.py): by then they include plans, connections and imports that only tasks make."""


@dataclass(frozen=True)
class Job:
    """What a worker needs to know about its service. address, keys: of the rendezvous. fingerprint: of the programs'
    plan. seconds: how long an attempt may take. keep_sources, push, upserts: see operators/planning/planner.py.
    memory_bytes: a worker's memory limit between epochs; spill: a folder for what exceeds memory; most_bytes: its
    memory limit within an epoch, None for its share of its machine's memory; call_seconds: how long a function of the
    program may take before it is reported. quarantine_seconds: see service/ingest/quarantine.py."""

    address: tuple[str, int]
    keys: Keys
    programs: tuple[Program, ...]
    fingerprint: str
    state: BlobLocation
    ingestion: IngestionConfig
    slice_updates: int
    seconds: float
    keep_sources: bool = False
    push: bool = True
    upserts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    memory_bytes: int | None = None
    spill: str | None = None
    most_bytes: int | None = None
    call_seconds: float | None = None
    quarantine_seconds: float = 10.0


@dataclass
class Process:
    """What this process keeps from task to task. short: an epoch used too much memory, so slices are kept short."""

    job: Job
    directory: StateDirectory
    mailbox: Mailbox
    link: Connection
    shards: dict[int, list[Shard]] = field(default_factory=dict)
    tasks: int = 0
    short: bool = False
    attempt: str = ""
    watch: Watch | None = None
    filling: Filling = field(default_factory=Filling)

    @staticmethod
    def start(job: Job) -> Process:
        spill.spill(None if job.spill is None else Path(job.spill))
        if job.spill is None:
            spill.keep()
        link = Connection(job.address, job.keys)
        mailbox = Mailbox(job.keys, link.host)
        link.introduce(mailbox.address)
        process = Process(job, StateDirectory(job.state), mailbox, link)
        if job.call_seconds is not None:
            process.watch = Watch(job.call_seconds, process.stuck)
        return process

    def stuck(self, said: str, seconds: float) -> None:
        """Report a function that does not return to the driver. Runs on the watch's thread."""
        with suppress(DriverGone):  # the working thread notices this, too
            self.link.stuck(self.attempt, said, seconds)

    @cached_property
    def plan(self) -> Plan:
        job = self.job
        _, plan = compiled(job.programs, keep_sources=job.keep_sources, upserts=job.upserts, push=job.push)
        if plan.fingerprint != job.fingerprint:
            names = ", ".join(program.name for program in job.programs)
            raise OtherPlan(name=names, found=plan.fingerprint[:8], wanted=job.fingerprint[:8])
        return plan

    def plan_of(self, target: Target) -> Plan:
        """The plan of the programs to change to. Raises OtherPlan and ProgramErrors."""
        job = self.job
        programs = [Program(name, text) for name, text in target.programs]
        _, plan = compiled(programs, keep_sources=job.keep_sources, upserts=job.upserts, push=job.push)
        if plan.fingerprint != target.fingerprint:
            names = ", ".join(program.name for program in programs)
            raise OtherPlan(name=names, found=plan.fingerprint[:8], wanted=target.fingerprint[:8])
        return plan

    def change(self, job: Job) -> bool:
        """Go on with a job that differs in its programs and sources alone; False if it differs in more."""
        mine = replace(self.job, programs=job.programs, fingerprint=job.fingerprint, ingestion=job.ingestion)
        if mine != job:
            return False
        self.job = job
        for name in ("plan", "ingestion"):
            self.__dict__.pop(name, None)
        return True

    @cached_property
    def budget(self) -> Budget:
        return Budget(self.job.most_bytes)

    @cached_property
    def background_writer(self) -> BackgroundWriter:
        return BackgroundWriter(self.directory)

    @cached_property
    def ingestion(self) -> Ingestion:
        return Ingestion(self.plan.sources, self.job.ingestion)

    def exchange(self, assigned: Assign) -> Exchange:
        """The exchange through which the task of an attempt communicates with its peers."""
        return Exchange(self.mailbox, assigned.attempt, assigned.shard, assigned.peers, self.link, self.job.seconds)

    def stop(self) -> None:
        if self.watch is not None:
            self.watch.stop()
        self.link.close()
        self.mailbox.close()

    def hot(self) -> list[Hot]:
        return [Hot(one.index, one.epoch, one.attempt) for kept in self.shards.values() for one in kept]

    def keep(self, shard: Shard, base: Shard) -> None:
        """Remember a shard, and the shard it was made from in case this attempt is not the one that is committed."""
        self.shards = {shard.index: [base, shard]}


_process: Process | None = None


def task(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs in a Python worker process. Returns no rows: reports go to the rendezvous."""
    context = TaskContext.get()
    attempt = None if context is None else context.getLocalProperty(ATTEMPT)
    if context is None or attempt is None:
        raise NoAttempt()
    run(job, attempt, context.partitionId(), batches)
    return iter(())


def run(job: Job, attempt: str, number: int, batches: Iterator[pa.RecordBatch]) -> None:
    """Run a task of an attempt on the rows from Spark. Raises DriverGone, and any error that prevents a start."""
    process = _here(job)
    try:
        process.attempt, process.filling.busy = attempt, False
        process.link.open(attempt, number, process.hot())
        work(process, attempt, batches)
    except AttemptCancelled:
        pass
    except DriverGone:
        raise
    except EpochTooLarge as error:
        # Retry with shorter slices once. If that does not help, no further attempt will.
        filling = process.filling.busy
        again = error.smaller and not process.short and not filling
        process.short = process.short or again
        process.link.failed(attempt, str(error), caller=not again, final=not again, filling=filling)
        error.__traceback__ = None  # frees what the operators held
        spill.return_memory()
    except Exception as error:
        if not isinstance(error, VernierError):
            traceback.print_exc(file=sys.stderr)
        said = str(error) if isinstance(error, VernierError) else f"{type(error).__name__}: {error}"
        process.link.failed(attempt, said, caller=isinstance(error, CallerError), filling=process.filling.busy)
    process.tasks += 1
    if process.tasks == _FREEZE_AFTER:
        gc.collect()
        gc.freeze()


def _here(job: Job) -> Process:
    """This process, connected to the job's driver."""
    global _process
    if _process is not None and _process.job != job and not _process.change(job):
        _process.stop()
        _process = None
    if _process is None:
        _process = Process.start(job)
    return _process


def work(process: Process, attempt: str, batches: Iterator[pa.RecordBatch]) -> None:
    """One worker's part of an epoch, from Spark's rows to the report. If it raises, nothing has happened."""
    job, plan, clock, began_ns = process.job, process.plan, _Phases(), time.time_ns()
    rows = list(batches)
    clock.end("read")
    assigned = process.link.assigned(attempt, job.seconds)
    clock.end("meet")
    start = assigned.start
    base = _base(process, assigned, start.epoch - 1, start.base)
    heap = base.open_heap()
    clock.end("load")
    exchange = process.exchange(assigned)
    ingestion = process.ingestion
    process.link.phase(attempt, DECODING)
    poisoned = {(one.topic, one.partition, one.offset): one.how for one in start.poisoned}
    if start.quarantine:
        found = ingestion.quarantine(rows, start.offsets, poisoned, job.quarantine_seconds)
        if found:
            process.link.convicted(attempt, [Poisoned(*place, how) for place, how in found.items()])
        poisoned |= found
    decoded = ingestion.decode(rows, start.offsets, start.ingestion, base.held, heap, poisoned)
    process.link.phase(attempt, DECODED)
    clock.end("decode")
    gathered = exchange.allgather(decoded.facts.encode())
    step = ingestion.advance(start.ingestion, [Facts.decode(facts) for facts in gathered])
    admitted = ingestion.admit(decoded, base.held, step)
    clock.end("admit")
    target, filling = start.target, process.filling
    if target is None:
        filling.drop()
    else:
        filling.open(
            target,
            assigned.shard,
            base.state,
            exchange,
            process.plan_of,
            slice_updates=job.slice_updates,
            budget=process.budget,
        )
    if target is not None and target.switch:
        plan, state = filling.switch(base.state, exchange)
        clock.end("adopt")
    elif base.fits(plan):
        state = base.state.fork()
    else:
        # The batches made here belong to this attempt, so `base` stays unchanged for another one.
        state = migrate(plan, base.state, exchange, slice_updates=job.slice_updates, budget=process.budget)
        clock.end("adopt")
    worker = Worker(plan, exchange, state, slice_updates=job.slice_updates, budget=process.budget)
    if process.short:
        worker.pace.shorten()
    if job.memory_bytes is not None:
        worker.pace.keep_to(job.memory_bytes)
    result = worker.run_epoch(step.lower, step.upper, admitted.inputs)
    clock.end("dataflow")
    filled = None
    if target is not None and not target.switch:
        filled = filling.step(base.state, exchange, clock.seconds["dataflow"])
        clock.end("fill")
    shard = Shard(assigned.shard, start.epoch, attempt, state, admitted.held)
    process.background_writer.tend(state.traces.values(), shard.epoch, attempt, shard.index, base.attempt)
    stored = store(process.directory, plan, shard, (step.lower, step.upper), result.changes, admitted.dead)
    clock.end("persist")
    clock.seconds["exchange"] = exchange.waited  # contained in admit and dataflow
    own = report(shard, step, admitted, result, worker.totals(), stored, clock.seconds, exchange.bytes_sent)
    process.link.report(msgspec.structs.replace(own, began_ns=began_ns, filled=filled))
    process.keep(shard, base)
    if job.memory_bytes is not None and resident_bytes() > job.memory_bytes:
        relieve((one for kept in process.shards.values() for one in kept), process.directory)


def _base(process: Process, assigned: Assign, epoch: int, attempt: str) -> Shard:
    """The shard as the newest commit left it: hot, or opened from the state directory."""
    index = assigned.shard
    for shard in process.shards.get(index, ()):
        if (shard.epoch, shard.attempt) == (epoch, attempt):
            return shard
    if attempt == "":
        return Shard.empty(process.plan, index)
    return Shard.load(process.plan, process.directory, process.directory.manifest(epoch), index, len(assigned.peers))


def report(
    shard: Shard,
    step: Advanced,
    admitted: Admitted,
    result: EpochResult,
    totals: dict[str, tuple[float, int, int]],
    stored: Stored,
    phases: dict[str, float],
    exchanged: int,
) -> Report:
    inputs = {name: updates for name, updates in admitted.inputs.items() if len(updates)}
    changes = {view: updates.diff for view, updates in result.changes.items() if len(updates)}
    times = [updates.time for updates in inputs.values()]
    received_ms, received_count = admitted.received
    return Report(
        attempt=shard.attempt,
        shard=shard.index,
        worker=str(os.getpid()),
        lower=step.lower,
        upper=step.upper,
        ingestion=step.state,
        offsets={topic: {int(p): n for p, n in own.items()} for topic, own in step.offsets.items()},
        frontiers=step.frontiers,
        traces={
            name: TraceReport([batch.ref for batch in trace.named], int(trace.since), spill.in_memory(trace.batches))
            for name, trace in shard.state.traces.items()
        },
        held={name: [batch.ref for batch in batches] for name, batches in shard.held.items()}
        | {name: [run.ref for run in queue.runs] for name, queue in shard.state.queues.items()},
        changes=stored.changes,
        signs={view: (int((diff > 0).sum()), int((diff < 0).sum())) for view, diff in changes.items()},
        dead=stored.dead,
        received_ms=received_ms.tolist(),
        received_count=received_count.tolist(),
        counts=admitted.counts,
        waiting={name: sum(batch.count_from(step.upper) for batch in batches) for name, batches in shard.held.items()},
        due=min((at for one in shard.state.queues.values() if (at := one.next(step.upper)) is not None), default=None),
        times=len(np.unique(np.concatenate(times))) if times else 0,
        phases=phases,
        operators={
            name: (round(float(seconds), 6), int(taken), int(out)) for name, (seconds, taken, out) in totals.items()
        },
        rounds=result.rounds,
        merged=result.merged,
        kept=result.kept,
        exchanged=exchanged,
        memory=resident_bytes(),
    )


class _Phases:
    """Measures seconds by phase; each phase ends where the next begins."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase], self._last = now - self._last, now
