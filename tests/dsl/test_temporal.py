"""Time moved: valid_between, coarsen and delay; what lies ahead waits in a queue and comes at its own nanosecond."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from vernier import col
from vernier.operators.failures import TimeOverflow
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.time_ops import TemporalBufferOp

Update = tuple[tuple[Any, ...], int, int]
Cuts = Sequence[int]


class Stay(vn.Schema):
    guest: vn.Int64
    start: vn.Int64 | None
    stop: vn.Int64 | None


def answer(
    build: Callable[[vn.Collection], vn.Collection], updates: Sequence[Update], epochs: Cuts = (), workers: int = 1
) -> list[Update]:
    """The changes of one view over one source."""
    app = vn.App("t")
    app.view("v", build(app.source("s", Stay)))
    with vn.testing.run(app, epochs=epochs, workers=workers) as t:
        t.update("s", updates)
        t.finish()
        return t.changes("v")


@pytest.mark.parametrize("epochs", [(), (8,), range(1, 40, 3)])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_row_comes_and_goes_at_its_own_times(epochs: Cuts, workers: int) -> None:
    updates = [
        ((1, 10, 20), 5, 1),
        ((2, 10, 20), 12, 1),
        ((3, 10, 20), 25, 1),
        ((4, None, 7), 2, 2),
        ((5, 3, None), 2, 1),
        ((6, 9, 9), 1, 1),
        ((7, 30, 10), 1, 1),
        ((1, 10, 20), 15, -1),
    ]
    found = answer(lambda s: s.valid_between("start", "stop").select("guest"), updates, epochs, workers)
    wanted = [((4,), 2, 2), ((5,), 3, 1), ((4,), 7, -2), ((1,), 10, 1), ((2,), 12, 1), ((1,), 15, -1), ((2,), 20, -1)]
    assert found == wanted


def test_retractions_happen_in_an_epoch_without_input() -> None:
    app = vn.App("t")
    app.view("n", app.source("s", Stay).valid_between(to="stop").group_by().agg(n=vn.count()))
    with vn.testing.run(app) as t:
        t.insert("s", (1, None, 50), at=1)
        t.insert("s", (2, None, 70), at=1)
        t.advance(2)
        assert t.changes("n") == [((2,), 1, 1)]
        t.advance(60)
        assert t.changes("n", since=2) == [((2,), 50, -1), ((1,), 50, 1)] or t.rows("n") == [(1,)]
        assert t.rows("n", at=49) == [(2,)]
        t.advance(61)
        t.advance(71)
        assert t.rows("n") == []


def test_times_are_rounded_up_and_moved() -> None:
    updates = [((1, None, None), 1, 1), ((1, None, None), 4, -1), ((1, None, None), 5, 1), ((2, None, None), -7, 1)]
    assert answer(lambda s: s.coarsen(5).select("guest"), updates, [3, 6]) == [((2,), -5, 1), ((1,), 5, 1)]
    late = answer(lambda s: s.delay("10ns").select("guest"), updates, [3, 6, 12])
    assert late == [((2,), 3, 1), ((1,), 11, 1), ((1,), 14, -1), ((1,), 15, 1)]
    assert answer(lambda s: s.delay(4).coarsen(10).delay(1).select("guest"), updates, [2]) == [
        ((2,), 1, 1),
        ((1,), 11, 1),
    ]


def test_a_time_behind_the_end_of_time_is_an_error() -> None:
    with pytest.raises(TimeOverflow, match="delay: an update at 5 cannot move"):
        answer(lambda s: s.delay(2**63 - 5), [((1, None, None), 5, 1)])


def test_steps_behind_a_hold_run_before_it() -> None:
    app = vn.App("t")
    stays = app.source("s", Stay)
    app.view(
        "v", stays.filter(col("guest") > 0).delay("1s").valid_between("start").select("guest").filter(col("guest") > 1)
    )
    plan = compile_app(app)
    holds = [op for op in plan.ops if isinstance(op, TemporalBufferOp)]
    assert [op.name for op in holds] == ["hold filter → delay → valid_between → select → filter"]
    assert list(plan.queues) == [holds[0].queue]
    assert holds[0].width == 1


def test_mistakes_are_told_when_the_program_is_built() -> None:
    stays = vn.App("t").source("s", Stay)

    @vn.fixpoint
    def late(x: vn.Collection) -> vn.Collection:
        return x.delay("1s")

    with pytest.raises(vn.ProgramError, match="delay inside the body of fixpoint 'late'"):
        late(stays)
    with pytest.raises(vn.ProgramError, match="coarsen needs a duration above 0"):
        stays.coarsen(0)
    with pytest.raises(vn.ProgramError, match="valid_between takes times"):
        stays.valid_between(col("start").cast(vn.Float64))


# --- against the definition -----------------------------------------------------------------------------------------

UPDATES = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 2), st.none() | st.integers(0, 12), st.none() | st.integers(0, 12)),
        st.integers(0, 9),
        st.sampled_from([-1, 1, 1, 2]),
    ),
    max_size=8,
)


@given(UPDATES, st.lists(st.integers(0, 14), max_size=4), st.integers(1, 3))
def test_valid_between_is_a_filter_on_time(updates: list[Update], cuts: list[int], workers: int) -> None:
    changes = answer(lambda s: s.valid_between("start", "stop"), updates, cuts, workers)
    for at in range(15):
        wanted: dict[Any, int] = {}
        for row, time, diff in updates:
            start, stop = row[1], row[2]
            if time <= at and (start is None or start <= at) and (stop is None or at < stop):
                wanted[row] = wanted.get(row, 0) + diff
        assert {row: n for row, n in wanted.items() if n} == _at(changes, at)


@given(UPDATES, st.lists(st.integers(0, 14), max_size=4))
def test_inside_a_loop_times_are_products(updates: list[Update], cuts: list[int]) -> None:
    """Guests count up from 0 to 2; a row of the loop is there only while its stay lasts, in every round anew."""

    def build(stays: vn.Collection) -> vn.Collection:
        @vn.fixpoint
        def counting(x: vn.Collection) -> vn.Collection:
            seen = x.valid_between("start", "stop")
            up = seen.filter(col("guest") < 2).with_columns(guest=col("guest") + 1)
            return vn.union(up, stays.distinct()).distinct()

        found: vn.Collection = counting(stays.distinct())
        return found

    changes = answer(build, updates, cuts)
    for at in range(15):
        base: dict[Any, int] = {}
        for row, time, diff in updates:
            if time <= at:
                base[row] = base.get(row, 0) + diff
        rows = {row for row, n in base.items() if n > 0}
        for _ in range(4):
            alive = {r for r in rows if (r[1] is None or r[1] <= at) and (r[2] is None or at < r[2])}
            rows = {row for row, n in base.items() if n > 0} | {(g + 1, a, b) for g, a, b in alive if g < 2}
        assert _at(changes, at) == dict.fromkeys(rows, 1)


def _at(changes: Sequence[Update], at: int) -> dict[Any, int]:
    total: dict[Any, int] = {}
    for row, time, diff in changes:
        if time <= at:
            total[row] = total.get(row, 0) + diff
    return {row: n for row, n in total.items() if n}
