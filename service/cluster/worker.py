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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from vernier.operators.engine.hot_keys import hot_keys
from vernier.operators.engine.migrate import migrate
from vernier.operators.engine.worker import EpochResult, Worker
from vernier.operators.failures import EpochTooLarge
from vernier.operators.planning.plan import Plan
from vernier.service.cluster.memory import relieve
from vernier.service.cluster.messages import Assign, Report, TraceReport
from vernier.service.cluster.process import Job, Process
from vernier.service.cluster.shard import Shard, Stored, store
from vernier.service.cluster.shelf import Place
from vernier.service.cluster.surplus import end_siblings
from vernier.service.cluster.taking import Phases, Take, Task, take_messages, take_rows
from vernier.service.errors import AttemptCancelled, DriverGone, NoAttempt
from vernier.service.ingest.ingestion import Admitted, Advanced
from vernier.storage.errors import CallerError, VernierError
from vernier.storage.memory import resident_bytes
from vernier.storage.trace import spill
from vernier.storage.updates import distinct

ATTEMPT = "vernier.attempt"
"""The Spark local property that tells an attempt's tasks which attempt they work for."""

_FREEZE_AFTER = 3
"""After this many tasks, the objects in memory are once more excluded from garbage collection (see
service/cluster/daemon.py): by then they include plans, connections and imports that only tasks make."""


_process: Process | None = None


def task(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark runs in a Python worker process. Returns no rows: reports go to the rendezvous."""
    run(job, *_attempt(), batches)
    return iter(())


def load(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for an epoch that loads a snapshot: the rows are those of the source, in pieces of Spark's."""
    run(job, *_attempt(), batches, take_rows)
    return iter(())


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Does nothing: a task that keeps this process (service/coordinator/session.py, Keeper). Of a task that does not
    read its rows, Spark ends the process."""
    for _ in batches:
        pass
    return iter(())


def _attempt() -> tuple[str, int]:
    """The attempt of this task, and its number."""
    context = TaskContext.get()
    attempt = None if context is None else context.getLocalProperty(ATTEMPT)
    if context is None or attempt is None:
        raise NoAttempt()
    return attempt, context.partitionId()


def run(job: Job, attempt: str, number: int, batches: Iterator[pa.RecordBatch], take: Take = take_messages) -> None:
    """Run a task of an attempt on the rows from Spark. take: what makes an epoch's input of them. Raises DriverGone,
    and any error that prevents a start."""
    process = _here(job)

    def begin() -> None:
        process.link.open(attempt, number, process.hot())
        work(process, attempt, batches, take, number)

    _guarded(process, attempt, begin)


def connected() -> Process | None:
    """What this process keeps, if it has had a task before."""
    return _process


def run_handed(process: Process, assigned: Assign) -> None:
    """Run this process's part of an attempt on messages that the driver has sent. Raises DriverGone."""

    def begin() -> None:
        rows = assigned.rows
        stream = process.borrower.read(rows) if isinstance(rows, Place) else rows
        batches = pa.ipc.open_stream(stream).read_all().to_batches() if stream else []
        work(process, assigned.attempt, batches, assigned=assigned)

    _guarded(process, assigned.attempt, begin)


def _guarded(process: Process, attempt: str, begin: Callable[[], None]) -> None:
    """Begin this process's part of an attempt, and report it if it fails."""
    try:
        process.attempt, process.filling.busy = attempt, False
        begin()
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


def work(
    process: Process,
    attempt: str,
    batches: Iterable[pa.RecordBatch],
    take: Take = take_messages,
    number: int = 0,
    assigned: Assign | None = None,
) -> None:
    """One worker's part of an epoch, from its rows to the report. If it raises, nothing has happened. number: Spark's
    number of the task; assigned: the shard, if the driver has sent it with the rows."""
    job, plan, clock, began_ns = process.job, process.plan, Phases(), time.time_ns()
    # Messages are few; the rows of a snapshot become words as they come.
    rows = list(batches) if take is take_messages else batches
    clock.end("read")
    assigned = assigned or process.link.assigned(attempt, job.seconds)
    clock.end("meet")
    end_siblings(assigned.surplus)
    start = assigned.start
    base = _base(process, assigned, start.epoch - 1, start.base)
    exchange = process.exchange(assigned)
    step, admitted = take(process, Task(attempt, number, start, base, exchange), rows, clock)
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
        begins = () if start.part is None else start.part.begin
        state = migrate(
            plan, base.state, exchange, slice_updates=job.slice_updates, budget=process.budget, begins=begins
        )
        clock.end("adopt")
    if start.part is not None and start.part.direct:
        plan = _without_history(plan)
    worker = Worker(plan, exchange, state, slice_updates=job.slice_updates, budget=process.budget)
    if process.short:
        worker.pace.shorten()
    if job.memory_bytes is not None:
        worker.pace.keep_to(job.memory_bytes)
    result = worker.run_epoch(step.lower, step.upper, admitted.inputs)
    worker.settle_texts()
    clock.end("dataflow")
    filled = None
    if target is not None and not target.switch:
        filled = filling.step(base.state, exchange, clock.seconds["dataflow"])
        clock.end("fill")
    shard = Shard(assigned.shard, start.epoch, attempt, state, admitted.held, exchange.workers)
    process.background_writer.tend(state.traces.values(), shard.epoch, attempt, shard.index, base.attempt)
    stored = store(process.directory, plan, shard, (step.lower, step.upper), result.changes, admitted.dead)
    clock.end("persist")
    clock.seconds["exchange"] = exchange.waited  # contained in admit and dataflow
    own = report(shard, step, admitted, result, worker, stored, clock.seconds, exchange.bytes_sent)
    hot = hot_keys(worker)
    process.link.report(msgspec.structs.replace(own, began_ns=began_ns, filled=filled, hot_keys=hot))
    process.keep(shard, base)
    if job.memory_bytes is not None and resident_bytes() > job.memory_bytes:
        relieve((one for kept in process.shards.values() for one in kept), process.directory)


def _without_history(plan: Plan) -> Plan:
    """The plan for an epoch that loads a snapshot: the times at which rows enter are not shown, so no trace keeps
    them."""
    shapes = {
        name: replace(shape, retain_ns=1) if shape.retained else shape for name, shape in plan.arrangements.items()
    }
    return replace(plan, arrangements=shapes)


def _base(process: Process, assigned: Assign, epoch: int, attempt: str) -> Shard:
    """The shard as the newest commit left it: hot, or opened from the state directory."""
    index, workers = assigned.shard, len(assigned.peers)
    for shard in process.shards.get(index, ()):
        if (shard.epoch, shard.attempt, shard.workers) == (epoch, attempt, workers):
            return shard
    if attempt == "":
        return Shard.empty(process.plan, index, workers)
    return Shard.load(process.plan, process.directory, process.directory.manifest(epoch), index, workers)


def report(
    shard: Shard,
    step: Advanced,
    admitted: Admitted,
    result: EpochResult,
    worker: Worker,
    stored: Stored,
    phases: dict[str, float],
    exchanged: int,
) -> Report:
    inputs = {name: updates for name, updates in admitted.inputs.items() if len(updates)}
    changes = {view: updates.diff for view, updates in result.changes.items() if len(updates)}
    times = [updates.time for updates in inputs.values()]
    received_ms, received_count = admitted.received
    merged, kept = worker.merges()
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
        signs={
            view: (int(np.count_nonzero(diff > 0)), int(np.count_nonzero(diff < 0))) for view, diff in changes.items()
        },
        dead=stored.dead,
        received_ms=received_ms.tolist(),
        received_count=received_count.tolist(),
        counts=admitted.counts,
        waiting={name: sum(batch.count_from(step.upper) for batch in batches) for name, batches in shard.held.items()},
        due=min((at for one in shard.state.queues.values() if (at := one.next(step.upper)) is not None), default=None),
        times=len(distinct(np.concatenate(times))) if times else 0,
        phases=phases,
        operators={
            name: (round(float(seconds), 6), int(taken), int(out))
            for name, (seconds, taken, out) in worker.totals().items()
        },
        rounds=worker.rounds(),
        merged=merged,
        kept=kept,
        exchanged=exchanged,
        memory=resident_bytes(),
    )
