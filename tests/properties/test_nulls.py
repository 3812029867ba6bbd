"""Columns that may be null, as in SQL: null keys join nothing and are one group, null values count for nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.model import Change, changes
from tests.oracle.plan import Aggregate, Distinct, Filter, Group, Join, Node, Project, Row, Source, Union, columns, item
from tests.profiles import examples
from tests.properties.engine import run
from vernier import col

C = vn.Collection


class Maybe(vn.Schema):
    """A key and a value; either may be missing."""

    k: vn.Int64 | None
    v: vn.Int64 | None


class Surely(vn.Schema):
    """A key and a value."""

    k: vn.Int64
    v: vn.Int64


T, U = Source("t"), Source("u")


def mean(row: Row) -> Row:
    key, total, count = row
    return key, None if total is None or count == 0 else total / count


AVERAGE = Project(Group(T, columns(0), (Aggregate("sum", item(1), True), Aggregate("count", item(1)))), mean)
PLANS: dict[str, tuple[Node, Callable[[C, C], C]]] = {
    "distinct": (Distinct(T), lambda t, u: t.distinct()),
    "filter": (Filter(T, lambda row: row[1] is not None and row[1] > 0), lambda t, u: t.filter(col("v") > 0)),
    "is_null": (Filter(T, lambda row: row[1] is None), lambda t, u: t.filter(col("v").is_null())),
    "sum": (
        Project(T, lambda row: (None if None in row else row[0] + row[1],)),
        lambda t, u: t.select(s=col("k") + col("v")),
    ),
    "union": (Union((T, U)), lambda t, u: t.union(u)),
    "join": (
        Join(T, U, columns(0), columns(0), lambda one, two: (one[0], one[1], two[1])),
        lambda t, u: t.join(u.rename(v="w"), on="k"),
    ),
    "join on values": (
        Join(T, T, columns(1), columns(1), lambda one, two: (one[0], two[0])),
        lambda t, u: t.join(t.rename(k="l"), on="v").select("k", "l"),
    ),
    "group": (
        Group(
            T,
            columns(0),
            (
                Aggregate("count"),
                Aggregate("count", item(1)),
                Aggregate("sum", item(1), True),
                Aggregate("min", item(1), True),
                Aggregate("max", item(1), True),
            ),
        ),
        lambda t, u: t.group_by("k").agg(n=vn.count(), c=vn.count("v"), s=vn.sum("v"), lo=vn.min("v"), hi=vn.max("v")),
    ),
    "average": (AVERAGE, lambda t, u: t.group_by("k").agg(mean=vn.avg("v"))),
    "least": (
        Group(U, columns(0), (Aggregate("min", item(1)),)),
        lambda t, u: u.group_by("k").agg(lo=vn.min("v")),
    ),
}


@st.composite
def updates(draw: st.DrawFn) -> dict[str, list[Change]]:
    """Few rows, nulls among those of t, diffs of both signs."""
    some, number = st.sampled_from((None, 0, 1, 2, -1)), st.integers(-1, 2)
    moves = st.integers(0, 6), st.sampled_from((1, 1, -1, 2))
    return {
        "t": draw(st.lists(st.tuples(st.tuples(some, some), *moves), max_size=16)),
        "u": draw(st.lists(st.tuples(st.tuples(number, number), *moves), max_size=8)),
    }


@pytest.fixture(scope="module")
def app() -> vn.App:
    """All plans as views of one app."""
    made = vn.App("nulls")
    t, u = made.source("t", Maybe), made.source("u", Surely)
    for name, (_, build) in PLANS.items():
        made.view(name.replace(" ", "_"), build(t, u))
    return made


@examples(150)
@given(some=updates(), cuts=st.lists(st.integers(0, 6), max_size=3), workers=st.integers(1, 3))
def test_nulls(app: vn.App, some: dict[str, list[Change]], cuts: list[int], workers: int) -> None:
    found = run(app, some, cuts=cuts, workers=workers)
    for name, (plan, _) in PLANS.items():
        assert found[name.replace(" ", "_")] == changes(plan, some), name
