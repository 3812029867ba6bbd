"""Runs a program on files of updates, all final at the end, and writes the changes of its views or shows their rows.

The updates are cut into epochs in the order of their times, never inside one time. The output does not depend on the
cuts, the number of workers or the engine. The changes of an epoch are written before the next epoch runs, so memory
holds the updates, the state and one epoch's changes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psutil

from vernier.operators.engine.local import LocalEngine
from vernier.operators.errors import listed, meant
from vernier.operators.language.collection.app import App, load_program
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.service.cluster.precompile import warm
from vernier.service.codec.lazy_pandas import defer_pandas
from vernier.service.files.changefiles import ChangeFile
from vernier.service.files.updatefiles import read_updates
from vernier.service.observability.progress import Quiet, Show
from vernier.service.replay.forked_engine import ForkedWorkers
from vernier.service.replay.rows_at import RowsAt
from vernier.service.toolchain.first_use import have_jars, have_kernels
from vernier.storage.errors import CallerError
from vernier.storage.memory import peak_bytes
from vernier.storage.strings.string_heap import Heap
from vernier.storage.updates import CLOSED, MIN_TIME, Ints, Updates

EPOCH_UPDATES = 50_000
"""Default number of updates per epoch. Their changes fit in memory, and larger epochs are not faster."""


class UnknownView(CallerError):
    """The program does not have the requested view."""

    message = "the program has no view {name!r}{hint} (it has {known})"
    name: str
    hint: str
    known: str


class Engine(Protocol):
    """Runs a plan epoch by epoch, in consecutive intervals.

    heap: holds the contents of long texts in the inputs, and in the changes of the newest epoch.
    """

    heap: Heap

    def run_epoch(self, lower: int, upper: int, inputs: Mapping[str, Updates]) -> Mapping[str, Updates]:
        """Run an epoch; returns the changes of all views. inputs: every source's updates, sorted by time."""
        ...

    def state_bytes(self) -> int:
        """The size in bytes of all workers' batches."""
        ...

    def close(self) -> None:
        """Stop everything that was started, even in the middle of an epoch."""
        ...


@dataclass(frozen=True)
class Request:
    """What to replay.

    out: the change file; None for none. views: those to write or show; empty for all. state: where the Spark engine
    keeps its state; None for a temporary directory. rows_at: the data time at which the rows of the views are wanted;
    without `out`, the replay stops after it.
    """

    program: Path
    updates: Sequence[Path]
    out: Path | None
    views: Sequence[str] = ()
    epoch_size: int = EPOCH_UPDATES
    workers: int = 1
    engine: str = "local"
    state: Path | None = None
    rows_at: int | None = None


@dataclass
class Account:
    """What a replay did.

    seconds: from the first byte read to the last one written, without start-up and compilation. found: the requested
    rows.
    """

    engine: str
    workers: int
    updates: int = 0
    epochs: int = 0
    changes: int = 0
    seconds: float = 0.0
    read_seconds: float = 0.0
    epoch_seconds: float = 0.0
    write_seconds: float = 0.0
    startup_seconds: float = 0.0
    peak_memory_bytes: int = 0
    state_bytes: int = 0
    found: RowsAt | None = None

    def to_json(self) -> dict[str, Any]:
        """The numbers for `--stats`; seconds are rounded to microseconds."""
        numbers = {name: value for name, value in vars(self).items() if name != "found"}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in numbers.items()}


class Changes(Protocol):
    """Receives the changes of views, epoch by epoch."""

    def add(self, changes: Mapping[str, Updates], heap: Heap | None = None) -> None:
        """Take the changes of an epoch. heap: holds the contents of their long texts."""
        ...


def replay(request: Request, show: Show | None = None) -> Account:
    """Run the program on the updates and write the change file.

    Raises ProgramError, UnknownView, BadUpdate, BadUpdateFile, CannotWrite and what the dataflow itself raises (a loop
    that does not converge, an overflow). In these cases no change file appears.
    """
    defer_pandas()
    show = show or Quiet()
    account = Account(request.engine, request.workers)
    began = time.perf_counter()
    show.step("building the program")
    app = load_program(request.program)
    plan = compile_app(app, keep_views=request.engine == "spark")  # Spark's workers are those of the service
    views = _chosen(app, request.views)
    # Making what a first use lacks takes minutes, so people hear of it without a terminal, too.
    tell = _on_standard_error if isinstance(show, Quiet) else show.step
    have_kernels(tell)
    if request.engine == "spark":
        have_jars(tell)
    show.step("loading the kernels")
    warm(lambda what: tell(f"loading the kernels: {what}"))
    show.clear()
    takers: list[Changes] = []
    if request.rows_at is not None:
        account.found = RowsAt(
            request.rows_at, {name: (plan.views[name].schema, plan.views[name].key) for name in views}
        )
        takers.append(account.found)
    with ExitStack() as stack:
        out = None
        if request.out is not None:
            out = stack.enter_context(ChangeFile(request.out, {name: plan.views[name].schema for name in views}))
            takers.append(out)
        engine = _engine(request, app, plan, show)
        try:
            account.startup_seconds = time.perf_counter() - began
            _run(request, plan, engine, takers, account, show)
            account.state_bytes = engine.state_bytes()
            account.peak_memory_bytes = _peak_memory()
        finally:
            show.clear()
            engine.close()
        began = time.perf_counter()
    account.write_seconds += time.perf_counter() - began
    account.changes = out.written if out is not None else 0
    account.seconds = account.read_seconds + account.epoch_seconds + account.write_seconds
    return account


def _run(request: Request, plan: Plan, engine: Engine, takers: Sequence[Changes], account: Account, show: Show) -> None:
    clock = _Clock()
    updates = read_updates(
        request.updates, plan.sources, lambda done, size: show.done("reading", done, size, "B"), engine.heap
    )
    total = account.updates = sum(len(one) for one in updates.values())
    account.read_seconds = clock.lap()
    done = 0
    for lower, upper, inputs in epochs_of(updates, request.epoch_size):
        if request.out is None and request.rows_at is not None and lower > request.rows_at:
            break
        changes = engine.run_epoch(lower, upper, inputs)
        account.epoch_seconds += clock.lap()
        for taker in takers:
            taker.add(changes, engine.heap)
        account.write_seconds += clock.lap()
        account.epochs += 1
        done += sum(len(one) for one in inputs.values())
        show.done("replaying", done, total, "updates")


class _Clock:
    """Measures the seconds since its previous reading."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        before, self._last = self._last, time.perf_counter()
        return self._last - before


def epochs_of(updates: Mapping[str, Updates], size: int) -> Iterator[tuple[int, int, dict[str, Updates]]]:
    """Cut the updates into epochs of `size` updates in time order: (lower, upper, each source's updates in between).

    An epoch contains all updates of its last time, so it may have more. The upper of the last epoch is CLOSED. updates:
    sorted by time. There is always at least one epoch.
    """
    times = np.sort(np.concatenate([np.empty(0, np.int64), *(one.time for one in updates.values())]))
    own: dict[str, Ints] = {name: np.ascontiguousarray(one.time) for name, one in updates.items()}
    at = dict.fromkeys(own, 0)
    lower, done = MIN_TIME, 0
    while True:
        stop = min(done + size, len(times))
        if stop:
            stop = int(np.searchsorted(times, times[stop - 1], "right"))
        upper = CLOSED if stop == len(times) else int(times[stop])
        inputs = {}
        for name, one in updates.items():
            end = len(one) if upper == CLOSED else int(np.searchsorted(own[name], upper))
            inputs[name] = one.take(slice(at[name], end))
            at[name] = end
        yield lower, upper, inputs
        if upper == CLOSED:
            return
        lower, done = upper, stop


def _on_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _chosen(app: App, wanted: Sequence[str]) -> list[str]:
    """The views to write. Raises UnknownView."""
    for name in wanted:
        if name not in app.views:
            raise UnknownView(name=name, hint=meant(name, app.views), known=listed(app.views))
    return sorted(set(wanted)) or list(app.views)


def _engine(request: Request, app: App, plan: Plan, show: Show) -> Engine:
    if request.engine == "spark":
        from vernier.service.replay.spark_engine import (
            SparkEngine,  # imported here, because Spark's own packages take a second
        )

        show.step("starting Spark")
        return SparkEngine(request.program, app, plan, request.workers, request.state)
    return ForkedWorkers(plan, request.workers) if request.workers > 1 else _Alone(plan)


class _Alone(LocalEngine):
    """One worker, in this process."""

    def state_bytes(self) -> int:
        """See Engine."""
        return sum(worker.state.nbytes for worker in self.workers)


def _peak_memory() -> int:
    """The sum of the peak resident memory of this process and its descendants, in bytes; the peaks may
    differ in time.
    """
    here = psutil.Process()
    return sum(_peak_of(process) for process in [here, *here.children(recursive=True)])


def _peak_of(process: psutil.Process) -> int:
    try:
        return peak_bytes(process.pid) or int(process.memory_info().rss)
    except psutil.Error:
        return 0
