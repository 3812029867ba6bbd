"""What changes no row: arrange_by, consolidate, inspect, assert_empty, probe; and iterate, a loop as a method."""

from collections import Counter
from typing import Any

import pytest

import vernier as vn
from vernier import col
from vernier.operators.failures import NotEmpty, UserCodeFailed
from vernier.operators.planning.ops import ArrangeOp
from vernier.operators.planning.planner import compile_app
from vernier.storage.updates import CLOSED, MIN_TIME


class Pair(vn.Schema):
    a: vn.Int64
    b: vn.Int64


UPDATES = [((1, 2), 1, 1), ((1, 3), 2, 2), ((2, 2), 4, 1), ((1, 3), 6, -1)]


def test_an_arrangement_is_shared_with_joins_by_the_same_key() -> None:
    app = vn.App("t")
    pairs = app.source("s", Pair)
    kept = pairs.with_columns(c=col("a") + col("b")).arrange_by("b")
    app.view("j", kept.join(kept.select(b="b", d="a", e="c"), on="b"))
    app.view("k", kept)
    arranged = [op for op in compile_app(app).ops if isinstance(op, ArrangeOp) and not op.name.startswith("view")]
    assert [(op.key, op.val) for op in arranged] == [((1,), (0, 2))]
    with vn.testing.run(app, workers=2) as t:
        t.update("s", UPDATES)
        t.finish()
        assert t.rows("k") == [(1, 2, 3), (1, 3, 4), (2, 2, 4)]
        assert len(t.rows("j")) == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_consolidate_changes_no_answer(workers: int) -> None:
    app = vn.App("t")
    pairs = app.source("s", Pair)
    app.view("v", pairs.union(pairs.negate(), pairs).consolidate().group_by("a").agg(n=vn.count()))

    @vn.fixpoint
    def up(x: vn.Collection) -> vn.Collection:
        more = x.filter(col("a") < 4).with_columns(a=col("a") + 1).consolidate()
        return vn.union(more, pairs).distinct().consolidate()

    app.view("up", up(pairs))
    with vn.testing.run(app, workers=workers, epochs=[3]) as t:
        t.update("s", UPDATES)
        t.finish()
        assert t.rows("v") == [(1, 2), (2, 1)]
        assert t.rows("up") == [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 3)]


def test_inspect_sees_each_change_and_changes_none() -> None:
    seen: Counter[tuple[Any, Any]] = Counter()

    def look(row: Any, time: Any, diff: int) -> None:
        seen[row, time] += diff

    app = vn.App("t")
    app.view("v", app.source("s", Pair).select("a").inspect(look))
    with vn.testing.run(app, epochs=[2], workers=2) as t:
        t.update("s", UPDATES)
        t.finish()
        assert seen == {(row, time): diff for row, time, diff in t.changes("v")}


def test_inspect_inside_a_loop_is_told_the_rounds() -> None:
    times = []
    app = vn.App("t")
    down = app.source("s", Pair).iterate(
        lambda x: (
            vn.union(x, x.filter(col("a") > 0).with_columns(a=col("a") - 1))
            .distinct()
            .inspect(lambda row, time, diff: times.append((row, time)))
        )
    )
    app.view("v", down)
    with vn.testing.run(app) as t:
        t.insert("s", (2, 0), at=7)
        t.finish()
        assert t.rows("v") == [(0, 0), (1, 0), (2, 0)]
    assert ((1, 0), (7, 0)) in times
    assert ((0, 0), (7, 1)) in times


def _breaks(row: Any, time: int, diff: int) -> None:
    raise KeyError(row)


def test_an_inspection_that_fails_is_named_with_the_row() -> None:
    app = vn.App("t")
    app.view("v", app.source("s", Pair).inspect(_breaks))
    with vn.testing.run(app) as t:
        t.insert("s", (1, 2), at=3)
        said = (
            r"inspect _breaks at .*test_structure.py:\d+: the function _breaks failed: KeyError.*\(1, 2\) at 3 \(\+1\)"
        )
        with pytest.raises(UserCodeFailed, match=said):
            t.finish()


@pytest.mark.parametrize("workers", [1, 2])
def test_what_must_be_empty_stops_the_run_when_it_is_not(workers: int) -> None:
    app = vn.App("t")
    pairs = app.source("s", Pair)
    app.view("v", pairs)
    pairs.union(pairs.negate()).assert_empty("rows that do not cancel")
    pairs.filter(col("b") > 2).assert_empty("large rows")
    with vn.testing.run(app, workers=workers) as t:
        t.update("s", UPDATES)
        t.advance(2)
        assert t.rows("v") == [(1, 2)]
        said = r"assert_empty at .*test_structure.py:\d+: there are large rows, for example \(1, 3\) at 2 \(\+2\)"
        with pytest.raises(NotEmpty, match=said):
            t.advance(5)


def test_a_probe_tells_how_far_time_is() -> None:
    app = vn.App("t")
    pairs = app.source("s", Pair)
    app.view("v", pairs)
    probe = pairs.filter(col("a") > 1).probe()
    assert probe.frontier == MIN_TIME
    with vn.testing.run(app, workers=2) as t:
        t.insert("s", (1, 2), at=3)
        t.advance(5)
        assert probe.frontier == 5
        assert probe.reached(4)
        assert not probe.reached(5)
        t.finish()
        assert probe.frontier == CLOSED


def test_iterate_takes_the_limits_of_a_fixpoint() -> None:
    app = vn.App("t")
    pairs = app.source("s", Pair)
    app.view("v", pairs.iterate(lambda x: x.with_columns(a=col("a") + 1), max_rounds=5, on_limit="truncate"))
    with vn.testing.run(app) as t:
        t.insert("s", (1, 2), at=3)
        t.finish()
        assert t.rows("v") == [(6, 2)]


def test_mistakes_are_told_when_the_program_is_built() -> None:
    pairs = vn.App("t").source("s", Pair)
    with pytest.raises(vn.ProgramError, match="arrange_by needs at least one column"):
        pairs.arrange_by()
    with pytest.raises(vn.ProgramError, match="inspect takes a function"):
        pairs.inspect("x")  # type: ignore[arg-type]
    with pytest.raises(vn.ProgramError, match="assert_empty takes a name"):
        pairs.assert_empty("")

    @vn.fixpoint
    def loop(x: vn.Collection) -> vn.Collection:
        x.assert_empty("nothing")
        return x

    with pytest.raises(vn.ProgramError, match="assert_empty inside the body of fixpoint 'loop'"):
        loop(pairs)
