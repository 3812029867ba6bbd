"""Temporal filters above joins: a plan that moves them below has the answers of one that does not, at every time.

The programs are a join, inside a loop or not, and above it a pile of filters, projections and temporal filters, whose
bounds read the left side, the right side, the key or both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change
from tests.profiles import examples
from tests.properties.engine import run
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.planning.ops import ArrangeOp, JoinOp, LinearOp
from vernier.operators.planning.plan import Plan
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.time_ops import TemporalBufferOp
from vernier.storage.updates import CLOSED, MIN_TIME, Updates


class Left(vn.Schema):
    k: vn.Int64
    a: vn.Int64
    a_end: vn.Int64 | None  # type: ignore[valid-type]


class Right(vn.Schema):
    k: vn.Int64
    b: vn.Int64
    b_end: vn.Int64 | None  # type: ignore[valid-type]


class Both(vn.Schema):
    k: vn.Int64
    a: vn.Int64
    a_end: vn.Int64 | None  # type: ignore[valid-type]
    b: vn.Int64
    b_end: vn.Int64 | None  # type: ignore[valid-type]


BOUNDS: list[vn.Expr | None] = [
    None, col("k"), col("a"), col("a_end"), col("b"), col("b_end"), col("a") + col("b"), vn.lit(4),
    vn.greatest(col("a"), col("b")), vn.coalesce(col("b_end"), col("b")),
]  # fmt: skip
STEPS: dict[str, Callable[[vn.Collection], vn.Collection]] = {
    "left": lambda rows: rows.filter(col("a") > 1),
    "right": lambda rows: rows.filter(col("b") > 1),
    "across": lambda rows: rows.filter(col("a") < col("b")),
    "reorder": lambda rows: rows.select("b_end", "b", "a_end", "a", "k"),
    "swap": lambda rows: rows.select("k", a="b", a_end="b_end", b="a", b_end="a_end"),
    "compute": lambda rows: rows.with_columns(b=col("b") + 1),
    "negate": lambda rows: rows.negate(),
    "twice": lambda rows: rows.map_diff("a"),
}
Step = str | tuple[int, int]


def above(rows: vn.Collection, steps: Sequence[Step]) -> vn.Collection:
    """The pile on a join: names of STEPS, and pairs of BOUNDS."""
    for step in steps:
        rows = STEPS[step](rows) if isinstance(step, str) else rows.valid_between(BOUNDS[step[0]], BOUNDS[step[1]])
    return rows.select("k", "a", "a_end", "b", "b_end")


def program(steps: Sequence[Step], shape: str) -> vn.App:
    app = vn.App("pushing")
    left, right = app.source("left", Left), app.source("right", Right)
    if shape == "filtered sides":
        left, right = left.filter(col("a") != 3), right.distinct()
    if shape == "shared side":
        app.view("left", left.group_by("k").agg(n=vn.count()))
    if shape == "three":
        third = right.rename(b="c", b_end="c_end").filter(col("c") < 4).select("k")
        app.view("v", above(left.join(third, on="k").join(right, on="k"), steps))
    elif shape == "loop":
        start = above(left.join(right, on="k"), ())

        def body(rows: vn.Collection) -> vn.Collection:
            stepped = rows.select("k", "a", "a_end").join(right, on="k").with_columns(a="b")
            return vn.union(start, above(stepped, steps)).distinct()

        app.view("v", start.iterate(body, max_rounds=4, on_limit="truncate"))
    else:
        app.view("v", above(left.join(right, on="k"), steps))
    return app


@st.composite
def rows(draw: st.DrawFn) -> list[Change]:
    """Few keys, times and bounds, diffs of both signs."""
    row = st.tuples(st.integers(0, 2), st.integers(0, 5), st.none() | st.integers(0, 9))
    update = st.tuples(row, st.integers(0, 8), st.sampled_from((1, 1, 1, -1, 2)))
    return draw(st.lists(update, max_size=10))


STEP = st.sampled_from(sorted(STEPS)) | st.tuples(*[st.integers(0, len(BOUNDS) - 1)] * 2)


@examples(150)
@given(
    steps=st.lists(STEP, min_size=1, max_size=4),
    shape=st.sampled_from(("plain", "plain", "filtered sides", "shared side", "three", "loop")),
    left=rows(),
    right=rows(),
    cuts=st.lists(st.integers(0, 9), max_size=3),
    workers=st.integers(1, 3),
)
def test_a_plan_that_pushes_has_the_answers_of_one_that_does_not(
    steps: list[Step], shape: str, left: list[Change], right: list[Change], cuts: list[int], workers: int
) -> None:
    app, given_ = program(steps, shape), {"left": left, "right": right}
    pushed = run(app, given_, cuts=cuts, workers=workers, slice_updates=3, between="reopen")
    assert pushed == run(app, given_, push=False)


EXPLODED: dict[str, Callable[[vn.Collection], vn.Collection]] = {
    "element": lambda rows: rows.filter(col("item") > 1),
    "either": lambda rows: rows.filter((col("item") > 1) & (col("b") < col("item"))),
    "place": lambda rows: rows.filter(col("place") == 1),
    "from": lambda rows: rows.valid_between("item", "b_end"),
    "until": lambda rows: rows.valid_between(to="item"),
    "select": lambda rows: rows.select("b_end", "item", "place", "b", "a", "k"),
    "left": lambda rows: rows.filter(col("a") > 1),
    "negate": lambda rows: rows.negate(),
}


def exploded(steps: Sequence[str], both: bool) -> vn.App:
    """A pile above explode above a join; with `both`, of lists on either side."""
    app = vn.App("lists")
    left = app.source("left", Left).select("k", "a", items=vn.array("k", "a", vn.coalesce(col("a_end"), vn.lit(0))))
    right = app.source("right", Right)
    if both:
        right = right.with_columns(others=vn.array("b", "k"))
    rows = left.join(right, on="k")
    if both:
        rows = rows.explode("others").filter(col("others") > 0).drop("others")
    rows = rows.explode("items", name="item", index_name="place")
    for step in steps:
        rows = EXPLODED[step](rows)
    app.view("v", rows.select("k", "a", "item", "place", "b"))
    return app


@examples(60)
@given(
    steps=st.lists(st.sampled_from(sorted(EXPLODED)), min_size=1, max_size=3),
    both=st.booleans(),
    left=rows(),
    right=rows(),
    cuts=st.lists(st.integers(0, 9), max_size=3),
    workers=st.integers(1, 3),
)
def test_lists_that_explode_on_a_side_have_the_answers_of_pairs_that_explode(
    steps: list[str], both: bool, left: list[Change], right: list[Change], cuts: list[int], workers: int
) -> None:
    app, given_ = exploded(steps, both), {"left": left, "right": right}
    pushed = run(app, given_, cuts=cuts, workers=workers, slice_updates=3, between="reopen")
    assert pushed == run(app, given_, push=False)


@pytest.mark.parametrize(
    ("steps", "moves"),
    [
        (["element"], True),
        (["either"], True),
        (["place"], True),
        (["from"], True),
        (["until"], True),
        (["select", "element"], True),
        (["negate", "until"], True),
        (["left"], False),  # nothing selects elements, so the side would only be larger
        (["negate"], False),
    ],
)
def test_lists_explode_on_a_side_if_that_makes_it_smaller(steps: list[str], moves: bool) -> None:
    plan = compile_app(exploded(steps, False))
    chains = [stage.name for op in plan.of(LinearOp) for stage in op.stages]
    fused = [stage.name for op in plan.of(JoinOp) for stage in op.stages]
    assert ("explode" in chains, "explode" in fused) == (moves, not moves)
    assert plan.pushes is moves


def joined(build: Callable[[vn.Collection], vn.Collection]) -> vn.App:
    app = vn.App("moved")
    app.view("v", build(app.source("left", Left).join(app.source("right", Right), on="k")))
    return app


def arranged_behind_buffers(plan: Plan) -> list[str]:
    """The sources whose rows wait in a temporal buffer before a join keeps them."""
    found = []
    for op in plan.of(ArrangeOp):
        below = plan.ops[op.input]
        if isinstance(below, TemporalBufferOp):
            chain = plan.ops[below.input]
            found.append(plan.ops[chain.inputs[0]].name)
    return sorted(name for name in found if name in ("left", "right"))


@pytest.mark.parametrize(
    ("build", "moved"),
    [
        (lambda rows: rows.valid_between("a", "a_end"), ["left"]),
        (lambda rows: rows.valid_between("b", "b_end"), ["right"]),
        (lambda rows: rows.valid_between("a", "b_end"), ["left", "right"]),
        (lambda rows: rows.valid_between("k"), ["left", "right"]),
        (lambda rows: rows.valid_between(to="b_end").select("a", "k"), ["right"]),
        (lambda rows: rows.select("a_end", x="a").valid_between("x", "a_end"), ["left"]),
        (lambda rows: rows.with_columns(z=col("a") + 1).valid_between("b"), ["right"]),
        (lambda rows: rows.filter(col("a") < col("b")).valid_between("a"), ["left"]),
        (lambda rows: rows.valid_between("a").filter(col("b") > 1), ["left"]),
        (lambda rows: rows.valid_between("a").valid_between(to="b_end"), ["left", "right"]),
        (lambda rows: rows.negate().map_diff("b").valid_between("a"), ["left"]),
        (lambda rows: rows.flat_map(vn.generate_series(1, col("b"))).valid_between("a"), ["left"]),
        (lambda rows: rows.flat_map(vn.generate_series(1, col("b"))).valid_between("value"), []),
        # an overflow could stop the epoch for a row that the join drops
        (lambda rows: rows.valid_between(col("a") + 1), []),
        (lambda rows: rows.valid_between(vn.greatest("a", "b")), []),
        (lambda rows: rows.valid_between(vn.lit(7)), []),
        (lambda rows: rows.with_columns(a=col("a") + 1).valid_between("a"), []),
        (lambda rows: rows.delay(1).valid_between("a"), []),
    ],
)
def test_what_moves(build: Callable[[vn.Collection], vn.Collection], moved: list[str]) -> None:
    app = joined(build)
    assert arranged_behind_buffers(compile_app(app)) == moved
    assert arranged_behind_buffers(compile_app(app, push=False)) == []


def test_a_side_that_is_kept_in_any_case_stays_whole() -> None:
    build: Callable[[vn.Collection], vn.Collection] = lambda rows: rows.valid_between("a", "b_end")  # noqa: E731
    assert arranged_behind_buffers(compile_app(joined(build), keep_sources=True)) == []
    assert arranged_behind_buffers(compile_app(joined(build), upserts={"left": ["k"]})) == ["right"]
    app = vn.App("shared")
    left, right = app.source("left", Left), app.source("right", Right)
    app.view("v", left.join(right, on="k").valid_between("a", "b_end"))
    app.view("also", left.select("k"))
    assert arranged_behind_buffers(compile_app(app)) == ["right"]
    app = vn.App("named")
    left, right = app.source("left", Left).arrange_by("k"), app.source("right", Right)
    app.view("v", left.join(right, on="k").valid_between("a", "b_end"))
    assert arranged_behind_buffers(compile_app(app)) == ["right"]


def test_a_join_that_a_view_shows_and_a_lookup_are_left_alone() -> None:
    app = vn.App("shown")
    both = app.source("left", Left).join(app.source("right", Right), on="k")
    app.view("all", both)
    app.view("v", both.valid_between("a", "b_end"))
    assert arranged_behind_buffers(compile_app(app)) == []
    app = vn.App("lookup")
    app.view("v", app.source("left", Left).lookup(app.source("right", Right), on="k").valid_between("a", "b_end"))
    assert arranged_behind_buffers(compile_app(app)) == []


def kept(push: bool) -> int:
    """How many updates the arrangements of both sides hold after a thousand rows have been valid, one after another."""
    plan = compile_app(joined(lambda rows: rows.valid_between("a", "a_end").select("a")), push=push)
    left = [((0, at, at + 1), at, 1) for at in range(1000)]
    inside = {
        "left": Updates.of(
            plan.sources["left"].encode_rows([row for row, _, _ in left]), *zip(*(one[1:] for one in left))
        ),
        "right": Updates.of(plan.sources["right"].encode_rows([(0, 0, None)]), [0], [1]),
    }
    with LocalEngine(plan) as engine:
        for lower, upper in ((MIN_TIME, 500), (500, 2000)):
            engine.run_epoch(lower, upper, {name: between(one, lower, upper) for name, one in inside.items()})
        engine.run_epoch(2000, CLOSED, {})
        traces = engine.workers[0].state.traces
        sides = [op.trace for op in plan.of(ArrangeOp) if not plan.arrangements[op.trace].retained]
        return sum(batch.updates for name in sides for batch in traces[name].batches)


def between(updates: Updates, lower: int, upper: int) -> Updates:
    inside = (updates.time >= lower) & (updates.time < upper)
    return Updates(updates.data[inside], updates.width, 0)


def test_a_side_keeps_only_what_is_valid() -> None:
    assert kept(push=False) >= 1001
    assert kept(push=True) < 10
