"""Loops as programs write them: variables, captured collections, nesting, and what is refused."""

from datetime import date
from typing import Any

import pytest

import vernier as vn
from vernier import col
from vernier.operators.errors import BadLoop
from vernier.operators.failures import LoopDidNotSettle
from vernier.operators.language.plan.loops import LoopResultNode, VariableNode


class Edge(vn.Schema):
    src: vn.Int64
    dst: vn.Int64


class Node(vn.Schema):
    node: vn.Int64


app = vn.App("t")
edges = app.source("edges", Edge)
nodes = app.source("nodes", Node)


def loop_of(collection: Any) -> Any:
    assert isinstance(collection.node, LoopResultNode)
    return collection.node.loop


def test_the_decorator_works_with_and_without_arguments() -> None:
    @vn.fixpoint
    def plain(x: vn.Collection) -> vn.Collection:
        """What it says."""
        return x

    @vn.fixpoint(max_rounds=7, on_limit="truncate")
    def limited(x: vn.Collection) -> vn.Collection:
        return x

    assert (plain.__name__, plain.__doc__) == ("plain", "What it says.")
    assert (loop_of(plain(nodes)).max_rounds, loop_of(plain(nodes)).on_limit) == (100_000, "error")
    assert (loop_of(limited(nodes)).max_rounds, loop_of(limited(nodes)).on_limit) == (7, "truncate")


def test_several_variables_give_a_tuple() -> None:
    @vn.fixpoint
    def both(even: vn.Collection, odd: vn.Collection, *, edges: vn.Collection) -> tuple[vn.Collection, vn.Collection]:
        step = edges.rename(src="node")
        return (
            nodes.union(odd.join(step, on="node").select(node=col("dst"))).distinct(),
            even.join(step, on="node").select(node=col("dst")).distinct(),
        )

    even, odd = both(nodes, nodes.filter(False), edges=edges)
    assert loop_of(even) is loop_of(odd)
    assert (even.node.index, odd.node.index) == (0, 1)
    assert loop_of(even).variables == ("even", "odd")
    assert [body.scope.depth for body in loop_of(even).bodies] == [1, 1]
    assert even.node.fingerprint != odd.node.fingerprint


def test_variables_may_be_passed_by_name() -> None:
    @vn.fixpoint
    def loop(x: vn.Collection, y: vn.Collection) -> tuple[vn.Collection, vn.Collection]:
        return y, x

    x, y = loop(nodes, y=nodes.distinct())
    assert loop_of(x).initials[1] is not loop_of(x).initials[0]
    assert y.columns == ("node",)


def test_loops_nest_and_share_what_is_outside() -> None:
    @vn.fixpoint
    def inner(x: vn.Collection, *, outer_x: vn.Collection) -> vn.Collection:
        return x.union(outer_x).distinct()

    @vn.fixpoint
    def outer(x: vn.Collection) -> vn.Collection:
        return inner(nodes, outer_x=x).union(x).distinct()  # type: ignore[no-any-return]

    loop = loop_of(outer(nodes))
    (body,) = loop.bodies
    inside = body.inputs[0].inputs[0]
    assert isinstance(inside, LoopResultNode)
    assert inside.scope is loop.scope
    assert (inside.loop.scope.parent, inside.loop.scope.depth) == (loop.scope, 2)
    assert inside.loop.initials == (nodes.node,)
    assert isinstance(body.inputs[0].inputs[1], VariableNode)


def test_a_body_may_reorder_its_columns_and_tighten_nulls() -> None:
    @vn.fixpoint
    def swap(x: vn.Collection) -> vn.Collection:
        return x.select("dst", "src").distinct()

    start = edges.cast(dst=vn.Int64 | None)
    assert swap(edges).columns == ("src", "dst")

    @vn.fixpoint
    def tight(x: vn.Collection) -> vn.Collection:
        return x.union(edges).join(nodes, left_on="dst", right_on="node").drop("node").distinct()

    assert tight(start).schema == start.schema


def test_a_body_may_leave_its_variable_alone() -> None:
    @vn.fixpoint
    def constant(x: vn.Collection) -> vn.Collection:
        return edges.select(node="src")

    assert loop_of(constant(nodes)).bodies[0].scope.depth == 0


def test_collections_do_not_leave_their_loop() -> None:
    kept: list[vn.Collection] = []

    @vn.fixpoint
    def leaky(x: vn.Collection) -> vn.Collection:
        kept.append(x.distinct())
        return x

    leaky(nodes)
    for use in (
        lambda: kept[0].distinct(),
        lambda: kept[0].union(nodes),
        lambda: leaky(kept[0]),
        lambda: vn.fixpoint(lambda x: kept[0])(nodes),
        lambda: app.view("leak", kept[0]),
    ):
        with pytest.raises(BadLoop, match="'leaky'"):
            use()


def test_a_body_that_raises_leaves_no_loop_open() -> None:
    @vn.fixpoint
    def broken(x: vn.Collection) -> vn.Collection:
        return x.select("nope")

    @vn.fixpoint
    def fine(x: vn.Collection) -> vn.Collection:
        return x

    for _ in range(2):
        with pytest.raises(vn.ProgramError, match="no column 'nope'"):
            broken(nodes)
    assert fine(nodes).node.scope.depth == 0
    assert loop_of(fine(nodes)).scope.depth == 1


def test_a_body_does_not_call_itself() -> None:
    @vn.fixpoint
    def endless(x: vn.Collection) -> vn.Collection:
        return endless(x)  # type: ignore[no-any-return]

    with pytest.raises(BadLoop, match="calls itself; its own value is the variable 'x'"):
        endless(nodes)


def test_a_loop_that_does_not_settle_shows_rows_as_the_program_knows_them() -> None:
    class Step(vn.Schema):
        price: vn.Float64 | None
        name: vn.String
        day: vn.Date

    endless = vn.App("t")

    @vn.fixpoint(max_rounds=3)
    def dearer(item: vn.Collection) -> vn.Collection:
        return item.with_columns(price=col("price") + 0.5)

    endless.view("v", dearer(endless.source("s", Step)))
    name = "a name that is longer than fifteen bytes"
    with vn.testing.run(endless) as t:
        t.insert("s", (1.5, name, date(2026, 1, 2)), at=7)
        said = rf"loop dearer .* at round 3 .*item \(3.0, '{name}', datetime.date\(2026, 1, 2\)\) \(\+1\) at 7"
        with pytest.raises(LoopDidNotSettle, match=said):
            t.finish()


def test_aggregates_of_computed_values_have_a_place_in_loops() -> None:
    loops = vn.App("t")
    steps = loops.source("edges", Edge)

    @vn.fixpoint
    def farthest(at: vn.Collection) -> vn.Collection:
        best = at.group_by("src").agg(dst=vn.arg_max("dst", by=col("dst") * 2), s=vn.sum(col("dst") + 1))
        return vn.union(steps, best.select("src", "dst").filter(col("dst") < 0)).distinct()

    loops.view("v", farthest(steps))
    with vn.testing.run(loops) as t:
        t.update("edges", [((1, 2), 1, 1), ((1, 3), 2, 1)])
        t.finish()
        assert t.rows("v") == [(1, 2), (1, 3)]
