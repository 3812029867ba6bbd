"""Vectors of the program's own, and the state of groups that are vectors."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.profiles import examples
from tests.properties.engine import run
from vernier import col
from vernier.operators.engine.worker import Worker
from vernier.operators.errors import ProgramError
from vernier.operators.failures import AggregateOverflow
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import MIN_TIME, Updates


class Move(vn.Schema):
    key: vn.Int64
    value: vn.Int64
    maybe: vn.Int64 | None


def program() -> vn.App:
    app = vn.App("vectors")
    moves = app.source("moves", Move)
    vector = vn.Vector(value="value", twice=col("maybe") * 2)
    app.view("outside", moves.group_by("key").agg(vector))

    @vn.fixpoint
    def inside(found: vn.Collection, *, moves: vn.Collection) -> vn.Collection:
        sums = moves.group_by("key").agg(vector).select("key", "value", maybe=col("twice").cast(vn.Int64 | None))
        return found.union(sums).distinct()

    app.view("inside", inside(moves.filter(col("key") > 5), moves=moves).filter(col("key") <= 5))
    return app


Moves = list[tuple[tuple[int, int, int | None], int, int]]


@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(0, 1), st.integers(-2, 2), st.none() | st.integers(-1, 1)),
            st.integers(0, 6),
            st.integers(-2, 2).filter(bool),
        ),
        max_size=12,
    ),
    st.sets(st.integers(1, 6), max_size=3),
    st.integers(1, 2),
)
@examples(40)
def test_a_group_exists_while_its_vector_is_not_zero(moves: Moves, cuts: set[int], workers: int) -> None:
    found = run(program(), {"moves": moves}, cuts=cuts, workers=workers, slice_updates=2)
    for time in range(7):
        sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for (key, value, maybe), at, diff in moves:
            if at <= time:
                sums[key][0] += diff * value
                sums[key][1] += diff * 2 * (maybe or 0)
        wanted = {(key, *one): 1 for key, one in sums.items() if any(one)}
        for view in ("outside", "inside"):
            rows: dict[tuple[object, ...], int] = defaultdict(int)
            for row, at, diff in found[view]:
                rows[row] += diff if at <= time else 0
            assert {row: copies for row, copies in rows.items() if copies} == wanted


def test_a_sum_is_exact_beyond_64_bits_until_it_is_emitted() -> None:
    app = vn.App("far")
    app.view("sum", app.source("moves", Move).group_by("key").agg(vn.Vector(value="value")))
    most = 2**63 - 1
    far = [((1, most, None), 5, 1), ((1, most - 1, None), 5, 1), ((1, -most, None), 5, 1)]
    assert run(app, {"moves": far}) == {"sum": [((1, most - 1), 5, 1)]}
    with pytest.raises(AggregateOverflow, match="key=1"):
        run(app, {"moves": far[:2]})


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        (lambda: vn.Vector(), "needs components"),
        (lambda: vn.Vector(n=True), "component 'n'"),
        (lambda: vn.Vector(n=vn.lit(1.5)), "is an Int64"),
    ],
)
def test_a_component_is_an_integer(vector: object, problem: str) -> None:
    moves = vn.App("wrong").source("moves", Move)
    with pytest.raises(ProgramError, match=problem):
        moves.group_by("key").agg(vector())  # type: ignore[operator]
    with pytest.raises(ProgramError, match="or one vn"):
        moves.group_by("key").agg(vn.Vector(n=1), n=vn.count())


def test_a_group_with_a_count_and_a_sum_takes_forty_bytes_at_most() -> None:
    app = vn.App("size")
    app.view(
        "v", app.source("moves", Move).group_by("key").agg(n=vn.count(), total=vn.sum("value")).filter(col("n") < 0)
    )
    plan = compile_app(app)
    worker = Worker(plan, slice_updates=4096)
    choose, groups = random.Random(1), 2_000
    for epoch in range(10):
        words = [(choose.randrange(groups), choose.randrange(1_000), 0, 0) for _ in range(4_000)]
        updates = Updates.of(words, range(epoch * 4_000, (epoch + 1) * 4_000), [1] * 4_000)
        lower = MIN_TIME if epoch == 0 else epoch * 4_000
        worker.run_epoch(lower, (epoch + 1) * 4_000, {"moves": updates})
    assert "arrange" not in {name.split("-")[0] for name in plan.arrangements}
    (state,) = (trace for name, trace in worker.state.traces.items() if name.startswith("vectors"))
    whole = max(state.batches, key=lambda batch: batch.updates)
    assert whole.nbytes <= 40 * whole.updates
    assert state.updates <= 3 * groups
