"""Slices that run in one kernel: the same changes as step by step, and nothing left of those that give up."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import vernier as vn
from bench.programs import program
from bench.stream import Stream, random_graph
from vernier import Collection, col
from vernier.operators.engine.interpreter import MOST
from vernier.operators.engine.local import LocalEngine
from vernier.operators.engine.program import program_of
from vernier.operators.engine.worker import Worker, WorkerState
from vernier.operators.failures import AggregateOverflow, LoopDidNotSettle
from vernier.operators.kernels.runs import NOTED, ROUNDS, STEPS_DONE
from vernier.operators.planning.planner import compile_app
from vernier.storage.kernels.tries import UPDATES
from vernier.storage.time.antichain import Antichain
from vernier.storage.trace.holds import Hold
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME, Updates

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="it needs compiled kernels")


class Edge(vn.Schema):
    """A directed edge."""

    src: vn.Int64
    dst: vn.Int64


def engine_of(app: vn.App, *, interpret: bool = True) -> LocalEngine:
    """A local engine that does, or does not, run slices in one kernel."""
    engine = LocalEngine(compile_app(app))
    if not interpret:
        engine.workers[0].interpreter = None
    return engine


def interpreted(engine: LocalEngine) -> int:
    """How many slices ran in one kernel."""
    interpreter = engine.workers[0].interpreter
    assert interpreter is not None
    return int(interpreter.stats[0, STEPS_DONE])


def edges_app(build: Callable[[Collection], Collection]) -> vn.App:
    """A program with one source and one view."""
    app = vn.App("interpreted")
    edges = app.source("edges", Edge)
    app.view("answer", build(edges))
    return app


def changes(engine: LocalEngine, lower: int, upper: int, data: Any) -> list[list[int]]:
    """An epoch of edges."""
    updates = Updates(np.array(data, np.int64).reshape(-1, 4), 2, 0)
    return engine.run_epoch(lower, upper, {"edges": updates})["answer"].data.tolist()


@pytest.mark.parametrize("name", ["bfs", "degrees", "reach"])
def test_same_changes_as_step_by_step(name: str) -> None:
    stream = Stream(random_graph(60, 1200), 120)
    engines = [engine_of(program(name), interpret=interpret) for interpret in (True, False)]
    first = {"roots": Updates.of(np.arange(2)[:, None], 0, 1), "edges": Updates(stream.first(), 2, 0)}
    results = [engine.run_epoch(MIN_TIME, 1, first) for engine in engines]
    assert results[0]["answer"].data.tolist() == results[1]["answer"].data.tolist()
    at = 0
    for size in (1, 1, 7, 2, 100, 1, 400, 3, *[1] * 20):
        inputs = {"edges": Updates(stream.updates(at, at + size, size, True), 2, 0)}
        results = [engine.run_epoch(at + 1, at + size + 1, inputs) for engine in engines]
        assert results[0]["answer"].data.tolist() == results[1]["answer"].data.tolist()
        at += size
    assert interpreted(engines[0]) == 29
    one, other = (
        {name: (steps, out) for name, (_, steps, out) in engine.workers[0].totals().items()} for engine in engines
    )
    assert one == other, "operators count the same rows"
    traces = [engine.workers[0].state.traces for engine in engines]
    for trace in traces[0]:
        pair = [[batch.keyed().tolist() for batch in each[trace].batches] for each in traces]
        assert pair[0] == pair[1], trace


@pytest.mark.parametrize(("nodes", "least", "most"), [(500, 1 << 10, 1 << 10), (50_000, 1 << 14, 1 << 17)])
def test_slices_of_many_updates(nodes: int, least: int, most: int) -> None:
    size = 8_000
    stream = Stream(random_graph(nodes, 6 * nodes + 2 * size), 3 * nodes)
    engines = [engine_of(program("bfs"), interpret=interpret) for interpret in (True, False)]
    first = {"roots": Updates.of(np.arange(2)[:, None], 0, 1), "edges": Updates(stream.first(), 2, 0)}
    results = [engine.run_epoch(MIN_TIME, 1, first) for engine in engines]
    before = interpreted(engines[0])
    for at in (0, size):
        for engine in engines:
            engine.workers[0].state.pace.updates = MOST
        inputs = {"edges": Updates(stream.updates(at, at + size, size, True), 2, 0)}
        results = [engine.run_epoch(at + 1, at + size + 1, inputs) for engine in engines]
        assert results[0]["answer"].data.tolist() == results[1]["answer"].data.tolist()
    assert interpreted(engines[0]) == before + 2
    interpreter, states = engines[0].workers[0].interpreter, [engine.workers[0].state for engine in engines]
    assert interpreter is not None
    lent = [one.slots for one in interpreter.traces._lent if one is not None]
    assert least <= max(map(len, lent)) <= most, "the index has as many places as keys need, not as rows might"
    for name, trace in states[0].traces.items():
        assert described(trace) == described(states[1].traces[name])


def followed(edges: Collection, how: str) -> Collection:
    """Edges beside those that begin where they end."""
    return edges.join(edges.select(dst="src", then="dst"), on="dst", how=how)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda edges: edges.group_by("src").agg(n=vn.count(), most=vn.max("dst")), id="mixed"),
        pytest.param(lambda edges: edges.group_by("src").agg(total=vn.sum("dst"), least=vn.min("dst")), id="sum-min"),
        pytest.param(lambda edges: followed(edges, "left"), id="left"),
        pytest.param(lambda edges: followed(edges, "full"), id="full"),
    ],
)
def test_what_pads_rows_with_nulls_has_a_program(build: Callable[[Collection], Collection]) -> None:
    stream = Stream(random_graph(40, 300), 60)
    engines = [engine_of(edges_app(build), interpret=interpret) for interpret in (True, False)]
    first = {"edges": Updates(stream.first(), 2, 0)}
    results = [engine.run_epoch(MIN_TIME, 1, first) for engine in engines]
    assert results[0]["answer"].data.tolist() == results[1]["answer"].data.tolist()
    at = 0
    for size in (1, 5, 60, 1, *[2] * 10):
        inputs = {"edges": Updates(stream.updates(at, at + size, size, True), 2, 0)}
        results = [engine.run_epoch(at + 1, at + size + 1, inputs) for engine in engines]
        assert results[0]["answer"].data.tolist() == results[1]["answer"].data.tolist()
        at += size
    assert interpreted(engines[0]) >= 14


def test_a_path_is_longer_than_the_tables() -> None:
    long = 300
    engine = engine_of(program("reach"))
    path = np.array([[node, node + 1, 0, 1] for node in range(long)], np.int64)
    first = {"edges": Updates(path, 2, 0), "roots": Updates.of(np.zeros((1, 1), np.int64), 0, 1)}
    rows = engine.run_epoch(MIN_TIME, 1, first)["answer"].data
    assert rows[:, 1].tolist() == list(range(long + 1))
    gone = Updates(np.array([[0, 1, 5, -1]], np.int64), 2, 0)
    rows = engine.run_epoch(1, 10, {"edges": gone})["answer"].data
    assert rows[:, 1:].tolist() == [[node, 5, -1] for node in range(1, long + 1)]
    assert interpreted(engine) > 2, "runs that found a table full began again"


def test_more_rounds_than_the_kernel_counts() -> None:
    long = ROUNDS + 20
    engine = engine_of(program("reach"))
    interpreter = engine.workers[0].interpreter
    assert interpreter is not None
    # What is behind the rounds that it counts stays as it is.
    interpreter._noted = np.zeros(ROUNDS + 4, np.int64)
    interpreter._noted[ROUNDS:] = 7
    interpreter._run[NOTED] = interpreter._noted.ctypes.data
    path = np.array([[node, node + 1, 0, 1] for node in range(long)], np.int64)
    first = {"edges": Updates(path, 2, 0), "roots": Updates.of(np.zeros((1, 1), np.int64), 0, 1)}
    rows = engine.run_epoch(MIN_TIME, 1, first)["answer"].data
    assert rows[:, 1].tolist() == list(range(long + 1))
    assert interpreter._noted[ROUNDS:].tolist() == [7] * 4


def test_a_sum_that_overflows_raises_as_step_by_step() -> None:
    app = edges_app(lambda edges: edges.group_by("src").agg(total=vn.sum("dst")))
    engine = engine_of(app)
    assert changes(engine, 0, 10, [[1, 2**62, 1, 1]]) == [[1, 2**62, 1, 1]]
    assert interpreted(engine) == 1
    with pytest.raises(AggregateOverflow, match="src=1"):
        changes(engine, 10, 20, [[1, 2**62, 11, 1]])


def test_a_loop_that_does_not_settle_raises_as_step_by_step() -> None:
    @vn.fixpoint(max_rounds=20)
    def grows(grows: Collection) -> Collection:
        return grows.select(src="src", dst=col("dst") + 1)

    engine = engine_of(edges_app(lambda edges: grows(edges)))
    with pytest.raises(LoopDidNotSettle, match="round 20"):
        changes(engine, 0, 10, [[1, 1, 1, 1]])


def test_plans_with_other_operators_run_step_by_step() -> None:
    known = edges_app(lambda edges: edges.group_by("src").agg(total=vn.sum("dst"), n=vn.count()))
    assert program_of(compile_app(known)) is not None
    delayed = edges_app(lambda edges: edges.delay(3))
    assert program_of(compile_app(delayed)) is None
    engine = LocalEngine(compile_app(delayed))
    assert engine.workers[0].interpreter is None
    assert changes(engine, 0, 10, [[1, 7, 1, 1]]) == [[1, 7, 4, 1]]


def test_all_memory_is_given_back() -> None:
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()
    stream = Stream(random_graph(40, 700), 80)
    gc.collect()
    before = rtsys.get_allocation_stats()
    engine = engine_of(program("bfs"))
    first = {"roots": Updates.of(np.arange(1)[:, None], 0, 1), "edges": Updates(stream.first(), 2, 0)}
    engine.run_epoch(MIN_TIME, 1, first)
    for at in range(300):
        engine.run_epoch(at + 1, at + 2, {"edges": Updates(stream.updates(at, at + 1, 1, True), 2, 0)})
    assert interpreted(engine) == 301
    del engine
    gc.collect()
    after = rtsys.get_allocation_stats()
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free


@pytest.mark.parametrize(("keys", "large"), [(300, 700), (100_000, 2_000)])
def test_traces_that_a_kernel_closes_are_those_of_step_by_step(keys: int, large: int) -> None:
    choose = np.random.default_rng(3)
    app = edges_app(lambda edges: edges.group_by("src").agg(total=vn.sum("dst"), n=vn.count()))
    engines = [engine_of(app, interpret=interpret) for interpret in (True, False)]
    held: list[list[Hold]] = [[], []]
    kept: tuple[int, list[WorkerState]] = 0, []
    forks = 0
    for at in range(700):
        size = int(choose.choice([1, 1, 2, 3, 40, large], p=[0.46, 0.2, 0.1, 0.1, 0.09, 0.05]))
        rows = np.column_stack((choose.integers(0, keys, size), choose.integers(0, 9, size)))
        updates = {"edges": Updates.of(rows, 10 * at + choose.integers(0, 10, size), choose.choice([1, 1, -1], size))}
        found = [engine.run_epoch(10 * at, 10 * at + 10, updates)["answer"].data.tolist() for engine in engines]
        assert found[0] == found[1]
        states = [engine.workers[0].state for engine in engines]
        if at % 150 == 20:
            for one, state in zip(held, states, strict=True):
                one += [trace.advance_by(Antichain([[10 * at + 10]])) for trace in state.traces.values()]
                one += [trace.distinguish(10 * at + 10) for trace in state.traces.values()]
        if at % 150 == 60:
            for one in held:
                for hold in one:
                    hold.release()
                one.clear()
        if at % 90 == 30:
            # What an attempt has done on a fork is forgotten, with batches that Python never saw.
            kept, forks = (at, [state.fork() for state in states]), forks + 1
        if at == kept[0] + 7 and kept[1]:
            again = [Worker(engine.plan, None, state) for engine, state in zip(engines, kept[1], strict=True)]
            again[1].interpreter = None
            first = [worker.run_epoch(10 * kept[0] + 10, 10 * at + 10, updates).changes["answer"] for worker in again]
            assert first[0].consolidate().data.tolist() == first[1].consolidate().data.tolist()
        if choose.random() < 0.1 or at == 699:
            for name, trace in states[0].traces.items():
                other = states[1].traces[name]
                assert described(trace) == described(other)
                assert trace.since == other.since
                assert trace.settled[:, UPDATES].tolist() == [batch.updates for batch in trace.batches]
    assert interpreted(engines[0]) == 700
    assert forks > 5
    worker = engines[0].workers[0]
    assert worker.interpreter is not None
    # Most merges are done at once, where Python does not see them.
    assert worker.interpreter.merged[0] > 10 * large


def described(trace: Trace) -> list[Any]:
    """A trace's batches, completely."""
    return [(batch.lower, batch.upper, batch.since, batch.keyed().tolist()) for batch in trace.batches]
