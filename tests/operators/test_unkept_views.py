"""Plans that keep no views: workers only say how views change, and what they say is consolidated in each slice."""

from __future__ import annotations

import numpy as np
import pytest

import vernier as vn
from tests.operators.test_views_together import UPDATES, VIEWS, Item
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.op import Op
from vernier.operators.planning.ops import ConsolidateOp, ViewOp
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import ReductionOp
from vernier.storage.updates import CLOSED, MIN_TIME, Updates


def app_of(*names: str) -> vn.App:
    app = vn.App("unkept")
    rows = app.source("rows", Item)
    for name in names:
        app.view(name, VIEWS[name](rows))
    return app


def changes(app: vn.App, *, keep_views: bool, workers: int, cut: int) -> dict[str, list[tuple[object, int, int]]]:
    """The changes of all views in two epochs, as workers give them: not consolidated across slices."""
    found: dict[str, list[tuple[object, int, int]]] = {name: [] for name in app.views}
    schema = app.sources["rows"].schema
    with LocalEngine(compile_app(app, keep_views=keep_views), workers, ordered=False) as engine:
        for lower, upper in ((MIN_TIME, cut), (cut, CLOSED)):
            given = [one for one in UPDATES if lower <= one[1] < upper]
            words = schema.encode_rows((row for row, _, _ in given), engine.heap)
            inputs = {"rows": Updates.of(words, [time for _, time, _ in given], [diff for _, _, diff in given])}
            for name, made in engine.run_epoch(lower, upper, inputs).items():
                rows = app.views[name].node.schema.decode_rows(np.ascontiguousarray(made.rows), engine.heap)
                found[name] += zip(rows, made.time.tolist(), made.diff.tolist(), strict=True)
    return {name: sorted(one, key=repr) for name, one in found.items()}


def below(plan: Plan, view: str) -> Op:
    """What a view reads."""
    return next(plan.ops[op.input] for op in plan.of(ViewOp) if op.view == view)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("view", VIEWS)
def test_the_changes_are_the_same(view: str, workers: int) -> None:
    app = app_of(view)
    assert changes(app, keep_views=False, workers=workers, cut=4) == changes(app, keep_views=True, workers=1, cut=4)


def test_views_beside_one_another() -> None:
    app = app_of(*VIEWS)
    assert changes(app, keep_views=False, workers=2, cut=3) == changes(app, keep_views=True, workers=2, cut=3)


def test_nothing_keeps_a_view() -> None:
    app = app_of("sums", "known")
    kept, plan = compile_app(app), compile_app(app, keep_views=False)
    assert {view.trace for view in plan.views.values()} == {""}
    assert set(plan.arrangements) == set(kept.arrangements) - {view.trace for view in kept.views.values()}
    assert isinstance(below(plan, "sums"), ReductionOp)
    assert isinstance(below(plan, "known"), ConsolidateOp)


def test_only_rows_that_may_have_equals_elsewhere_are_exchanged() -> None:
    app = vn.App("placed")
    rows = app.source("rows", Item)
    counts = rows.group_by("b").agg(n=vn.count())
    app.view("stays", counts.filter(col("n") > 1))
    app.view("leaves", counts.select("n"))
    plan = compile_app(app, keep_views=False)
    stays, leaves = below(plan, "stays"), below(plan, "leaves")
    assert isinstance(stays, ConsolidateOp)
    assert not stays.exchange
    assert isinstance(leaves, ConsolidateOp)
    assert leaves.exchange


def test_views_of_one_collection_share_what_consolidates_it() -> None:
    app = vn.App("shared")
    rows = app.source("rows", Item)
    app.view("one", rows, key=["b"])
    app.view("two", rows, key=["c"])
    plan = compile_app(app, keep_views=False)
    assert below(plan, "one") is below(plan, "two")
    assert len(plan.of(ConsolidateOp)) == 1
