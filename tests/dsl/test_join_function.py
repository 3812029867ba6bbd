"""join_function: any function of a row that gives rows, times and diffs, against a join that is computed by hand."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal as Exact
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import cuts, updates
from tests.oracle.model import Change, consolidate
from tests.profiles import examples
from tests.properties.engine import run
from vernier import col
from vernier.operators.engine.migrate import Held, plan_migration
from vernier.operators.failures import NeedsHistory, TimeOverflow, UserCodeFailed
from vernier.operators.planning.planner import compile_app
from vernier.storage.errors import DiffOverflow
from vernier.storage.updates import CLOSED, MIN_TIME


class Number(vn.Schema):
    x: vn.Int64


class Value(vn.Schema):
    value: vn.Int64


Logic = dict[int, list[tuple[int, int, int]]]
"""For each number its updates: (value, time, diff)."""
LOGIC = st.fixed_dictionaries(
    {x: st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 9), st.integers(-2, 3)), max_size=4) for x in range(4)}
)


def looked_up(logic: Logic, times: str) -> Callable[[Any], vn.Produced]:
    """The function that looks each number up."""

    def function(rows: Any) -> vn.Produced:
        made = [(row, *one) for row, x in enumerate(rows.x.tolist()) for one in logic[x]]
        row, value, time, diff = (np.array([one[at] for one in made], np.int64) for at in range(4))
        if times == "after":
            return vn.Produced({"value": value}, row, diff, after=np.abs(time))
        return vn.Produced({"value": value}, row, diff, time if times == "at" else None)

    return function


def by_hand(logic: Logic, times: str, given: Sequence[Change]) -> list[Change]:
    """Update by update: times joined (or added), diffs multiplied."""
    when = {"own": lambda t, _: t, "at": max, "after": lambda t, by: t + abs(by)}[times]
    return consolidate(
        ((value,), when(time, then), diff * factor) for (x,), time, diff in given for value, then, factor in logic[x]
    )


@pytest.mark.parametrize("times", ["own", "at", "after"])
@examples(60)
@given(
    logic=LOGIC,
    given=updates(st.tuples(st.integers(0, 3))),
    cuts=cuts,
    workers=st.integers(1, 3),
    slice_updates=st.sampled_from((1, 4, 1024)),
)
def test_it_joins_times_and_multiplies_diffs(
    times: str, logic: Logic, given: list[Change], cuts: list[int], workers: int, slice_updates: int
) -> None:
    app = vn.App("any")
    rows = app.source("rows", Number)
    function = looked_up(logic, times)
    app.view("made", rows.join_function(function, returns=Value, times=times))
    app.view("fused", rows.filter(col("x") > 0).join_function(function, returns=Value, times=times).map_diff(2))
    found = run(app, {"rows": given}, cuts=cuts, workers=workers, slice_updates=slice_updates)
    assert found["made"] == by_hand(logic, times, given)
    positive = [one for one in given if one[0][0] > 0]
    assert found["fused"] == [(row, time, 2 * diff) for row, time, diff in by_hand(logic, times, positive)]


class Everything(vn.Schema):
    i: vn.Int64
    n: vn.Int64 | None  # type: ignore[valid-type]
    d: vn.Date
    t: vn.TimestampNs
    s: vn.String | None  # type: ignore[valid-type]
    p: vn.Decimal(5, 2)  # type: ignore[valid-type]


def test_all_types_come_in_and_go_out() -> None:
    kinds: list[str] = []

    def swapped(rows: Any) -> vn.Produced:
        kinds[:] = [str(getattr(column, "dtype", None) or column.type) for column in rows]
        many = pc.binary_repeat(rows.s, 5)
        return vn.Produced({"p": rows.p, "s": many, "t": rows.t + 1, "d": rows.d + 1, "n": rows.n, "i": rows.i + 1})

    app = vn.App("types")
    app.view("v", app.source("rows", Everything).join_function(swapped, returns=Everything))
    day = datetime.date(2024, 2, 29)
    with vn.testing.run(app, workers=2) as t:
        t.insert("rows", (1, None, day, 10**18, "some text", Exact("1.25")), at=1)
        t.insert("rows", (2, 5, day, 7, None, Exact("-3.00")), at=2)
        t.delete("rows", (2, 5, day, 7, None, Exact("-3.00")), at=5)
        t.finish()
        after = datetime.date(2024, 3, 1)
        first = (2, None, after, 10**18 + 1, "some text" * 5, Exact("1.25"))
        assert t.rows("v", at=2) == [first, (3, 5, after, 8, None, Exact("-3.00"))]
        assert t.rows("v") == [first]
    assert kinds == ["int64", "int64", "datetime64[D]", "datetime64[ns]", "large_string", "decimal128(5, 2)"]


def test_times_may_be_of_numpy() -> None:
    def at(rows: Any) -> vn.Produced:
        return vn.Produced({"value": rows.x}, time=rows.x.astype("datetime64[us]"))

    def after(rows: Any) -> vn.Produced:
        return vn.Produced({"value": rows.x}, after=rows.x.astype("timedelta64[us]"))

    app = vn.App("times")
    rows = app.source("rows", Number)
    app.view("at", rows.join_function(at, returns=Value, times="at"))
    app.view("after", rows.join_function(after, returns=Value, times="after"))
    found = run(app, {"rows": [((3,), 1000, 1), ((0,), 7, 1)]}, cuts=[500])
    assert found == {"at": [((0,), 7, 1), ((3,), 3000, 1)], "after": [((0,), 7, 1), ((3,), 4000, 1)]}


def test_a_function_that_makes_too_many_rows_is_called_with_fewer() -> None:
    calls: list[int] = []

    def thousands(rows: Any) -> vn.Produced:
        calls.append(len(rows.x))
        row = np.repeat(np.arange(len(rows.x)), 1 << 15)
        return vn.Produced({"value": np.zeros(len(row), np.int64)}, row=row)

    app = vn.App("many")
    app.view(
        "n", app.source("rows", Number).join_function(thousands, returns=Value).group_by("value").agg(n=vn.count())
    )
    assert run(app, {"rows": [((x,), 1, 1) for x in range(100)]})["n"] == [((0, 100 << 15), 1, 1)]
    assert calls[0] == 100
    assert sorted(calls[-2:]) == [25, 25]


ONE = {"value": np.zeros(2, np.int64)}


@pytest.mark.parametrize(
    ("times", "made", "said"),
    [
        ("own", lambda r: r.x // (r.x - r.x), "FloatingPointError|ZeroDivisionError"),
        ("own", lambda r: {"value": r.x}, "it returned dict, not vn.Produced"),
        ("own", lambda r: vn.Produced([r.x]), "columns is list, not a dict of the columns value"),
        ("own", lambda r: vn.Produced({"valu": r.x}), "a column 'valu'; did you mean 'value'"),
        ("own", lambda r: vn.Produced({}), "no column 'value'"),
        ("own", lambda r: vn.Produced({"value": r.x[1:]}), "column value: it returned 1 values for 2 rows"),
        ("own", lambda r: vn.Produced({"value": [None, 1]}), r"say returns=Int64 \| None"),
        ("own", lambda r: vn.Produced({"value": ["a", "b"]}), "not Int64"),
        ("own", lambda r: vn.Produced(ONE, row=[0]), "column value: it returned 2 values for 1 rows"),
        ("own", lambda r: vn.Produced(ONE, row=[0, 2]), "positions from 0 to 2, of 2 rows"),
        ("own", lambda r: vn.Produced(ONE, row=[-1, 1]), "positions from -1 to 1, of 2 rows"),
        ("own", lambda r: vn.Produced(ONE, row=[[0, 1]]), "row is .*not an array of integers"),
        ("own", lambda r: vn.Produced(ONE, row=[0.0, 1.0]), "row is an array of float64"),
        ("own", lambda r: vn.Produced(ONE, diff=[1]), "diff has 1 values for 2 rows"),
        ("own", lambda r: vn.Produced(ONE, diff=np.array([1, 2**63], np.uint64)), "diff is an array of uint64"),
        ("own", lambda r: vn.Produced(ONE, diff=[True, False]), "diff is an array of bool"),
        ("own", lambda r: vn.Produced(ONE, time=r.x), "updates with time=, but join_function says times='own'"),
        ("own", lambda r: vn.Produced(ONE, after=r.x), "updates with after=, but"),
        ("at", lambda r: vn.Produced(ONE), "updates without time=, but join_function says times='at'"),
        ("at", lambda r: vn.Produced(ONE, time=[1, 2, 3]), "time has 3 values for 2 rows"),
        ("at", lambda r: vn.Produced(ONE, time=[1, 2**63 - 1]), r"the end of all times.*example, \(5,\)"),
        ("at", lambda r: vn.Produced(ONE, time=np.array(["2020", "NaT"], "datetime64[ns]")), "NaT"),
        ("at", lambda r: vn.Produced(ONE, time=np.array(["2020", "3000"], "datetime64[Y]")), "cannot hold"),
        ("at", lambda r: vn.Produced(ONE, time=[1.5, 2]), "time is an array of float64"),
        ("after", lambda r: vn.Produced(ONE, after=[0, -3]), r"before the row's own: after=-3.*example, \(5,\)"),
    ],
)
def test_what_it_may_not_return(times: str, made: Callable[[Any], Any], said: str) -> None:
    app = vn.App("wrong")
    app.view("v", app.source("rows", Number).join_function(made, returns=Value, times=times))
    with np.errstate(all="raise"), pytest.raises(UserCodeFailed, match=said) as caught:
        run(app, {"rows": [((4,), 1, 1), ((5,), 1, 1)]})
    assert caught.value.operator == "join_function"
    assert caught.value.where.startswith(f"{__file__}:")


def test_times_and_diffs_that_leave_64_bits() -> None:
    def far(rows: Any) -> vn.Produced:
        return vn.Produced({"value": rows.x}, after=np.full(len(rows.x), 2**62))

    def large(rows: Any) -> vn.Produced:
        return vn.Produced({"value": rows.x}, diff=np.full(len(rows.x), 2**62))

    def early(rows: Any) -> vn.Produced:
        return vn.Produced({"value": rows.x}, time=np.full(len(rows.x), -(2**63)))

    def build(function: Callable[[Any], vn.Produced], times: str) -> vn.App:
        app = vn.App("far")
        app.view("v", app.source("rows", Number).join_function(function, returns=Value, times=times))
        return app

    with pytest.raises(TimeOverflow, match="join_function: an update at 4611686018427387904 cannot move later"):
        run(build(far, "after"), {"rows": [((1,), 2**62, 1)]})
    with pytest.raises(DiffOverflow):
        run(build(large, "own"), {"rows": [((1,), 1, 2)]})
    assert run(build(early, "at"), {"rows": [((1,), MIN_TIME, 1)]})["v"] == [((1,), MIN_TIME, 1)]
    assert run(build(far, "after"), {"rows": [((1,), 2**62 - 2, 1)]})["v"] == [((1,), CLOSED - 1, 1)]


def test_what_a_program_may_not_say() -> None:
    import random

    def doubled(rows: Any) -> vn.Produced:
        return vn.Produced({"x": rows.x}, after=rows.x)

    rows = vn.App("t").source("rows", Number)
    with pytest.raises(vn.ProgramError, match=r"join_function.function, returns=.*needs the schema"):
        rows.join_function(doubled, returns=int)  # type: ignore[arg-type]
    with pytest.raises(vn.ProgramError, match="join_function takes a function, not 3"):
        rows.join_function(3, returns=Number)  # type: ignore[arg-type]
    with pytest.raises(vn.ProgramError, match='times must be "own", "at" or "after", not \'late\''):
        rows.join_function(doubled, returns=Number, times="late")
    with pytest.raises(vn.ProgramError, match="random"):
        rows.join_function(lambda r: vn.Produced({"x": r.x * random.random()}), returns=Number)
    with pytest.raises(vn.ProgramError, match="join_function with times='after' inside the body of fixpoint"):
        rows.iterate(lambda x: x.join_function(doubled, returns=Number, times="after"))


def test_shifts_depend_on_arrival_and_other_times_do_not() -> None:
    """A program that is added later can be computed from the rows that are kept, unless times are shifted."""

    def build(times: str) -> vn.App:
        app = vn.App("later")
        function = looked_up({0: [(1, 2, 1)]}, times)
        app.view("v", app.source("rows", Number).join_function(function, returns=Value, times=times))
        return app

    before = vn.App("before")
    before.view("rows", before.source("rows", Number))
    held = Held.by(compile_app(before, keep_sources=True), 1_000)
    for times in ("own", "at"):
        migration = plan_migration(compile_app(build(times), keep_sources=True), held)
        assert len(migration.fresh) == {"own": 1, "at": 2}[times]  # the view, and the rows that wait
    with pytest.raises(NeedsHistory, match="depends on all that the rows below it were in the past"):
        plan_migration(compile_app(build("after"), keep_sources=True), held)


def test_its_meaning_is_its_function() -> None:
    def build(factor: int, times: str = "own") -> str:
        def function(rows: Any) -> vn.Produced:
            return vn.Produced({"value": rows.x * factor}, time=None)

        app = vn.App("meaning")
        app.view("v", app.source("rows", Number).join_function(function, returns=Value, times=times))
        return app.fingerprint

    assert build(2) == build(2)
    assert len({build(2), build(3), build(2, "at")}) == 3


def test_it_gets_copies_and_arrow_arrays_as_results() -> None:
    def spoil(rows: Any) -> vn.Produced:
        rows.x[:] = 0
        return vn.Produced({"value": pa.array(rows.x)}, row=pa.array(range(len(rows.x))), diff=pa.array(rows.x + 2))

    app = vn.App("copies")
    rows = app.source("rows", Number)
    app.view("made", rows.join_function(spoil, returns=Value))
    app.view("same", rows)
    assert run(app, {"rows": [((4,), 1, 1)]}) == {"made": [((0,), 1, 2)], "same": [((4,), 1, 1)]}
