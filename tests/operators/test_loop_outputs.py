"""Reductions in loops: one that keeps covers of its keys keeps no output, unless something in the loop reads it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.test_changes import as_of
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import ReduceOp
from vernier.storage.updates import Updates


class Edge(vn.Schema):
    """An edge of a graph."""

    src: vn.Int64
    dst: vn.Int64


def distances(reads: bool) -> vn.App:
    """Distances from node 0. reads: the loop joins its least distances themselves, not what they were a round ago."""
    app = vn.App("distances", retain=1000)
    edges = app.source("edges", Edge)
    roots = edges.filter(col("src") == 0).select(node=col("src")).distinct().select("node", dist=vn.lit(0))

    @vn.fixpoint
    def bfs(found: vn.Collection) -> vn.Collection:
        best = found.group_by("node").agg(dist=vn.min("dist"))
        near = best if reads else found
        farther = near.join(edges, left_on="node", right_on="src").select(node=col("dst"), dist=col("dist") + 1)
        farther = farther.filter(col("dist") < 9)
        return vn.union(roots, farther) if reads else vn.union(roots, farther).group_by("node").agg(dist=vn.min("dist"))

    reached = bfs(roots)
    app.view("distances", reached.group_by("node").agg(dist=vn.min("dist")))
    return app


def loop_outputs(plan: Plan) -> list[str]:
    """The traces of outputs of reductions in loops."""
    return [str(op.trace) for op in plan.of(ReduceOp) if op.scope and op.trace is not None]


def found(edges: set[tuple[int, int]]) -> dict[int, int]:
    """The distances, breadth first."""
    far = {0: 0} if any(src == 0 for src, _ in edges) else {}
    for dist in range(8):
        for src, dst in edges:
            if far.get(src) == dist and far.get(dst, 9) > dist + 1:
                far[dst] = dist + 1
    return far


def test_only_a_reduction_that_is_read_keeps_its_output() -> None:
    assert not loop_outputs(compile_app(distances(reads=False)))
    assert len(loop_outputs(compile_app(distances(reads=True)))) == 1


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(("workers", "slice_updates"), [(1, 0), (1, 3), (2, 0)])
def test_distances_at_every_time(reads: bool, workers: int, slice_updates: int) -> None:
    chance = random.Random(workers + slice_updates)
    log: list[tuple[int, int, int, int]] = []
    present: set[tuple[int, int]] = set()
    truth = {}
    for time in range(120):
        edge = chance.randrange(8), chance.randrange(8)
        log.append((*edge, time, -1 if edge in present else 1))
        present ^= {edge}
        truth[time] = found(present)
    changes: list[list[int]] = []
    with LocalEngine(compile_app(distances(reads)), workers, slice_updates=slice_updates) as engine:
        for lower, upper in ((0, 60), (60, 61), (61, 90), (90, 120)):
            some = Updates(np.array([row for row in log if lower <= row[2] < upper], np.int64), 2, 0)
            changes += engine.run_epoch(lower, upper, {"edges": some})["distances"].data.tolist()
    for time, wanted in truth.items():
        assert as_of(changes, time) == dict.fromkeys(wanted.items(), 1), time


def kept(monkeypatch: pytest.MonkeyPatch, app: Callable[[], vn.App]) -> Plan:
    """The plan of earlier releases, which kept what such reductions emit."""
    with monkeypatch.context() as patch:
        patch.setattr(ReduceOp, "looks_up", property(lambda op: not op.total))
        plan = compile_app(app())
    assert loop_outputs(plan)
    return plan


def test_a_state_of_an_earlier_release_goes_on_without_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    check_continued(
        distances(reads=False),
        kept(monkeypatch, lambda: distances(reads=False)),
        lambda: (chance.randrange(30), chance.randrange(30)),
    )
