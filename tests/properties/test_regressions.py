"""What properties once found, each as the smallest program and data that showed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import vernier as vn
from tests.oracle.model import Change, accumulate, changes
from tests.properties.engine import run
from tests.properties.programs import KNOWN, Edge, Root, known_programs
from vernier import col
from vernier.operators.planning.ops import ArrangeOp
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import ReduceOp


class Wide(vn.Schema):
    """A group's key, what tells its rows apart, and a value."""

    key: vn.Int64
    which: vn.Int64
    value: vn.Int64


def test_a_group_of_counts_whose_rows_cancel_is_not_there() -> None:
    """No column that the aggregates look at tells +1 and -1 apart. They are different rows, which only matters to
    aggregates that look at rows."""
    app = vn.App("groups")
    rows = app.source("rows", Wide)
    app.view("count", rows.group_by("key").agg(n=vn.count()))
    app.view("sum", rows.group_by("key").agg(n=vn.sum("value")))
    app.view("greatest", rows.group_by("key").agg(n=vn.count(), most=vn.max("value")))
    found = run(app, {"rows": [((0, 0, 7), 5, 1), ((0, 1, 7), 5, -1)]})
    assert found == {"count": [], "sum": [], "greatest": [((0, 0, 7), 5, 1)]}


class Sparse(vn.Schema):
    """As Wide, with a value that may be null."""

    key: vn.Int64
    which: vn.Int64
    value: vn.Int64 | None


def test_counts_and_sums_of_rows_that_cancel_do_not_hide_the_aggregates_beside_them() -> None:
    """These groups are read whole. They are there while one of their rows has copies, although the vector of their
    counts and sums is 0."""
    app = vn.App("groups")
    rows = app.source("rows", Sparse).group_by("key")
    app.view("list", rows.agg(n=vn.count(), all=vn.collect_list("value")))
    app.view("latest", rows.agg(n=vn.count(), last=vn.arg_max("which", by="value")))
    app.view("summed", rows.agg(total=vn.sum("value"), often=vn.mode("value")))
    app.view("distinct", rows.agg(mean=vn.avg("value"), n=vn.count_distinct("value")))
    found = run(app, {"rows": [((0, 0, 7), 5, 1), ((0, 1, 7), 5, -1)]})
    assert found == {
        "list": [((0, 0, (7,)), 5, 1)],
        "latest": [((0, 0, 0), 5, 1)],
        "summed": [((0, 0, 7), 5, 1)],
        "distinct": [((0, None, 1), 5, 1)],
    }


def test_a_loop_inside_a_loop_ends() -> None:
    """What the inner loop does at (0, 1) does not make the outer loop's round 0 run again."""
    app = vn.App("nested")
    edges, roots = app.source("edges", Edge), app.source("roots", Root)

    @vn.fixpoint
    def outer(seen: vn.Collection) -> vn.Collection:
        @vn.fixpoint
        def inner(x: vn.Collection) -> vn.Collection:
            return seen.union(x.join(edges, left_on="node", right_on="src").select(node=col("dst"))).distinct()

        result: vn.Collection = inner(seen)
        return result

    app.view("v", outer(roots))
    found = run(app, {"edges": [((1, 2), 1, 1)], "roots": [((1,), 1, 1)]})
    assert found == {"v": [((1,), 1, 1), ((2,), 1, 1)]}


def test_equal_loops_inside_different_loops_have_traces_of_their_own() -> None:
    plan = compile_app(known_programs(["core", "core3"]))
    names = Counter(op.trace for op in plan.ops if isinstance(op, (ArrangeOp, ReduceOp)) and op.trace)
    assert set(names.values()) == {1}


def test_a_full_join_of_a_collection_with_itself() -> None:
    """Both sides look at the presence of the same keys, under different names."""
    app = vn.App("itself")
    rows = app.source("rows", Edge)
    app.view("one_name", rows.join(rows.rename(dst="other"), on="src", how="full"))
    app.view("two_names", rows.join(rows.select(a=col("src"), b=col("dst")), left_on="src", right_on="a", how="full"))
    found = run(app, {"rows": [((1, 2), 1, 1), ((3, 4), 1, -1)]})
    assert found["one_name"] == [((1, 2, 2), 1, 1), ((3, None, 4), 1, -1), ((3, 4, None), 1, -1), ((3, 4, 4), 1, 1)]
    assert accumulate((row, diff) for row, _, diff in found["two_names"]) == {
        (1, 2, 1, 2): 1,
        (3, 4, 3, 4): 1,
        (3, 4, None, None): -1,
        (None, None, 3, 4): -1,
    }


def test_an_aggregate_of_an_expression_inside_a_loop() -> None:
    """The expression becomes a column of the loop's body, after the body has been built."""
    app = vn.App("loop")
    rows = app.source("rows", Edge)

    @vn.fixpoint(max_rounds=2, on_limit="truncate")
    def least(x: vn.Collection) -> vn.Collection:
        return x.group_by("src").agg(dst=vn.arg_max("dst", by=-col("dst")))

    app.view("v", least(rows))
    assert run(app, {"rows": [((1, 2), 1, 1), ((1, 3), 1, 1)]}) == {"v": [((1, 2), 1, 1)]}


@pytest.mark.parametrize(
    "build",
    [lambda rows: rows.row_number(by="dst"), lambda rows: rows.running_sum("src", by="dst")],
    ids=["row_number", "running_sum"],
)
def test_copies_beyond_all_memory_are_an_error_of_the_program(build: Callable[[vn.Collection], vn.Collection]) -> None:
    """Each copy would be a row of its own; what memory cannot hold was a MemoryError."""
    app = vn.App("copies")
    app.view("v", build(app.source("rows", Edge)))
    with pytest.raises(vn.VernierError, match="1099511627776 copies"):
        run(app, {"rows": [((1, 2), 1, 2**40)]})


@pytest.mark.parametrize("cuts", [[], [12]])
def test_equal_loops_inside_different_loops_give_answers_of_their_own(cuts: list[int]) -> None:
    edges: list[Change] = [
        *(((node, node + 1), node, 1) for node in range(8)),
        ((8, 10), 8, 1),
        ((10, 11), 9, 1),
        ((11, 13), 10, 1),
        ((13, 0), 11, 1),
        ((1, 3), 5, 1),
        ((1, 3), 12, -1),
        ((7, 8), 13, 1),
    ]
    updates = {"edges": edges, "roots": [((1,), 8, 1)]}
    found = run(known_programs(["core", "core3"]), updates, cuts=cuts)
    assert found == {name: changes(KNOWN[name].oracle, updates) for name in ("core", "core3")}


def test_a_sum_that_fits_does_not_overflow_on_the_way() -> None:
    """At time 2 the row 10 becomes 5; +5 before -10 would leave 64 bits, though every sum fits."""
    app = vn.App("sums")
    rows = app.source("rows", Edge)
    app.view("sum", rows.group_by("src").agg(total=vn.sum("dst")))
    found = run(app, {"rows": [((0, 2**63 - 11), 1, 1), ((0, 10), 1, 1), ((0, 10), 2, -1), ((0, 5), 2, 1)]})
    assert found == {"sum": [((0, 2**63 - 1), 1, 1), ((0, 2**63 - 6), 2, 1), ((0, 2**63 - 1), 2, -1)]}
