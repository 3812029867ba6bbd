"""Columns of all types go through all joins and orders, and are null on the side that is missing."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import vernier as vn
from vernier import col

LONG = "a text of more than fifteen letters: "


class Left(vn.Schema):
    k: vn.String
    at: vn.Int64
    flag: vn.Bool
    day: vn.Date
    share: vn.Float64
    price: vn.Decimal(30, 2)  # type: ignore[valid-type]
    raw: vn.Binary | None
    tags: vn.List(vn.String)  # type: ignore[valid-type]
    place: vn.Struct(x=vn.Int64, name=vn.String | None)  # type: ignore[valid-type]


class Right(vn.Schema):
    k: vn.String
    then: vn.Int64
    other: vn.Struct(tags=vn.List(vn.Int64 | None), price=vn.Decimal(5, 1))  # type: ignore[valid-type]
    text: vn.String


DAY = datetime.date(2024, 2, 29)


def left(k: str, at: int) -> tuple[Any, ...]:
    letter = k[-1]
    place = {"x": at, "name": None if at % 2 else LONG + letter}
    return (LONG + k, at, at > 1, DAY, at / 2, Decimal(at) / 100, b"\x00" + bytes([at]), [LONG, letter], place)


def right(k: str, then: int) -> tuple[Any, ...]:
    return (LONG + k, then, {"tags": [then, None], "price": Decimal(then) / 10}, LONG + str(then))


def rows(build: Callable[[vn.Collection, vn.Collection], vn.Collection], workers: int) -> list[tuple[Any, ...]]:
    """The answer after two epochs, with updates that cancel one another among them."""
    app = vn.App("t")
    app.view("v", build(app.source("left", Left), app.source("right", Right)))
    with vn.testing.run(app, epochs=(2, 3), workers=workers) as t:
        t.update("left", [(left("a", 1), 1, 1), (left("a", 2), 2, 1), (left("b", 3), 2, 1), (left("c", 9), 1, 1)])
        t.update("right", [(right("a", 1), 2, 1), (right("d", 4), 1, 1), (right("a", 5), 3, 1)])
        t.delete("left", left("c", 9), at=3)
        t.finish()
        return [row for row, count in t.counts("v").items() for _ in range(count)]


def same(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> None:
    assert sorted(found, key=repr) == sorted(map(plain, wanted), key=repr)


def plain(value: Any) -> Any:
    """Lists and structs as answers show them: tuples."""
    if isinstance(value, dict):
        value = tuple(value.values())
    return tuple(map(plain, value)) if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize("workers", [1, 2])
def test_joins(workers: int) -> None:
    a1, a2, b3, r1, r4, r5 = left("a", 1), left("a", 2), left("b", 3), right("a", 1), right("d", 4), right("a", 5)
    pairs = [(*one, *two[1:]) for one in (a1, a2) for two in (r1, r5)]
    alone, other = [(*b3, None, None, None)], [(r4[0], *(None,) * 8, *r4[1:])]
    for how, wanted in {
        "inner": pairs,
        "left": pairs + alone,
        "right": pairs + other,
        "full": pairs + alone + other,
        "semi": [a1, a2],
        "anti": [b3],
    }.items():
        same(rows(lambda one, two, how=how: one.join(two, on="k", how=how), workers), wanted)  # type: ignore[misc]
    same(
        rows(lambda one, two: one.join(two, on="k", how="left", where=col("then") > col("at") + 3), workers),
        [(*a1, *r5[1:]), *((*one, None, None, None) for one in (a2, b3))],
    )
    same(rows(lambda one, two: one.intersect(one.filter(col("at") < 3)), workers), [a1, a2])
    same(rows(lambda one, two: one.except_all(one.filter(col("at") < 3)), workers), [b3])


@pytest.mark.parametrize("workers", [1, 2])
def test_orders_and_joins_along_time(workers: int) -> None:
    a1, a2, b3, r1, r5 = left("a", 1), left("a", 2), left("b", 3), right("a", 1), right("a", 5)
    same(rows(lambda one, two: one.top_k(1, by=[col("place").desc()], within="k"), workers), [a2, b3])
    same(rows(lambda one, two: one.top_k(1, by="tags"), workers), [a1])
    same(
        rows(lambda one, two: one.lag("place", by=col("price").desc()), workers),
        [(*b3, None), (*a2, b3[-1]), (*a1, a2[-1])],
    )
    same(
        rows(lambda one, two: one.as_of_join(two, on="k", left_time="at", right_time="then", how="left"), workers),
        [(*a1, *r1[1:]), (*a2, *r1[1:]), (*b3, None, None, None)],
    )
    same(
        rows(
            lambda one, two: one.interval_join(
                two, on="k", left_time="at", right_time="then", lower=1, upper=3, how="left"
            ),
            workers,
        ),
        [(*a2, *r5[1:]), (*a1, None, None, None), (*b3, None, None, None)],
    )
