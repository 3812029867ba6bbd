"""The rounds of a loop as a collection: what they count, where they may be used, and that they are served."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vernier as vn
from tests.oracle import plan as oracle
from tests.oracle.model import Change, changes_of
from tests.properties.engine import run
from tests.sidecar.builder import StateBuilder
from tests.sidecar.conftest import Served, serve
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.errors import BadLoop
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME, Updates

__all__ = ["serve"]


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Node(vn.Schema):
    node: vn.Int64


@vn.fixpoint
def reach(reached: vn.Collection, *, edges: vn.Collection, roots: vn.Collection) -> vn.Collection:
    step = reached.join(edges, left_on="node", right_on="src").select(node=col("dst"))
    return vn.union(roots, step).distinct()


def program(rounds: bool = True) -> vn.App:
    app = vn.App("reach")
    edges, roots = app.source("edges", Edge), app.source("roots", Node)
    loop = reach(roots, edges=edges, roots=roots)
    app.view("reach", loop, key=["node"])
    if rounds:
        app.view("rounds", loop.rounds(), key=["round"])
    return app


PATH = [((i, i + 1), 1, 1) for i in range(6)]
GIVEN: dict[str, list[Change]] = {
    "roots": [((0,), 1, 1), ((4,), 5, 1), ((0,), 12, -1)],
    "edges": [*PATH, ((0, 3), 3, 1), ((2, 9), 4, 1), ((9, 2), 4, 1), ((1, 2), 7, -1), ((0, 3), 9, -1)],
}


def answers() -> dict[str, list[Change]]:
    edges, roots = oracle.Source("edges"), oracle.Source("roots")
    (found,) = oracle.fixpoint(
        (roots,),
        lambda reached: (
            oracle.Distinct(
                oracle.Union((roots, oracle.Join(reached, edges, lambda r: r, lambda e: e[:1], lambda r, e: e[1:])))
            ),
        ),
    )
    return changes_of({"reach": found, "rounds": oracle.LoopRounds(found.loop, 0)}, GIVEN)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("cuts", [(), (4,), tuple(range(1, 14))])
def test_rounds_are_those_of_the_naive_loop(cuts: tuple[int, ...], workers: int) -> None:
    found = run(program(), GIVEN, cuts=cuts, workers=workers, slice_updates=3, between="reopen")
    assert found == answers()
    assert [row for row, time, diff in found["rounds"] if time == 1] == [(i, 1) for i in range(7)]


def test_a_truncated_loop_counts_its_last_round() -> None:
    app = vn.App("counting")
    numbers = app.source("roots", Node)
    up = numbers.iterate(lambda x: x.select(node=col("node") + 1), max_rounds=3, on_limit="truncate")
    app.view("last", up)
    app.view("rounds", up.rounds())
    found = run(app, {"roots": [((0,), 1, 1), ((10,), 2, 3)]})
    assert found["last"] == [((3,), 1, 1), ((13,), 2, 3)]
    one, two = [((0, 1), 1), *(((i, 2), 1) for i in (1, 2, 3))], [((0, 2), 1), *(((i, 4), 1) for i in (1, 2, 3))]
    gone = [(row, -1) for row, _ in one]
    assert found["rounds"] == [*((row, 1, diff) for row, diff in one), *sorted((row, 2, d) for row, d in [*gone, *two])]


def test_each_variable_has_its_own() -> None:
    @vn.fixpoint
    def turns(a: vn.Collection, b: vn.Collection, *, limit: vn.Collection) -> tuple[vn.Collection, vn.Collection]:
        grown = a.select(node=col("node") + 1).join(limit, on="node")
        return vn.union(a, grown).distinct(), b.distinct()

    app = vn.App("turns")
    numbers, limit = app.source("roots", Node), app.source("limit", Node)
    first, second = turns(numbers, numbers, limit=limit)
    app.view("first", first.rounds())
    app.view("second", second.rounds())
    found = run(app, {"roots": [((0,), 1, 2)], "limit": [((i,), 1, 1) for i in range(4)]}, workers=2)
    # Of two copies one is left after the first round: a multiplicity that changes counts, whether it is above 0 or not.
    assert found["first"] == [((0, 1), 1, 1), ((1, 2), 1, 1), ((2, 1), 1, 1), ((3, 1), 1, 1)]
    assert found["second"] == [((0, 1), 1, 1), ((1, 1), 1, 1)]


def test_an_inner_loop_has_rounds_at_each_outer_round() -> None:
    """They leave through a variable of the outer loop, as everything does; the oracle says what they are."""

    class Count(vn.Schema):
        round: vn.Int64
        changed: vn.Int64

    @vn.fixpoint(max_rounds=4, on_limit="truncate")
    def outer(x: vn.Collection, seen: vn.Collection) -> tuple[vn.Collection, vn.Collection]:
        inner = x.iterate(lambda y: vn.union(y, y.filter(col("node") < 4).select(node=col("node") + 1)).distinct())
        return inner.filter(col("node") % 2 == 0).select(node=col("node") // 2 + 1), inner.rounds()

    app = vn.App("nested")
    numbers = app.source("roots", Node)
    app.view("seen", outer(numbers, app.source("none", Count))[1])

    def shifted(by: int) -> Callable[[oracle.Row], oracle.Row]:
        return lambda row: (row[0] + by,)

    def body(x: oracle.Node, seen: oracle.Node) -> tuple[oracle.Node, ...]:
        (inner,) = oracle.fixpoint(
            (x,),
            lambda y: (
                oracle.Distinct(
                    oracle.Union((y, oracle.Project(oracle.Filter(y, lambda row: row[0] < 4), shifted(1))))
                ),
            ),
        )
        even = oracle.Filter(inner, lambda row: row[0] % 2 == 0)
        halved = oracle.Project(even, lambda row: (row[0] // 2 + 1,))
        return halved, oracle.LoopRounds(inner.loop, 0)

    given: dict[str, list[Change]] = {"roots": [((0,), 1, 1), ((3,), 2, 2), ((0,), 4, -1)], "none": []}
    wanted = oracle.fixpoint((oracle.Source("roots"), oracle.Source("none")), body, max_rounds=4, truncate=True)[1]
    expected = changes_of({"seen": wanted}, given)
    assert expected["seen"]
    for workers in (1, 2):
        assert run(app, given, cuts=[2], workers=workers) == expected


def test_what_has_no_rounds() -> None:
    edges = vn.App("t").source("edges", Edge)
    with pytest.raises(BadLoop, match=r"rounds\(\) is a method of what a fixpoint or iterate returned"):
        edges.rounds()
    with pytest.raises(BadLoop, match=r"reached\.rounds\(\)"):
        edges.iterate(lambda x: x.distinct()).filter(col("src") > 1).rounds()
    with pytest.raises(BadLoop, match=r"reached\.rounds\(\)"):
        edges.iterate(lambda x: x.rounds().select(src="round", dst="changed"))


def test_a_program_without_it_keeps_its_plan_and_one_that_adds_it_takes_the_state_over() -> None:
    before, after = (compile_app(program(rounds), keep_sources=True) for rounds in (False, True))
    assert set(before.arrangements) < set(after.arrangements)
    early = {name: [one for one in part if one[1] < 6] for name, part in GIVEN.items()}
    late = {name: [one for one in part if one[1] >= 6] for name, part in GIVEN.items()}
    with LocalEngine(before, 2) as engine:
        engine.run_epoch(MIN_TIME, 6, _encoded(before, early))
        engine.migrate(after)
        changes = engine.run_epoch(6, CLOSED, _encoded(after, late))["rounds"]
    rows = list(map(tuple, changes.rows.tolist()))
    found = list(zip(rows, changes.time.tolist(), changes.diff.tolist(), strict=True))
    assert sorted(found) == sorted(one for one in answers()["rounds"] if one[1] >= 6)


def _encoded(plan: Any, given: dict[str, list[Change]]) -> dict[str, Updates]:
    return {
        name: Updates.of(
            plan.sources[name].encode_rows([row for row, _, _ in part]), *zip(*((t, d) for _, t, d in part))
        )
        for name, part in given.items()
        if part
    }


def test_it_is_served_like_any_view(tmp_path: Path, serve: Callable[..., Served]) -> None:
    app = program()
    views = {name: (view.node.schema, view.key) for name, view in app.views.items()}
    builder = StateBuilder(tmp_path / "state", views, app=app.name)
    with vn.testing.run(app) as t:
        for upper in (3, 10):
            before = t.frontier
            for name, part in GIVEN.items():
                t.update(name, [one for one in part if before <= one[1] < upper])
            t.advance(upper)
            builder.commit(upper, {view: t.changes(view, since=before) for view in views})
        expected = t.rows("rounds", at=9)
    url = serve(builder.path).url

    def get(path: str) -> Any:
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            return json.load(answer)["rows"]

    assert get("/v1/views/rounds?order=-round&limit=1&as_of=2") == [{"round": 6, "changed": 1}]
    assert get("/v1/views/rounds/rows/0?as_of=9") == [{"round": 0, "changed": 2}]
    assert [(one["round"], one["changed"]) for one in get("/v1/views/rounds?as_of=9")] == expected
    builder.close()
