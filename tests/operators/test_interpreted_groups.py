"""Columns along groups, and what is chosen from them, in one kernel: the same changes as step by step."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import vernier as vn
from tests.operators.test_interpreter import engine_of, interpreted
from vernier import Collection, col
from vernier.operators.engine.program import program_of
from vernier.operators.errors import ArithmeticOverflow
from vernier.operators.failures import AggregateOverflow
from vernier.operators.group_functions.frames import FrameSums
from vernier.operators.group_functions.sessions import Sessions
from vernier.operators.language.collection.ordering import grouped_by
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="it needs compiled kernels")


class Event(vn.Schema):
    key: vn.Int64
    at: vn.Int64 | None
    value: vn.Int64


def _grouped(rows: Collection, spec: Any) -> Collection:
    return rows._of(grouped_by(rows.node, ("key",), spec))


VIEWS: dict[str, Callable[[Collection], Collection]] = {
    "top": lambda rows: rows.top_k(3, by=col("value").desc(), within="key"),
    "bottom": lambda rows: rows.top_k(2, by=["at", "value"], within="key"),
    "most": lambda rows: rows.group_by("key").agg(x=vn.max("value")),
    "least": lambda rows: rows.group_by("key").agg(x=vn.min("at")),
    "ranks": lambda rows: rows.group_by("key").agg(x=vn.quantile("at", 0.9), y=vn.median("at")),
    "mode": lambda rows: rows.group_by("key").agg(x=vn.mode("value")),
    "lag": lambda rows: rows.lag("value", by="at", within="key", name="x"),
    "lead": lambda rows: rows.lead("at", by=["value", "at"], within="key", n=2, name="x"),
    "frame": lambda rows: _grouped(rows, FrameSums((("at", False), ("value", False)), "x", (), ("value",), -2, 1)),
    "sums": lambda rows: rows.running_sum("value", by="at", within="key", name="x"),
    "sums_down": lambda rows: rows.running_sum("at", by=col("value").desc(), within="key", name="x"),
    "rank": lambda rows: rows.rank(by="at", within="key", name="x"),
    "number": lambda rows: rows.row_number(by=col("value").desc(), within="key", name="x"),
    "dense": lambda rows: rows.dense_rank(by="value", within="key", name="x"),
    "sessions": lambda rows: rows.window("at", session=3, by="key"),
    "starts": lambda rows: _grouped(rows, Sessions("at", 3, ends=False)),
    "running_max": lambda rows: rows.running_max("value", by="at", within="key", name="x"),
}


def app_of(*names: str) -> vn.App:
    app = vn.App("groups", retain="1us")
    events = app.source("events", Event)
    for name in names:
        app.view(name, VIEWS[name](events))
    return app


def epochs_of(seed: int, many: int) -> list[list[tuple[list[int], int, int]]]:
    """Epochs of updates `([key, is not null, at, value], time, diff)`: a large one, then small ones with several times
    each; rows with many copies, equal values, nulls, rows that come back, and now and then one that owes copies."""
    choose = random.Random(seed)

    def row() -> list[int]:
        there = choose.random() < 0.9
        return [choose.randrange(3), int(there), choose.randrange(500) if there else 0, choose.randrange(-40, 40)]

    held = [row() for _ in range(many)]
    epochs = [[(one, 0, choose.choice([1, 1, 2])) for one in held]]
    for epoch in range(1, 60):
        updates = list[tuple[list[int], int, int]]()
        for _ in range(choose.choice([1, 1, 1, 2, 5, 30])):
            time = 10 * epoch + choose.randrange(10)
            if choose.random() < 0.45 and held:
                gone = held.pop(choose.randrange(len(held)))
                updates.append((gone, time, choose.choice([-1, -1, -2])))
                if choose.random() < 0.2:
                    updates.append((gone, 10 * epoch + choose.randrange(10), 1))
            else:
                held.append(row())
                updates.append((held[-1], time, choose.choice([1, 1, 3])))
            if choose.random() < 0.03:
                owed = row()
                updates += (
                    [(owed, time, -1), (owed, 10 * epoch + 9, 1)] if choose.random() < 0.5 else [(owed, time, -1)]
                )
        epochs.append(updates)
    return epochs


def run_both(app: vn.App, seed: int, many: int) -> int:
    """Run the epochs both ways and compare all changes. How many slices ran in one kernel."""
    engines = [engine_of(app, interpret=interpret) for interpret in (True, False)]
    for number, updates in enumerate(epochs_of(seed, many)):
        rows, times, diffs = zip(*updates, strict=True)
        inputs = {"events": Updates.of(np.array(rows, np.int64), times, diffs)}
        lower = MIN_TIME if number == 0 else 10 * number
        results = [engine.run_epoch(lower, 10 * (number + 1), inputs) for engine in engines]
        for view in app.views:
            one, other = (found[view].data.tolist() for found in results)
            assert sorted(one) == sorted(other), (view, number)
    return interpreted(engines[0])


@pytest.mark.parametrize("view", VIEWS)
def test_each_view(view: str) -> None:
    for seed, many in enumerate((4, 60, 3000)):
        ran = run_both(app_of(view), seed, many)
        assert ran > 5, "slices with rows that owe copies may run step by step, and some after them"


def test_views_beside_one_another() -> None:
    assert run_both(app_of(*VIEWS), 7, 1500) > 5


STEPS: dict[str, Callable[[Collection, str], Collection]] = {
    "top": lambda rows, name: rows.top_k(3, by="at", within="key"),
    "lag": lambda rows, name: rows.lag("value", by="at", within="key", name=name),
    "sum": lambda rows, name: rows.running_sum("value", by="at", within="key", name=name),
    "rank": lambda rows, name: rows.rank(by="at", within="key", name=name),
    "down": lambda rows, name: rows.row_number(by=col("value").desc(), within="key", name=name),
    "most": lambda rows, name: rows.running_max("value", by="at", within="key", name=name),
    "sessions": lambda rows, name: _grouped(rows, Sessions("at", 3, ends=False)).rename(window_start=name),
    "mode": lambda rows, name: rows.group_by("key").agg(at=vn.median("at"), value=vn.mode("value")),
    "join": lambda rows, name: rows.join(rows.group_by("key").agg(**{name: vn.max("at")}), on="key"),
}


@pytest.mark.parametrize("first", STEPS)
def test_views_on_top_of_one_another(first: str) -> None:
    """A view reads what another has kept, at several times of one slice."""
    app = vn.App("chains", retain="1us")
    rows = STEPS[first](app.source("events", Event), "x")
    for second, step in STEPS.items():
        app.view(second, step(rows, "y"))
    assert run_both(app, 11, 40) > 5


def test_every_slice_runs_in_one_kernel_if_no_row_owes_copies() -> None:
    engine = engine_of(app_of(*VIEWS))
    for epoch in range(50):
        rows = [[0, 1, 7 * epoch % 40, epoch % 11], [1, 0, 0, epoch % 5]]
        inputs = {"events": Updates.of(np.array(rows, np.int64), [epoch, epoch], [1, 1])}
        engine.run_epoch(epoch, epoch + 1, inputs)
    assert interpreted(engine) == 50


def test_views_of_texts_run_step_by_step() -> None:
    class Named(vn.Schema):
        key: vn.Int64
        name: vn.String

    for build in (
        lambda rows: rows.top_k(1, by="name", within="key"),
        lambda rows: rows.group_by("key").agg(x=vn.mode("name")),
        lambda rows: rows.rank(by="name", within="key", name="x"),
    ):
        app = vn.App("texts")
        app.view("v", build(app.source("rows", Named)))
        assert program_of(compile_app(app)) is None


@pytest.mark.parametrize("interpret", [True, False])
def test_sums_that_do_not_fit_and_sessions_that_are_too_late_are_refused(interpret: bool) -> None:
    for view, bad, error in (
        ("sums", [0, 1, 5, 2**62], AggregateOverflow),
        ("sessions", [0, 1, 2**63 - 2, 1], ArithmeticOverflow),
    ):
        engine = engine_of(app_of(view), interpret=interpret)
        good = Updates.of(np.array([[0, 1, 4, 2**62]], np.int64), [0], [1])
        engine.run_epoch(MIN_TIME, 10, {"events": good})
        with pytest.raises(error):
            engine.run_epoch(10, 20, {"events": Updates.of(np.array([bad], np.int64), [10], [1])})


def test_all_memory_is_given_back() -> None:
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()
    gc.collect()
    before = rtsys.get_allocation_stats()
    run_both(app_of(*VIEWS), 3, 700)
    gc.collect()
    after = rtsys.get_allocation_stats()
    assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free
