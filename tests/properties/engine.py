"""The one place where the property tests meet the product's engine: run a program on updates, cut as a test likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

import vernier as vn
from tests.oracle.model import Change, collection_at, consolidate
from tests.oracle.values import canonical
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.worker import Worker, WorkerState
from vernier.operators.planning.planner import compile_app
from vernier.storage.strings.string_heap import Heap
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace
from vernier.storage.trace.time_queue import Queue, Run
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

Between = Literal["go on", "reopen", "repeat"]
"""What happens at an epoch: nothing but it; the workers start again from the batches' arrays; it is tried twice."""


def run(
    app: vn.App,
    updates: Mapping[str, Sequence[Change]],
    *,
    cuts: Iterable[int] = (),
    workers: int = 1,
    slice_updates: int = 1024,
    between: Between = "go on",
    push: bool = True,
    interpret: bool = True,
    keep_views: bool = True,
) -> dict[str, list[Change]]:
    """All changes of all views, consolidated, when the updates come in epochs that end at `cuts` and then at the end.

    Checks on the way what holds for every epoch: its changes are within its interval of data times, no row has two
    changes at one time, none is 0; and the traces of each view, if it is kept, hold what
    changed, as of every time of its history window.
    """
    plan = compile_app(app, push=push, keep_views=keep_views)
    found: dict[str, list[Change]] = {name: [] for name in app.views}
    lower = MIN_TIME
    with LocalEngine(plan, workers, slice_updates=slice_updates) as engine:
        for upper in sorted({*(cut for cut in cuts if cut > MIN_TIME), CLOSED}):
            inside = {
                name: encoded(app, name, [one for one in updates.get(name, ()) if lower <= one[1] < upper], engine.heap)
                for name in app.sources
            }
            results = epoch(engine, lower, upper, inside, between, interpret)
            for name, changes in results.items():
                fresh = decoded(app, name, changes, engine.heap)
                assert len({(row, time) for row, time, _ in fresh}) == len(fresh), f"{name}: not consolidated: {fresh}"
                assert all(lower <= time < upper and diff for _, time, diff in fresh), f"{name}: [{lower}, {upper})"
                found[name].extend(fresh)
                if upper < CLOSED and keep_views:
                    check_history(engine, name, found[name], upper)
            # Contents of texts in memory are a cache between epochs: the batches and queues have their own.
            for heap in (engine.heap, *(worker.state.heap for worker in engine.workers)):
                heap.trim(0)
            lower = upper
    return {name: consolidate(changes) for name, changes in found.items()}


def epoch(
    engine: LocalEngine,
    lower: int,
    upper: int,
    inputs: Mapping[str, Updates],
    between: Between,
    interpret: bool = True,
) -> dict[str, Updates]:
    """One epoch; what was tried before it on a fork, and is forgotten, changes nothing. interpret: run small slices in
    one kernel, if the plan can; else step by step. What is repeated runs the other way the first time."""
    if between == "repeat":
        forks = [worker.state.fork() for worker in engine.workers]
        if interpret:
            step_by_step(engine)
        first = engine.run_epoch(lower, upper, inputs)
        start_again(engine, forks)
        if not interpret:
            step_by_step(engine)
        second = engine.run_epoch(lower, upper, inputs)
        assert {name: one.data.tolist() for name, one in first.items()} == {
            name: one.data.tolist() for name, one in second.items()
        }
        return second
    if between == "reopen":
        start_again(engine, [reopened(worker.state) for worker in engine.workers])
    if not interpret:
        step_by_step(engine)
    return engine.run_epoch(lower, upper, inputs)


def step_by_step(engine: LocalEngine) -> None:
    """Let Python run each step of each operator from now on."""
    for worker in engine.workers:
        worker.interpreter = None


def start_again(engine: LocalEngine, states: Sequence[WorkerState]) -> None:
    """New workers on these states, as after a restart."""
    engine.workers = [
        Worker(engine.plan, old.exchange, state, slice_updates=old.slice_updates)
        for old, state in zip(engine.workers, states, strict=True)
    ]


def reopened(state: WorkerState) -> WorkerState:
    """A state read back from what of it would be in files."""
    traces = {}
    for name, trace in state.traces.items():
        traces[name] = Trace(name, trace.key_width, trace.val_width, trace.depth, trace.since)
        traces[name].replace(
            [
                Batch.open(batch.meta(), {part: array.copy() for part, array in batch.arrays().items()})
                for batch in trace.batches
            ]
        )
    queues = {}
    for name, queue in state.queues.items():
        runs = [Run.open({part: array.copy() for part, array in run.arrays().items()}, None) for run in queue.runs]
        queues[name] = Queue(name, queue.width, queue.depth, runs)
    return WorkerState(traces, state.upper, queues)


def check_history(engine: LocalEngine, view: str, changes: Sequence[Change], upper: int) -> None:
    """The view's traces add up to its changes as of times since `since`, and since keeps the retention window.

    Looks at all such times of changes, or at some twenty of them when there are more.
    """
    plan = engine.plan.views[view]
    traces = [worker.state.traces[plan.trace] for worker in engine.workers]
    parts = [batch.to_updates() for trace in traces for batch in trace.batches]
    held = Updates.concat(parts, plan.schema.width)
    heap = Heap()
    heap.attach(batch.texts for trace in traces for batch in trace.batches)
    rows = plan.schema.decode_rows(np.ascontiguousarray(held.rows[:, list(plan.words)]), heap)
    history = list(zip(map(canonical, rows), held.time.tolist(), held.diff.tolist(), strict=True))
    since = max(trace.since for trace in traces)
    assert since <= max(MIN_TIME, upper - (engine.plan.arrangements[plan.trace].retain_ns or 0))
    times = sorted({at for _, at, _ in changes if at >= since})
    for time in {since, upper - 1, *times[:: 1 + len(times) // 20]}:
        if since <= time:
            assert collection_at(history, time) == collection_at(changes, time), f"{view} as of {time}"


def encoded(app: vn.App, source: str, updates: Sequence[Change], heap: Heap) -> Updates:
    """The updates of a source as the matrix that the engine takes; the contents of long texts go to the heap."""
    schema = app.sources[source].schema
    if not updates:
        return Updates.empty(schema.width)
    words = schema.encode_rows((row for row, _, _ in updates), heap)
    return Updates.of(words, [time for _, time, _ in updates], [diff for _, _, diff in updates])


def decoded(app: vn.App, view: str, changes: Updates, heap: Heap) -> list[Change]:
    """A view's changes as tuples, in the oracle's one form of each value."""
    rows = map(canonical, app.views[view].node.schema.decode_rows(changes.rows, heap))
    return list(zip(rows, changes.time.tolist(), changes.diff.tolist(), strict=True))
