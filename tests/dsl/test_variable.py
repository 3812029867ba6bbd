"""Delayed variables: collections that feed back, later; a program that says which rows it no longer needs."""

from collections.abc import Sequence

import pytest

import vernier as vn
from vernier import col
from vernier.operators.engine.local import LocalEngine
from vernier.operators.failures import DelayedCycleDidNotSettle
from vernier.operators.planning.planner import compile_app
from vernier.service.cli.explain import as_mermaid, as_text
from vernier.storage.updates import CLOSED, MIN_TIME, Updates


class Reading(vn.Schema):
    sensor: vn.Int64
    value: vn.Int64


def latest_only(delay: int) -> vn.App:
    """The greatest value of each sensor; the others are taken out of the input `delay` after they were surpassed."""
    app = vn.App("t", retain="0ns")
    readings = app.source("readings", Reading)
    gone = vn.Variable("gone", Reading, delay=delay)
    live = readings.union(gone.negate())
    latest = live.group_by("sensor").agg(value=vn.max("value"))
    gone.set(readings.union(latest.negate()))
    app.view("latest", latest, key="sensor")
    app.view("live", live)
    return app


@pytest.mark.parametrize("epochs", [(), (3,), range(1, 30)])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_that_are_surpassed_go_after_the_delay(epochs: Sequence[int], workers: int) -> None:
    with vn.testing.run(latest_only(5), epochs=epochs, workers=workers) as t:
        t.update("readings", [((1, 10), 1, 1), ((1, 20), 3, 1), ((1, 30), 4, 1), ((2, 7), 4, 1), ((1, 40), 20, 1)])
        t.advance(40)
        assert t.changes("latest") == [
            ((1, 10), 1, 1), ((1, 10), 3, -1), ((1, 20), 3, 1), ((1, 20), 4, -1), ((1, 30), 4, 1), ((2, 7), 4, 1),
            ((1, 30), 20, -1), ((1, 40), 20, 1),
        ]  # fmt: skip
        assert t.changes("live") == [
            ((1, 10), 1, 1), ((1, 20), 3, 1), ((1, 30), 4, 1), ((2, 7), 4, 1), ((1, 10), 8, -1), ((1, 20), 9, -1),
            ((1, 40), 20, 1), ((1, 30), 25, -1),
        ]  # fmt: skip


def test_its_memory_stays_flat() -> None:
    """As many updates as wait for their delay, and one a sensor, whatever has come in."""
    plan = compile_app(latest_only(10))
    sizes = []
    with LocalEngine(plan, slice_updates=64) as engine:
        lower = MIN_TIME
        for epoch in range(30):
            times = list(range(100 * epoch, 100 * (epoch + 1)))
            updates = Updates.of([(time % 3, time) for time in times], times, 1)
            engine.run_epoch(lower, lower := times[-1] + 1, {"readings": updates})
            state = engine.workers[0].state
            sizes.append(
                sum(trace.updates for trace in state.traces.values())
                + sum(queue.waiting(lower) for queue in state.queues.values())
            )
    assert max(sizes[5:]) <= max(sizes[:5]) <= 400


def test_a_variable_is_its_definition_of_a_while_ago() -> None:
    app = vn.App("t")
    rows = app.source("rows", Reading)
    before = vn.Variable("before", Reading, delay="4ns")
    app.view("twice", rows.union(before))
    before.set(rows.select("value", "sensor"))
    with vn.testing.run(app) as t:
        t.update("rows", [((1, 1), 2, 1), ((1, 1), 3, -1)])
        t.finish()
        assert t.changes("twice") == [((1, 1), 2, 1), ((1, 1), 3, -1), ((1, 1), 6, 1), ((1, 1), 7, -1)]


def test_two_variables_count_down_by_turns() -> None:
    app = vn.App("t")
    rows = app.source("rows", Reading)
    ping, pong = vn.Variable("ping", Reading, delay=3), vn.Variable("pong", Reading, delay=4)
    down = col("value") - 1
    ping.set(rows.union(pong).with_columns(value=down).filter(col("value") >= 0))
    pong.set(ping.with_columns(value=down).filter(col("value") >= 0))
    app.view("v", vn.union(ping.with_columns(sensor=1), pong.with_columns(sensor=2)))
    with vn.testing.run(app, epochs=[5, 6, 20]) as t:
        t.insert("rows", (0, 4), at=0)
        t.finish()
        assert t.changes("v") == [((1, 3), 3, 1), ((2, 2), 7, 1), ((1, 1), 10, 1), ((2, 0), 14, 1)]


def test_a_cycle_that_never_settles_is_limited_and_named() -> None:
    app = vn.App("t")
    rows = app.source("rows", Reading)
    echo = vn.Variable("echo", Reading, delay=5, max_steps=50)
    echo.set(rows.union(echo).with_columns(value=col("value") + 1))
    app.view("v", echo)
    with vn.testing.run(app) as t:
        t.insert("rows", (1, 0), at=0)
        t.advance(100)
        assert len(t.changes("v")) == 19
        with pytest.raises(DelayedCycleDidNotSettle, match=r"variables echo did not.*after 50 steps.*\(1, \d+\) at"):
            t.finish()


def test_work_from_outside_does_not_count_as_a_cycle() -> None:
    app = vn.App("t")
    rows = app.source("rows", Reading)
    before = vn.Variable("before", Reading, delay=1, max_steps=2)
    before.set(rows)
    app.view("v", before.valid_between("value"))
    with vn.testing.run(app) as t:
        t.update("rows", [((1, 10 * i), i, 1) for i in range(30)])
        t.finish()
        assert len(t.changes("v")) == 30


def test_a_loop_may_read_a_variable() -> None:
    app = vn.App("t")
    edges = app.source("edges", Reading)
    late = vn.Variable("late", Reading, delay=10)
    late.set(edges)

    @vn.fixpoint
    def reached(x: vn.Collection) -> vn.Collection:
        hop = late.rename(sensor="a", value="b")
        step = x.join(hop, left_on="value", right_on="a").select(sensor="sensor", value="b")
        return vn.union(edges, step).distinct()

    app.view("v", reached(edges))
    with vn.testing.run(app) as t:
        t.update("edges", [((1, 2), 1, 1), ((2, 3), 2, 1), ((3, 4), 5, 1)])
        t.finish()
        assert t.rows("v", at=11) == [(1, 2), (2, 3), (3, 4)]
        assert t.rows("v", at=12) == [(1, 2), (1, 3), (2, 3), (3, 4)]
        assert len(t.rows("v", at=15)) == 6


def test_a_finished_run_gives_everything_back() -> None:
    plan = compile_app(latest_only(1000))
    with LocalEngine(plan) as engine:
        engine.run_epoch(MIN_TIME, CLOSED, {"readings": Updates.of([(1, 1), (1, 2)], [1, 2], 1)})
        assert [queue.runs for queue in engine.workers[0].state.queues.values()] == [[]]


def test_mistakes_are_told_when_the_program_is_built() -> None:
    app = vn.App("t")
    rows = app.source("rows", Reading)
    with pytest.raises(vn.ProgramError, match="a delay above 0"):
        vn.Variable("v", Reading, delay=0)
    with pytest.raises(vn.ProgramError, match="needs a subclass of"):
        vn.Variable("v", 5, delay=1)  # type: ignore[arg-type]
    one = vn.Variable("one", Reading, delay=1)
    with pytest.raises(vn.ProgramError, match="variable 'one' needs the columns"):
        one.set(rows.select("sensor"))
    app.view("v", one.union(rows))
    with pytest.raises(vn.ProgramError, match="'one' is used but never set"):
        compile_app(app)
    one.set(rows)
    with pytest.raises(vn.ProgramError, match="'one' is set already, at"):
        one.set(rows)
    two = vn.Variable("one", Reading, delay=1)
    two.set(rows)
    app.view("w", two)
    with pytest.raises(vn.ProgramError, match="two variables have the name 'one'"):
        compile_app(app)

    @vn.fixpoint
    def inside(x: vn.Collection) -> vn.Collection:
        return x.union(vn.Variable("late", Reading, delay=1)).distinct()

    with pytest.raises(vn.ProgramError, match="variable 'late' in the body of fixpoint 'inside'"):
        inside(rows)

    @vn.fixpoint
    def setting(x: vn.Collection) -> vn.Collection:
        vn.Variable.set(late, x)
        return x

    late = vn.Variable("late", Reading, delay=1)
    with pytest.raises(vn.ProgramError, match="'late' is set to a collection from inside the body of"):
        setting(rows)


def test_a_program_whose_variable_is_never_set_does_not_load() -> None:
    text = """
import vernier as vn
class Row(vn.Schema):
    x: vn.Int64
app = vn.App("t")
rows = app.source("rows", Row)
late = vn.Variable("late", Row, delay=5)
app.view("v", rows.union(late))
"""
    with pytest.raises(vn.ProgramError, match=r"program>:7: the variable 'late' is used but never set"):
        vn.load_program(text)


def _counts() -> vn.App:
    app = vn.App("t")
    app.view("other", app.source("rows", Reading).group_by("sensor").agg(n=vn.count()))
    return app


def test_a_restart_knows_its_state_by_all_definitions() -> None:
    def traces(value: int) -> set[str]:
        app = vn.App("t")
        rows = app.source("rows", Reading)
        one, two = vn.Variable("one", Reading, delay=1), vn.Variable("two", Reading, delay=1)
        one.set(two.union(rows))
        two.set(rows.filter(col("value") > value))
        app.view("v", one.group_by("sensor").agg(n=vn.count()))
        app.view("other", rows.group_by("sensor").agg(n=vn.count()))

        @vn.fixpoint
        def known(x: vn.Collection) -> vn.Collection:
            return x.union(rows).distinct()

        app.view("loop", known(one.distinct()))
        plan = compile_app(app)
        shared = compile_app(_counts()).arrangements
        assert any(name in shared for name in plan.arrangements)  # what no variable is below of stays what it is
        return {*plan.queues, *plan.arrangements} - set(shared)

    assert traces(1) == traces(1)
    assert not traces(1) & traces(2)


def test_explain_shows_where_it_comes_back() -> None:
    plan = compile_app(latest_only(5)).explain()
    variable, feed = ([op for op in plan["operators"] if op["kind"] == kind] for kind in ("delayed", "set"))
    assert feed[0]["feeds"] == variable[0]["id"]
    assert plan["holds"][0]["queue"] == variable[0]["queue"]
    assert f"set gone ← #{feed[0]['inputs'][0]}  [returns to #{variable[0]['id']} 5 ns later]" in as_text(plan)
    assert f"op{feed[0]['id']} -. later .-> op{variable[0]['id']}" in as_mermaid(plan)
