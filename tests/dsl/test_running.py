"""vn.testing.run as a user's own tool, and what the DSL's lowerings mean once they run."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import vernier as vn
from vernier import col, when
from vernier.operators.errors import BadValue, ProgramError, UnknownName

PROGRAMS = Path(__file__).parent.parent / "programs"
Update = tuple[tuple[Any, ...], int, int]


class Pair(vn.Schema):
    a: vn.Int64
    b: vn.Int64 | None


class Price(vn.Schema):
    item: vn.Int64
    price: vn.Float64


def answer(
    build: Callable[[vn.Collection], vn.Collection], updates: Sequence[Update], schema: type[vn.Schema] = Pair
) -> list[Update]:
    """The changes of one view over one source."""
    app = vn.App("t")
    app.view("v", build(app.source("s", schema)))
    with vn.testing.run(app) as t:
        t.update("s", updates)
        t.finish()
        return t.changes("v")


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("epochs", [(), (5,), (2, 6, 8), range(1, 10)])
def test_the_example_of_the_contract(workers: int, epochs: Sequence[int]) -> None:
    app = vn.load_program(PROGRAMS / "reachability.py")
    with vn.testing.run(app, epochs=epochs, workers=workers) as t:
        t.insert("roots", (1,), at=1)
        t.insert("edges", (1, 2), at=5)
        t.delete("edges", {"src": 1, "dst": 2}, at=8)
        t.insert("edges", (1, 3), at=20)
        t.advance(10)
        assert t.changes("reach") == [((1,), 1, +1), ((2,), 5, +1), ((2,), 8, -1)]
        assert t.changes("reach", since=5, until=8) == [((2,), 5, +1)]
        assert t.changes("by_out_degree") == [((1, 1), 5, +1), ((1, 1), 8, -1)]
        assert t.rows("reach", at=7) == [(1,), (2,)]
        assert t.rows("reach") == [(1,)]
        assert t.counts("reach", at=0) == {}
        t.advance(21)
        assert t.rows("reach") == [(1,), (3,)]


def test_distances_and_their_histogram() -> None:
    app = vn.load_program(PROGRAMS / "bfs.py")
    with vn.testing.run(app) as t:
        t.insert("roots", (0,), at=1)
        t.update("edges", [((0, 1), 1, 1), ((1, 2), 1, 1), ((2, 3), 1, 1), ((0, 3), 4, 1), ((0, 1), 6, -1)])
        t.finish()
        assert t.rows("distances", at=1) == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert t.rows("distances", at=4) == [(0, 0), (1, 1), (2, 2), (3, 1)]
        assert t.rows("distances", at=6) == [(0, 0), (3, 1)]
        assert t.rows("histogram", at=4) == [(0, 1), (1, 2), (2, 1)]


def test_the_tool_refuses_what_makes_no_sense() -> None:
    app = vn.load_program(PROGRAMS / "reachability.py")
    with vn.testing.run(app) as t:
        t.advance(10)
        refused: list[tuple[Callable[[], object], type[Exception], str]] = [
            (lambda: t.insert("edge", (1, 2), at=11), UnknownName, "did you mean 'edges'"),
            (lambda: t.changes("rech"), UnknownName, "did you mean 'reach'"),
            (lambda: t.insert("edges", (1, 2), at=9), ProgramError, "late: the frontier is 10"),
            (lambda: t.insert("edges", (1,), at=11), BadValue, "has 1 values"),
            (lambda: t.insert("edges", (1, None), at=11), BadValue, "column dst: null"),
            (lambda: t.insert("edges", (1, 2), at=2**63 - 1), BadValue, "is not a data time"),
            (lambda: t.advance(9), ProgramError, "cannot go back from 10 to 9"),
            (lambda: t.rows("reach", at=10), ProgramError, "time 10 is not final"),
        ]
        for call, kind, message in refused:
            with pytest.raises(kind, match=message):
                call()


def test_late_updates_advance_when_the_app_says_so() -> None:
    app = vn.App("t", on_late="advance")
    app.view("v", app.source("s", Pair))
    with vn.testing.run(app) as t:
        t.advance(10)
        t.insert("s", (1, 2), at=3)
        t.advance(11)
        assert t.changes("v") == [((1, 2), 10, 1)]


def test_rows_are_there_as_often_as_they_are() -> None:
    app = vn.App("t")
    app.view("v", app.source("s", Pair))
    with vn.testing.run(app) as t:
        t.update("s", [((1, None), 1, 2), ((0, 5), 1, 1), ((7, 7), 1, -1)])
        t.finish()
        assert t.rows("v") == [(0, 5), (1, None), (1, None)]
        assert t.counts("v") == {(0, 5): 1, (1, None): 2, (7, 7): -1}


def test_rows_are_not_listed_if_their_copies_are_too_many() -> None:
    app = vn.App("t")
    app.view("v", app.source("s", Pair))
    with vn.testing.run(app) as t:
        t.update("s", [((0, 5), 1, 10**15)])
        t.finish()
        with pytest.raises(ProgramError, match=f"'v' has {10**15} rows, counting copies.*counts"):
            t.rows("v")
        assert t.counts("v") == {(0, 5): 10**15}


def test_linear_methods() -> None:
    data = [((1, 10), 1, 1), ((2, None), 2, 3)]
    assert answer(lambda s: s.select(x=col("a") * 2, b="b"), data) == [((2, 10), 1, 1), ((4, None), 2, 3)]
    assert answer(lambda s: s.filter(col("b") > 1), data) == [((1, 10), 1, 1)]
    assert answer(lambda s: s.filter(col("b").is_null(), col("a") > 1), data) == [((2, None), 2, 3)]
    assert answer(lambda s: s.filter(True), data) == data
    assert answer(lambda s: s.filter(None), data) == []
    assert answer(lambda s: s.drop("a").rename(b="x"), data) == [((10,), 1, 1), ((None,), 2, 3)]
    assert answer(lambda s: s.union(s.negate()), data) == []
    assert answer(lambda s: s.distinct(), data) == [((1, 10), 1, 1), ((2, None), 2, 1)]
    assert answer(lambda s: s.cast(a=vn.Float64, b=vn.Bool), data) == [((1.0, True), 1, 1), ((2.0, None), 2, 3)]
    chosen = answer(lambda s: s.select(c=when(col("b").is_null(), -1).otherwise(col("b"))), data)
    assert chosen == [((10,), 1, 1), ((-1,), 2, 3)]


def test_unions_widen_to_nullable_and_go_by_name() -> None:
    data = [((1, 10), 1, 1)]
    both = answer(lambda s: s.select(x="a", y="a").union(s.select(y="b", x="a")), data)
    assert both == [((1, 1), 1, 1), ((1, 10), 1, 1)]


def test_aggregates_leave_nulls_out_and_weigh_by_multiplicity() -> None:
    def build(s: vn.Collection) -> vn.Collection:
        return s.group_by("a").agg(
            n=vn.count(), known=vn.count("b"), total=vn.sum("b"), low=vn.min("b"), high=vn.max("b"), mean=vn.avg("b")
        )

    data = [((1, 4), 1, 2), ((1, None), 1, 1), ((1, 1), 1, 1), ((2, None), 1, 1)]
    assert answer(build, data) == [((1, 4, 3, 9, 1, 4, 3.0), 1, 1), ((2, 1, 0, None, None, None, None), 1, 1)]
    # A sum of 0 is a row, and a group is gone when its rows are.
    data = [((1, 5), 1, 1), ((1, -5), 2, 1), ((1, 5), 3, -1), ((1, -5), 3, -1)]
    total = answer(lambda s: s.group_by("a").agg(total=vn.sum("b")), data)
    assert total == [((1, 5), 1, 1), ((1, 0), 2, 1), ((1, 5), 2, -1), ((1, 0), 3, -1)]


def test_null_is_a_group_but_no_key_of_a_join() -> None:
    data = [((1, None), 1, 1), ((2, None), 1, 1), ((3, 1), 1, 1)]
    assert answer(lambda s: s.group_by("b").agg(n=vn.count()), data) == [((None, 2), 1, 1), ((1, 1), 1, 1)]
    joined = answer(lambda s: s.join(s.rename(a="x", b="y"), left_on="b", right_on="x"), data)
    assert joined == [((3, 1, 1, None), 1, 1)]
    assert answer(lambda s: s.join(s.rename(a="x"), on="b"), data) == [((1, 3, 3), 1, 1)]


def test_joins_multiply_and_filter_what_is_left() -> None:
    data = [((1, 2), 1, 2), ((1, 3), 4, 1)]
    pairs = answer(lambda s: s.join(s.rename(b="c"), on="a", where=col("b") < col("c")), data)
    assert pairs == [((1, 2, 3), 4, 2)]
    pairs = answer(lambda s: s.join(s.rename(a="x", b="c"), left_on=["a", "b"], right_on=["x", "c"]), data)
    assert pairs == [((1, 2, 1, 2), 1, 4), ((1, 3, 1, 3), 4, 1)]


def test_an_aggregate_without_keys_is_over_all_rows() -> None:
    data = [((1, 2), 1, 2), ((2, 3), 4, 1), ((1, 2), 6, -2), ((2, 3), 6, -1)]
    assert answer(lambda s: s.group_by().agg(n=vn.count()), data) == [
        ((2,), 1, 1),
        ((2,), 4, -1),
        ((3,), 4, 1),
        ((3,), 6, -1),
    ]


def test_computed_keys_may_shadow_columns() -> None:
    data = [((11, 2), 1, 1), ((19, 3), 1, 1), ((20, 5), 1, 1)]
    grouped = answer(lambda s: s.group_by(a=col("a") // 10).agg(n=vn.sum("b")), data)
    assert grouped == [((1, 5), 1, 1), ((2, 5), 1, 1)]


def test_floats_group_and_order_as_in_spark() -> None:
    data = [((1, math.nan), 1, 1), ((1, 2.5), 1, 1), ((2, -0.0), 1, 1), ((2, 0.0), 1, 1)]
    assert answer(lambda s: s.group_by("item").agg(low=vn.min("price"), high=vn.max("price")), data, Price) == [
        ((1, 2.5, math.nan), 1, 1),
        ((2, 0.0, 0.0), 1, 1),
    ]
    assert answer(lambda s: s.select("price").distinct(), data, Price) == [
        ((0.0,), 1, 1),
        ((2.5,), 1, 1),
        ((math.nan,), 1, 1),
    ]


def test_overflow_stops_the_epoch_and_names_the_expression() -> None:
    with pytest.raises(vn.ArithmeticOverflow, match=r'col\("a"\) \* 4: 4611686018427387904 \* 4 does not fit'):
        answer(lambda s: s.select(x=col("a") * 4), [((2**62, 1), 1, 1)])


def test_a_failing_worker_does_not_hang_the_others() -> None:
    app = vn.App("t")
    app.view("v", app.source("s", Pair).select(x=col("a") * 4).distinct())
    with vn.testing.run(app, workers=3) as t:
        t.update("s", [((2**62 if i == 7 else i, i), i, 1) for i in range(20)])
        with pytest.raises(vn.ArithmeticOverflow):
            t.finish()


def test_aggregates_see_the_columns_behind_a_computed_key() -> None:
    data = [((11, 2), 1, 1), ((19, 3), 1, 1), ((20, 5), 1, 1)]
    grouped = answer(lambda s: s.group_by(a=col("a") // 10).agg(total=vn.sum("a")), data)
    assert grouped == [((1, 30), 1, 1), ((2, 20), 1, 1)]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(col("a") < 100).select(x=col("a") * 4),
        lambda s: s.filter(col("a") < 100).with_columns(a=col("a") * 4).filter(col("a") > 10).select(x="a"),
        lambda s: s.filter(col("a") < 100).group_by("b").agg(x=vn.sum(col("a") * 4)).select("x"),
        lambda s: s.join(s.rename(a="c"), on="b", where=(col("a") < 100) & (col("a") * 4 > col("c"))).select(
            x=col("c") * 4
        ),
    ],
    ids=["select", "chain", "aggregate", "join"],
)
def test_what_a_filter_holds_back_is_not_computed(build: Callable[[vn.Collection], vn.Collection]) -> None:
    found = answer(build, [((2**62, 1), 1, 1), ((3, 1), 1, 1)])
    assert found == [((12,), 1, 1)]
