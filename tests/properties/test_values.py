"""Columns of every type as keys, as values and in order: equal, null, NaN, texts that only their hash tells apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.oracle.joins import AsOf, Matched, except_all, intersect
from tests.oracle.model import changes_of
from tests.oracle.ordering import Rank, RowNumber, Shifted, TopK
from tests.oracle.plan import (
    Aggregate,
    Between,
    Coarsen,
    Delay,
    Distinct,
    Expand,
    Filter,
    Group,
    Join,
    Lookup,
    Node,
    PerKey,
    Project,
    Row,
    Source,
    Union,
    Whole,
    columns,
    fixpoint,
    item,
)
from tests.oracle.values import By, canonical, order, rank
from tests.profiles import examples
from tests.properties.engine import run
from tests.properties.values import KINDS, moving, plain
from vernier import col

C = vn.Collection
T, U = Source("t"), Source("u")
"""Both have a key k and a value v of the type, which may be null, and a number a."""
BY_V = (By(item(1), descending=True),)


def beside(left: Row | None, right: Row | None) -> Row:
    """Both sides of an outer join."""
    return (left or (None,) * 3) + (right or (None,) * 3)


def followed(t: C, u: C) -> C:
    """Whatever the rows of t lead to, from value to key. Of present rows: others may keep the loop from settling."""
    links = u.select(l=col("k"), w=col("v")).distinct()

    @vn.fixpoint
    def follow(x: C) -> C:
        return x.union(x.join(links, left_on="v", right_on="l").select("k", v=col("w"))).distinct()

    result: C = follow(t.select("k", "v").distinct())
    return result


def follow(x: Node) -> tuple[Node]:
    links = Distinct(Project(U, columns(0, 1)))
    return (Distinct(Union((x, Join(x, links, columns(1), columns(0), lambda one, two: (one[0], two[1]))))),)


def greatest(key: tuple[Any, ...], rows: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
    """The v of the last row in the order of columns, as often as the most frequent row is there."""
    last = max((canonical(row) for row, _ in rows), key=order)
    row = next(row for row, _ in rows if canonical(row) == last)
    return [((row[0],), max(count for _, count in rows))]


def u_values(t: C) -> type[vn.Schema]:
    """A schema of the column v alone."""
    field = t.schema.field("v")
    return type("Value", (vn.Schema,), {"__annotations__": {"v": field.type | None}})


ENDS = tuple(Aggregate(kind, item(1), True) for kind in ("min", "max", "count"))
VIEWS: dict[str, tuple[Node, Callable[[C, C], C]]] = {
    "distinct": (Distinct(Project(T, columns(1))), lambda t, u: t.select("v").distinct()),
    "join": (
        Join(T, U, columns(0), columns(0), lambda one, two: (*one[:2], *two[1:])),
        lambda t, u: t.select("k", "v").join(u.rename(v="w"), on="k"),
    ),
    "left": (
        Whole((T, U), Matched("left", columns(1), columns(0), beside)),
        lambda t, u: t.join(u.rename(k="l", v="w", a="b"), left_on="v", right_on="l", how="left"),
    ),
    "anti": (
        Whole((T, U), Matched("anti", columns(0, 1), columns(0, 1), beside)),
        lambda t, u: t.join(u, on=["k", "v"], how="anti"),
    ),
    "except_all": (Whole((T, U), except_all), lambda t, u: t.except_all(u)),
    "intersect": (Whole((T, U), intersect), lambda t, u: t.intersect(u)),
    "group": (
        Group(T, columns(0), (Aggregate("count"), *ENDS)),
        lambda t, u: t.group_by("k").agg(n=vn.count(), lo=vn.min("v"), hi=vn.max("v"), c=vn.count("v")),
    ),
    "equal": (
        Filter(T, lambda row: None not in row[:2] and rank(row[0]) == rank(row[1])),
        lambda t, u: t.filter(col("k") == col("v")),
    ),
    "less": (
        Filter(T, lambda row: None not in row[:2] and rank(row[0]) < rank(row[1])),
        lambda t, u: t.filter(col("k") < col("v")),
    ),
    "top": (PerKey(T, lambda _: (), TopK(2, BY_V)), lambda t, u: t.top_k(2, by=col("v").desc())),
    "rank": (
        PerKey(T, lambda _: (), Rank(BY_V)),
        lambda t, u: t.rank(by=[col("v").desc()]),
    ),
    "row_number": (
        PerKey(T, lambda _: (), RowNumber((By(item(1)), By(item(0), True)))),
        lambda t, u: t.row_number(by=["v", col("k").desc()]),
    ),
    "lag": (
        Project(PerKey(T, columns(2), Shifted(item(1), 1, (By(item(0)),))), columns(1, 2, 3, 4)),
        lambda t, u: t.lag("v", by="k", within="a"),
    ),
    "delayed": (Delay(Project(T, columns(1, 0)), 2), lambda t, u: t.select("v", "k").delay(2)),
    "valid": (
        Coarsen(Between(T, item(2), lambda row: row[2] + 4), 2),
        lambda t, u: t.valid_between("a", col("a") + 4).coarsen(2),
    ),
    "looked_up": (
        Lookup(T, U, columns(0), columns(0), lambda one, two: (*one, *two[1:])),
        lambda t, u: t.lookup(u.rename(v="w", a="b"), on="k"),
    ),
    "as_of": (
        Whole((T, U), AsOf("left", columns(1), columns(0), item(2), item(2), beside)),
        lambda t, u: t.as_of_join(
            u.rename(k="l", v="w", a="b"), left_on="v", right_on="l", left_time="a", right_time="b", how="left"
        ),
    ),
    "as_of_all": (
        Whole((T, U), AsOf("inner", columns(), columns(), item(2), item(2), beside)),
        lambda t, u: t.as_of_join(u.rename(k="l", v="w", a="b"), left_time="a", right_time="b"),
    ),
    "collected": (
        Expand(
            Group(T, columns(2), (Aggregate("collect_list", item(1)),)),
            lambda row: [((row[0], one, place), 1) for place, one in enumerate(row[1])],
        ),
        lambda t, u: t.group_by("a").agg(v=vn.collect_list("v")).explode("v", index_name="i"),
    ),
    "reduced": (
        PerKey(T, columns(0), lambda rows: [((max(rows, key=order)[1],), max(rows.values()))]),
        lambda t, u: t.reduce(greatest, keys="k", returns=u_values(t)),
    ),
    "followed": (
        fixpoint((Distinct(Project(T, columns(0, 1))),), follow)[0],
        followed,
    ),
}


@cache
def program(kind: str) -> vn.App:
    """All views of columns of this type."""
    of = KINDS[kind].type
    rows = type("Rows", (vn.Schema,), {"__annotations__": {"k": of | None, "v": of | None, "a": vn.Int64}})
    app = vn.App("values")
    t, u = app.source("t", rows), app.source("u", rows)
    for name, (_, build) in VIEWS.items():
        app.view(name, build(t, u))
    return app


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data(), cuts=st.lists(st.integers(0, 6), max_size=3), workers=st.integers(1, 3))
def test_columns_of_each_type(kind: str, data: st.DataObject, cuts: list[int], workers: int) -> None:
    value = st.one_of(st.none(), KINDS[kind].values, KINDS[kind].values)
    row = st.tuples(value, value, st.integers(0, 1))
    updates = {"t": data.draw(moving(row)), "u": data.draw(moving(row, 8))}
    between = data.draw(st.sampled_from(("go on", "reopen", "repeat")))
    found = run(program(kind), updates, cuts=cuts, workers=workers, slice_updates=4, between=between)  # type: ignore[arg-type]
    expected = changes_of({name: plan for name, (plan, _) in VIEWS.items()}, {k: plain(v) for k, v in updates.items()})
    for name in VIEWS:
        assert found[name] == expected[name], name
