"""States of versions that kept the rows under counts and sums: they open, and continue as if vectors had been there.

`former.npz` was written by the last such version: the traces of one worker after `FIRST`, for the program below. A new
one can be written with `write` by that version alone.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import vernier as vn
from tests.operators.continued import Row, run_epoch
from vernier import col
from vernier.operators.engine.migrate import Held, migrate, plan_migration
from vernier.operators.engine.worker import Worker, WorkerState
from vernier.operators.failures import NeedsHistory
from vernier.operators.planning.planner import compile_app
from vernier.operators.runtime.exchange import Single
from vernier.storage.trace.batch import Batch
from vernier.storage.trace.spine import Trace
from vernier.storage.updates import MIN_TIME

STORED = Path(__file__).parent / "former.npz"
UPPER = 100


class Sale(vn.Schema):
    shop: vn.String
    item: vn.Int64
    price: vn.Decimal(10, 2)
    weight: vn.Float64 | None


class Item(vn.Schema):
    item: vn.Int64
    kind: vn.String


SHOP = "a shop whose name is long enough to need a place of its own"
FIRST: dict[str, list[Row]] = {
    "sales": [
        ((SHOP, 1, Decimal("1.25"), 0.5), 3, 1),
        ((SHOP, 2, Decimal("2.50"), None), 4, 2),
        (("b", 1, Decimal("-7.00"), 1e300), 5, 1),
        (("b", 1, Decimal("7.00"), -1e-300), 6, 1),
        ((SHOP, 2, Decimal("2.50"), None), 7, -1),
        (("c", 3, Decimal("4.00"), None), 8, 1),
        (("c", 3, Decimal("4.00"), None), 9, -1),
    ],
    "items": [((1, "fruit"), 2, 1), ((2, "tools"), 2, 1), ((3, "fruit"), 9, 1)],
}
LATER: dict[str, list[Row]] = {
    "sales": [
        (("b", 1, Decimal("-7.00"), 1e300), 103, -1),
        ((SHOP, 1, Decimal("1.25"), 0.5), 104, -1),
        ((SHOP, 9, Decimal("1.25"), 0.75), 104, 1),
        (("c", 1, Decimal("0.00"), None), 105, 1),
        (("b", 1, Decimal("7.00"), -1e-300), 106, -1),
    ],
    "items": [((2, "tools"), 107, -1), ((9, "books"), 108, 1)],
}


def app() -> vn.App:
    made = vn.App("former")
    sales, items = made.source("sales", Sale), made.source("items", Item)
    made.view("count", sales.group_by("shop").agg(n=vn.count()), key=["shop"])
    sums = {"n": vn.count(), "total": vn.sum("price"), "mean": vn.avg("weight"), "weight": vn.sum("weight")}
    made.view("sums", sales.group_by("shop").agg(**sums), key=["shop"])
    kinds = sales.join(items, on="item").group_by("kind")
    made.view("kinds", kinds.agg(n=vn.count(), total=vn.sum(col("price") * 2)), key=["kind"])
    made.view("sizes", kinds.agg(n=vn.count()).group_by("n").agg(kinds=vn.count()), key=["n"])
    made.view("each", items.group_by("item", "kind").agg(n=vn.count()), key=["item"])
    return made


def write(path: Path) -> None:
    """Write the traces after FIRST."""
    program = app()
    worker = Worker(compile_app(program))
    run_epoch(program, worker, FIRST, MIN_TIME, UPPER)
    arrays, described = {}, {}
    for name, trace in worker.state.traces.items():
        described[name] = {"shape": [trace.key_width, trace.val_width, trace.depth], "batches": []}
        for place, batch in enumerate(trace.batches):
            described[name]["batches"].append(batch.meta())
            arrays |= {f"{name}/{place}/{column}": array for column, array in batch.arrays().items()}
    np.savez_compressed(path, described=np.array(json.dumps(described)), **arrays)


def stored() -> WorkerState:
    """The traces in the file."""
    with np.load(STORED) as file:
        described = json.loads(str(file["described"]))
        traces = {}
        for name, one in described.items():
            trace = Trace(name, *one["shape"], MIN_TIME if name.startswith("view") else UPPER)
            batches = []
            for place, meta in enumerate(one["batches"]):
                start = f"{name}/{place}/"
                batches.append(
                    Batch.open(meta, {key[len(start) :]: file[key] for key in file if key.startswith(start)})
                )
            trace.replace(batches)
            traces[name] = trace
    return WorkerState(traces, UPPER)


def test_a_state_with_rows_continues_with_vectors() -> None:
    program = app()
    plan = compile_app(program)
    whole = Worker(plan)
    run_epoch(program, whole, FIRST, MIN_TIME, UPPER)
    wanted = run_epoch(program, whole, LATER, UPPER, 2 * UPPER)
    before = stored()
    migration = plan_migration(plan, Held.of(before))
    assert len(migration.fresh) == 4
    assert {view.trace for view in plan.views.values()} <= set(migration.kept)
    state = migrate(plan, before, Single())
    assert state.traces.keys() == plan.arrangements.keys()
    assert run_epoch(program, Worker(plan, state=state), LATER, UPPER, 2 * UPPER) == wanted
    assert wanted


def test_an_arrangement_of_a_source_is_made_from_the_rows_of_a_group() -> None:
    program = app()
    plan = compile_app(program, keep_sources=True)
    state = migrate(plan, stored(), Single())
    assert state.traces.keys() == plan.arrangements.keys()
    whole = Worker(plan)
    run_epoch(program, whole, FIRST, MIN_TIME, UPPER)
    for name in plan.arrangements:
        sums = [accumulated(one.traces[name]) for one in (state, whole.state)]
        assert sums[0] == sums[1], name


def accumulated(trace: Trace) -> dict[tuple[int, ...], int]:
    """The rows of a trace with their multiplicities."""
    found: dict[tuple[int, ...], int] = {}
    for batch in trace.batches:
        for row in batch.to_updates().data.tolist():
            found[tuple(row[:-2])] = found.get(tuple(row[:-2]), 0) + row[-1]
    return {row: copies for row, copies in found.items() if copies}


def test_a_group_that_exists_no_longer_needs_its_history() -> None:
    program = app()
    plan = compile_app(program)
    state = stored()
    trace = state.traces[plan.former[0].trace]
    rows = np.concatenate([batch.keyed() for batch in trace.batches])
    # A row, and another one of its group with the opposite sign.
    other = rows[-1:].copy()
    other[0, 1 + trace.key_width] += 1
    other[0, -1] *= -1
    ordered = np.concatenate((rows[-1:], other))
    trace.replace([Batch.of_rows(ordered, trace.key_width, 0, MIN_TIME, UPPER, UPPER - 1)])
    with pytest.raises(NeedsHistory, match="rows cancel each other"):
        migrate(plan, state, Single())
