"""count_distinct, alone and beside counts and sums, as counts of distinct rows: no whole groups are read."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.profiles import examples
from tests.properties.engine import run
from vernier import col
from vernier.operators.planning import reductions
from vernier.operators.planning.distinct_counts import as_sums
from vernier.operators.planning.planner import compile_app
from vernier.operators.planning.reduction_ops import BatchedReduceOp


class Visit(vn.Schema):
    page: vn.Int64
    user: vn.Int64 | None
    ms: vn.Int64


Row = tuple[int, int | None, int]
VIEWS = ("one", "twice", "ms", "pair", "more", "set", "known", "mixed")
Visits = list[tuple[Row, int, int]]


def program() -> vn.App:
    app = vn.App("visits")
    visits = app.source("visits", Visit)
    both = {"users": vn.count_distinct("user"), "pairs": vn.count_distinct("user", "ms")}
    more = {"n": vn.count(), "known": vn.count("user"), "sum": vn.sum("ms"), "mean": vn.avg("ms")}
    app.view("one", visits.group_by("page").agg(users=vn.count_distinct("user")))
    app.view("twice", visits.group_by("page").agg(users=vn.count_distinct(col("user") * 2)))
    app.view("ms", visits.group_by("page").agg(values=vn.count_distinct("ms")))
    app.view("pair", visits.group_by("page").agg(pairs=vn.count_distinct("user", "ms")))
    app.view("more", visits.group_by("page").agg(**both, **more))
    app.view("set", visits.distinct().group_by("page").agg(values=vn.count_distinct("ms")))
    app.view("known", visits.distinct().group_by("page").agg(users=vn.count_distinct("user")))
    app.view("mixed", visits.distinct().group_by("page").agg(**both, **more, total=vn.sum("user")))
    return app


def truth(rows: dict[Row, int]) -> dict[str, dict[tuple[object, ...], int]]:
    """The views of these rows."""
    found: dict[str, dict[tuple[object, ...], int]] = {name: {} for name in VIEWS}
    pages = {row[0] for row, copies in rows.items() if copies}
    for page in pages:
        group = {row[1:]: copies for row, copies in rows.items() if copies and row[0] == page}
        users = {user for (user, _), copies in group.items() if copies > 0 and user is not None}
        pairs = {row for row, copies in group.items() if copies > 0 and row[0] is not None}
        n, total = sum(group.values()), sum(ms * copies for (_, ms), copies in group.items())
        known = sum(copies for (user, _), copies in group.items() if user is not None)
        found["one"][(page, len(users))] = found["twice"][(page, len(users))] = 1
        found["ms"][(page, len({ms for (_, ms), copies in group.items() if copies > 0}))] = 1
        found["pair"][(page, len(pairs))] = 1
        found["more"][(page, len(users), len(pairs), n, known, total, total / n if n else None)] = 1
        there = {row for row, copies in group.items() if copies > 0}
        if there:
            ms = [ms for _, ms in there]
            given_users = [user for user, _ in there if user is not None]
            found["set"][(page, len(set(ms)))] = 1
            found["known"][(page, len(users))] = 1
            row = (len(users), len(pairs), len(there), len(given_users), sum(ms), sum(ms) / len(ms))
            found["mixed"][(page, *row, sum(given_users) if given_users else None)] = 1
    return found


@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(0, 1), st.none() | st.integers(0, 2), st.integers(-1, 1)),
            st.integers(0, 5),
            st.integers(-2, 2).filter(bool),
        ),
        max_size=14,
    ),
    st.sets(st.integers(1, 5), max_size=3),
    st.integers(1, 2),
)
@examples(20)
def test_distinct_counts_are_those_of_the_rows(visits: Visits, cuts: set[int], workers: int) -> None:
    found = run(program(), {"visits": visits}, cuts=cuts, workers=workers, slice_updates=2)
    for time in range(6):
        rows: dict[Row, int] = {}
        for row, at, diff in visits:
            rows[row] = rows.get(row, 0) + (diff if at <= time else 0)
        for view, wanted in truth(rows).items():
            held: dict[tuple[object, ...], int] = {}
            for shown, at, diff in found[view]:
                held[shown] = held.get(shown, 0) + (diff if at <= time else 0)
            assert {shown: copies for shown, copies in held.items() if copies} == wanted, view


def test_a_value_is_there_while_a_row_with_it_is_present() -> None:
    found = run(program(), {"visits": [((0, 1, 5), 0, -1), ((0, 1, 6), 0, 1)]})
    assert found["one"] == [((0, 1), 0, 1)]


def _whole_groups(patch: pytest.MonkeyPatch) -> None:
    """Plan groups as the version did that read them whole."""
    patch.setattr(reductions, "counts_distinct", lambda *_: False)


def _groups_beside_values(patch: pytest.MonkeyPatch) -> None:
    """Plan one count as the version did that kept the groups beside their distinct values."""
    patch.setattr(reductions, "as_count", lambda planner, node, below, item: as_sums(planner, node, below, [item]))


@pytest.mark.parametrize("former", [_whole_groups, _groups_beside_values])
def test_a_state_of_an_earlier_version_continues(
    former: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(1)

    def visit() -> Row:
        return choose.randrange(3), choose.choice([None, *range(9)]), choose.randrange(9)

    with monkeypatch.context() as patch:
        former(patch)
        before = compile_app(program())
    plan = compile_app(program())
    assert not plan.of(BatchedReduceOp)
    assert set(before.arrangements) != set(plan.arrangements)
    check_continued(program(), before, visit)


def test_a_join_that_absorbs_the_same_filter_changes_nothing() -> None:
    app = vn.App("shared")
    visits = app.source("visits", Visit)
    others = visits.rename(page="other", user="who", ms="took")
    app.view("joined", visits.join(others, left_on="user", right_on="who"))
    app.view("counted", visits.group_by("page").agg(users=vn.count_distinct("user"), most=vn.max("user")))
    with vn.testing.run(app) as t:
        for row in ((1, 10, 5), (1, 20, 5), (2, 10, 6), (2, None, 7)):
            t.insert("visits", row, at=1)
        t.advance(5)
        assert t.rows("counted") == [(1, 2, 20), (2, 1, 10)]
