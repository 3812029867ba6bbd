"""Orders, windows and joins along time in the bodies of loops, also nested ones, against loops in plain Python.

A body makes new pairs (k, v) of the ones it has and adds those that it began with; loops are cut after a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.dsl.recompute import check, cuts, updates
from tests.oracle.model import Change, Collection, accumulate
from tests.profiles import examples
from vernier import coalesce, col

Pair = tuple[int, int]
Answered = Iterable[tuple[Pair, int]]


class Row(vn.Schema):
    k: vn.Int64
    v: vn.Int64


def made(found: vn.Collection, name: str) -> vn.Collection:
    return found.select("k", v=coalesce(col(name), 0) % 5)


def parts(held: Collection) -> Iterable[list[Pair]]:
    """The present copies of each key, in order."""
    copies = sorted(row for row, count in held.items() for _ in range(count))
    return [list(part) for _, part in groupby(copies, lambda row: row[0])]


def along(step: Callable[[list[Pair], int], int]) -> Callable[[Collection, Collection], Answered]:
    """What a step gives for each copy of each key, by its position."""

    def answer(held: Collection, start: Collection) -> Answered:
        return [((part[i][0], step(part, i) % 5), 1) for part in parts(held) for i in range(len(part))]

    return answer


def session(part: list[Pair], i: int) -> int:
    while i and part[i][1] - part[i - 1][1] <= 1:
        i -= 1
    return part[i][1]


def as_of(held: Collection, start: Collection) -> Answered:
    for (k, v), count in held.items():
        before = [w for (other, w), copies in start.items() if other == k and w <= v and copies > 0]
        yield (k, (max(before) + 1) % 5 if before else 0), count


def near(held: Collection, start: Collection) -> Answered:
    for (k, v), count in held.items():
        pairs = [(w, copies) for (other, w), copies in start.items() if other == k and 0 <= w - v <= 1]
        if not any(copies > 0 for _, copies in pairs):
            yield (k, 0), count
        for w, copies in pairs:
            yield (k, (w + 1) % 5), count * copies


def prefix(held: Collection, start: Collection) -> Answered:
    for (k, v), count in held.items():
        total = sum(w * copies for (other, w), copies in start.items() if other == k and w <= v)
        yield (k, int(abs(total) % 5) * (1 if total >= 0 else -1)), count


Built = Callable[[vn.Collection, vn.Collection], vn.Collection]
BODIES: dict[str, tuple[Built, Callable[[Collection, Collection], Answered]]] = {
    "rank": (
        lambda x, start: made(x.rank(by=col("v").desc(), within="k"), "rank"),
        along(lambda part, i: 1 + sum(v > part[i][1] for _, v in part)),
    ),
    "row_number": (
        lambda x, start: made(x.row_number(by="v", within="k"), "row_number"),
        along(lambda part, i: i + 1),
    ),
    "lag": (
        lambda x, start: made(x.lag("v", by="v", within="k"), "lag"),
        along(lambda part, i: part[i - 1][1] if i else 0),
    ),
    "running_sum": (
        lambda x, start: made(x.running_sum("v", by="v", within="k"), "running_sum"),
        along(lambda part, i: sum(v for _, v in part[: i + 1])),
    ),
    "running_max": (
        lambda x, start: made(x.running_max("v", by="v", within="k"), "running_max"),
        along(lambda part, i: max(v for _, v in part[: i + 1])),
    ),
    "session": (lambda x, start: made(x.window("v", session=1, by="k"), "window_start"), along(session)),
    "as_of_join": (
        lambda x, start: made(
            x.as_of_join(start.rename(v="w"), on="k", left_time="v", right_time="w", how="left").with_columns(
                w=col("w") + 1
            ),
            "w",
        ),
        as_of,
    ),
    "interval_join": (
        lambda x, start: made(
            x.interval_join(
                start.rename(v="w"), on="k", left_time="v", right_time="w", lower=0, upper=1, how="left"
            ).with_columns(w=col("w") + 1),
            "w",
        ),
        near,
    ),
    "prefix_sum": (
        lambda x, start: made(start.prefix_sum("v", at=x, by="v", within="k", bits=3), "prefix_sum"),
        prefix,
    ),
}
ROUNDS = 3


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", BODIES)
@examples(15)
@given(
    changes=updates(st.tuples(st.integers(0, 1), st.integers(0, 4)), most=8),
    cuts=cuts,
    workers=st.sampled_from((1, 2)),
)
def test_a_body(name: str, nested: bool, changes: list[Change], cuts: list[int], workers: int) -> None:
    body, expected = BODIES[name]

    def build(start: vn.Collection) -> vn.Collection:
        @vn.fixpoint(max_rounds=ROUNDS, on_limit="truncate")
        def inner(x: vn.Collection) -> vn.Collection:
            return vn.union(start, body(x, start).filter(col("v") >= 0))

        @vn.fixpoint(max_rounds=2, on_limit="truncate")
        def outer(x: vn.Collection) -> vn.Collection:
            return inner(x.filter(col("v") > 1)).distinct()  # type: ignore[no-any-return]

        result: vn.Collection = outer(start) if nested else inner(start)
        return result

    def loop(x: Collection, start: Collection) -> Collection:
        for _ in range(ROUNDS):
            kept = [(row, count) for row, count in expected(x, start) if row[1] >= 0]
            x = accumulate([*start.items(), *kept])
        return x

    def answer(start: Collection) -> Iterable[tuple[tuple[Any, ...], int]]:
        if not nested:
            return loop(start, start).items()
        x = start
        for _ in range(2):
            inside = loop({row: count for row, count in x.items() if row[1] > 1}, start)
            x = {row: 1 for row, count in inside.items() if count > 0}
        return x.items()

    check(build, {"rows": Row}, answer, {"rows": changes}, cuts, workers)
