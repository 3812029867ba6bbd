"""Several workers run a slice in kernels that exchange rows: the same changes as one worker, and all or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from bench.programs import program
from bench.stream import Stream, random_graph
from vernier import Collection, col
from vernier.operators.engine import worker as engine_worker
from vernier.operators.engine.interpreter import Interpreter
from vernier.operators.engine.local import LocalEngine
from vernier.operators.failures import AggregateOverflow
from vernier.operators.kernels import lanes as kernel
from vernier.operators.kernels import runs
from vernier.operators.kernels.exchanging import LINE, _part_rows
from vernier.operators.kernels.runs import STEPS_DONE
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime import exchange, lanes
from vernier.operators.runtime.exchange import Threads
from vernier.operators.runtime.slice_sizing import LEAST
from vernier.storage.kernels.hashing import hash_row, owner
from vernier.storage.updates import MIN_TIME, Updates

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="it needs compiled kernels")


class Edge(vn.Schema):
    """A directed edge."""

    src: vn.Int64
    dst: vn.Int64


class Named(vn.Schema):
    """A number with a name."""

    src: vn.Int64
    name: vn.String


def interpreters(engine: LocalEngine) -> list[Interpreter]:
    """Those of all workers."""
    found = [worker.interpreter for worker in engine.workers if worker.interpreter is not None]
    assert len(found) == len(engine.workers)
    return found


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the slices that have run in one kernel."""
    run = Interpreter.run

    def counting(self: Any, *slice_: Any, **how: bool) -> bool:
        ran = run(self, *slice_, **how)
        self.closed = getattr(self, "closed", 0) + int(ran)
        return ran

    monkeypatch.setattr(Interpreter, "run", counting)


def interpreted(engine: LocalEngine) -> list[int]:
    """How many slices each worker has run in one kernel."""
    return [getattr(one, "closed", 0) for one in interpreters(engine)]


def loads(name: str) -> tuple[dict[str, Updates], list[tuple[int, int, dict[str, Updates]]]]:
    """The first epoch of a program on a graph, and epochs of some updates."""
    stream = Stream(random_graph(60, 1200), 120)
    first = {"roots": Updates.of(np.arange(2)[:, None], 0, 1), "edges": Updates(stream.first(), 2, 0)}
    epochs, at = [], 0
    for size in (1, 7, 2, 100, 1, 400, *[1] * 10, 50, 50, 50):
        epochs.append((at + 1, at + size + 1, {"edges": Updates(stream.updates(at, at + size, size, True), 2, 0)}))
        at += size
    return first, epochs


def answers(name: str, workers: int, before: Callable[[LocalEngine], None] = lambda engine: None) -> Any:
    """The changes of each epoch, and how many slices ran in one kernel. before: called before each epoch."""
    first, epochs = loads(name)
    with LocalEngine(compile_app(program(name)), workers) as engine:
        found = [engine.run_epoch(MIN_TIME, 1, first)["answer"].data.tolist()]
        for lower, upper, inputs in epochs:
            before(engine)
            found.append(engine.run_epoch(lower, upper, inputs)["answer"].data.tolist())
        return found, interpreted(engine)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", ["bfs", "degrees", "reach"])
def test_several_workers_change_the_same(name: str, workers: int) -> None:
    expected, _ = answers(name, 1)
    found, slices = answers(name, workers)
    assert found == expected
    assert slices == [len(expected)] * workers, "all slices have run in kernels"


@pytest.mark.parametrize("room", [7, 101, 1001])
def test_rows_come_through_lanes_of_any_size(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    # With little room rows travel in pieces, and the ring's end is within one.
    expected, _ = answers("bfs", 1)
    monkeypatch.setattr(lanes, "WORDS", kernel.ROOM + room)
    monkeypatch.setattr(exchange, "WORDS", kernel.ROOM + room)
    found, slices = answers("bfs", 3)
    assert found == expected
    assert slices == [len(expected)] * 3, "all slices have run in kernels"


@given(seed=st.integers(0, 2**32), n=st.integers(0, 40), columns=st.integers(2, 11), together=st.booleans())
def test_rows_are_parted_by_owner(seed: int, n: int, columns: int, together: bool) -> None:
    draw = np.random.default_rng(seed)
    workers, key, width = int(draw.integers(1, 5)), int(draw.integers(0, 3)), columns + int(draw.integers(1, 4))
    rows = draw.integers(-(2**63), 2**63 - 1, (n, width), dtype=np.int64)
    begin = int(draw.integers(width - columns))
    sent = np.arange(begin, begin + columns) if together else draw.integers(0, width - 1, columns)
    placing = 1 + draw.integers(0, width - 1, key)
    size = n * columns + LINE
    out = np.full(workers * size, 7)
    begins = out.ctypes.data + 8 * size * np.arange(workers)
    places = begins.copy()
    _part_rows(rows, 1, sent, placing, workers, places)
    owners = [int(owner(hash_row(rows, i, placing), workers)) for i in range(n)]
    for to in range(workers):
        count = (places[to] - begins[to]) // 8
        parted = out[to * size :][:count].reshape(-1, columns)
        assert parted.tolist() == rows[[i for i in range(n) if owners[i] == to]][:, 1 + sent].tolist()


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("name", ["bfs", "degrees"])
def test_one_worker_gets_the_changes_of_all(name: str, workers: int) -> None:
    expected, _ = answers(name, 1)
    first, epochs = loads(name)
    plan, found, shares = compile_app(program(name)), [], []
    with LocalEngine(plan, workers) as engine:
        engine.workers = [engine_worker.Worker(plan, one.exchange, gathers=True) for one in engine.workers]
        for lower, upper, inputs in ((MIN_TIME, 1, first), *epochs):
            for one in interpreters(engine):
                one._paused = len(found) % 5 == 4  # such a slice runs step by step, and its changes stay where they are
            found.append(engine.run_epoch(lower, upper, inputs)["answer"].data.tolist())
            shares.append([len(worker.views["answer"].taken()) for worker in engine.workers])
        assert found == expected
        for epoch, (own, *others) in enumerate(shares):
            assert any(others) == (epoch % 5 == 4 and own + sum(others) > 1), shares


def test_few_updates_need_no_agreement_on_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, gather = [0], Threads.allgather

    def counting(self: Threads, payload: bytes) -> list[bytes]:
        calls[0] += 1
        return gather(self, payload)

    monkeypatch.setattr(Threads, "allgather", counting)
    with edges_engine(lambda edges: edges.group_by("src").agg(n=vn.count()), 2) as engine:
        short = 2 * engine.workers[0].pace.updates
        changes(engine, 0, 10, [[1, 2, 1, 1]])
        before = calls[0]
        assert changes(engine, 10, 20, [[1, row, 11, 1] for row in range(short)]) == [
            [1, 1, 11, -1],
            [1, short + 1, 11, 1],
        ]
        assert calls[0] == before
        for worker in engine.workers:
            worker.pace.updates = LEAST
        # One worker finds it too long for one slice, so all agree on where to cut it, and kernels run the slices.
        engine.workers[0].pace.updates = short
        rows = [[2, row, 21 + row * 7 // short, 1] for row in range(short)]
        counts = np.cumsum(np.bincount(np.arange(short) * 7 // short)).tolist()
        found = changes(engine, 20, 30, rows)
        gone = [[2, count, 22 + i, -1] for i, count in enumerate(counts[:-1])]
        assert sorted(found) == sorted([*([2, count, 21 + i, 1] for i, count in enumerate(counts)), *gone])
        assert calls[0] > before
        assert interpreted(engine) == [4, 4]  # the epoch in two slices


@pytest.mark.parametrize("seed", range(4))
def test_a_worker_that_gives_up_takes_all_along(seed: int) -> None:
    """At a random point of a slice, one worker has no place for a sealed step, or cannot begin."""
    choose = random.Random(seed)

    def before(engine: LocalEngine) -> None:
        for one in interpreters(engine):
            one._pause = one._paused = 0
            one._words[runs.KEPT_SIZE] = len(one._kept)
        victim = choose.choice(interpreters(engine))
        if choose.random() < 0.7:
            victim._words[runs.KEPT_SIZE] = choose.randrange(20)

    expected, _ = answers("bfs", 1)
    found, slices = answers("bfs", 2 + seed % 2, before)
    assert found == expected
    assert len(set(slices)) == 1, "a slice runs in the kernels of all workers or of none"
    assert 0 < slices[0] < len(expected)


def test_a_worker_that_cannot_begin_takes_all_along(monkeypatch: pytest.MonkeyPatch) -> None:
    from vernier.storage.trace.running import RunningTraces

    choose, lend = random.Random(3), RunningTraces.lend

    def sometimes(self: RunningTraces, steps: int) -> bool:
        return choose.random() < 0.8 and lend(self, steps)

    expected, _ = answers("reach", 1)
    monkeypatch.setattr(RunningTraces, "lend", sometimes)
    monkeypatch.setattr(RunningTraces, "lent", False)
    found, slices = answers("reach", 3)
    assert found == expected
    assert len(set(slices)) == 1
    assert 0 < slices[0] < len(expected)


def sources_changes(workers: int, seed: int, cut: int) -> list[dict[str, list[list[int]]]]:
    """Epochs of few updates of three sources, in slices of `cut` updates."""
    choose, app = random.Random(seed), vn.App("sources")
    sources = [app.source(name, Edge) for name in ("one", "two", "three")]
    for source in sources:
        app.view(f"of_{source.node.name}", source)
    app.view("all", vn.union(*sources).group_by("src").agg(n=vn.count()))
    found = []
    with LocalEngine(compile_app(app), workers, slice_updates=cut) as engine:
        for lower in range(0, 80, 8):
            rows: dict[str, list[list[int]]] = {name: [] for name in app.sources}
            for _ in range(choose.choice((1, 4, 9))):
                row = [choose.randrange(4), choose.randrange(3), lower + choose.randrange(8), choose.choice((1, 1, -1))]
                rows[choose.choice(list(rows))].append(row)
            given = {name: Updates(np.array(some, np.int64).reshape(-1, 4), 2, 0) for name, some in rows.items()}
            made = engine.run_epoch(lower, lower + 8, given)
            found.append({name: one.data.tolist() for name, one in made.items()})
    return found


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_what_a_refused_slice_was_given_is_forgotten(workers: int, cut: int, seed: int) -> None:
    # Each epoch is tried as one slice, which is too long. A source that has nothing in the first shorter one emitted
    # the updates of the refused one there.
    assert sources_changes(workers, seed, cut) == sources_changes(1, seed, cut)


def test_messages_that_are_larger_than_a_lane_travel_in_pieces() -> None:
    def before(engine: LocalEngine) -> None:
        for one in interpreters(engine):
            assert one.lanes is not None
            one.lanes._streams[:, kernel.SIZE] = 13

    expected, _ = answers("bfs", 1)
    first, epochs = loads("bfs")
    for workers in (2, 3):
        with LocalEngine(compile_app(program("bfs")), workers) as engine:
            before(engine)
            found = [engine.run_epoch(MIN_TIME, 1, first)["answer"].data.tolist()]
            found += [engine.run_epoch(*one)["answer"].data.tolist() for one in epochs]
            assert found == expected
            assert interpreted(engine) == [len(expected)] * workers


def test_a_table_that_is_full_on_one_worker_grows_and_all_begin_again() -> None:
    long = 900
    path = np.array([[node, node + 1, 0, 1] for node in range(long)], np.int64)
    first = {"edges": Updates(path, 2, 0), "roots": Updates.of(np.zeros((1, 1), np.int64), 0, 1)}
    with LocalEngine(compile_app(program("reach")), 2) as engine:
        rows = engine.run_epoch(MIN_TIME, 1, first)["answer"].data
        assert rows[:, 1].tolist() == list(range(long + 1))
        assert all(one.stats[0, STEPS_DONE] > 1 for one in interpreters(engine)), "runs that found it full began again"
        assert interpreted(engine) == [1, 1]
        assert all(one._pause == 0 for one in interpreters(engine))


def edges_engine(build: Callable[[Collection], Collection], workers: int) -> LocalEngine:
    """A program with one source and one view."""
    app = vn.App("lanes")
    app.view("answer", build(app.source("edges", Edge)))
    return LocalEngine(compile_app(app), workers)


def changes(engine: LocalEngine, lower: int, upper: int, data: Any) -> list[list[int]]:
    """An epoch of edges."""
    updates = Updates(np.array(data, np.int64).reshape(-1, 4), 2, 0)
    return engine.run_epoch(lower, upper, {"edges": updates})["answer"].data.tolist()


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_without_rows(workers: int) -> None:
    with edges_engine(lambda edges: edges.group_by("src").agg(n=vn.count(), total=vn.sum("dst")), workers) as engine:
        assert changes(engine, 0, 10, [[1, 5, 1, 1]] * 5) == [[1, 5, 25, 1, 1]]
        assert changes(engine, 10, 20, []) == []
        assert changes(engine, 20, 30, [[1, 5, 21, -1]]) == [[1, 4, 20, 21, 1], [1, 5, 25, 21, -1]]
        assert len(set(interpreted(engine))) == 1


@pytest.mark.parametrize("workers", [2, 3])
def test_equal_rows_of_all_workers_meet(workers: int) -> None:
    with edges_engine(lambda edges: edges.union(edges.select(src="dst", dst="src")).distinct(), workers) as engine:
        assert changes(engine, 0, 10, [[1, 2, 1, 1], [2, 1, 2, 1]] * 3) == [[1, 2, 1, 1], [2, 1, 1, 1]]
        assert changes(engine, 10, 20, [[1, 2, 11, -3]]) == []
        assert changes(engine, 20, 30, [[2, 1, 21, -3]]) == [[1, 2, 21, -1], [2, 1, 21, -1]]
        assert interpreted(engine) == [3] * workers


def test_a_sum_that_overflows_on_one_worker_raises() -> None:
    engine = edges_engine(lambda edges: edges.group_by("src").agg(total=vn.sum("dst")), 2)
    assert changes(engine, 0, 10, [[1, 2**62, 1, 1], [2, 1, 1, 1]]) == [[1, 2**62, 1, 1], [2, 1, 1, 1]]
    with pytest.raises(AggregateOverflow, match="src=1"):
        changes(engine, 10, 20, [[1, 2**62, 11, 1], [2, 1, 11, 1]])
    engine.close()


def test_a_worker_that_fails_does_not_leave_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = edges_engine(lambda edges: edges.group_by("src").agg(n=vn.count()), 3)
    assert changes(engine, 0, 10, [[1, 1, 1, 1]]) == [[1, 1, 1, 1]]
    run = Interpreter.run

    def fails(self: Interpreter, *args: Any, **how: bool) -> bool:
        if self is engine.workers[1].interpreter:
            raise ZeroDivisionError
        return run(self, *args, **how)

    monkeypatch.setattr(Interpreter, "run", fails)
    with pytest.raises(ZeroDivisionError):
        changes(engine, 10, 20, [[1, 1, 11, 1]])
    engine.close()


def test_an_attempt_does_not_read_what_an_earlier_one_has_left() -> None:
    from vernier.operators.runtime.exchange import Threads

    threads = Threads.connected(2)
    shared = threads[0]._shared
    for left, lane in enumerate(shared.lanes.reshape(4, -1), 3):
        lane[kernel.HEAD], lane[kernel.ROOM :] = left, 99
        lane[kernel.MARK : kernel.MARK + 2] = 7, 7
    app = vn.App("lanes")
    app.view("answer", app.source("edges", Edge).group_by("src").agg(n=vn.count()))
    plan = compile_app(app)
    with LocalEngine(plan, 2) as engine:
        engine._threads = threads
        engine.workers = [engine_worker.Worker(plan, one) for one in threads]
        assert changes(engine, 0, 10, [[1, 1, 1, 1], [2, 1, 1, 1]]) == [[1, 1, 1, 1], [2, 1, 1, 1]]
        assert interpreted(engine) == [1, 1]


def test_short_texts_travel_and_long_ones_make_python_run_the_slice() -> None:
    app = vn.App("texts")
    named = app.source("named", Named)
    app.view("answer", named.group_by("name").agg(n=vn.count()))
    plan = compile_app(app)
    with LocalEngine(plan, 2) as engine:
        schema = plan.sources["named"]

        def run(lower: int, names: list[str]) -> int:
            rows = schema.encode({"src": np.arange(len(names)), "name": pa.array(names)}, engine.heap)
            times = np.full((len(rows), 1), lower)
            updates = Updates(np.hstack([rows, times, np.ones_like(times)]), schema.width, 0)
            return len(engine.run_epoch(lower, lower + 10, {"named": updates})["answer"])

        assert run(0, ["short", "other", "short"] * 5) == 2
        assert interpreted(engine) == [1, 1]
        assert run(10, [f"a name that is longer than fifteen bytes {i}" for i in range(20)]) == 20
        assert interpreted(engine) == [1, 1]


def walks(edges: Collection) -> Collection:
    """Each walk's ends. The rows of the next round may belong to any worker."""

    @vn.fixpoint
    def ends(ends: Collection, *, edges: Collection) -> Collection:
        moved = edges.select(middle="src", end="dst")
        return ends.join(moved, left_on="dst", right_on="middle").select(src="src", dst=col("end"))

    return ends(edges, edges=edges)


def countdown(edges: Collection) -> Collection:
    """A loop in which rows travel nowhere but into the next round."""

    @vn.fixpoint
    def down(down: Collection) -> Collection:
        return down.filter(col("dst") > 0).select(src=col("src") + 1, dst=col("dst") - 1)

    return down(edges)


@pytest.mark.parametrize("build", [walks, countdown])
def test_loops_that_feed_rows_to_other_workers(build: Callable[[Collection], Collection]) -> None:
    pairs = [(1, 2), (2, 3), (3, 4), (1, 4), (7, 8), (8, 9), (4, 7)]
    found = []
    for workers in (1, 2, 3):
        with edges_engine(build, workers) as engine:
            rows = [changes(engine, 0, 10, [[*pair, 1, 1] for pair in pairs])]
            rows.append(changes(engine, 10, 20, [[3, 4, 11, -1], [9, 11, 12, 1], [2, 5, 12, 1], [5, 7, 13, 1]]))
            rows.append(changes(engine, 20, 30, [[3, 4, 21, 1]]))
            found.append(rows)
            assert interpreted(engine) == [3] * workers
    assert found[0] == found[1] == found[2]
