"""Reductions that read the ends of groups: the first copies, and least and greatest values that leave."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vernier as vn
from tests.operators.continued import check_continued
from tests.operators.recounts import BETWEEN, CUTS, FEW, WORKERS, check, check_cut, fitting, logs
from tests.profiles import examples
from tests.properties.engine import Between, run
from vernier import col
from vernier.operators.failures import MultiplicityOverflow
from vernier.operators.planning import reductions
from vernier.operators.planning.planner import compile_app

LONG = "a text that is longer than fifteen bytes, "
Row = tuple[int, str, int | None, float]
Log = list[tuple[Row, int, int]]


class Event(vn.Schema):
    key: vn.Int64
    name: vn.String
    score: vn.Int64 | None
    weight: vn.Float64


def program() -> vn.App:
    app = vn.App("ends", retain="1us")
    events = app.source("events", Event)
    plain = events.select("key", "score", "weight")
    down, mixed = col("score").desc(), [col("score").desc(), "weight", col("name").desc()]
    light = plain.top_k(1, by="weight", within="key").rename(score="s", weight="w")
    app.view("top", plain.top_k(2, by=down, within="key"))
    app.view("bottom", plain.top_k(3, by="weight", within="key"))
    app.view("named", events.top_k(2, by=[down, "name"], within="key"))
    app.view("mixed", events.top_k(2, by=mixed, within="key"))
    app.view("first", events.top_k(1, by=["weight", down], within=["key"]))
    app.view("texts", events.top_k(2, by="name", within="key"))
    app.view("least", events.group_by("key").agg(v=vn.min("score")))
    app.view("most", events.group_by("key").agg(v=vn.max("score")))
    app.view("light", plain.group_by("key").agg(v=vn.min("weight")))
    app.view("heavy", plain.distinct().group_by("key").agg(v=vn.max("weight")))
    app.view("rows", plain.top_k(2, by=down, within="key").join(light, on="key"))
    return app


def _null_first(value: int | None) -> tuple[bool, int]:
    return value is not None, value or 0


def _null_last(value: int | None) -> tuple[bool, int]:
    return value is None, -(value or 0)


def _backward(name: str) -> tuple[int, ...]:
    return (*(-ord(letter) for letter in name), 1)


def truth(rows: Counter[Row]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The views of these rows."""
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in program().views}
    events: dict[int, Counter[Any]] = defaultdict(Counter)
    plain: dict[int, Counter[Any]] = defaultdict(Counter)
    for (key, name, score, weight), copies in rows.items():
        events[key][(name, score, weight)] += copies
        plain[key][(score, weight)] += copies

    def first(view: str, of: dict[int, Counter[Any]], most: int, order: Callable[[Any], Any]) -> None:
        for key, group in of.items():
            there = sorted((row for row, copies in group.items() if copies > 0), key=order)
            for one in [row for row in there for _ in range(group[row])][:most]:
                found[view][(key, *one)] += 1

    first("top", plain, 2, lambda r: (_null_last(r[0]), _null_first(r[0]), r[1]))
    first("bottom", plain, 3, lambda r: (r[1], _null_first(r[0])))
    first("named", events, 2, lambda r: (_null_last(r[1]), r[0], r[2]))
    first("mixed", events, 2, lambda r: (_null_last(r[1]), r[2], _backward(r[0])))
    first("first", events, 1, lambda r: (r[2], _null_last(r[1]), r[0]))
    first("texts", events, 2, lambda r: (r[0], _null_first(r[1]), r[2]))
    for key, group in events.items():
        scores = [score for (_, score, _), copies in group.items() if copies > 0 and score is not None]
        if any(group.values()):
            found["least"][(key, min(scores, default=None))] = 1
            found["most"][(key, max(scores, default=None))] = 1
    for key, group in plain.items():
        weights = [weight for (_, weight), copies in group.items() if copies > 0]
        if weights:
            found["light"][(key, min(weights))] = found["heavy"][(key, max(weights))] = 1
    for (key, *row), copies in found["top"].items():
        group = plain[key]
        there = sorted((one for one, n in group.items() if n > 0), key=lambda r: (r[1], _null_first(r[0])))
        found["rows"][(key, *row, *there[0])] = copies
    return found


EVENTS = logs(
    st.integers(0, 1),
    st.sampled_from(["", "a", LONG + "a", LONG + "b"]),
    st.none() | st.integers(-1, 2),
    st.sampled_from([-1.5, 0.0, 2.0]),
)


@pytest.mark.parametrize("few", FEW)
@given(EVENTS, CUTS, WORKERS, BETWEEN)
@examples(12)
def test_the_first_copies_are_those_of_the_rows(
    few: int | None, log: Log, cuts: set[int], workers: int, between: Between
) -> None:
    check_cut(program(), truth, few, log, cuts, workers, between)


@pytest.mark.parametrize("seed", range(2))
def test_large_groups_whose_ends_leave(seed: int) -> None:
    """Groups of some hundred rows that grow and shrink, from which the ends are deleted most often."""
    choose = random.Random(seed)
    log: Log = []
    held: list[Row] = []
    for at in range(200):
        if held and choose.random() < 0.45:
            held.sort(key=lambda row: (_null_last(row[2]), row[3]))
            row = held.pop(choose.choice([0, 0, 0, -1, choose.randrange(len(held))]))
            log.append((row, at // 2, -1))
        else:
            name = choose.choice(["b", LONG + str(choose.randrange(5))])
            row = (choose.randrange(2), name, choose.choice([None, *range(40)]), float(choose.randrange(30)))
            held.append(row)
            log.append((row, at // 2, 1))
    found = run(program(), {"events": log}, cuts=(30, 31, 32, 40, 80, 81), slice_updates=5)
    check(found, log, truth)
    found = run(fitting(program()), {"events": log}, cuts=(30, 31, 32, 40, 80, 81), slice_updates=5)
    check(found, log, truth)


def test_a_state_with_rows_in_their_own_order_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(1)

    def event() -> Row:
        return choose.randrange(3), choose.choice("abc"), choose.randrange(9), float(choose.randrange(9))

    with monkeypatch.context() as patch:
        patch.setattr(reductions, "ordered_first", lambda _, val: val)
        patch.setattr(reductions, "MOST", 0)
        patch.setattr(reductions, "ends_of_extreme", lambda *_: None)
        before = compile_app(program())
    assert compile_app(program()).arrangements.keys() != before.arrangements.keys()
    check_continued(program(), before, event)


def test_copies_that_do_not_fit_are_refused() -> None:
    app = vn.App("far")
    app.view("top", app.source("events", Event).select("key", "score").top_k(1, by="score", within="key"))
    row = ((1, "", 1, 0.0), 5, 2**63 - 1)
    with pytest.raises(MultiplicityOverflow, match="key=1"):
        run(app, {"events": [row, ((1, "", 1, 0.0), 6, 1)]})
