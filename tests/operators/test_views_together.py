"""A view has the same changes whatever views are beside it: what the planner shares or fuses changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import vernier as vn
from vernier import Collection, col, lit


class Item(vn.Schema):
    """A row with columns that may be null, and one that may not."""

    a: vn.Int64 | None
    b: vn.Int64
    c: vn.String | None


UPDATES = [
    ((10, 1, "x"), 1, 1),
    ((20, 1, "y"), 1, 1),
    ((10, 2, "x"), 2, 1),
    ((None, 2, "x"), 2, 2),
    ((20, 3, None), 3, 1),
    ((10, 1, "x"), 4, -1),
    ((30, 1, "a text of more than fifteen bytes"), 4, 1),
    ((None, 3, None), 5, 1),
    ((10, 3, "y"), 6, 1),
    ((20, 1, "y"), 6, -1),
]


def _renamed(rows: Collection) -> Collection:
    return rows.rename(a="ra", b="rb", c="rc")


VIEWS: dict[str, Callable[[Collection], Collection]] = {
    "known": lambda rows: rows.filter(col("a").is_not_null()),
    "known_columns": lambda rows: rows.filter(col("a").is_not_null()).select("b", "a"),
    "join_a": lambda rows: rows.join(_renamed(rows), left_on="a", right_on="ra"),
    "join_c": lambda rows: rows.join(_renamed(rows), left_on="c", right_on="rc"),
    "join_both": lambda rows: rows.join(_renamed(rows), left_on=["a", "b"], right_on=["ra", "rb"]),
    "left": lambda rows: rows.join(_renamed(rows), left_on="a", right_on="rb", how="left"),
    "full": lambda rows: rows.join(_renamed(rows), left_on="a", right_on="rb", how="full"),
    "semi": lambda rows: rows.join(rows.filter(col("b") > 1), on="a", how="semi"),
    "anti": lambda rows: rows.join(rows.filter(col("b") > 1), on="c", how="anti"),
    "distinct_a": lambda rows: rows.group_by("b").agg(n=vn.count_distinct("a"), m=vn.max("a")),
    "distinct_c": lambda rows: rows.group_by("b").agg(n=vn.count_distinct("c"), m=vn.min("c")),
    "distinct_two": lambda rows: rows.group_by("b").agg(n=vn.count_distinct("a", "c"), m=vn.median("a")),
    "distinct_alone": lambda rows: rows.group_by("b").agg(n=vn.count_distinct("a")),
    "sums": lambda rows: rows.group_by("a").agg(n=vn.count(), s=vn.sum("b"), k=vn.count("c")),
    "mixed": lambda rows: rows.group_by("c").agg(n=vn.count(), s=vn.avg("a"), m=vn.mode("a"), k=vn.max("b")),
    "of_all": lambda rows: rows.group_by().agg(n=vn.count_distinct("a"), s=vn.sum("a"), m=vn.max("c")),
    "known_sums": lambda rows: rows.filter(col("a").is_not_null()).group_by("b").agg(s=vn.sum("a"), m=vn.min("a")),
    "top": lambda rows: rows.top_k(2, by=col("a").desc(), within="b"),
    "rank": lambda rows: rows.rank(by="a", within="b", name="r"),
    "lag": lambda rows: rows.lag("a", by="b", within="c", name="before"),
    "running": lambda rows: rows.running_sum("b", by="b", within="a", name="s"),
    "set": lambda rows: rows.select("a", "c").distinct(),
    "computed": lambda rows: rows.select("b", twice=col("a") * 2, upper=col("c").upper()),
    "filled": lambda rows: rows.select("b", a=vn.coalesce("a", lit(0))).group_by("a").agg(n=vn.count_distinct("b")),
    "less": lambda rows: rows.select("a").except_all(rows.filter(col("b") > 2).select("a")),
    "both": lambda rows: vn.union(rows.select("a"), rows.select(a=col("b"))).distinct(),
}


def changes(*names: str) -> dict[str, Any]:
    """The changes of views in one program, in one epoch of all updates."""
    app = vn.App("together")
    rows = app.source("rows", Item)
    for name in names:
        app.view(name, VIEWS[name](rows))
    with vn.testing.run(app) as t:
        t.update("rows", UPDATES)
        t.finish()
        return {name: t.changes(name) for name in names}


@cache
def alone(name: str) -> Any:
    return changes(name)[name]


@pytest.mark.parametrize("first", VIEWS)
def test_pairs(first: str) -> None:
    for second in VIEWS:
        if second != first:
            assert changes(first, second) == {first: alone(first), second: alone(second)}, second


def test_all() -> None:
    expected = {name: alone(name) for name in VIEWS}
    assert changes(*VIEWS) == expected
    assert changes(*reversed(VIEWS)) == expected
