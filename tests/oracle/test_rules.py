"""The oracle's rules about times, joins, order and aggregates against answers by hand, and the seeds' examples."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.oracle import timed
from tests.oracle.aggregates import summary
from tests.oracle.joins import AsOf, How, Matched, PrefixSum, except_all, intersect
from tests.oracle.model import (
    Change,
    Collection,
    History,
    StillMoving,
    TooLarge,
    accumulate,
    changes,
    consolidate,
    evaluate,
)
from tests.oracle.ordering import Rank, RowNumber, RunningSum, Sessions, Shifted, TopK, windows
from tests.oracle.plan import (
    Aggregate,
    Between,
    Coarsen,
    Delay,
    Distinct,
    Expand,
    Feedback,
    Group,
    Kind,
    Lookup,
    Negate,
    Node,
    PerKey,
    Project,
    Row,
    Source,
    Union,
    Whole,
    columns,
    item,
)
from tests.oracle.programs import EDGES
from tests.oracle.values import By, canonical, in_order

A, B = Source("a"), Source("b")
NAMES: list[Change] = [(("frank",), 6, 1), (("frank",), 8, 1), (("david",), 8, 1), (("frank",), 9, -2)]
"""The collection of names in "Generalizing linear operators"."""


def test_lengths_of_names() -> None:
    assert changes(Project(A, lambda row: (row[0], len(row[0]))), {"a": NAMES}) == [
        (("frank", 5), 6, 1),
        (("david", 5), 8, 1),
        (("frank", 5), 8, 1),
        (("frank", 5), 9, -2),
    ]


def test_join_function() -> None:
    """x copies of 2 x from time 3 x until 4 x, for x from 0 to 9."""
    doubled = Between(A, lambda row: 3 * row[0], lambda row: 4 * row[0])
    copies = Expand(doubled, lambda row: [((2 * row[0],), row[0])])
    found = changes(copies, {"a": [((x,), 0, 1) for x in range(10)]})
    expected = [one for x in range(1, 10) for one in (((2 * x,), 3 * x, x), ((2 * x,), 4 * x, -x))]
    assert found == consolidate(expected)


def test_counts_change_as_rows_do() -> None:
    """The worked loop of count: the old count goes and the new one comes, and a count of 0 is no count."""
    counted = Group(A, columns(0), (Aggregate("count"),))
    assert changes(counted, {"a": NAMES}) == [
        (("frank", 1), 6, 1),
        (("david", 1), 8, 1),
        (("frank", 1), 8, -1),
        (("frank", 2), 8, 1),
        (("frank", 2), 9, -1),
    ]


def test_degrees_and_their_distribution() -> None:
    degrees = Group(EDGES, columns(0), (Aggregate("count"),))
    distribution = Group(degrees, columns(1), (Aggregate("count"),))
    edges: list[Change] = [((0, 1), 1, 1), ((0, 2), 2, 1), ((1, 2), 2, 1), ((0, 1), 5, -1), ((0, 2), 5, -1)]
    assert changes(distribution, {"edges": edges}) == [
        ((1, 1), 1, 1),
        ((2, 1), 2, 1),
        ((2, 1), 5, -1),
    ]


def test_the_greatest_keeps_and_the_others_are_retracted() -> None:
    edges: list[Change] = [((0, 1), 10, 1), ((0, 2), 20, 1), ((0, 3), 30, 1)]
    assert changes(timed.latest(5), {"edges": edges}) == [
        ((0, 1), 10, 1),
        ((0, 1), 20, -1),
        ((0, 2), 20, 1),
        ((0, 2), 30, -1),
        ((0, 3), 30, 1),
    ]


def test_what_is_retracted_comes_a_delay_later() -> None:
    retracted = Feedback(5)
    results = Group(Union((EDGES, Negate(retracted))), columns(0), (Aggregate("max", item(1)),))
    retracted.define(Union((EDGES, Negate(results))))
    edges: list[Change] = [((0, 1), 10, 1), ((0, 2), 20, 1), ((0, 3), 21, 1)]
    assert changes(retracted, {"edges": edges}) == [((0, 1), 25, 1), ((0, 2), 26, 1)]


def test_what_is_fed_back_for_ever_is_an_error() -> None:
    """An edge that is retracted since it was there is there no more, so it is not retracted."""
    back = Feedback(5)
    back.define(Distinct(Union((EDGES, Negate(back)))))
    with pytest.raises(StillMoving):
        changes(back, {"edges": [((0, 1), 3, 1)]})


def test_rows_are_valid_between_their_bounds_and_after_they_came() -> None:
    node = Between(A, item(0), item(1))
    rows: list[Change] = [((3, 7), 1, 1), ((3, 7), 5, 1), ((4, 4), 1, 1), ((6, 2), 1, 1), ((2, 5), 9, 1)]
    rows += [((None, 8), 2, 1), ((9, None), 2, 1), ((1, 9), 4, 1), ((1, 9), 6, -1)]
    assert changes(node, {"a": rows}) == [
        ((None, 8), 2, 1),
        ((3, 7), 3, 1),
        ((1, 9), 4, 1),
        ((3, 7), 5, 1),
        ((1, 9), 6, -1),
        ((3, 7), 7, -2),
        ((None, 8), 8, -1),
        ((9, None), 9, 1),
    ]


def test_coarsened_times_are_rounded_up() -> None:
    rows: list[Change] = [((1,), 1, 1), ((2,), 10, 1), ((3,), 11, 1), ((3,), 19, -1), ((4,), -3, 1), ((4,), 12, -1)]
    assert changes(Coarsen(A, 10), {"a": rows}) == [((4,), 0, 1), ((1,), 10, 1), ((2,), 10, 1), ((4,), 20, -1)]


def test_a_coarsened_view_of_what_changes_by_itself() -> None:
    node = Coarsen(Between(A, item(0), item(1)), 10)
    assert changes(node, {"a": [((3, 14), 1, 1), ((3, 8), 2, 1)]}) == [((3, 14), 10, 1), ((3, 14), 20, -1)]


def test_delays_add_up_as_far_as_there_are_times() -> None:
    twice = Delay(Delay(A, 2), 3)
    assert changes(twice, {"a": [((1,), 4, 1), ((1,), 5, -1)]}) == [((1,), 9, 1), ((1,), 10, -1)]
    with pytest.raises(TooLarge):
        changes(twice, {"a": [((2,), 2**63 - 5, 1)]})


@pytest.mark.parametrize("name", ["valid", "passing", "slowly", "turning", "recent", "rounded", "fading", "echo"])
def test_nothing_happens_between_the_times_that_are_looked_at(name: str) -> None:
    """The same collections, looked at at every integer."""
    plan = getattr(timed, name)()
    updates: dict[str, list[Change]] = {
        "edges": [((0, 1), 2, 1), ((1, 2), 5, 2), ((0, 2), 9, 1), ((0, 1), 9, -1), ((2, 1), 14, 1), ((3, 1), 3, 1)],
        "roots": [((0,), 1, 1), ((3,), 4, 1), ((0,), 17, -1)],
    }
    found = changes(plan, updates)
    history = History(updates)
    for time in range(50):
        now = history.look(time).evaluate(plan)
        assert now == accumulate((row, diff) for row, at, diff in found if at <= time), time


def test_lookups_are_not_revised() -> None:
    node = Lookup(A, B, columns(0), columns(0), lambda one, two: (*one, two[1]))
    left: list[Change] = [((1, 7), 2, 1), ((1, 8), 5, 1), ((1, 7), 9, -1), ((None, 1), 5, 1)]
    right: list[Change] = [((1, "old"), 1, 1), ((1, "old"), 5, -1), ((1, "new"), 5, 2), ((None, "x"), 1, 1)]
    assert changes(node, {"a": left, "b": right}) == [
        ((1, 7, "old"), 2, 1),
        ((1, 8, "new"), 5, 2),
        ((1, 7, "new"), 9, -2),
    ]


LEFT: Collection = {(1, 5): 2, (2, 6): 1, (None, 7): 1, (3, 8): -1}
RIGHT: Collection = {(1, 50): 3, (2, 60): -1, (None, 70): 1, (4, 80): 1}
INNER = {(1, 5, 1, 50): 6, (2, 6, 2, 60): -1}
OF_LEFT = {(2, 6, None, None): 1, (None, 7, None, None): 1, (3, 8, None, None): -1}
OF_RIGHT = {(None, None, None, 70): 1, (None, None, 4, 80): 1}


def side_by_side(left: Row | None, right: Row | None) -> Row:
    return (left or (None, None)) + (right or (None, None))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", INNER),
        ("left", INNER | OF_LEFT),
        ("right", INNER | OF_RIGHT),
        ("full", INNER | OF_LEFT | OF_RIGHT),
        ("semi", {(1, 5): 2}),
        ("anti", {(2, 6): 1, (None, 7): 1, (3, 8): -1}),
    ],
)
def test_joins(how: How, expected: Collection) -> None:
    """Key 2 has a partner that is not present: it multiplies, and does not match."""
    rule = Matched(how, columns(0), columns(0), side_by_side)
    assert evaluate(Whole((A, B), rule), {"a": LEFT, "b": RIGHT}) == expected


def test_a_left_join_pads_rows_none_of_whose_partners_pass_the_condition() -> None:
    rule = Matched("left", columns(0), columns(0), side_by_side, lambda one, two: one[1] > two[1])
    sources: dict[str, Collection] = {"a": {(1, 5): 1, (1, 2): 1}, "b": {(1, 3): 1, (1, 4): 1}}
    expected = {(1, 5, 1, 3): 1, (1, 5, 1, 4): 1, (1, 2, None, None): 1}
    assert evaluate(Whole((A, B), rule), sources) == expected


@pytest.mark.parametrize(
    ("forward", "tolerance", "expected"),
    [
        (False, None, {(1, 10, 9): 2, (1, 4, None): 1}),
        (False, 3, {(1, 10, None): 2, (1, 4, None): 1}),
        (True, None, {(1, 10, 2): 2, (1, 4, 9): 1}),
    ],
)
def test_as_of(forward: bool, tolerance: int | None, expected: Collection) -> None:
    def output(one: Row, two: Row | None) -> Row:
        return (*one, two and two[2])

    rule = AsOf("left", columns(0), columns(0), item(1), item(1), output, forward, tolerance)
    left: Collection = {(1, 10): 2, (1, 4): 1}
    right: Collection = {(1, 6, 9): 1, (1, 6, 3): 1, (1, 8, 5): -1, (1, 12, 2): 1, (2, 9, 9): 1}
    assert evaluate(Whole((A, B), rule), {"a": left, "b": right}) == expected


def test_differences_of_multisets() -> None:
    left: Collection = {(1,): 3, (2,): 1, (3,): -1}
    right: Collection = {(1,): 1, (2,): 1, (3,): -2, (4,): -1, (5,): 1}
    assert evaluate(Whole((A, B), except_all), {"a": left, "b": right}) == {(1,): 2, (3,): 1, (4,): 1}
    assert evaluate(Whole((A, B), intersect), {"a": left, "b": right}) == {(1,): 1, (2,): 1}


def test_prefix_sums() -> None:
    rule = PrefixSum(columns(0), columns(0), item(1), item(1), item(2))
    rows: Collection = {(1, 1, 10): 1, (1, 3, 5): 2, (1, 4, 100): -1, (2, 1, 7): 1}
    queries: Collection = {(1, 3): 1, (1, 0): 2, (1, 9): 1, (3, 1): 1}
    expected = {(1, 3, 20): 1, (1, 0, 0): 2, (1, 9, -80): 1, (3, 1, 0): 1}
    assert evaluate(Whole((A, B), rule), {"a": rows, "b": queries}) == expected


ROWS: Collection = {(1, 5, "x"): 2, (1, 5, "y"): 1, (1, 2, "z"): 1, (1, None, "n"): 1, (1, 9, "gone"): -1}
UP, DOWN = (By(item(1)),), (By(item(1), descending=True),)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (TopK(3, UP), {(1, None, "n"): 1, (1, 2, "z"): 1, (1, 5, "x"): 1}),
        (TopK(2, DOWN), {(1, 5, "x"): 2}),
        (Rank(DOWN), {(1, 5, "x", 1): 2, (1, 5, "y", 1): 1, (1, 2, "z", 4): 1, (1, None, "n", 5): 1}),
        (Rank(DOWN, True), {(1, 5, "x", 1): 2, (1, 5, "y", 1): 1, (1, 2, "z", 2): 1, (1, None, "n", 3): 1}),
        (
            RowNumber(UP),
            {(1, None, "n", 1): 1, (1, 2, "z", 2): 1, (1, 5, "x", 3): 1, (1, 5, "x", 4): 1, (1, 5, "y", 5): 1},
        ),
        (
            Shifted(item(1), 1, UP),
            {(1, None, "n", None): 1, (1, 2, "z", None): 1, (1, 5, "x", 2): 1, (1, 5, "x", 5): 1, (1, 5, "y", 5): 1},
        ),
        (
            Shifted(item(1), -2, UP, 0),
            {(1, None, "n", 5): 1, (1, 2, "z", 5): 1, (1, 5, "x", 5): 1, (1, 5, "x", 0): 1, (1, 5, "y", 0): 1},
        ),
        (
            RunningSum(item(1), UP),
            {(1, None, "n", None): 1, (1, 2, "z", 2): 1, (1, 5, "x", 7): 1, (1, 5, "x", 12): 1, (1, 5, "y", 17): 1},
        ),
    ],
)
def test_order_among_rows(rule: object, expected: Collection) -> None:
    node = PerKey(A, lambda _: (), rule)  # type: ignore[arg-type]
    assert evaluate(node, {"a": ROWS}) == expected


def test_order_of_values() -> None:
    assert in_order([(math.nan,), (1.0,), (None,), (math.inf,), (-0.0,)], [By(item(0))]) == [
        (None,),
        (-0.0,),
        (1.0,),
        (math.inf,),
        (math.nan,),
    ]
    assert in_order([((1, None),), ((1,),), ((0, 9),)], [By(item(0), True)]) == [((1, None),), ((1,),), ((0, 9),)]
    assert str(canonical([-0.0, {"a": [1]}])) == "(0.0, ((1,),))"


def test_windows_and_sessions() -> None:
    assert windows(7, 10, 10) == [(0, 10)]
    assert windows(7, 10, 5) == [(5, 15), (0, 10)]
    assert windows(-1, 4, 4) == [(-4, 0)]
    rows: Collection = {(1,): 1, (4,): 2, (8,): 1, (20,): -1}
    assert evaluate(PerKey(A, lambda _: (), Sessions(item(0), 3)), {"a": rows}) == {
        (1, 1, 7): 1,
        (4, 1, 7): 2,
        (8, 8, 11): 1,
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("avg", 3.4),
        ("mode", 2),
        ("count_distinct", 3),
        ("quantile", 2),
        ("collect_list", (2, 2, 5, 9)),
        ("collect_set", (2, 5, 9)),
        ("arg_min", 9),
        ("arg_max", 2),
    ],
)
def test_aggregates(kind: Kind, expected: object) -> None:
    rows: Collection = {(2, "c"): 2, (5, "b"): 1, (9, "a"): 1, (None, "d"): 1, (1, "e"): -1}
    rows[4, "z"] = 0
    rows = accumulate(rows.items())
    if kind == "avg":
        rows = {(2, "c"): 3, (5, "b"): 1, (6, "a"): 1}
    if kind == "arg_max":
        rows.pop((None, "d"))
    assert summary(Aggregate(kind, item(0), by=item(1)), rows) == expected


def test_sums_of_doubles_are_exact_and_leave_nothing() -> None:
    def total(*rows: tuple[float, int]) -> object:
        return summary(Aggregate("sum", item(0)), {(value, place): count for place, (value, count) in enumerate(rows)})

    assert total((0.1, 10)) == 1.0
    assert total((1e308, 2), (-1e308, 2), (1e-300, 1)) == 1e-300
    assert total((1e308, 2)) == math.inf
    assert total((math.inf, 1), (-math.inf, 1)) is math.nan
    assert total((math.inf, 1), (math.inf, -1), (2.0, 1)) == 2.0
    assert total((math.nan, 1), (math.nan, -1)) == 0.0
    assert math.copysign(1, total((-0.0, 1))) == 1  # type: ignore[arg-type]
    assert summary(Aggregate("avg", item(0)), {(0.1,): 3, (0.2,): 3}) == 0.15000000000000002
    assert summary(Aggregate("sum", item(0)), {(Decimal("0.10"),): 3}) == Decimal("0.30")


def test_quantiles() -> None:
    rows: Collection = {(value,): 1 for value in range(1, 11)}
    for at, expected in ((Fraction(0), 1), (Fraction(1, 10), 1), (Fraction(1, 4), 3), (Fraction(1), 10)):
        assert summary(Aggregate("quantile", item(0), at=at), rows) == expected


def test_a_rule_is_asked_for_each_key() -> None:
    node: Node = PerKey(A, columns(0), lambda rows: [((len(rows), sum(rows.values())), 2)])
    assert evaluate(node, {"a": {(1, 1): 1, (1, 2): -1, (2, 2): 1}}) == {(1, 2, 0): 2, (2, 1, 1): 2}
